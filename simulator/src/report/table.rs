//! The figures as rows, policies as columns: what the table of every report shows.

use std::collections::BTreeSet;

use serde_json::Value;

use super::number::{Scale, Unit};
use crate::outcome::Outcome;

/// Rows that belong together.
#[derive(Debug)]
pub(super) struct Group {
    /// Its heading.
    pub(super) title: &'static str,
    /// In the order shown.
    pub(super) rows: Vec<Row>,
}

/// One figure for every run.
#[derive(Debug)]
pub(super) struct Row {
    /// Where it is in the JSON of [`Figures`](crate::outcome::Figures): a JSON pointer.
    pub(super) pointer: String,
    /// What it is.
    pub(super) label: String,
    /// In which unit all its values are shown.
    pub(super) scale: Scale,
    /// For each run: exactly what the JSON says; `None` where the run does not have it.
    pub(super) values: Vec<Option<Value>>,
    /// For each run: nothing is better, and something is worse.
    pub(super) best: Vec<bool>,
}

impl Row {
    /// Nothing but 0 or nothing in every run.
    pub(super) fn is_empty(&self) -> bool {
        self.values
            .iter()
            .flatten()
            .all(|v| v.as_f64().unwrap_or(0.0) == 0.0)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Better {
    Lower,
    Higher,
    /// It depends on what the policy is for.
    Open,
}

/// The figure, or all figures of the object, at `at`.
struct Spec(&'static str, &'static str, &'static str, Unit, Better);

const INSTANCES: &str = "Instances";
const WAIT: &str = "Wait, from the request to the cell’s acceptance";
const AUCTIONS: &str = "Auctions";
const ROUNDS: &str = "Auctions that an instance was in";
const DISTRIBUTION: &str = "Memory used per cell, standard deviation / mean";
const PER_CELL: &str = "Instances per cell";
const PER_ZONE: &str = "Instances per zone";
const SHARED: &str = "Apps that share a place though they need not";
const STRANDED: &str = "Stranded memory";
const LARGEST: &str = "Largest size that still fits";
const EMPTY: &str = "Empty cells";
const GIVEN_BACK: &str = "Cells that can be given back";
const SENT: &str = "Messages sent";
const DELIVERED: &str = "Messages delivered";
const BYTES: &str = "Bytes delivered";
const EXTRA: &str = "This scenario’s own figures";
const OTHER: &str = "Other";

/// In the order shown. What is not named here is shown under [`OTHER`], so that nothing gets lost.
const SPECS: &[Spec] = &[
    Spec("/asked", INSTANCES, "asked for", Unit::Count, Better::Open),
    Spec("/placed", INSTANCES, "placed", Unit::Count, Better::Higher),
    Spec("/refused", INSTANCES, "refused", Unit::Count, Better::Lower),
    Spec(
        "/waiting",
        INSTANCES,
        "waiting at the end",
        Unit::Count,
        Better::Lower,
    ),
    Spec(
        "/lost",
        INSTANCES,
        "lost with their cell",
        Unit::Count,
        Better::Lower,
    ),
    Spec("/wait_ms", WAIT, "", Unit::Ms, Better::Lower),
    Spec("/auctions", AUCTIONS, "held", Unit::Count, Better::Open),
    Spec("/rounds", ROUNDS, "", Unit::Count, Better::Lower),
    Spec(
        "/distribution_before",
        DISTRIBUTION,
        "before",
        Unit::Count,
        Better::Open,
    ),
    Spec(
        "/distribution",
        DISTRIBUTION,
        "at the end",
        Unit::Count,
        Better::Open,
    ),
    Spec("/per_cell", PER_CELL, "", Unit::Count, Better::Open),
    Spec("/per_zone", PER_ZONE, "", Unit::Count, Better::Open),
    Spec(
        "/apps_sharing_cells",
        SHARED,
        "on a cell",
        Unit::Count,
        Better::Lower,
    ),
    Spec(
        "/apps_sharing_zones",
        SHARED,
        "in a zone",
        Unit::Count,
        Better::Lower,
    ),
    Spec("/stranded_mb", STRANDED, "", Unit::Mebibytes, Better::Lower),
    Spec(
        "/largest_fit_mb",
        LARGEST,
        "",
        Unit::Mebibytes,
        Better::Higher,
    ),
    Spec("/empty_cells", EMPTY, "", Unit::Count, Better::Open),
    Spec(
        "/spare_cells",
        GIVEN_BACK,
        "cells",
        Unit::Count,
        Better::Higher,
    ),
    Spec("/saved", GIVEN_BACK, "saved", Unit::Money, Better::Higher),
    Spec("/virtual_ms", OTHER, "virtual time", Unit::Ms, Better::Open),
];

/// The members of an object, in the order shown and with their names.
const LEAVES: &[(&str, &str)] = &[
    ("min", "least"),
    ("mean", "mean"),
    ("p50", "median"),
    ("p99", "99th percentile"),
    ("max", "most"),
    ("sd", "standard deviation"),
    ("max_over_mean", "most / mean"),
    ("end", "at the end"),
];

const ORDER: &[&str] = &[
    INSTANCES,
    WAIT,
    AUCTIONS,
    ROUNDS,
    DISTRIBUTION,
    PER_CELL,
    PER_ZONE,
    SHARED,
    STRANDED,
    LARGEST,
    EMPTY,
    GIVEN_BACK,
    EXTRA,
    SENT,
    DELIVERED,
    BYTES,
    OTHER,
];

/// Where a figure is shown.
struct Place {
    group: &'static str,
    /// Within the group: the specification, then the member, then the name.
    order: (usize, usize, String),
    label: String,
    unit: Unit,
    better: Better,
}

/// Every figure of every run, each in one row.
pub(super) fn groups(outcome: &Outcome) -> Vec<Group> {
    let figures: Vec<Value> = outcome
        .runs
        .iter()
        .map(|run| serde_json::to_value(&run.figures).unwrap_or(Value::Null))
        .collect();
    let mut pointers = BTreeSet::new();
    for run in &figures {
        leaves(run, String::new(), &mut pointers);
    }
    let mut places: Vec<(Place, String)> = pointers
        .into_iter()
        .map(|pointer| (place(&pointer), pointer))
        .collect();
    places.sort_by(|(a, _), (b, _)| a.order.cmp(&b.order));
    let mut groups: Vec<Group> = ORDER
        .iter()
        .map(|title| Group {
            title,
            rows: Vec::new(),
        })
        .collect();
    for (place, pointer) in places {
        if let Some(group) = groups.iter_mut().find(|g| g.title == place.group) {
            group.rows.push(row(place, pointer, &figures));
        }
    }
    groups.retain(|group| !group.rows.is_empty());
    groups
}

fn row(place: Place, pointer: String, figures: &[Value]) -> Row {
    let values: Vec<Option<Value>> = figures
        .iter()
        .map(|f| f.pointer(&pointer).cloned())
        .collect();
    let numbers: Vec<Option<f64>> = values
        .iter()
        .map(|v| v.as_ref().and_then(Value::as_f64))
        .collect();
    let scale = Scale::of_row(place.unit, numbers.iter().flatten().copied());
    let best = best(&numbers, place.better, scale);
    Row {
        pointer,
        label: place.label,
        scale,
        values,
        best,
    }
}

/// Marks the best of the numbers and what cannot be told from it as shown; nothing where all look the
/// same.
fn best(numbers: &[Option<f64>], better: Better, scale: Scale) -> Vec<bool> {
    let known = || numbers.iter().flatten().copied();
    let wanted = match better {
        Better::Lower => known().fold(f64::INFINITY, f64::min),
        Better::Higher => known().fold(f64::NEG_INFINITY, f64::max),
        Better::Open => return vec![false; numbers.len()],
    };
    let wanted = scale.number(wanted);
    let is_best = |n: &f64| scale.number(*n) == wanted;
    let all_same = known().all(|n| is_best(&n));
    numbers
        .iter()
        .map(|n| !all_same && n.as_ref().is_some_and(is_best))
        .collect()
}

/// The JSON pointers of everything that is no object.
fn leaves(value: &Value, at: String, found: &mut BTreeSet<String>) {
    let Value::Object(members) = value else {
        if !at.is_empty() {
            found.insert(at);
        }
        return;
    };
    for (name, member) in members {
        let name = name.replace('~', "~0").replace('/', "~1");
        leaves(member, format!("{at}/{name}"), found);
    }
}

fn place(pointer: &str) -> Place {
    let plain = |text: &str| text.replace("~1", "/").replace("~0", "~");
    if let Some(leaf) = pointer.strip_prefix("/traffic/") {
        return message(0, "all", leaf);
    }
    if let Some((kind, leaf)) = pointer
        .strip_prefix("/messages/")
        .and_then(|rest| rest.rsplit_once('/'))
    {
        return message(1, &plain(kind), leaf);
    }
    if let Some(name) = pointer.strip_prefix("/extra/") {
        let name = plain(name);
        let order = (0, 0, name.clone());
        return Place {
            group: EXTRA,
            order,
            label: name,
            unit: Unit::Count,
            better: Better::Open,
        };
    }
    for (at, Spec(path, group, label, unit, better)) in SPECS.iter().enumerate() {
        let Some(rest) = pointer.strip_prefix(path) else {
            continue;
        };
        let leaf = match rest.strip_prefix('/') {
            None if rest.is_empty() => None,
            None => continue,
            Some(leaf) => Some(leaf),
        };
        let known = LEAVES.iter().position(|(name, _)| Some(*name) == leaf);
        let leaf_label = known.map_or(leaf.unwrap_or(""), |known| LEAVES[known].1);
        let join = if label.is_empty() || leaf.is_none() {
            ""
        } else {
            ", "
        };
        return Place {
            group,
            order: (
                at,
                known.unwrap_or(LEAVES.len()),
                leaf.unwrap_or("").to_owned(),
            ),
            label: format!("{label}{join}{leaf_label}"),
            unit: if leaf == Some("max_over_mean") {
                Unit::Count
            } else {
                *unit
            },
            better: if leaf == Some("max_over_mean") && *group == PER_ZONE {
                Better::Lower
            } else {
                *better
            },
        };
    }
    Place {
        group: OTHER,
        order: (SPECS.len(), 0, pointer.to_owned()),
        label: plain(&pointer[1..]).replace(['/', '_'], " "),
        unit: Unit::Count,
        better: Better::Open,
    }
}

fn message(order: usize, kind: &str, leaf: &str) -> Place {
    let (group, unit) = match leaf {
        "sent" => (SENT, Unit::Count),
        "delivered" => (DELIVERED, Unit::Count),
        "bytes" => (BYTES, Unit::Bytes),
        _ => (OTHER, Unit::Count),
    };
    Place {
        group,
        order: (order, 0, kind.to_owned()),
        label: kind.to_owned(),
        unit,
        better: if order == 0 {
            Better::Lower
        } else {
            Better::Open
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Figures, Run, Traffic};

    fn outcome(figures: Vec<Figures>) -> Outcome {
        let run = |(at, figures)| Run {
            policy: format!("p{at}"),
            figures,
            cells: Vec::new(),
            apps: Vec::new(),
            wait_histogram: Default::default(),
            rounds_histogram: Default::default(),
            load_histogram: Default::default(),
            series: Vec::new(),
            refusals: Vec::new(),
        };
        Outcome {
            v: 1,
            name: String::new(),
            description: String::new(),
            seed: 0,
            command: String::new(),
            scenario: String::new(),
            over: "in-process".to_owned(),
            interrupted: false,
            runs: figures.into_iter().enumerate().map(run).collect(),
        }
    }

    fn find<'a>(groups: &'a [Group], pointer: &str) -> (&'static str, &'a Row) {
        let (group, row) = groups
            .iter()
            .flat_map(|g| g.rows.iter().map(move |r| (g, r)))
            .find(|(_, r)| r.pointer == pointer)
            .unwrap();
        (group.title, row)
    }

    #[test]
    fn every_figure_has_a_place_of_its_own() {
        let groups = groups(&outcome(vec![Figures::default()]));
        let other: Vec<&str> = groups
            .iter()
            .filter(|g| g.title == OTHER)
            .flat_map(|g| &g.rows)
            .map(|r| r.pointer.as_str())
            .collect();
        assert_eq!(other, ["/virtual_ms"], "a figure without a specification");
    }

    #[test]
    fn the_best_is_marked_where_a_direction_is_known() {
        let a = Figures {
            placed: 5,
            refused: 1,
            asked: 7,
            saved: Some(2.0),
            ..Default::default()
        };
        let b = Figures {
            placed: 6,
            refused: 1,
            asked: 6,
            saved: None,
            ..Default::default()
        };
        let groups = groups(&outcome(vec![a, b]));
        assert_eq!(find(&groups, "/placed").1.best, [false, true]);
        assert_eq!(
            find(&groups, "/refused").1.best,
            [false, false],
            "both are the same"
        );
        assert_eq!(
            find(&groups, "/asked").1.best,
            [false, false],
            "neither is better"
        );
        assert_eq!(
            find(&groups, "/saved").1.best,
            [false, false],
            "only one is known"
        );
        assert!(find(&groups, "/lost").1.is_empty());
    }

    #[test]
    fn what_looks_the_same_is_equally_good() {
        let traffic = |sent| Traffic {
            sent,
            ..Default::default()
        };
        let runs = [5_000_000, 5_000_001, 7].map(|bytes| Figures {
            traffic: Traffic {
                bytes,
                ..traffic(1)
            },
            ..Default::default()
        });
        let both = groups(&outcome(runs[..2].to_vec()));
        assert_eq!(find(&both, "/traffic/bytes").1.best, [false, false]);
        let three = groups(&outcome(runs.to_vec()));
        assert_eq!(find(&three, "/traffic/bytes").1.best, [false, false, true]);
    }

    #[test]
    fn kinds_of_messages_that_only_one_run_has_leave_a_gap() {
        let mut a = Figures::default();
        a.messages.insert(
            "bid/x~y".to_owned(),
            Traffic {
                sent: 3,
                delivered: 4,
                bytes: 5,
            },
        );
        let groups = groups(&outcome(vec![a, Figures::default()]));
        let (group, row) = find(&groups, "/messages/bid~1x~0y/delivered");
        assert_eq!(group, DELIVERED);
        assert_eq!(row.label, "bid/x~y");
        assert_eq!(row.values, [Some(Value::from(4)), None]);
    }
}
