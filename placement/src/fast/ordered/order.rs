//! The order itself: keys, one list of buckets for each class, and the cost by the plain formula.

use std::collections::{BTreeMap, btree_map::Entry};

use super::bucket::Bucket;
use crate::{
    fast::{classes::Class, recipe::Part, rows::Row},
    request::Request,
    resources::{Amounts, Resource, used_after},
};

/// Everything that the cost of a cell depends on, the approximate cost first. Cells with one key
/// cost the same, to the last bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) base: u64,
    /// But for cpu, which no cost looks at: always [`Amounts::UNLIMITED`].
    pub(super) free: Amounts,
    pub(super) starting: u32,
    pub(super) tasks: u32,
    pub(super) place: u32,
}

/// A float as an integer of the same order.
pub(super) fn ordered_bits(x: f64) -> u64 {
    let bits = (x + 0.0).to_bits();
    if bits >> 63 == 1 {
        !bits
    } else {
        bits | 1 << 63
    }
}

pub(super) fn from_ordered_bits(bits: u64) -> f64 {
    f64::from_bits(if bits >> 63 == 1 {
        bits & !(1 << 63)
    } else {
        !bits
    })
}

impl Key {
    pub(super) fn row(&self) -> Row {
        Row {
            free: self.free,
            starting: self.starting,
            tasks: self.tasks,
        }
    }
}

/// The cells in order of their cost for one kind of job.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) terms: Vec<(Part, f64)>,
    /// By class.
    pub(super) lists: Vec<List>,
    /// By slot: its position in its bucket, or [`NO_POSITION`].
    pub(super) positions: Vec<u32>,
    /// Slots whose row changed since they were put in order, and the row that they were put there by.
    pub(super) dirty: Vec<(u32, Row)>,
    /// By slot: where it stands in `dirty`.
    pub(super) dirty_at: Vec<u32>,
}

/// Not in any bucket.
pub(super) const NO_POSITION: u32 = u32::MAX;

/// One class's cells in order, apart by how much memory is free: a cell without room for a job is
/// mostly not even met.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    /// By [`tier`].
    pub(super) tiers: Vec<Tier>,
}

/// Cells with so much free memory, within a factor of two.
#[derive(Clone, Debug)]
pub(super) struct Tier {
    pub(super) buckets: BTreeMap<Key, Bucket>,
    /// The lowest approximate cost.
    pub(super) lowest: f64,
}

impl Default for Tier {
    fn default() -> Self {
        Self {
            buckets: BTreeMap::new(),
            lowest: f64::INFINITY,
        }
    }
}

/// 0 for no free memory, else one more than its base-2 logarithm.
pub(super) fn tier(memory: i64) -> usize {
    (i64::BITS - memory.max(0).leading_zeros()) as usize
}

impl List {
    /// The bucket of a key, if any cell is in it.
    pub(super) fn bucket(&self, key: &Key) -> Option<&Bucket> {
        self.tiers
            .get(tier(key.free[Resource::Memory]))
            .and_then(|tier| tier.buckets.get(key))
    }

    pub(super) fn bucket_mut(&mut self, key: &Key) -> Option<&mut Bucket> {
        self.tiers
            .get_mut(tier(key.free[Resource::Memory]))
            .and_then(|tier| tier.buckets.get_mut(key))
    }
}

impl Order {
    /// The slot's row changed; `before` is how it was.
    pub(super) fn mark_dirty(&mut self, slot: u32, before: Row) {
        let at = slot as usize;
        if self.dirty_at.len() <= at {
            self.dirty_at.resize(at + 1, NO_POSITION);
        }
        if self.dirty_at[at] == NO_POSITION {
            // as many as slots, which are counted in u32
            self.dirty_at[at] = u32::try_from(self.dirty.len()).unwrap_or(NO_POSITION);
            self.dirty.push((slot, before));
        }
    }

    /// Moves the cell from where `before` put it to where `row` does.
    pub(super) fn move_cell(
        &mut self,
        (slot, hash): (u32, u64),
        class_id: u32,
        class: &Class,
        place: u32,
        (before, row): (Row, Row),
    ) {
        let at = slot as usize;
        if self.positions.len() <= at {
            self.positions.resize(at + 1, NO_POSITION);
        }
        if self.positions[at] != NO_POSITION && before == row {
            return;
        }
        self.take_out(slot, class_id, class, place, before);
        let Some(key) = self.key(class, &row, place) else {
            return;
        };
        if self.lists.len() <= class_id as usize {
            self.lists.resize_with(class_id as usize + 1, List::default);
        }
        let tiers = &mut self.lists[class_id as usize].tiers;
        let at_tier = tier(row.free[Resource::Memory]);
        if tiers.len() <= at_tier {
            tiers.resize_with(at_tier + 1, Tier::default);
        }
        let tier = &mut tiers[at_tier];
        tier.lowest = tier.lowest.min(from_ordered_bits(key.base));
        let spot = tier.buckets.entry(key).or_default().push(slot, hash);
        self.positions[at] = spot;
    }

    /// The row that the slot stands in the order by, when `row` is how it is now.
    pub(super) fn row_in_order(&self, slot: u32, row: Row) -> Row {
        let at = self.dirty_at.get(slot as usize).copied();
        let found = self.dirty.get(at.unwrap_or(NO_POSITION) as usize);
        found.map_or(row, |(_, before)| *before)
    }

    /// Takes the cell from where `row` put it.
    pub(super) fn take_out(
        &mut self,
        slot: u32,
        class_id: u32,
        class: &Class,
        place: u32,
        row: Row,
    ) {
        let spot = match self.positions.get_mut(slot as usize) {
            Some(position) => std::mem::replace(position, NO_POSITION),
            None => NO_POSITION,
        };
        if spot == NO_POSITION {
            return;
        }
        let Some(key) = self.key(class, &row, place) else {
            return;
        };
        let list = &mut self.lists[class_id as usize].tiers[tier(row.free[Resource::Memory])];
        let Entry::Occupied(mut bucket) = list.buckets.entry(key) else {
            return;
        };
        if let Some(moved) = bucket.get_mut().swap_remove(spot) {
            self.positions[moved as usize] = spot;
        }
        if bucket.get().is_empty() {
            bucket.remove();
            if from_ordered_bits(key.base) <= list.lowest {
                let first = list.buckets.first_key_value();
                list.lowest = first.map_or(f64::INFINITY, |(key, _)| from_ordered_bits(key.base));
            }
        }
    }

    /// None where the cost is not a number: such a cell never wins.
    pub(super) fn key(&self, class: &Class, row: &Row, place: u32) -> Option<Key> {
        let mut free = row.free;
        free[Resource::Cpu] = Amounts::UNLIMITED;
        let mut key = Key {
            base: 0,
            free,
            starting: 0,
            tasks: 0,
            place: 0,
        };
        let mut base = 0.0;
        for (part, weight) in &self.terms {
            base += weight
                * match part {
                    Part::Resources => used_after(&row.free, &Amounts::default(), &class.total),
                    Part::Starting => {
                        key.starting = row.starting;
                        f64::from(row.starting)
                    }
                    Part::AppInstances => continue,
                    Part::Tasks => {
                        key.tasks = row.tasks;
                        f64::from(row.tasks)
                    }
                    Part::Place if *weight == 0.0 => continue,
                    Part::Place => {
                        key.place = place;
                        f64::from(place)
                    }
                };
        }
        key.base = ordered_bits(base);
        base.is_finite().then_some(key)
    }

    /// The job's part of the cost in a class.
    pub(super) fn part(&self, class: &Class, request: &Request) -> f64 {
        // what the job adds to an empty cell is what it adds to any
        let resources = used_after(&class.total, &request.amounts(), &class.total);
        let weights = self
            .terms
            .iter()
            .filter(|(part, _)| *part == Part::Resources);
        weights.map(|(_, weight)| weight * resources).sum()
    }

    /// The cost by the plain formula, term by term.
    pub(super) fn cost(
        &self,
        class: &Class,
        row: &Row,
        place: u32,
        count: u32,
        request: &Request,
    ) -> f64 {
        let wanted = request.amounts();
        let mut sum = 0.0;
        for (part, weight) in &self.terms {
            let value = match part {
                Part::Resources => used_after(&row.free, &wanted, &class.total),
                Part::Starting => f64::from(row.starting),
                Part::AppInstances => f64::from(count),
                Part::Tasks => f64::from(row.tasks),
                Part::Place => f64::from(place),
            };
            sum += value * weight;
        }
        sum
    }
}
