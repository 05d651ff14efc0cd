//! What all cells have together, and the share of it that an instance asks for.

use std::collections::BTreeMap;

use crate::{
    cell::Cell,
    request::Request,
    resources::{Amounts, Resource},
};

/// The sums of the cells' totals. A resource that any cell has without limit is unlimited.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    amounts: [Option<i64>; Resource::ALL.len()],
    extra: BTreeMap<String, i64>,
    /// By set: the sum over all devices, and the most that one device has.
    devices: BTreeMap<String, (i64, i64)>,
}

impl Totals {
    pub(crate) fn of<'c>(cells: impl Iterator<Item = &'c Cell>) -> Self {
        let mut all = Self {
            amounts: [Some(0); Resource::ALL.len()],
            ..Self::default()
        };
        for cell in cells {
            for resource in Resource::ALL {
                let sum = &mut all.amounts[resource as usize];
                *sum = sum
                    .zip(cell.total.get(resource))
                    .map(|(sum, has)| sum + has);
            }
            for (name, has) in &cell.total.extra {
                *all.extra.entry(name.clone()).or_default() += has;
            }
            for (name, set) in &cell.total.devices {
                let (sum, most) = all.devices.entry(name.clone()).or_default();
                *sum += set.sum_free();
                *most = (*most).max(set.each);
            }
        }
        all
    }

    /// Returns the largest of the shares that an instance asks for (its *dominant share*: Ghodsi et al., "Dominant
    /// Resource Fairness", NSDI 2011). Resources of which there is none, or no limit, have no share.
    pub(crate) fn dominant_share(&self, request: &Request) -> f64 {
        let wanted: Amounts = request.amounts();
        let share = |wanted: i64, all: i64| {
            if all > 0 {
                wanted as f64 / all as f64
            } else {
                0.0
            }
        };
        let amounts = Resource::ALL.into_iter().map(|resource| {
            let all = self.amounts[resource as usize];
            all.map_or(0.0, |all| share(wanted[resource], all))
        });
        let extras = request.extra.iter().map(|(name, wanted)| {
            let all = self.extra.get(name).copied().unwrap_or(0);
            share(*wanted, all)
        });
        let devices = request.devices.iter().map(|(name, need)| {
            let (all, most) = self.devices.get(name).copied().unwrap_or_default();
            share(i64::from(need.count) * need.amount.unwrap_or(most), all)
        });
        amounts.chain(extras).chain(devices).fold(0.0, f64::max)
    }
}
