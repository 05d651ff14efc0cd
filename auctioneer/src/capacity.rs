//! "How many more of this size fit, and where?"

use placement::Explain;
use shared::{
    VERSION,
    wire::{CapacityAnswer, to_bytes},
};

use crate::ids::ReplyKey;
use crate::{
    auction::Auctioneer,
    io::{AdmittedRequest, AuctioneerOutput},
};

impl Auctioneer {
    /// Counts over the pool as it is now: nothing is debited, nothing is sent.
    pub(crate) fn capacity(&mut self, now_ms: u64, asked: &AdmittedRequest, reply: ReplyKey) {
        let draw = self.draw_now(now_ms, Explain::Winner);
        let (pool, policy) = (self.feed.pool(), &self.settings.policy);
        let body = to_bytes(&CapacityAnswer {
            v: VERSION,
            auctioneer: self.settings.name.clone(),
            policy: policy.name().to_owned(),
            cells: pool.len() - draw.absent.len(),
            capacity: pool.capacity(&asked.request, policy, &draw),
            warnings: asked.warnings.clone(),
        });
        self.out.push(AuctioneerOutput::Reply { to: reply, body });
    }
}
