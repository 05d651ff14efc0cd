//! What is free on a cell: the amounts, named resources and devices that a score depends on.

use std::{borrow::Cow, collections::BTreeMap};

use crate::{
    cell::Cell,
    devices::{DeviceNeed, DeviceSet, DeviceShares},
    expected::Size,
    fit,
    request::Request,
    resources::{Amounts, Resource},
};

/// What is free on a cell.
#[derive(Clone, Debug)]
pub(crate) struct Free<'c> {
    pub(crate) amounts: Amounts,
    pub(crate) extra: Cow<'c, BTreeMap<String, i64>>,
    pub(crate) devices: Cow<'c, BTreeMap<String, DeviceSet>>,
}

impl<'c> Free<'c> {
    pub(crate) fn of(cell: &'c Cell) -> Self {
        Self {
            amounts: cell.available.amounts(),
            extra: Cow::Borrowed(&cell.available.extra),
            devices: Cow::Borrowed(&cell.available.devices),
        }
    }

    /// Returns what is free after one instance of the request was placed.
    pub(crate) fn after(&self, request: &Request) -> Self {
        let mut after = self.clone();
        after.amounts.debit(&request.amounts());
        for (name, amount) in &request.extra {
            *after.extra.to_mut().entry(name.clone()).or_insert(0) -= amount;
        }
        if !request.devices.is_empty() {
            let given: Option<Box<DeviceShares>> = fit::choose_devices(&after.devices, request);
            fit::apply_devices(after.devices.to_mut(), given.as_deref(), -1);
        }
        after
    }

    /// Returns whether the amounts suffice for one instance of the size.
    // without the divisions of `room`, because this is called for every expected size and every cell
    pub(crate) fn amounts_fit(&self, size: &Size) -> bool {
        let wanted = size.amounts();
        Resource::ALL.into_iter().all(|resource| {
            let (free, wanted) = (self.amounts[resource], wanted[resource]);
            if wanted > 0 {
                free >= wanted
            } else {
                free >= 0 || resource == Resource::Cpu
            }
        })
    }

    /// Returns whether the named resources and devices, except those named `but`, suffice for one instance of the size.
    pub(crate) fn others_fit(&self, but: &str, size: &Size) -> bool {
        let named = |(name, wanted): (&String, &i64)| {
            *wanted <= 0 || self.extra.get(name).copied().unwrap_or(0) >= *wanted
        };
        let devices = |(name, need): (&String, &DeviceNeed)| {
            name == but
                || self
                    .devices
                    .get(name)
                    .is_some_and(|set| set.enough(need) >= need.count)
        };
        size.extra.iter().all(named) && size.devices.iter().all(devices)
    }

    /// Returns how many instances of the size fit, one after the other; at most `most`.
    pub(crate) fn room(&self, size: &Size, most: i64) -> i64 {
        let mut room = most;
        let wanted = size.amounts();
        for resource in Resource::ALL {
            let (free, wanted) = (self.amounts[resource], wanted[resource]);
            // a request without cpu fits even if the cpu is overcommitted
            if wanted > 0 && free != Amounts::UNLIMITED {
                room = room.min(free.max(0) / wanted);
            } else if free < 0 && resource != Resource::Cpu {
                return 0;
            }
        }
        for (name, wanted) in size.extra.iter().filter(|(_, wanted)| **wanted > 0) {
            let free = self.extra.get(name).copied().unwrap_or(0);
            room = room.min(free.max(0) / wanted);
        }
        for (name, need) in &size.devices {
            if room == 0 {
                return 0;
            }
            room = match self.devices.get(name) {
                // the common case, without a copy of the set
                Some(set) if room == 1 => i64::from(set.enough(need) >= need.count),
                Some(set) => set.room(need, room),
                None => 0,
            };
        }
        room
    }
}
