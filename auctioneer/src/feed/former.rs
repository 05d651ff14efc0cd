//! The incarnations of cells that were replaced or withdrew: what comes of them late counts no more.

use std::collections::VecDeque;

use shared::Incarnation;

use crate::fast_map::FastSet;

/// The most that are remembered.
const MAX_FORMER: usize = 100_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Former {
    known: FastSet<Incarnation>,
    /// Until when each is remembered, oldest first.
    order: VecDeque<(u64, Incarnation)>,
}

impl Former {
    pub(super) fn contains(&self, incarnation: &Incarnation) -> bool {
        self.known.contains(incarnation)
    }

    /// Remembers it for twice as long as its advertisements were valid.
    pub(super) fn add(&mut self, now_ms: u64, incarnation: Incarnation, ttl_ms: u64) {
        self.known.insert(incarnation);
        self.order.push_back((now_ms + 2 * ttl_ms, incarnation));
    }

    /// Forgets those whose time is up, and the oldest when there are too many.
    pub(super) fn forget(&mut self, now_ms: u64) {
        while let Some((until_ms, incarnation)) = self.order.front() {
            if *until_ms > now_ms && self.order.len() <= MAX_FORMER {
                break;
            }
            self.known.remove(incarnation);
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn incarnation(number: usize) -> Incarnation {
        Incarnation::from_u128(number as u128)
    }

    #[test]
    fn each_is_remembered_for_two_ttl() {
        let mut former = Former::default();
        former.add(100, incarnation(1), 50);
        former.add(100, incarnation(2), 60);
        for (now_ms, known) in [
            (100, [true, true]),
            (199, [true, true]),
            (200, [false, true]),
            (219, [false, true]),
            (300, [false, false]),
        ] {
            former.forget(now_ms);
            let found = [1, 2].map(|number| former.contains(&incarnation(number)));
            assert_eq!(found, known, "at {now_ms}");
        }
        assert!(former.order.is_empty());
    }

    #[test]
    fn of_too_many_the_oldest_is_forgotten() {
        let mut former = Former::default();
        for number in 0..MAX_FORMER {
            former.add(0, incarnation(number), 1_000);
        }
        former.forget(0);
        assert!(former.contains(&incarnation(0)));
        former.add(0, incarnation(MAX_FORMER), 1_000);
        former.forget(0);
        let found = [0, 1, MAX_FORMER].map(|number| former.contains(&incarnation(number)));
        assert_eq!(found, [false, true, true]);
    }
}
