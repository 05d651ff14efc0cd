//! What another auctioneer's answer to a request says about its instances.

use std::sync::Arc;

use placement::{MAX_INSTANCES, Unplaced};
use shared::wire::{InstanceOutcome, StartReply, parse_indices};

use crate::ticket::Done;

/// An answer, as far as it can be read.
#[derive(Debug)]
pub(crate) struct OtherAnswer(Vec<InstanceOutcome>);

impl OtherAnswer {
    pub(crate) fn read(body: &[u8]) -> Self {
        // an error lists no instances: then nothing is known about them
        let reply: Option<StartReply> = serde_json::from_slice(body).ok();
        Self(reply.map(|reply| reply.instances).unwrap_or_default())
    }

    /// Returns the outcome of an instance; none if the answer does not list it.
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

#[cfg(test)]
mod tests {
    use shared::wire::Outcome;

    use super::*;

    #[test]
    fn an_instance_is_found_by_its_index_or_in_a_group() {
        let answer = OtherAnswer::read(
            br#"{"v":1,"id":"r","app":"web","outcome":"unplaced","instances":[
                {"index":1,"outcome":"placed","cell":"c1"},
                {"indices":"3-5","outcome":"unplaced","reason":"none fits"}]}"#,
        );
        let outcomes = [0, 1, 2, 3, 5, 6].map(|index| answer.of(index).map(|done| done.outcome));
        let (placed, unplaced) = (Some(Outcome::Placed), Some(Outcome::Unplaced));
        assert_eq!(outcomes, [None, placed, None, unplaced, unplaced, None]);
        assert!(OtherAnswer::read(b"garbage").of(0).is_none());
    }
}
