//! Who acts, and when.

use bytes::Bytes;
use shared::wire::kind;

use super::world::{Sent, TTL, app, three};
use crate::{AppCommand, FORMAT, LEASE_MS, LeaseRecord, ManagerInput, Revision, StateRecord};

fn lease_of(holder: &str) -> Bytes {
    shared::wire::to_bytes(&LeaseRecord {
        format: FORMAT,
        holder: holder.into(),
    })
}

#[test]
fn v57_what_was_stored_but_not_sent_is_sent_by_the_next_manager() {
    let mut w = three();
    w.hold_writes = true;
    w.command(AppCommand::Scale(4));
    w.acknowledge();
    // another manager takes the lease before the wave is stored
    w.lease_down = true;
    w.store("lease", Some(lease_of("m-2")));
    while !w.held_writes.is_empty() {
        w.acknowledge();
    }
    w.pass(1_000);
    assert!(w.starts().is_empty());
    let state: StateRecord = w.stored("state.");
    assert_eq!(state.open[0].indices, "3");
    w.lease_down = false;
    w.hold_writes = false;
    w.next_manager();
    w.pass(4_000);
    assert_eq!(w.starts(), [("1-2".into(), "3".into())]);
}

#[test]
fn v58_after_a_pause_nothing_is_sent_before_the_lease_is_renewed() {
    let mut w = three();
    let (_, id) = w.only(1);
    w.lease_down = true;
    w.now += 10_000;
    // the queue is full of messages that arrived meanwhile
    w.end("c2", id, kind::CRASHED, 1_000);
    w.heartbeats();
    assert!(w.starts().is_empty() && !w.manager.is_acting());
    // another manager took the lease: the renewal in flight conflicts
    w.store("lease", Some(lease_of("m-2")));
    w.lease_down = false;
    w.pass(10_000);
    assert!(w.starts().is_empty() && !w.manager.is_acting());
}

#[test]
fn a_paused_manager_that_still_has_the_lease_goes_on() {
    let mut w = three();
    let (_, id) = w.only(1);
    w.now += 10_000;
    w.end("c2", id, kind::CRASHED, 1_000);
    w.pass(3_000);
    assert_eq!(w.starts().len(), 1);
}

#[test]
fn a_lease_is_taken_when_it_is_given_back_or_not_renewed() {
    let mut w = three();
    w.store("lease", Some(lease_of("m-2")));
    w.pass(LEASE_MS - 1_000);
    assert!(!w.manager.is_acting());
    w.pass(3_000);
    assert!(w.manager.is_acting());

    w.store("lease", Some(lease_of("m-2")));
    w.store("lease", Some(lease_of("")));
    w.pass(200);
    assert!(w.manager.is_acting(), "given back: at once");
}

#[test]
fn a_manager_that_leaves_gives_the_lease_back() {
    let mut w = three();
    w.give(ManagerInput::Leave);
    let lease: LeaseRecord = w.stored("lease");
    assert_eq!(lease.holder, "");
    w.cell("c2").silent = true;
    w.pass(60_000);
    assert!(w.starts().is_empty() && !w.manager.is_acting());
}

#[test]
fn a_lease_that_cannot_be_renewed_ends() {
    let mut w = three();
    w.lease_down = true;
    w.pass(4_900);
    assert!(w.manager.is_acting());
    w.pass(200);
    assert!(!w.manager.is_acting());
}

#[test]
fn commands_are_answered_without_the_lease() {
    let mut w = three();
    w.store("lease", Some(lease_of("m-2")));
    w.sent = Sent::default();
    w.put(&app("A", 4, ""));
    assert_eq!(w.sent.replies.len(), 1);
    assert!(w.sent.replies[0].as_ref().unwrap().changed);
    w.pass(TTL / 2);
    assert!(w.starts().is_empty());
}

#[test]
fn revisions_of_the_lease_are_not_those_of_the_bucket() {
    let mut w = three();
    // the lease is in a bucket of its own
    w.give(ManagerInput::Kv {
        key: "lease".into(),
        revision: Revision(w.revision + 1_000),
        value: Some(lease_of("m-1")),
    });
    w.give(ManagerInput::KvInterrupted);
    w.show_all();
    assert!(!w.manager.status("A").unwrap().went_back);
}
