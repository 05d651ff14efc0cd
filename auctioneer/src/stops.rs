//! Stops: waiting work is cancelled here, running instances are stopped by their cells, and one answer reports both.

use std::{collections::BTreeSet, sync::Arc};

use placement::FastMap;
use shared::{
    VERSION,
    wire::{Stop, StopAnswer, StopOutcome, StopReply, Stopped, WireError, code, to_bytes},
};

use crate::{
    ids::{ReplyKey, StopId},
    io::AuctioneerOutput,
    parts::Parts,
    turn::Turn,
};

/// How long to wait for the cells' answers.
const STOP_WAIT_MS: u64 = 1_000;
/// The most stopped instances listed in an answer.
const LISTED: usize = 1_000;
/// The most stops in progress.
const MAX_STOPS: usize = 1_000;

/// The stops in progress.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    open: FastMap<StopId, Stopping>,
    next: u64,
}

/// A stop that waits for the cells' answers.
#[derive(Debug)]
struct Stopping {
    reply: Option<ReplyKey>,
    app: String,
    missing: BTreeSet<Arc<str>>,
    stopped: Vec<Stopped>,
    count: usize,
    cancelled: usize,
    until_ms: u64,
}

impl Stops {
    pub(crate) fn begin(&mut self, parts: &mut Parts, stop: Stop, reply: Option<ReplyKey>) {
        if self.open.len() >= MAX_STOPS {
            parts.turn.counters.overloaded += 1;
            let message = format!("{MAX_STOPS} stops are in progress already");
            let error = WireError::new(code::OVERLOADED, message);
            return parts.turn.reply(reply, Err(error));
        }
        // first, because an instance sent after the cells were asked would keep running
        let cancelled = parts.requests.cancel(&mut parts.turn, &stop);
        self.next += 1;
        let id = StopId::new(self.next);
        // sent even if the pool is empty: there may be a cell that has not advertised yet
        parts.turn.out.push(AuctioneerOutput::StopCells {
            stop: id,
            body: to_bytes(&stop),
        });
        let cells = parts.feed.cells();
        let stopping = Stopping {
            reply,
            app: stop.app,
            missing: cells.map(|(name, _)| Arc::clone(name)).collect(),
            stopped: Vec::new(),
            count: 0,
            cancelled,
            until_ms: parts.turn.now_ms + STOP_WAIT_MS,
        };
        self.open.insert(id, stopping);
    }

    pub(crate) fn answered(&mut self, turn: &mut Turn, id: StopId, answer: StopAnswer) {
        let Some(stopping) = self.open.get_mut(&id) else {
            turn.counters.stray_answers += u64::from(id != StopId::NOBODYS);
            return;
        };
        // a cell that joined since may answer as well: what it stopped counts, though nobody waited for it
        stopping.missing.remove(answer.cell.as_str());
        stopping.count += answer.stopped.len();
        let room = LISTED.saturating_sub(stopping.stopped.len());
        let listed = answer.stopped.into_iter().take(room);
        stopping.stopped.extend(listed.map(|stopped| Stopped {
            cell: Some(answer.cell.clone()),
            ..stopped
        }));
    }

    /// Answers the stops that every cell has answered or whose time is over.
    pub(crate) fn end_due(&mut self, turn: &mut Turn) {
        let over = self
            .open
            .iter()
            .filter(|(_, s)| s.missing.is_empty() || s.until_ms <= turn.now_ms);
        let mut over: Vec<StopId> = over.map(|(id, _)| *id).collect();
        // a hash map has no order, and the same seed must give the same outputs
        over.sort_unstable();
        for id in over {
            if let Some(stopping) = self.open.remove(&id) {
                let to = stopping.reply;
                turn.reply(to, Ok(to_bytes(&stopping.answer(turn.max_payload))));
            }
        }
    }

    /// Handles the loss of a cell, which will not answer any more.
    pub(crate) fn cell_gone(&mut self, cell: &Arc<str>) {
        for stopping in self.open.values_mut() {
            stopping.missing.remove(cell);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns when the next stop is answered without waiting for all cells.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.open.values().map(|stopping| stopping.until_ms).min()
    }
}

impl Stopping {
    fn answer(self, max_bytes: usize) -> StopReply {
        let silent: Vec<String> = self.missing.iter().map(ToString::to_string).collect();
        let (outcome, message) = match (silent.len(), self.count + self.cancelled) {
            (0, 0) => (StopOutcome::None, Some("none found".to_owned())),
            (0, _) => (StopOutcome::Stopped, None),
            (n, _) => {
                let (cells, they) = if n == 1 {
                    ("cell", "it")
                } else {
                    ("cells", "they")
                };
                let message =
                    format!("{n} {cells} did not answer: {they} may still run some of it");
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
            // halved: `count` still says how many there were
            reply.stopped.truncate(reply.stopped.len() / 2);
            reply.silent.truncate(reply.silent.len() / 2);
        }
        reply
    }
}
