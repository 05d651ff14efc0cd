//! Cells' answers to starts: accepted, refused, missing or late.

use std::sync::Arc;

use placement::{FastMap, FastSet, Tally, Unplaced};
use shared::wire::{Acceptance, Outcome, Refusal, kind, reason};

use crate::{
    dispatches::{Dispatch, START_WAIT_MS, Unsettled},
    ids::DispatchId,
    io::AuctioneerOutput,
    parts::Parts,
    report::{Line, Lines},
    ticket::{Done, Slot, because},
};
use shared::InstanceId;

/// Handles a cell's answer to a start.
pub(crate) fn answered(parts: &mut Parts, dispatch: DispatchId, answer: &Acceptance) {
    // for late answers, too: what an answer says about the cell is true whether or not anybody still waits for it
    parts.feed.answered(answer);
    parts.feed.has_answered(&answer.cell);
    let Some(dispatch) = parts.dispatches.answered_by(dispatch, &answer.cell) else {
        return late(parts, answer);
    };
    let accepted: FastSet<&InstanceId> = answer.accepted.iter().collect();
    let refusals = answer.refused.iter().map(|r| (r.instance, r));
    let refusals: FastMap<InstanceId, &Refusal> = refusals.collect();
    let mut outdated = false;
    for &(slot, instance) in &dispatch.jobs {
        if accepted.contains(&instance) {
            parts.turn.counters.accepted += 1;
            report(parts, &dispatch, slot, kind::PLACED, None);
            let done = Done::placed(Arc::clone(&dispatch.cell));
            parts.requests.finish_sent(&mut parts.turn, slot, done);
        } else if let Some(refusal) = refusals.get(&instance) {
            // these reasons mean that our view of the cell is wrong, so the next start would be refused as well
            outdated |= [reason::RESTARTED, reason::STALE, reason::DRAINING]
                .contains(&refusal.reason.as_str());
            refused(parts, &dispatch, slot, refusal);
        } else {
            unknown(
                parts,
                &dispatch,
                slot,
                instance,
                "it is missing in the cell's answer",
            );
        }
    }
    if outdated {
        // what we know of the cell is out of date: ask for its state
        parts.feed.absent(&dispatch.cell, parts.turn.now_ms);
        parts.turn.out.push(AuctioneerOutput::AskState {
            cell: Arc::clone(&dispatch.cell),
        });
    }
}

/// Records and reports what became of an instance that was sent.
fn report(
    parts: &mut Parts,
    dispatch: &Dispatch,
    slot: Slot,
    kind: &'static str,
    why: Option<Arc<Unplaced>>,
) {
    let (app, line) = (parts.requests.app_of(slot), parts.requests.line(slot));
    let (Some(app), Some(mut line)) = (app, line) else {
        return;
    };
    if let Some(why) = &why {
        // `explain` reports this outcome; without it, it would show what the auction had planned
        let outcome = match kind {
            kind::UNKNOWN => Outcome::Unknown,
            _ => Outcome::Unplaced,
        };
        let outcome = (outcome, Arc::clone(why));
        parts
            .past_auctions
            .record_outcome(dispatch.auction, line.instance, outcome);
    }
    line.cell = Some(Arc::clone(&dispatch.cell));
    line.why = why;
    for event in parts.reports.record(dispatch.auction, &app, kind, line) {
        parts.turn.event(event);
    }
}

fn refused(parts: &mut Parts, dispatch: &Dispatch, slot: Slot, refusal: &Refusal) {
    parts.turn.counters.refused += 1;
    let number = |n: Option<i64>| n.map(|n| n as f64);
    let why = Arc::new(Unplaced {
        reason: format!("{} refused: {}", dispatch.cell, refusal.reason),
        tally: vec![Tally {
            stage: "cell".into(),
            cells: 1,
            needs: number(refusal.needs),
            best: number(refusal.has),
            reason: Some(refusal.reason.clone()),
            devices: None,
            names: vec![dispatch.cell.as_ref().to_owned()],
        }],
    });
    report(parts, dispatch, slot, kind::REFUSED, Some(Arc::clone(&why)));
    if let Some(ticket) = parts.requests.get_mut(slot.ticket) {
        // counted separately: after two of them the next start is sent without the count that the cell compares
        let changed = refusal.reason == reason::CHANGED;
        ticket.instances[slot.position].changed += u8::from(changed);
    }
    // its client wants it stopped: another auction would start it again
    if refusal.reason == reason::STOPPED {
        return parts.requests.give_up(&mut parts.turn, slot, why);
    }
    again(parts, slot, why);
}

/// Puts the instance into the next auction, if it may still enter one.
fn again(parts: &mut Parts, slot: Slot, why: Arc<Unplaced>) {
    if !parts.requests.again(parts.turn.now_ms, slot) {
        parts.requests.give_up(&mut parts.turn, slot, why);
    }
}

/// Handles a start without responders: the next auction leaves out that cell.
pub(crate) fn no_responders(parts: &mut Parts, dispatch: DispatchId) {
    let Some(dispatch) = parts.dispatches.undelivered(dispatch) else {
        parts.turn.counters.stray_answers += 1;
        return;
    };
    parts.turn.counters.no_responders += 1;
    let instances: Vec<InstanceId> = dispatch.jobs.iter().map(|(_, id)| *id).collect();
    // nobody received the message, so the cell can never accept it: its room is free at once
    parts.feed.undebit(&dispatch.cell, &instances);
    parts.feed.absent(&dispatch.cell, parts.turn.now_ms);
    let why = because(format!("no responders for cell {}", dispatch.cell));
    for &(slot, _) in &dispatch.jobs {
        report(
            parts,
            &dispatch,
            slot,
            kind::REFUSED,
            Some(Arc::clone(&why)),
        );
        again(parts, slot, Arc::clone(&why));
    }
}

/// Gives up starts that were not answered in time: their instances become unknown.
pub(crate) fn unanswered(parts: &mut Parts) {
    while let Some(dispatch) = parts.dispatches.next_unanswered(parts.turn.now_ms) {
        parts.turn.counters.unanswered += 1;
        let seconds = START_WAIT_MS / 1_000;
        let why = format!("no answer within {seconds}s; not started elsewhere");
        // the debits stay: the cell may have accepted the start and its answer may have been lost
        for &(slot, instance) in &dispatch.jobs {
            unknown(parts, &dispatch, slot, instance, &why);
        }
        // without this, a policy that asks for no bids would send the next work to a cell that hangs
        parts.feed.absent(&dispatch.cell, parts.turn.now_ms);
    }
}

fn unknown(parts: &mut Parts, dispatch: &Dispatch, slot: Slot, instance: InstanceId, why: &str) {
    let (app, line) = (parts.requests.app_of(slot), parts.requests.line(slot));
    if let (Some(app), Some(line)) = (app, line) {
        let unsettled = Unsettled {
            request: line.request,
            app,
            index: line.index,
            cell: Arc::clone(&dispatch.cell),
            auction: dispatch.auction,
        };
        parts.dispatches.await_late(instance, unsettled);
    }
    report(parts, dispatch, slot, kind::UNKNOWN, Some(because(why)));
    let done = Done::unknown(Some(Arc::clone(&dispatch.cell)), why);
    parts.requests.finish_sent(&mut parts.turn, slot, done);
}

/// Handles a late answer: settles unknown instances and reports them in events.
fn late(parts: &mut Parts, answer: &Acceptance) {
    let mut any = false;
    for instance in &answer.accepted {
        // an advertisement often settles much of a late answer first: only instances that are still unknown count
        any |= settle(parts, *instance, None);
    }
    for refusal in &answer.refused {
        let why = because(format!("{} refused late: {}", answer.cell, refusal.reason));
        any |= settle(parts, refusal.instance, Some(why));
    }
    parts.turn.counters.stray_answers += u64::from(!any);
}

/// Settles an unknown instance: it runs or, if `why` is given, does not. Returns whether it was unknown.
pub(crate) fn settle(parts: &mut Parts, instance: InstanceId, why: Option<Arc<Unplaced>>) -> bool {
    let Some(unsettled) = parts.dispatches.settle(instance) else {
        return false;
    };
    parts.turn.counters.settled_late += 1;
    let past = &mut parts.past_auctions;
    let kind = match &why {
        None => {
            past.clear_outcome(unsettled.auction, instance);
            kind::PLACED
        }
        Some(why) => {
            let outcome = (Outcome::Unplaced, Arc::clone(why));
            past.record_outcome(unsettled.auction, instance, outcome);
            kind::UNPLACED
        }
    };
    let mut lines = Lines::default();
    lines.add(Line {
        request: unsettled.request,
        index: unsettled.index,
        instance,
        cell: Some(unsettled.cell),
        why,
        traceparent: None,
    });
    let event = lines.event(kind, &unsettled.app, Some(unsettled.auction));
    parts.turn.event(event);
    true
}
