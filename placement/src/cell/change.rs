//! What a cell says of itself where only amounts and counts have changed.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Cell;
use crate::{
    invalid::{Invalid, check_count, check_name},
    resources::Resources,
};

/// The most names in each of its tables.
const MAX_NAMES: usize = 1_000;

/// The amounts and counts of a cell at one version, without the counts by name that have not changed since an earlier
/// one. Nothing else about the cell has changed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CellChange {
    /// What is available.
    pub available: Resources,
    /// Instances that are reserved but not yet running.
    #[serde(skip_serializing_if = "is_zero")]
    pub starting: u32,
    /// Instances of each app whose instances have changed; 0 if it has none left.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub apps: BTreeMap<String, u32>,
    /// Tasks.
    #[serde(skip_serializing_if = "is_zero")]
    pub tasks: u32,
    /// Whether the cell accepts no new work.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub evacuating: bool,
    /// Whether that is because it is cordoned.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cordoned: bool,
    /// Instances of each owner whose instances have changed; 0 if it has none left.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub owners: BTreeMap<String, u32>,
    /// Instances with each tag, where they have changed; 0 if there are none left.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, u32>,
    /// Instances with a cpu limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_capped: u32,
    /// Instances without a cpu limit.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_uncapped: u32,
}

impl CellChange {
    /// Rejects a change that this cell cannot have: bad names, more available than the total.
    ///
    /// # Errors
    /// Fails with the field that is invalid.
    pub fn check(&self, cell: &Cell) -> Result<(), Invalid> {
        for (field, counts) in [
            ("apps", &self.apps),
            ("owners", &self.owners),
            ("tags", &self.tags),
        ] {
            check_count(field, counts.len(), MAX_NAMES)?;
        }
        for app in self.apps.keys() {
            check_name("apps", app)?;
        }
        super::check_available(&self.available, &cell.total)
    }
}

impl Cell {
    /// Takes over a change since a version that this one includes.
    pub fn apply(&mut self, change: &CellChange) {
        self.available.clone_from(&change.available);
        (self.evacuating, self.cordoned) = (change.evacuating, change.cordoned);
        let counts = &mut self.counts;
        counts.starting = change.starting;
        counts.tasks = change.tasks;
        counts.cpu_capped = change.cpu_capped;
        counts.cpu_uncapped = change.cpu_uncapped;
        for (counts, changed) in [
            (&mut counts.apps, &change.apps),
            (&mut counts.owners, &change.owners),
            (&mut counts.tags, &change.tags),
        ] {
            for (name, count) in changed {
                set(counts, name, *count);
            }
        }
    }
}

/// Zeros are not kept.
fn set(counts: &mut BTreeMap<String, u32>, name: &str, count: u32) {
    match counts.get_mut(name) {
        _ if count == 0 => drop(counts.remove(name)),
        Some(known) => *known = count,
        None => drop(counts.insert(name.to_owned(), count)),
    }
}

// serde passes a reference
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}
