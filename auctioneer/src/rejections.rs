//! Reports rejected requests: one event per app, and the error.

use std::collections::BTreeMap;

use shared::wire::{Event, WireError, code, kind, to_bytes};

use crate::{
    io::{AuctioneerOutput, Rejected},
    turn::Turn,
};

/// Publishes one event per app and, if asked to, the outcome of requests that have no reply subject.
pub(crate) fn report<'r>(
    turn: &mut Turn,
    rejected: impl Iterator<Item = &'r Rejected>,
    publish_outcome: bool,
) {
    let mut apps: BTreeMap<&str, Event> = BTreeMap::new();
    for why in rejected {
        let app = why.app.as_deref().unwrap_or("unknown");
        // with the first reason: an array mostly repeats one fault, and the reply has all of them
        let event = apps.entry(app).or_insert_with(|| Event {
            reason: Some(why.error.message.clone()),
            request: Some(why.id.clone()),
            ..Event::app(kind::REJECTED, app)
        });
        event.count += 1;
        // without a reply subject this is the only answer that the sender can look for
        if publish_outcome {
            turn.out.push(AuctioneerOutput::Outcome {
                id: why.id.clone(),
                body: to_bytes(&why.error.body()),
            });
        }
    }
    for event in apps.into_values() {
        turn.event(event);
    }
}

/// Returns the first error, with the number of the others.
pub(crate) fn first_error(rejected: &[Rejected]) -> WireError {
    let Some((first, others)) = rejected.split_first() else {
        return WireError::new(code::INVALID_REQUEST, "no request");
    };
    let mut error = first.error.clone();
    let message = &error.message;
    match others.len() {
        0 => {}
        1 => error.message = format!("{message} (and 1 other request is invalid)"),
        n => error.message = format!("{message} (and {n} other requests are invalid)"),
    }
    error
}
