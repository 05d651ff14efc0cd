//! A class's cells sorted by memory, in chunks, so that a cell moves without moving the rest.

use crate::{
    fast::rows::Row,
    resources::{Amounts, Resource},
    tie,
};

/// The length at which a chunk is split.
const CHUNK: usize = 128;

/// A cell in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) memory: i64,
    pub(super) slot: u32,
    /// The hash of the cell's name.
    pub(super) hash: u64,
    /// The disk, which cells with enough memory lack most often.
    pub(super) disk: i64,
}

impl Entry {
    fn key(&self) -> (i64, u32) {
        // the slot makes it unique, so that a cell can be found among its equals
        (self.memory, self.slot)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) cells: Vec<Entry>,
    /// The high half of each cell's lot, for the auction of the last [`Sorted::draw_lots`].
    pub(super) lots: Vec<u32>,
    /// A lower bound of the amounts of its cells, except memory; it may be too low.
    pub(super) least: Amounts,
}

/// Cells by memory, then slot.
#[derive(Clone, Debug, Default)]
pub(super) struct Sorted {
    pub(super) chunks: Vec<Chunk>,
    /// By chunk: how many cells precede it.
    starts: Vec<usize>,
    len: usize,
    auction: Option<tie::Lots>,
}

/// Returns the high half of a lot, a point or a distance.
#[allow(clippy::cast_possible_truncation)] // the high half fits
pub(super) fn high(lot: u64) -> u32 {
    (lot >> 32) as u32
}

/// A position between two cells.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) chunk: usize,
    pub(super) within: usize,
    /// How many cells precede it.
    pub(super) rank: usize,
}

/// The starting value of a minimum: everything unlimited.
pub(super) const PLENTY: Amounts = Amounts::all(Amounts::UNLIMITED);

/// Returns the lower of each amount, except memory, by which the cells are sorted.
pub(super) fn lower(a: Amounts, b: Amounts) -> Amounts {
    let mut lower = a.lower(b);
    lower[Resource::Memory] = Amounts::UNLIMITED;
    lower
}

impl Sorted {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn least_memory(&self) -> Option<i64> {
        self.chunks
            .first()
            .and_then(|chunk| chunk.cells.first())
            .map(|e| e.memory)
    }

    pub(super) fn most_memory(&self) -> Option<i64> {
        self.chunks
            .last()
            .and_then(|chunk| chunk.cells.last())
            .map(|e| e.memory)
    }

    /// Returns the spot before the first cell with at least this memory.
    pub(super) fn at_least(&self, memory: i64) -> Spot {
        self.seek((memory, 0))
    }

    fn seek(&self, key: (i64, u32)) -> Spot {
        // first the chunk by its last cell, then the place inside: two short searches
        let before = |chunk: &Chunk| chunk.cells.last().is_some_and(|e| e.key() < key);
        let chunk = self.chunks.partition_point(before);
        let within = self
            .chunks
            .get(chunk)
            .map_or(0, |chunk| chunk.cells.partition_point(|e| e.key() < key));
        Spot {
            chunk,
            within,
            rank: self
                .starts
                .get(chunk)
                .map_or(self.len, |start| start + within),
        }
    }

    pub(super) fn insert(&mut self, entry: Entry, row: Row) {
        let mut spot = self.seek(entry.key());
        if self.chunks.is_empty() {
            self.chunks.push(Chunk {
                cells: Vec::with_capacity(CHUNK),
                lots: Vec::with_capacity(CHUNK),
                least: PLENTY,
            });
            self.starts.push(0);
        }
        if spot.chunk == self.chunks.len() {
            // past the end: into the last chunk
            spot.chunk -= 1;
            spot.within = self.chunks[spot.chunk].cells.len();
        }
        let chunk = &mut self.chunks[spot.chunk];
        let lot = self
            .auction
            .map_or(0, |lots| high(lots.of_cell(entry.hash).0));
        chunk.cells.insert(spot.within, entry);
        chunk.lots.insert(spot.within, lot);
        // not raised when a cell leaves, which would need a look at all of them; `skip_misfits` recomputes it
        chunk.least = lower(chunk.least, row.free);
        self.len += 1;
        // there are few chunks, and ranks are read far more often than cells move
        for start in &mut self.starts[spot.chunk + 1..] {
            *start += 1;
        }
        if self.chunks[spot.chunk].cells.len() >= CHUNK {
            self.split(spot.chunk);
        }
    }

    fn split(&mut self, at: usize) {
        let chunk = &mut self.chunks[at];
        let mut cells = Vec::with_capacity(CHUNK);
        cells.extend(chunk.cells.drain(CHUNK / 2..));
        let mut lots = Vec::with_capacity(CHUNK);
        lots.extend(chunk.lots.drain(CHUNK / 2..));
        let upper = Chunk {
            cells,
            lots,
            least: chunk.least,
        };
        let start = self.starts[at] + chunk.cells.len();
        self.chunks.insert(at + 1, upper);
        self.starts.insert(at + 1, start);
    }

    pub(super) fn remove(&mut self, memory: i64, slot: u32) -> Option<Entry> {
        let spot = self.seek((memory, slot));
        let chunk = self.chunks.get_mut(spot.chunk)?;
        if chunk.cells.get(spot.within)?.slot != slot {
            return None;
        }
        let entry = chunk.cells.remove(spot.within);
        chunk.lots.remove(spot.within);
        // small chunks are not merged: a plan's debits are reverted, and the cells return
        let empty = chunk.cells.is_empty();
        self.len -= 1;
        for start in &mut self.starts[spot.chunk + 1..] {
            *start -= 1;
        }
        if empty {
            self.chunks.remove(spot.chunk);
            self.starts.remove(spot.chunk);
        }
        Some(entry)
    }

    /// Gives every cell its lot for this auction.
    pub(super) fn draw_lots(&mut self, lots: tie::Lots) {
        if self.auction == Some(lots) {
            return;
        }
        self.auction = Some(lots);
        for chunk in &mut self.chunks {
            chunk.lots.clear();
            chunk
                .lots
                .extend(chunk.cells.iter().map(|e| high(lots.of_cell(e.hash).0)));
        }
    }

    /// Returns the cells from a spot on with their lots, chunk by chunk.
    pub(super) fn from(&self, spot: Spot) -> impl Iterator<Item = (&[Entry], &[u32])> {
        let chunks = self.chunks.get(spot.chunk..).unwrap_or_default();
        chunks.iter().enumerate().map(move |(i, chunk)| {
            let skip = if i == 0 { spot.within } else { 0 };
            (&chunk.cells[skip..], &chunk.lots[skip..])
        })
    }
}
