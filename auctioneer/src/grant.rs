//! The grant of `--single` as the auctioneer sees it: it accepts requests and holds auctions only while a manager
//! has granted it that.
//!
//! It asks again and again. A grant is counted from when the request for it was sent, which is before the manager
//! heard it, and given up some time before its end: so it has ended here before the manager gives it to another one, however
//! long the answer was on its way or this program stood still.

use std::collections::VecDeque;

use shared::wire::{GrantAnswer, GrantAsk, GrantRequest};

/// How often the holder asks for the grant to be renewed, and one that cannot have it yet asks who has it.
pub const RENEW_MS: u64 = 1_000;
/// How often one asks that waits for it.
pub const WAIT_MS: u64 = 250;
/// It is given up so long before its end: what was decided until then reaches the cells meanwhile.
pub const MARGIN_MS: u64 = 500;
/// No request is taken so long before that: what the server has delivered already is still handled.
pub const CLOSE_MS: u64 = 300;
/// A longer grant counts as this.
const MOST_MS: u64 = 60_000;
/// Requests for it that are remembered until they are answered.
const ASKED: usize = 32;

/// Whether auctions may be held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// They may: it holds the grant, or needs none.
    #[default]
    Holds,
    /// It does not hold the grant, and knows of no other one that does.
    Waits,
    /// Another auctioneer holds it.
    Other,
}

/// The grant.
#[derive(Clone, Debug)]
pub struct Grant {
    /// This run, as managers tell it from others of its name.
    run: String,
    number: u64,
    /// The requests for it without an answer: their numbers, and when they were sent.
    asked: VecDeque<(u64, u64)>,
    /// The last one that was answered.
    answered: u64,
    /// It is held until then.
    until_ms: u64,
    /// Another one holds it.
    other: Option<String>,
    next_ms: u64,
}

impl Grant {
    /// Not held.
    pub fn new(run: String) -> Self {
        Self {
            run,
            number: 0,
            asked: VecDeque::new(),
            answered: 0,
            until_ms: 0,
            other: None,
            next_ms: 0,
        }
    }

    /// What to ask the managers now, and the number of the question; none if that is not due. One that is not `ready` to
    /// accept requests only looks.
    pub fn ask(&mut self, now_ms: u64, ready: bool) -> Option<(u64, GrantRequest)> {
        if now_ms < self.next_ms {
            return None;
        }
        let (ask, pause_ms) = match (self.is_held(now_ms), ready) {
            (true, _) => (GrantAsk::Holds, RENEW_MS),
            (false, true) => (GrantAsk::Wants, WAIT_MS),
            (false, false) => (GrantAsk::Looks, WAIT_MS),
        };
        self.next_ms = now_ms + pause_ms;
        self.number += 1;
        if self.asked.len() >= ASKED {
            self.asked.pop_front();
        }
        self.asked.push_back((self.number, now_ms));
        Some((self.number, self.request(ask)))
    }

    /// Gives it back, at the end.
    pub fn give_back(&mut self) -> GrantRequest {
        self.until_ms = 0;
        self.request(GrantAsk::Returns)
    }

    fn request(&self, ask: GrantAsk) -> GrantRequest {
        GrantRequest {
            v: shared::VERSION,
            run: self.run.clone(),
            ask,
        }
    }

    /// The answer to the question of this number. An earlier one than the last that was answered says nothing.
    pub fn answered(&mut self, number: u64, answer: &GrantAnswer) {
        let asked = self.asked.iter().find(|(asked, _)| *asked == number);
        let Some((_, sent_ms)) = asked.copied() else {
            return;
        };
        self.asked.retain(|(asked, _)| *asked > number);
        self.answered = number;
        if answer.granted {
            let ms = answer.ms.unwrap_or(0).min(MOST_MS);
            self.until_ms = sent_ms + ms.saturating_sub(MARGIN_MS);
            self.other = None;
            return;
        }
        self.until_ms = 0;
        self.other.clone_from(&answer.holder);
    }

    /// Nobody listens to the question of this number: no manager runs.
    pub fn no_manager(&mut self, now_ms: u64, number: u64) {
        // as long as it is held it is renewed all the same: one may come
        if number == self.number {
            self.next_ms = self.next_ms.max(now_ms + RENEW_MS);
        }
    }

    /// Whether any question was answered.
    pub fn is_heard(&self) -> bool {
        self.answered > 0
    }

    /// Whether it is held.
    pub fn is_held(&self, now_ms: u64) -> bool {
        now_ms < self.until_ms
    }

    /// Whether requests are taken.
    pub fn takes_requests(&self, now_ms: u64) -> bool {
        now_ms + CLOSE_MS < self.until_ms
    }

    /// Whether auctions may be held.
    pub fn standing(&self, now_ms: u64) -> Standing {
        match &self.other {
            _ if self.is_held(now_ms) => Standing::Holds,
            None => Standing::Waits,
            Some(_) => Standing::Other,
        }
    }

    /// The other auctioneer that holds it.
    pub fn other(&self) -> Option<&str> {
        self.other.as_deref()
    }

    /// When it must be looked at: to ask, or because it ends.
    pub fn next_ms(&self, now_ms: u64) -> u64 {
        let ends = [self.until_ms.saturating_sub(CLOSE_MS), self.until_ms];
        let later = ends.into_iter().filter(|at_ms| *at_ms > now_ms);
        later.fold(self.next_ms, u64::min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(granted: bool, holder: &str) -> GrantAnswer {
        GrantAnswer {
            v: shared::VERSION,
            manager: "m".into(),
            granted,
            ms: granted.then_some(5_000),
            holder: Some(holder.to_owned()),
        }
    }

    /// A grant that was asked for at this time, and given.
    fn held(at_ms: u64) -> Grant {
        let mut grant = Grant::new("run".into());
        let (number, asked) = grant.ask(at_ms, true).unwrap();
        assert_eq!(asked.ask, GrantAsk::Wants);
        grant.answered(number, &answer(true, "me"));
        grant
    }

    #[test]
    fn it_is_counted_from_when_it_was_asked_for_and_ends_early() {
        let grant = held(10_000);
        for (now_ms, held, takes) in [
            (10_000, true, true),
            (14_199, true, true),
            (14_200, true, false),
            (14_499, true, false),
            (14_500, false, false),
            // it stood still
            (99_000, false, false),
        ] {
            assert_eq!(grant.is_held(now_ms), held, "{now_ms}");
            assert_eq!(grant.takes_requests(now_ms), takes, "{now_ms}");
        }
        assert_eq!(grant.standing(14_500), Standing::Waits);
    }

    #[test]
    fn it_is_looked_at_when_it_asks_and_when_it_ends() {
        let mut grant = held(10_000);
        assert_eq!(grant.next_ms(10_000), 10_250);
        for at_ms in [10_250, 11_250, 12_250, 13_250] {
            assert_eq!(grant.ask(at_ms - 1, true), None);
            assert_eq!(grant.ask(at_ms, true).unwrap().1.ask, GrantAsk::Holds);
        }
        assert_eq!(grant.next_ms(13_250), 14_200);
        assert_eq!(grant.next_ms(14_200), 14_250);
        grant.ask(14_250, true);
        assert_eq!(grant.next_ms(14_250), 14_500);
    }

    #[test]
    fn the_last_answer_counts() {
        let mut grant = held(10_000);
        let (first, _) = grant.ask(11_000, true).unwrap();
        let (second, _) = grant.ask(12_000, true).unwrap();
        grant.answered(second, &answer(false, "b"));
        assert!(!grant.is_held(12_001));
        assert_eq!(grant.standing(12_001), Standing::Other);
        assert_eq!(grant.other(), Some("b"));
        // what overtook it was asked later
        grant.answered(first, &answer(true, "me"));
        assert!(!grant.is_held(12_002));
        // nor does an answer to nothing count
        grant.answered(77, &answer(true, "me"));
        assert!(!grant.is_held(12_002));
    }

    #[test]
    fn an_answer_that_comes_after_its_end_is_of_no_use() {
        let mut grant = Grant::new("run".into());
        let (number, _) = grant.ask(10_000, true).unwrap();
        grant.answered(number, &answer(true, "me"));
        assert!(!grant.is_held(14_600));
        assert!(grant.is_heard());
    }

    #[test]
    fn one_that_is_not_ready_only_looks_and_asks_seldom_without_a_manager() {
        let mut grant = Grant::new("run".into());
        let (number, asked) = grant.ask(0, false).unwrap();
        assert_eq!(asked.ask, GrantAsk::Looks);
        grant.no_manager(5, number);
        assert!(!grant.is_heard());
        assert_eq!(grant.next_ms(5), 1_005);
        for n in 0..100 {
            grant.ask(2_000 + n * 1_000, true);
        }
        assert!(grant.asked.len() <= ASKED);
    }

    #[test]
    fn what_is_given_back_is_not_held() {
        let mut grant = held(10_000);
        assert_eq!(grant.give_back().ask, GrantAsk::Returns);
        assert!(!grant.is_held(10_001));
    }
}
