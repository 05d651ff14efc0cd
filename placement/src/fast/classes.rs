//! Classes: cells that every filter of a policy judges alike, except for what debits change.

use std::{fmt::Write, sync::Arc};

use crate::{
    cell::{Attributes, Cell},
    context::Now,
    fast_map::FastMap,
    policy::Filter,
    request::Request,
    resources::{Amounts, Resource},
    stages::filter,
};

/// What the cells of one class share.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    /// One of them, without what differs between them.
    sample: Cell,
    /// Its zone, by its number in [`Classes`].
    pub(crate) zone: u32,
    /// The totals of its cells; unlimited where `available` is. A 0 gives infinite costs, which never win.
    pub(crate) total: Amounts,
}

/// The classes that a policy's filters can distinguish.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    filters: Vec<Filter>,
    /// Whether cells with different totals are in different classes.
    by_totals: bool,
    by_print: FastMap<String, u32>,
    list: Vec<Class>,
    zones: FastMap<String, u32>,
    /// By zone: its classes.
    pub(crate) of_zone: Vec<Vec<u32>>,
}

impl Classes {
    pub(crate) fn new(filters: Vec<Filter>, by_totals: bool) -> Self {
        Self {
            filters,
            by_totals,
            ..Self::default()
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn get(&self, class: u32) -> &Class {
        &self.list[class as usize]
    }

    pub(crate) fn zones(&self) -> usize {
        self.of_zone.len()
    }

    /// Returns the cell's class, creating it if necessary.
    pub(crate) fn of(&mut self, cell: &Cell) -> u32 {
        let fingerprint = self.fingerprint(cell);
        // classes are never dropped, so that the numbers in an index stay valid: a bloated index is rebuilt instead
        if let Some(class) = self.by_print.get(&fingerprint) {
            return *class;
        }
        // at most as many classes as cells that ever came, which is far below 2^32
        let class = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let next_zone = u32::try_from(self.zones.len()).unwrap_or(u32::MAX);
        let zone = *self.zones.entry(cell.zone.clone()).or_insert(next_zone);
        if zone == next_zone {
            self.of_zone.push(Vec::new());
        }
        self.of_zone[zone as usize].push(class);
        let total = |resource| {
            // limited only if both are: a cell without a limit on one of them uses none of it
            let limited = cell.available.get(resource).and(cell.total.get(resource));
            limited.unwrap_or(Amounts::UNLIMITED)
        };
        self.list.push(Class {
            zone,
            total: Amounts::from_fn(total),
            sample: sample(cell),
        });
        self.by_print.insert(fingerprint, class);
        class
    }

    /// Returns the zone of each class.
    pub(crate) fn zone_by_class(&self) -> Vec<u32> {
        self.list.iter().map(|class| class.zone).collect()
    }

    /// Returns all zones in the order of their names.
    pub(crate) fn zones_by_name(&self) -> Vec<u32> {
        let mut zones: Vec<(&String, &u32)> = self.zones.iter().collect();
        zones.sort_unstable();
        zones.into_iter().map(|(_, zone)| *zone).collect()
    }

    /// Returns whether the class passes every filter, as far as debits cannot change that.
    pub(crate) fn admits(&self, class: u32, request: &Request, now: Now<'_>) -> bool {
        self.passes(class, &self.filters, request, now)
    }

    /// Returns whether the class passes these filters, as far as debits cannot change that.
    pub(crate) fn passes<'f>(
        &self,
        class: u32,
        filters: impl IntoIterator<Item = &'f Filter>,
        request: &Request,
        now: Now<'_>,
    ) -> bool {
        // any cell of the class would do
        let sample = &self.get(class).sample;
        filters.into_iter().all(|filter| match filter {
            // the free amount differs within a class, but having none at all does not
            Filter::Amount(resource) => !has_none_at_all(sample, *resource),
            filter if filter.is_resource() || is_dynamic(filter) => true,
            filter => filter::keeps(filter, sample, request, now),
        })
    }

    /// Returns everything about the cell that the filters read, as a text.
    fn fingerprint(&self, cell: &Cell) -> String {
        let mut out = String::with_capacity(128);
        // writing to a String cannot fail
        let _ = self.write_print(cell, &mut out);
        out
    }

    fn write_print(&self, cell: &Cell, out: &mut String) -> std::fmt::Result {
        // quoted, so that two adjacent texts cannot be read as two different ones
        write!(out, "{:?}", cell.zone)?;
        for resource in Resource::ALL {
            // filters only depend on whether there is any at all; the amount only matters to costs
            if !self.by_totals {
                write!(out, "{}", has_none_at_all(cell, resource))?;
            } else if resource.is_vital() {
                let is_limited = cell.available.get(resource).is_some();
                write!(out, "{:?}{is_limited}", cell.total.get(resource))?;
            }
        }
        for filter in &self.filters {
            match filter {
                Filter::Droplets => write!(
                    out,
                    "{}{}{}",
                    cell.droplets, cell.droplets_only, cell.staging
                )?,
                Filter::Evacuating => write!(out, "{}", cell.evacuating)?,
                Filter::Running => write!(out, "{:?}", cell.status)?,
                Filter::Stack => write!(out, "{:?}", cell.stacks)?,
                Filter::VolumeDrivers => write!(out, "{:?}", cell.volume_drivers)?,
                Filter::PlacementTags => write!(
                    out,
                    "{:?}",
                    (&cell.placement_tags, &cell.optional_placement_tags)
                )?,
                Filter::VolumesFrom => write!(out, "{:?}", cell.volumes)?,
                Filter::Reserved => write!(out, "{}", cell.reserved)?,
                Filter::ControlPlane => write!(out, "{}", cell.control_plane)?,
                Filter::Networks => write!(out, "{:?}", cell.networks)?,
                Filter::Platform => write!(out, "{:?}", cell.platform)?,
                Filter::Traits => write!(out, "{:?}", cell.traits)?,
                Filter::Sick => write!(out, "{}", filter::sick(cell))?,
                Filter::OvercommitRatios => write!(out, "{:?}", cell.overcommit)?,
                Filter::RebootWithin { .. } => write!(
                    out,
                    "{:?}",
                    (&cell.next_reboot, &cell.last_boot, &cell.reboot_batch)
                )?,
                // amounts are in the row, and dynamic filters are evaluated per cell
                _ => {}
            }
        }
        Ok(())
    }
}

/// Returns whether the cell has none of a resource without which it gets no work.
fn has_none_at_all(cell: &Cell, resource: Resource) -> bool {
    let total = cell.total.get(resource);
    resource.is_vital() && total.is_some_and(|total| total <= 0)
}

/// Returns whether debits can change the filter's verdict on a cell, beyond its amounts.
pub(crate) fn is_dynamic(filter: &Filter) -> bool {
    matches!(
        filter,
        Filter::ContainerCount { .. } | Filter::Capness | Filter::Locality
    )
}

fn sample(cell: &Cell) -> Cell {
    let mut sample = cell.clone();
    // these may be long, there is a sample per class, and no filter on a class reads them
    sample.counts.apps.clear();
    sample.counts.owners.clear();
    sample.counts.tags.clear();
    sample
}

/// Returns whether the two differ only in what [`super::rows::Row`] and the apps hold.
pub(crate) fn same_class_inputs(a: &Cell, b: &Cell) -> bool {
    // the pool shares equal attributes, so usually one pointer comparison decides
    (Arc::ptr_eq(&a.attributes, &b.attributes) || same_attributes(a, b))
        && a.index == b.index
        && a.total == b.total
        // not the amounts, but whether they are limited: a class's total depends on that
        && Resource::ALL
            .iter()
            .all(|r| a.available.get(*r).is_some() == b.available.get(*r).is_some())
        && a.evacuating == b.evacuating
        && a.recent_starts == b.recent_starts
}

/// Returns whether the attributes differ only in what no filter on a class reads: the zone's number, the DEA, the
/// host, the rack, the hardware's priority and cached blobs.
fn same_attributes(a: &Attributes, b: &Attributes) -> bool {
    a.zone == b.zone
        && a.stacks == b.stacks
        && a.droplets == b.droplets
        && a.droplets_only == b.droplets_only
        && a.staging == b.staging
        && a.placement_tags == b.placement_tags
        && a.optional_placement_tags == b.optional_placement_tags
        && a.volume_drivers == b.volume_drivers
        && a.status == b.status
        && a.reserved == b.reserved
        && a.control_plane == b.control_plane
        && a.networks == b.networks
        && a.traits == b.traits
        && a.platform == b.platform
        && a.volumes == b.volumes
        && a.next_reboot == b.next_reboot
        && a.last_boot == b.last_boot
        && a.reboot_batch == b.reboot_batch
        && a.overcommit == b.overcommit
}
