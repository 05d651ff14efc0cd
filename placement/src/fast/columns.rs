//! A pool's cells as columns: one value per cell and column, by slot. They are kept as long as the pool is planned
//! under one policy; an advertisement or a departure changes one cell's values in them.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    cell::Cell,
    context::Now,
    fast_map::FastMap,
    policy::{Filter, Policy, Step},
    request::Request,
    resources::{Amounts, MAX_AMOUNT, Resource},
    stages::filter,
    tie,
};

use super::{
    classes::Classes,
    known::KnownTerms,
    rows::{Holders, Row},
};

mod places;

pub(super) use places::Places;

/// No rack.
pub(super) const NO_RACK: u32 = u32::MAX;
/// The class slot of a free slot, and of a cell that does not exist for an auction.
pub(super) const NOBODY: u32 = 0;

/// Columns for one policy, by slot.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    policy: Policy,
    classes: Classes,
    /// The cell's class plus one, or [`NOBODY`].
    pub(super) class_slots: Vec<u32>,
    /// Whether the cell counts for zones and racks.
    pub(super) counted: Vec<bool>,
    pub(super) capped: Vec<u32>,
    pub(super) uncapped: Vec<u32>,
    pub(super) instances: Vec<u64>,
    /// Available and total MiB as seen by the objective language; unlimited is [`MAX_AMOUNT`].
    pub(super) memory: Vec<f64>,
    pub(super) disk: Vec<f64>,
    pub(super) total_memory: Vec<f64>,
    pub(super) total_disk: Vec<f64>,
    /// Whether both total and available disk are limited.
    pub(super) disk_is_limited: Vec<bool>,
    /// The zone's number if the cell gives one, else NaN.
    given_zone_numbers: Vec<f64>,
    /// The result of the last [`Columns::number_zones`].
    pub(super) zone_numbers: Vec<f64>,
    pub(super) racks: Vec<u32>,
    rack_numbers: FastMap<String, u32>,
    /// The platform's stamp in ms; NaN if unreadable.
    pub(super) platforms: Vec<f64>,
    /// Planned reboots in ms, past or future; none if never, or before the last boot.
    pub(super) reboots: Vec<Option<i64>>,
    pub(super) by_memory: Places,
    pub(super) by_disk: Places,
    pub(super) by_reboot: Places,
    pub(super) by_name: ByName,
    pub(super) owners: Holders,
    pub(super) tags: Holders,
    pub(super) blobs: Holders,
    pub(super) stacks: Holders,
    pub(super) known: KnownTerms,
    /// The lots of the last auction; below, which auction that was.
    pub(super) lots: Vec<tie::Lot>,
    auction: Option<tie::Lots>,
}

/// All slots in the order of their cells' names, for random orders of cells.
#[derive(Clone, Debug, Default)]
pub(super) struct ByName {
    is_made: bool,
    pub(super) slots: Vec<u32>,
    /// By slot: where it is in that order.
    pub(super) places: Vec<u32>,
}

impl ByName {
    /// Finds the order, if a slot has got another name since.
    fn settle(&mut self, names: &[Arc<str>]) {
        if std::mem::replace(&mut self.is_made, true) {
            return;
        }
        self.slots = (0..).take(names.len()).collect();
        self.slots
            .sort_unstable_by(|a, b| names[*a as usize].cmp(&names[*b as usize]));
        self.places.resize(names.len(), 0);
        for (place, slot) in (0..).zip(&self.slots) {
            self.places[*slot as usize] = place;
        }
    }
}

impl Columns {
    pub(crate) fn new(policy: &Policy) -> Self {
        let mut filters: Vec<Filter> = Vec::new();
        for stage in policy.all_stages() {
            if let Step::Filter(filter) = &stage.step
                && !filters.contains(filter)
            {
                filters.push(filter.clone());
            }
        }
        Self {
            policy: policy.clone(),
            classes: Classes::new(filters, false),
            class_slots: Vec::new(),
            counted: Vec::new(),
            capped: Vec::new(),
            uncapped: Vec::new(),
            instances: Vec::new(),
            memory: Vec::new(),
            disk: Vec::new(),
            total_memory: Vec::new(),
            total_disk: Vec::new(),
            disk_is_limited: Vec::new(),
            given_zone_numbers: Vec::new(),
            zone_numbers: Vec::new(),
            racks: Vec::new(),
            rack_numbers: FastMap::default(),
            platforms: Vec::new(),
            reboots: Vec::new(),
            by_memory: Places::default(),
            by_disk: Places::default(),
            by_reboot: Places::default(),
            by_name: ByName::default(),
            owners: Holders::default(),
            tags: Holders::default(),
            blobs: Holders::default(),
            stacks: Holders::default(),
            known: KnownTerms::default(),
            lots: Vec::new(),
            auction: None,
        }
    }

    pub(super) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns how many distinct classes or racks have been seen, whichever are more.
    pub(super) fn symbols(&self) -> usize {
        self.classes.len().max(self.rack_numbers.len())
    }

    /// Returns how many slots there are, including free ones.
    pub(super) fn len(&self) -> usize {
        self.class_slots.len()
    }

    fn grow(&mut self, slots: usize) {
        if self.len() >= slots {
            return;
        }
        self.class_slots.resize(slots, NOBODY);
        self.counted.resize(slots, false);
        self.capped.resize(slots, 0);
        self.uncapped.resize(slots, 0);
        self.instances.resize(slots, 0);
        for column in [
            &mut self.memory,
            &mut self.disk,
            &mut self.total_memory,
            &mut self.total_disk,
            &mut self.given_zone_numbers,
            &mut self.zone_numbers,
            &mut self.platforms,
        ] {
            column.resize(slots, 0.0);
        }
        self.disk_is_limited.resize(slots, false);
        self.racks.resize(slots, NO_RACK);
        self.reboots.resize(slots, None);
    }

    /// Inserts a new cell in a slot, which may be new.
    pub(super) fn insert(&mut self, slot: u32, cell: &Cell, row: Row) {
        self.grow(slot as usize + 1);
        // the slot has a new name: the lots are drawn again
        self.auction = None;
        self.by_name.is_made = false;
        self.write_kind(slot, cell);
        self.write_rest(slot, cell);
        self.write_amounts(slot, cell, row);
        self.known.forget(slot);
        self.hold(slot, None, Some(cell));
    }

    pub(super) fn remove(&mut self, slot: u32, cell: &Cell) {
        // the slot stays in every column until another cell takes it, so that no position shifts
        self.class_slots[slot as usize] = NOBODY;
        self.counted[slot as usize] = false;
        self.reboots[slot as usize] = None;
        // holders are lists of slots: the next cell in this slot must not be found in them
        self.hold(slot, Some(cell), None);
        self.touch(slot);
        self.known.forget(slot);
        self.by_reboot.touch(slot);
    }

    /// Updates the cell of a slot from `old` to `new`, which may be of another class.
    pub(super) fn update_class(&mut self, slot: u32, old: &Cell, new: &Cell, row: Row) {
        self.write_kind(slot, new);
        self.update(slot, old, new, row);
    }

    /// Updates the cell of a slot from `old` to `new`, which are of one class.
    pub(super) fn update(&mut self, slot: u32, old: &Cell, new: &Cell, row: Row) {
        self.write_rest(slot, new);
        // most advertisements bring nothing new
        let same = old.available == new.available && old.total == new.total;
        if !same {
            self.known.forget(slot);
        }
        self.write_amounts(slot, new, row);
        self.hold(slot, Some(old), Some(new));
    }

    /// Counts a debit: the request's resources were taken from the cell, which is now `cell`.
    pub(super) fn count_debit(&mut self, slot: u32, cell: &Cell, row: Row, request: &Request) {
        self.write_amounts(slot, cell, row);
        self.known.forget(slot);
        if let Some(owner) = &request.owner {
            self.owners.add(owner, slot);
        }
        for (key, value) in &request.tags {
            self.tags.add(&format!("{key}={value}"), slot);
        }
    }

    /// Writes what [`super::classes::same_class_inputs`] compares.
    fn write_kind(&mut self, slot: u32, cell: &Cell) {
        let at = slot as usize;
        let ignored = self.policy.ignores_evacuating() && cell.evacuating;
        // plus one: 0 is [`NOBODY`], which every verdict rejects without a further test
        self.class_slots[at] = self.classes.of(cell) + 1;
        self.counted[at] = !ignored;
        self.total_memory[at] = cell.total.memory_mb as f64;
        self.total_disk[at] = cell.total.disk_mb.unwrap_or(MAX_AMOUNT) as f64;
        self.disk_is_limited[at] = cell.total.disk_mb.and(cell.available.disk_mb).is_some();
        let stamp = cell.platform.as_ref();
        let stamp = stamp.and_then(|platform| platform.stamp.ms());
        self.platforms[at] = stamp.map_or(f64::NAN, |ms| ms as f64);
        // each plan decides for itself whether it is past
        self.reboots[at] = cell.planned_reboot_ms(i64::MIN);
        self.by_reboot.touch(slot);
    }

    /// Writes what may differ between cells of one class, except amounts and counts.
    fn write_rest(&mut self, slot: u32, cell: &Cell) {
        let at = slot as usize;
        self.given_zone_numbers[at] = cell.zone_number.map_or(f64::NAN, f64::from);
        self.racks[at] = cell.rack.as_ref().map_or(NO_RACK, |rack| {
            if let Some(number) = self.rack_numbers.get(rack) {
                return *number;
            }
            let next = u32::try_from(self.rack_numbers.len()).unwrap_or(NO_RACK);
            self.rack_numbers.insert(rack.clone(), next);
            next
        });
    }

    /// Writes what debits change.
    pub(super) fn write_amounts(&mut self, slot: u32, cell: &Cell, row: Row) {
        let at = slot as usize;
        self.capped[at] = cell.counts.cpu_capped;
        self.uncapped[at] = cell.counts.cpu_uncapped;
        self.instances[at] = filter::containers(cell);
        self.write_row(slot, row);
    }

    /// Writes the cell's free amounts from its row.
    pub(super) fn write_row(&mut self, slot: u32, row: Row) {
        let at = slot as usize;
        self.memory[at] = row.free[Resource::Memory] as f64;
        self.disk[at] = if row.free[Resource::Disk] == Amounts::UNLIMITED {
            MAX_AMOUNT as f64
        } else {
            row.free[Resource::Disk] as f64
        };
        // only marked: most policies never need the order
        self.touch(slot);
    }

    fn touch(&mut self, slot: u32) {
        self.by_memory.touch(slot);
        self.by_disk.touch(slot);
    }

    /// Updates who holds what, after a cell came, changed or went.
    fn hold(&mut self, slot: u32, old: Option<&Cell>, new: Option<&Cell>) {
        type Counts = fn(&Cell) -> &BTreeMap<String, u32>;
        type Names = fn(&Cell) -> &[String];
        let maps: [(&mut Holders, Counts); 2] = [
            (&mut self.owners, |cell| &cell.counts.owners),
            (&mut self.tags, |cell| &cell.counts.tags),
        ];
        for (holders, counts) in maps {
            holders.change(slot, old.map(counts), new.map(counts));
        }
        let lists: [(&mut Holders, Names); 2] = [
            (&mut self.blobs, |cell| &cell.cached_blobs),
            (&mut self.stacks, |cell| &cell.stacks),
        ];
        for (holders, names) in lists {
            let (old, new) = (old.map_or(&[][..], names), new.map_or(&[][..], names));
            // the lists rarely change, and counting them allocates
            if old != new {
                holders.change(slot, Some(&tally(old)), Some(&tally(new)));
            }
        }
    }

    /// Numbers the zones of the counted cells, and returns how many there are.
    pub(super) fn number_zones(&mut self) -> usize {
        let zone_of_class = self.classes.zone_by_class();
        let mut counts = vec![false; self.classes.zones()];
        for (class_slot, counted) in self.class_slots.iter().zip(&self.counted) {
            if *counted && *class_slot != NOBODY {
                counts[zone_of_class[*class_slot as usize - 1] as usize] = true;
            }
        }
        let mut numbers = vec![0.0; counts.len()];
        let mut zones = 0;
        for zone in self.classes.zones_by_name() {
            // its number is that of the counted zones before it plus one
            numbers[zone as usize] = zones as f64 + 1.0;
            zones += usize::from(counts[zone as usize]);
        }
        for ((number, given), class_slot) in self
            .zone_numbers
            .iter_mut()
            .zip(&self.given_zone_numbers)
            .zip(&self.class_slots)
        {
            *number = match *class_slot {
                NOBODY => 0.0,
                _ if !given.is_nan() => *given,
                class_slot => numbers[zone_of_class[class_slot as usize - 1] as usize],
            };
        }
        zones
    }

    /// Gives every cell its lot for the auction.
    pub(super) fn draw_lots(&mut self, lots: tie::Lots, hashes: &[u64]) {
        if self.auction != Some(lots) {
            self.auction = Some(lots);
            self.lots.clear();
            self.lots
                .extend(hashes.iter().map(|hash| lots.of_cell(*hash)));
        }
    }

    pub(super) fn zones(&self) -> usize {
        self.classes.zones()
    }

    /// Returns the cell's zone; none if there is no cell.
    pub(super) fn zone(&self, slot: u32) -> Option<u32> {
        let class_slot = self.class_slots[slot as usize];
        (class_slot != NOBODY).then(|| self.classes.get(class_slot - 1).zone)
    }

    /// Returns, by class slot, whether these filters keep its cells, as far as debits cannot change that.
    pub(super) fn judge(&self, filters: &[&Filter], request: &Request, now: Now<'_>) -> Vec<bool> {
        let classes = u32::try_from(self.classes.len()).unwrap_or(u32::MAX);
        let judge = |class| {
            self.classes
                .passes(class, filters.iter().copied(), request, now)
        };
        std::iter::once(false)
            .chain((0..classes).map(judge))
            .collect()
    }

    pub(super) fn rack_number(&self, rack: &str) -> Option<u32> {
        self.rack_numbers.get(rack).copied()
    }

    pub(super) fn rack_count(&self) -> usize {
        self.rack_numbers.len()
    }

    /// Orders all cells by name.
    pub(super) fn settle_by_name(&mut self, names: &[Arc<str>]) {
        self.by_name.settle(&names[..self.len()]);
    }

    /// Orders all cells by free memory.
    pub(super) fn settle_by_memory(&mut self, rows: &[Row]) {
        let there = |slot: u32| self.class_slots[slot as usize] != NOBODY;
        let memory = |slot: u32| there(slot).then(|| rows[slot as usize].free[Resource::Memory]);
        self.by_memory.settle(self.class_slots.len(), memory);
    }

    /// Orders all cells by free disk, unlimited ones last.
    pub(super) fn settle_by_disk(&mut self, rows: &[Row]) {
        let there = |slot: u32| self.class_slots[slot as usize] != NOBODY;
        let disk = |slot: u32| there(slot).then(|| rows[slot as usize].free[Resource::Disk]);
        self.by_disk.settle(self.class_slots.len(), disk);
    }

    /// Orders all cells with a planned reboot by its date.
    pub(super) fn settle_by_reboot(&mut self) {
        let reboots = &self.reboots;
        self.by_reboot
            .settle(self.class_slots.len(), |slot| reboots[slot as usize]);
    }
}

/// Counts how often each name is in a list.
fn tally(names: &[String]) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name.clone()).or_insert(0) += 1;
    }
    counts
}
