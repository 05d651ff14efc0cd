//! Moves that an operator asks for: an instance is started elsewhere, and the old one is stopped once the new one is
//! healthy, as on a draining cell (`decide::draining`). If the move fails, the old instance stays and the new one ends
//! as a duplicate.
//!
//! Moves are not stored: a manager that takes over begins the move again when it is asked for it again, and finds the
//! new instance if there is one.

use std::sync::Arc;

use shared::{
    InstanceId,
    clock::millis,
    wire::{MoveState, WireError, code},
};

use crate::{
    apps::App,
    commands::no_such_app,
    ids::{CellId, CommandKey},
    io::{ManagerOutput, MoveAnswer, MoveOrder},
    moves::{MAX_MOVES, Moving},
    parts::Parts,
    rules::UpdateOrder,
    stored::RolloutPhase,
};

/// How long a move may take if the app's `update.deadline` is 0.
const DEADLINE_MS: u64 = 600_000;
/// Pause between two looks at a move whose deadline is over.
const LOOK_AGAIN_MS: u64 = 1_000;

/// Handles a move order or a question about its state: the client repeats it until the move has ended.
pub(crate) fn take(parts: &mut Parts, to: CommandKey, app: &str, order: MoveOrder) {
    let answer = answer(parts, app, order);
    parts.out.push(ManagerOutput::Moved { to, answer });
}

fn answer(parts: &mut Parts, name: &str, order: MoveOrder) -> Result<MoveAnswer, WireError> {
    if !parts.may_act() {
        let message = "this manager does not act; try again";
        return Err(WireError::new(code::INTERNAL, message));
    }
    let ended = parts.moves.ended.iter().find(|(id, _)| *id == order.id);
    if let Some((_, answer)) = ended {
        return Ok(answer.clone());
    }
    let id = parts.apps.named(name).ok_or_else(|| no_such_app(name))?;
    let app = parts.apps.get(id).ok_or_else(|| no_such_app(name))?;
    let index = order.index;
    let on_way = parts.moves.on_way.iter();
    let mut on_way = on_way.filter(|moving| moving.app == id && moving.index == index);
    if let Some(moving) = on_way.next() {
        return if moving.id == order.id {
            Ok(MoveAnswer::moving())
        } else {
            Err(conflict(name, index, "is being moved already"))
        };
    }
    check(app, index)?;
    let (old, from) = match place(parts, app, &order)? {
        Place::Elsewhere(cell) => return Ok(MoveAnswer::moved(cell)),
        Place::There(old, from) => (old, from),
    };
    if parts.moves.on_way.len() >= MAX_MOVES {
        let message = format!("{MAX_MOVES} moves are on their way; try again");
        return Err(WireError::new(code::OVERLOADED, message));
    }
    let deadline_ms = match millis(app.record.definition.update.deadline.0) {
        0 => DEADLINE_MS,
        ms => ms,
    };
    let moving = Moving {
        id: order.id,
        app: id,
        uid: app.record.uid,
        index,
        old,
        from,
        due_ms: parts.now_ms + deadline_ms,
        sent: false,
    };
    parts.moves.on_way.push(moving);
    parts.apps.touch(id);
    Ok(MoveAnswer::moving())
}

fn conflict(app: &str, index: u32, why: &str) -> WireError {
    WireError::new(code::CONFLICT, format!("index {index} of {app} {why}"))
}

/// Checks that an index can be moved: the app must run as wanted.
fn check(app: &App, index: u32) -> Result<(), WireError> {
    let record = &app.record;
    if record.deleted {
        return Err(no_such_app(&app.name));
    }
    let wanted = record.definition.instances;
    if index >= wanted {
        let expected = format!("below {wanted}, the app's number of instances");
        return Err(placement::Invalid::new("index", index, expected).into());
    }
    let refuse = |why| Err(conflict(&app.name, index, why));
    if record.stopped || app.is_left_alone() {
        refuse("is not kept running now: the app is stopped, or is to be put again")
    } else if app.phase() != Some(RolloutPhase::Done) {
        refuse("is not moved: the app's rollout has not been completed")
    } else if record.definition.update.order == UpdateOrder::StopFirst {
        refuse("is not moved: two of it may not run at once (update.order is stop-first)")
    } else {
        Ok(())
    }
}

/// The place of an index.
enum Place {
    /// It is where it is to be moved from.
    There(InstanceId, CellId),
    /// It runs on another cell.
    Elsewhere(Arc<str>),
}

fn place(parts: &Parts, app: &App, order: &MoveOrder) -> Result<Place, WireError> {
    let mut elsewhere = None;
    let slot = app.slots.get(order.index as usize);
    for id in slot.iter().flat_map(|slot| &slot.held) {
        let Some((one, cell)) = parts.fleet.get(id).and_then(|one| Some((one, one.cell?))) else {
            continue;
        };
        if one.suspect || !one.is_up() {
            continue;
        }
        let place = parts.places.get(cell);
        if *place.name == *order.from {
            return Ok(Place::There(*id, cell));
        }
        elsewhere = Some(Arc::clone(&place.name));
    }
    let why = format!("does not run on {}", order.from);
    let none = || conflict(&app.name, order.index, &why);
    elsewhere.map(Place::Elsewhere).ok_or_else(none)
}

/// Checks the state of the moves. This comes before the apps are decided about, so that a failed move is not tried
/// again.
pub(crate) fn look(parts: &mut Parts) {
    if parts.moves.on_way.is_empty() || !parts.may_act() {
        return;
    }
    let all = std::mem::take(&mut parts.moves.on_way);
    for mut moving in all {
        match end_of(parts, &moving) {
            None => {
                // past its deadline only the end of the old instance is waited for
                if parts.now_ms >= moving.due_ms {
                    moving.due_ms = parts.now_ms + LOOK_AGAIN_MS;
                }
                parts.moves.on_way.push(moving);
            }
            Some(answer) => end(parts, moving, answer),
        }
    }
}

/// Returns how a move has ended; none while it is in progress.
fn end_of(parts: &Parts, moving: &Moving) -> Option<MoveAnswer> {
    let app = parts.apps.get(moving.app);
    let app = app.filter(|app| app.record.uid == moving.uid);
    let Some(app) = app.filter(|app| check(app, moving.index).is_ok()) else {
        return Some(MoveAnswer::failed("the app was changed meanwhile"));
    };
    let slot = app.slots.get(moving.index as usize)?;
    let others = slot.held.iter().filter(|id| **id != moving.old);
    let others = others.filter_map(|id| parts.fleet.get(id));
    let present: Vec<_> = others.filter(|one| !one.suspect).collect();
    let Some(old) = parts.fleet.get(&moving.old) else {
        let up = present.iter().find(|one| one.is_up());
        return match up.and_then(|one| one.cell) {
            Some(cell) => Some(MoveAnswer::moved(Arc::clone(&parts.places.get(cell).name))),
            None if present.is_empty() => Some(MoveAnswer::failed(
                "the instance ended before the new one ran",
            )),
            None => None,
        };
    };
    if old.suspect {
        return Some(MoveAnswer::failed("its cell is lost"));
    }
    if present.iter().any(|one| one.cell == Some(moving.from)) {
        let why = "the auctioneer placed the new instance on the same cell";
        return Some(MoveAnswer::failed(why));
    }
    if moving.sent && present.is_empty() {
        return Some(MoveAnswer::failed(why_not(app, moving.index)));
    }
    if parts.now_ms >= moving.due_ms && old.stop_ms == 0 {
        return Some(MoveAnswer::failed(
            "the new instance was not healthy in time",
        ));
    }
    None
}

/// Explains why there is no new instance although one was asked for.
fn why_not(app: &App, index: u32) -> String {
    let slot = &app.slots[index as usize];
    match &app.unplaced {
        Some(unplaced) if slot.no_room => format!("the new instance was not placed: {unplaced}"),
        _ => "the new instance ended before it was healthy".to_owned(),
    }
}

fn end(parts: &mut Parts, moving: Moving, answer: MoveAnswer) {
    match answer.state {
        MoveState::Moved => parts.counters.moved += 1,
        _ => parts.counters.moves_failed += 1,
    }
    if let Some(app) = parts.apps.get_mut(moving.app)
        && app.record.uid == moving.uid
        && app.slot_mut(moving.index).no_room
    {
        // nothing is missing, so a start that is needed later must not be delayed
        let slot = app.slot_mut(moving.index);
        (slot.no_room, slot.due_ms) = (false, 0);
        app.unplaced = None;
    }
    parts.apps.touch(moving.app);
    parts.moves.end(moving.id, answer);
}
