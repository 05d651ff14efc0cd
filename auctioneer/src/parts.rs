//! The parts of the auctioneer that an auction, its answers and the questions share.

use placement::Policy;
use shared::random::SplitMix64;

use crate::{
    dispatches::Dispatches, feed::Feed, past_auctions::PastAuctions, report::Reports,
    requests::Requests, turn::Turn,
};
use shared::AuctionId;

/// What a machine is made with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name, as answers tell it.
    pub name: String,
    /// How it decides.
    pub policy: Policy,
    /// The largest message the server takes, bytes.
    pub max_payload: usize,
    /// Every seed and id is drawn from this.
    pub seed: u64,
    /// Milliseconds since the Unix epoch at time 0.
    pub wall_start_ms: i64,
}

/// Each part keeps its state to itself; what is done across them stands in `auction`, `answers` and
/// `questions`.
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
    /// The wall clock's time of this call, for dates that operators set.
    pub(crate) fn wall_ms(&self) -> i64 {
        let now_ms = i64::try_from(self.turn.now_ms).unwrap_or(i64::MAX);
        self.settings.wall_start_ms.saturating_add(now_ms)
    }

    /// A random id, from the seed.
    pub(crate) fn new_auction_id(&mut self) -> AuctionId {
        let (high, low) = (self.random.draw(), self.random.draw());
        let bytes = ((u128::from(high) << 64) | u128::from(low)).to_be_bytes();
        uuid::Builder::from_random_bytes(bytes).into_uuid().into()
    }
}
