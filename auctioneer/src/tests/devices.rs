//! The devices of a cell: which numbers an instance gets, and when others may have them.

use std::collections::BTreeSet;

use placement::{DeviceNeed, DeviceSet, Request};
use shared::wire::{Acceptance, Outcome, Refusal};

use super::world::{Sent, TestCell, World, request};
use crate::GATHER_MS;

/// One cell with four gpus; no bids are asked for.
fn world() -> World {
    let mut world = World::new("dea");
    let mut cell = TestCell::new("c1", 1_000);
    for resources in [&mut cell.cell.total, &mut cell.cell.available] {
        let gpus = DeviceSet::new(4, 1_000);
        resources.devices.insert("gpu".into(), gpus);
    }
    world.cells.insert("c1".into(), cell);
    world.advertise("c1");
    world
}

/// A request for an instance with this many whole gpus.
fn wants(id: &str, gpus: u32) -> Request {
    let mut request = request(id, id, 10, 1);
    let need = DeviceNeed {
        count: gpus,
        amount: None,
        models: Vec::new(),
    };
    request.devices.insert("gpu".into(), need);
    request
}

/// Returns the only start that is sent for this request.
fn start(world: &mut World, request: &Request) -> Sent {
    world.ask(vec![request.clone()]);
    world.pass(GATHER_MS);
    only(world)
}

fn only(world: &mut World) -> Sent {
    let mut sent = world.sent();
    assert_eq!(sent.len(), 1, "{sent:?}");
    sent.remove(0)
}

/// Returns the numbers that its instance is given.
fn numbers(sent: &Sent) -> BTreeSet<u32> {
    let share = &sent.start.work[0].devices["gpu"];
    assert_eq!(share.amount, 1_000);
    share.numbers.iter().copied().collect()
}

/// Returns the gpus that the auctioneer believes to be free.
fn free(world: &World) -> BTreeSet<u32> {
    let cell = world.machine.feed().pool().get("c1").unwrap();
    let gpus = &cell.available.devices["gpu"];
    let has = |n: &u32| gpus.free.get(*n as usize).copied().unwrap_or(gpus.each);
    (0..gpus.count).filter(|n| has(n) == 1_000).collect()
}

fn all() -> BTreeSet<u32> {
    (0..4).collect()
}

fn answer(cell: &TestCell, sent: &Sent, accepted: bool) -> Acceptance {
    let instance = sent.start.work[0].instance;
    let refusal = Refusal {
        instance,
        reason: "changed".into(),
        needs: None,
        has: None,
    };
    Acceptance {
        v: shared::VERSION,
        cell: "c1".into(),
        incarnation: cell.incarnation,
        seq: cell.seq,
        available: cell.cell.available.clone(),
        apps: Default::default(),
        accepted: accepted.then_some(instance).into_iter().collect(),
        refused: (!accepted).then_some(refusal).into_iter().collect(),
    }
}

/// The cell accepts what was sent, and its answer arrives.
fn accept(world: &mut World, sent: &Sent, request: &Request) {
    let cell = world.cell("c1");
    let work = &sent.start.work[0];
    cell.cell.debit(request, Some(&work.devices));
    cell.recent.insert(work.instance);
    cell.seq += 1;
    let answer = answer(cell, sent, true);
    world.answered(sent, answer);
}

#[test]
fn a_second_auction_gives_other_devices_before_the_first_is_answered() {
    let mut world = world();
    let (a, b) = (wants("a", 2), wants("b", 1));
    let first = start(&mut world, &a);
    assert_eq!(numbers(&first).len(), 2);
    assert_eq!(free(&world), &all() - &numbers(&first));
    let second = start(&mut world, &b);
    assert!(numbers(&second).is_disjoint(&numbers(&first)));
    // one is left
    let key = world.ask(vec![wants("c", 2)]);
    world.pass(GATHER_MS);
    assert_eq!(world.start_reply(key).outcome, Outcome::Unplaced);
    let left = &(&all() - &numbers(&first)) - &numbers(&second);
    accept(&mut world, &first, &a);
    accept(&mut world, &second, &b);
    assert_eq!(free(&world), left, "an answer is not a second debit");
    world.advertise("c1");
    assert_eq!(free(&world), left, "nor is the report that shows them");
    assert_eq!(numbers(&start(&mut world, &wants("d", 1))), left);
}

#[test]
fn a_refusal_gives_its_devices_back_and_no_others() {
    let mut world = world();
    let first = start(&mut world, &wants("a", 1));
    let second = start(&mut world, &wants("b", 3));
    assert!(free(&world).is_empty());
    // the cell has not received the first one yet: according to its amounts all four are free
    let refused = answer(&world.cells["c1"], &second, false);
    world.answered(&second, refused);
    world.pass(GATHER_MS);
    let again = only(&mut world);
    assert_eq!(numbers(&again), &all() - &numbers(&first));
}

#[test]
fn what_a_report_does_not_show_is_debited_from_it() {
    let mut world = world();
    let request = wants("a", 3);
    let sent = start(&mut world, &request);
    let left = &all() - &numbers(&sent);
    world.cell("c1").seq += 1;
    world.advertise("c1");
    assert_eq!(free(&world), left, "it has all four free");
    accept(&mut world, &sent, &request);
    world.advertise("c1");
    assert_eq!(free(&world), left);
}

#[test]
fn a_start_that_has_expired_gives_its_devices_back() {
    let mut world = world();
    let sent = start(&mut world, &wants("a", 3));
    assert_eq!(free(&world), &all() - &numbers(&sent));
    for _ in 0..4 {
        world.pass(5_000);
        world.cell("c1").seq += 1;
        world.advertise("c1");
    }
    assert_eq!(free(&world), all());
}
