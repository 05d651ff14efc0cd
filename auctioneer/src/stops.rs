//! Stopping an app or some of it: what waits is cancelled here, what runs is stopped by its cells,
//! and one answer tells of all.

use std::{collections::BTreeSet, sync::Arc};

use shared::{
    VERSION,
    wire::{Stop, StopAnswer, StopOutcome, StopReply, Stopped, WireError, code, to_bytes},
};

use crate::ids::ReplyKey;
use crate::{
    StopId,
    auction::Auctioneer,
    io::AuctioneerOutput,
    ticket::{State, because},
};

/// How long the cells' answers are awaited.
const STOP_WAIT_MS: u64 = 1_000;
/// Stopped instances listed in an answer.
const LISTED: usize = 1_000;
/// The most stops at a time.
const MAX_STOPS: usize = 1_000;

/// A stop that waits for the cells.
#[derive(Debug)]
pub(crate) struct Stopping {
    reply: Option<ReplyKey>,
    app: String,
    pub(crate) missing: BTreeSet<Arc<str>>,
    stopped: Vec<Stopped>,
    count: usize,
    cancelled: usize,
    pub(crate) until_ms: u64,
}

impl Auctioneer {
    pub(crate) fn stop(&mut self, now_ms: u64, stop: Stop, reply: Option<ReplyKey>) {
        if self.stops.len() >= MAX_STOPS {
            self.counters.overloaded += 1;
            if let Some(to) = reply {
                let message = format!("{MAX_STOPS} stops are under way already");
                let error = Box::new(WireError::new(code::OVERLOADED, message));
                self.out.push(AuctioneerOutput::ReplyError { to, error });
            }
            return;
        }
        let cancelled = self.cancel(now_ms, &stop);
        let query = self.key();
        // sent also when no cell is known: there may be one that we have not heard yet
        self.out.push(AuctioneerOutput::StopCells {
            stop: StopId::new(query),
            body: to_bytes(&stop),
        });
        let stopping = Stopping {
            reply,
            app: stop.app,
            missing: self
                .feed
                .cells()
                .map(|(name, _)| Arc::clone(name))
                .collect(),
            stopped: Vec::new(),
            count: 0,
            cancelled,
            until_ms: now_ms + STOP_WAIT_MS,
        };
        self.stops.insert(query, stopping);
    }

    /// What was not sent to a cell yet will not be.
    fn cancel(&mut self, now_ms: u64, stop: &Stop) -> usize {
        let of_app = self
            .tickets
            .iter()
            .filter(|(_, t)| t.request.app == stop.app);
        let mut keys: Vec<u64> = of_app.map(|(key, _)| *key).collect();
        keys.sort_unstable();
        let mut cancelled = 0;
        for key in keys {
            cancelled += self.give_up_all(now_ms, key, |i| {
                let unsent = matches!(i.state, State::Waiting | State::Held(_) | State::Checking);
                let meant = (stop.indices.is_empty() || stop.indices.contains(&i.index))
                    && (stop.instances.is_empty() || stop.instances.contains(&i.id));
                (unsent && meant).then(|| because("stopped before it was started"))
            });
        }
        cancelled
    }

    pub(crate) fn stopped(&mut self, query: u64, answer: StopAnswer) {
        let Some(stopping) = self.stops.get_mut(&query) else {
            self.counters.stray_answers += 1;
            return;
        };
        stopping.missing.remove(answer.cell.as_str());
        stopping.count += answer.stopped.len();
        let room = LISTED.saturating_sub(stopping.stopped.len());
        let told = answer
            .stopped
            .into_iter()
            .take(room)
            .map(|stopped| Stopped {
                cell: Some(answer.cell.clone()),
                ..stopped
            });
        stopping.stopped.extend(told);
    }

    /// Answers the stops that every cell has answered, or whose time is up.
    pub(crate) fn end_stops(&mut self, now_ms: u64) {
        let over = self
            .stops
            .iter()
            .filter(|(_, s)| s.missing.is_empty() || s.until_ms <= now_ms);
        let mut over: Vec<u64> = over.map(|(query, _)| *query).collect();
        over.sort_unstable();
        for query in over {
            if let Some(stopping) = self.stops.remove(&query)
                && let Some(to) = stopping.reply
            {
                let body = to_bytes(&stopping.answer(self.settings.max_payload));
                self.out.push(AuctioneerOutput::Reply { to, body });
            }
        }
    }
}

impl Stopping {
    fn answer(self, max_bytes: usize) -> StopReply {
        let silent: Vec<String> = self.missing.iter().map(ToString::to_string).collect();
        let (outcome, message) = match (silent.len(), self.count + self.cancelled) {
            (0, 0) => (StopOutcome::None, Some("none found".to_owned())),
            (0, _) => (StopOutcome::Stopped, None),
            (n, _) => {
                let message = format!("{n} cells did not answer: they may still run some of it");
                (StopOutcome::Partial, Some(message))
            }
        };
        let mut reply = StopReply {
            v: VERSION,
            app: self.app,
            outcome,
            count: self.count,
            stopped: self.stopped,
            cancelled: self.cancelled,
            silent,
            message,
        };
        while to_bytes(&reply).len() > max_bytes && reply.stopped.len() + reply.silent.len() > 0 {
            reply.stopped.truncate(reply.stopped.len() / 2);
            reply.silent.truncate(reply.silent.len() / 2);
        }
        reply
    }
}
