//! What another auctioneer's answer to a request says of its instances.

use std::sync::Arc;

use placement::{MAX_INSTANCES, Unplaced};
use shared::wire::{InstanceOutcome, StartReply, parse_indices};

use crate::ticket::Done;

/// An answer, as far as it can be read.
#[derive(Debug)]
pub(crate) struct OtherAnswer(Vec<InstanceOutcome>);

impl OtherAnswer {
    pub(crate) fn read(body: &[u8]) -> Self {
        let reply: Option<StartReply> = serde_json::from_slice(body).ok();
        Self(reply.map(|reply| reply.instances).unwrap_or_default())
    }

    /// The outcome of an instance; none if the answer does not list it.
    pub(crate) fn of(&self, index: u32) -> Option<Done> {
        let found = self.0.iter().find(|outcome| is_of(outcome, index))?;
        let why = found.reason.clone().map(|reason| Unplaced {
            reason,
            tally: found.tally.clone(),
        });
        Some(Done {
            outcome: found.outcome,
            cell: found.cell.clone(),
            why: why.map(Arc::new),
            duplicate_of: found.duplicate_of.clone(),
        })
    }
}

fn is_of(outcome: &InstanceOutcome, index: u32) -> bool {
    let indices = outcome.indices.as_deref();
    outcome.index == Some(index)
        || indices
            .and_then(|text| parse_indices(text, MAX_INSTANCES as usize))
            .is_some_and(|indices| indices.contains(&index))
}
