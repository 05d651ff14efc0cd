//! Start requests from admission to their answers: which are open, the state of each instance, and when replies are
//! sent.

mod due;
mod hand_over;
mod intake;
mod queue;
mod shares;

use std::{collections::BTreeSet, sync::Arc};

use placement::{FastMap, Unplaced};
use shared::wire::{Outcome, Stop, kind, to_bytes};

use crate::{
    grant::Standing,
    groups::Groups,
    ids::TicketId,
    io::AuctioneerOutput,
    other_answer::OtherAnswer,
    outcomes::{Ended, Outcomes, REMEMBER_MS},
    reply,
    report::{Line, Lines},
    ticket::{Answer, Done, Instance, Slot, State, Ticket, because},
    turn::Turn,
};
use shared::{AuctionId, RequestId};

pub(crate) use intake::Opened;
pub use intake::{DEFAULT_DEADLINE_MS, MAX_WAITING};
pub use queue::{MAX_AUCTIONS, MAX_BATCH, REQUEUE_MS};

/// All open requests.
#[derive(Debug)]
pub(crate) struct Requests {
    /// The auctioneer's name, for messages.
    auctioneer: String,
    tickets: FastMap<TicketId, Ticket>,
    by_id: FastMap<RequestId, TicketId>,
    groups: Groups,
    outcomes: Outcomes,
    queue: queue::Queue,
    shares: shares::Shares,
    max_queue_ms: u64,
    deadlines: BTreeSet<(u64, TicketId)>,
    queue_ends: BTreeSet<(u64, TicketId)>,
    /// Tickets that have ended since the last call of [`Requests::take_ended`].
    ended: Vec<TicketId>,
    closing: bool,
    /// Whether auctions may be held.
    standing: Standing,
    /// Whether incoming messages may have been sent long ago.
    stood_still: bool,
    next_ticket: u64,
    /// Until when an unknown id may belong to a request that was sent before we listened, or while we did not.
    unsure_until_ms: u64,
    /// See [`Requests::trust_ids`].
    trusting: bool,
}

impl Requests {
    pub(crate) fn new(auctioneer: String, max_queue_ms: u64) -> Self {
        Self {
            auctioneer,
            tickets: FastMap::default(),
            by_id: FastMap::default(),
            groups: Groups::default(),
            outcomes: Outcomes::default(),
            queue: queue::Queue::default(),
            shares: shares::Shares::default(),
            max_queue_ms,
            deadlines: BTreeSet::new(),
            queue_ends: BTreeSet::new(),
            ended: Vec::new(),
            closing: false,
            standing: Standing::Holds,
            stood_still: false,
            next_ticket: 0,
            unsure_until_ms: REMEMBER_MS,
            trusting: false,
        }
    }

    /// Trusts that every unknown id is new: nothing was requested before, and no message is missed.
    pub(crate) fn trust_ids(&mut self) {
        self.trusting = true;
        self.unsure_until_ms = 0;
    }

    /// See [`Requests::trust_ids`].
    pub(crate) fn trusts_ids(&self) -> bool {
        self.trusting
    }

    /// Handles possibly missed messages: unknown ids may be repeats, and so may the work that waits here. Returns the
    /// requests to look for again.
    pub(crate) fn missed(&mut self, now_ms: u64) -> Vec<TicketId> {
        if self.trusting {
            return Vec::new();
        }
        // outcomes are remembered for this long; after that the other auctioneers do not know the id either
        self.unsure_until_ms = now_ms + REMEMBER_MS;
        self.outcomes.missed();
        // nobody else knows an id that was generated here, and requests that gave way are looked for anyway
        let keys = self.keys(|ticket| ticket.given && !ticket.yielded);
        self.check_again(&keys)
    }

    /// Holds back what was not sent yet of these requests until it has been looked for. Returns the requests that have
    /// any.
    pub(crate) fn check_again(&mut self, keys: &[TicketId]) -> Vec<TicketId> {
        let waits = |i: &Instance| matches!(i.state, State::Waiting | State::Held(_));
        let mut again = Vec::new();
        for key in keys {
            let Some(ticket) = self.tickets.get(key) else {
                continue;
            };
            let all = ticket.instances.iter().enumerate();
            let unsent: Vec<usize> = all.filter(|(_, i)| waits(i)).map(|(n, _)| n).collect();
            for position in &unsent {
                self.set_state(Slot::new(*key, *position), State::Checking);
            }
            if !unsent.is_empty() {
                again.push(*key);
            }
        }
        if !again.is_empty() {
            let tickets = &self.tickets;
            self.queue.forget_moved(|slot| {
                let ticket = tickets.get(&slot.ticket);
                ticket.is_some_and(|ticket| waits(&ticket.instances[slot.position]))
            });
        }
        again
    }

    /// Gives way to another auctioneer's claim: nothing more of these requests is sent from here.
    pub(crate) fn give_way(&mut self, keys: &[TicketId]) {
        for key in keys {
            if let Some(ticket) = self.tickets.get_mut(key) {
                ticket.yielded = true;
                ticket.claim = None;
            }
        }
        // what was not sent yet is held back; what was sent is looked for on the cells
        self.check_again(keys);
    }

    pub(crate) fn get(&self, key: TicketId) -> Option<&Ticket> {
        self.tickets.get(&key)
    }

    /// Returns a ticket; only [`Requests`] changes the states of its instances.
    pub(crate) fn get_mut(&mut self, key: TicketId) -> Option<&mut Ticket> {
        self.tickets.get_mut(&key)
    }

    /// Returns the open request with this id.
    pub(crate) fn by_id(&self, id: &RequestId) -> Option<TicketId> {
        self.by_id.get(id).copied()
    }

    pub(crate) fn tickets(&self) -> impl Iterator<Item = &Ticket> {
        self.tickets.values()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// Returns how many messages have no reply yet.
    #[cfg(test)]
    pub(crate) fn unanswered_messages(&self) -> usize {
        self.groups.count()
    }

    /// Sets whether incoming messages may have been sent long ago; while they may, no stored request is begun.
    pub(crate) fn stood_still(&mut self, still: bool) {
        self.stood_still = still;
    }

    /// Returns whether new requests are rejected.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing
    }

    /// Rejects new requests from now on, and gives up queued work.
    pub(crate) fn close(&mut self, turn: &mut Turn) {
        self.closing = true;
        for key in self.keys(|_| true) {
            self.give_up_all(turn, key, |instance| {
                // what was sent may still be accepted, and what waits enters the next auction
                let held = matches!(instance.state, State::Held(_));
                held.then(|| because("the auctioneer is shutting down"))
            });
        }
    }

    /// Cancels the instances that match the stop and have not been sent to a cell. Returns their number.
    pub(crate) fn cancel(&mut self, turn: &mut Turn, stop: &Stop) -> usize {
        let mut cancelled = 0;
        for key in self.keys(|ticket| ticket.request.app == stop.app) {
            cancelled += self.give_up_all(turn, key, |i| {
                // instances that are being looked for may run already: a cell that has one gets the same stop
                let unsent = matches!(i.state, State::Waiting | State::Held(_) | State::Checking);
                let meant = (stop.indices.is_empty() || stop.indices.contains(&i.index))
                    && (stop.instances.is_empty() || stop.instances.contains(&i.id));
                (unsent && meant).then(|| because("stopped before it was started"))
            });
        }
        cancelled
    }

    /// Returns the matching keys in order of arrival, so that the same seed gives the same run.
    fn keys(&self, which: impl Fn(&Ticket) -> bool) -> Vec<TicketId> {
        let tickets = self.tickets.iter().filter(|(_, ticket)| which(ticket));
        let mut keys: Vec<TicketId> = tickets.map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys
    }

    /// Returns the state of an instance; none if its request has ended.
    pub(crate) fn state(&self, slot: Slot) -> Option<&State> {
        let ticket = self.tickets.get(&slot.ticket)?;
        Some(&ticket.instances[slot.position].state)
    }

    /// Changes the state of an instance, and updates the counts of waiting ones.
    fn set_state(&mut self, slot: Slot, state: State) {
        if let Some(ticket) = self.tickets.get_mut(&slot.ticket) {
            let old = &mut ticket.instances[slot.position].state;
            self.queue.moved(old, &state);
            *old = state;
        }
    }

    /// Records that the instance is sent to a cell.
    pub(crate) fn sent(&mut self, slot: Slot) {
        if let Some(ticket) = self.tickets.get_mut(&slot.ticket) {
            ticket.instances[slot.position].sent = true;
        }
        self.set_state(slot, State::Sent);
    }

    /// Makes the instance share the outcome of `first`, which is the same instance in another request.
    pub(crate) fn share(&mut self, slot: Slot, first: Slot) {
        if let Some(ticket) = self.tickets.get_mut(&first.ticket) {
            ticket.instances[first.position].sharers.push(slot);
            self.set_state(slot, State::Shares(None));
        }
    }

    pub(crate) fn app_of(&self, slot: Slot) -> Option<Arc<str>> {
        let ticket = self.tickets.get(&slot.ticket)?;
        Some(Arc::clone(&ticket.app))
    }

    /// Returns the instance as it appears in events.
    pub(crate) fn line(&self, slot: Slot) -> Option<Line> {
        let ticket = self.tickets.get(&slot.ticket)?;
        let instance = &ticket.instances[slot.position];
        Some(Line {
            request: ticket.id.clone(),
            index: instance.index,
            instance: instance.id,
            cell: None,
            why: None,
            traceparent: ticket.request.traceparent.clone(),
        })
    }

    /// Records that a cell took, or may have taken, the instance that it was sent. If another auctioneer's claim
    /// counts, the cells are asked first which copy stays.
    pub(crate) fn finish_sent(&mut self, turn: &mut Turn, slot: Slot, done: Done) {
        let ticket = self.tickets.get(&slot.ticket);
        if ticket.is_some_and(|ticket| ticket.yielded) {
            if matches!(self.state(slot), Some(State::Sent)) {
                self.set_state(slot, State::Checking);
            }
            return;
        }
        self.finish(turn, slot, done);
    }

    /// Sets the final outcome of an instance and of those that share it.
    pub(crate) fn finish(&mut self, turn: &mut Turn, slot: Slot, done: Done) {
        // a list instead of recursion: a chain of shared outcomes may be as long as a batch
        let mut ended = vec![(slot, done)];
        while let Some((slot, done)) = ended.pop() {
            // a late answer about something final, or about a request that has ended: the first outcome stands
            if matches!(self.state(slot), None | Some(State::Done(_))) {
                continue;
            }
            self.set_state(slot, State::Done(done.clone()));
            let Some(ticket) = self.tickets.get_mut(&slot.ticket) else {
                continue;
            };
            ticket.open -= 1;
            let sharers = std::mem::take(&mut ticket.instances[slot.position].sharers);
            let first = ticket.id.clone();
            if ticket.open == 0 {
                self.reply(turn, slot.ticket);
                self.remove(slot.ticket);
            }
            for sharer in sharers {
                let mut shared = done.clone();
                shared.duplicate_of = Some(first.clone());
                ended.push((sharer, shared));
            }
        }
    }

    /// Gives up an instance, and reports that in an event.
    pub(crate) fn give_up(&mut self, turn: &mut Turn, slot: Slot, why: Arc<Unplaced>) {
        if let (Some(app), Some(mut line)) = (self.app_of(slot), self.line(slot)) {
            line.why = Some(Arc::clone(&why));
            let auction = self.tickets.get(&slot.ticket).and_then(|t| t.auction);
            let mut lines = Lines::default();
            lines.add(line);
            turn.event(lines.event(kind::UNPLACED, &app, auction));
        }
        self.finish(turn, slot, Done::unplaced(why));
    }

    /// Gives up the instances of a request for which `reason` returns a reason, with one event.
    fn give_up_all(
        &mut self,
        turn: &mut Turn,
        key: TicketId,
        reason: impl Fn(&Instance) -> Option<Arc<Unplaced>>,
    ) -> usize {
        let Some(ticket) = self.tickets.get(&key) else {
            return 0;
        };
        let all = ticket.instances.iter().enumerate();
        let given_up: Vec<(usize, Arc<Unplaced>)> = all
            .filter_map(|(position, i)| reason(i).map(|why| (position, why)))
            .collect();
        let (app, auction) = (ticket.request.app.clone(), ticket.auction);
        let mut lines = Lines::default();
        for (position, why) in &given_up {
            let slot = Slot::new(key, *position);
            if let Some(mut line) = self.line(slot) {
                line.why = Some(Arc::clone(why));
                lines.add(line);
            }
            self.finish(turn, slot, Done::unplaced(Arc::clone(why)));
        }
        if !given_up.is_empty() {
            turn.event(lines.event(kind::UNPLACED, &app, auction));
        }
        given_up.len()
    }

    fn remove(&mut self, key: TicketId) -> Option<Ticket> {
        let ticket = self.tickets.remove(&key)?;
        // with every index entry: one left behind would repeat or end another ticket
        self.by_id.remove(&ticket.id);
        self.shares.remove(&ticket.request, ticket.instances.len());
        self.deadlines.remove(&(ticket.deadline_ms, key));
        self.queue_ends.remove(&(ticket.queue_end_ms, key));
        self.ended.push(key);
        Some(ticket)
    }

    /// Returns the tickets that have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<TicketId> {
        std::mem::take(&mut self.ended)
    }

    /// Answers with what is known now, only once; later results are only remembered.
    fn reply(&mut self, turn: &mut Turn, key: TicketId) {
        let Some(ticket) = self.tickets.get_mut(&key) else {
            return;
        };
        let answer = reply::answer(ticket, turn.max_payload);
        // a request has one reply; later results are only remembered, for repeats
        let later = std::mem::replace(&mut ticket.replied, true);
        let ended = Ended {
            body: answer.body.clone(),
            unsure: answer.outcome == Outcome::Unknown,
            contested: ticket.contested,
            announced: true,
            claim: ticket.claim,
            // only an id that its sender chose can be known to another auctioneer
            own: (ticket.given && ticket.was_sent()).then(|| Arc::new(ticket.begun())),
        };
        self.outcomes.ended(turn.now_ms, &answer.id, ended, later);
        if later {
            return;
        }
        let places = std::mem::take(&mut ticket.places);
        turn.out.push(AuctioneerOutput::Outcome {
            id: answer.id.clone(),
            body: answer.body.clone(),
        });
        for place in places {
            self.groups.fill(turn, place, answer.clone());
        }
    }

    /// Ends a request with another auctioneer's answer.
    pub(crate) fn end_with(&mut self, turn: &mut Turn, key: TicketId, ended: Ended) {
        // keeps the counts of waiting instances right
        self.check_again(&[key]);
        let Some(ticket) = self.remove(key) else {
            return;
        };
        let body = ended.body.clone();
        let own = (ticket.given && ticket.was_sent()).then(|| Arc::new(ticket.begun()));
        let contested = own.is_some() || ticket.contested;
        let ended = Ended {
            contested,
            own,
            ..ended
        };
        self.outcomes.ended(turn.now_ms, &ticket.id, ended, true);
        let theirs = OtherAnswer::read(&body);
        for instance in &ticket.instances {
            for sharer in instance.sharers.clone() {
                let owned = "another auctioneer owns the request it is from";
                let done = theirs.of(instance.index);
                let mut done = done.unwrap_or_else(|| Done::unknown(None, owned));
                done.duplicate_of = Some(ticket.id.clone());
                self.finish(turn, sharer, done);
            }
        }
        if ticket.replied {
            return;
        }
        let answer = Answer::remembered(&ticket.id, &ticket.request, body, turn.max_payload);
        let answer = answer.unwrap_or_else(|error| Answer {
            id: ticket.id.clone(),
            app: Arc::clone(&ticket.app),
            outcome: Outcome::Unplaced,
            body: to_bytes(&error.body()),
        });
        for place in ticket.places {
            self.groups.fill(turn, place, answer.clone());
        }
    }

    /// Records that an auctioneer has begun a request that is not open here.
    pub(crate) fn announced(&mut self, now_ms: u64, id: &RequestId, claim: AuctionId) {
        self.outcomes.announced(now_ms, id, claim);
    }

    /// Returns what is remembered of requests that are not open.
    pub(crate) fn outcomes(&self) -> &Outcomes {
        &self.outcomes
    }

    /// Remembers the outcome of a request that another auctioneer took or that has ended here. Returns whether it is
    /// the one that counts.
    pub(crate) fn remember_outcome(&mut self, now_ms: u64, id: &RequestId, ended: Ended) -> bool {
        self.outcomes.ended(now_ms, id, ended, false)
    }

    /// Forgets old outcomes.
    pub(crate) fn forget_outcomes(&mut self, now_ms: u64) {
        self.outcomes.prune(now_ms);
    }

    /// Returns how many remembered outcomes were dropped early.
    pub(crate) fn forgotten(&self) -> u64 {
        self.outcomes.dropped()
    }
}
