//! The incarnations of cells that were replaced or withdrew: what comes of them late counts no more.

use std::collections::VecDeque;

use shared::Incarnation;

use crate::fast_map::FastMap;

/// The most that are remembered.
const MAX_FORMER: usize = 100_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Former {
    /// Until when each counts no more.
    known: FastMap<Incarnation, u64>,
    /// In the order in which they came.
    order: VecDeque<Incarnation>,
}

impl Former {
    pub(super) fn contains(&self, now_ms: u64, incarnation: &Incarnation) -> bool {
        let until_ms = self.known.get(incarnation);
        until_ms.is_some_and(|until_ms| *until_ms > now_ms)
    }

    /// It counts no more for as long as its advertisements were valid. What it says after that is not
    /// late: somebody else spoke in its name, or it is there again.
    pub(super) fn add(&mut self, now_ms: u64, incarnation: Incarnation, ttl_ms: u64) {
        if self.known.insert(incarnation, now_ms + ttl_ms).is_none() {
            self.order.push_back(incarnation);
        }
    }

    /// Forgets those whose time is up, and the oldest when there are too many.
    pub(super) fn forget(&mut self, now_ms: u64) {
        while let Some(incarnation) = self.order.front() {
            // in order of arrival, not of their ends: one with a short ttl behind another waits, and counts no more anyway
            if self.contains(now_ms, incarnation) && self.order.len() <= MAX_FORMER {
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
    fn each_counts_no_more_for_one_ttl() {
        let mut former = Former::default();
        former.add(100, incarnation(1), 50);
        former.add(100, incarnation(2), 60);
        for (now_ms, known) in [
            (100, [true, true]),
            (149, [true, true]),
            (150, [false, true]),
            (159, [false, true]),
            (160, [false, false]),
        ] {
            former.forget(now_ms);
            let found = [1, 2].map(|number| former.contains(now_ms, &incarnation(number)));
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
        assert!(former.contains(0, &incarnation(0)));
        former.add(0, incarnation(MAX_FORMER), 1_000);
        former.forget(0);
        let found = [0, 1, MAX_FORMER].map(|number| former.contains(0, &incarnation(number)));
        assert_eq!(found, [false, true, true]);
    }
}
