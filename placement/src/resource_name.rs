//! A resource as named by scores and objectives: one that every cell has, a set of devices, or a named one.

use crate::{
    cell::Cell,
    expected::Size,
    free::Free,
    request::Request,
    resources::{Amounts, Resource, Resources},
};

/// The name of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceName {
    /// `memory`, `disk`, `containers` or `cpu`.
    Amount(Resource),
    /// A set of devices if the cell has one of this name, else a named resource.
    Named(String),
}

impl ResourceName {
    /// Returns the resource with this name; none if no resource can have it.
    pub fn parse(name: &str) -> Option<Self> {
        if let Some(resource) = Resource::ALL.into_iter().find(|r| r.name() == name) {
            return Some(Self::Amount(resource));
        }
        (1..=128)
            .contains(&name.len())
            .then(|| Self::Named(name.to_owned()))
    }

    /// Returns its name, as in policies.
    pub fn name(&self) -> &str {
        match self {
            Self::Amount(resource) => resource.name(),
            Self::Named(name) => name,
        }
    }

    /// Returns what one instance of the request takes of it; for devices, `total` tells how much a whole one is.
    pub fn wanted(&self, request: &Request, total: &Resources) -> i64 {
        let name = match self {
            Self::Amount(resource) => return request.amounts()[*resource],
            Self::Named(name) => name,
        };
        let Some(need) = request.devices.get(name) else {
            return request.extra.get(name).copied().unwrap_or(0);
        };
        let each = total.devices.get(name).map_or(0, |set| set.each);
        i64::from(need.count) * need.amount.unwrap_or(each)
    }

    /// Returns what one instance of the size takes of it; `each` is what a device has, if whole ones are asked for.
    pub(crate) fn of_size(&self, size: &Size, each: i64) -> i64 {
        let name = match self {
            Self::Amount(resource) => return size.amounts()[*resource],
            Self::Named(name) => name,
        };
        match size.devices.get(name) {
            Some(need) if each > 0 => i64::from(need.count) * need.amount.unwrap_or(each),
            _ => size.extra.get(name).copied().unwrap_or(0),
        }
    }

    /// Returns what a cell has of it in total; [`Amounts::UNLIMITED`] if there is no limit.
    pub fn total(&self, total: &Resources) -> i64 {
        match self {
            Self::Amount(resource) => total.get(*resource).unwrap_or(Amounts::UNLIMITED),
            Self::Named(name) => match total.devices.get(name) {
                Some(set) => set.sum_free(),
                None => total.extra(name),
            },
        }
    }

    /// Returns what a cell has free of it; unlimited as in [`ResourceName::total`].
    pub fn available(&self, cell: &Cell) -> i64 {
        self.free(&Free::of(cell))
    }

    /// Returns what is free of it, negative if overcommitted. For devices it is the sum of what each has free, which is
    /// never negative.
    pub(crate) fn free(&self, free: &Free<'_>) -> i64 {
        match self {
            Self::Amount(resource) => free.amounts[*resource],
            Self::Named(name) => match free.devices.get(name) {
                Some(set) => set.sum_free(),
                None => free.extra.get(name).copied().unwrap_or(0),
            },
        }
    }

    /// Returns the share of it that is in use on a cell; none if the cell has none of it or no limit.
    pub fn used_share(&self, cell: &Cell) -> Option<f64> {
        let (free, all) = (self.available(cell), self.total(&cell.total));
        let limited = free != Amounts::UNLIMITED && all != Amounts::UNLIMITED && all > 0;
        limited.then(|| 1.0 - free as f64 / all as f64)
    }

    /// Returns the share in use after the request is placed; 0 if the cell has none of it or no limit.
    pub(crate) fn used_after(&self, free: &Free<'_>, request: &Request, total: &Resources) -> f64 {
        let (left, all) = (self.free(free), self.total(total));
        if left == Amounts::UNLIMITED || all == Amounts::UNLIMITED || all <= 0 {
            return 0.0;
        }
        1.0 - (left - self.wanted(request, total)) as f64 / all as f64
    }
}

/// Returns the mean of these resources' used shares, or of their squares, after the request is placed.
pub(crate) fn mean_used(
    of: &[ResourceName],
    squared: bool,
    free: &Free<'_>,
    request: &Request,
    total: &Resources,
) -> f64 {
    let used = of.iter().map(|name| {
        let share = name.used_after(free, request, total);
        if squared { share * share } else { share }
    });
    used.sum::<f64>() / of.len() as f64
}
