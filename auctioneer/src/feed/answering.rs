//! Which cells answer, and which are asked for their state.

use std::{collections::BTreeSet, sync::Arc};

use shared::wire::Envelope;

use super::{Feed, Received, ReportKind};
use crate::counters::Counters;

/// The interval between questions to a cell of which changes are advertised that cannot be used, in milliseconds.
const ASK_STATE_MS: u64 = 1_000;
/// The interval between questions to cells for which there is no room, in milliseconds.
const ASK_NEWCOMER_MS: u64 = 10;

impl Feed {
    /// Handles a change of a version that is not known here: the cell is asked for its state.
    pub(super) fn missed(
        &mut self,
        now_ms: u64,
        kind: ReportKind,
        envelope: &Envelope,
    ) -> Received {
        let known = self.cells.get_mut(&envelope.cell);
        let asks = match known {
            // a bid is wanted now, and only those that were asked bid
            _ if kind == ReportKind::Bid => true,
            Some(known) if now_ms >= known.ask_state_ms => {
                known.ask_state_ms = now_ms + ASK_STATE_MS;
                true
            }
            // a cell that nobody knows may not exist; if it does, it soon advertises everything
            _ => false,
        };
        Received {
            ask_state: asks.then(|| envelope.cell.as_str().into()),
            ..Received::default()
        }
    }

    /// Handles a cell for which there is no room. From time to time such a cell is asked a question: if it answers, a
    /// cell that never has makes room for it.
    pub(super) fn no_room(
        &mut self,
        now_ms: u64,
        kind: ReportKind,
        envelope: &Envelope,
        counters: &mut Counters,
    ) -> Received {
        counters.dropped_pool_full += 1;
        let asks = kind == ReportKind::Advert
            && !self.unproven.is_empty()
            && now_ms >= self.ask_newcomer_ms;
        if asks {
            self.ask_newcomer_ms = now_ms + ASK_NEWCOMER_MS;
        }
        Received {
            ask_state: asks.then(|| envelope.cell.as_str().into()),
            ..Received::default()
        }
    }

    /// Sends nothing to the cell until it advertises again, or one interval of its advertisements has passed.
    pub fn absent(&mut self, cell: &str, now_ms: u64) {
        if let Some((name, known)) = self.cells.named_mut(cell) {
            self.unreachable.insert(name);
            // an interval is a third of the ttl by default, and half of it at most
            known.absent_until_ms = now_ms + known.ttl_ms / 3;
        }
    }

    /// Returns the cells to which nothing is sent now.
    pub fn unreachable(&mut self, now_ms: u64) -> BTreeSet<Arc<str>> {
        let cells = &self.cells;
        let still = |name: &Arc<str>| cells.get(name).is_some_and(|k| k.absent_until_ms > now_ms);
        self.unreachable.retain(still);
        self.unreachable.clone()
    }

    /// Records that the cell has answered a question. That proves that it exists; an advertisement alone can be made
    /// up.
    pub(crate) fn has_answered(&mut self, cell: &str) {
        self.unproven.remove(cell);
    }

    /// Records that the cell missed a bid deadline.
    pub fn missed_bid(&mut self, cell: &str, counters: &mut Counters) {
        if let Some(known) = self.cells.get_mut(cell) {
            known.silent = true;
            counters.missed_bids += 1;
        }
    }

    /// Records that the cell bid in time.
    pub fn bid_in_time(&mut self, cell: &str) {
        if let Some(known) = self.cells.get_mut(cell) {
            known.silent = false;
        }
    }
}
