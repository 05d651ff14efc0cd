//! A request and the resources of a cell: whether it fits, which devices it gets, debits and credits.

use std::collections::BTreeMap;

use crate::{
    devices::{DeviceSet, DeviceShares},
    request::Request,
    resources::{Resource, Resources},
};

impl Resources {
    /// Subtracts one instance of `request` and the devices that it was given (see [`Resources::choose_devices`]).
    /// Unlimited amounts stay unlimited; the others may become negative.
    pub fn debit(&mut self, request: &Request, given: Option<&DeviceShares>) {
        self.apply(request, given, -1);
    }

    /// Adds one instance of `request` and its devices; reverts [`Resources::debit`].
    pub fn credit(&mut self, request: &Request, given: Option<&DeviceShares>) {
        self.apply(request, given, 1);
    }

    fn apply(&mut self, request: &Request, given: Option<&DeviceShares>, sign: i64) {
        let wanted = request.amounts();
        for resource in Resource::ALL {
            if let Some(amount) = self.get_mut(resource) {
                *amount += sign * wanted[resource];
            }
        }
        for (name, amount) in &request.extra {
            *self.extra.entry(name.clone()).or_insert(0) += sign * amount;
        }
        apply_devices(&mut self.devices, given, sign);
    }

    /// Returns the devices that one instance of `request` gets here, by the rule of `devices.rs`; none if it asks for
    /// none. A set with too few sufficient devices is omitted.
    pub fn choose_devices(&self, request: &Request) -> Option<Box<DeviceShares>> {
        choose_devices(&self.devices, request)
    }

    /// Returns the resources that are too small for `request`, each with what is needed and what is available, in
    /// alphabetical order (`containers`, `cpu`, `disk`, `memory`, then extras by name, then devices by name, with the
    /// number needed and the number that have enough free). Empty means that it fits.
    pub fn lacks(&self, request: &Request) -> Vec<(String, i64, i64)> {
        let (have, needs) = (self.amounts(), request.needs());
        let lacking = |resource: &Resource| have[*resource] < needs[*resource];
        let amounts = Resource::ALL.into_iter().filter(lacking);
        let amounts = amounts.map(|r| (r.name().to_owned(), needs[r], have[r]));
        let mut lacking: Vec<(String, i64, i64)> = amounts.collect();
        lacking.sort_unstable();
        let extras = request.extra.iter();
        let extras = extras.filter(|(name, needs)| self.extra(name) < **needs);
        lacking.extend(extras.map(|(name, needs)| (name.clone(), *needs, self.extra(name))));
        let devices = request.devices.keys();
        let short = |name: &String| {
            let (needs, has) = self.short_devices(name, request)?;
            Some((name.clone(), needs, has))
        };
        lacking.extend(devices.filter_map(short));
        lacking
    }

    /// Returns how many devices of the set are needed, and the smaller number that have enough free; none if there are
    /// enough.
    pub(crate) fn short_devices(&self, name: &str, request: &Request) -> Option<(i64, i64)> {
        let need = request.devices.get(name)?;
        let has = self.devices.get(name).map_or(0, |set| set.enough(need));
        (has < need.count).then_some((need.count.into(), has.into()))
    }

    /// Returns the sets of which a device of `given` has too little free, by name, each with what is needed of the
    /// device and what it has free.
    pub fn lacks_devices(&self, given: &DeviceShares) -> Vec<(String, i64, i64)> {
        let short = |(name, share): (&String, &crate::devices::DeviceShare)| {
            let set = self.devices.get(name);
            let free = |number: &u32| set.map_or(0, |set| set.free(*number));
            // without numbers nobody chose any, because none were free
            let least = share.numbers.iter().map(free).min().unwrap_or(0);
            (least < share.amount).then(|| (name.clone(), share.amount, least))
        };
        given.iter().filter_map(short).collect()
    }

    /// Returns whether one instance of `request` fits; exactly enough fits.
    pub fn fits(&self, request: &Request) -> bool {
        self.amounts().covers(&request.needs()) && self.has_extras(request)
    }

    /// Returns whether the extra resources and the devices suffice for one instance of `request`.
    pub(crate) fn has_extras(&self, request: &Request) -> bool {
        let mut wanted = request.extra.iter();
        wanted.all(|(name, amount)| self.extra(name) >= *amount)
            && has_devices(&self.devices, request)
    }
}

/// Returns whether the devices for one instance of `request` are available.
pub(crate) fn has_devices(sets: &BTreeMap<String, DeviceSet>, request: &Request) -> bool {
    request.devices.iter().all(|(name, need)| {
        let set = sets.get(name);
        set.is_some_and(|set| set.enough(need) >= need.count)
    })
}

/// Implements [`Resources::choose_devices`].
pub(crate) fn choose_devices(
    sets: &BTreeMap<String, DeviceSet>,
    request: &Request,
) -> Option<Box<DeviceShares>> {
    if request.devices.is_empty() {
        return None;
    }
    let share = |(name, need): (&String, &crate::devices::DeviceNeed)| {
        let share = sets.get(name)?.choose(need)?;
        Some((name.clone(), share))
    };
    let given: DeviceShares = request.devices.iter().filter_map(share).collect();
    (!given.is_empty()).then(|| Box::new(given))
}

/// Adds `sign` times what was given; missing sets stay missing.
pub(crate) fn apply_devices(
    sets: &mut BTreeMap<String, DeviceSet>,
    given: Option<&DeviceShares>,
    sign: i64,
) {
    for (name, share) in given.into_iter().flatten() {
        if let Some(set) = sets.get_mut(name) {
            set.apply(share, sign);
        }
    }
}
