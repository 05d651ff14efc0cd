//! The rules of an auction, some of which a scenario may set.

use std::{fmt, str::FromStr, time::Duration};

use placement::Invalid;
use serde::Deserialize;

use crate::random::Distribution;

/// Which cells are asked in a round, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// One random cell is asked to reserve; it runs the instance unless it refuses.
    Random,
    /// The pool bids and the lowest bidder is asked to reserve; it runs the instance unless it refuses.
    PickBest,
    /// The pool bids, the few lowest reserve and bid again; the lowest runs, the others release.
    ReserveNBest,
    /// The pool bids, the lowest bidder reserves and bids again, and so do the others: if one of them is lower now, the
    /// reservation is released and another round begins.
    AllRebid,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 4] = [
        Self::Random,
        Self::PickBest,
        Self::ReserveNBest,
        Self::AllRebid,
    ];

    /// Returns its name in scenario files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::PickBest => "pick_best",
            Self::ReserveNBest => "reserve_n_best",
            Self::AllRebid => "all_rebid",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = Invalid;

    /// Hyphens are accepted for underscores.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        let name = text.replace('-', "_");
        let found = Self::ALL.into_iter().find(|a| a.name() == name);
        found.ok_or_else(|| {
            let expected = "random, pick_best, reserve_n_best or all_rebid";
            Invalid::new("algorithm", format!("{text:?}"), expected)
        })
    }
}

/// The order in which instances requested at one moment get their auctions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Random: every instance had its own auction, in no particular order.
    #[default]
    Random,
    /// In the order of the requests, then by index.
    AsAsked,
}

/// The rules of the auctions. A file must set `algorithm`; the defaults of the rest are in
/// [`Rules::of`].
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RulesFile")]
pub struct Rules {
    /// Which cells are asked in a round, and for what.
    pub algorithm: Algorithm,
    /// An auction that needs more rounds has no winner. 1 to 10,000.
    pub max_rounds: u32,
    /// The share of the cells that bid in a round, 0 to 1. `random` asks one cell regardless.
    pub pool_fraction: f64,
    /// The minimum number of bidders if there are enough cells; 1 or more.
    pub pool_min: u32,
    /// How many reserve under `reserve_n_best`; 1 or more.
    pub n_best: u32,
    /// Under `all_rebid`, the winner's bid is compared with the bid at this place among the sorted second bids: 0 = the
    /// lowest, 1 = the highest.
    pub percentile: f64,
    /// Number of auctions that an auctioneer holds at a time, 1 to 10,000. Concurrent auctions interfere.
    pub at_once: u32,
    /// Number of auctioneers, 1 to 1,000; each auction goes to a random one.
    pub auctioneers: u32,
    /// An answer that takes longer counts as missing. 1 ms or more.
    pub timeout: Duration,
    /// How long a cell takes to start an instance. The auctioneer waits for it before it begins the
    /// next auction: with slow starts, few auctions negotiate at a time.
    pub run: Distribution,
    /// The order of auctions requested at one moment.
    pub order: Order,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesFile {
    algorithm: Algorithm,
    max_rounds: Option<u32>,
    pool_fraction: Option<f64>,
    pool_min: Option<u32>,
    n_best: Option<u32>,
    percentile: Option<f64>,
    at_once: Option<u32>,
    auctioneers: Option<u32>,
    timeout: Option<placement::Span>,
    run: Option<Distribution>,
    order: Option<Order>,
}

impl TryFrom<RulesFile> for Rules {
    type Error = Invalid;

    fn try_from(file: RulesFile) -> Result<Self, Invalid> {
        let usual = Self::of(file.algorithm);
        let rules = Self {
            algorithm: file.algorithm,
            max_rounds: file.max_rounds.unwrap_or(usual.max_rounds),
            pool_fraction: file.pool_fraction.unwrap_or(usual.pool_fraction),
            pool_min: file.pool_min.unwrap_or(usual.pool_min),
            n_best: file.n_best.unwrap_or(usual.n_best),
            percentile: file.percentile.unwrap_or(usual.percentile),
            at_once: file.at_once.unwrap_or(usual.at_once),
            auctioneers: file.auctioneers.unwrap_or(usual.auctioneers),
            timeout: file.timeout.map_or(usual.timeout, |span| span.0),
            run: file.run.unwrap_or(usual.run),
            order: file.order.unwrap_or(usual.order),
        };
        rules.check()?;
        Ok(rules)
    }
}

impl Rules {
    /// Returns the defaults of each algorithm as of its last use: 100 rounds (40 for `reserve_n_best`, which was
    /// deleted in August 2014), a pool of a fifth of the cells but at least 10, 20 auctions at a time, and one second
    /// for an answer. A start takes no time, as in the simulator until August 2014, so all 20 auctions negotiate.
    pub fn of(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            max_rounds: if algorithm == Algorithm::ReserveNBest {
                40
            } else {
                100
            },
            pool_fraction: 0.2,
            pool_min: 10,
            n_best: 5,
            percentile: 0.2,
            at_once: 20,
            auctioneers: 1,
            timeout: Duration::from_secs(1),
            run: Distribution::Constant(Duration::ZERO),
            order: Order::Random,
        }
    }

    /// Returns the same rules, except that an auctioneer waits 0.8 to 0.9 s for each start, as in the simulator from
    /// August 2014 on. There, 20 auctions were held at a time for each cell; with 20 in all, as here, auctions rarely
    /// negotiate at the same time.
    pub fn with_slow_starts(algorithm: Algorithm) -> Self {
        Self {
            run: Distribution::Uniform(Duration::from_millis(800), Duration::from_millis(900)),
            ..Self::of(algorithm)
        }
    }

    /// Rejects rules out of bounds.
    pub fn check(&self) -> Result<(), Invalid> {
        for (field, number, most) in [
            ("max_rounds", self.max_rounds, 10_000),
            ("pool_min", self.pool_min, u32::MAX),
            ("n_best", self.n_best, u32::MAX),
            ("at_once", self.at_once, 10_000),
            ("auctioneers", self.auctioneers, 1_000),
        ] {
            if !(1..=most).contains(&number) {
                return Err(Invalid::new(
                    field,
                    number,
                    format!("a number from 1 to {most}"),
                ));
            }
        }
        for (field, share) in [
            ("pool_fraction", self.pool_fraction),
            ("percentile", self.percentile),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(Invalid::new(field, share, "a number from 0 to 1"));
            }
        }
        if self.timeout < Duration::from_millis(1) {
            let value = format!("{:?}", self.timeout);
            return Err(Invalid::new("timeout", value, "1ms or more"));
        }
        Ok(())
    }

    /// Returns the number of bidders in a round over `n` cells.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to n
    pub fn pool(&self, n: usize) -> usize {
        if self.pool_fraction >= 1.0 {
            return n;
        }
        let share = (n as f64 * self.pool_fraction).ceil() as usize;
        share.max(self.pool_min as usize).min(n)
    }
}
