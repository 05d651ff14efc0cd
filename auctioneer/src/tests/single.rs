//! With and without the grant of `--single`.

use std::time::Duration;

use placement::Span;
use shared::wire::{Outcome, kind};

use super::world::{World, request};
use crate::{AuctioneerInput, Standing};

fn stand(world: &mut World, standing: Standing) {
    world.input(AuctioneerInput::Standing(standing));
}

#[test]
fn without_the_grant_nothing_new_is_begun() {
    for standing in [Standing::Waits, Standing::Other] {
        let mut world = World::with_cells("dea", &["c1"]);
        let before = world.ask_one("r1", "a", 100, 1);
        world.deliver_all();
        stand(&mut world, standing);
        let refused = world.ask_one("r2", "a", 100, 1);
        let error = world.reply(refused).unwrap()["error"].clone();
        assert_eq!(error["code"], "overloaded", "{error}");
        assert!(error["message"].as_str().unwrap().contains("--single"));
        assert!(world.sent().is_empty());
        // what is known is still answered
        let repeat = world.ask_one("r1", "a", 100, 1);
        assert_eq!(world.start_reply(before).outcome, Outcome::Placed);
        assert_eq!(world.start_reply(repeat).outcome, Outcome::Placed);
        stand(&mut world, Standing::Holds);
        let after = world.ask_one("r2", "a", 100, 1);
        world.deliver_all();
        assert_eq!(world.start_reply(after).outcome, Outcome::Placed);
    }
}

#[test]
fn what_is_in_flight_is_finished_and_what_a_cell_refuses_is_not_begun_again() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    let flying = world.ask_one("r1", "a", 100, 2);
    let sent = world.sent();
    stand(&mut world, Standing::Other);
    // one cell has less than was believed
    world.cell(&sent[0].cell).cell.available.memory_mb = 0;
    for start in &sent {
        world.deliver(start);
    }
    assert!(world.sent().is_empty());
    let outcomes: Vec<Outcome> = world
        .start_reply(flying)
        .instances
        .iter()
        .map(|instance| instance.outcome)
        .collect();
    assert!(outcomes.contains(&Outcome::Placed) && outcomes.contains(&Outcome::Unplaced));
    assert!(world.machine.is_idle());
}

/// A world with a request that is queued for a minute.
fn queued() -> World {
    let mut world = World::with_cells("dea", &["c1"]);
    let mut waits = request("r1", "b", 5_000, 1);
    waits.queue_timeout = Some(Span(Duration::from_mins(1)));
    world.ask(vec![waits]);
    assert_eq!(world.machine.waiting(), 1);
    world
}

/// There is room for what is queued.
fn make_room(world: &mut World) {
    let cell = world.cell("c1");
    cell.cell.total.memory_mb = 10_000;
    cell.cell.available.memory_mb = 10_000;
    cell.seq += 1;
    world.advertise("c1");
}

#[test]
fn what_is_queued_waits_while_nobody_has_the_grant() {
    let mut world = queued();
    stand(&mut world, Standing::Waits);
    make_room(&mut world);
    world.pass(10_000);
    assert!(world.sent().is_empty());
    assert_eq!(world.machine.waiting(), 1);
    stand(&mut world, Standing::Holds);
    world.pass(200);
    assert_eq!(world.sent().len(), 1);
}

#[test]
fn what_is_queued_is_given_up_when_another_one_has_the_grant() {
    let mut world = queued();
    stand(&mut world, Standing::Other);
    assert!(world.machine.is_idle());
    let events = world.events(kind::UNPLACED);
    let reason = events.last().unwrap().reason.clone();
    assert!(reason.unwrap().contains("--single"), "{events:?}");
}

#[test]
fn without_the_grant_deadlines_and_queue_timeouts_end_all_the_same() {
    let mut world = queued();
    let short = world.ask_one("r2", "c", 100, 1);
    // refused, it waits for an auction that is not held
    let sent = world.sent();
    world.cell("c1").cell.available.memory_mb = 0;
    stand(&mut world, Standing::Waits);
    world.deliver(&sent[0]);
    assert!(world.reply(short).is_none());
    world.pass(5_000);
    assert_eq!(world.start_reply(short).outcome, Outcome::Unplaced);
    assert_eq!(world.machine.waiting(), 1);
    world.pass(60_000);
    assert!(world.machine.is_idle());
}

#[test]
fn one_that_leaves_without_the_grant_answers_what_waits() {
    let mut world = World::with_cells("dea", &["c1"]);
    let flying = world.ask_one("r1", "a", 100, 1);
    let sent = world.sent();
    stand(&mut world, Standing::Waits);
    world.input(AuctioneerInput::Shutdown);
    world.cell("c1").cell.available.memory_mb = 0;
    world.deliver(&sent[0]);
    assert_eq!(world.start_reply(flying).outcome, Outcome::Unplaced);
    assert!(world.machine.is_idle());
}

#[test]
fn it_is_not_woken_for_auctions_that_are_not_held() {
    for policy in ["dea", "diego"] {
        let mut world = World::with_cells(policy, &["c1", "c2"]);
        stand(&mut world, Standing::Holds);
        let asked = world.ask_one("r1", "a", 100, 1);
        stand(&mut world, Standing::Waits);
        let now_ms = world.now_ms;
        assert!(world.machine.next_work_ms() > now_ms, "{policy}");
        world.pass(6_000);
        assert!(world.reply(asked).is_some(), "{policy}");
    }
}
