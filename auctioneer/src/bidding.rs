//! When an auction begins, and which bids it waits for.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    auction,
    fast_map::FastSet,
    feed::{Known, ReportKind},
    io::AuctioneerOutput,
    parts::Parts,
    requests::MAX_BATCH,
};
use shared::AuctionId;

/// How long an auction waits for bids, milliseconds.
pub const BID_WAIT_MS: u64 = 300;
/// Under load, a policy without bids would hold an auction for every message, each with a start of
/// hardly more than one instance per cell. So while starts of an earlier auction are in flight,
/// requests gather for this long. A start on an idle cluster never waits.
pub const GATHER_MS: u64 = 20;

/// The auction that waits for bids or gathers requests.
#[derive(Debug, Default)]
pub(crate) struct Bidding {
    asking: Option<Asking>,
    /// Until when requests gather for the next auction, see [`GATHER_MS`].
    gather_until_ms: Option<u64>,
}

/// An auction that waits for bids.
#[derive(Debug)]
struct Asking {
    auction: AuctionId,
    missing: BTreeSet<Arc<str>>,
    answered: FastSet<Arc<str>>,
    /// In addition to those, all except these, see
    /// [`SimulatedInput::Unchanged`](crate::sim::SimulatedInput).
    all_but: Option<BTreeSet<Arc<str>>>,
    until_ms: u64,
}

impl Asking {
    fn answered_by(&self, cell: &Arc<str>) -> bool {
        let counted = self.all_but.as_ref();
        counted.is_some_and(|except| !except.contains(cell)) || self.answered.contains(cell)
    }
}

impl Bidding {
    /// Begins an auction if there is work, and holds it when the bids are in.
    pub(crate) fn hold_auction(&mut self, parts: &mut Parts) {
        let work = parts.requests.for_auction() > 0;
        if self.asking.is_none() && work && self.gathered(parts) {
            let auction = parts.new_auction_id();
            if !parts.settings.policy.wants_bids() {
                return auction::decide(parts, auction, Vec::new());
            }
            self.ask(parts, auction);
        }
        let now_ms = parts.turn.now_ms;
        let over = |asking: &mut Asking| asking.missing.is_empty() || now_ms >= asking.until_ms;
        if let Some(asking) = self.asking.take_if(over) {
            let no_bid = asking.end(parts);
            auction::decide(parts, asking.auction, no_bid);
        }
    }

    /// Whether the next auction may begin: requests gather while starts are in flight.
    fn gathered(&mut self, parts: &Parts) -> bool {
        let now_ms = parts.turn.now_ms;
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
        let live = parts.feed.cells().filter(present);
        let mut missing: BTreeSet<Arc<str>> = live
            .filter(|(_, known)| !known.silent)
            .map(|(name, _)| Arc::clone(name))
            .collect();
        if missing.is_empty() {
            // if all are silent the fault may be ours: then all are waited for again
            let live = parts.feed.cells().filter(present);
            missing = live.map(|(name, _)| Arc::clone(name)).collect();
        }
        if !missing.is_empty() {
            parts.turn.out.push(AuctioneerOutput::AskBids { auction });
        }
        self.asking = Some(Asking {
            auction,
            missing,
            answered: FastSet::default(),
            all_but: None,
            until_ms: now_ms + BID_WAIT_MS,
        });
    }

    /// A cell reported; that may be its bid.
    pub(crate) fn reported(
        &mut self,
        parts: &mut Parts,
        cell: &Arc<str>,
        auction: Option<AuctionId>,
        kind: ReportKind,
    ) {
        let Some(asking) = &mut self.asking else {
            return;
        };
        // its state was asked for because its bid was "unchanged" since a report we missed
        let bid = auction == Some(asking.auction) || kind == ReportKind::State;
        if bid && asking.answered.insert(Arc::clone(cell)) {
            asking.missing.remove(cell);
            parts.feed.bid_in_time(cell);
        }
    }

    /// Every known cell except these bid "unchanged".
    pub(crate) fn unchanged(&mut self, auction: Option<AuctionId>, except: BTreeSet<Arc<str>>) {
        let asking = self.asking.as_mut();
        if let Some(asking) = asking.filter(|asking| auction == Some(asking.auction)) {
            if except.is_empty() {
                asking.missing.clear();
            }
            asking.missing.retain(|cell| except.contains(cell));
            asking.all_but = Some(except);
        }
    }

    /// The cell will not bid in this auction.
    pub(crate) fn cell_gone(&mut self, cell: &Arc<str>) {
        if let Some(asking) = &mut self.asking {
            asking.missing.remove(cell);
            asking.answered.remove(cell);
        }
    }

    /// When the auction of the work that now waits is held at the latest.
    pub(crate) fn next_ms(&self, work: bool) -> Option<u64> {
        match &self.asking {
            Some(asking) => Some(asking.until_ms),
            None => work.then_some(self.gather_until_ms.unwrap_or(0)),
        }
    }
}

impl Asking {
    /// Marks the cells that missed the deadline as silent, and returns all that did not bid.
    fn end(&self, parts: &mut Parts) -> Vec<Arc<str>> {
        for cell in &self.missing {
            parts.feed.missed_bid(cell, &mut parts.turn.counters);
        }
        if self.answered.len() >= parts.feed.pool().len() {
            return Vec::new();
        }
        let names = parts.feed.cells().map(|(name, _)| name);
        let silent = names.filter(|name| !self.answered_by(name));
        silent.map(Arc::clone).collect()
    }
}
