//! The figures as rows with policies as columns: the content of the table in every report.

mod specs;

use std::collections::BTreeSet;

use serde_json::Value;

use self::specs::{
    BYTES, Better, DELIVERED, DISTRIBUTION, DISTRIBUTION_OF_SHARES, EMPTY, EXTRA, INSTANCES,
    LARGEST, LEAVES, NEVER_NEEDED, ORDER, OTHER, PER_ZONE, SENT, SPECS, STRANDED,
};
use super::number::{Scale, Unit};
use crate::outcome::{SimOutcome, SimRun};

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
    /// Its JSON pointer within [`Figures`](crate::outcome::Figures).
    pub(super) pointer: String,
    /// Its name within the group.
    pub(super) label: String,
    /// The unit of all its values.
    pub(super) scale: Scale,
    /// For each run: the JSON value; `None` if the run does not have it.
    pub(super) values: Vec<Option<Value>>,
    /// For each run: whether no other is better and some other is worse.
    pub(super) best: Vec<bool>,
}

impl Row {
    /// Returns whether it is 0 or absent in every run. A gap to the best is meaningful even if it is 0.
    pub(super) fn is_empty(&self) -> bool {
        let is_gap = self.pointer.starts_with("/bounds/gap/") || self.pointer == "/most_even/gap";
        if is_gap && self.values.iter().any(Option::is_some) {
            return false;
        }
        self.values
            .iter()
            .flatten()
            .all(|v| v.as_f64().unwrap_or(0.0) == 0.0)
    }

    /// Returns whether it is the same in each of several runs.
    pub(super) fn is_constant(&self) -> bool {
        self.values.len() > 1 && self.values.windows(2).all(|pair| pair[0] == pair[1])
    }
}

/// Where and how a figure is shown.
struct Place {
    group: &'static str,
    /// Within the group: the specification, then the member, then the name.
    order: (usize, usize, String),
    label: String,
    unit: Unit,
    better: Better,
}

/// Returns every figure of every run, each in one row.
pub(super) fn groups(outcome: &SimOutcome) -> Vec<Group> {
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
    let comparable = Comparable::new(outcome);
    let mut groups: Vec<Group> = ORDER
        .iter()
        .map(|title| Group {
            title,
            rows: Vec::new(),
        })
        .collect();
    for (place, pointer) in places {
        if let Some(group) = groups.iter_mut().find(|g| g.title == place.group) {
            group.rows.push(row(place, pointer, &figures, &comparable));
        }
    }
    groups.retain(|group| !group.rows.is_empty());
    if !outcome.runs.iter().all(SimRun::has_equal_cells)
        && let Some(group) = groups.iter_mut().find(|g| g.title == DISTRIBUTION)
    {
        group.title = DISTRIBUTION_OF_SHARES;
    }
    groups
}

/// Returns the group and the label of the figure at a path such as `wait_ms.mean`.
pub(super) fn name_of_path(path: &str) -> (&'static str, String) {
    let place = place(&format!("/{}", path.replace('.', "/")));
    (place.group, place.label)
}

/// To what extent the runs can be compared.
struct Comparable {
    /// Whether all runs were asked for the same number of instances.
    asked: bool,
    /// Whether all runs lasted equally long, within a twentieth.
    length: bool,
}

impl Comparable {
    fn new(outcome: &SimOutcome) -> Self {
        let figures = || outcome.runs.iter().map(|run| &run.figures);
        let longest = figures().map(|f| f.virtual_ms).max().unwrap_or(0);
        let asked = figures().map(|f| f.asked).max();
        Self {
            asked: figures().all(|f| Some(f.asked) == asked),
            length: figures().all(|f| f.virtual_ms >= longest - longest / 20),
        }
    }

    /// Returns whether figures of a group can be compared. A count of instances means little if other runs had more
    /// requests, as does a mean over time if other runs lasted longer.
    fn is_fair(&self, group: &str) -> bool {
        match group {
            INSTANCES => self.asked,
            STRANDED | LARGEST | EMPTY | NEVER_NEEDED => self.length,
            _ => true,
        }
    }
}

fn row(place: Place, pointer: String, figures: &[Value], comparable: &Comparable) -> Row {
    let values: Vec<Option<Value>> = figures
        .iter()
        .map(|f| f.pointer(&pointer).cloned())
        .collect();
    let numbers: Vec<Option<f64>> = values
        .iter()
        .map(|v| v.as_ref().and_then(Value::as_f64))
        .collect();
    let scale = Scale::of_row(place.unit, numbers.iter().flatten().copied());
    let best = if comparable.is_fair(place.group) {
        best(&numbers, place.better, scale)
    } else {
        vec![false; numbers.len()]
    };
    Row {
        pointer,
        label: place.label,
        scale,
        values,
        best,
    }
}

/// Marks the best of the numbers, and those that look the same as shown; none if all look the same.
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

/// Collects the JSON pointers of everything that is not an object.
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
    let specs = SPECS
        .iter()
        .flat_map(|(group, specs)| specs.iter().map(move |spec| (*group, spec)));
    for (at, (group, spec)) in specs.enumerate() {
        let Some(rest) = pointer.strip_prefix(spec.path) else {
            continue;
        };
        let leaf = match rest.strip_prefix('/') {
            None if rest.is_empty() => None,
            None => continue,
            Some(leaf) => Some(leaf),
        };
        let known = LEAVES.iter().position(|(name, _)| Some(*name) == leaf);
        let leaf_label = known.map_or(leaf.unwrap_or(""), |known| LEAVES[known].1);
        let join = if spec.label.is_empty() || leaf.is_none() {
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
            label: format!("{}{join}{leaf_label}", spec.label),
            unit: if matches!(leaf, Some("max_over_mean" | "sd_over_mean")) {
                Unit::Count
            } else {
                spec.unit
            },
            better: if leaf == Some("max_over_mean") && group == PER_ZONE {
                Better::Lower
            } else {
                spec.better
            },
        };
    }
    Place {
        group: OTHER,
        order: (usize::MAX, 0, pointer.to_owned()),
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
mod tests;
