//! Fragments: what is free of a resource on a cell and the expected work could not use.
//!
//! The fragment that a size of expected work leaves of a resource is, of what the cell has free,
//! - all of it, if an instance of the size does not fit the cell;
//! - for devices: what is free on those that have too little for the size; all of it if the size asks for none;
//! - for any other resource: what remains after as many instances of the size as fit were placed.
//!
//! A cell's fragment is the mean over the sizes, for devices weighted by their shares of the instances, for any other
//! resource by their shares of what is asked for of it. Instead of this, the fragment of devices may be what the best
//! packing would waste: what is free less what it is [worth](crate::worth). What the cell cannot *feed* may count as
//! well: the part of what is free for which the cell's free cpu (or another amount) is likely to be too little, if work
//! came in the expected proportions. The *gradient* of a placement is by how much it lowers the fragment of the cell.
//! For devices this, by sizes, is the measure of Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with
//! Fragmentation Gradient Descent" (USENIX ATC 2023), sections 3 and 4.

use crate::{
    cell::Cell,
    devices::DeviceSet,
    expected::{ExpectedSize, ExpectedWork, Size},
    free::Free,
    request::Request,
    resource_name::ResourceName,
    resources::{Amounts, Resource},
};

/// The fragments that a score looks at.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fragments {
    pub(crate) of: ResourceName,
    /// Whether it is what the best packing would waste of devices.
    pub(crate) packed: bool,
    /// The amount that has to serve what is free.
    pub(crate) fed_by: Option<Resource>,
}

impl Free<'_> {
    /// Returns what is free of the resource, summed over all devices. Unlimited resources count as 0, because none of
    /// them is ever lost.
    pub(crate) fn sum(&self, of: &ResourceName) -> i64 {
        match of {
            ResourceName::Amount(resource) => match self.amounts[*resource] {
                Amounts::UNLIMITED => 0,
                amount => amount.max(0),
            },
            ResourceName::Named(name) => match self.devices.get(name) {
                Some(set) => set.sum_free(),
                None => self.extra.get(name).copied().unwrap_or(0).max(0),
            },
        }
    }

    /// Returns what the size, which asks for `wanted`, could not use of a resource that is not a set of devices and of
    /// which `all` is free.
    fn unusable(&self, all: i64, wanted: i64, size: &Size) -> i64 {
        all - wanted * self.room(size, all / wanted)
    }

    /// Returns what the size could not use of a set of devices of which `all` is free.
    fn unusable_devices(&self, name: &str, set: &DeviceSet, all: i64, size: &Size) -> i64 {
        let Some(need) = size.devices.get(name) else {
            return all;
        };
        if self.amounts_fit(size) && self.others_fit(name, size) {
            let (enough, too_small) = set.enough_and_too_small(need);
            if enough >= need.count {
                return too_small;
            }
        }
        all
    }

    /// Returns the cell's fragment of the resource, in its unit: the mean over the expected sizes.
    pub(crate) fn fragment(&self, of: &ResourceName, work: &ExpectedWork) -> f64 {
        let all = self.sum(of);
        if all == 0 || work.sizes().is_empty() {
            return 0.0;
        }
        let set = match of {
            ResourceName::Named(name) => self.devices.get(name).map(|set| (name, set)),
            ResourceName::Amount(_) => None,
        };
        if let Some((name, set)) = set {
            let unusable = |expected: &ExpectedSize| {
                expected.share * self.unusable_devices(name, set, all, &expected.size) as f64
            };
            return work.sizes().iter().map(unusable).sum::<f64>() / work.all();
        }
        let (mut asked, mut sum) = (0.0, 0.0);
        for expected in work.sizes() {
            let wanted = of.of_size(&expected.size, 0);
            if wanted > 0 {
                let asks = expected.share * wanted as f64;
                asked += asks;
                sum += asks * self.unusable(all, wanted, &expected.size) as f64;
            }
        }
        // if no work asks for it, none is missed
        if asked > 0.0 { sum / asked } else { 0.0 }
    }

    /// Returns what is free of the devices and would be wasted if they were packed with the expected work in the best
    /// way; 0 for resources that are not devices.
    fn wasted(&self, of: &ResourceName, work: &ExpectedWork) -> f64 {
        let ResourceName::Named(name) = of else {
            return 0.0;
        };
        let Some(set) = self.devices.get(name) else {
            return 0.0;
        };
        if work.sizes().is_empty() {
            return 0.0;
        }
        let worth = work.worth(name, set.each);
        let free = (0..set.count).map(|number| set.free(number).max(0));
        free.map(|free| free as f64 - worth.of_free(free)).sum()
    }

    /// Returns how much of the free resource the amount is likely not to serve, if work comes in the expected
    /// proportions until the resource is used up.
    ///
    /// What that work will need of the amount is known by its mean and its standard deviation: instances differ in what
    /// they need for what they take. By how much a need exceeds what is there is then, on average, at most what is
    /// returned here, however it is distributed (Scarf, "A min-max solution of an inventory problem", 1958). So the
    /// amount is worth something before the mean is reached, the more the closer it is.
    fn unfed(&self, of: &ResourceName, by: Resource, work: &ExpectedWork) -> f64 {
        let (all, free) = (self.sum(of), self.amounts[by]);
        if all == 0 || free == Amounts::UNLIMITED {
            return 0.0;
        }
        let each = match of {
            ResourceName::Named(name) => self.devices.get(name).map_or(0, |set| set.each),
            ResourceName::Amount(_) => 0,
        };
        let (mut food, mut fed) = (0.0, 0.0);
        let (mut food_squared, mut fed_squared, mut both) = (0.0, 0.0, 0.0);
        for expected in work.sizes() {
            let wanted = of.of_size(&expected.size, each) as f64;
            if wanted > 0.0 {
                let needed = expected.size.amounts()[by] as f64;
                food += expected.share * needed;
                fed += expected.share * wanted;
                food_squared += expected.share * needed * needed;
                fed_squared += expected.share * wanted * wanted;
                both += expected.share * needed * wanted;
            }
        }
        if food <= 0.0 {
            return 0.0;
        }
        let rate = food / fed;
        // of what instances need beyond or below the mean for what they take, by what is taken
        let squares = food_squared - 2.0 * rate * both + rate * rate * fed_squared;
        let variance = (squares / fed).max(0.0) * all as f64;
        let spare = free.max(0) as f64 - rate * all as f64;
        let unserved = ((variance + spare * spare).sqrt() - spare) / 2.0 / rate;
        unserved.min(all as f64)
    }
}

impl Fragments {
    /// Returns the fragment on a cell, in the unit of the resource.
    pub(crate) fn on(&self, free: &Free<'_>, work: &ExpectedWork) -> f64 {
        let fragment = if self.packed {
            free.wasted(&self.of, work)
        } else {
            free.fragment(&self.of, work)
        };
        match self.fed_by {
            Some(by) => fragment + free.unfed(&self.of, by, work),
            None => fragment,
        }
    }
}

impl ResourceName {
    /// Returns what is free of it on a cell and the expected work could not use.
    pub fn fragment(&self, cell: &Cell, work: &ExpectedWork) -> f64 {
        Free::of(cell).fragment(self, work)
    }
}

/// Returns the gradient, in units, of placing one instance of the request where `free` is free and `before` is the
/// fragment.
pub(crate) fn gradient(
    fragments: &Fragments,
    before: f64,
    free: &Free<'_>,
    request: &Request,
    work: &ExpectedWork,
) -> f64 {
    let gradient = before - fragments.on(&free.after(request), work);
    gradient / unit(&fragments.of, free, work)
}

/// Returns the divisor that makes gradients of a resource numbers around 1: what one device has, or the typical size of
/// the expected work.
pub(crate) fn unit(of: &ResourceName, free: &Free<'_>, work: &ExpectedWork) -> f64 {
    if let ResourceName::Named(name) = of
        && let Some(set) = free.devices.get(name)
    {
        return set.each.max(1) as f64;
    }
    of.typical(work).max(1.0)
}

/// Returns the score of a gradient in units. With steps it is one of `0/steps`, `1/steps`, …: the share of the steps
/// below a sigmoid of the gradient, so that cells with nearly equal gradients tie and the next term decides. Without
/// steps (0) it is the gradient itself.
pub(crate) fn score(gradient: f64, steps: u32) -> f64 {
    if steps == 0 {
        return gradient;
    }
    let steps = f64::from(steps);
    (steps / (1.0 + (-gradient).exp())).floor() / steps
}

#[cfg(test)]
mod tests;
