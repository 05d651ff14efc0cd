//! Incarnations of cells that were replaced or withdrew: their late messages no longer count.

use std::{collections::VecDeque, sync::Arc};

use placement::FastMap;
use shared::Incarnation;

/// The most incarnations that are remembered.
const MAX_FORMER: usize = 100_000;

/// The former incarnations. Each belongs to the cell that advertised it: incarnations are public, so another cell that
/// uses the same one says nothing about it.
#[derive(Debug, Default)]
pub(super) struct Former {
    /// For each cell, from when and until when each incarnation is ignored.
    known: FastMap<Arc<str>, FastMap<Incarnation, (u64, u64)>>,
    /// In order of arrival.
    order: VecDeque<(Arc<str>, Incarnation)>,
}

impl Former {
    /// Returns whether a message of this incarnation is late. A message with a ttl counts as late for that time at
    /// most: the ttl on record may be a longer one of a forged message.
    pub(super) fn contains(
        &self,
        now_ms: u64,
        cell: &str,
        incarnation: &Incarnation,
        ttl_ms: Option<u64>,
    ) -> bool {
        let of_cell = self.known.get(cell);
        let times = of_cell.and_then(|of_cell| of_cell.get(incarnation));
        times.is_some_and(|(since_ms, until_ms)| {
            let own_ms = ttl_ms.map_or(u64::MAX, |ttl_ms| since_ms.saturating_add(ttl_ms));
            now_ms < *until_ms.min(&own_ms)
        })
    }

    /// Ignores an incarnation for as long as its advertisements were valid. What it says after that is not late:
    /// somebody else spoke in its name, or it is back.
    pub(super) fn add(
        &mut self,
        now_ms: u64,
        cell: &Arc<str>,
        incarnation: Incarnation,
        ttl_ms: u64,
    ) {
        let of_cell = self.known.entry(Arc::clone(cell)).or_default();
        // only one entry in the list, or whoever alternates between two incarnations would fill it
        if of_cell
            .insert(incarnation, (now_ms, now_ms + ttl_ms))
            .is_none()
        {
            self.order.push_back((Arc::clone(cell), incarnation));
        }
    }

    /// Stops ignoring all incarnations of the cell.
    pub(super) fn clear(&mut self, cell: &str) {
        self.known.remove(cell);
    }

    /// Forgets incarnations whose time is over, and the oldest if there are too many.
    pub(super) fn forget(&mut self, now_ms: u64) {
        while let Some((cell, incarnation)) = self.order.front() {
            // in order of arrival: one with a shorter ttl stays here behind a longer one, without any effect
            if self.contains(now_ms, cell, incarnation, None) && self.order.len() <= MAX_FORMER {
                break;
            }
            if let Some(of_cell) = self.known.get_mut(cell) {
                of_cell.remove(incarnation);
                if of_cell.is_empty() {
                    self.known.remove(cell);
                }
            }
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
        let cell = Arc::from("a");
        former.add(100, &cell, incarnation(1), 50);
        former.add(100, &cell, incarnation(2), 60);
        assert!(
            !former.contains(100, "b", &incarnation(1), None),
            "another cell's"
        );
        for (now_ms, known) in [
            (100, [true, true]),
            (149, [true, true]),
            (150, [false, true]),
            (159, [false, true]),
            (160, [false, false]),
        ] {
            former.forget(now_ms);
            let found =
                [1, 2].map(|number| former.contains(now_ms, "a", &incarnation(number), None));
            assert_eq!(found, known, "at {now_ms}");
        }
        assert!(former.order.is_empty() && former.known.is_empty());
    }

    #[test]
    fn what_has_a_shorter_ttl_counts_sooner() {
        let mut former = Former::default();
        former.add(100, &Arc::from("a"), incarnation(1), 60);
        let late = |now_ms, ttl_ms| former.contains(now_ms, "a", &incarnation(1), Some(ttl_ms));
        assert_eq!([late(114, 15), late(115, 15)], [true, false]);
        assert_eq!([late(159, 90), late(160, 90)], [true, false]);
    }

    #[test]
    fn of_too_many_the_oldest_is_forgotten() {
        let mut former = Former::default();
        let cell = Arc::from("a");
        for number in 0..MAX_FORMER {
            former.add(0, &cell, incarnation(number), 1_000);
        }
        former.forget(0);
        assert!(former.contains(0, "a", &incarnation(0), None));
        former.add(0, &cell, incarnation(MAX_FORMER), 1_000);
        former.forget(0);
        let found =
            [0, 1, MAX_FORMER].map(|number| former.contains(0, "a", &incarnation(number), None));
        assert_eq!(found, [false, true, true]);
    }
}
