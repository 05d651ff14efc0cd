//! Instances on draining cells are replaced before they are stopped.

use shared::wire::{InstanceState, Outcome, kind};

use super::world::{Sent, TTL, World, app, three, with_rules};
use crate::AppCommand;

fn drain(w: &mut World, cell: &str) {
    w.cell(cell).draining = true;
    w.cell(cell).seq += 1;
    w.advertise(cell);
}

#[test]
fn v29_what_only_starts_is_stopped_at_once() {
    let mut w = three();
    let (_, id) = w.only(0);
    w.becomes("c1", id, InstanceState::Starting);
    drain(&mut w, "c1");
    assert_eq!(w.stops(), [id]);
    assert_eq!(w.starts(), [("1-2".into(), "0".into())]);
}

#[test]
fn v30_v31_what_runs_is_stopped_when_its_replacement_is_healthy() {
    let mut w = three();
    let (_, id) = w.only(0);
    drain(&mut w, "c1");
    assert_eq!(w.starts(), [("1-2".into(), "0".into())]);
    let next = w.id("1-2");
    w.runs(&next, &[(0, "c4")]);
    w.pass(9_900);
    assert!(w.stops().is_empty());
    w.pass(200);
    assert_eq!(w.stops(), [id]);
    w.end("c1", id, kind::STOPPED, 0);
    w.pass(4 * TTL);
    assert!(w.starts().is_empty() && w.stops().is_empty());
    assert_eq!(w.cells["c1"].held.len(), 0);
}

/// The rep only waits for a grace period, so nobody waits for `min_healthy`.
#[test]
fn of_a_rep_that_ends_a_replacement_counts_once_it_is_healthy() {
    let mut w = three();
    let (_, id) = w.only(0);
    drain(&mut w, "c1");
    let next = w.id("1-2");
    w.runs(&next, &[(0, "c4")]);
    w.pass(1_000);
    assert!(w.stops().is_empty(), "an operator's drain waits");
    w.cell("c1").leaving = true;
    w.advertise("c1");
    w.pass(100);
    assert_eq!(w.stops(), [id]);
}

#[test]
fn v32_a_crash_of_the_replacement_leaves_the_old_one() {
    let mut w = three();
    drain(&mut w, "c1");
    let next = w.id("1-2");
    w.runs(&next, &[(0, "c4")]);
    let (cell, id) = w.at(0).into_iter().find(|(cell, _)| cell == "c4").unwrap();
    w.end(&cell, id, kind::CRASHED, 1_000);
    assert!(w.stops().is_empty());
    w.pass(2_000);
    assert!(w.stops().is_empty());
    assert_eq!(w.starts().last().unwrap().1, "0", "tried again");
}

#[test]
fn v33_a_deleted_app_is_not_replaced() {
    let mut w = three();
    drain(&mut w, "c1");
    w.sent = Sent::default();
    w.command(AppCommand::Delete);
    assert!(w.stops().contains(&w.only(0).1));
    w.pass(1_000);
    assert!(w.starts().is_empty());
}

#[test]
fn v33_what_is_scaled_away_is_not_replaced() {
    let mut w = three();
    let (_, old) = w.only(2);
    drain(&mut w, "c3");
    let next = w.id("1-2");
    w.placed(&next, &[(2, "c4")]);
    let replacement = w.add("c4", &next, 2, InstanceState::Starting);
    w.list("c4", None);
    w.sent = Sent::default();
    w.command(AppCommand::Scale(2));
    let stops = w.stops();
    assert!(stops.contains(&old) && stops.contains(&replacement));
    w.pass(1_000);
    assert!(w.starts().is_empty());
}

#[test]
fn what_runs_is_stopped_when_its_replacement_is_ready() {
    let ready = r#","ready":{"kind":"http","port":80}"#;
    let mut w = with_rules(ready);
    let (_, old) = w.only(0);
    drain(&mut w, "c1");
    let next = w.id("1-2");
    w.placed(&next, &[(0, "c4")]);
    let id = w.add("c4", &next, 0, InstanceState::Running);
    w.cell("c4").unready.insert(id);
    w.heartbeats();
    w.pass(60_000);
    assert!(w.stops().is_empty());
    w.cell("c4").unready.clear();
    w.event("c4", kind::READY, 0, id, (false, 0));
    w.pass(10_100);
    assert_eq!(w.stops(), [old]);
}

#[test]
fn v34_stop_first_moves_one_after_the_other() {
    let mut w = World::new();
    w.put(&app("A", 2, r#","update":{"order":"stop-first"}"#));
    let id = w.id("1-1");
    w.runs(&id, &[(0, "c1"), (1, "c1")]);
    w.pass(2 * TTL);
    w.sent = Sent::default();
    let (zero, one) = (w.only(0).1, w.only(1).1);
    drain(&mut w, "c1");
    assert_eq!(w.stops(), [zero]);
    assert!(w.starts().is_empty());
    w.end("c1", zero, kind::STOPPED, 0);
    assert_eq!(w.starts(), [("1-2".into(), "0".into())]);
    w.pass(3_000);
    assert!(w.stops().is_empty(), "index 0 does not run yet");
    let next = w.id("1-2");
    w.runs(&next, &[(0, "c4")]);
    w.pass(100);
    assert_eq!(w.stops(), [one]);
}

#[test]
fn v66_at_the_deadline_the_cell_ends_it_and_the_index_is_tried_again() {
    let mut w = three();
    let (_, id) = w.only(0);
    drain(&mut w, "c1");
    let next = w.id("1-2");
    w.outcome(&next, &[(0, "")], Outcome::Unplaced, Some("no room"));
    w.sent = Sent::default();
    w.pass(10_000);
    assert!(w.stops().is_empty());
    w.end("c1", id, kind::STOPPED, 0);
    w.pass(31_000);
    assert_eq!(w.starts().first().unwrap().1, "0");
    assert_eq!(w.manager.counters().crashed, 0);
}

#[test]
fn a_drained_cell_that_leaves_has_nothing_left() {
    let mut w = three();
    drain(&mut w, "c1");
    let next = w.id("1-2");
    w.outcome(&next, &[(0, "")], Outcome::Unplaced, Some("no room"));
    w.cell("c1").silent = true;
    let heard = crate::CellHeard {
        cell: "c1".into(),
        incarnation: shared::Incarnation::from_u128(w.cells["c1"].incarnation),
        seq: 99,
        ttl: placement::Span::default(),
        draining: true,
        leaving: false,
        recent: Vec::new(),
    };
    w.give(crate::ManagerInput::Cell(heard));
    assert_eq!(w.manager.status("A").unwrap().suspect, 0);
}

#[test]
fn starts_for_draining_cells_come_first() {
    let mut w = with_rules("");
    w.command_to("B", AppCommand::Put(Box::new(app("B", 1, ""))));
    w.sent = Sent::default();
    w.hold_writes = true;
    drain(&mut w, "c1");
    let first = w.held_writes.front().unwrap().1.to_string();
    let uid = w.manager.status("A").unwrap().uid;
    assert_eq!(first, format!("state.{uid}"));
}
