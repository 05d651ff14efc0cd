//! What is missing starts, what is surplus ends, and what belongs to others is left alone.

use shared::{
    InstanceId,
    wire::{InstanceState, Outcome, kind},
};

use super::world::{Held, Sent, TTL, World, app, three};
use crate::{AppCommand, ManagerInput, WriteResult};

#[test]
fn v1_v2_a_wave_is_stored_before_it_is_sent_and_sent_once() {
    let mut w = World::new();
    w.hold_writes = true;
    w.put(&app("A", 3, ""));
    assert_eq!(w.acknowledge(), "app.A");
    let state = w
        .held_writes
        .iter()
        .find(|write| write.1.to_string().starts_with("state."));
    let value = state.expect("the state is written").2.clone().unwrap();
    let state: crate::StateRecord = serde_json::from_slice(&value).unwrap();
    assert_eq!((state.wave, state.open[0].indices.as_str()), (1, "0-2"));
    w.pass(1_000);
    assert!(w.starts().is_empty(), "nothing before the acknowledgement");
    while !w.held_writes.is_empty() {
        w.acknowledge();
    }
    assert_eq!(w.starts(), [("1-1".into(), "0-2".into())]);
    w.pass(1_000);
    assert!(w.starts().is_empty());
}

#[test]
fn v3_a_conflict_starts_nothing_until_it_is_decided_again() {
    let mut w = World::new();
    w.put(&app("A", 3, ""));
    let id = w.id("1-1");
    w.runs(&id, &[(0, "c1"), (1, "c2"), (2, "c3")]);
    w.pass(2_000);
    w.sent = Sent::default();
    w.hold_writes = true;
    w.command(AppCommand::Scale(4));
    assert_eq!(w.acknowledge(), "app.A");
    // another manager stores something first
    let (key, (_, value)) = w
        .values
        .iter()
        .find(|(key, _)| key.starts_with("state."))
        .map(|(key, value)| (key.clone(), value.clone()))
        .unwrap();
    w.store(&key, Some(value));
    while !w.held_writes.is_empty() {
        w.acknowledge();
    }
    assert!(w.starts().is_empty());
    w.hold_writes = false;
    w.pass(2_000);
    let starts = w.starts();
    assert_eq!(starts.len(), 1);
    assert_eq!(starts[0].1, "3");
}

#[test]
fn v4_v5_scaling_starts_and_stops_the_highest_indices() {
    let mut w = three();
    w.command(AppCommand::Scale(5));
    assert_eq!(w.starts(), [("1-2".into(), "3-4".into())]);
    let id = w.id("1-2");
    w.runs(&id, &[(3, "c4"), (4, "c1")]);
    w.command(AppCommand::Scale(3));
    let mut expected = vec![w.only(3).1, w.only(4).1];
    let mut stops = w.stops();
    stops.sort_unstable();
    expected.sort_unstable();
    assert_eq!(stops, expected);
}

#[test]
fn v6_surplus_that_a_sweep_finds_ends_only_after_settling() {
    let mut w = three();
    let id = w.id("1-9");
    w.give(ManagerInput::Interrupted);
    let seventh = w.add("c4", &id, 7, InstanceState::Running);
    w.heartbeats();
    w.pass(TTL - 1_000);
    assert!(w.stops().is_empty());
    w.pass(TTL);
    assert_eq!(w.stops(), [seventh]);
}

#[test]
fn v21_what_finds_no_room_keeps_its_reason_and_is_tried_again() {
    let mut w = three();
    let (_, old) = w.only(1);
    w.cell("c2").silent = true;
    w.pass(2 * TTL);
    assert_eq!(w.starts(), [("1-2".into(), "1".into())]);
    let id = w.id("1-2");
    w.outcome(&id, &[(1, "")], Outcome::Unplaced, Some("no room"));
    let status = w.manager.status("A").unwrap();
    assert_eq!(status.unplaced.as_deref(), Some("no room"));
    assert_eq!(status.suspect, 1, "the suspect is believed to run: {old}");
    w.pass(29_000);
    assert!(w.starts().is_empty());
    w.pass(2_000);
    assert_eq!(w.starts(), [("1-3".into(), "1".into())]);
    let id = w.id("1-3");
    w.outcome(&id, &[(1, "")], Outcome::Unplaced, Some("no room"));
    // at once after a change of the pool
    w.cell("c4").draining = true;
    w.advertise("c4");
    w.pass(1_500);
    assert_eq!(w.starts(), [("1-4".into(), "1".into())]);
}

#[test]
fn v24_a_placed_instance_clears_the_reason() {
    let mut w = World::new();
    w.put(&app("A", 3, ""));
    let id = w.id("1-1");
    w.outcome(&id, &[(2, "")], Outcome::Unplaced, Some("no room"));
    assert!(w.manager.status("A").unwrap().unplaced.is_some());
    w.placed(&id, &[(0, "c1")]);
    assert_eq!(w.manager.status("A").unwrap().unplaced, None);
}

#[test]
fn v25_a_deleted_app_ends_and_is_remembered_until_nothing_is_reported() {
    let mut w = three();
    w.command(AppCommand::Delete);
    let mut all: Vec<_> = (0..3).map(|index| w.only(index)).collect();
    assert_eq!(w.stops().len(), 3);
    w.pass(1_000);
    assert!(w.values.contains_key("app.A"), "a tombstone");
    let (cell, last) = all.pop().unwrap();
    for (cell, id) in all {
        w.end(&cell, id, kind::STOPPED, 0);
    }
    w.pass(5_000);
    assert!(w.values.contains_key("app.A"));
    w.end(&cell, last, kind::STOPPED, 0);
    w.pass(1_000);
    assert!(
        !w.values
            .keys()
            .any(|key| key.starts_with("app.") || key.starts_with("state."))
    );
    assert!(w.manager.status("A").is_none());
}

/// An auctioneer may answer a repeat from what it remembers of its id; no repeat helps then.
#[test]
fn what_was_sent_three_times_without_an_effect_starts_with_another_wave() {
    let mut w = three();
    w.command(AppCommand::Scale(4));
    assert_eq!(w.starts(), [("1-2".into(), "3".into())]);
    let id = w.id("1-2");
    for _ in 0..2 {
        w.outcome(
            &id,
            &[(3, "")],
            Outcome::Unknown,
            Some("it may run already"),
        );
        w.pass(20_000);
    }
    let sent: Vec<_> = w.sent.starts.iter().map(|start| start.id.clone()).collect();
    assert_eq!(sent, [id.clone(), id.clone()], "asked again, word for word");
    w.sent = Sent::default();
    w.pass(9_000);
    assert_eq!(w.starts(), [("1-3".into(), "3".into())]);
    assert_eq!(w.manager.counters().given_up, 1);
    // the first one starts late: one of the two stays
    let late = w.add("c4", &id, 3, InstanceState::Running);
    let other = w.id("1-3");
    w.runs(&other, &[(3, "c1")]);
    w.heartbeats();
    w.pass(5_000);
    let stops = w.stops();
    assert_eq!(stops.len(), 1, "{stops:?}");
    assert!(stops[0] == late || w.cells["c1"].held.contains_key(&stops[0]));
    w.pass(120_000);
    assert!(w.starts().is_empty());
}

#[test]
fn v25_a_start_without_an_answer_ends_with_its_app() {
    let mut w = three();
    w.command(AppCommand::Scale(4));
    let wave = w.id("1-2");
    w.command(AppCommand::Delete);
    w.sent = Sent::default();
    w.pass(60_000);
    assert!(w.starts().is_empty(), "it is not repeated");
    // a slow auctioneer has started it all the same
    let late = w.add("c4", &wave, 3, InstanceState::Running);
    w.heartbeats();
    w.pass(100);
    assert!(w.stops().contains(&late));
}

#[test]
fn v26_an_emptied_bucket_stops_nothing() {
    let mut w = three();
    w.give(ManagerInput::KvInterrupted);
    w.values.clear();
    w.revision = 1;
    let meta = br#"{"format":1,"bucket":"0badcafe"}"#;
    w.values
        .insert("meta".into(), (1, bytes::Bytes::from_static(meta)));
    w.show_all();
    w.pass(4 * TTL);
    assert!(w.stops().is_empty() && w.starts().is_empty());
    assert!(w.events().contains(&kind::BUCKET_CHANGED.to_owned()));
}

#[test]
fn v26a_a_bucket_that_was_deleted_and_created_anew_gets_another_id() {
    let mut w = three();
    let before: crate::MetaRecord = w.stored("meta");
    w.give(ManagerInput::KvInterrupted);
    w.values.clear();
    w.revision = 0;
    w.show_all();
    w.pass(4 * TTL);
    assert!(w.stops().is_empty() && w.starts().is_empty());
    let after: crate::MetaRecord = w.stored("meta");
    assert_ne!(after.bucket, before.bucket);
    w.put(&app("A", 1, ""));
    w.pass(2_000);
    assert_eq!(w.starts(), [("1-1".into(), "0".into())]);
}

#[test]
fn v26b_an_app_whose_value_is_gone_is_left_alone_and_counted() {
    let mut w = three();
    w.store("app.A", None);
    w.pass(4 * TTL);
    assert!(w.stops().is_empty() && w.starts().is_empty());
    assert_eq!(w.manager.orphans(), 3);
}

#[test]
fn a_deleted_app_is_forgotten_only_once_it_is_stored_that_it_was_deleted() {
    let mut w = three();
    w.command(AppCommand::Delete);
    w.hold_writes = true;
    for index in 0..3 {
        let (cell, id) = w.only(index);
        w.end(&cell, id, kind::STOPPED, 0);
    }
    w.pass(20_000);
    let keys: Vec<String> = w.held_writes.iter().map(|w| w.1.to_string()).collect();
    let gone = keys.iter().position(|key| key.starts_with("gone."));
    assert!(
        gone.is_some() && !keys.contains(&"app.A".into()),
        "{keys:?}"
    );
    // the write fails
    w.hold_writes = false;
    for (write, key, value, expected) in std::mem::take(&mut w.held_writes) {
        if key.to_string().starts_with("gone.") {
            let result = WriteResult::Failed;
            w.give(ManagerInput::WriteEnded { write, result });
        } else {
            w.finish((write, key, value, expected));
        }
    }
    w.pass(1_000);
    assert!(w.values.contains_key("app.A"));
    w.pass(60_000);
    assert!(!w.values.contains_key("app.A"));
    assert!(w.values.keys().any(|key| key.starts_with("gone.")));
}

#[test]
fn an_app_that_is_restored_was_not_deleted() {
    let mut w = three();
    w.obey = true;
    let uid = w.manager.status("A").unwrap().uid;
    let meta: crate::MetaRecord = w.stored("meta");
    w.command(AppCommand::Delete);
    w.pass(20_000);
    let gone = format!("gone.{uid}");
    assert!(w.values.contains_key(&gone) && !w.values.contains_key("app.A"));
    w.command(AppCommand::Restore {
        bucket: meta.bucket,
        uid: uid.parse().unwrap(),
        version: 1,
        stopped: false,
        definition: Box::new(app("A", 3, "")),
    });
    assert!(w.values.contains_key("app.A") && !w.values.contains_key(&gone));
}

#[test]
fn an_app_that_an_older_copy_of_the_bucket_brought_back_is_no_longer_deleted_once_it_is_changed() {
    for (command, is_kept) in [
        (AppCommand::Scale(3), false),
        (AppCommand::Scale(1), false),
        (AppCommand::Delete, true),
    ] {
        let mut w = three();
        w.obey = true;
        let uid = w.manager.status("A").unwrap().uid;
        // the copy is from before the deletion, which was noted in it by a manager that did not know of it yet
        let record = crate::GoneRecord {
            format: crate::FORMAT,
            app: "A".into(),
        };
        let gone = format!("gone.{uid}");
        w.store(&gone, Some(shared::wire::to_bytes(&record)));
        let what = format!("{command:?}");
        w.command(command);
        assert_eq!(w.values.contains_key(&gone), is_kept, "{what}");
    }
}

/// Returns a world in which app A was deleted while c2 was silent, and buried by another manager that has never heard
/// of c2.
fn deleted_while_silent() -> (World, InstanceId) {
    let mut w = three();
    w.obey = true;
    let (_, on_c2) = w.only(1);
    w.cell("c2").silent = true;
    w.pass(TTL + 6_000);
    w.command(AppCommand::Delete);
    w.next_manager();
    w.pass(4 * TTL);
    assert!(w.manager.status("A").is_none());
    w.sent = Sent::default();
    (w, on_c2)
}

#[test]
fn what_a_silent_cell_has_of_a_deleted_app_ends_when_it_is_back() {
    let (mut w, on_c2) = deleted_while_silent();
    w.cell("c2").silent = false;
    w.pass(20_000);
    assert_eq!(w.sent.stops, [("c2".to_owned(), vec![on_c2])]);
    assert!(w.cells["c2"].held.is_empty());
    assert_eq!(w.manager.orphans(), 0);
}

#[test]
fn what_is_only_named_like_an_instance_of_a_deleted_app_is_left_alone() {
    let (mut w, on_c2) = deleted_while_silent();
    w.end("c2", on_c2, kind::STOPPED, 0);
    let meta: crate::MetaRecord = w.stored("meta");
    let gone = w.values.keys().find_map(|key| key.strip_prefix("gone."));
    let wave = format!("m-{}-{}-1-1", meta.bucket, gone.unwrap());
    // the id does not follow from the wave and the index
    let held = Held {
        request: wave,
        index: 1,
        state: InstanceState::Running,
        since_ms: 0,
        restarts: 0,
    };
    w.cell("c2").held.insert(InstanceId::from_u128(7), held);
    w.cell("c2").silent = false;
    w.pass(20_000);
    assert!(w.stops().is_empty());
    assert_eq!(w.manager.orphans(), 1);
}

#[test]
fn of_deleted_apps_only_the_last_are_remembered() {
    let mut w = World::new();
    w.obey = true;
    let most = crate::MAX_GONE;
    for n in 0..most + 2 {
        let name = format!("app-{n}");
        let put = AppCommand::Put(Box::new(app(&name, 1, "")));
        w.command_to(&name, put);
        w.command_to(&name, AppCommand::Delete);
        w.pass(100);
    }
    w.pass(10 * TTL);
    let gone = || w.values.iter().filter(|(key, _)| key.starts_with("gone."));
    assert_eq!(gone().count(), most);
    let first = gone().min_by_key(|(_, (revision, _))| *revision).unwrap();
    let record: crate::GoneRecord = serde_json::from_slice(&first.1.1).unwrap();
    assert_eq!(record.app, "app-2");
}

#[test]
fn v27_an_instance_that_no_state_names_is_adopted() {
    let mut w = World::new();
    w.put(&app("A", 1, ""));
    let id = w.id("1-5");
    let values = std::mem::take(&mut w.values);
    let mut lost = World::with_values(
        values
            .into_iter()
            .filter(|(key, _)| !key.starts_with("state.") && key != "lease")
            .collect(),
    );
    lost.add("c1", &id, 0, InstanceState::Running);
    lost.heartbeats();
    lost.pass(4 * TTL);
    assert!(lost.starts().is_empty() && lost.stops().is_empty());
    // new waves are numbered above the highest one that is reported
    lost.command(AppCommand::Scale(2));
    assert_eq!(lost.starts(), [("1-6".into(), "1".into())]);
}

#[test]
fn v28_an_instance_that_was_adopted_stays_beside_a_later_one() {
    let mut w = World::new();
    w.put(&app("A", 1, ""));
    let id = w.id("1-5");
    let values = std::mem::take(&mut w.values).into_iter();
    let kept = values.filter(|(key, _)| !key.starts_with("state.") && key != "lease");
    let mut w = World::with_values(kept.collect());
    let first = w.add("c1", &id, 0, InstanceState::Running);
    w.heartbeats();
    w.pass(4 * TTL);
    let id = w.id("1-9");
    let second = w.add("c4", &id, 0, InstanceState::Running);
    w.heartbeats();
    w.pass(2 * TTL);
    assert_eq!(w.stops(), [second]);
    w.end("c4", second, kind::STOPPED, 0);
    w.pass(4 * TTL);
    assert!(w.stops().is_empty() && w.starts().is_empty());
    assert_eq!(w.only(0).1, first);
}

#[test]
fn v20_v28_of_two_at_an_index_the_one_that_ran_longer_stays() {
    let mut w = three();
    let (_, first) = w.only(0);
    let id = w.id("1-8");
    let second = w.add("c4", &id, 0, InstanceState::Running);
    w.heartbeats();
    w.pass(TTL);
    assert_eq!(w.stops(), [second], "and not {first}");
    w.end("c4", second, kind::STOPPED, 0);
    w.pass(4 * TTL);
    assert!(w.stops().is_empty() && w.starts().is_empty());
}

#[test]
fn v40_v41_what_is_missing_comes_before_duplicates() {
    let mut w = three();
    let id = w.id("1-8");
    let second = w.add("c4", &id, 0, InstanceState::Running);
    let (cell, one) = w.only(1);
    // both in the same round: the duplicate is seen, and index 1 is gone
    let list = Box::new(w.list_of("c4"));
    let question = None;
    w.manager
        .take(w.now, ManagerInput::Listed { question, list });
    w.end(&cell, one, kind::CRASHED, 1_000);
    assert_eq!(w.starts().len(), 1);
    assert!(w.stops().is_empty(), "no duplicate in this round");
    // decided again when the stop is due: the other instance is gone, so this one stays
    let (cell, first) = w.at(0).into_iter().find(|(_, id)| *id != second).unwrap();
    w.end(&cell, first, kind::CRASHED, 1_000);
    w.pass(2 * TTL);
    assert!(!w.stops().contains(&second));
}

#[test]
fn v43_the_app_that_misses_the_larger_part_comes_first() {
    let mut w = World::new();
    w.put(&app("A", 10, ""));
    let id = w.id("1-1");
    let on: Vec<(u32, &str)> = (0..10)
        .map(|index| (index, if index == 0 { "c1" } else { "c2" }))
        .collect();
    w.runs(&id, &on);
    w.command_to("B", AppCommand::Put(Box::new(app("B", 2, ""))));
    let start = w.sent.starts.pop().unwrap();
    for index in 0..2 {
        let b = shared::wire::instance_id(&start.id, "B", placement::Kind::Lrp, index);
        let since_ms = w.now;
        let held = super::world::Held {
            request: start.id.clone(),
            index,
            state: InstanceState::Running,
            since_ms,
            restarts: 0,
        };
        w.cell("c1").held.insert(b, held);
        w.cell("c1").seq += 1;
    }
    w.heartbeats();
    w.pass(2 * TTL);
    w.sent = Sent::default();
    w.cell("c1").silent = true;
    w.pass(2 * TTL);
    let apps: Vec<&str> = w.sent.starts.iter().map(|s| s.app.as_str()).collect();
    assert_eq!(apps[..2], ["B", "A"]);
}

#[test]
fn v60_what_a_user_started_by_hand_is_never_touched() {
    let mut w = three();
    w.add("c4", "r-1", 0, InstanceState::Running);
    w.add("c4", "m-by-hand", 1, InstanceState::Running);
    w.add("c4", "m-00000001-00000002-1-1", 2, InstanceState::Running);
    w.heartbeats();
    w.pass(4 * TTL);
    w.command(AppCommand::Delete);
    let stops = w.stops();
    assert_eq!(stops.len(), 3);
    assert!(stops.iter().all(|id| !w.cells["c4"].held.contains_key(id)));
}

#[test]
fn v64_a_new_app_of_the_same_name_is_another_one() {
    let mut w = three();
    let old: Vec<_> = (0..3).map(|index| w.only(index).1).collect();
    let uid = w.manager.status("A").unwrap().uid;
    w.command(AppCommand::Delete);
    w.put(&app("A", 1, ""));
    assert_ne!(w.manager.status("A").unwrap().uid, uid);
    let mut stops = w.stops();
    stops.sort_unstable();
    stops.dedup();
    assert_eq!(stops.len(), 3);
    assert!(stops.iter().all(|id| old.contains(id)));
    assert_eq!(w.starts(), [("1-1".into(), "0".into())]);
}

#[test]
fn duplicates_of_many_indices_end_a_few_at_a_time() {
    let mut w = World::new();
    w.put(&app("A", 20, ""));
    let id = w.id("1-1");
    let on: Vec<(u32, &str)> = (0..20).map(|index| (index, "c1")).collect();
    w.runs(&id, &on);
    let again = w.id("1-5");
    for index in 0..20 {
        w.add("c2", &again, index, InstanceState::Running);
    }
    w.heartbeats();
    w.pass(100);
    // a tenth of the app in ten seconds
    assert_eq!(w.stops().len(), 2);
    assert!(w.events().contains(&kind::STOP_BRAKE.to_owned()));
    w.pass(9_000);
    assert!(w.stops().is_empty());
    w.pass(2_000);
    assert_eq!(w.stops().len(), 2);
}
