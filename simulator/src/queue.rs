//! Events in virtual time: the earliest first, and events of one moment in the order in which they were added.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

/// A queue of events, used by both cluster simulations: [`crate::world`] and
/// [`crate::auctions_2014`].
/// [`crate::auctions_2014`].
pub(crate) struct EventQueue<E> {
    entries: BinaryHeap<Reverse<Entry<E>>>,
    added: u64,
}

struct Entry<E> {
    at_us: u64,
    /// Orders the events of one moment.
    number: u64,
    event: E,
}

impl<E> EventQueue<E> {
    pub(crate) fn new() -> Self {
        Self {
            entries: BinaryHeap::new(),
            added: 0,
        }
    }

    /// Adds an event that happens at `at_us`, in microseconds of virtual time.
    pub(crate) fn add(&mut self, at_us: u64, event: E) {
        self.added += 1;
        self.entries.push(Reverse(Entry {
            at_us,
            number: self.added,
            event,
        }));
    }

    /// Returns when the next event happens, in microseconds.
    pub(crate) fn next_us(&self) -> Option<u64> {
        self.entries.peek().map(|Reverse(entry)| entry.at_us)
    }

    /// Removes the next event and returns it with its time in microseconds.
    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        let Reverse(entry) = self.entries.pop()?;
        Some((entry.at_us, entry.event))
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at_us, self.number) == (other.at_us, other.number)
    }
}
impl<E> Eq for Entry<E> {}
impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at_us, self.number).cmp(&(other.at_us, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_added() {
        let mut queue = EventQueue::new();
        for (at_us, name) in [(5, "c"), (1, "a"), (5, "d"), (2, "b")] {
            queue.add(at_us, name);
        }
        assert_eq!(queue.next_us(), Some(1));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order, [(1, "a"), (2, "b"), (5, "c"), (5, "d")]);
        assert_eq!(queue.next_us(), None);
    }
}
