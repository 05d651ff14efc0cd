//! Formats and keys.

use std::collections::BTreeMap;

use bytes::Bytes;
use shared::wire::{Outcome, kind};

use super::world::{TTL, World, app, three};
use crate::{
    AppCommand, AppUid, FORMAT, LeaseRecord, ManagerInput, MetaRecord, Revision, StateRecord,
    StoredKey, Unusable, WriteResult, read_stored,
};

#[test]
fn keys_are_read_as_they_are_written() {
    let uid = AppUid::new(0xa1);
    for key in [
        StoredKey::Meta,
        StoredKey::Lease,
        StoredKey::App("web".into()),
        StoredKey::State(uid),
        StoredKey::Rollout(uid),
        StoredKey::History(uid, 12),
        StoredKey::Gone(uid),
    ] {
        assert_eq!(key.to_string().parse(), Ok(key.clone()));
        // the characters that NATS's key-value store accepts
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        assert!(key.to_string().chars().all(fine));
    }
    for bad in [
        "",
        "app",
        "app.a b",
        "state.1",
        "hist.000000a1.x",
        "other",
        "app.a.b",
    ] {
        let error = bad.parse::<StoredKey>().unwrap_err();
        assert!(["key", "uid"].contains(&error.field.as_str()), "{bad}");
    }
}

#[test]
fn the_format_is_read_first() {
    let newer = br#"{"format":2,"bucket":{"what":"it means is not known"}}"#;
    assert_eq!(read_stored::<MetaRecord>(newer), Err(Unusable::Newer(2)));
    let meta: MetaRecord = read_stored(br#"{"format":1,"bucket":"0000000b"}"#).unwrap();
    assert_eq!(meta.format, FORMAT);
    let Err(Unusable::Unreadable(error)) = read_stored::<MetaRecord>(br#"{"format":1}"#) else {
        panic!("read");
    };
    assert_eq!(error.field.as_deref(), Some("bucket"));
    assert!(read_stored::<StateRecord>(b"{}").is_err());
}

#[test]
fn a_newer_format_makes_the_manager_look_and_do_nothing() {
    let mut w = three();
    let (cell, id) = w.only(1);
    w.store("app.B", Some(Bytes::from_static(br#"{"format":2}"#)));
    assert!(w.events().contains(&kind::NEWER_FORMAT.to_owned()));
    let lease: LeaseRecord = w.stored("lease");
    assert_eq!(lease.holder, "", "a newer manager can take it");
    w.end(&cell, id, shared::wire::kind::CRASHED, 1_000);
    w.pass(4 * TTL);
    assert!(w.starts().is_empty() && w.stops().is_empty());
    w.store("app.B", None);
    w.pass(4 * TTL);
    assert_eq!(w.starts().len(), 1);
}

#[test]
fn a_newer_value_that_has_expired_does_not_keep_a_manager_from_acting() {
    let mut w = three();
    let (cell, id) = w.only(1);
    w.store("app.B", Some(Bytes::from_static(br#"{"format":2}"#)));
    w.end(&cell, id, shared::wire::kind::CRASHED, 1_000);
    // still there
    w.give(ManagerInput::KvInterrupted);
    w.show_all();
    w.pass(2 * TTL);
    assert!(w.manager.meets_newer() && w.starts().is_empty());
    // the server deletes it, which the watch does not show
    w.values.remove("app.B");
    w.pass(2 * TTL);
    assert!(w.starts().is_empty());
    w.give(ManagerInput::KvInterrupted);
    w.show_all();
    w.pass(4 * TTL);
    assert_eq!(w.starts().len(), 1);
}

#[test]
fn a_value_that_cannot_be_read_leaves_its_app_alone() {
    let mut w = three();
    w.store("app.A", Some(Bytes::from_static(br#"{"format":1}"#)));
    assert!(w.events().contains(&kind::UNREADABLE.to_owned()));
    assert_eq!(w.manager.counters().dropped_unreadable, 1);
    w.cell("c2").silent = true;
    w.pass(4 * TTL);
    assert!(w.starts().is_empty() && w.stops().is_empty());
    w.command(crate::AppCommand::Delete);
    assert!(w.sent.replies[0].is_err());
}

#[test]
fn every_value_is_below_the_servers_limit() {
    let mut w = three();
    w.put(&app("A", 100_000, ""));
    assert_eq!(w.starts(), [], "a large app is looked at after a pause");
    w.pass(5_100);
    let state: StateRecord = w.stored("state.");
    // as many as may be without an outcome
    assert_eq!(state.open[0].indices, "3-20002");
    // every other index, each with a count: the most that is stored
    let crashes = (80_000..)
        .take(crate::MAX_STORED_CRASHES)
        .map(|n| (n, 100_000));
    let state = StateRecord {
        format: FORMAT,
        crashes: crashes.collect(),
        ..StateRecord::default()
    };
    assert!(shared::wire::to_bytes(&state).len() < 400_000);
}

#[test]
fn what_is_shown_before_its_app_is_known_all_the_same() {
    let mut w = three();
    w.pass(15_000);
    // the app is stored once more, and therefore comes after its state and its rollout
    w.command(AppCommand::Scale(4));
    let id = w.id("1-2");
    w.runs(&id, &[(3, "c4")]);
    w.pass(15_000);
    w.command(AppCommand::Pause);
    let before: StateRecord = w.stored("state.");
    w.next_manager();
    w.pass(2 * TTL);
    let status = w.manager.status("A").unwrap();
    assert_eq!(status.rollout, shared::wire::Rollout::Done);
    w.command(AppCommand::Scale(5));
    let after: StateRecord = w.stored("state.");
    assert_eq!(after.wave, before.wave + 1);
    assert_eq!(w.starts(), [("1-3".into(), "4".into())]);
}

#[test]
fn a_manager_that_does_not_act_knows_why_something_is_unplaced_and_how_it_crashed() {
    let mut w = three();
    let (cell, id) = w.only(0);
    w.end(&cell, id, kind::CRASHED, 1_000);
    w.pass(3_000);
    let id = w.id("1-2");
    w.outcome(&id, &[(0, "")], Outcome::Unplaced, Some("no room"));
    w.pass(3_000);
    let mut values = w.values.clone();
    let other = LeaseRecord {
        format: FORMAT,
        holder: "m-9".into(),
    };
    values.insert("lease".into(), (1, shared::wire::to_bytes(&other)));
    let other = World::with_values(values);
    assert!(!other.manager.is_acting());
    let status = other.manager.status("A").unwrap();
    assert_eq!(status.unplaced.as_deref(), Some("no room"));
    let state: StateRecord = w.stored("state.");
    assert_eq!(state.crash.as_deref(), Some("exit 1"));
    // an instance that is placed later has no reason
    w.pass(31_000);
    let id = w.id("1-3");
    w.runs(&id, &[(0, "c1")]);
    w.pass(3_000);
    assert_eq!(w.stored::<StateRecord>("state.").unplaced, None);
}

#[test]
fn the_id_of_an_empty_bucket_is_stored_until_it_is() {
    let mut w = World::bare(BTreeMap::new(), &["c1"]);
    w.hold_writes = true;
    w.show_all();
    for _ in 0..3 {
        let (write, key, ..) = w.held_writes.pop_front().expect("a write");
        assert_eq!(key, StoredKey::Meta);
        let result = WriteResult::Failed;
        w.give(ManagerInput::WriteEnded { write, result });
        assert!(w.manager.next_ms() > w.now, "it waits");
        w.pass(1_000);
    }
    assert_eq!(w.acknowledge(), "meta");
    w.pass(100);
    assert!(w.manager.is_acting());
}

#[test]
fn a_bucket_that_was_emptied_gets_another_id_and_stops_nothing() {
    let mut w = three();
    let before: MetaRecord = w.stored("meta");
    for key in w.values.keys().cloned().collect::<Vec<_>>() {
        w.store(&key, None);
    }
    w.pass(5_000);
    let after: MetaRecord = w.stored("meta");
    assert_ne!(after.bucket, before.bucket);
    assert!(w.stops().is_empty());
    // the same if it was deleted and created again
    w.give(ManagerInput::KvInterrupted);
    w.values.clear();
    w.deleted.clear();
    w.revision = 0;
    let revision = Revision::NONE;
    w.give(ManagerInput::KvReady { revision });
    w.pass(5_000);
    let again: MetaRecord = w.stored("meta");
    assert_ne!(again.bucket, after.bucket);
    assert!(w.stops().is_empty() && w.manager.is_acting());
}

#[test]
fn what_is_put_while_an_emptied_bucket_gets_its_id_stays() {
    let mut w = three();
    let before: MetaRecord = w.stored("meta");
    w.hold_writes = true;
    w.command_to("B", AppCommand::Put(Box::new(app("B", 1, ""))));
    for key in w.values.keys().cloned().collect::<Vec<_>>() {
        w.store(&key, None);
    }
    w.pass(2_000);
    assert_eq!(w.acknowledge(), "app.B");
    while w.acknowledge() != "meta" {}
    w.hold_writes = false;
    w.pass(2 * TTL);
    let after: MetaRecord = w.stored("meta");
    assert_ne!(after.bucket, before.bucket);
    assert!(w.manager.status("A").is_none());
    assert_eq!(w.manager.status("B").unwrap().wanted, 1);
}

#[test]
fn an_id_that_somebody_deletes_is_stored_again_while_there_are_apps() {
    let mut w = three();
    let before: MetaRecord = w.stored("meta");
    w.store("meta", None);
    w.pass(2_000);
    let after: MetaRecord = w.stored("meta");
    assert_eq!(after.bucket, before.bucket);
    assert!(w.manager.is_acting());
}
