//! Instances that run on several cells.

use std::sync::Arc;

use shared::{
    AuctionId, InstanceId, RequestId, VERSION,
    wire::{Event, Stop, kind, to_bytes},
};

use crate::{io::AuctioneerOutput, parts::Parts};

/// A cell that has an instance, or had it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Holder {
    pub(super) ended: bool,
    pub(super) claim: AuctionId,
    pub(super) cell: Arc<str>,
    pub(super) request: Option<RequestId>,
}

/// Of an instance that runs on several cells, all but the one with the lowest claim are killed, and every
/// auctioneer learns which claim that is. `holders` are in order.
pub(super) fn end_duplicates(
    parts: &mut Parts,
    app: &Arc<str>,
    instance: InstanceId,
    holders: &[Holder],
) {
    let mut running = holders.iter().filter(|holder| !holder.ended);
    // in order of claims, so every auctioneer that looks keeps the same one
    let Some(stays) = running.next() else {
        return;
    };
    let mut killed = false;
    for holder in running {
        killed = true;
        parts.turn.counters.duplicates_ended += 1;
        let stop = Stop {
            v: VERSION,
            app: app.as_ref().to_owned(),
            indices: Vec::new(),
            instances: vec![instance],
            // with its claim: the cell must not end a copy that has been started for another claim meanwhile
            claim: Some(holder.claim),
        };
        parts.turn.out.push(AuctioneerOutput::EndDuplicates {
            cell: Arc::clone(&holder.cell),
            body: to_bytes(&stop),
        });
    }
    // whoever has answered with the copy that is killed must learn that its answer is no longer true
    if let (true, Some(request)) = (killed, &stays.request) {
        let mut event = Event::app(kind::ASKED, app.as_ref());
        event.auction = Some(stays.claim);
        event.request = Some(request.clone());
        parts.turn.event(event);
        parts
            .requests
            .announced(parts.turn.now_ms, request, stays.claim);
    }
}
