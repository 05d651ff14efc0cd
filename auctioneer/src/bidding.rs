//! Decides when an auction begins and which bids it waits for.

use std::{collections::BTreeSet, sync::Arc};

use placement::FastSet;

use crate::{
    auction::{self, Planned},
    feed::{Known, ReportKind},
    io::AuctioneerOutput,
    parts::Parts,
    requests::MAX_BATCH,
};
use shared::AuctionId;

/// How long an auction waits for bids, in milliseconds.
pub const BID_WAIT_MS: u64 = 300;
/// How long requests gather while starts of an earlier auction are in flight. Otherwise a policy without bids would,
/// under load, hold an auction for every message, each with starts of hardly more than one instance per cell. A start
/// on an idle cluster never waits.
pub const GATHER_MS: u64 = 20;

/// The auction that waits for bids or gathers requests.
#[derive(Debug, Default)]
pub(crate) struct Bidding {
    round: Option<BidRound>,
    /// Until when requests gather for the next auction; see [`GATHER_MS`].
    gather_until_ms: Option<u64>,
}

/// An auction that waits for bids.
#[derive(Debug)]
struct BidRound {
    auction: AuctionId,
    missing: FastSet<Arc<str>>,
    answered: FastSet<Arc<str>>,
    /// If set, every cell except these has answered, too; see
    /// [`SimulatedInput::Unchanged`](crate::sim::SimulatedInput).
    all_but: Option<BTreeSet<Arc<str>>>,
    until_ms: u64,
}

impl BidRound {
    fn answered_by(&self, cell: &Arc<str>) -> bool {
        let counted = self.all_but.as_ref();
        counted.is_some_and(|except| !except.contains(cell)) || self.answered.contains(cell)
    }
}

impl Bidding {
    /// Begins an auction if there is work, and decides it once the bids are in.
    pub(crate) fn hold_auction(&mut self, parts: &mut Parts) -> Option<Planned> {
        let work = parts.requests.for_auction() > 0;
        if self.round.is_none() && work && self.gathered(parts) {
            let auction = parts.new_auction_id();
            if !parts.settings.policy.wants_bids() {
                // nothing to wait for: the pool is as current as it can be
                return auction::decide(parts, auction, Vec::new());
            }
            self.ask(parts, auction);
        }
        let now_ms = parts.turn.now_ms;
        let over = |round: &mut BidRound| round.missing.is_empty() || now_ms >= round.until_ms;
        let round = self.round.take_if(over)?;
        let no_bid = round.end(parts);
        auction::decide(parts, round.auction, no_bid)
    }

    /// Returns whether the next auction may begin: requests gather while starts are in flight.
    fn gathered(&mut self, parts: &Parts) -> bool {
        let now_ms = parts.turn.now_ms;
        // a full batch gains nothing by waiting, and a shutdown has no time to wait
        let enough = parts.requests.is_closing() || parts.requests.for_auction() >= MAX_BATCH;
        if !parts.settings.policy.wants_bids() && !parts.dispatches.is_empty() && !enough {
            let until_ms = *self.gather_until_ms.get_or_insert(now_ms + GATHER_MS);
            if now_ms < until_ms {
                return false;
            }
        }
        self.gather_until_ms = None;
        true
    }

    fn ask(&mut self, parts: &mut Parts, auction: AuctionId) {
        let now_ms = parts.turn.now_ms;
        let present = |(_, known): &(&Arc<str>, &Known)| known.absent_until_ms <= now_ms;
        let live = parts.feed.cells_unordered().filter(present);
        let mut missing: FastSet<Arc<str>> = live
            .filter(|(_, known)| !known.silent)
            .map(|(name, _)| Arc::clone(name))
            .collect();
        if missing.is_empty() {
            // if all are silent, the fault may be ours: then all of them are waited for again
            let live = parts.feed.cells_unordered().filter(present);
            missing = live.map(|(name, _)| Arc::clone(name)).collect();
        }
        // with an empty pool the round ends at once, and the auction reports that there are no cells
        if !missing.is_empty() {
            parts.turn.out.push(AuctioneerOutput::AskBids { auction });
        }
        self.round = Some(BidRound {
            auction,
            missing,
            answered: FastSet::default(),
            all_but: None,
            until_ms: now_ms + BID_WAIT_MS,
        });
    }

    /// Handles a cell's report, which may be its bid.
    pub(crate) fn reported(
        &mut self,
        parts: &mut Parts,
        cell: &Arc<str>,
        auction: Option<AuctionId>,
        kind: ReportKind,
    ) {
        let Some(round) = &mut self.round else {
            return;
        };
        // a state counts as a bid: it was asked for because the bid was "unchanged" since a report that we missed
        let bid = auction == Some(round.auction) || kind == ReportKind::State;
        if bid && round.answered.insert(Arc::clone(cell)) {
            round.missing.remove(cell);
            parts.feed.bid_in_time(cell);
        }
    }

    /// Records that every known cell except these bids "unchanged".
    pub(crate) fn unchanged(&mut self, auction: Option<AuctionId>, except: BTreeSet<Arc<str>>) {
        let round = self.round.as_mut();
        if let Some(round) = round.filter(|round| auction == Some(round.auction)) {
            if except.is_empty() {
                round.missing.clear();
            }
            round.missing.retain(|cell| except.contains(cell));
            round.all_but = Some(except);
        }
    }

    /// Handles the loss of a cell, which will not bid in this auction.
    pub(crate) fn cell_gone(&mut self, cell: &Arc<str>) {
        if let Some(round) = &mut self.round {
            round.missing.remove(cell);
            // the number of answers is compared with the pool, which the cell has left
            round.answered.remove(cell);
        }
    }

    /// Returns the latest time at which the auction of the work that waits now is held.
    pub(crate) fn next_ms(&self, work: bool) -> Option<u64> {
        match &self.round {
            Some(round) => Some(round.until_ms),
            None => work.then_some(self.gather_until_ms.unwrap_or(0)),
        }
    }
}

impl BidRound {
    /// Marks the cells that missed the deadline as silent, and returns all that did not bid.
    fn end(&self, parts: &mut Parts) -> Vec<Arc<str>> {
        for cell in &self.missing {
            parts.feed.missed_bid(cell, &mut parts.turn.counters);
        }
        // usually all have bid, which is found without looking at each name
        if self.answered.len() >= parts.feed.pool().len() {
            return Vec::new();
        }
        let names = parts.feed.cells_unordered().map(|(name, _)| name);
        let silent = names.filter(|name| !self.answered_by(name));
        silent.map(Arc::clone).collect()
    }
}
