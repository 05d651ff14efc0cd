//! A cell's description of itself, in advertisements, bids and scenarios.

use std::{ops::Deref, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    devices::{DeviceSet, DeviceShares, MAX_DEVICE_SETS, check_device_name},
    invalid::{Invalid, check_count, check_name},
    request::Request,
    resources::{MAX_AMOUNT, Resource, Resources},
    run::Form,
    times::{Span, Stamp, Timestamp},
};

mod attributes;
mod change;
mod counts;
mod interner;

pub use attributes::{AttributeField, AttributeShape, Attributes};
pub use change::{CellChange, Debited};
pub use counts::Counts;

pub(crate) use interner::AttributeInterner;

/// A machine that runs work. Only `cell`, `total` and `available` are required; fields with their
/// default value are not written.
///
/// There are three kinds of facts: amounts ([`Resources`]), counts of instances ([`Counts`]), and what operators set
/// ([`Attributes`]), which is the same on many cells and rarely changes. Attributes can be read as if they were the
/// cell's own fields. In messages and files all of them are at one level.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "attributes::Flat", into = "attributes::Flat")]
pub struct Cell {
    /// The cell's name: 1 to 128 of `A-Za-z0-9_-`.
    pub cell: String,
    /// The cell's index in its deployment (a BOSH index).
    pub index: u32,
    /// All resources, including overcommit. A cell with a total of 0 of a resource never wins, except for cpu, extras
    /// and devices.
    pub total: Resources,
    /// What is not reserved; may be negative.
    pub available: Resources,
    /// Counts of its instances.
    pub counts: Counts,
    /// Whether it accepts no new work, because it drains or is cordoned.
    pub evacuating: bool,
    /// Whether that is because it is cordoned: what runs on it stays.
    pub cordoned: bool,
    /// The last starts, in any order; each has its age.
    pub recent_starts: Vec<RecentStart>,
    /// What operators set. Cells of a pool share equal attributes.
    pub attributes: Arc<Attributes>,
}

impl Deref for Cell {
    type Target = Attributes;

    fn deref(&self) -> &Attributes {
        &self.attributes
    }
}

/// A platform image: version and build stamp (`YYYYMMDDTHHMMSSZ`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Platform {
    /// A version such as `"7.0"`.
    pub version: String,
    /// A stamp such as `"20260301T000000Z"`.
    pub stamp: Stamp,
}

/// One of the last starts on a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecentStart {
    /// How long ago, a duration such as `"2h"`.
    pub age: Span,
    /// Whether it failed.
    pub failed: bool,
}

impl Cell {
    /// Returns whether it runs work of this form at all.
    pub fn runs(&self, form: Form) -> bool {
        match form {
            Form::Command => !self.droplets_only,
            Form::Droplet => self.droplets,
            Form::Staging => self.staging,
        }
    }

    /// Creates an empty cell of this name and size, with everything available.
    pub fn new(name: impl Into<String>, total: Resources) -> Self {
        Self {
            cell: name.into(),
            index: 0,
            available: total.clone(),
            total,
            counts: Counts::default(),
            evacuating: false,
            cordoned: false,
            recent_starts: Vec::new(),
            attributes: Arc::default(),
        }
    }

    /// Returns its attributes for modification; they are copied if other cells share them.
    pub fn attributes_mut(&mut self) -> &mut Attributes {
        Arc::make_mut(&mut self.attributes)
    }

    /// Returns the number of instances of `app`.
    pub fn count_of(&self, app: &str) -> u32 {
        self.counts.apps.get(app).copied().unwrap_or(0)
    }

    /// Returns the planned reboot in milliseconds since the Unix epoch, unless it is past: before now, or before the
    /// last boot.
    pub(crate) fn planned_reboot_ms(&self, now_ms: i64) -> Option<i64> {
        let planned = self.next_reboot.as_ref()?.ms();
        let booted = self.last_boot.as_ref().map(Timestamp::ms);
        (planned >= now_ms && booted.is_none_or(|booted| planned >= booted)).then_some(planned)
    }

    /// Adds one instance of `request`: takes its resources and the devices that it was given, and counts it. Returns how
    /// many instances of its app there are now; none for a task.
    pub fn debit(&mut self, request: &Request, given: Option<&DeviceShares>) -> Option<u32> {
        self.available.debit(request, given);
        self.counts.debit(request)
    }

    /// Reverts [`Cell::debit`]. No count falls below 0: a newer report of the cell may no longer include what was
    /// debited.
    pub fn credit(&mut self, request: &Request, given: Option<&DeviceShares>) {
        self.available.credit(request, given);
        self.counts.credit(request);
    }

    /// Rejects invalid cells: bad names, negative or absurd totals, lists that are too long.
    pub fn check(&self) -> Result<(), Invalid> {
        check_name("cell", &self.cell)?;
        check_name("zone", &self.zone)?;
        check_count("apps", self.counts.apps.len(), 100_000)?;
        for app in self.counts.apps.keys() {
            check_name("apps", app)?;
        }
        check_resources("total", &self.total, 0)?;
        check_devices("total", &self.total, true)?;
        check_available(&self.available, &self.total)?;
        for (field, list) in [
            ("stacks", &self.stacks),
            ("placement_tags", &self.placement_tags),
            ("optional_placement_tags", &self.optional_placement_tags),
            ("volume_drivers", &self.volume_drivers),
            ("volumes", &self.volumes),
            ("cached_blobs", &self.cached_blobs),
        ] {
            check_count(field, list.len(), 10_000)?;
        }
        check_count("recent_starts", self.recent_starts.len(), 1_000)
    }
}

/// Rejects absurd amounts, and more than the total, so that used fractions are within 0..1.
fn check_available(available: &Resources, total: &Resources) -> Result<(), Invalid> {
    check_resources("available", available, -MAX_AMOUNT)?;
    check_devices("available", available, false)?;
    let limit = |resource| Some((available.get(resource)?, total.get(resource)?));
    let named = Resource::ALL
        .into_iter()
        .filter_map(|r| limit(r).map(|(has, of)| (r.field(), has, of)));
    let extra = available.extra.iter();
    let extra = extra.map(|(name, has)| (name.as_str(), *has, total.extra(name)));
    for (name, has, of) in named.chain(extra) {
        if has > of {
            let expected = format!("at most total.{name} ({of})");
            return Err(Invalid::new(format!("available.{name}"), has, expected));
        }
    }
    check_same_devices(available, total)
}

/// Checks that the available devices are those of the total.
fn check_same_devices(available: &Resources, total: &Resources) -> Result<(), Invalid> {
    let same = |(name, set): &(&String, &DeviceSet)| {
        let of = total.devices.get(*name);
        of.is_some_and(|of| of.is_same(set))
    };
    let mut available = available.devices.iter();
    match available.find(|set| !same(set)) {
        None => Ok(()),
        Some((name, set)) => Err(Invalid::new(
            format!("available.devices.{name}"),
            format!("a set of {} × {}", set.count, set.each),
            format!("the count, each and model of total.devices.{name}"),
        )),
    }
}

fn check_devices(what: &str, resources: &Resources, total: bool) -> Result<(), Invalid> {
    if resources.devices.is_empty() {
        return Ok(());
    }
    let field = format!("{what}.devices");
    check_count(&field, resources.devices.len(), MAX_DEVICE_SETS)?;
    for (name, set) in &resources.devices {
        check_device_name(&field, name)?;
        let field = format!("{field}.{name}");
        if resources.extra.contains_key(name) {
            let expected = format!("another name than a resource of {what}.extra");
            return Err(Invalid::new(field, "a set of devices", expected));
        }
        set.check(&field, total)?;
    }
    Ok(())
}

fn check_resources(what: &str, resources: &Resources, low: i64) -> Result<(), Invalid> {
    for (name, amount) in resources.fields() {
        if !(low..=MAX_AMOUNT).contains(&amount) {
            return Err(Invalid::new(
                format!("{what}.{name}"),
                amount,
                format!("a number from {low} to {MAX_AMOUNT}"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
