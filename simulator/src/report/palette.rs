//! One colour for each app, the same under every policy.

use std::collections::{BTreeMap, HashMap};

use crate::outcome::{CellEnd, InstanceEnd, SimOutcome, SimRun};

/// Distinguishable for most readers, including colour-blind ones, on white and on black: after Paul Tol's "bright" and
/// "muted" schemes, with alternating lightness.
pub(super) const NAMED: [&str; 12] = [
    "#4477aa", "#ee6677", "#66ccee", "#228833", "#ccbb44", "#aa3377", "#ee8844", "#44aa99",
    "#7755bb", "#999933", "#dd99cc", "#885533",
];
/// For apps without an entry in the legend: paler than those above.
pub(super) const OTHERS: [&str; 12] = [
    "#93a7bd", "#d8a9ae", "#a5c8d3", "#8aac90", "#cbc496", "#b795a6", "#d9b596", "#95b8b2",
    "#a79cbd", "#b0b08a", "#cdb4c6", "#ab988a",
];
/// The same for a terminal of 256 colours.
pub(super) const TERMINAL: [u8; 12] = [68, 204, 81, 35, 178, 133, 208, 73, 98, 143, 182, 137];

/// The apps of all runs, those with the most memory first, equal ones by name.
pub(super) struct Apps<'a> {
    /// By rank.
    pub(super) names: Vec<&'a str>,
    /// How many of these, from the first, have their own colour and letter.
    pub(super) named: usize,
    /// For each run: maps its position of an app to the rank.
    ranks: Vec<Vec<usize>>,
}

impl<'a> Apps<'a> {
    /// Ranks the apps of an outcome.
    pub(super) fn new(outcome: &'a SimOutcome) -> Self {
        let mut memory: BTreeMap<&str, i64> = BTreeMap::new();
        for run in &outcome.runs {
            for (app, mb) in run.apps.iter().zip(memory_of_apps(run)) {
                *memory.entry(app).or_default() += mb;
            }
        }
        let all: i64 = memory.values().sum();
        let mut order: Vec<(&str, i64)> = memory.into_iter().collect();
        order.sort_by_key(|(_, mb)| std::cmp::Reverse(*mb));
        let few = order.len() <= NAMED.len();
        let named = order
            .iter()
            .take(NAMED.len())
            .take_while(|(_, mb)| few || mb.saturating_mul(100) >= all)
            .count();
        let names: Vec<&str> = order.into_iter().map(|(name, _)| name).collect();
        let by_name: HashMap<&str, usize> = names
            .iter()
            .enumerate()
            .map(|(rank, name)| (*name, rank))
            .collect();
        let ranks = outcome
            .runs
            .iter()
            .map(|run| run.apps.iter().map(|app| by_name[app.as_str()]).collect())
            .collect();
        Apps {
            names,
            named,
            ranks,
        }
    }

    /// Returns the letter of an app that has one.
    pub(super) fn letter(&self, rank: usize) -> Option<char> {
        (rank < self.named).then(|| char::from(b'A' + u8::try_from(rank % 26).unwrap_or(0)))
    }

    /// Returns the instances of a cell of a run in the order drawn, each with the rank of its app: those that ran
    /// before the first request first, then by app, then by index. If the position of an app does not exist, its rank
    /// is one beyond the last.
    pub(super) fn drawn<'c>(&self, run: usize, cell: &'c CellEnd) -> Vec<(usize, &'c InstanceEnd)> {
        let rank = |app: u32| self.ranks[run].get(app as usize).copied();
        let mut sorted: Vec<(usize, &InstanceEnd)> = cell
            .instances
            .iter()
            .map(|i| (rank(i.app).unwrap_or(self.names.len()), i))
            .collect();
        sorted.sort_by_key(|(rank, i)| (!i.before, *rank, i.index));
        sorted
    }
}

/// Returns the memory of each app of a run, in MiB.
fn memory_of_apps(run: &SimRun) -> Vec<i64> {
    let mut memory = vec![0_i64; run.apps.len()];
    for instance in run.cells.iter().flat_map(|cell| &cell.instances) {
        if let Some(sum) = memory.get_mut(instance.app as usize) {
            *sum = sum.saturating_add(instance.memory_mb);
        }
    }
    memory
}

/// Returns the colour class of a rank: below 12 for named apps, 12 to 23 for the others.
pub(super) fn class(rank: usize, named: usize) -> usize {
    if rank < named {
        rank
    } else {
        NAMED.len() + rank % OTHERS.len()
    }
}

/// Returns whether black is easier to read on this colour than white (relative luminance as in WCAG 2).
pub(super) fn wants_black(colour: &str) -> bool {
    let part = |at: usize| {
        let value = u8::from_str_radix(&colour[at..at + 2], 16).unwrap_or(0);
        let value = f64::from(value) / 255.0;
        if value <= 0.040_45 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5) > 0.179
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_named_and_other_apps_do_not_meet() {
        assert_eq!(class(0, 3), 0);
        assert_eq!(class(2, 3), 2);
        assert_eq!(class(3, 3), 15);
        assert_eq!(class(24, 3), 12);
    }

    #[test]
    fn text_is_readable_on_every_colour() {
        assert!(wants_black("#ffffff"));
        assert!(!wants_black("#000000"));
        assert!(!wants_black("#885533"));
        assert!(wants_black("#ccbb44"));
    }
}
