//! An auctioneer that may have missed messages asks the cells before it starts waiting work.

use std::sync::Arc;

use shared::wire::{InstancesAnswer, Outcome};

use super::{
    lookups::found,
    world::{World, request},
};
use crate::{
    AdmittedRequest, AuctioneerInput, AuctioneerOutput, LookupId, REMEMBER_MS, StartMessage,
};

/// Creates an auctioneer that has been listening for as long as outcomes are remembered, and knows these cells.
fn listening(policy: &str, names: &[&str]) -> World {
    let mut world = World::unsure(policy);
    world.pass(REMEMBER_MS);
    for name in names {
        world.add(name);
    }
    world.out.clear();
    world
}

fn questions(world: &mut World) -> Vec<LookupId> {
    let mut asked = Vec::new();
    world.out.retain(|output| match output {
        AuctioneerOutput::AskInstances { lookup, .. } if *lookup != LookupId::COMPARISON => {
            asked.push(*lookup);
            false
        }
        _ => true,
    });
    asked
}

fn answer(world: &mut World, lookup: LookupId, answer: InstancesAnswer) {
    let answer = Box::new(answer);
    world.input(AuctioneerInput::InstancesReported { lookup, answer });
}

fn waiting(id: &str) -> placement::Request {
    let mut waits = request(id, "web", 5_000, 1);
    waits.queue_timeout = Some(placement::Span(std::time::Duration::from_secs(600)));
    waits
}

#[test]
fn ids_are_looked_for_until_two_minutes_after_the_start() {
    for (now_ms, asked) in [(REMEMBER_MS - 1, 1), (REMEMBER_MS, 0)] {
        let mut world = World::unsure("dea");
        world.pass(now_ms - world.now_ms);
        world.add("c1");
        world.ask_one("r", "web", 100, 1);
        assert_eq!(questions(&mut world).len(), asked, "at {now_ms}");
    }
}

#[test]
fn ids_are_looked_for_until_two_minutes_after_a_loss() {
    for (wait_ms, asked) in [(REMEMBER_MS - 1, 1), (REMEMBER_MS, 0)] {
        let mut world = listening("dea", &[]);
        world.input(AuctioneerInput::Missed);
        world.pass(wait_ms);
        world.add("c1");
        world.ask_one("r", "web", 100, 1);
        assert_eq!(questions(&mut world).len(), asked, "after {wait_ms}");
    }
}

#[test]
fn more_than_a_second_without_a_message_is_a_loss() {
    for (pause_ms, asked) in [(1_000, 0), (1_001, 1)] {
        let mut world = listening("dea", &["c1"]);
        world.silence(pause_ms);
        world.ask_one("r", "web", 100, 1);
        assert_eq!(questions(&mut world).len(), asked, "after {pause_ms}");
    }
}

/// The manager that sent it may have given it up, and its next attempt may be running.
#[test]
fn after_ten_seconds_what_was_not_read_of_stored_requests_is_not_begun() {
    let attempt = "t-0000000b-1-report-7";
    for (pause_ms, begun) in [(9_000, 1), (9_001, 0)] {
        let mut world = listening("dea", &["c1"]);
        world.silence(pause_ms);
        // an echo that was sent before the pause, and a request that followed it
        world.input(AuctioneerInput::Echo);
        let key = world.ask_one(attempt, "web", 100, 1);
        assert_eq!(questions(&mut world).len(), begun, "after {pause_ms}");
        let reply = world.reply(key);
        assert_eq!(reply.is_none(), begun == 1, "{reply:?}");
        if let Some(reply) = reply {
            assert_eq!(reply["error"]["code"], "overloaded", "{reply}");
        }
        // all other requests are looked up as always
        let other = world.ask_one("r", "web", 100, 1);
        assert_eq!(world.reply(other), None);
        // messages that arrive later were sent later
        world.pass(600);
        let later = world.ask_one("t-0000000b-1-report-8", "web", 100, 1);
        assert_eq!(world.reply(later), None, "after {pause_ms}");
    }
}

#[test]
fn after_a_loss_only_what_waits_and_may_be_known_elsewhere_is_looked_for() {
    let mut world = listening("dea", &["c1"]);
    // already sent
    world.ask_one("sent", "web", 100, 1);
    // its id was generated here, so nobody else knows it
    world.input(AuctioneerInput::Start(StartMessage {
        requests: vec![Ok(AdmittedRequest {
            id: "new".parse().unwrap(),
            given: false,
            request: Arc::new(waiting("new")),
            warnings: Vec::new(),
        })],
        array: false,
        reply: None,
    }));
    world.input(AuctioneerInput::Missed);
    assert_eq!(questions(&mut world).len(), 0);
    world.ask(vec![waiting("given")]);
    let asked = questions(&mut world);
    answer(&mut world, asked[0], found("c1", &[]));
    assert_eq!(world.machine.waiting(), 2);
    world.input(AuctioneerInput::Missed);
    assert_eq!(questions(&mut world).len(), 1);
}

#[test]
fn what_was_looked_for_while_it_waited_is_started_once() {
    let mut world = listening("diego", &["c1"]);
    world.ask_one("r", "web", 100, 1);
    assert!(world.asked_bids().is_some());
    world.input(AuctioneerInput::Missed);
    let asked = questions(&mut world);
    assert_eq!(asked.len(), 1);
    answer(&mut world, asked[0], found("c1", &[]));
    world.bid_all();
    let sent = world.sent();
    assert_eq!((sent.len(), sent[0].start.work.len()), (1, 1));
    let jobs = world.out.iter().filter_map(|output| match output {
        AuctioneerOutput::AuctionHeld { jobs, .. } => Some(*jobs),
        _ => None,
    });
    assert_eq!(jobs.collect::<Vec<_>>(), [1], "it waits once");
}

/// The missed messages: the cell was restarted, and another auctioneer has started the instance elsewhere.
#[test]
fn after_a_loss_an_outcome_that_was_heard_before_is_not_certain() {
    let mut world = listening("dea", &["c1", "c2"]);
    world.ask_one("r", "web", 100, 1);
    let first = world.sent().remove(0);
    world.deliver(&first);
    let known = world.ask_one("r", "web", 100, 1);
    assert_eq!(questions(&mut world).len(), 0);
    assert_eq!(world.start_reply(known).outcome, Outcome::Placed);
    world.input(AuctioneerInput::Missed);
    let repeat = world.ask_one("r", "web", 100, 1);
    let asked = questions(&mut world);
    assert_eq!(asked.len(), 1);
    let other = if first.cell == "c1" { "c2" } else { "c1" };
    let id = first.start.work[0].instance;
    answer(&mut world, asked[0], found(&first.cell, &[]));
    answer(&mut world, asked[0], found(other, &[id]));
    let reply = world.start_reply(repeat);
    assert_eq!(reply.instances[0].cell.as_deref(), Some(other));
}

/// Duplicates are ended even if our own outcome is no longer certain.
#[test]
fn after_a_loss_a_rival_of_what_ended_here_is_still_looked_for() {
    let mut world = listening("dea", &["c1"]);
    world.ask_one("r", "web", 100, 1);
    world.deliver_all();
    world.input(AuctioneerInput::Missed);
    questions(&mut world);
    world.out.clear();
    world.input(super::lookups::announced(1, &["r"]));
    assert_eq!(questions(&mut world).len(), 1);
    assert!(world.outcomes("r").is_empty());
    // but not immediately each time it is announced
    world.input(super::lookups::announced(1, &["r"]));
    assert_eq!(questions(&mut world).len(), 0);
}
