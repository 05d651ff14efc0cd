//! Cells that cost exactly the same, and which of them a job's lot selects.

use std::collections::BTreeSet;

use crate::tie;

/// Below this size, looking at each cell is faster than keeping them sorted.
const SMALL: usize = 48;
/// After this many looks at a large bucket within one auction, it is sorted by lot.
const LOOKS: u32 = 6;

/// Cells of one class that cost exactly the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Bucket {
    /// Name hash and slot.
    cells: Vec<(u64, u32)>,
    /// The same cells by lot, once that pays off.
    sorted: Option<Box<Sorted>>,
    looks: u32,
}

#[derive(Clone, Debug)]
struct Sorted {
    lots: tie::Lots,
    set: BTreeSet<(tie::Lot, u32)>,
}

impl Bucket {
    /// Adds a cell; returns its position.
    pub(super) fn push(&mut self, slot: u32, hash: u64) -> u32 {
        self.cells.push((hash, slot));
        if let Some(sorted) = &mut self.sorted {
            sorted.set.insert((sorted.lots.of_cell(hash), slot));
        }
        // a bucket holds at most as many cells as there are slots
        u32::try_from(self.cells.len() - 1).unwrap_or(u32::MAX)
    }

    /// Removes the cell at a position; returns the slot that takes this position.
    pub(super) fn swap_remove(&mut self, spot: u32) -> Option<u32> {
        let (hash, slot) = self.cells.swap_remove(spot as usize);
        if let Some(sorted) = &mut self.sorted {
            sorted.set.remove(&(sorted.lots.of_cell(hash), slot));
        }
        self.cells.get(spot as usize).map(|(_, slot)| *slot)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        self.cells.iter().map(|(_, slot)| *slot)
    }

    pub(super) fn any(&self, wanted: &dyn Fn(u32) -> bool) -> bool {
        self.slots().any(wanted)
    }

    /// Returns the distance and slot of the wanted cell whose lot comes first after the point.
    pub(super) fn nearest(
        &mut self,
        lots: tie::Lots,
        point: tie::Point,
        wanted: &dyn Fn(u32) -> bool,
    ) -> Option<(u64, u32)> {
        if self.cells.len() > SMALL {
            if self
                .sorted
                .as_ref()
                .is_some_and(|sorted| sorted.lots != lots)
            {
                // lots belong to one auction: the next one draws others
                self.sorted = None;
                self.looks = 0;
            }
            self.looks += 1;
            if self.looks > LOOKS && self.sorted.is_none() {
                let lot = |(hash, slot): &(u64, u32)| (lots.of_cell(*hash), *slot);
                let set = self.cells.iter().map(lot).collect();
                self.sorted = Some(Box::new(Sorted { lots, set }));
            }
        }
        match &self.sorted {
            Some(sorted) if sorted.lots == lots => {
                let free = |(_, slot): &&(tie::Lot, u32)| wanted(*slot);
                let first = (point.first_lot(), 0);
                let after = sorted.set.range(first..).find(free);
                // wraps around the circle: rarely needed
                let found = after.or_else(|| sorted.set.range(..first).find(free));
                found.map(|(lot, slot)| (tie::distance(*lot, point), *slot))
            }
            _ => {
                let (mut best, mut least) = (None, u64::MAX);
                for (hash, slot) in &self.cells {
                    let distance = tie::distance(lots.of_cell(*hash), point);
                    // nearly every cell is further away than the best, which this check alone shows: in a large bucket
                    // it saves a third of the time
                    if distance > least {
                        continue;
                    }
                    let cell = (distance, *slot);
                    // whether it is wanted is far away in memory, so few are checked
                    if best.is_none_or(|best| cell < best) && wanted(*slot) {
                        (best, least) = (Some(cell), distance);
                    }
                }
                best
            }
        }
    }
}
