//! The manager that acts grants one auctioneer at a time to accept requests, and no other manager does.

use shared::wire::{GrantAsk, GrantRequest};

use super::world::World;
use crate::{CommandKey, GRANT_MS, GrantReply, ManagerInput};

fn ask(w: &mut World, auctioneer: &str, ask: GrantAsk) -> Option<GrantReply> {
    let request = GrantRequest {
        v: shared::VERSION,
        run: "run".into(),
        ask,
    };
    w.give(ManagerInput::Grant {
        to: CommandKey(99),
        auctioneer: auctioneer.into(),
        request,
    });
    w.sent
        .granted
        .pop()
        .expect("an answer, or that there is none")
}

fn wants(w: &mut World, auctioneer: &str) -> bool {
    ask(w, auctioneer, GrantAsk::Wants).unwrap().granted
}

#[test]
fn a_manager_in_office_grants_it_to_one() {
    let mut w = World::new();
    assert!(wants(&mut w, "a") && !wants(&mut w, "b"));
    assert_eq!(w.manager.grants(), (Some("a"), 1));
    w.pass(GRANT_MS + 200);
    assert_eq!(w.manager.grants(), (None, 1));
    assert!(wants(&mut w, "b"));
    assert_eq!(w.manager.grants(), (Some("b"), 2));
}

#[test]
fn one_that_does_not_act_does_not_answer() {
    let mut w = World::new();
    w.lease_down = true;
    w.pass(6_000);
    assert!(!w.manager.is_acting());
    assert_eq!(ask(&mut w, "a", GrantAsk::Holds), None);
    // it never lost the lease
    w.lease_down = false;
    w.pass(4_000);
    assert!(w.manager.is_acting() && wants(&mut w, "a"));
    w.give(ManagerInput::Leave);
    assert_eq!(ask(&mut w, "a", GrantAsk::Holds), None);
    assert_eq!(w.manager.grants().0, None);
}

#[test]
fn after_it_stood_still_it_grants_nothing_before_it_has_renewed_the_lease() {
    let mut w = World::new();
    w.now += 10_000;
    assert_eq!(ask(&mut w, "a", GrantAsk::Wants), None);
}

#[test]
fn the_next_manager_renews_what_is_held_and_grants_after_five_seconds() {
    let mut w = World::new();
    assert!(wants(&mut w, "a"));
    w.next_manager();
    w.pass(200);
    assert!(w.manager.is_acting());
    assert!(!wants(&mut w, "b"));
    assert!(ask(&mut w, "a", GrantAsk::Holds).unwrap().granted);
    ask(&mut w, "a", GrantAsk::Returns);
    w.pass(GRANT_MS - 1_000);
    assert!(!wants(&mut w, "b"));
    w.pass(1_000);
    assert!(wants(&mut w, "b"));
}
