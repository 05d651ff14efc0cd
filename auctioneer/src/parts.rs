//! The parts of the auctioneer shared by auctions, answers and queries.

use placement::{Policy, random::SplitMix64};

use crate::{
    dispatches::Dispatches, feed::Feed, limits::Limits, past_auctions::PastAuctions,
    report::Reports, requests::Requests, turn::Turn,
};
use shared::AuctionId;

/// The settings of a machine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name in answers.
    pub name: String,
    /// Its policy.
    pub policy: Policy,
    /// Limits on what others may ask for.
    pub limits: Limits,
    /// The largest message that the server accepts, in bytes.
    pub max_payload: usize,
    /// The source of all seeds and generated ids.
    pub seed: u64,
    /// Milliseconds since the Unix epoch at time 0.
    pub wall_start_ms: i64,
}

/// The parts. Each has private state; `auction`, `answers` and `questions` combine them.
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
    /// Returns the wall clock at this call, for dates that operators set.
    pub(crate) fn wall_ms(&self) -> i64 {
        let now_ms = i64::try_from(self.turn.now_ms).unwrap_or(i64::MAX);
        self.settings.wall_start_ms.saturating_add(now_ms)
    }

    /// Returns a random id drawn from the seed.
    pub(crate) fn new_auction_id(&mut self) -> AuctionId {
        let (high, low) = (self.random.draw(), self.random.draw());
        let bytes = uuid::Uuid::from_u64_pair(high, low).into_bytes();
        uuid::Builder::from_random_bytes(bytes).into_uuid().into()
    }
}
