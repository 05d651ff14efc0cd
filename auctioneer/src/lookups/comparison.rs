//! What the cells run is compared: an instance that two of them list runs twice. It happens when a cell was lost, what
//! it ran was started elsewhere, and it is back. Nobody needs to have seen that, or to remember it: an auctioneer
//! compares when it starts or may have missed something, when a cell joins, and every five minutes.

use std::{collections::BTreeSet, sync::Arc};

use placement::FastMap;
use shared::{
    VERSION,
    wire::{Instances, InstancesAnswer, to_bytes},
};

use crate::{ids::LookupId, io::AuctioneerOutput, parts::Parts};

/// So long the cells are compared again and again: a start that is on its way meanwhile is refused as stale
/// before that.
pub(super) const COMPARED_MS: u64 = 8_000;
/// The shortest pause between two comparisons.
const AGAIN_MS: u64 = 1_000;
/// With more cells than this for each millisecond of it the pause is longer, as every cell answers each time.
const CELLS_PER_MS: u64 = 5;
/// Cells that join soon after one another are compared together, so many times as often.
const SOONER: u64 = 10;
/// Where cells do not answer, or what runs twice does not end, the pause doubles so often.
const MAX_DOUBLINGS: u32 = 6;
/// After that it is done once in a while, for what no auctioneer has seen of a loss.
const REGULARLY_MS: u64 = 300_000;
/// The most ids that are compared.
const MAX_COMPARED: usize = 2_000_000;

/// What is listed by whom, while it is compared.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    asked_ms: u64,
    next_ms: Option<u64>,
    until_ms: u64,
    /// How often it was repeated after that.
    doublings: u32,
    /// All is compared, until it is done again.
    rests: bool,
    /// Who has not answered.
    missing: BTreeSet<Arc<str>>,
    /// The beginnings of ids, with the cell that has listed each first.
    listed: FastMap<u64, Arc<str>>,
    /// Those that another cell has listed, too, and which are to be asked for.
    suspects: BTreeSet<u64>,
    /// Whether there were any since the cells were asked.
    suspected: bool,
}

impl Comparison {
    /// The cells are to be compared from now on.
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
                asked_ms: self.asked_ms,
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

    /// What a cell runs. Also one that is not in the pool yet.
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

    /// At most so many of those that seem to run twice; they are asked for.
    pub(super) fn take_suspects(&mut self, most: usize) -> BTreeSet<u64> {
        let mut taken = std::mem::take(&mut self.suspects);
        if let Some(first_left) = taken.iter().nth(most).copied() {
            self.suspects = taken.split_off(&first_left);
        }
        taken
    }

    /// Whether something seems to run twice and was not asked for yet.
    pub(super) fn has_suspects(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// The cell answers no more.
    pub(super) fn cell_gone(&mut self, cell: &str) {
        self.missing.remove(cell);
    }

    /// When [`Comparison::run`] has something to do.
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.next_ms
    }
}

/// How long after a question the next one follows.
fn again_ms(parts: &Parts) -> u64 {
    AGAIN_MS.max(parts.feed.pool().len() as u64 / CELLS_PER_MS)
}
