//! Aggregated messages: those of cells without news. See [`crate::world`].

use std::{collections::BTreeSet, sync::Arc};

use auctioneer::{AuctioneerInput, ECHO_MS, sim::SimulatedInput};
use shared::AuctionId;

use super::{AGGREGATED_MS, HEARTBEAT_MS, WARM_UP_US, World, messages::ToNode, traffic::Kind};
use crate::{random::Distribution, scenario::Scenario};

/// How often a real manager hears itself, in milliseconds: this is what is counted.
const REAL_ECHO_MS: u64 = 100;

impl World<'_> {
    /// Returns the cells whose present state the auctioneer has and that will report nothing new before `before_us`;
    /// then the other cells; then the names of those others that it knows.
    fn idle(&self, n: usize, before_us: u64) -> (Vec<usize>, Vec<usize>, BTreeSet<Arc<str>>) {
        let (mut idle, mut others, mut except) = (Vec::new(), Vec::new(), BTreeSet::new());
        let Some(machine) = &self.nodes[n].machine else {
            return (idle, (0..self.cells.len()).collect(), except);
        };
        // both are sorted by name
        let mut known = machine.feed().cells().peekable();
        for (c, cell) in self.cells.iter().enumerate() {
            let same = known.next_if(|(name, _)| ***name == *cell.name);
            let Some((name, word)) = same else {
                others.push(c);
                continue;
            };
            let still = cell.is_there()
                && cell.machine().is_advertised()
                && word.seq == cell.ledger().seq()
                && word.incarnation == cell.ledger().incarnation()
                && word.debits.is_empty()
                && cell.coming == 0
                && cell.tick_us > before_us;
            if still {
                idle.push(c);
            } else {
                others.push(c);
                except.insert(Arc::clone(name));
            }
        }
        (idle, others, except)
    }

    /// Aggregates the bids without news: the auctioneer gets one input at the time at which the last of them would
    /// arrive. Returns the cells whose bids are to be simulated.
    pub(super) fn aggregate_bids(
        &mut self,
        n: usize,
        auction: AuctionId,
        request_bytes: u64,
    ) -> Vec<usize> {
        let network = self.scenario.network;
        if self.settings.verbatim || network.loss > 0.0 || self.away > 0 {
            return (0..self.cells.len()).collect();
        }
        // longer latencies are so rare that a change almost never happens during one, and a bid already in transit is
        // "unchanged" anyway
        let longest = match network.latency {
            Distribution::Constant(at) => at,
            Distribution::Uniform(_, high) => high,
            other => other.mean() * 30,
        };
        let longest_us = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX / 4);
        let before_us = self.now_us + 2 * longest_us + 1;
        let (idle, others, except) = self.idle(n, before_us);
        if idle.is_empty() {
            return others;
        }
        let (mut last_us, mut bytes) = (self.now_us, 0);
        for &c in &idle {
            let asked_us = self.now_us + network.latency.sample_us(&mut self.random);
            let said_us = asked_us + network.latency.sample_us(&mut self.random);
            last_us = last_us.max(said_us);
            bytes += self.cells[c].unchanged_bytes(asked_us / 1_000);
        }
        let count = idle.len() as u64;
        self.counts
            .delivered(Kind::BidRequest, count, count * request_bytes);
        self.counts.sent(Kind::Bid, count);
        let auction = Some(auction);
        let what = ToNode::Input(AuctioneerInput::Simulated(SimulatedInput::Unchanged {
            auction,
            except,
        }));
        self.fly_to_node(last_us, n, Kind::Bid, count, bytes, what);
        others
    }

    /// In aggregated mode, lets idle cells advertise before anything happens to the auctioneer, so that no lease
    /// expires that would not have expired.
    pub(super) fn renew_if_aggregated(&mut self, n: usize) {
        let now_ms = self.now_ms();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // some seconds
        let interval_ms = self.scenario.cadence.mean_interval_ms() as u64;
        let due = now_ms >= self.nodes[n].renewed_ms + interval_ms;
        if !self.aggregated || !due || self.now_us < WARM_UP_US || self.away > 0 {
            return;
        }
        self.nodes[n].renewed_ms = now_ms;
        let (_, _, except) = self.idle(n, 0);
        if let Some(machine) = &mut self.nodes[n].machine {
            let auction = None;
            machine.take(
                now_ms,
                AuctioneerInput::Simulated(SimulatedInput::Unchanged { auction, except }),
            );
        }
    }

    /// Counts the advertisements of a cell since `since_ms` that were not simulated.
    pub(super) fn count_silence(&mut self, c: usize, since_ms: u64) {
        if !self.aggregated || self.now_us < WARM_UP_US || !self.cells[c].is_there() {
            return;
        }
        let silent_ms = self.now_ms().saturating_sub(since_ms);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // below 2^50
        let count = (silent_ms as f64 / self.scenario.cadence.mean_interval_ms()) as u64;
        let receivers = self.nodes.len() as u64;
        let bytes = count * receivers * self.cells[c].advert_bytes;
        self.counts.sent(Kind::Advertisement, count);
        self.counts
            .delivered(Kind::Advertisement, count * receivers, bytes);
    }

    /// Counts what was aggregated up to the end of the run.
    pub(super) fn count_rest(&mut self) {
        for c in 0..self.cells.len() {
            if self.cells[c].down == 0 {
                self.count_silence(c, self.cells[c].advertised_ms);
            }
        }
        let passed_ms = self.now_ms().saturating_sub(WARM_UP_US / 1_000);
        let now_ms = self.now_ms();
        let down_ms: u64 = self
            .down_since
            .values()
            .map(|since_ms| now_ms - since_ms)
            .sum();
        let up_ms = (passed_ms * self.cells.len() as u64).saturating_sub(self.down_ms + down_ms);
        if self.managers.is_empty() {
            self.counts.sent(Kind::Heartbeat, up_ms / HEARTBEAT_MS);
        }
        let echoes = passed_ms / REAL_ECHO_MS * self.managers.len() as u64;
        self.counts.sent(Kind::Echo, echoes);
        self.counts.delivered(Kind::Echo, echoes, 0);
        if self.aggregated {
            let echoes = passed_ms / ECHO_MS * self.nodes.len() as u64;
            self.counts.sent(Kind::Echo, echoes);
            self.counts.delivered(Kind::Echo, echoes, 0);
        }
    }
}

/// Returns whether to use aggregated mode. If only the next advertisement shows a change, or if there are managers,
/// every advertisement must be simulated.
pub(super) fn is_aggregated(scenario: &Scenario, last_ms: u64) -> bool {
    last_ms > AGGREGATED_MS && scenario.cadence.advertises_changes() && scenario.managers == 0
}
