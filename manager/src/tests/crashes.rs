//! Crashes: waits, resetting the count, giving up.

use shared::wire::{InstanceState, kind};

use super::world::{Sent, TTL, World, app, three};
use crate::{AppCommand, CrashPolicy};

#[test]
fn v9_v11_v12_v13_the_waits_are_diegos() {
    let policy = CrashPolicy::default();
    let waits = [
        (1, Some(0)),
        (2, Some(0)),
        (3, Some(30)),
        (4, Some(60)),
        (5, Some(120)),
        (6, Some(240)),
        (7, Some(480)),
        (8, Some(960)),
        (9, Some(960)),
        (51, Some(960)),
        (199, Some(960)),
        (200, None),
        (u32::MAX, None),
    ];
    for (count, seconds) in waits {
        let expected = seconds.map(|s: u64| s * 1_000);
        assert_eq!(policy.wait_ms(count), expected, "{count}");
    }
    let all: u64 = (1..200).filter_map(|count| policy.wait_ms(count)).sum();
    // the time until an index is given up
    assert_eq!(all, 185_250_000);
    let forever = CrashPolicy {
        give_up: 0,
        ..policy
    };
    assert_eq!(forever.wait_ms(u32::MAX), Some(960_000));
}

#[test]
fn v14_v15_only_a_longer_run_resets_the_count() {
    let policy = CrashPolicy::default();
    assert_eq!(policy.count(7, 300_001), 1);
    assert_eq!(policy.count(7, 300_000), 8);
    assert_eq!(policy.count(7, 0), 8, "v16: starting is not running");
    assert_eq!(policy.count(u32::MAX, 0), u32::MAX);
}

/// Crashes index 1 and returns how many milliseconds later it is started again; then the new instance runs.
fn crash(w: &mut World, ran_ms: u64) -> u64 {
    // two starts of an index are a second apart
    w.pass(1_000);
    w.sent = Sent::default();
    let (cell, id) = w.only(1);
    w.end(&cell, id, kind::CRASHED, ran_ms);
    let mut waited = 0;
    while w.sent.starts.is_empty() {
        w.pass(100);
        waited += 100;
        assert!(waited < 2_000_000, "never started again");
    }
    let request = w.sent.starts[0].clone();
    assert_eq!(request.indices, Some(vec![1]));
    w.runs(&request.id, &[(1, "c2")]);
    waited
}

#[test]
fn v7_v8_v9_v10_two_restarts_at_once_then_waits() {
    let mut w = three();
    assert_eq!(crash(&mut w, 10_000), 0);
    assert_eq!(crash(&mut w, 10_000), 0);
    assert_eq!(crash(&mut w, 10_000), 30_000);
    assert_eq!(crash(&mut w, 10_000), 60_000);
    // v14: it ran for longer than five minutes
    assert_eq!(crash(&mut w, 300_001), 0);
    assert!(w.stops().is_empty());
}

#[test]
fn v13_an_index_is_given_up_until_somebody_changes_the_app() {
    let mut w = World::new();
    w.put(&app("A", 2, r#","crash":{"give_up":3}"#));
    let id = w.id("1-1");
    w.runs(&id, &[(0, "c1"), (1, "c2")]);
    w.pass(2 * TTL);
    crash(&mut w, 0);
    crash(&mut w, 0);
    w.sent = Sent::default();
    let (cell, id) = w.only(1);
    w.end(&cell, id, kind::CRASHED, 0);
    assert_eq!(w.events(), [kind::GIVEN_UP]);
    assert_eq!(w.manager.status("A").unwrap().given_up, 1);
    w.pass(2_000_000);
    assert!(w.starts().is_empty());
    w.command(AppCommand::Restart {
        max_in_flight: None,
    });
    assert!(!w.starts().is_empty());
}

#[test]
fn v16_an_instance_that_only_started_has_not_run() {
    let mut w = three();
    crash(&mut w, 0);
    crash(&mut w, 0);
    w.sent = Sent::default();
    let (cell, id) = w.only(1);
    w.becomes(&cell, id, InstanceState::Starting);
    w.pass(600_000);
    // no event reports its end: how long it ran follows from what was heard before
    w.becomes(&cell, id, InstanceState::Crashed);
    assert_eq!(w.manager.status("A").unwrap().crashed, 1);
    w.pass(29_000);
    assert!(w.starts().is_empty(), "the third crash in a row");
    w.pass(2_000);
    assert_eq!(w.starts().len(), 1);
}

#[test]
fn how_the_last_one_ended_is_said() {
    let mut w = World::new();
    w.put(&app("A", 1, r#","crash":{"immediate":0,"give_up":2}"#));
    for expected in [
        "index 0 crashed (last: exit 1); the next start is in 30 s",
        "index 0 crashed too often (last: exit 1) and is not started again",
    ] {
        let request = w.sent.starts.pop().unwrap();
        w.runs(&request.id, &[(0, "c1")]);
        let (cell, id) = w.only(0);
        w.end(&cell, id, kind::CRASHED, 1_000);
        let why = w.manager.status("A").unwrap().why.unwrap();
        assert!(why.starts_with(expected), "{why}");
        w.pass(31_000);
    }
}

#[test]
fn v17_a_lost_cell_is_no_crash() {
    let mut w = three();
    crash(&mut w, 0);
    crash(&mut w, 0);
    w.sent = Sent::default();
    w.cell("c2").silent = true;
    w.pass(TTL + 6_000);
    let starts = w.starts();
    assert_eq!((starts.len(), starts[0].1.as_str()), (1, "1"));
    assert_eq!(w.manager.status("A").unwrap().suspect, 1);
    let id = w.id(&starts[0].0);
    w.runs(&id, &[(1, "c4")]);
    w.cell("c2").held.clear();
    // the third crash, not the fourth
    w.sent = Sent::default();
    assert_eq!(crash(&mut w, 0), 30_000);
}

#[test]
fn v39_while_nothing_runs_one_index_is_tried() {
    let mut w = World::new();
    w.put(&app("A", 3, ""));
    let id = w.id("1-1");
    w.runs(&id, &[(0, "c1"), (1, "c2"), (2, "c3")]);
    w.pass(2 * TTL);
    // a slow bucket: all three have crashed before anything can be stored
    w.hold_writes = true;
    for index in 0..3 {
        let (cell, id) = w.only(index);
        w.end(&cell, id, kind::CRASHED, 0);
    }
    w.sent = Sent::default();
    let first = w.held_writes.pop_front().unwrap();
    w.held_writes.clear();
    w.hold_writes = false;
    w.give(crate::ManagerInput::WriteEnded {
        write: first.0,
        result: crate::WriteResult::Failed,
    });
    w.pass(5_000);
    let s = w.starts();
    assert_eq!(s.len(), 1, "only one index {s:?}");
    let request = w.id("1-2");
    w.runs(&request, &[(0, "c1")]);
    w.pass(100);
    assert_eq!(w.starts()[0].1, "1-2", "the rest when it runs");
}

#[test]
fn v55_an_exit_is_a_crash() {
    let mut w = three();
    let (cell, id) = w.only(1);
    w.end(&cell, id, kind::EXITED, 1_000);
    assert_eq!(w.starts().len(), 1);
    assert_eq!(w.manager.counters().crashed, 1);
}

#[test]
fn v56_a_restart_on_the_cell_is_none() {
    let mut w = three();
    let (cell, id) = w.only(1);
    w.event(&cell, kind::CRASHED, 1, id, (false, 1_000));
    assert!(w.starts().is_empty());
    assert_eq!(w.manager.counters().crashed, 0);
    assert_eq!(w.manager.status("A").unwrap().starting, 1);
    w.becomes(&cell, id, InstanceState::Running);
    assert_eq!(w.manager.status("A").unwrap().running, 3);
}

#[test]
fn counts_survive_a_change_of_manager() {
    let mut w = three();
    crash(&mut w, 0);
    crash(&mut w, 0);
    w.pass(3_000);
    w.next_manager();
    w.pass(3 * TTL);
    assert!(crash(&mut w, 0) >= 30_000);
}
