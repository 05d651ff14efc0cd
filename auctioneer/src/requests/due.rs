//! What ends by time: deadlines of replies, and queue timeouts.

use std::{collections::BTreeSet, sync::Arc};

use super::Requests;
use crate::{
    ids::TicketId,
    ticket::{Done, Slot, State, because},
    turn::Turn,
};

impl Requests {
    /// Handles the deadlines and queue timeouts that have passed.
    pub(crate) fn due(&mut self, turn: &mut Turn) {
        // before the deadlines, whose replies include what is given up here
        while let Some(key) = pop_due(&mut self.queue_ends, turn.now_ms) {
            self.give_up_all(turn, key, |instance| match &instance.state {
                State::Held(why) => Some(Arc::clone(why)),
                _ => None,
            });
        }
        while let Some(key) = pop_due(&mut self.deadlines, turn.now_ms) {
            let Some(ticket) = self.tickets.get(&key) else {
                continue;
            };
            // a longer queue timeout continues after the reply, which reports what waits as queued
            if ticket.queue_end_ms <= turn.now_ms {
                self.give_up_all(turn, key, |instance| match &instance.state {
                    State::Waiting => {
                        Some(because("its deadline passed before it was sent to a cell"))
                    }
                    // deferred work only: the queue timeouts of work that waits for room were handled above
                    State::Held(why) => Some(Arc::clone(why)),
                    _ => None,
                });
            }
            self.end_unchecked(turn, key);
            if self.tickets.contains_key(&key) {
                self.reply(turn, key);
            }
        }
    }

    /// Ends instances whose deadline passed while the cells were still being asked whether they run already.
    fn end_unchecked(&mut self, turn: &mut Turn, key: TicketId) {
        let Some(ticket) = self.tickets.get(&key) else {
            return;
        };
        let why = if ticket.yielded {
            "another auctioneer owns this request; cells did not report its state in time"
        } else if ticket.located.is_none() {
            "cells did not report in time whether it runs already; not started elsewhere"
        } else {
            "cells did not report in time where the instances in near and far run"
        };
        for position in 0..ticket.instances.len() {
            let slot = Slot::new(key, position);
            if matches!(self.state(slot), Some(State::Checking)) {
                self.finish(turn, slot, Done::unknown(None, why));
            }
        }
    }

    /// Returns when [`Requests::due`] must be called next.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        let ends = [self.deadlines.first(), self.queue_ends.first()];
        ends.into_iter().flatten().map(|(at_ms, _)| *at_ms).min()
    }
}

fn pop_due(ends: &mut BTreeSet<(u64, TicketId)>, now_ms: u64) -> Option<TicketId> {
    let (_, key) = *ends.first().filter(|(at_ms, _)| *at_ms <= now_ms)?;
    ends.pop_first();
    Some(key)
}
