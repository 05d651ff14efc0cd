//! When an auction begins, and for which bids it waits.

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
/// A policy that asks nobody would hold an auction for every message under load, each with a start
/// for hardly more than one instance a cell. So while starts of an earlier auction are on their way,
/// work gathers for so long. A start on an idle cluster never waits.
pub const GATHER_MS: u64 = 20;

/// The auction that waits for bids, or for more work.
#[derive(Debug, Default)]
pub(crate) struct Bidding {
    asking: Option<Asking>,
    /// Until when work gathers for the next auction, see [`GATHER_MS`].
    gather_until_ms: Option<u64>,
}

/// An auction that waits for bids.
#[derive(Debug)]
struct Asking {
    auction: AuctionId,
    missing: BTreeSet<Arc<str>>,
    answered: FastSet<Arc<str>>,
    /// Beside those, all but these, see [`SimulatedInput::Unchanged`](crate::sim::SimulatedInput).
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
    /// Begins an auction when there is work, and ends it when the bids are in.
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

    /// Whether the next auction may begin: it gathers work while starts are on their way.
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
            // when all were silent it may have been us: then everybody is waited for again
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
        // a state was asked for because the bid said "unchanged" of a report we missed
        let bid = auction == Some(asking.auction) || kind == ReportKind::State;
        if bid && asking.answered.insert(Arc::clone(cell)) {
            asking.missing.remove(cell);
            parts.feed.bid_in_time(cell);
        }
    }

    /// Every known cell but these bid that its state did not change.
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

    /// The cell will not bid any more.
    pub(crate) fn cell_gone(&mut self, cell: &Arc<str>) {
        if let Some(asking) = &mut self.asking {
            asking.missing.remove(cell);
            asking.answered.remove(cell);
        }
    }

    /// When the auction that is due, of the work that waits for one, is held at the latest.
    pub(crate) fn next_ms(&self, work: bool) -> Option<u64> {
        match &self.asking {
            Some(asking) => Some(asking.until_ms),
            None => work.then_some(self.gather_until_ms.unwrap_or(0)),
        }
    }
}

impl Asking {
    /// Remembers who missed the deadline, and returns all who did not bid.
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
