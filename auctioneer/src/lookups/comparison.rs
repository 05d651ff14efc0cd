//! Compares the instance lists of all cells. An instance that two cells list runs twice: this happens when a lost cell
//! comes back after its work was started elsewhere. No auctioneer needs to have seen or to remember that: each compares
//! when it starts or may have missed something, when a cell joins, and every five minutes.

use std::{collections::BTreeSet, sync::Arc};

use placement::FastMap;
use shared::{
    VERSION,
    wire::{Instances, InstancesAnswer, to_bytes},
};

use crate::{ids::LookupId, io::AuctioneerOutput, parts::Parts};

/// How long comparisons are repeated after one was requested. A start that is still in flight by then is refused as
/// stale.
pub(super) const COMPARED_MS: u64 = 8_000;
/// The shortest pause between two comparisons.
const AGAIN_MS: u64 = 1_000;
/// The interval grows by a millisecond for this many cells if that exceeds [`AGAIN_MS`], because every cell answers
/// each time.
const CELLS_PER_MS: u64 = 5;
/// The first comparison after a cell has joined follows the last one by at least the interval divided by this, so that
/// cells that join in quick succession are compared together.
const SOONER: u64 = 10;
/// How often the interval doubles while cells do not answer or duplicates do not end.
const MAX_DOUBLINGS: u32 = 6;
/// The interval after that, for losses that no auctioneer has seen.
const REGULARLY_MS: u64 = 300_000;
/// The most ids that are compared.
const MAX_COMPARED: usize = 2_000_000;

/// Which cells list what, during a comparison.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    asked_ms: u64,
    next_ms: Option<u64>,
    until_ms: u64,
    /// How often it was repeated after `until_ms`.
    doublings: u32,
    /// Whether the comparison is complete and nothing is compared until the next one.
    rests: bool,
    /// Cells that have not answered yet.
    missing: BTreeSet<Arc<str>>,
    /// Prefixes of ids, with the first cell that listed each.
    listed: FastMap<u64, Arc<str>>,
    /// Prefixes that another cell has listed, too, and which are still to be asked for.
    suspects: BTreeSet<u64>,
    /// Whether there were any suspects since the cells were asked.
    suspected: bool,
}

impl Comparison {
    /// Begins a series of comparisons.
    pub(super) fn begin(&mut self, parts: &Parts) {
        let now_ms = parts.turn.now_ms;
        self.until_ms = now_ms + COMPARED_MS;
        let soon_ms = self.asked_ms + again_ms(parts) / SOONER;
        let next_ms = self.next_ms.unwrap_or(u64::MAX);
        self.next_ms = Some(next_ms.min(soon_ms.max(now_ms)));
    }

    /// Asks every cell what it runs, if that is due.
    pub(super) fn run(&mut self, parts: &mut Parts) {
        let now_ms = parts.turn.now_ms;
        if self.next_ms.is_none_or(|at_ms| at_ms > now_ms) {
            return;
        }
        let over = now_ms >= self.until_ms;
        if over && self.missing.is_empty() && !self.suspected && !self.rests {
            *self = Self {
                next_ms: Some(self.asked_ms + REGULARLY_MS),
                rests: true,
                ..Self::default()
            };
            return;
        }
        self.rests = false;
        self.doublings = if over { self.doublings + 1 } else { 0 };
        let pause_ms = again_ms(parts) << self.doublings.min(MAX_DOUBLINGS);
        self.next_ms = Some(now_ms + pause_ms);
        self.asked_ms = now_ms;
        let cells = parts.feed.cells();
        self.missing = cells.map(|(name, _)| Arc::clone(name)).collect();
        self.listed.clear();
        self.suspected = false;
        parts.turn.counters.comparisons += 1;
        parts.turn.out.push(AuctioneerOutput::AskInstances {
            lookup: LookupId::COMPARISON,
            body: to_bytes(&Instances {
                v: VERSION,
                ids_only: true,
                ..Instances::default()
            }),
        });
    }

    /// Handles a cell's list of what it runs, also of a cell that is not in the pool yet.
    pub(super) fn answered(&mut self, parts: &mut Parts, answer: &InstancesAnswer) {
        if self.next_ms.is_none() || self.rests {
            parts.turn.counters.stray_answers += 1;
            return;
        }
        if !answer.more {
            self.missing.remove(answer.cell.as_str());
        }
        let cell: Arc<str> = answer.cell.as_str().into();
        for id in answer.ids.numbers() {
            match self.listed.get(id) {
                Some(first) if *first != cell => _ = self.suspects.insert(*id),
                Some(_) => {}
                None if self.listed.len() < MAX_COMPARED => {
                    self.listed.insert(*id, Arc::clone(&cell));
                }
                None => parts.turn.counters.dropped_ids += 1,
            }
        }
        self.suspected |= !self.suspects.is_empty();
    }

    /// Removes and returns up to `most` prefixes that seem to run twice; the caller asks for them.
    pub(super) fn take_suspects(&mut self, most: usize) -> BTreeSet<u64> {
        let mut taken = std::mem::take(&mut self.suspects);
        if let Some(first_left) = taken.iter().nth(most).copied() {
            self.suspects = taken.split_off(&first_left);
        }
        taken
    }

    /// Returns whether something seems to run twice and has not been asked for yet.
    pub(super) fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// Handles the loss of a cell, which will not answer any more.
    pub(super) fn cell_gone(&mut self, cell: &str) {
        self.missing.remove(cell);
    }

    /// Returns when [`Comparison::run`] has something to do.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.next_ms
    }
}

/// Returns the interval between two questions.
fn again_ms(parts: &Parts) -> u64 {
    AGAIN_MS.max(parts.feed.pool().len() as u64 / CELLS_PER_MS)
}
