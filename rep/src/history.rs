//! Remembers instances that have ended, and instances that were stopped before their start arrived, limited in time and
//! number.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use shared::InstanceId;
use shared::wire::Instance;

/// How long ended instances are reported.
const ENDED_MS: u64 = 600_000;
/// The most ended instances that are reported.
const ENDED: usize = 1_000;
/// How long a start is refused whose instance was stopped by id before it arrived; starts expire after 5 s.
const STOPPED_MS: u64 = 60_000;
/// The longest time for which an id is remembered, to recognise repeats of its start.
const REPEAT_MS: u64 = 600_000;
/// The most ids remembered.
const KNOWN: usize = 20_000;

/// Ended instances and known ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// Oldest first, with the time at which each ended.
    ended: VecDeque<(u64, Instance)>,
    known: BTreeMap<InstanceId, KnownId>,
    /// When to forget each id, earliest first.
    forget: BTreeSet<(u64, InstanceId)>,
}

#[derive(Clone, Copy, Debug)]
struct KnownId {
    /// Whether it was stopped on request; otherwise it ended by itself.
    stopped: bool,
    until_ms: u64,
}

impl History {
    /// Remembers an instance that has ended: for queries, and for repeats of its start, which may arrive until
    /// `expires_ms`.
    pub(crate) fn add(&mut self, now_ms: u64, ended: Instance, stopped: bool, expires_ms: u64) {
        self.know(now_ms, ended.instance, stopped, expires_ms);
        self.ended.push_back((now_ms, ended));
        self.forget(now_ms);
    }

    /// Remembers that an instance was killed because it runs elsewhere: a repeat of its start is refused.
    pub(crate) fn killed(&mut self, now_ms: u64, id: InstanceId, expires_ms: u64) {
        self.know(now_ms, id, true, expires_ms);
    }

    /// Remembers that an id which is not here (yet) was stopped. An id that ended by itself stays as it was.
    pub(crate) fn stop_before_start(&mut self, now_ms: u64, id: InstanceId) {
        if !self.known.contains_key(&id) {
            self.know(now_ms, id, true, now_ms + STOPPED_MS);
        }
    }

    /// Returns whether a known id was stopped on request (true) or ended by itself (false); none if it is unknown.
    pub(crate) fn stopped(&self, now_ms: u64, id: &InstanceId) -> Option<bool> {
        let known = self.known.get(id)?;
        (now_ms <= known.until_ms).then_some(known.stopped)
    }

    /// Extends how long an id is remembered: a repeated start may itself be repeated until it expires.
    pub(crate) fn extend(&mut self, now_ms: u64, id: InstanceId, expires_ms: u64) {
        if let Some(known) = self.known.get(&id).copied() {
            self.know(now_ms, id, known.stopped, expires_ms.max(known.until_ms));
        }
    }

    /// Returns recently ended instances, oldest first, with the time since their end in milliseconds.
    pub(crate) fn ended(&self, now_ms: u64) -> impl Iterator<Item = (u64, &Instance)> {
        self.ended
            .iter()
            .filter(move |(at, _)| at + ENDED_MS > now_ms)
            .map(move |(at, instance)| (now_ms.saturating_sub(*at), instance))
    }

    /// Drops what is too old, and the oldest if there are too many.
    pub(crate) fn forget(&mut self, now_ms: u64) {
        while let Some((at, _)) = self.ended.front()
            && (at + ENDED_MS <= now_ms || self.ended.len() > ENDED)
        {
            self.ended.pop_front();
        }
        while let Some((until_ms, id)) = self.forget.first()
            && (*until_ms < now_ms || self.forget.len() > KNOWN)
        {
            self.known.remove(id);
            self.forget.pop_first();
        }
    }

    fn know(&mut self, now_ms: u64, id: InstanceId, stopped: bool, until_ms: u64) {
        let until_ms = until_ms.min(now_ms + REPEAT_MS);
        if let Some(before) = self.known.insert(id, KnownId { stopped, until_ms }) {
            self.forget.remove(&(before.until_ms, id));
        }
        self.forget.insert((until_ms, id));
        self.forget(now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> InstanceId {
        InstanceId::from_u128(number as u128)
    }

    #[test]
    fn ids_are_known_until_their_time_and_then_take_no_room() {
        let mut history = History::default();
        for (number, until_ms) in [(1, 100), (2, 200), (3, 200), (4, 300)] {
            history.know(0, id(number), number == 2, until_ms);
        }
        for (now_ms, known) in [(99, 4), (100, 4), (101, 3), (200, 3), (250, 1), (301, 0)] {
            history.forget(now_ms);
            assert_eq!(history.known.len(), known, "at {now_ms}");
            assert_eq!(history.forget.len(), known, "at {now_ms}");
            let found = (1..=4).filter(|n| history.stopped(now_ms, &id(*n)).is_some());
            assert_eq!(found.count(), known, "at {now_ms}");
        }
    }

    #[test]
    fn an_id_is_known_longer_by_a_repeat_and_never_shorter() {
        for (expires_ms, until_ms) in [(50, 100), (100, 100), (150, 150)] {
            let mut history = History::default();
            history.know(0, id(1), true, 100);
            history.extend(10, id(1), expires_ms);
            assert_eq!(history.stopped(until_ms, &id(1)), Some(true));
            assert_eq!(history.stopped(until_ms + 1, &id(1)), None);
            assert_eq!(history.forget.len(), 1);
            history.extend(10, id(2), expires_ms);
            assert_eq!(history.stopped(10, &id(2)), None, "nothing is known of it");
        }
    }

    #[test]
    fn what_a_start_says_keeps_an_id_for_ten_minutes_at_most() {
        let mut history = History::default();
        history.know(5, id(1), false, u64::MAX);
        assert_eq!(history.stopped(5 + REPEAT_MS, &id(1)), Some(false));
        assert_eq!(history.stopped(6 + REPEAT_MS, &id(1)), None);
        // a start that has expired cannot be repeated
        history.know(10, id(2), false, 10);
        history.know(10, id(3), false, 9);
        let known = [1, 2, 3].map(|n| history.stopped(10, &id(n)).is_some());
        assert_eq!((known, history.known.len()), ([true, true, false], 2));
    }

    #[test]
    fn of_too_many_ids_those_are_forgotten_that_would_be_first() {
        let mut history = History::default();
        history.know(0, id(0), true, 1_000);
        for number in 1..KNOWN {
            history.know(0, id(number), true, 2_000);
        }
        assert!(history.stopped(0, &id(0)).is_some());
        history.know(0, id(KNOWN), true, 2_000);
        assert!(history.stopped(0, &id(0)).is_none());
        assert_eq!(history.known.len(), KNOWN);
    }
}
