//! Waiting work: for the next auction, or for room.

use std::{collections::VecDeque, sync::Arc};

use placement::Unplaced;

use super::Requests;
use crate::{
    ids::{PoolVersion, TicketId},
    ticket::{Slot, State, Ticket},
};
use shared::AuctionId;

/// The most jobs of one auction.
pub const MAX_BATCH: usize = 10_000;
/// The interval of auctions of queued work.
pub const REQUEUE_MS: u64 = 100;
/// The most auctions that an instance may enter after failures.
pub const MAX_AUCTIONS: u8 = 3;

/// Lists of waiting instances. A list may have an instance that has changed since: its state
/// decides.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Slot>,
    held: VecDeque<Slot>,
    /// The number of instances in the states `Waiting` and `Held`.
    waiting_count: usize,
    held_count: usize,
    /// The pool's version at the last auction of queued work: until it changes nothing more fits.
    held_version: Option<PoolVersion>,
    requeued_ms: u64,
}

impl Queue {
    /// An instance changes its state: the counts are updated.
    pub(super) fn moved(&mut self, old: &State, new: &State) {
        let waits = |s: &State| usize::from(matches!(s, State::Waiting | State::Held(_)));
        let holds = |s: &State| usize::from(matches!(s, State::Held(_)));
        self.waiting_count = self.waiting_count + waits(new) - waits(old);
        self.held_count = self.held_count + holds(new) - holds(old);
    }

    /// Only what still waits stays in the lists: what comes back later would stand there twice.
    pub(super) fn forget_moved(&mut self, waits: impl Fn(&Slot) -> bool) {
        self.waiting.retain(&waits);
        self.held.retain(&waits);
    }

    /// Instances that wait for an auction or for room.
    pub(super) fn count(&self) -> usize {
        self.waiting_count
    }
}

impl Requests {
    /// How many instances wait for an auction or are queued.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.waiting_count
    }

    /// How many instances wait for an auction.
    pub(crate) fn for_auction(&self) -> usize {
        self.queue.waiting_count - self.queue.held_count
    }

    /// Puts the instances of a request that are not known to run into the next auction.
    pub(crate) fn queue(&mut self, key: TicketId) {
        let Some(ticket) = self.tickets.get(&key) else {
            return;
        };
        for position in 0..ticket.instances.len() {
            let slot = Slot::new(key, position);
            if matches!(self.state(slot), Some(State::Checking)) {
                self.set_state(slot, State::Waiting);
                self.queue.waiting.push_back(slot);
            }
        }
    }

    /// The next instance for an auction, with its request.
    pub(crate) fn next_for(&mut self, auction: AuctionId) -> Option<(Slot, &Ticket)> {
        let slot = loop {
            let slot = self.queue.waiting.pop_front()?;
            // what was cancelled or sent since still stands in the list: to take it out there would cost a walk
            if matches!(self.state(slot), Some(State::Waiting)) {
                break slot;
            }
        };
        let ticket = self.tickets.get_mut(&slot.ticket)?;
        ticket.auction = Some(auction);
        Some((slot, ticket))
    }

    /// The instance fits nowhere and is queued; the pool has this version. Returns whether this is
    /// the first time.
    pub(crate) fn hold(
        &mut self,
        slot: Slot,
        why: Arc<Unplaced>,
        pool_version: PoolVersion,
    ) -> bool {
        let Some(ticket) = self.tickets.get_mut(&slot.ticket) else {
            return false;
        };
        let queued = &mut ticket.instances[slot.position].queued;
        let first = !std::mem::replace(queued, true);
        // the version of the oldest: work that came later must not hide a change that this one has not tried
        if self.queue.held_count == 0 {
            self.queue.held_version = Some(pool_version);
        }
        let sharers = ticket.instances[slot.position].sharers.clone();
        for sharer in sharers {
            self.set_state(sharer, State::Shares(Some(Arc::clone(&why))));
        }
        self.set_state(slot, State::Held(why));
        self.queue.held.push_back(slot);
        first
    }

    /// Queued work enters the next auction if the pool has changed.
    pub(crate) fn requeue(&mut self, now_ms: u64, pool_version: PoolVersion) {
        if self
            .next_requeue_ms(pool_version)
            .is_none_or(|at_ms| now_ms < at_ms)
        {
            return;
        }
        self.queue.held_version = Some(pool_version);
        // every try is an auction over all that is queued, so they keep a distance
        self.queue.requeued_ms = now_ms;
        for slot in std::mem::take(&mut self.queue.held) {
            if matches!(self.state(slot), Some(State::Held(_))) {
                self.set_state(slot, State::Waiting);
                self.queue.waiting.push_back(slot);
            }
        }
    }

    /// When queued work enters an auction again; none if there is none or the pool has not changed.
    pub(crate) fn next_requeue_ms(&self, pool_version: PoolVersion) -> Option<u64> {
        let queue = &self.queue;
        (queue.held_count > 0 && queue.held_version != Some(pool_version))
            .then_some(queue.requeued_ms + REQUEUE_MS)
    }

    /// A cell did not accept the instance. It enters the next auction, unless it was in enough of
    /// them or its deadline has passed; then returns false.
    pub(crate) fn again(&mut self, now_ms: u64, slot: Slot) -> bool {
        let Some(ticket) = self.tickets.get_mut(&slot.ticket) else {
            return true;
        };
        let instance = &mut ticket.instances[slot.position];
        instance.failures += 1;
        // its client was told what became of it: a start now would contradict that
        let too_late = ticket.replied && ticket.queue_end_ms <= now_ms;
        if instance.failures >= MAX_AUCTIONS || too_late {
            return false;
        }
        if ticket.yielded {
            self.set_state(slot, State::Checking);
            return true;
        }
        self.set_state(slot, State::Waiting);
        // in front: it has waited for one auction already
        self.queue.waiting.push_front(slot);
        true
    }
}
