//! What charts show: quantities over time, and histograms with their classes.

use std::ops::Range;

use super::number::{Unit, short};
use crate::outcome::{Histogram, Sample, SimRun};

/// A line over time.
pub(super) struct Quantity {
    /// The field of [`Sample`].
    pub(super) field: &'static str,
    /// Heading.
    pub(super) title: &'static str,
    /// One sentence: what it is.
    pub(super) note: &'static str,
    /// The unit of its values.
    pub(super) unit: Unit,
    /// Reads it from a sample.
    pub(super) of: fn(&Sample) -> f64,
}

/// In the order in which they are shown.
const QUANTITIES: [Quantity; 7] = [
    Quantity {
        field: "stranded_mb",
        title: "Stranded memory",
        note: "Free on cells that could hold the largest size asked for, and where it does not fit now.",
        unit: Unit::Mebibytes,
        of: |s| s.stranded_mb,
    },
    Quantity {
        field: "empty_cells",
        title: "Empty cells",
        note: "Cells without any instance.",
        unit: Unit::Count,
        of: |s| s.empty_cells as f64,
    },
    Quantity {
        field: "largest_fit_mb",
        title: "Largest size that fits",
        note: "The largest free memory on one cell.",
        unit: Unit::Mebibytes,
        of: |s| s.largest_fit_mb,
    },
    Quantity {
        field: "instances",
        title: "Instances",
        note: "Instances on cells.",
        unit: Unit::Count,
        of: |s| s.instances as f64,
    },
    Quantity {
        field: "waiting",
        title: "Waiting",
        note: "Instances without an outcome.",
        unit: Unit::Count,
        of: |s| s.waiting as f64,
    },
    Quantity {
        field: MISSING,
        title: "Missing",
        note: "Indices that managers are to keep running and that do not run.",
        unit: Unit::Count,
        of: |s| s.missing as f64,
    },
    Quantity {
        field: "cells",
        title: "Cells",
        note: "Cells that are up.",
        unit: Unit::Count,
        of: |s| s.cells as f64,
    },
];

const MISSING: &str = "missing";

/// Returns the quantities that these runs have, in the order shown: only runs with managers have missing indices.
pub(super) fn quantities(runs: &[SimRun]) -> impl Iterator<Item = &'static Quantity> {
    let managed = runs.iter().any(|run| run.figures.kept.is_some());
    let all = QUANTITIES.iter();
    all.filter(move |what| managed || what.field != MISSING)
}

/// The share of all memory that is used.
pub(super) const USED: Quantity = Quantity {
    field: "used",
    title: "Memory used",
    note: "Share of the memory of all cells.",
    unit: Unit::Share,
    of: |s| s.used,
};

impl Quantity {
    /// Returns whether it has the same value in all samples of all runs.
    pub(super) fn is_constant(&self, runs: &[SimRun]) -> bool {
        let mut values = runs.iter().flat_map(|r| &r.series).map(self.of);
        let first = values.next();
        !values.any(|v| Some(v) != first)
    }
}

/// A histogram of every run.
pub(super) struct Kind {
    /// Heading.
    pub(super) title: &'static str,
    /// One sentence: what it counts.
    pub(super) note: &'static str,
    /// The unit of the bounds.
    pub(super) unit: Unit,
    /// What is counted, in the singular.
    pub(super) thing: &'static str,
    /// Reads it from a run.
    pub(super) of: fn(&SimRun) -> &Histogram,
}

/// In the order in which they are shown.
pub(super) const KINDS: [Kind; 3] = [
    Kind {
        title: "Wait",
        note: "From the request to the cell’s acceptance; placed instances.",
        unit: Unit::Ms,
        thing: "instance",
        of: |r| &r.wait_histogram,
    },
    Kind {
        title: "Auctions per instance",
        note: "Auctions that a placed instance was in.",
        unit: Unit::Count,
        thing: "instance",
        of: |r| &r.rounds_histogram,
    },
    Kind {
        title: "Load",
        note: "Share of memory used by each cell at the end.",
        unit: Unit::Share,
        thing: "cell",
        of: |r| &r.load_histogram,
    },
];

impl Kind {
    /// Returns whether all counts are in one class, the same one in all runs.
    pub(super) fn is_constant(&self, runs: &[SimRun]) -> bool {
        let histograms: Vec<&Histogram> = runs.iter().map(self.of).collect();
        used_classes(&histograms).len() <= 1
    }

    /// Returns the histograms of all runs, each with the classes to show: the same ones if all runs have the same
    /// bounds, so that they can be compared.
    pub(super) fn of_runs<'a>(&self, runs: &'a [SimRun]) -> Vec<(&'a Histogram, Range<usize>)> {
        let all: Vec<&Histogram> = runs.iter().map(self.of).collect();
        let shared = all.iter().all(|h| h.bounds == all[0].bounds);
        let used = |h: &&'a Histogram| {
            used_classes(if shared {
                &all
            } else {
                std::slice::from_ref(h)
            })
        };
        all.iter().map(|h| (*h, used(h))).collect()
    }

    /// Returns the name of a class: `1 to 2 ms`, `below 1 ms`, `20 ms and more`.
    pub(super) fn class_name(&self, bounds: &[f64], class: usize) -> String {
        let low = class.checked_sub(1).and_then(|at| bounds.get(at)).copied();
        let high = bounds.get(class).copied();
        match (low, high) {
            // rounds are whole numbers: a class with only one of them is named by that number
            (Some(low), Some(high)) if self.unit == Unit::Count && is_one_number(low, high) => {
                short(low)
            }
            (Some(low), Some(high)) => {
                let scale = self.unit.scale(high);
                format!("{} to {}", scale.short(low), scale.name(&scale.short(high)))
            }
            (None, Some(high)) => format!("below {}", self.unit.short(high)),
            (Some(low), None) => format!("{} and more", self.unit.short(low)),
            (None, None) => "all".to_owned(),
        }
    }
}

fn is_one_number(low: f64, high: f64) -> bool {
    low.fract() == 0.0 && high.fract() == 0.0 && (high - low - 1.0).abs() < 0.5
}

/// Returns the range from the first to the last class that any of these histograms uses.
fn used_classes(histograms: &[&Histogram]) -> Range<usize> {
    let used = |at: usize| {
        histograms
            .iter()
            .any(|h| h.counts.get(at).is_some_and(|c| *c > 0))
    };
    let longest = histograms.iter().map(|h| h.counts.len()).max().unwrap_or(0);
    let first = (0..longest).find(|at| used(*at)).unwrap_or(0);
    let end = (0..longest)
        .rev()
        .find(|at| used(*at))
        .map_or(first, |at| at + 1);
    first..end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_named_by_their_bounds() {
        let [wait, rounds, load] = &KINDS;
        for (kind, class, name) in [
            (wait, 0, "below 1\u{a0}ms"),
            (wait, 1, "1 to 2\u{a0}ms"),
            (wait, 2, "0.002 to 1\u{a0}s"),
            (wait, 3, "1\u{a0}s and more"),
            (rounds, 1, "1"),
            (rounds, 2, "2 to 1,000"),
        ] {
            assert_eq!(kind.class_name(&[1.0, 2.0, 1000.0], class), name);
        }
        assert_eq!(load.class_name(&[0.1, 0.2], 1), "10 to 20\u{a0}%");
        assert_eq!(load.class_name(&[], 0), "all");
    }

    #[test]
    fn empty_classes_at_the_ends_are_not_shown() {
        let a = Histogram {
            bounds: vec![1.0; 4],
            counts: vec![0, 0, 3, 0, 0],
        };
        let b = Histogram {
            bounds: vec![1.0; 4],
            counts: vec![0, 1, 0, 0, 0],
        };
        assert_eq!(used_classes(&[&a]), 2..3);
        assert_eq!(used_classes(&[&a, &b]), 1..3);
        assert_eq!(used_classes(&[&Histogram::default()]), 0..0);
    }
}
