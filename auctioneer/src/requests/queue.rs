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
/// The interval between auctions of queued work.
pub const REQUEUE_MS: u64 = 100;
/// The most auctions in which an instance may fail; after that it enters no other.
pub const MAX_AUCTIONS: u8 = 3;

/// Lists of waiting instances. A list may contain an instance that has changed since: its state is authoritative.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: VecDeque<Slot>,
    held: VecDeque<Slot>,
    /// The number of instances in the states `Waiting` and `Held`.
    waiting_count: usize,
    held_count: usize,
    /// The pool's version at the last auction of queued work: until it changes, nothing more fits.
    held_version: Option<PoolVersion>,
    requeued_ms: u64,
}

impl Queue {
    /// Updates the counts when an instance changes its state.
    pub(super) fn moved(&mut self, old: &State, new: &State) {
        let waits = |s: &State| usize::from(matches!(s, State::Waiting | State::Held(_)));
        let holds = |s: &State| usize::from(matches!(s, State::Held(_)));
        self.waiting_count = self.waiting_count + waits(new) - waits(old);
        self.held_count = self.held_count + holds(new) - holds(old);
    }

    /// Keeps only instances that still wait: one that comes back later would be listed twice.
    pub(super) fn forget_moved(&mut self, waits: impl Fn(&Slot) -> bool) {
        self.waiting.retain(&waits);
        self.held.retain(&waits);
    }

    /// Returns how many instances wait for an auction or for room.
    pub(super) fn count(&self) -> usize {
        self.waiting_count
    }
}

impl Requests {
    /// Returns how many instances wait for an auction or are queued.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.waiting_count
    }

    /// Returns how many instances wait for an auction.
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

    /// Returns the next instance for an auction, with its request.
    pub(crate) fn next_for(&mut self, auction: AuctionId) -> Option<(Slot, &Ticket)> {
        let slot = loop {
            let slot = self.queue.waiting.pop_front()?;
            // cancelled and sent instances stay in the list: removing them at that time would mean a search
            if matches!(self.state(slot), Some(State::Waiting)) {
                break slot;
            }
        };
        let ticket = self.tickets.get_mut(&slot.ticket)?;
        ticket.auction = Some(auction);
        Some((slot, ticket))
    }

    /// Queues an instance that fits nowhere in a pool of this version. Returns whether this is the first time.
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
        // the version that the oldest has tried: work queued later must not hide a change from it
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

    /// Lets a request without a queue timeout wait for at most this long from when it arrived.
    pub(crate) fn wait_for(&mut self, key: TicketId, most_ms: u64) {
        let most_ms = most_ms.min(self.max_queue_ms);
        if let Some(ticket) = self.tickets.get_mut(&key) {
            self.queue_ends.remove(&(ticket.queue_end_ms, key));
            ticket.queue_end_ms = ticket.asked_ms + most_ms;
            self.queue_ends.insert((ticket.queue_end_ms, key));
        }
    }

    /// Puts queued work into the next auction if the pool has changed.
    pub(crate) fn requeue(&mut self, now_ms: u64, pool_version: PoolVersion) {
        if self
            .next_requeue_ms(pool_version)
            .is_none_or(|at_ms| now_ms < at_ms)
        {
            return;
        }
        self.queue.held_version = Some(pool_version);
        // every attempt is an auction over all queued work, so attempts are spaced out
        self.queue.requeued_ms = now_ms;
        for slot in std::mem::take(&mut self.queue.held) {
            if matches!(self.state(slot), Some(State::Held(_))) {
                self.set_state(slot, State::Waiting);
                self.queue.waiting.push_back(slot);
            }
        }
    }

    /// Returns when queued work enters an auction again; none if there is none or the pool has not changed.
    pub(crate) fn next_requeue_ms(&self, pool_version: PoolVersion) -> Option<u64> {
        let queue = &self.queue;
        (queue.held_count > 0 && queue.held_version != Some(pool_version))
            .then_some(queue.requeued_ms + REQUEUE_MS)
    }

    /// Puts an instance that a cell did not accept into the next auction. Returns false if it has been in enough
    /// auctions or is too late.
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
        // at the front: it has waited for one auction already
        self.queue.waiting.push_front(slot);
        true
    }
}
