//! A cell in the auctions of 2014: it bids, reserves and releases.

use std::collections::BTreeMap;

use placement::{Cell, DeviceShares, Kind, Request, Resources};

/// A cell during the auctions.
#[derive(Clone, Debug)]
pub(super) struct Rep {
    total: Resources,
    available: Resources,
    /// Instances by app number, including reserved ones.
    apps: BTreeMap<u32, u32>,
    /// The devices of instances, by app. It does not matter which instance of an app has which.
    devices: BTreeMap<u32, Vec<DeviceShares>>,
}

impl Rep {
    /// Creates a cell; `number` maps an app's name to its number.
    pub(super) fn new(cell: &Cell, mut number: impl FnMut(&str) -> u32) -> Self {
        let apps = cell
            .counts
            .apps
            .iter()
            .map(|(app, count)| (number(app), *count));
        Self {
            total: cell.total.clone(),
            available: cell.available.clone(),
            apps: apps.collect(),
            devices: BTreeMap::new(),
        }
    }

    /// Returns a cost, of which the lowest wins: the mean of the shares of containers, disk and memory that are used
    /// before this instance, plus the number of the app's instances on the cell (cloudfoundry/rep, 2014). None if the
    /// instance does not fit.
    pub(super) fn bid(&self, request: &Request, app: u32) -> Option<f64> {
        let (total, free) = (&self.total, &self.available);
        if !free.fits(request) {
            return None;
        }
        let shares = used(total.containers, free.containers)
            + used(total.disk_mb, free.disk_mb)
            + used(Some(total.memory_mb), Some(free.memory_mb));
        let same = match request.kind {
            Kind::Lrp => self.apps.get(&app).copied().unwrap_or(0),
            Kind::Task => 0,
        };
        Some(shares / 3.0 + f64::from(same))
    }

    /// Bids, then reserves for the instance; none if it does not fit.
    pub(super) fn reserve(&mut self, request: &Request, app: u32) -> Option<f64> {
        let bid = self.bid(request, app)?;
        let given = self.available.choose_devices(request);
        self.available.debit(request, given.as_deref());
        if let Some(given) = given {
            self.devices.entry(app).or_default().push(*given);
        }
        if request.kind == Kind::Lrp {
            *self.apps.entry(app).or_insert(0) += 1;
        }
        Some(bid)
    }

    /// Releases the reservation of an instance.
    pub(super) fn release(&mut self, request: &Request, app: u32) {
        let given = self.devices.get_mut(&app).and_then(Vec::pop);
        self.available.credit(request, given.as_ref());
        if request.kind == Kind::Lrp
            && let Some(count) = self.apps.get_mut(&app)
        {
            *count -= 1;
            if *count == 0 {
                self.apps.remove(&app);
            }
        }
    }

    /// Returns what is available.
    pub(super) fn available(&self) -> &Resources {
        &self.available
    }
}

/// Returns the used share of a resource: 0 if it is unlimited, 1 if its total is 0.
fn used(total: Option<i64>, free: Option<i64>) -> f64 {
    match (total, free) {
        (Some(0), _) => 1.0,
        (Some(total), Some(free)) => 1.0 - free as f64 / total as f64,
        _ => 0.0,
    }
}

/// Returns whether a cell may be asked at all. In 2014 only the stack counted; placement tags and evacuation came later
/// and count here so that the comparison with today's policies is fair.
pub(super) fn may_be_asked(cell: &Cell, request: &Request) -> bool {
    let stack = request.stack.as_ref();
    let wanted = &request.placement_tags;
    let offered =
        |tag| cell.placement_tags.contains(tag) || cell.optional_placement_tags.contains(tag);
    !cell.evacuating
        && stack.is_none_or(|stack| cell.stacks.contains(stack))
        && cell.placement_tags.iter().all(|tag| wanted.contains(tag))
        && wanted.iter().all(offered)
}
