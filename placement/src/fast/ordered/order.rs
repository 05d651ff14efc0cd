//! The order itself: keys, a list of buckets per class, and the cost by the plain formula.

use std::collections::{BTreeMap, btree_map::Entry};

use super::bucket::Bucket;
use crate::{
    fast::{classes::Class, recipe::Part, rows::Row},
    request::Request,
    resources::{Amounts, Resource, used_after},
};

/// Everything that the cost of a cell depends on, the approximate cost first. Cells with the same key cost the same, to
/// the last bit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) base: u64,
    // separate fields, and without cpu, which no cost uses: keys are compared all the time, and comparing an array is a
    // loop
    pub(super) memory: i64,
    pub(super) disk: i64,
    pub(super) containers: i64,
    pub(super) starting: u32,
    pub(super) tasks: u32,
    pub(super) place: u32,
}

/// Converts a float to an integer of the same order.
pub(super) fn ordered_bits(x: f64) -> u64 {
    // plus 0.0: gives -0.0, which is equal to 0.0 but has other bits, the same key
    let bits = (x + 0.0).to_bits();
    if bits >> 63 == 1 {
        // for negative floats, greater bits mean a lower number
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
    /// Returns a row with this key. Its cpu is unlimited: a cell's own is checked where it matters.
    pub(super) fn row(&self) -> Row {
        let free = |resource| match resource {
            Resource::Memory => self.memory,
            Resource::Disk => self.disk,
            Resource::Containers => self.containers,
            Resource::Cpu => Amounts::UNLIMITED,
        };
        Row {
            free: Amounts::from_fn(free),
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
    /// By slot: the key of its bucket, as long as it has a position there.
    pub(super) keys: Vec<Key>,
    /// By slot: its position in its bucket, or [`NO_POSITION`].
    pub(super) positions: Vec<u32>,
    /// Slots whose row changed since they were put in order.
    pub(super) dirty: Vec<u32>,
    pub(super) is_dirty: Vec<bool>,
}

/// The position of a slot that is not in any bucket.
pub(super) const NO_POSITION: u32 = u32::MAX;

/// The cells of one class in order, separated by free memory, so that most cells without room for a job are never
/// visited.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    /// By [`tier`].
    pub(super) tiers: Vec<Tier>,
}

/// Cells whose free memory is within the same factor of two.
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

/// Returns 0 for no free memory, else one more than its base-2 logarithm.
pub(super) fn tier(memory: i64) -> usize {
    (i64::BITS - memory.max(0).leading_zeros()) as usize
}

impl List {
    /// Returns the bucket of a key, if any cell is in it.
    pub(super) fn bucket(&self, key: &Key) -> Option<&Bucket> {
        self.tiers
            .get(tier(key.memory))
            .and_then(|tier| tier.buckets.get(key))
    }

    pub(super) fn bucket_mut(&mut self, key: &Key) -> Option<&mut Bucket> {
        self.tiers
            .get_mut(tier(key.memory))
            .and_then(|tier| tier.buckets.get_mut(key))
    }
}

impl Order {
    /// Marks a slot whose row has changed.
    pub(super) fn mark_dirty(&mut self, slot: u32) {
        let at = slot as usize;
        if self.is_dirty.len() <= at {
            self.is_dirty.resize(at + 1, false);
        }
        if !std::mem::replace(&mut self.is_dirty[at], true) {
            self.dirty.push(slot);
        }
    }

    /// Moves the cell to where `row` puts it.
    pub(super) fn move_cell(
        &mut self,
        (slot, hash): (u32, u64),
        class_id: u32,
        class: &Class,
        place: u32,
        row: &Row,
    ) {
        let at = slot as usize;
        if self.positions.len() <= at {
            self.positions.resize(at + 1, NO_POSITION);
            self.keys.resize(at + 1, Key::default());
        }
        // most advertisements repeat what is known, and cpu is not part of the key
        let key = self.key(class, row, place);
        if self.positions[at] != NO_POSITION && key == Some(self.keys[at]) {
            return;
        }
        self.take_out(slot, class_id);
        let Some(key) = key else {
            return;
        };
        if self.lists.len() <= class_id as usize {
            self.lists.resize_with(class_id as usize + 1, List::default);
        }
        let tiers = &mut self.lists[class_id as usize].tiers;
        let at_tier = tier(key.memory);
        if tiers.len() <= at_tier {
            tiers.resize_with(at_tier + 1, Tier::default);
        }
        let tier = &mut tiers[at_tier];
        tier.lowest = tier.lowest.min(from_ordered_bits(key.base));
        let spot = tier.buckets.entry(key).or_default().push(slot, hash);
        self.positions[at] = spot;
        self.keys[at] = key;
    }

    /// Takes the cell out of its bucket, if it is in one.
    pub(super) fn take_out(&mut self, slot: u32, class_id: u32) {
        let at = slot as usize;
        let spot = match self.positions.get_mut(at) {
            Some(position) => std::mem::replace(position, NO_POSITION),
            None => NO_POSITION,
        };
        if spot == NO_POSITION {
            return;
        }
        // the key under which it was inserted: its row has changed since
        let key = self.keys[at];
        let list = &mut self.lists[class_id as usize].tiers[tier(key.memory)];
        let Entry::Occupied(mut bucket) = list.buckets.entry(key) else {
            return;
        };
        // the last one of the bucket fills the gap
        if let Some(moved) = bucket.get_mut().swap_remove(spot) {
            self.positions[moved as usize] = spot;
        }
        if bucket.get().is_empty() {
            bucket.remove();
            // stored next to the map: the search reads it for every tier, but few of the maps
            if from_ordered_bits(key.base) <= list.lowest {
                let first = list.buckets.first_key_value();
                list.lowest = first.map_or(f64::INFINITY, |(key, _)| from_ordered_bits(key.base));
            }
        }
    }

    /// Returns the key; none if the cost is not a number, because such a cell never wins.
    pub(super) fn key(&self, class: &Class, row: &Row, place: u32) -> Option<Key> {
        let mut key = Key {
            memory: row.free[Resource::Memory],
            disk: row.free[Resource::Disk],
            containers: row.free[Resource::Containers],
            ..Key::default()
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
                    // the few holders are evaluated one by one
                    Part::AppInstances => continue,
                    Part::Tasks => {
                        key.tasks = row.tasks;
                        f64::from(row.tasks)
                    }
                    // cells that only differ in what has no weight share a bucket
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

    /// Returns the job's part of the cost in a class.
    pub(super) fn part(&self, class: &Class, request: &Request) -> f64 {
        // what the job adds to an empty cell is what it adds to any cell
        let resources = used_after(&class.total, &request.amounts(), &class.total);
        let weights = self
            .terms
            .iter()
            .filter(|(part, _)| *part == Part::Resources);
        weights.map(|(_, weight)| weight * resources).sum()
    }

    /// Returns the cost by the plain formula, term by term.
    pub(super) fn cost(
        &self,
        class: &Class,
        row: &Row,
        place: u32,
        count: u32,
        wanted: &Amounts,
    ) -> f64 {
        let mut sum = 0.0;
        for (part, weight) in &self.terms {
            let cost = match part {
                Part::Resources => used_after(&row.free, wanted, &class.total),
                Part::Starting => f64::from(row.starting),
                Part::AppInstances => f64::from(count),
                Part::Tasks => f64::from(row.tasks),
                Part::Place => f64::from(place),
            };
            sum += cost * weight;
        }
        sum
    }
}
