//! What a cell says of itself where only amounts and counts have changed.

use std::{collections::BTreeMap, iter};

use serde::Serialize;

use super::Cell;
use crate::{
    devices::DeviceShares,
    fast_map::FastMap,
    invalid::{Invalid, check_count, check_name},
    request::Request,
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

/// Work that was debited from a cell: the request, and the devices that it was given.
pub type Debited<'d> = (&'d Request, Option<&'d DeviceShares>);

impl Cell {
    /// Takes over a change since a version that this one includes.
    pub fn apply(&mut self, change: &CellChange) {
        self.take_over(change, iter::empty(), iter::empty(), |_, _| {});
    }

    fn apply_but_apps(&mut self, change: &CellChange) {
        self.available.clone_from(&change.available);
        (self.evacuating, self.cordoned) = (change.evacuating, change.cordoned);
        let counts = &mut self.counts;
        counts.starting = change.starting;
        counts.tasks = change.tasks;
        counts.cpu_capped = change.cpu_capped;
        counts.cpu_uncapped = change.cpu_uncapped;
        for (counts, changed) in [
            (&mut counts.owners, &change.owners),
            (&mut counts.tags, &change.tags),
        ] {
            for (name, count) in changed {
                set(counts, name, *count);
            }
        }
    }

    /// Takes over a change since the version in which the cell was last reported; since then, the debits of `shown` and
    /// `hidden` were made, of which the change includes the first. Calls `changed` for each app that afterwards has
    /// another number of instances than before, debits included.
    pub(crate) fn take_over<'d, D>(
        &mut self,
        change: &CellChange,
        shown: D,
        hidden: D,
        mut changed: impl FnMut(&str, u32),
    ) where
        D: Iterator<Item = Debited<'d>> + Clone,
    {
        // where the change names nothing, the cell is as it was reported: without any debit
        for (request, _) in shown.clone().chain(hidden.clone()) {
            self.counts.credit_names(request);
        }
        self.apply_but_apps(change);
        for (request, given) in hidden.clone() {
            self.available.debit(request, given);
            self.counts.debit_but_app(request);
        }
        // usually a debit has announced what is now reported, so that an app's count stays, and nothing is written
        let app_of = |(request, _): Debited<'d>| request.app_of_lrp();
        let mut more: FastMap<&str, u32> = FastMap::default();
        for app in hidden.filter_map(app_of) {
            *more.entry(app).or_default() += 1;
        }
        let apps = &mut self.counts.apps;
        for (app, count) in &change.apps {
            let count = count + more.get(app.as_str()).unwrap_or(&0);
            if set(apps, app, count) {
                changed(app, count);
            }
        }
        for app in shown.filter_map(app_of) {
            if !change.apps.contains_key(app) {
                let count = apps.get(app).map_or(0, |count| count.saturating_sub(1));
                if set(apps, app, count) {
                    changed(app, count);
                }
            }
        }
    }
}

/// Sets a count, and returns whether it was another one before. Zeros are not kept.
fn set(counts: &mut BTreeMap<String, u32>, name: &str, count: u32) -> bool {
    match counts.get_mut(name) {
        Some(known) if count > 0 => std::mem::replace(known, count) != count,
        Some(_) => counts.remove(name).is_some(),
        None if count > 0 => counts.insert(name.to_owned(), count).is_none(),
        None => false,
    }
}

// serde passes a reference
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u32) -> bool {
    *count == 0
}
