//! Instances that run on several cells.

use std::sync::Arc;

use shared::{
    AuctionId, InstanceId, RequestId, VERSION,
    wire::{Event, Stop, kind, to_bytes},
};

use crate::{io::AuctioneerOutput, parts::Parts};

/// A cell that has or had an instance.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Holder {
    pub(super) ended: bool,
    pub(super) claim: AuctionId,
    pub(super) cell: Arc<str>,
    pub(super) request: Option<RequestId>,
}

/// Kills all copies of an instance that runs on several cells, except the one with the lowest claim, and announces that
/// claim to all auctioneers. `holders` are sorted.
pub(super) fn end_duplicates(
    parts: &mut Parts,
    app: &Arc<str>,
    instance: InstanceId,
    holders: &[Holder],
) {
    let mut running = holders.iter().filter(|holder| !holder.ended);
    // sorted by claim, so every auctioneer that looks keeps the same copy
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
            // with its claim: the cell must not end a copy that has been started for another claim since
            claim: Some(holder.claim),
        };
        parts.turn.out.push(AuctioneerOutput::EndDuplicates {
            cell: Arc::clone(&holder.cell),
            body: to_bytes(&stop),
        });
    }
    // an auctioneer that has answered with a killed copy must learn that its answer is no longer true
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
