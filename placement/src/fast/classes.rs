//! Classes: cells that every filter of a policy judges alike, but for what debits change.

use std::{collections::HashMap, fmt::Write, sync::Arc};

use crate::{
    cell::{Attributes, Cell},
    context::Now,
    policy::Filter,
    request::Request,
    stages::filter,
};

/// What the cells of one class share.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    /// One of them, without what differs.
    sample: Cell,
    /// Its zone, as a number of [`Classes`].
    pub(crate) zone: u32,
    /// MiB; a 0 gives infinite costs, which never win.
    pub(crate) total_memory: f64,
    /// MiB; none = unlimited.
    pub(crate) total_disk: Option<f64>,
    /// None = unlimited.
    pub(crate) total_containers: Option<f64>,
}

/// The classes that a policy's filters tell apart.
#[derive(Clone, Debug, Default)]
pub(crate) struct Classes {
    filters: Vec<Filter>,
    /// Whether cells of different totals are of different classes.
    by_totals: bool,
    by_print: HashMap<String, u32>,
    list: Vec<Class>,
    zones: HashMap<String, u32>,
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

    /// The cell's class, a new one if need be.
    pub(crate) fn of(&mut self, cell: &Cell) -> u32 {
        let print = self.print(cell);
        if let Some(class) = self.by_print.get(&print) {
            return *class;
        }
        // there are at most as many classes as cells came, far below 2^32
        let class = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let next_zone = u32::try_from(self.zones.len()).unwrap_or(u32::MAX);
        let zone = *self.zones.entry(cell.zone.clone()).or_insert(next_zone);
        if zone == next_zone {
            self.of_zone.push(Vec::new());
        }
        self.of_zone[zone as usize].push(class);
        let limited = |available: Option<i64>, total: Option<i64>| {
            available.and(total).map(|total| total as f64)
        };
        self.list.push(Class {
            zone,
            total_memory: cell.total.memory_mb as f64,
            total_disk: limited(cell.available.disk_mb, cell.total.disk_mb),
            total_containers: limited(cell.available.containers, cell.total.containers),
            sample: sample(cell),
        });
        self.by_print.insert(print, class);
        class
    }

    /// By class: its zone.
    pub(crate) fn zone_by_class(&self) -> Vec<u32> {
        self.list.iter().map(|class| class.zone).collect()
    }

    /// All zones in the order of their names.
    pub(crate) fn zones_by_name(&self) -> Vec<u32> {
        let mut zones: Vec<(&String, &u32)> = self.zones.iter().collect();
        zones.sort_unstable();
        zones.into_iter().map(|(_, zone)| *zone).collect()
    }

    /// Whether the class passes every filter, as far as debits cannot change that.
    pub(crate) fn admits(&self, class: u32, request: &Request, now: Now<'_>) -> bool {
        self.passes(class, &self.filters, request, now)
    }

    /// Whether the class passes these of the filters, as far as debits cannot change that.
    pub(crate) fn passes<'f>(
        &self,
        class: u32,
        filters: impl IntoIterator<Item = &'f Filter>,
        request: &Request,
        now: Now<'_>,
    ) -> bool {
        let sample = &self.get(class).sample;
        filters.into_iter().all(|filter| match filter {
            Filter::Memory => sample.total.memory_mb > 0,
            Filter::Disk => sample.total.disk_mb != Some(0),
            Filter::Containers => sample.total.containers != Some(0),
            filter if filter.is_resource() || is_dynamic(filter) => true,
            filter => filter::keeps(filter, sample, request, now),
        })
    }

    /// Everything about the cell that the filters read, as a text.
    fn print(&self, cell: &Cell) -> String {
        let mut out = String::with_capacity(128);
        // writing to a String cannot fail
        let _ = self.write_print(cell, &mut out);
        out
    }

    fn write_print(&self, cell: &Cell, out: &mut String) -> std::fmt::Result {
        let (total, available) = (&cell.total, &cell.available);
        write!(out, "{:?}", cell.zone)?;
        if self.by_totals {
            let limits = (available.disk_mb.is_some(), available.containers.is_some());
            write!(
                out,
                "{:?}",
                (total.memory_mb, total.disk_mb, total.containers, limits)
            )?;
        } else {
            let nothing = (total.disk_mb == Some(0), total.containers == Some(0));
            write!(out, "{:?}", (total.memory_mb <= 0, nothing))?;
        }
        for filter in &self.filters {
            match filter {
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
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether debits can change what the filter says of a cell, beyond its amounts.
pub(crate) fn is_dynamic(filter: &Filter) -> bool {
    matches!(
        filter,
        Filter::ContainerCount { .. } | Filter::Capness | Filter::Locality
    )
}

fn sample(cell: &Cell) -> Cell {
    let mut sample = cell.clone();
    sample.apps.clear();
    sample.owners.clear();
    sample.tags.clear();
    sample
}

/// Whether nothing differs between the two but what [`super::rows::Row`] and the apps hold.
pub(crate) fn same_class_inputs(a: &Cell, b: &Cell) -> bool {
    (Arc::ptr_eq(&a.attributes, &b.attributes) || same_attributes(a, b))
        && a.index == b.index
        && a.total == b.total
        && a.available.disk_mb.is_some() == b.available.disk_mb.is_some()
        && a.available.containers.is_some() == b.available.containers.is_some()
        && a.evacuating == b.evacuating
        && a.volumes == b.volumes
        && a.next_reboot == b.next_reboot
        && a.last_boot == b.last_boot
        && a.recent_starts == b.recent_starts
}

/// Whether the attributes differ in nothing but the rack and the hardware's priority, which no
/// filter of a class reads.
fn same_attributes(a: &Attributes, b: &Attributes) -> bool {
    a.zone == b.zone
        && a.stacks == b.stacks
        && a.placement_tags == b.placement_tags
        && a.optional_placement_tags == b.optional_placement_tags
        && a.volume_drivers == b.volume_drivers
        && a.status == b.status
        && a.reserved == b.reserved
        && a.control_plane == b.control_plane
        && a.networks == b.networks
        && a.traits == b.traits
        && a.platform == b.platform
        && a.reboot_batch == b.reboot_batch
        && a.overcommit == b.overcommit
}
