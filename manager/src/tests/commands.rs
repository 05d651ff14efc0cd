//! Commands, and what they leave in the bucket.

use shared::wire::kind;

use super::world::{Sent, TTL, World, app, three, with_rules};
use crate::{AppCommand, AppRecord};

fn answer(w: &mut World) -> Result<(u32, bool), String> {
    let answer = w.sent.replies.remove(0);
    answer
        .map(|answer| (answer.version, answer.changed))
        .map_err(|error| error.message)
}

#[test]
fn the_same_file_twice_changes_nothing() {
    let mut w = three();
    w.put(&app("A", 3, ""));
    assert_eq!(answer(&mut w), Ok((1, false)));
    w.pass(1_000);
    assert!(w.starts().is_empty() && w.stops().is_empty());
}

#[test]
fn only_what_runs_makes_a_new_version() {
    let mut w = three();
    w.put(&app("A", 4, ""));
    assert_eq!(answer(&mut w), Ok((1, true)));
    w.put(&app("A", 4, r#","update":{"max_in_flight":2}"#));
    assert_eq!(answer(&mut w), Ok((1, true)));
    w.put(&app("A", 4, r#","health":{"failures":5}"#));
    assert_eq!(answer(&mut w), Ok((2, true)));
    assert!(
        w.values
            .keys()
            .any(|key| key.starts_with("hist.") && key.ends_with(".2"))
    );
}

#[test]
fn a_stopped_app_ends_and_starts_again() {
    let mut w = three();
    w.obey = true;
    w.command(AppCommand::Stop);
    w.pass(2 * TTL);
    assert_eq!((w.at(0).len(), w.at(2).len()), (0, 0));
    w.sent = Sent::default();
    w.command(AppCommand::Start);
    w.pass(1_000);
    assert_eq!(w.starts().len(), 1);
    assert_eq!(w.manager.status("A").unwrap().running, 3);
}

#[test]
fn errors_name_the_field() {
    let mut w = three();
    w.command_to("nope", AppCommand::Stop);
    assert!(answer(&mut w).unwrap_err().starts_with("app: \"nope\""));
    w.command(AppCommand::Scale(0));
    assert!(answer(&mut w).unwrap_err().starts_with("instances: 0"));
    w.command(AppCommand::Restart {
        max_in_flight: Some(0),
    });
    assert!(answer(&mut w).unwrap_err().starts_with("max_in_flight: 0"));
    w.command(AppCommand::Undo);
    assert!(answer(&mut w).unwrap_err().starts_with("app: A"));
    w.command(AppCommand::Put(Box::new(app("B", 1, ""))));
    assert!(answer(&mut w).unwrap_err().starts_with("app: B"));
    w.command_to("a.b", AppCommand::Stop);
    assert!(answer(&mut w).unwrap_err().starts_with("app: "));
}

#[test]
fn a_command_that_meets_another_is_tried_again() {
    let mut w = three();
    w.hold_writes = true;
    w.command(AppCommand::Scale(4));
    let mut other: AppRecord = w.stored("app.A");
    other.definition.instances = 2;
    w.store("app.A", Some(shared::wire::to_bytes(&other)));
    w.hold_writes = false;
    while !w.held_writes.is_empty() {
        w.acknowledge();
    }
    assert!(w.sent.replies.is_empty());
    w.pass(500);
    assert_eq!(answer(&mut w), Ok((1, true)));
    assert_eq!(w.manager.status("A").unwrap().wanted, 4);
}

#[test]
fn v59_a_bucket_that_went_back_stops_nothing_until_the_app_is_put_again() {
    let mut w = three();
    let old = w.values.clone();
    let revision = w.revision;
    w.obey = true;
    w.put(&app("A", 5, r#","tags":{"v":"2"}"#));
    w.pass(120_000);
    assert_eq!(w.manager.status("A").unwrap().complete, 5);
    w.sent = Sent::default();
    // the backup has three instances of version 1
    w.give(crate::ManagerInput::KvInterrupted);
    (w.values, w.revision) = (old, revision);
    w.show_all();
    w.pass(4 * TTL);
    assert!(w.starts().is_empty() && w.stops().is_empty());
    assert!(w.manager.status("A").unwrap().went_back);
    assert!(w.events().contains(&kind::WENT_BACK.to_owned()));
    w.put(&app("A", 6, r#","tags":{"v":"2"}"#));
    w.pass(120_000);
    assert!(!w.manager.status("A").unwrap().went_back);
    assert_eq!(w.manager.status("A").unwrap().running, 6);
    assert_eq!(w.manager.status("A").unwrap().version, 3);
}

/// Another manager restores apps into a new bucket, and this one reads it when that is done.
#[test]
fn what_an_import_restored_is_no_older_bucket() {
    let mut w = three();
    w.pass(60_000);
    let mut meta: crate::MetaRecord = w.stored("meta");
    let mut record: AppRecord = w.stored("app.A");
    meta.restored = Some(crate::BucketId::new(7));
    record.restored = true;
    for _ in 0..2 {
        w.give(crate::ManagerInput::KvInterrupted);
        w.values.clear();
        let bytes = [
            ("meta", shared::wire::to_bytes(&meta)),
            ("app.A", shared::wire::to_bytes(&record)),
        ];
        for (revision, (key, value)) in (1..).zip(bytes) {
            w.values.insert(key.to_owned(), (revision, value));
        }
        w.revision = 2;
        w.show_all();
        w.pass(2 * TTL);
        assert!(!w.manager.status("A").unwrap().went_back);
        assert!(w.starts().is_empty() && w.stops().is_empty());
        // the next loss and its restore
        meta.restored = Some(crate::BucketId::new(8));
        w.pass(60_000);
    }
    w.cell("c2").silent = true;
    w.pass(2 * TTL);
    assert_eq!(w.starts().len(), 1, "it is kept running");
}

/// Auctioneers and cells remember ids, and would take another wave of the same id for a repeat.
#[test]
fn a_restored_app_uses_no_wave_twice() {
    // a crash that is not followed by an immediate start is stored by itself
    for crashes in [false, true] {
        let mut w = with_rules(r#","crash":{"immediate":0,"wait":"30s"}"#);
        w.cell("c2").silent = true;
        w.pass(2 * TTL);
        let before = w.starts();
        assert_eq!(before.len(), 1);
        let mut record: AppRecord = w.stored("app.A");
        record.restored = true;
        w.values.retain(|key, _| key == "meta");
        w.values
            .insert("app.A".into(), (2, shared::wire::to_bytes(&record)));
        w.next_manager();
        if crashes {
            let (cell, id) = w.only(0);
            w.end(&cell, id, kind::CRASHED, 10_000);
            w.pass(2_000);
            assert!(w.starts().is_empty());
        }
        w.pass(3 * TTL);
        let after = w.starts();
        assert_eq!(
            (after.len(), &after[0].1),
            (1 + usize::from(crashes), &before[0].1)
        );
        assert!(
            after.iter().all(|start| start.0 != before[0].0),
            "{after:?}"
        );
    }
}

/// An instance is heard before the watch shows that its version is wanted.
#[test]
fn a_version_that_is_heard_of_before_it_is_shown_is_no_older_bucket() {
    for ready in [false, true] {
        let mut w = three();
        let id = w.id("2-2");
        let mut record: AppRecord = w.stored("app.A");
        record.version = 2;
        if ready {
            w.runs(&id, &[(0, "c4")]);
            assert!(w.manager.status("A").unwrap().went_back);
        }
        w.give(crate::ManagerInput::KvInterrupted);
        if !ready {
            w.runs(&id, &[(0, "c4")]);
            assert!(!w.manager.status("A").unwrap().went_back);
        }
        w.revision += 1;
        let value = (w.revision, shared::wire::to_bytes(&record));
        w.values.insert("app.A".into(), value);
        w.show_all();
        assert!(!w.manager.status("A").unwrap().went_back, "{ready}");
    }
}

#[test]
fn what_changes_nothing_is_stored_all_the_same() {
    let mut w = three();
    w.give(crate::ManagerInput::KvInterrupted);
    for (revision, _) in w.values.values_mut() {
        *revision = 1;
    }
    w.revision = 1;
    w.show_all();
    assert!(w.manager.status("A").unwrap().went_back);
    // through a manager that was started later and knows nothing of the older bucket
    let mut other = World::with_values(w.values.clone());
    let before = other.revision;
    other.put(&app("A", 3, ""));
    assert_eq!(answer(&mut other), Ok((1, false)));
    assert!(other.revision > before);
    let (_, stored) = other.values["app.A"].clone();
    w.store("app.A", Some(stored));
    assert!(!w.manager.status("A").unwrap().went_back);
}

#[test]
fn v59b_a_manager_that_starts_on_an_old_bucket_sees_what_runs() {
    let mut w = three();
    let old = w.values.clone();
    w.obey = true;
    w.put(&app("A", 3, r#","tags":{"v":"2"}"#));
    w.pass(120_000);
    w.values = old;
    w.next_manager();
    w.pass(4 * TTL);
    assert!(w.starts().is_empty() && w.stops().is_empty());
    assert!(w.manager.status("A").unwrap().went_back);
}

#[test]
fn the_history_has_ten_versions_and_goes_with_the_app() {
    let mut w = three();
    w.obey = true;
    for n in 0..14 {
        w.put(&app("A", 3, &format!(r#","tags":{{"n":"{n}"}}"#)));
        w.pass(1_000);
    }
    let kept = |w: &World| {
        w.values
            .keys()
            .filter(|key| key.starts_with("hist."))
            .count()
    };
    assert_eq!(kept(&w), 10);
    w.command(AppCommand::Delete);
    w.pass(2 * TTL);
    assert_eq!(kept(&w), 0);
    assert!(w.manager.status("A").is_none());
}

#[test]
fn a_name_can_be_put_again_when_nothing_is_left_of_its_app() {
    let mut w = three();
    w.obey = true;
    w.command(AppCommand::Delete);
    w.pass(60_000);
    assert!(w.manager.status("A").is_none());
    // even if the deletion was seen only after an interruption
    w.give(crate::ManagerInput::KvInterrupted);
    w.show_all();
    w.sent = Sent::default();
    w.put(&app("A", 1, ""));
    let answer = w.sent.replies.pop().unwrap().unwrap();
    assert!(answer.created && answer.changed);
}

#[test]
fn a_dry_run_says_what_would_change_and_changes_nothing() {
    let mut w = three();
    let revision = w.revision;
    let definition = app("A", 5, r#","tags":{"v":"2"}"#);
    w.command(AppCommand::Try(Box::new(definition.clone())));
    let tried = w.sent.replies.pop().unwrap().unwrap();
    assert_eq!(w.stored::<AppRecord>("app.A").definition.instances, 3);
    w.put(&definition);
    let put = w.sent.replies.pop().unwrap().unwrap();
    assert_eq!(tried, put);
    let fields: Vec<_> = put.differences.changes.iter().map(|c| &*c.field).collect();
    assert_eq!(fields, ["instances", "tags.v"]);
    assert!(put.version == 2 && w.revision > revision);
    w.command(AppCommand::Try(Box::new(definition)));
    assert!(!w.sent.replies.pop().unwrap().unwrap().changed);
}

#[test]
fn what_is_not_acknowledged_is_said_in_time() {
    let mut w = three();
    w.hold_writes = true;
    w.command(AppCommand::Scale(4));
    for _ in 0..10 {
        let Some((write, ..)) = w.held_writes.pop_front() else {
            break;
        };
        w.pass(3_000);
        let result = crate::WriteResult::Failed;
        w.give(crate::ManagerInput::WriteEnded { write, result });
        w.pass(300);
    }
    let error = w.sent.replies.pop().unwrap().unwrap_err();
    assert_eq!(error.code, shared::wire::code::INTERNAL);
    assert!(error.message.contains("acknowledge"), "{error}");
}
