//! One plan's view of the columns: which cells exist, and what the batch has taken so far.

use std::{collections::hash_map::Entry, sync::Arc};

use crate::{
    auction_view,
    batch::{Batch, JobGroup},
    cell::Cell,
    context::Now,
    devices::DeviceShares,
    fast_map::FastMap,
    free::Free,
    grouping::{GroupCounts, Grouping},
    near::Item,
    objective::Objective,
    policy::Policy,
    request::{Job, Request},
    resource_name::ResourceName,
    resources::Resource,
    scarcity::{self, MeanFree},
};

use super::{
    columns::{Columns, NO_RACK, NOBODY},
    rows::Holders,
    session::{Parts, Session},
};

/// How many of something each cell holds: slot and count, in order of slots.
type Counts = Vec<(u32, u32)>;

/// The columns for one plan; they include the batch's debits until [`View::finish`].
pub(super) struct View<'a> {
    pub(super) columns: &'a mut Columns,
    pub(super) session: Session<'a>,
    /// Cells that do not exist for this auction: slot, class slot, and whether they otherwise count.
    absent: Vec<(u32, u32, bool)>,
    /// By slot: the rank by index in its zone, if the policy uses it.
    pub(super) ranks: Vec<u32>,
    /// How many zones the counted cells have, if the policy has an objective.
    pub(super) zones_counted: usize,
    /// The different numbers of zones, of [`View::find_zone_values`].
    pub(super) zone_values: Vec<f64>,
    /// The positions of the batch's apps within the batch.
    app_numbers: FastMap<&'a str, u32>,
    owners: Changed,
    tags: Changed,
    /// What cells had free on average when the batch began, of each resource whose scarcity a score depends on.
    pub(super) mean_free: Vec<(&'a ResourceName, MeanFree)>,
    /// Counts by name as columns, made on demand; by [`Listed`].
    counts: [FastMap<String, Vec<f64>>; 2],
}

/// What an objective counts or checks by name.
#[derive(Clone, Copy, Debug)]
pub(super) enum Listed {
    Blob,
    Stack,
}

/// The most columns by name that are kept at a time.
const MAX_KEPT: usize = 512;

/// Counts that the batch changed, overriding those of the pool.
#[derive(Default)]
struct Changed {
    by_name: FastMap<String, Counts>,
}

impl Changed {
    fn of<'s>(&'s self, name: &str, pool: &'s Holders) -> &'s [(u32, u32)] {
        let changed = self.by_name.get(name);
        changed.map_or_else(|| pool.of(name), Vec::as_slice)
    }

    fn add(&mut self, name: String, slot: u32, pool: &Holders) {
        let counts = match self.by_name.entry(name) {
            Entry::Occupied(changed) => changed.into_mut(),
            Entry::Vacant(vacant) => {
                // copied when the batch first changes it, which is never the case for most names
                let unchanged = pool.of(vacant.key()).to_vec();
                vacant.insert(unchanged)
            }
        };
        match counts.binary_search_by_key(&slot, |(s, _)| *s) {
            Ok(at) => counts[at].1 += 1,
            Err(at) => counts.insert(at, (slot, 1)),
        }
    }
}

fn slots(counts: &[(u32, u32)]) -> impl Iterator<Item = u32> {
    counts.iter().map(|(slot, _)| *slot)
}

/// Adds one at each of the slots.
fn count(held: &mut [u32], slots: impl Iterator<Item = u32>) {
    for slot in slots {
        held[slot as usize] += 1;
    }
}

/// Returns the count of the slot in the list.
pub(super) fn count_at(counts: &[(u32, u32)], slot: u32) -> u32 {
    let found = counts.binary_search_by_key(&slot, |(s, _)| *s);
    found.map_or(0, |at| counts[at].1)
}

impl<'a> View<'a> {
    pub(super) fn new(
        columns: &'a mut Columns,
        session: Session<'a>,
        policy: &Policy,
        batch: &Batch<'a>,
    ) -> Self {
        // they keep their slots: columns stay as long as the pool, and no position shifts
        let mut absent = Vec::new();
        for slot in &session.out {
            let at = *slot as usize;
            absent.push((*slot, columns.class_slots[at], columns.counted[at]));
            columns.class_slots[at] = NOBODY;
            columns.counted[at] = false;
        }
        columns.draw_lots(session.lots, session.parts.hashes);
        let mut view = Self {
            // a walk over all cells, which no other term needs
            zones_counted: if policy.has_objective() {
                columns.number_zones()
            } else {
                0
            },
            columns,
            session,
            absent,
            zone_values: Vec::new(),
            ranks: Vec::new(),
            app_numbers: batch.apps.iter().copied().zip(0..).collect(),
            owners: Changed::default(),
            tags: Changed::default(),
            mean_free: Vec::new(),
            counts: Default::default(),
        };
        let scarce = view.session.policy.scarce();
        view.mean_free = scarce.map(|of| (of, view.mean_free(of))).collect();
        // absent cells take no rank, so that ranks are those of this auction alone
        if policy.ranks_cells() {
            let counted = (0..).take(view.columns.len());
            let counted = counted.filter(|slot: &u32| view.columns.counted[*slot as usize]);
            let counted = view.session.by_name(counted.collect());
            view.ranks = auction_view::ranks(view.session.parts.cells, counted);
        }
        view
    }

    fn mean_free(&self, of: &ResourceName) -> MeanFree {
        let Parts { rows, cells, .. } = &self.session.parts;
        let class_slots = self.columns.class_slots.iter();
        let there = (0..).zip(class_slots).filter(|(_, at)| **at != NOBODY);
        let slots = there.map(|(slot, _): (usize, _)| slot);
        match of {
            ResourceName::Amount(resource) => {
                MeanFree::of(slots.map(|slot| scarcity::limited(rows[slot].free[*resource])))
            }
            ResourceName::Named(_) => {
                MeanFree::of(slots.map(|slot| of.limited(&Free::of(&cells[slot]))))
            }
        }
    }

    /// When the cell's reboot is planned, unless that is past.
    pub(super) fn reboot(&self, slot: u32) -> Option<i64> {
        let planned = self.columns.reboots[slot as usize];
        planned.filter(|at| *at >= self.session.context.now_ms)
    }

    /// Collects the numbers of the zones, once.
    pub(super) fn find_zone_values(&mut self) {
        if self.zone_values.is_empty() {
            let columns = &*self.columns;
            let cells = columns.zone_numbers.iter().zip(&columns.class_slots);
            let there = cells.filter(|(_, class_slot)| **class_slot != NOBODY);
            self.zone_values.extend(there.map(|(number, _)| *number));
            self.zone_values.sort_unstable_by(f64::total_cmp);
            self.zone_values.dedup();
        }
    }

    /// Reverts the batch's debits, and restores the absent cells.
    pub(super) fn finish(self) {
        let Self {
            columns,
            mut session,
            absent,
            ..
        } = self;
        let cells = session.parts.cells;
        session.roll_back(|slot, _, before| {
            columns.write_amounts(slot, &cells[slot as usize], before);
            columns.known.forget(slot);
        });
        for (slot, class_slot, counted) in absent {
            columns.class_slots[slot as usize] = class_slot;
            columns.counted[slot as usize] = counted;
            columns.write_row(slot, *session.row(slot));
        }
    }

    /// Returns the cell as it was before the batch.
    pub(super) fn cell(&self, slot: u32) -> &'a Cell {
        &self.session.parts.cells[slot as usize]
    }

    /// Counts the instances of an app in each group; `holders` has the cells that run it.
    pub(super) fn group_counts<'g>(
        &'g self,
        grouping: &'g Grouping,
        holders: &[(u32, u32)],
    ) -> GroupCounts<'g> {
        let counted = holders
            .iter()
            .filter(|(slot, _)| self.columns.counted[*slot as usize]);
        let cells = counted.map(|(slot, count)| (self.cell(*slot), *count));
        GroupCounts::new(grouping, cells)
    }

    pub(super) fn now(&self) -> Now<'a> {
        Now::of(self.session.context)
    }

    /// Looks up the job's app when its first job comes.
    pub(super) fn meet(&mut self, group: JobGroup, job: &Job) {
        let columns = &*self.columns;
        self.session
            .meet(group, job, columns.zones(), |slot| columns.zone(slot));
    }

    /// Returns where an app runs, whether or not the batch has jobs of it.
    pub(super) fn app(&self, app: &str) -> &[(u32, u32)] {
        let met = self.app_numbers.get(app);
        let met = met.and_then(|number| self.session.known_app(*number));
        met.map_or_else(|| self.session.parts.holders.of(app), |app| &app.holders)
    }

    /// Returns which cells hold instances of the owner.
    pub(super) fn owner(&self, owner: &str) -> &[(u32, u32)] {
        self.owners.of(owner, &self.columns.owners)
    }

    /// Returns how many of the items each cell holds.
    pub(super) fn held(&self, items: &[String]) -> Vec<u32> {
        let mut held = vec![0; self.columns.len()];
        for item in items {
            match Item::parse(item) {
                Some(Item::App(app)) => count(&mut held, slots(self.app(app))),
                Some(Item::Tag(tag)) => {
                    count(&mut held, slots(self.tags.of(tag, &self.columns.tags)));
                }
                Some(Item::Rack(rack)) => {
                    let number = self.columns.rack_number(rack).unwrap_or(NO_RACK);
                    let racks = (0..).zip(&self.columns.racks);
                    let inside = racks.filter(|(_, rack)| **rack == number && number != NO_RACK);
                    count(&mut held, inside.map(|(slot, _)| slot));
                }
                Some(Item::Instance(id)) => {
                    let at = self.session.context.instances.get(id);
                    let names = (0..).zip(self.session.parts.names);
                    let there = names.filter(|(_, name)| at == Some(name));
                    count(&mut held, there.map(|(slot, _)| slot));
                }
                None => {}
            }
        }
        held
    }

    /// Returns which racks have a counted cell that holds any of the items.
    pub(super) fn racks_of(&self, held: &[u32]) -> Vec<bool> {
        let columns = &self.columns;
        let mut racks = vec![false; columns.rack_count()];
        for (at, count) in held.iter().enumerate() {
            let rack = columns.racks[at];
            if *count > 0 && columns.counted[at] && rack != NO_RACK {
                racks[rack as usize] = true;
            }
        }
        racks
    }

    /// Makes columns of how often each cell lists these names, except names that no cell lists.
    pub(super) fn count<'n>(
        &mut self,
        listed: Listed,
        names: impl IntoIterator<Item = &'n String>,
    ) {
        let columns = &mut self.counts[listed as usize];
        // a column has a number per cell, and names come from requests, so the number of columns must be bounded
        if columns.len() >= MAX_KEPT {
            columns.clear();
        }
        for name in names {
            let holders = match listed {
                Listed::Blob => self.columns.blobs.of(name),
                Listed::Stack => self.columns.stacks.of(name),
            };
            if holders.is_empty() || columns.contains_key(name) {
                continue;
            }
            let mut column = vec![0.0; self.columns.len()];
            for (slot, count) in holders {
                column[*slot as usize] = match listed {
                    Listed::Blob => f64::from(*count),
                    Listed::Stack => 1.0,
                };
            }
            columns.insert(name.clone(), column);
        }
    }

    /// Returns a column that [`View::count`] made; none means 0 everywhere.
    pub(super) fn counted(&self, listed: Listed, name: &str) -> Option<&[f64]> {
        self.counts[listed as usize].get(name).map(Vec::as_slice)
    }

    /// Returns the cell with this batch's debits, as far as an objective can see it.
    pub(super) fn as_it_is(&self, slot: u32, objective: &Objective, request: &Request) -> Cell {
        let (cell, row) = (self.cell(slot), self.session.row(slot));
        // not a copy of the cell: its lists of apps and tags may be long, and an objective reads little of them
        let mut seen = Cell::new("", cell.total.clone());
        seen.available.memory_mb = row.free[Resource::Memory];
        let disk_mb = |_| row.free[Resource::Disk];
        seen.available.disk_mb = cell.available.disk_mb.map(disk_mb);
        if !objective.program().resources().is_empty() {
            let free = self.session.free(slot);
            seen.available.cpu_millis = row.free[Resource::Cpu];
            let containers = |_| row.free[Resource::Containers];
            seen.available.containers = cell.available.containers.map(containers);
            seen.available.extra = free.extra.into_owned();
            seen.available.devices = free.devices.into_owned();
        }
        seen.attributes = Arc::clone(&cell.attributes);
        for app in objective.counted_apps(request) {
            let count = count_at(self.app(app), slot);
            if count > 0 {
                seen.counts.apps.insert(app.to_owned(), count);
            }
        }
        seen
    }

    /// Takes the job's resources from the cell, and returns the devices that it gets.
    pub(super) fn debit(
        &mut self,
        slot: u32,
        job: &Job,
        group: JobGroup,
    ) -> Option<Box<DeviceShares>> {
        let at = slot as usize;
        let request = &*job.request;
        let columns = &mut *self.columns;
        let zone = columns.zone(slot).filter(|_| columns.counted[at]);
        self.session.debit(slot, zone, request, group);
        columns.write_row(slot, *self.session.row(slot));
        columns.known.forget(slot);
        columns.instances[at] += 1;
        if request.cpu_millis > 0 {
            columns.capped[at] += 1;
        } else {
            columns.uncapped[at] += 1;
        }
        if let Some(owner) = &request.owner {
            self.owners.add(owner.clone(), slot, &columns.owners);
        }
        for (key, value) in &request.tags {
            self.tags.add(format!("{key}={value}"), slot, &columns.tags);
        }
        self.session.take_devices(slot, request)
    }
}
