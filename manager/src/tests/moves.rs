//! An operator moves an instance to another cell.

use shared::wire::{InstanceState, MoveState, Outcome, code, kind};

use super::world::{TTL, World, three, with_rules};
use crate::{AppCommand, CommandKey, ManagerInput, MoveAnswer, MoveOrder};

type Answer = Result<MoveAnswer, shared::wire::WireError>;

/// Asks for a move of an index of app A, or for its state.
fn ask(w: &mut World, id: &str, index: u32, from: &str) -> Answer {
    let order = MoveOrder {
        id: id.into(),
        index,
        from: from.into(),
    };
    w.give(ManagerInput::Move {
        to: CommandKey(99),
        app: "A".into(),
        order,
    });
    w.sent.moved.pop().expect("an answer")
}

#[track_caller]
fn state(w: &mut World, id: &str) -> MoveState {
    ask(w, id, 0, "c1").unwrap().state
}

#[track_caller]
fn refused(w: &mut World, index: u32, from: &str) -> String {
    let error = ask(w, "other", index, from).unwrap_err();
    format!("{}: {}", error.code, error.message)
}

#[test]
fn the_new_one_is_healthy_before_the_old_one_is_stopped() {
    let mut w = three();
    let (_, old) = w.only(0);
    assert_eq!(state(&mut w, "m"), MoveState::Moving);
    assert_eq!(w.starts(), [("1-2".into(), "0".into())]);
    let next = w.id("1-2");
    w.runs(&next, &[(0, "c4")]);
    w.pass(9_900);
    assert!(w.stops().is_empty());
    assert_eq!(state(&mut w, "m"), MoveState::Moving);
    w.pass(200);
    assert_eq!(w.stops(), [old]);
    assert_eq!(state(&mut w, "m"), MoveState::Moving);
    w.end("c1", old, kind::STOPPED, 0);
    let done = ask(&mut w, "m", 0, "c1").unwrap();
    assert_eq!(
        (done.state, done.cell.as_deref()),
        (MoveState::Moved, Some("c4"))
    );
    // asking again, even under another id: the instance has already left
    assert_eq!(ask(&mut w, "n", 0, "c1").unwrap(), done);
    w.pass(4 * TTL);
    assert!(w.starts().is_empty() && w.stops().is_empty());
    assert_eq!(w.manager.counters().moved, 1);
    assert_eq!(w.manager.status("A").unwrap().complete, 3);
}

/// Otherwise an auctioneer might choose the old cell again, and the move would fail.
#[test]
fn the_new_one_is_kept_off_the_cell_that_the_old_one_leaves() {
    let mut w = three();
    state(&mut w, "m");
    let other = ask(&mut w, "n", 1, "c2").unwrap().state;
    assert_eq!(other, MoveState::Moving);
    w.pass(1_000);
    let excluded = |w: &World| -> Vec<(Vec<u32>, Vec<String>)> {
        let starts = w.sent.starts.iter();
        let one = |start: &placement::Request| {
            (start.indices.clone().unwrap(), start.exclude_cells.clone())
        };
        starts.map(one).collect()
    };
    let own = [(vec![0], vec!["c1".into()]), (vec![1], vec!["c2".into()])];
    assert_eq!(excluded(&w), own, "one wave for each cell");
    // the next manager repeats it word for word, which `starts` checks
    w.sent.starts.truncate(1);
    w.next_manager();
    w.pass(3 * TTL);
    assert!(excluded(&w).contains(&own[0]), "{:?}", excluded(&w));
    w.starts();
    // what is only missing may go anywhere
    let (_, old) = w.only(2);
    w.end("c3", old, kind::STOPPED, 0);
    let last = w.sent.starts.last().unwrap();
    assert_eq!(
        (&last.indices, last.exclude_cells.len()),
        (&Some(vec![2]), 0)
    );
}

#[test]
fn what_finds_no_room_stays_and_is_not_tried_again() {
    let mut w = three();
    assert_eq!(state(&mut w, "m"), MoveState::Moving);
    let next = w.id("1-2");
    w.outcome(&next, &[(0, "")], Outcome::Unplaced, Some("no room"));
    let failed = ask(&mut w, "m", 0, "c1").unwrap();
    assert_eq!(failed.state, MoveState::Failed);
    assert!(failed.reason.unwrap().ends_with("no room"));
    w.starts();
    w.pass(4 * TTL);
    assert!(w.starts().is_empty() && w.stops().is_empty());
    let status = w.manager.status("A").unwrap();
    assert_eq!((status.running, status.unplaced), (3, None));
    // an instance that is lost now is replaced without delay
    let (_, old) = w.only(0);
    w.end("c1", old, kind::STOPPED, 0);
    assert_eq!(w.starts(), [("1-3".into(), "0".into())]);
}

#[test]
fn a_new_one_that_crashes_ends_the_move() {
    let mut w = three();
    state(&mut w, "m");
    let next = w.id("1-2");
    w.runs(&next, &[(0, "c4")]);
    let (cell, id) = w.at(0).into_iter().find(|(cell, _)| cell == "c4").unwrap();
    w.end(&cell, id, kind::CRASHED, 1_000);
    let failed = ask(&mut w, "m", 0, "c1").unwrap();
    assert_eq!(failed.state, MoveState::Failed);
    assert!(
        failed
            .reason
            .unwrap()
            .contains("ended before it was healthy")
    );
    w.starts();
    w.pass(4 * TTL);
    assert!(w.starts().is_empty() && w.stops().is_empty());
}

#[test]
fn a_new_one_that_does_not_become_healthy_in_time_is_stopped() {
    let mut w = with_rules(r#","update":{"deadline":"30s"}"#);
    let (_, old) = w.only(0);
    state(&mut w, "m");
    let next = w.id("1-2");
    w.placed(&next, &[(0, "c4")]);
    let new = w.add("c4", &next, 0, InstanceState::Starting);
    w.heartbeats();
    w.pass(29_000);
    assert_eq!(state(&mut w, "m"), MoveState::Moving);
    w.pass(1_100);
    assert_eq!(state(&mut w, "m"), MoveState::Failed);
    w.pass(TTL);
    assert_eq!(w.stops(), [new]);
    assert!(w.cells["c1"].held.contains_key(&old));
}

/// It is started again on its cell, and stays if the move fails.
#[test]
fn an_old_one_that_crashes_meanwhile_is_not_stopped() {
    let mut w = three();
    let (_, old) = w.only(0);
    state(&mut w, "m");
    w.event("c1", kind::CRASHED, 0, old, (false, 1_000));
    w.pass(2_000);
    assert!(w.stops().is_empty());
    let next = w.id("1-2");
    w.runs(&next, &[(0, "c4")]);
    w.pass(10_100);
    assert_eq!(w.stops(), [old], "the new one is healthy");
}

#[test]
fn an_old_one_that_does_not_stop_is_waited_for_with_pauses() {
    let mut w = with_rules(r#","update":{"deadline":"30s"}"#);
    state(&mut w, "m");
    let next = w.id("1-2");
    w.runs(&next, &[(0, "c4")]);
    w.pass(10_100);
    assert_eq!(w.stops().len(), 1);
    w.pass(30_000);
    assert_eq!(state(&mut w, "m"), MoveState::Moving);
    assert!(w.manager.next_ms() > w.now);
}

/// An auctioneer of an earlier version does not know that a cell is excluded.
#[test]
fn the_same_cell_again_is_no_move() {
    let mut w = three();
    let (_, old) = w.only(0);
    state(&mut w, "m");
    let next = w.id("1-2");
    w.runs(&next, &[(0, "c1")]);
    assert_eq!(state(&mut w, "m"), MoveState::Failed);
    let (_, new) = w.at(0).into_iter().find(|(_, id)| *id != old).unwrap();
    w.pass(3 * TTL);
    assert_eq!(w.stops(), [new], "the younger one is too many");
}

#[test]
fn a_lost_cell_or_a_changed_app_ends_it() {
    let mut w = three();
    state(&mut w, "m");
    w.cell("c1").silent = true;
    w.pass(2 * TTL);
    assert_eq!(state(&mut w, "m"), MoveState::Failed);
    let mut w = three();
    state(&mut w, "m");
    w.command(AppCommand::Restart {
        max_in_flight: None,
    });
    assert_eq!(state(&mut w, "m"), MoveState::Failed);
}

#[test]
fn another_manager_goes_on_when_it_is_asked() {
    let mut w = three();
    let (_, old) = w.only(0);
    state(&mut w, "m");
    let next = w.id("1-2");
    w.runs(&next, &[(0, "c4")]);
    w.next_manager();
    assert_eq!(state(&mut w, "m"), MoveState::Moving);
    w.pass(10_100);
    assert_eq!(w.stops(), [old]);
    assert!(w.starts().is_empty(), "there is a new one");
}

#[test]
fn what_cannot_be_moved_is_said() {
    let mut w = three();
    for (index, from, expected) in [
        (
            3,
            "c1",
            "invalid_request: index: 3 is not allowed; expected below 3",
        ),
        (0, "c2", ""),
    ] {
        if expected.is_empty() {
            let there = ask(&mut w, "x", index, from).unwrap();
            assert_eq!(there.cell.as_deref(), Some("c1"));
        } else {
            let said = refused(&mut w, index, from);
            assert!(said.starts_with(expected), "{said}");
        }
    }
    state(&mut w, "m");
    assert!(refused(&mut w, 0, "c1").contains("is being moved already"));
    let mut w = with_rules(r#","update":{"order":"stop-first"}"#);
    assert!(refused(&mut w, 0, "c1").contains("stop-first"));
    w.command(AppCommand::Restart {
        max_in_flight: None,
    });
    assert!(refused(&mut w, 0, "c1").contains("rollout"));
    w.command(AppCommand::Stop);
    assert!(refused(&mut w, 0, "c1").contains("stopped"));
    w.command(AppCommand::Delete);
    assert!(refused(&mut w, 0, "c1").starts_with(code::NOT_FOUND));
    let mut w = three();
    w.lease_down = true;
    w.pass(10_000);
    assert!(refused(&mut w, 0, "c1").contains("does not act"));
}

#[test]
fn starts_of_moves_come_last() {
    assert!(crate::decide::Cause::Moved > crate::decide::Cause::Update);
    assert!(!crate::decide::Cause::Moved.is_needed());
}
