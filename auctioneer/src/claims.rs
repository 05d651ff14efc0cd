//! Two auctioneers that have begun the same request: the one with the lower claim counts. A claim is the
//! id of the auction with which an auctioneer began a request; it stands in its announcement, in its
//! starts and in its answer.
//!
//! Whoever hears that the other one's claim is lower sends nothing more, and answers what the other one
//! answers. What both have sent is looked for on the cells, which know for which claim they run what:
//! that with the lowest claim stays. So it does not matter which of the two is still there to see it.

use std::sync::Arc;

use bytes::Bytes;
use shared::{
    AuctionId, RequestId,
    wire::{Event, format_indices, kind},
};

use crate::{
    ids::TicketId,
    io::{Announcement, AuctioneerOutput},
    lookups::Lookups,
    outcomes::{Ended, Seen},
    parts::Parts,
    reply,
};

/// An auctioneer, this one or another, has begun requests.
pub(crate) fn announced(parts: &mut Parts, lookups: &mut Lookups, announcement: &Announcement) {
    let mut yielding = Vec::new();
    for id in &announcement.ids {
        match parts.requests.by_id(id) {
            Some(key) if rival(parts, lookups, key, announcement.claim) => yielding.push(key),
            Some(_) => {}
            None => rival_of_ended(parts, lookups, id, announcement.claim),
        }
    }
    // together: each time all that waits is looked through
    give_way(parts, lookups, &yielding);
}

/// A request that is open here was begun elsewhere, too, unless it is our own echo. Whether it gives way.
fn rival(parts: &mut Parts, lookups: &mut Lookups, key: TicketId, theirs: AuctionId) -> bool {
    let now_ms = parts.turn.now_ms;
    let Some(ticket) = parts.requests.get_mut(key) else {
        return false;
    };
    // our own announcement comes back: nobody else has this claim
    if ticket.claim == Some(theirs) {
        return false;
    }
    // from now on our answer is not final: which copy stays is seen on the cells
    ticket.contested = true;
    ticket.announced = true;
    let (id, begun) = (ticket.id.clone(), Arc::new(ticket.begun()));
    let (ours, yielded) = (ticket.claim, ticket.yielded);
    lookups.watch(now_ms, &id, begun);
    if let Some(ours) = ours.filter(|ours| *ours < theirs) {
        // they may not have heard of ours
        tell_ours(parts, key, ours);
        return false;
    }
    !yielded
}

/// The other one learns that our claim is lower, with the answer if there is one.
fn tell_ours(parts: &mut Parts, key: TicketId, ours: AuctionId) {
    let Some(ticket) = parts.requests.get(key) else {
        return;
    };
    // an outcome says more than an announcement: it ends the other one's wait
    if ticket.replied {
        let answer = reply::answer(ticket, parts.turn.max_payload);
        return parts.turn.out.push(AuctioneerOutput::Outcome {
            id: answer.id,
            body: answer.body,
        });
    }
    let mut event = Event::app(kind::ASKED, ticket.app.as_ref());
    event.auction = Some(ours);
    event.count = ticket.instances.len();
    event.indices = Some(format_indices(ticket.instances.iter().map(|i| i.index)));
    event.request = Some(ticket.id.clone());
    parts.turn.event(event);
}

fn give_way(parts: &mut Parts, lookups: &mut Lookups, keys: &[TicketId]) {
    parts.turn.counters.gave_way += keys.len() as u64;
    parts.requests.give_way(keys);
    lookups.follow(parts.turn.now_ms, keys);
}

/// A request that has ended here was begun elsewhere: what runs twice is ended, and the other one is told the
/// answer, if it is certain.
fn rival_of_ended(parts: &mut Parts, lookups: &mut Lookups, id: &RequestId, theirs: AuctionId) {
    let now_ms = parts.turn.now_ms;
    let outcomes = parts.requests.outcomes();
    // once: where what runs twice cannot be killed, each tells the other of the claim again and again
    if outcomes.is_uncontested(id) && outcomes.claim(id) != Some(theirs) {
        if let Some(begun) = outcomes.own(id) {
            lookups.watch(now_ms, id, begun);
        }
        // an outcome that is not certain is not passed on: the other one asks the cells itself
        if let Some(Seen::Ended(body)) = outcomes.get(id.as_str()) {
            parts.turn.out.push(AuctioneerOutput::Outcome {
                id: id.clone(),
                body,
            });
        }
    }
    parts.requests.announced(now_ms, id, theirs);
}

/// The outcome of a request, ours come back or another auctioneer's.
pub(crate) fn outcome(parts: &mut Parts, lookups: &mut Lookups, id: &RequestId, body: Bytes) {
    let now_ms = parts.turn.now_ms;
    let Some(key) = parts.requests.by_id(id) else {
        return outcome_of_ended(parts, lookups, id, body);
    };
    let Some(ended) = heard(parts, id, body) else {
        return;
    };
    let announced = parts.requests.outcomes().is_announced(id);
    let Some(ticket) = parts.requests.get_mut(key) else {
        return;
    };
    // our own outcome comes back
    if ticket.claim.is_some() && ticket.claim == ended.claim {
        return;
    }
    if !ticket.was_sent() {
        // nothing of ours runs anywhere, so theirs is the whole truth
        if announced || ticket.announced {
            return parts.requests.end_with(&mut parts.turn, key, ended);
        }
        return look_first(parts, lookups, key, ended);
    }
    ticket.contested = true;
    let lower = ended.claim.is_some() && ticket.claim.is_none_or(|ours| ended.claim < Some(ours));
    let (begun, yielded) = (Arc::new(ticket.begun()), ticket.yielded);
    if lower {
        // which of the two copies there are is seen on the cells
        ticket.theirs = Some(ended.body);
    }
    lookups.watch(now_ms, id, begun);
    if lower && !yielded {
        give_way(parts, lookups, &[key]);
    }
}

/// An outcome, unless it is none; then that is counted.
fn heard(parts: &mut Parts, id: &RequestId, body: Bytes) -> Option<Ended> {
    let feed = &parts.feed;
    let ended = Ended::heard(id, body, |cell| feed.get(cell).is_some());
    parts.turn.counters.dropped_malformed += u64::from(ended.is_none());
    ended
}

/// An outcome of what waits here, which nobody has announced: it can be made up, or the announcement was
/// missed. The cells are asked before any of it is sent.
fn look_first(parts: &mut Parts, lookups: &mut Lookups, key: TicketId, ended: Ended) {
    let now_ms = parts.turn.now_ms;
    let Some(ticket) = parts.requests.get_mut(key) else {
        return;
    };
    ticket.contested = true;
    // it counts if we give way, and no cell has any of it any more
    ticket.theirs = Some(ended.body);
    let (id, begun) = (ticket.id.clone(), Arc::new(ticket.begun()));
    lookups.watch(now_ms, &id, begun);
    lookups.check(parts.requests.check_again(&[key]));
}

fn outcome_of_ended(parts: &mut Parts, lookups: &mut Lookups, id: &RequestId, body: Bytes) {
    let now_ms = parts.turn.now_ms;
    let outcomes = parts.requests.outcomes();
    if outcomes.is(id, &body) {
        return;
    }
    let Some(ended) = heard(parts, id, body) else {
        return;
    };
    let outcomes = parts.requests.outcomes();
    let known = outcomes.claim(id);
    if let Some(begun) = outcomes.own(id)
        && ended.claim.is_some()
        && ended.claim != known
    {
        lookups.watch(now_ms, id, begun);
    }
    parts.requests.remember_outcome(now_ms, id, ended);
}
