//! Decides which of two reps with the same cell name leaves.
//!
//! A rep that has just started gives way to one that was there before; if two start together, the one with the greater
//! incarnation leaves. If both have been there for longer (one stood still or was cut off while the other started), the
//! older one leaves, because it was replaced. No rep relies on a single message: unless it is new itself, the other one
//! must have advertised for a whole ttl, and it must always have answered a question.

use shared::{Incarnation, wire::Envelope};

/// What is known of another rep of our name.
#[derive(Clone, Debug)]
pub(super) struct Namesakes {
    own: Incarnation,
    /// The age up to which a rep counts as new.
    new_ms: u64,
    ttl_ms: u64,
    other: Option<Other>,
    /// The other rep, if this one leaves because of it.
    winner: Option<Incarnation>,
}

/// The rep that advertised last.
#[derive(Clone, Debug)]
struct Other {
    incarnation: Incarnation,
    /// When it first advertised; below, when it last did.
    first_ms: u64,
    last_ms: u64,
    /// Whether we have asked it a question; if it answers, we leave.
    asked: bool,
}

impl Namesakes {
    pub(super) fn new(own: Incarnation, new_ms: u64, ttl_ms: u64) -> Self {
        Self {
            own,
            new_ms,
            ttl_ms,
            other: None,
            winner: None,
        }
    }

    /// Returns the other rep, if this one leaves because of it.
    pub(super) fn winner(&self) -> Option<Incarnation> {
        self.winner
    }

    /// Handles an advertisement under our name. Returns whether its sender is to be asked for its state.
    pub(super) fn advertised(&mut self, now_ms: u64, advert: &Envelope) -> bool {
        if advert.incarnation == self.own || self.winner.is_some() {
            return false;
        }
        // its sender leaves, so there is nobody to give way to; a withdrawal of a third rep changes nothing
        if advert.ttl.is_some_and(|ttl| ttl.0.is_zero()) {
            self.other = self
                .other
                .take()
                .filter(|other| other.incarnation != advert.incarnation);
            return false;
        }
        // after a ttl of silence it counts as new: a delayed message must not pass for a whole ttl of presence
        let before = self.other.take().filter(|other| {
            other.incarnation == advert.incarnation && now_ms <= other.last_ms + self.ttl_ms
        });
        let first_ms = before.map_or(now_ms, |other| other.first_ms);
        let asked = self.gives_way(now_ms, first_ms, advert);
        self.other = Some(Other {
            incarnation: advert.incarnation,
            first_ms,
            last_ms: now_ms,
            asked,
        });
        asked
    }

    /// Returns whether we leave if the other rep answers.
    fn gives_way(&self, now_ms: u64, first_ms: u64, advert: &Envelope) -> bool {
        let (own_age_ms, other_age_ms) = (now_ms, advert.clock_ms.as_ms());
        let lower = advert.incarnation < self.own;
        // little can be running here yet, so leaving costs little: it is enough that the other rep was there before
        if own_age_ms <= self.new_ms {
            return other_age_ms > self.new_ms || lower;
        }
        // instances run here: another rep that ends by itself within a ttl must not end them
        if now_ms < first_ms + self.ttl_ms {
            return false;
        }
        // the ages can only be compared up to the delay of messages
        if own_age_ms.abs_diff(other_age_ms) <= self.new_ms {
            lower
        } else {
            own_age_ms > other_age_ms
        }
    }

    /// Handles an answer under our name, our own or another rep's.
    pub(super) fn answered(&mut self, state: &Envelope) {
        let asked = self.other.as_ref().filter(|other| other.asked);
        // an advertisement can be forged or late; an answer to a question asked now proves that the rep is there
        if asked.is_some_and(|other| other.incarnation == state.incarnation) {
            self.winner = Some(state.incarnation);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use placement::Span;
    use shared::clock::CellTime;

    use super::*;

    const NEW_MS: u64 = 10_000;
    const TTL_MS: u64 = 15_000;

    fn rep() -> Namesakes {
        Namesakes::new(Incarnation::from_u128(5), NEW_MS, TTL_MS)
    }

    fn from(incarnation: u128, age_ms: u64) -> Envelope {
        Envelope {
            v: shared::VERSION,
            cell: "a".into(),
            auction: None,
            incarnation: Incarnation::from_u128(incarnation),
            seq: 1,
            since: None,
            clock_ms: CellTime::from_ms(age_ms),
            ttl: Some(Span(Duration::from_millis(TTL_MS))),
            recent: Vec::new(),
            unchanged: false,
        }
    }

    /// Simulates another rep that advertises every 5 s from this time of ours on. Returns when we ask it and then leave
    /// because of its answer, if we do.
    fn asks_at(incarnation: u128, ahead_ms: i64, from_ms: u64, until_ms: u64) -> Option<u64> {
        let mut rep = rep();
        for now_ms in (from_ms..=until_ms).step_by(5_000) {
            let age_ms = now_ms.saturating_add_signed(ahead_ms);
            let advert = from(incarnation, age_ms);
            let asks = rep.advertised(now_ms, &advert);
            rep.answered(&from(5, now_ms));
            assert_eq!(rep.winner(), None, "our own answer");
            rep.answered(&advert);
            assert_eq!(rep.winner().is_some(), asks, "unasked answers do not count");
            if asks {
                return Some(now_ms);
            }
        }
        None
    }

    #[test]
    fn a_new_rep_gives_way_to_one_that_was_there_before() {
        for (incarnation, ahead_ms, leaves) in [
            (9, 60_000, Some(1_000)),
            (1, 60_000, Some(1_000)),
            (1, 0, Some(1_000)),
            (9, 0, None),
        ] {
            assert_eq!(
                asks_at(incarnation, ahead_ms, 1_000, 9_000),
                leaves,
                "{incarnation} {ahead_ms}"
            );
        }
    }

    #[test]
    fn a_rep_that_was_replaced_leaves_when_the_new_one_has_been_there_for_a_ttl() {
        for (incarnation, ahead_ms, leaves) in [
            (9, -50_000, Some(115_000)),
            (1, -50_000, Some(115_000)),
            (9, 50_000, None),
            (1, 50_000, None),
            // about as old as we are: the greater incarnation leaves
            (1, -9_000, Some(115_000)),
            (1, 9_000, Some(115_000)),
            (9, -9_000, None),
            (9, 9_000, None),
        ] {
            assert_eq!(
                asks_at(incarnation, ahead_ms, 100_000, 200_000),
                leaves,
                "{incarnation} {ahead_ms}"
            );
        }
    }

    #[test]
    fn a_few_messages_make_nobody_leave() {
        let mut rep = rep();
        // an answer without a question
        rep.answered(&from(1, 50_000));
        assert!(!rep.advertised(100_000, &from(1, 50_000)));
        rep.answered(&from(1, 50_000));
        // a different one after a pause of more than a ttl, and a different incarnation in between
        assert!(!rep.advertised(116_000, &from(1, 66_000)));
        assert!(!rep.advertised(120_000, &from(2, 60_000)));
        assert!(!rep.advertised(131_000, &from(1, 81_000)));
        // it withdraws and comes back
        assert!(!rep.advertised(140_000, &from(1, 90_000)));
        let mut leaves = from(1, 95_000);
        leaves.ttl = Some(Span::default());
        assert!(!rep.advertised(141_000, &leaves));
        assert!(!rep.advertised(146_000, &from(1, 96_000)));
        assert_eq!(rep.winner(), None);
    }

    #[test]
    fn the_bounds_of_new_of_alike_and_of_a_whole_ttl_are_exact() {
        for (now_ms, first_ms, other, age_ms, leaves, what) in [
            // new up to NEW_MS: the older one stays, without waiting
            (NEW_MS, NEW_MS, 9, NEW_MS + 1, true, "new, the other is not"),
            (NEW_MS, NEW_MS, 9, NEW_MS, false, "both new, we are lower"),
            (NEW_MS + 1, NEW_MS + 1, 1, 50_000, false, "no longer new"),
            // the other one has been present for a ttl
            (114_999, 100_000, 9, 15_000, false, "not a whole ttl"),
            (115_000, 100_000, 9, 15_000, true, "a whole ttl"),
            // as old as we are, within NEW_MS
            (115_000, 100_000, 9, 105_000, false, "alike, we are lower"),
            (
                115_000,
                100_000,
                9,
                104_999,
                true,
                "not alike, we are older",
            ),
            (115_000, 100_000, 1, 125_000, true, "alike, it is lower"),
            (
                115_000,
                100_000,
                1,
                125_001,
                false,
                "not alike, it is older",
            ),
        ] {
            let gives_way = rep().gives_way(now_ms, first_ms, &from(other, age_ms));
            assert_eq!(gives_way, leaves, "{what}");
        }
    }

    #[test]
    fn neither_itself_nor_a_third_one_changes_who_stays() {
        let mut rep = rep();
        assert!(!rep.advertised(1_000, &from(5, 60_000)), "our own");
        assert!(rep.advertised(1_000, &from(1, 60_000)));
        rep.answered(&from(1, 60_000));
        assert!(!rep.advertised(2_000, &from(2, 60_000)), "we leave already");
        assert_eq!(rep.winner(), Some(Incarnation::from_u128(1)));
    }
}
