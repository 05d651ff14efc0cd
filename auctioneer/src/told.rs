//! What another auctioneer's answer to a request says of its instances.

use std::sync::Arc;

use placement::{MAX_INSTANCES, Unplaced};
use shared::wire::{InstanceOutcome, StartReply, parse_indices};

use crate::ticket::Done;

/// An answer, as far as it can be read.
#[derive(Debug)]
pub(crate) struct Told(Vec<InstanceOutcome>);

impl Told {
    pub(crate) fn read(body: &[u8]) -> Self {
        let reply: Option<StartReply> = serde_json::from_slice(body).ok();
        Self(reply.map(|reply| reply.instances).unwrap_or_default())
    }

    /// The outcome of an instance; none if the answer does not tell of it.
    pub(crate) fn of(&self, index: u32) -> Option<Done> {
        let told = self.0.iter().find(|told| tells_of(told, index))?;
        let why = told.reason.clone().map(|reason| Unplaced {
            reason,
            tally: told.tally.clone(),
        });
        Some(Done {
            outcome: told.outcome,
            cell: told.cell.clone(),
            why: why.map(Arc::new),
            duplicate_of: told.duplicate_of.clone(),
        })
    }
}

fn tells_of(told: &InstanceOutcome, index: u32) -> bool {
    let indices = told.indices.as_deref();
    told.index == Some(index)
        || indices
            .and_then(|text| parse_indices(text, MAX_INSTANCES as usize))
            .is_some_and(|indices| indices.contains(&index))
}
