//! Rollouts of new versions.

use shared::{
    InstanceId,
    wire::{InstanceState, Outcome, Rollout, instance_id, kind},
};

use super::world::{Sent, TTL, World, app, three, with_rules};
use crate::AppCommand;

/// Puts version 2 of app A, with rules.
fn v2(w: &mut World, more: &str) {
    let more = format!(r#","tags":{{"v":"2"}}{more}"#);
    w.put(&app("A", 3, &more));
}

/// Returns the only instance of an index that a wave of this version started.
fn of_version(w: &World, index: u32, version: u32) -> Option<(String, InstanceId)> {
    let of = |(cell, id): &(String, InstanceId)| {
        let held = &w.cells[cell].held[id];
        crate::WaveId::parse(&held.request).unwrap().version == version
    };
    w.at(index).into_iter().find(of)
}

fn phase(w: &World) -> Rollout {
    w.manager.status("A").unwrap().rollout
}

#[test]
fn v44_v45_one_index_at_a_time_and_the_new_one_runs_first() {
    let mut w = three();
    v2(&mut w, "");
    assert_eq!(w.starts(), [("2-2".into(), "0".into())]);
    assert!(w.stops().is_empty());
    let (_, old) = w.only(0);
    let request = w.id("2-2");
    w.runs(&request, &[(0, "c4")]);
    w.pass(9_900);
    assert!(w.stops().is_empty() && w.starts().is_empty());
    w.pass(200);
    assert_eq!(w.stops(), [old]);
    assert!(w.starts().is_empty());
    w.end("c1", old, kind::STOPPED, 0);
    assert_eq!(w.starts(), [("2-3".into(), "1".into())]);
}

#[test]
fn a_rollout_reaches_its_end_and_says_so() {
    let mut w = three();
    w.obey = true;
    v2(&mut w, "");
    w.pass(60_000);
    assert_eq!(phase(&w), Rollout::Done);
    assert!(w.events().contains(&kind::ROLLOUT_DONE.to_owned()));
    for index in 0..3 {
        w.only(index);
        assert!(of_version(&w, index, 2).is_some());
    }
    w.sent = Sent::default();
    w.pass(120_000);
    assert!(w.starts().is_empty() && w.stops().is_empty());
}

const READY: &str = r#","ready":{"kind":"http","port":80}"#;

#[test]
fn a_new_instance_counts_when_it_is_ready() {
    let mut w = with_rules(READY);
    v2(&mut w, READY);
    let (_, old) = w.only(0);
    let request = w.id("2-2");
    w.placed(&request, &[(0, "c4")]);
    let new = w.add("c4", &request, 0, InstanceState::Running);
    w.cell("c4").unready.insert(new);
    w.list("c4", None);
    w.pass(120_000);
    assert!(w.stops().is_empty());
    assert_eq!(phase(&w), Rollout::Running, "not ready is not failed");
    w.cell("c4").unready.clear();
    w.event("c4", kind::READY, 0, new, (false, 0));
    w.pass(9_900);
    assert!(w.stops().is_empty(), "ready for min_healthy");
    w.pass(200);
    assert_eq!(w.stops(), [old]);
}

#[test]
fn what_runs_and_is_not_ready_counts_as_starting() {
    let mut w = World::new();
    w.put(&app("A", 1, READY));
    let request = w.id("1-1");
    w.placed(&request, &[(0, "c1")]);
    let id = w.add("c1", &request, 0, InstanceState::Running);
    let counts = |w: &World| {
        let status = w.manager.status("A").unwrap();
        (status.running, status.starting, status.why)
    };
    // first running, then ready; later ready before it is known to run
    w.event("c1", kind::RUNNING, 0, id, (false, 0));
    let not_ready = Some("index 0 runs and is not ready".to_owned());
    assert_eq!(counts(&w), (0, 1, not_ready));
    w.event("c1", kind::READY, 0, id, (false, 0));
    assert_eq!(counts(&w), (1, 0, None));
    w.event("c1", kind::RESTARTED, 0, id, (false, 0));
    w.event("c1", kind::READY, 0, id, (false, 0));
    w.event("c1", kind::RUNNING, 0, id, (false, 0));
    assert_eq!(counts(&w), (1, 0, None));
    w.event("c1", kind::NOT_READY, 0, id, (false, 0));
    assert_eq!(counts(&w).0, 0);
    // a list says the same
    w.list("c1", None);
    assert_eq!(counts(&w).0, 1);
    w.cell("c1").unready.insert(id);
    w.list("c1", None);
    assert_eq!(counts(&w).0, 0);
    assert!(w.stops().is_empty());
}

#[test]
fn v46_a_crash_of_the_new_one_fails_the_rollout() {
    let mut w = three();
    v2(&mut w, "");
    let request = w.id("2-2");
    w.runs(&request, &[(0, "c4")]);
    let (cell, new) = of_version(&w, 0, 2).unwrap();
    w.sent = Sent::default();
    w.end(&cell, new, kind::CRASHED, 2_000);
    assert_eq!(phase(&w), Rollout::Failed);
    let event = w
        .sent
        .events
        .iter()
        .find(|e| e.kind == kind::ROLLOUT_FAILED);
    assert!(event.unwrap().reason.as_ref().unwrap().contains("index 0"));
    w.pass(4 * TTL);
    assert!(w.starts().is_empty() && w.stops().is_empty());
    assert_eq!(w.manager.status("A").unwrap().running, 3);
}

#[test]
fn v46_a_start_that_takes_too_long_fails_the_rollout() {
    let mut w = with_rules(r#","health":{"start_timeout":"20s"}"#);
    v2(&mut w, r#","health":{"start_timeout":"20s"}"#);
    let request = w.id("2-2");
    w.placed(&request, &[(0, "c4")]);
    let new = w.add("c4", &request, 0, InstanceState::Starting);
    w.advertise("c4");
    w.list("c4", None);
    w.sent = Sent::default();
    w.pass(19_000);
    assert!(w.stops().is_empty());
    w.pass(2_000);
    assert_eq!(w.stops(), [new]);
    assert_eq!(phase(&w), Rollout::Failed);
}

#[test]
fn v47_without_progress_it_fails_and_the_mixed_state_is_kept() {
    let mut w = with_rules("");
    v2(&mut w, r#","update":{"deadline":"60s"}"#);
    let request = w.id("2-2");
    w.runs(&request, &[(0, "c4")]);
    w.pass(10_100);
    let old = w.stops()[0];
    w.end("c1", old, kind::STOPPED, 0);
    w.starts();
    // index 1 never gets healthy
    let request = w.id("2-3");
    w.placed(&request, &[(1, "c4")]);
    let stuck = w.add("c4", &request, 1, InstanceState::Starting);
    w.pass(55_000);
    assert_eq!(phase(&w), Rollout::Running);
    w.pass(10_000);
    assert_eq!(phase(&w), Rollout::Failed);
    assert_eq!(w.stops(), [stuck]);
    w.end("c4", stuck, kind::STOPPED, 0);
    w.sent = Sent::default();
    w.pass(TTL);
    assert!(w.starts().is_empty() && w.stops().is_empty());
    // a lost instance is replaced in its own version
    let (cell, id) = w.only(2);
    w.end(&cell, id, kind::CRASHED, 400_000);
    assert_eq!(w.starts(), [("1-4".into(), "2".into())]);
    let (cell, id) = w.only(0);
    w.end(&cell, id, kind::CRASHED, 400_000);
    assert_eq!(w.starts(), [("2-5".into(), "0".into())]);
}

#[test]
fn v48_a_failed_rollout_returns_to_the_version_before_once() {
    let mut w = three();
    v2(
        &mut w,
        r#","update":{"auto_revert":true,"max_in_flight":2}"#,
    );
    let request = w.id("2-2");
    w.runs(&request, &[(0, "c4"), (1, "c4")]);
    let (cell, new) = of_version(&w, 0, 2).unwrap();
    let (_, other) = of_version(&w, 1, 2).unwrap();
    w.end(&cell, new, kind::CRASHED, 1_000);
    let status = w.manager.status("A").unwrap();
    assert_eq!(status.version, 3);
    assert_eq!(w.stops(), [other]);
    w.end("c4", other, kind::STOPPED, 0);
    w.sent = Sent::default();
    w.pass(60_000);
    // instances of version 1 are fine as they are
    assert!(w.starts().is_empty() && w.stops().is_empty());
    assert_eq!(phase(&w), Rollout::Done);
    assert_eq!(w.manager.status("A").unwrap().version, 3);
}

#[test]
fn v49_a_newer_version_supersedes_and_what_does_not_run_goes_first() {
    let mut w = three();
    v2(&mut w, "");
    let request = w.id("2-2");
    w.runs(&request, &[(0, "c4")]);
    w.pass(10_100);
    let old = w.stops()[0];
    w.end("c1", old, kind::STOPPED, 0);
    // index 1 of version 2 does not get healthy, and its old instance is gone
    let request = w.id("2-3");
    let (cell, one) = w.only(1);
    w.end(&cell, one, kind::STOPPED, 0);
    w.placed(&request, &[(1, "c4")]);
    w.add("c4", &request, 1, InstanceState::Starting);
    w.advertise("c4");
    w.list("c4", None);
    w.pass(1_000);
    w.sent = Sent::default();
    w.put(&app("A", 3, r#","tags":{"v":"3"}"#));
    let starts = w.starts();
    assert_eq!(starts.len(), 1);
    assert!(starts[0].0.starts_with("3-"));
    assert_eq!(starts[0].1, "1");
}

#[test]
fn v50_after_a_rollout_an_old_one_that_returns_ends() {
    let mut w = three();
    w.cell("c1").silent = true;
    w.pass(TTL + 6_000);
    w.obey = true;
    w.pass(10_000);
    v2(&mut w, "");
    w.pass(90_000);
    assert_eq!(phase(&w), Rollout::Done);
    w.sent = Sent::default();
    w.cell("c1").silent = false;
    w.pass(30_000);
    assert_eq!(w.stops().len(), 1);
    w.only(0);
    assert!(of_version(&w, 0, 2).is_some());
}

#[test]
fn v65_in_a_full_cluster_nothing_is_stopped() {
    let mut w = three();
    v2(&mut w, "");
    let request = w.id("2-2");
    w.outcome(
        &request,
        &[(0, "")],
        Outcome::Unplaced,
        Some("insufficient resources: memory"),
    );
    w.pass(60_000);
    assert!(w.stops().is_empty());
    let status = w.manager.status("A").unwrap();
    assert_eq!(status.running, 3);
    assert!(status.unplaced.unwrap().contains("memory"));
}

#[test]
fn v65_stop_first_stops_one_old_instance_first() {
    let mut w = with_rules(r#","update":{"order":"stop-first"}"#);
    v2(&mut w, r#","update":{"order":"stop-first"}"#);
    let (cell, old) = w.only(0);
    assert!(w.starts().is_empty());
    assert_eq!(w.stops(), [old]);
    w.pass(3_000);
    assert!(w.starts().is_empty() && w.stops().is_empty());
    w.end(&cell, old, kind::STOPPED, 0);
    assert_eq!(w.starts(), [("2-2".into(), "0".into())]);
    let request = w.id("2-2");
    w.runs(&request, &[(0, "c1")]);
    w.pass(10_100);
    assert_eq!(w.stops().len(), 1);
}

#[test]
fn a_paused_rollout_leaves_no_index_empty_that_it_has_stopped() {
    let mut w = with_rules(r#","update":{"order":"stop-first"}"#);
    v2(&mut w, r#","update":{"order":"stop-first"}"#);
    let (cell, old) = w.only(0);
    assert_eq!(w.stops(), [old]);
    w.command(AppCommand::Pause);
    w.end(&cell, old, kind::STOPPED, 0);
    assert_eq!(w.starts(), [("2-2".into(), "0".into())]);
    let request = w.id("2-2");
    w.runs(&request, &[(0, "c1")]);
    w.pass(60_000);
    assert!(w.stops().is_empty() && w.starts().is_empty(), "it waits");
}

#[test]
fn a_paused_rollout_waits_and_goes_on() {
    let mut w = three();
    w.obey = true;
    v2(&mut w, "");
    w.command(AppCommand::Pause);
    w.pass(60_000);
    let moved = (0..3).filter(|index| of_version(&w, *index, 2).is_some());
    assert_eq!(moved.count(), 1);
    w.command(AppCommand::Resume);
    w.pass(60_000);
    assert_eq!(phase(&w), Rollout::Done);
}

#[test]
fn undo_in_the_middle_keeps_what_runs_of_the_version_before() {
    let mut w = three();
    w.obey = true;
    v2(&mut w, "");
    w.pass(12_000);
    let kept = w.only(2).1;
    w.command(AppCommand::Undo);
    w.pass(90_000);
    assert_eq!(w.only(2).1, kept);
    assert_eq!(phase(&w), Rollout::Done);
    for index in 0..3 {
        assert!(of_version(&w, index, 2).is_none());
    }
}

#[test]
fn a_restart_replaces_every_instance() {
    let mut w = three();
    w.obey = true;
    let old: Vec<InstanceId> = (0..3).map(|index| w.only(index).1).collect();
    w.command(AppCommand::Restart {
        max_in_flight: Some(3),
    });
    assert_eq!(w.starts(), [("2-2".into(), "0-2".into())]);
    w.pass(30_000);
    let new: Vec<InstanceId> = (0..3).map(|index| w.only(index).1).collect();
    assert!(old.iter().all(|id| !new.contains(id)));
}

#[test]
fn a_rollout_of_a_thousand_instances() {
    let names: Vec<String> = (0..100).map(|n| format!("d{n:02}")).collect();
    let cells: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut w = World::bare(Default::default(), &cells);
    w.show_all();
    w.pass(2 * TTL);
    w.obey = true;
    let rules = r#","update":{"max_in_flight":50,"min_healthy":"0s"}"#;
    w.put(&app("A", 1_000, rules));
    w.pass(2 * TTL);
    assert_eq!(phase(&w), Rollout::Done);
    let from = w.now;
    w.put(&app("A", 1_000, &format!(r#","tags":{{"v":"2"}}{rules}"#)));
    while phase(&w) != Rollout::Done {
        w.pass(100);
        assert!(w.now - from < 30_000);
    }
    let id = instance_id(&w.id("2-2"), "A", placement::Kind::Lrp, 0);
    assert_eq!(w.only(0).1, id);
}
