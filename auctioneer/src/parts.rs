//! The parts of the auctioneer that are used by auctions, answers and queries.

use placement::Policy;
use shared::random::SplitMix64;

use crate::{
    dispatches::Dispatches, feed::Feed, past_auctions::PastAuctions, report::Reports,
    requests::Requests, turn::Turn,
};
use shared::AuctionId;

/// How much others may ask for, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest ttl of an advertisement: a longer one counts as this. So what a forged one says is
    /// not believed for longer.
    pub max_ttl_ms: u64,
    /// The longest `queue_timeout`.
    pub max_queue_ms: u64,
}

impl Limits {
    /// The most that an operator may allow: a ttl of an hour, a `queue_timeout` of a day.
    pub const MOST: Self = Self {
        max_ttl_ms: 3_600_000,
        max_queue_ms: 24 * 3_600_000,
    };
}

impl Default for Limits {
    /// A ttl of a minute, four times the default of `vendue rep`; a `queue_timeout` of an hour.
    fn default() -> Self {
        Self {
            max_ttl_ms: 60_000,
            max_queue_ms: 3_600_000,
        }
    }
}

/// The settings of a machine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name in answers.
    pub name: String,
    /// How it decides.
    pub policy: Policy,
    /// How much others may ask for.
    pub limits: Limits,
    /// The largest message that the server accepts, bytes.
    pub max_payload: usize,
    /// All seeds and generated ids follow from this.
    pub seed: u64,
    /// Milliseconds since the Unix epoch at time 0.
    pub wall_start_ms: i64,
}

/// Each part has private state; `auction`, `answers` and `questions` combine them.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) settings: Settings,
    pub(crate) random: SplitMix64,
    pub(crate) feed: Feed,
    pub(crate) requests: Requests,
    pub(crate) dispatches: Dispatches,
    pub(crate) reports: Reports,
    pub(crate) past_auctions: PastAuctions,
    pub(crate) turn: Turn,
}

impl Parts {
    /// The wall clock at this call, for dates that operators set.
    pub(crate) fn wall_ms(&self) -> i64 {
        let now_ms = i64::try_from(self.turn.now_ms).unwrap_or(i64::MAX);
        self.settings.wall_start_ms.saturating_add(now_ms)
    }

    /// A random id, from the seed.
    pub(crate) fn new_auction_id(&mut self) -> AuctionId {
        let (high, low) = (self.random.draw(), self.random.draw());
        let bytes = uuid::Uuid::from_u64_pair(high, low).into_bytes();
        uuid::Builder::from_random_bytes(bytes).into_uuid().into()
    }
}
