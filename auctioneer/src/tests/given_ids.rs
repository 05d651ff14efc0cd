//! Many requests with ids chosen by their senders, while every id is looked up on the cells.

use std::collections::BTreeSet;

use placement::{Cell, Request, Resources};
use shared::wire::{InstancesAnswer, Outcome, StartReplies, StartReply};

use super::{
    claims::{first, kills, questions, restarted, tell, with_claim},
    lookups::found,
    world::{TestCell, World, request},
};
use crate::{LookupId, ReplyKey};

/// A cell that runs some of the app `web`.
fn with_web(world: &mut World, name: &str) {
    let mut cell = TestCell::new(name, 0);
    cell.cell = Cell::new(name, Resources::new(100_000, 1_000_000, 100_000));
    cell.cell.counts.apps.insert("web".to_owned(), 1);
    world.cells.insert(name.to_owned(), cell);
    world.advertise(name);
}

/// Two cells that run some of the app.
fn two_with_web() -> World {
    let mut world = restarted(&[]);
    with_web(&mut world, "c1");
    with_web(&mut world, "c2");
    world.out.clear();
    world
}

fn array(name: &str, count: usize) -> Vec<Request> {
    let requests = 0..count;
    // each has an index of its own, as they would share an instance otherwise
    let one = |n: usize| {
        let instances = u32::try_from(count).unwrap();
        let mut one = request(&format!("{name}-{n}"), "web", 1, instances);
        one.indices = Some(vec![u32::try_from(n).unwrap()]);
        one
    };
    requests.map(one).collect()
}

fn placed(world: &World, key: ReplyKey) -> usize {
    let replies: StartReplies<StartReply> =
        serde_json::from_value(world.reply(key).expect("an answer")).unwrap();
    let replies = replies.requests.iter();
    let placed = replies.filter(|reply| reply.outcome == Outcome::Placed);
    placed.count()
}

/// Each cell needs this long for a question, whatever it asks for, and answers one at a time.
const SLOW_MS: u64 = 700;

/// Lets the cells answer one question after the other. Returns how many there were.
fn answered_slowly(world: &mut World) -> usize {
    let mut asked: Vec<LookupId> = Vec::new();
    let mut count = 0;
    loop {
        for (lookup, _) in questions(world) {
            count += 1;
            asked.push(lookup);
        }
        if asked.is_empty() {
            return count;
        }
        let lookup = asked.remove(0);
        for _ in 0..SLOW_MS / 100 {
            world.pass(100);
        }
        tell(world, lookup, found("c1", &[]));
        tell(world, lookup, found("c2", &[]));
        world.deliver_all();
    }
}

#[test]
fn arrays_are_placed_although_every_cell_answers_late() {
    let mut world = two_with_web();
    let arrays = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let keys = arrays.map(|name| world.ask(array(name, 100)));
    let asked = answered_slowly(&mut world);
    for key in keys {
        assert_eq!(placed(&world, key), 100);
    }
    // the first array at once, the others together; again after half a second, and for the others after one second
    assert_eq!(asked, 5);
}

#[test]
fn what_comes_while_a_question_is_answered_is_asked_for_together_100_ms_later_at_the_latest() {
    for answered in [true, false] {
        let mut world = two_with_web();
        world.ask(array("a", 10));
        let (lookup, first) = questions(&mut world).remove(0);
        assert_eq!(first.id_prefixes.len(), 10, "it is asked for at once");
        world.silence(50);
        world.ask(array("b", 10));
        world.ask(array("c", 10));
        assert!(questions(&mut world).is_empty());
        tell(&mut world, lookup, found("c1", &[]));
        if answered {
            tell(&mut world, lookup, found("c2", &[]));
        } else {
            assert_eq!(world.machine.next_work_ms(), world.now_ms + 50);
            world.silence(49);
            assert!(questions(&mut world).is_empty());
            world.silence(1);
        }
        let asked = questions(&mut world);
        assert_eq!(asked.len(), 1, "answered: {answered}");
        assert_eq!(asked[0].1.id_prefixes.len(), 20);
        assert_eq!(asked[0].1.app.as_deref(), Some("web"));
    }
}

#[test]
fn a_cell_that_may_have_one_is_asked_again_after_half_a_second_one_and_two() {
    let mut world = two_with_web();
    let key = world.ask(vec![request("r", "web", 1, 1), request("s", "other", 1, 1)]);
    let start_ms = world.now_ms;
    let (lookup, both) = questions(&mut world).remove(0);
    assert_eq!(both.id_prefixes.len(), 2);
    tell(&mut world, lookup, found("c1", &[]));
    let mut asked_ms = Vec::new();
    while world.reply(key).is_none() {
        world.pass(100);
        world.deliver_all();
        let mut asked = questions(&mut world);
        // s is watched, because c2 may not have known it
        asked.retain(|(again, _)| *again == lookup);
        for (_, question) in asked {
            assert_eq!(question.id_prefixes.len(), 1, "the other one is started");
            asked_ms.push(world.now_ms - start_ms);
        }
    }
    assert_eq!(asked_ms, [500, 1_000, 2_000]);
    assert_eq!(world.now_ms - start_ms, 2_500);
    assert_eq!(placed(&world, key), 1, "c2 may run the other one");
}

#[test]
fn what_a_late_cell_has_is_found_and_the_rest_of_the_request_is_started() {
    let mut world = two_with_web();
    let key = world.ask_one("r", "web", 1, 2);
    let (lookup, _) = questions(&mut world).remove(0);
    tell(&mut world, lookup, found("c1", &[]));
    world.pass(1_600);
    assert!(world.sent().is_empty());
    tell(&mut world, lookup, found("c2", &[first()]));
    let sent = world.sent();
    assert_eq!((sent.len(), sent[0].start.work.len()), (1, 1));
    world.deliver(&sent[0]);
    let reply = world.start_reply(key);
    assert_eq!(reply.outcome, Outcome::Placed);
    assert_eq!(reply.instances[0].cell.as_deref(), Some("c2"));
}

#[test]
fn what_a_late_cell_runs_a_second_time_is_killed_once() {
    let mut world = two_with_web();
    with_web(&mut world, "c3");
    world.ask(vec![request("r", "web", 1, 1), request("s", "web", 1, 1)]);
    let (lookup, _) = questions(&mut world).remove(0);
    let runs =
        |cell: &str, claim: u128| -> InstancesAnswer { with_claim(found(cell, &[first()]), claim) };
    tell(&mut world, lookup, runs("c1", 1));
    tell(&mut world, lookup, runs("c2", 2));
    world.pass(500);
    let killed = kills(&mut world);
    assert_eq!(killed.len(), 1);
    assert_eq!(killed[0].0, "c2");
    // s still waits for c3, while r has its answer
    world.pass(500);
    tell(&mut world, lookup, found("c3", &[]));
    assert!(kills(&mut world).is_empty());
    assert_eq!(world.machine.counters().duplicates_ended, 1);
}

#[test]
fn a_request_with_little_time_is_unknown_after_half_a_second() {
    for (deadline_ms, waits) in [(2_000, false), (2_001, true)] {
        let mut world = two_with_web();
        let mut hurried = request("r", "web", 1, 1);
        let deadline = std::time::Duration::from_millis(deadline_ms);
        hurried.deadline = Some(placement::Span(deadline));
        let key = world.ask(vec![hurried]);
        world.pass(500);
        assert_eq!(world.reply(key).is_none(), waits, "{deadline_ms}");
        world.pass(500);
        assert_eq!(world.start_reply(key).outcome, Outcome::Unknown);
    }
}

/// What the cells are asked for when the auctioneer gets this many requests.
#[test]
fn more_than_fits_into_a_question_is_asked_for_in_turn() {
    let mut world = two_with_web();
    let keys = ["a", "b", "c"].map(|name| world.ask(array(name, 3_000)));
    let mut sizes = Vec::new();
    loop {
        let asked = questions(&mut world);
        assert!(asked.len() <= 1);
        let Some((lookup, question)) = asked.into_iter().next() else {
            break;
        };
        sizes.push(question.id_prefixes.len());
        tell(&mut world, lookup, found("c1", &[]));
        tell(&mut world, lookup, found("c2", &[]));
        world.deliver_all();
    }
    assert_eq!(sizes.len(), 3, "{sizes:?}");
    assert!(sizes.iter().sum::<usize>() > 8_990);
    let names: BTreeSet<usize> = keys.iter().map(|key| placed(&world, *key)).collect();
    assert_eq!(names, BTreeSet::from([3_000]));
}
