//! Ratings that a plan keeps from job to job: a debit changes those of one cell.

use std::ops::Range;

use super::key::Names;
use crate::{
    fast::columns::{Columns, NOBODY},
    fast_map::{FastMap, FastSet},
    stages::score,
};

/// Cells in a block.
const BLOCK: usize = 64;
/// The most ratings that are kept: 32 MiB.
const MAX_RATINGS: usize = 4 << 20;
/// The most keys that are remembered as asked for once.
const MAX_ASKED: usize = 4096;
/// Not in this plan.
const NO_SEAT: u32 = u32::MAX;

/// What jobs that share ratings have in common: the shape, and what their objective reads besides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) shape: u32,
    pub(super) objective: Vec<u64>,
}

/// All ratings of a plan.
#[derive(Default)]
pub(super) struct Kept {
    /// Made when the first ratings are kept.
    pub(super) layout: Layout,
    numbers: FastMap<Key, usize>,
    pub(super) boards: Vec<Ratings>,
    asked_once: FastSet<Key>,
    pub(super) names: Names,
    /// The key of the last job.
    pub(super) key: Key,
    /// The slots of the cells that were debited.
    pub(super) changes: Vec<u32>,
}

/// Where each cell stands: cells of one zone side by side, in blocks of one zone.
#[derive(Default)]
pub(super) struct Layout {
    /// By seat.
    pub(super) slots: Vec<u32>,
    /// By slot: its seat and its block.
    places: Vec<(u32, u32)>,
    /// By block: its seats.
    pub(super) blocks: Vec<Range<usize>>,
    /// By zone: its blocks.
    pub(super) zones: Vec<Range<usize>>,
}

/// The ratings of all cells for the jobs of one key.
pub(super) struct Ratings {
    /// How many changes they know of.
    pub(super) seen: usize,
    /// By seat: the rating, with the sign reversed where the lowest wins; -∞ of cells that a filter drops, or
    /// that have no rating.
    pub(super) signed: Vec<f64>,
    /// By seat: whether the filters keep the cell.
    alive: Vec<bool>,
    /// By zone: how many cells the filters keep.
    pub(super) alive_in: Vec<u32>,
    /// By block: the best rating, or -∞.
    best: Vec<f64>,
}

impl Kept {
    pub(super) fn changed(&mut self, slot: u32) {
        if !self.boards.is_empty() {
            self.changes.push(slot);
        }
    }

    /// The number of the key's ratings, which may still have to be made; none for a key that is asked for the first
    /// time: most work that comes once does not come again.
    pub(super) fn find(&mut self, key: &Key, columns: &Columns) -> Option<usize> {
        if let Some(number) = self.numbers.get(key) {
            return Some(*number);
        }
        if !self.asked_once.contains(key) {
            if self.asked_once.len() >= MAX_ASKED {
                self.asked_once.clear();
            }
            self.asked_once.insert(key.clone());
            return None;
        }
        if self.layout.places.is_empty() {
            self.layout = Layout::of(columns);
        }
        // all of them: which are asked for again is not known
        if (self.boards.len() + 1) * columns.len() > MAX_RATINGS {
            self.numbers.clear();
            self.boards.clear();
            self.changes.clear();
        }
        self.numbers.insert(key.clone(), self.boards.len());
        self.boards.push(Ratings::new(&self.layout));
        Some(self.boards.len() - 1)
    }

    /// The cells that changed since the ratings were brought up to date, ascending; none = all may have.
    pub(super) fn news(&self, number: usize) -> Option<Vec<u32>> {
        let seen = self.boards[number].seen;
        let news = self.changes.get(seen..)?;
        if 2 * news.len() > self.layout.slots.len() {
            return None;
        }
        let mut news = news.to_vec();
        news.sort_unstable();
        news.dedup();
        Some(news)
    }

    /// Takes in what the stages say of the cells `asked` (none = all): those `alive` have these totals.
    pub(super) fn write(
        &mut self,
        number: usize,
        asked: Option<&[u32]>,
        alive: &[u32],
        totals: &[f64],
        sign: f64,
    ) {
        let (layout, ratings) = (&self.layout, &mut self.boards[number]);
        let mut rated = alive.iter().zip(totals).peekable();
        if let Some(asked) = asked {
            for slot in asked {
                // both ascend
                let total = rated.next_if(|(alive, _)| *alive == slot);
                ratings.change(layout, *slot, total.map(|(_, total)| sign * total));
            }
        } else {
            *ratings = Ratings::new(layout);
            for (slot, total) in rated {
                ratings.fill(layout, *slot, sign * total);
            }
            for block in 0..layout.blocks.len() {
                ratings.find_best(layout, block);
            }
        }
        ratings.seen = self.changes.len();
    }
}

impl Layout {
    fn of(columns: &Columns) -> Self {
        let mut slots_of: Vec<Vec<u32>> = vec![Vec::new(); columns.zones()];
        for (slot, class_slot) in (0..).zip(&columns.class_slots) {
            if *class_slot != NOBODY
                && let Some(zone) = columns.zone(slot)
            {
                slots_of[zone as usize].push(slot);
            }
        }
        let mut layout = Self {
            places: vec![(NO_SEAT, 0); columns.len()],
            ..Self::default()
        };
        for slots in slots_of {
            let first = layout.blocks.len();
            for block in slots.chunks(BLOCK) {
                let start = layout.slots.len();
                let number = u32::try_from(layout.blocks.len()).unwrap_or(u32::MAX);
                for (seat, slot) in (start..).zip(block) {
                    layout.slots.push(*slot);
                    let seat = u32::try_from(seat).unwrap_or(NO_SEAT);
                    layout.places[*slot as usize] = (seat, number);
                }
                layout.blocks.push(start..layout.slots.len());
            }
            layout.zones.push(first..layout.blocks.len());
        }
        layout
    }

    pub(super) fn seat(&self, slot: u32) -> Option<usize> {
        let (seat, _) = self.places[slot as usize];
        (seat != NO_SEAT).then_some(seat as usize)
    }

    pub(super) fn block(&self, slot: u32) -> usize {
        self.places[slot as usize].1 as usize
    }

    fn zone_of_block(&self, block: usize) -> usize {
        // zones without cells have no blocks, and begin where the next does
        self.zones.partition_point(|blocks| blocks.end <= block)
    }
}

impl Ratings {
    fn new(layout: &Layout) -> Self {
        Self {
            seen: usize::MAX,
            signed: vec![f64::NEG_INFINITY; layout.slots.len()],
            alive: vec![false; layout.slots.len()],
            alive_in: vec![0; layout.zones.len()],
            best: vec![f64::NEG_INFINITY; layout.blocks.len()],
        }
    }

    /// The first rating of a cell that the filters keep.
    fn fill(&mut self, layout: &Layout, slot: u32, rating: f64) {
        if let Some(seat) = layout.seat(slot) {
            self.alive[seat] = true;
            self.alive_in[layout.zone_of_block(layout.block(slot))] += 1;
            self.signed[seat] = finite(rating);
        }
    }

    /// The cell's rating is this now; none = the filters drop it.
    fn change(&mut self, layout: &Layout, slot: u32, rating: Option<f64>) {
        let Some(seat) = layout.seat(slot) else {
            return;
        };
        let was = std::mem::replace(&mut self.alive[seat], rating.is_some());
        if was != rating.is_some() {
            let zone = layout.zone_of_block(layout.block(slot));
            self.alive_in[zone] = if was {
                self.alive_in[zone] - 1
            } else {
                self.alive_in[zone] + 1
            };
        }
        let rating = rating.map_or(f64::NEG_INFINITY, finite);
        self.set(layout, seat, layout.block(slot), rating);
    }

    /// Replaces the rating at a seat, and returns what it was.
    pub(super) fn set(&mut self, layout: &Layout, seat: usize, block: usize, rating: f64) -> f64 {
        let old = std::mem::replace(&mut self.signed[seat], rating);
        let best = self.best[block];
        if rating >= best {
            self.best[block] = rating;
        } else if old >= best {
            self.find_best(layout, block);
        }
        old
    }

    fn find_best(&mut self, layout: &Layout, block: usize) {
        self.best[block] = highest(&self.signed[layout.blocks[block].clone()]);
    }

    /// The best rating in these blocks; -∞ if there is none.
    pub(super) fn best_of(&self, blocks: &[Range<usize>]) -> f64 {
        let bests = blocks.iter().map(|zone| highest(&self.best[zone.clone()]));
        bests.fold(f64::NEG_INFINITY, f64::max)
    }

    /// Calls `found` with each cell in these blocks that has this rating.
    pub(super) fn tied(
        &self,
        layout: &Layout,
        blocks: &[Range<usize>],
        best: f64,
        mut found: impl FnMut(u32, f64),
    ) {
        for zone in blocks {
            let bests = zone.clone().zip(&self.best[zone.clone()]);
            for (block, _) in bests.filter(|(_, of_block)| score::ties(**of_block, best)) {
                let seats = layout.blocks[block].clone();
                let slots = &layout.slots[seats.clone()];
                for (slot, rating) in slots.iter().zip(&self.signed[seats]) {
                    if score::ties(*rating, best) {
                        found(*slot, *rating);
                    }
                }
            }
        }
    }
}

/// A rating that is not finite disqualifies the cell.
fn finite(rating: f64) -> f64 {
    if rating.is_finite() {
        rating
    } else {
        f64::NEG_INFINITY
    }
}

/// The highest of the values, none of which is NaN: several at a time.
fn highest(values: &[f64]) -> f64 {
    let higher = |best: f64, value: f64| if value > best { value } else { best };
    let mut lanes = [f64::NEG_INFINITY; 8];
    let chunks = values.chunks_exact(lanes.len());
    let rest = chunks.remainder().iter().copied();
    let rest = rest.fold(f64::NEG_INFINITY, higher);
    for chunk in chunks {
        for (best, value) in lanes.iter_mut().zip(chunk) {
            *best = higher(*best, *value);
        }
    }
    lanes.into_iter().fold(rest, higher)
}
