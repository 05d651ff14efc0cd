//! Which of the auctioneers that are run with `--single` accepts requests: the manager that acts grants it to one of
//! them at a time.
//!
//! A grant lasts for [`GRANT_MS`] from when the request for it was heard. The auctioneer counts from when it sent that
//! request, which is earlier, and stops before the end; clocks are never compared. A manager that has just gained the lease
//! does not know what the one before granted: for [`GRANT_MS`] it only renews what an auctioneer says it holds.
//! Nothing is kept but the one holder.

use shared::{
    VERSION,
    wire::{GrantAnswer, GrantAsk},
};

/// How long a grant lasts.
pub const GRANT_MS: u64 = 5_000;

/// The auctioneer that has the grant.
#[derive(Clone, Debug)]
struct Holder {
    auctioneer: String,
    run: String,
    until_ms: u64,
}

/// What an auctioneer is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantReply {
    /// Whether it has the grant.
    pub granted: bool,
    /// The auctioneer that has it.
    pub holder: Option<String>,
}

impl GrantReply {
    /// The answer of this manager, as it is sent.
    pub fn answer(self, manager: &str) -> GrantAnswer {
        GrantAnswer {
            v: VERSION,
            manager: manager.to_owned(),
            granted: self.granted,
            ms: self.granted.then_some(GRANT_MS),
            holder: self.holder,
        }
    }
}

/// The grant as the manager in office knows it.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// When this manager gained the lease.
    since_ms: u64,
    holder: Option<Holder>,
    changes: u64,
}

impl Grants {
    /// The lease was gained: others may have granted meanwhile.
    pub fn gained(&mut self, now_ms: u64) {
        (self.since_ms, self.holder) = (now_ms, None);
    }

    /// An auctioneer, in this run of it, asks. Only for a manager that may act now.
    pub fn ask(&mut self, now_ms: u64, auctioneer: &str, run: &str, ask: GrantAsk) -> GrantReply {
        self.holder.take_if(|holder| holder.until_ms <= now_ms);
        let own = |holder: &Holder| holder.auctioneer == auctioneer && holder.run == run;
        let has_it = self.holder.as_ref().is_some_and(own);
        let settled = now_ms >= self.since_ms + GRANT_MS;
        let asks = match ask {
            GrantAsk::Looks => false,
            GrantAsk::Wants => settled,
            GrantAsk::Holds => true,
            GrantAsk::Returns => {
                self.holder.take_if(|_| has_it);
                false
            }
        };
        let granted = asks && (has_it || self.holder.is_none());
        if granted {
            self.changes += u64::from(!has_it);
            self.holder = Some(Holder {
                auctioneer: auctioneer.to_owned(),
                run: run.to_owned(),
                until_ms: now_ms + GRANT_MS,
            });
        }
        let holder = self.holder.as_ref();
        GrantReply {
            granted,
            holder: holder.map(|holder| holder.auctioneer.clone()),
        }
    }

    /// The auctioneer that has the grant now.
    pub fn holder(&self, now_ms: u64) -> Option<&str> {
        let holder = self.holder.as_ref();
        let holder = holder.filter(|holder| holder.until_ms > now_ms);
        holder.map(|holder| holder.auctioneer.as_str())
    }

    /// How often it was granted to an auctioneer that did not have it.
    pub fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use GrantAsk::{Holds, Looks, Returns, Wants};

    use super::*;

    /// When an auctioneer asks, in which run, for what; whether it is granted, and who has it then.
    type Row = (
        u64,
        &'static str,
        &'static str,
        GrantAsk,
        bool,
        Option<&'static str>,
    );

    fn play(since_ms: u64, rows: &[Row]) {
        let mut grants = Grants::default();
        grants.gained(since_ms);
        for (at_ms, auctioneer, run, ask, granted, holder) in rows {
            let reply = grants.ask(*at_ms, auctioneer, run, *ask);
            let row = format!("{at_ms} {auctioneer} {run} {ask:?}: {reply:?}");
            assert_eq!(reply.granted, *granted, "{row}");
            assert_eq!(reply.holder.as_deref(), *holder, "{row}");
            assert_eq!(grants.holder(*at_ms), *holder, "{row}");
        }
    }

    #[test]
    fn one_at_a_time_has_it_until_it_is_not_renewed() {
        play(
            0,
            &[
                (5_000, "a", "1", Wants, true, Some("a")),
                (5_100, "b", "1", Wants, false, Some("a")),
                (5_200, "b", "1", Looks, false, Some("a")),
                (9_999, "a", "1", Holds, true, Some("a")),
                (14_998, "b", "1", Wants, false, Some("a")),
                (14_999, "b", "1", Wants, true, Some("b")),
                // it says so, but another one has it
                (15_000, "a", "1", Holds, false, Some("b")),
            ],
        );
    }

    #[test]
    fn what_is_given_back_is_free_at_once_for_whoever_asks_next() {
        play(
            0,
            &[
                (6_000, "a", "1", Wants, true, Some("a")),
                // not its own
                (6_100, "b", "1", Returns, false, Some("a")),
                (6_200, "a", "2", Returns, false, Some("a")),
                (6_300, "a", "1", Returns, false, None),
                (6_301, "b", "1", Wants, true, Some("b")),
            ],
        );
    }

    #[test]
    fn another_run_of_the_same_name_waits_for_the_end() {
        play(
            0,
            &[
                (6_000, "a", "1", Wants, true, Some("a")),
                (7_000, "a", "2", Wants, false, Some("a")),
                (7_000, "a", "2", Holds, false, Some("a")),
                (11_000, "a", "2", Wants, true, Some("a")),
            ],
        );
    }

    #[test]
    fn a_manager_that_is_new_in_office_only_renews_at_first() {
        play(
            20_000,
            &[
                (20_100, "b", "1", Wants, false, None),
                (20_200, "a", "1", Holds, true, Some("a")),
                (20_300, "b", "1", Holds, false, Some("a")),
                // it may have lost it meanwhile to one that is not heard
                (20_400, "a", "1", Wants, false, Some("a")),
                (20_500, "a", "1", Returns, false, None),
                (24_999, "b", "1", Wants, false, None),
                (25_000, "b", "1", Wants, true, Some("b")),
            ],
        );
    }

    #[test]
    fn what_was_granted_before_the_lease_was_lost_is_forgotten() {
        let mut grants = Grants::default();
        assert!(grants.ask(6_000, "a", "1", Wants).granted);
        grants.gained(6_500);
        assert_eq!(grants.holder(6_500), None);
        assert!(!grants.ask(7_000, "a", "1", Wants).granted);
        assert!(grants.ask(11_500, "b", "1", Wants).granted);
        assert_eq!(grants.changes(), 2);
    }
}
