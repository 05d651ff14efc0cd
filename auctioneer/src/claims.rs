//! Handles requests that two auctioneers have begun: the one with the lower claim counts. A claim is the id of the
//! auction with which an auctioneer began a request; it is part of its announcement, its starts and its answer.
//!
//! An auctioneer that hears of a lower claim sends nothing more and gives the other one's answer. What both have sent
//! is looked up on the cells, which know the claim of everything they run: the copy with the lowest claim stays. So it
//! does not matter which of the two is still there to see it.

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

/// Handles an announcement: an auctioneer, this one or another, has begun requests.
pub(crate) fn announced(parts: &mut Parts, lookups: &mut Lookups, announcement: &Announcement) {
    let mut yielding = Vec::new();
    for id in &announcement.ids {
        match parts.requests.by_id(id) {
            Some(key) if rival(parts, lookups, key, announcement.claim) => yielding.push(key),
            Some(_) => {}
            None => rival_of_ended(parts, lookups, id, announcement.claim),
        }
    }
    // all together, because each call walks everything that waits
    give_way(parts, lookups, &yielding);
}

/// Handles an announcement of a request that is open here, unless it is our own echo: another auctioneer has begun it,
/// too. Returns whether ours gives way.
fn rival(parts: &mut Parts, lookups: &mut Lookups, key: TicketId, theirs: AuctionId) -> bool {
    let now_ms = parts.turn.now_ms;
    let Some(ticket) = parts.requests.get_mut(key) else {
        return false;
    };
    // our own announcement comes back: nobody else has this claim
    if ticket.claim == Some(theirs) {
        return false;
    }
    // from now on our answer is not final: the cells show which copy stays
    ticket.contested = true;
    ticket.announced = true;
    let (id, begun) = (ticket.id.clone(), Arc::new(ticket.begun()));
    let (ours, yielded) = (ticket.claim, ticket.yielded);
    lookups.watch(now_ms, &id, begun);
    if let Some(ours) = ours.filter(|ours| *ours < theirs) {
        // the other auctioneer may not have heard of ours
        tell_ours(parts, key, ours);
        return false;
    }
    !yielded
}

/// Tells the other auctioneer that our claim is lower, and our answer if there is one.
fn tell_ours(parts: &mut Parts, key: TicketId, ours: AuctionId) {
    let Some(ticket) = parts.requests.get(key) else {
        return;
    };
    // an outcome says more than an announcement: it ends the other auctioneer's wait
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

/// Handles a request that has ended here and was begun elsewhere: copies that run twice are ended, and the other
/// auctioneer is told the answer if it is certain.
fn rival_of_ended(parts: &mut Parts, lookups: &mut Lookups, id: &RequestId, theirs: AuctionId) {
    let now_ms = parts.turn.now_ms;
    let outcomes = parts.requests.outcomes();
    // only once: if a duplicate cannot be killed, each auctioneer would keep telling the other of its claim
    if outcomes.is_uncontested(id) && outcomes.claim(id) != Some(theirs) {
        if let Some(begun) = outcomes.own(id) {
            lookups.watch(now_ms, id, begun);
        }
        // an uncertain outcome is not passed on: the other auctioneer asks the cells itself
        if let Some(Seen::Ended(body)) = outcomes.get(id.as_str()) {
            parts.turn.out.push(AuctioneerOutput::Outcome {
                id: id.clone(),
                body,
            });
        }
    }
    parts.requests.announced(now_ms, id, theirs);
}

/// Handles the outcome of a request, our own or another auctioneer's.
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
        // nothing of ours runs anywhere, so the other auctioneer's outcome is the whole truth
        if announced || ticket.announced {
            return parts.requests.end_with(&mut parts.turn, key, ended);
        }
        return look_first(parts, lookups, key, ended);
    }
    ticket.contested = true;
    let lower = ended.claim.is_some() && ticket.claim.is_none_or(|ours| ended.claim < Some(ours));
    let (begun, yielded) = (Arc::new(ticket.begun()), ticket.yielded);
    if lower {
        // the cells show which of the two copies exist
        ticket.theirs = Some(ended.body);
    }
    lookups.watch(now_ms, id, begun);
    if lower && !yielded {
        give_way(parts, lookups, &[key]);
    }
}

/// Reads an outcome; a body that is none is counted.
fn heard(parts: &mut Parts, id: &RequestId, body: Bytes) -> Option<Ended> {
    let feed = &parts.feed;
    let ended = Ended::heard(id, body, |cell| feed.get(cell).is_some());
    parts.turn.counters.dropped_malformed += u64::from(ended.is_none());
    ended
}

/// Handles an outcome of a request that waits here and that nobody has announced: it may be made up, or the
/// announcement was missed. The cells are asked before any of the request is sent.
fn look_first(parts: &mut Parts, lookups: &mut Lookups, key: TicketId, ended: Ended) {
    let now_ms = parts.turn.now_ms;
    let Some(ticket) = parts.requests.get_mut(key) else {
        return;
    };
    ticket.contested = true;
    // used if we give way and no cell has any of the request any more
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
