//! The same id at two auctioneers, or at one that may have missed what became of it.

use bytes::Bytes;
use placement::Kind;
use shared::{
    AuctionId, InstanceId,
    wire::{IdPrefixes, Instance, Instances, InstancesAnswer, Outcome, Stop, instance_id},
};

use super::{
    lookups::{announced, found},
    world::World,
};
use crate::{AuctioneerInput, AuctioneerOutput, EchoToken, LookupId, REMEMBER_MS};

/// Removes and returns the questions to the cells, except those that [compare](super::compared) what they run.
pub(super) fn questions(world: &mut World) -> Vec<(LookupId, Instances)> {
    let mut asked = Vec::new();
    world.out.retain(|output| match output {
        AuctioneerOutput::AskInstances { lookup, body } if *lookup != LookupId::COMPARISON => {
            let question: Instances = serde_json::from_slice(body).unwrap();
            assert_eq!(question.v, shared::VERSION);
            asked.push((*lookup, question));
            false
        }
        _ => true,
    });
    asked
}

/// Removes and returns the stops for what runs twice, with their cells.
pub(super) fn kills(world: &mut World) -> Vec<(String, Stop)> {
    let mut kills = Vec::new();
    world.out.retain(|output| match output {
        AuctioneerOutput::EndDuplicates { cell, body } => {
            kills.push((cell.to_string(), serde_json::from_slice(body).unwrap()));
            false
        }
        _ => true,
    });
    kills
}

/// Returns how a question refers to these instances.
pub(super) fn prefixes(ids: &[InstanceId]) -> IdPrefixes {
    ids.iter().collect()
}

pub(super) fn tell(world: &mut World, lookup: LookupId, answer: InstancesAnswer) {
    let answer = Box::new(answer);
    world.input(AuctioneerInput::InstancesReported { lookup, answer });
}

pub(super) fn with_claim(answer: InstancesAnswer, claim: u128) -> InstancesAnswer {
    let claimed = |instance: Instance| Instance {
        claim: Some(AuctionId::from_u128(claim)),
        ..instance
    };
    InstancesAnswer {
        instances: answer.instances.into_iter().map(claimed).collect(),
        ..answer
    }
}

pub(super) fn first() -> InstanceId {
    instance_id("r", "web", Kind::Lrp, 0)
}

pub(super) fn outcome(world: &mut World, cell: &str, claim: u128) {
    let claim = AuctionId::from_u128(claim);
    let body = format!(
        r#"{{"v":1,"id":"r","app":"web","outcome":"placed","claim":"{claim}","instances":[{{"index":0,"outcome":"placed","cell":"{cell}"}}]}}"#
    );
    world.input(AuctioneerInput::Outcome {
        id: "r".parse().unwrap(),
        body: Bytes::from(body),
    });
}

#[test]
fn a_forged_outcome_that_is_none_is_dropped_and_counted() {
    let mut world = World::with_cells("dea", &["c1"]);
    for body in [
        "garbage",
        r#"{"v":1,"id":"other","app":"web","outcome":"placed","instances":[]}"#,
    ] {
        world.input(AuctioneerInput::Outcome {
            id: "r".parse().unwrap(),
            body: Bytes::from(body),
        });
    }
    assert_eq!(world.machine.counters().dropped_malformed, 2);
    let key = world.ask_one("r", "web", 100, 1);
    world.deliver_all();
    assert_eq!(world.start_reply(key).outcome, Outcome::Placed);
}

/// The same for a request that is open.
#[test]
fn a_forged_outcome_of_open_work_is_dropped_and_counted() {
    let mut world = World::with_cells("dea", &["c1"]);
    let key = world.ask_one("r", "web", 100, 1);
    world.input(AuctioneerInput::Outcome {
        id: "r".parse().unwrap(),
        body: Bytes::from("garbage"),
    });
    assert_eq!(world.machine.counters().dropped_malformed, 1);
    world.deliver_all();
    assert_eq!(world.start_reply(key).outcome, Outcome::Placed);
}

/// Both send echoes on one subject; the one with the lower token leaves after a second.
#[test]
fn of_two_auctioneers_of_one_name_the_one_with_the_lower_token_leaves() {
    let mut world = World::with_cells("dea", &["c1"]);
    let own = world.machine.token().number();
    assert!(own > 1, "random");
    for (token, leaves) in [(own, false), (own - 1, false), (own + 1, true)] {
        let token = EchoToken::new(token);
        for _ in 0..11 {
            assert!(!world.machine.has_namesake(), "{token}");
            world.input(AuctioneerInput::EchoOf(token));
            world.now_ms += 100;
        }
        assert_eq!(world.machine.has_namesake(), leaves, "{token}");
    }
}

/// Creates an auctioneer that starts to listen now.
pub(super) fn restarted(names: &[&str]) -> World {
    let mut world = World::unsure("dea");
    for name in names {
        world.add(name);
    }
    world.out.clear();
    world
}

#[test]
fn a_restarted_auctioneer_asks_the_cells_for_every_id_that_it_was_given() {
    let mut world = restarted(&["c1", "c2"]);
    let key = world.ask_one("r", "web", 100, 1);
    assert!(world.sent().is_empty());
    let asked = questions(&mut world);
    let [(lookup, question)] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(question.id_prefixes, prefixes(&[first()]));
    tell(&mut world, *lookup, found("c1", &[]));
    tell(&mut world, *lookup, found("c2", &[first()]));
    let reply = world.start_reply(key);
    assert_eq!(reply.instances[0].cell.as_deref(), Some("c2"));
    assert!(world.sent().is_empty(), "it runs already");
    // two minutes later it has heard everything that others remember
    world.pass(REMEMBER_MS);
    world.ask_one("s", "web", 100, 1);
    assert_eq!(questions(&mut world).len(), 0);
}

#[test]
fn what_comes_together_is_asked_for_in_one_question() {
    let mut world = restarted(&["c1"]);
    let requests =
        (0..10).map(|n| super::world::request(&format!("r{n}"), &format!("app{n}"), 1, 2));
    world.ask(requests.collect());
    let asked = questions(&mut world);
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].1.id_prefixes.len(), 20);
    tell(&mut world, asked[0].0, found("c1", &[]));
    assert_eq!(
        world
            .sent()
            .iter()
            .map(|s| s.start.work.len())
            .sum::<usize>(),
        20
    );
}

/// After a pause, the request may be read before what others said during the pause.
#[test]
fn after_a_pause_a_reconnection_or_a_loss_the_cells_are_asked_again() {
    let back = [
        None,
        Some(AuctioneerInput::Connected(true)),
        Some(AuctioneerInput::Missed),
    ];
    for input in back {
        let mut world = restarted(&["c1"]);
        world.pass(REMEMBER_MS);
        world.advertise("c1");
        questions(&mut world);
        match input.clone() {
            None => world.silence(4_000),
            Some(input) => world.input(input),
        }
        world.ask_one("r", "web", 100, 1);
        assert_eq!(questions(&mut world).len(), 1, "{input:?}");
        assert!(world.sent().is_empty(), "{input:?}");
    }
}

#[test]
fn what_waited_during_a_disconnection_is_looked_for_before_it_is_started() {
    let mut world = restarted(&["c1"]);
    let room = |world: &mut World, memory_mb| {
        world.cell("c1").cell.available.memory_mb = memory_mb;
        world.cell("c1").seq += 1;
        world.advertise("c1");
    };
    room(&mut world, 100);
    let mut waits = super::world::request("r", "web", 500, 1);
    waits.queue_timeout = Some(placement::Span(std::time::Duration::from_secs(60)));
    world.ask(vec![waits]);
    let asked = questions(&mut world);
    tell(&mut world, asked[0].0, found("c1", &[]));
    assert!(world.sent().is_empty(), "it fits nowhere");
    world.input(AuctioneerInput::Connected(false));
    world.input(AuctioneerInput::Connected(true));
    room(&mut world, 1_000);
    world.pass(400);
    assert!(world.sent().is_empty(), "another one may have started it");
    let asked = questions(&mut world);
    tell(&mut world, asked.last().unwrap().0, found("c1", &[]));
    assert_eq!(world.sent().len(), 1);
}

#[test]
fn a_silent_cell_that_had_the_app_may_run_it_and_another_one_may_not() {
    for (app, placed) in [("web", false), ("db", true)] {
        let mut world = restarted(&["c1"]);
        let mut other = super::world::TestCell::new("c2", 1_000);
        other.cell.counts.apps.insert(app.to_owned(), 1);
        world.cells.insert("c2".to_owned(), other);
        world.advertise("c2");
        let key = world.ask_one("r", "web", 100, 1);
        let asked = questions(&mut world);
        tell(&mut world, asked[0].0, found("c1", &[]));
        world.silence(500);
        assert_eq!(world.deliver_all() == 1, placed, "{app}");
        world.pass(2_000);
        let reply = world.start_reply(key);
        let expected = if placed {
            Outcome::Placed
        } else {
            Outcome::Unknown
        };
        assert_eq!(reply.outcome, expected, "{app}");
        if !placed {
            assert_eq!(reply.instances[0].cell.as_deref(), Some("c2"));
            // and a repeat asks again
            questions(&mut world);
            world.ask_one("r", "web", 100, 1);
            assert_eq!(questions(&mut world).len(), 1);
        }
    }
}

#[test]
fn an_outcome_that_is_heard_before_anything_was_sent_is_the_answer() {
    let mut world = World::with_cells("diego", &["c1"]);
    let key = world.ask_one("r", "web", 100, 1);
    assert!(world.asked_bids().is_some());
    world.input(announced(5, &["r"]));
    outcome(&mut world, "c9", 5);
    world.pass(1_000);
    assert!(world.sent().is_empty());
    assert_eq!(
        world.start_reply(key).instances[0].cell.as_deref(),
        Some("c9")
    );
    assert!(world.machine.is_idle());
}

/// Anyone may publish a well-formed outcome of a request that nobody has begun.
#[test]
fn a_forged_outcome_that_nobody_announced_is_looked_for_and_not_believed() {
    for (waits, cell) in [(false, "c2"), (false, "c9"), (true, "c2")] {
        let mut world = World::with_cells("diego", &["c1", "c2"]);
        let key = if waits {
            let key = world.ask_one("r", "web", 100, 1);
            outcome(&mut world, cell, 0);
            key
        } else {
            outcome(&mut world, cell, 0);
            world.ask_one("r", "web", 100, 1)
        };
        // repeating it does not make it an announcement either
        outcome(&mut world, cell, 0);
        world.silence(1);
        assert_eq!(world.reply(key), None, "{waits} {cell}");
        let asked = questions(&mut world);
        let [(lookup, question)] = &asked[..] else {
            panic!("{asked:?}");
        };
        assert_eq!(question.id_prefixes, prefixes(&[first()]));
        for cell in ["c1", "c2"] {
            tell(&mut world, *lookup, found(cell, &[]));
        }
        world.bid_all();
        assert_eq!(world.deliver_all(), 1, "no cell has it");
        assert_eq!(world.start_reply(key).outcome, Outcome::Placed);
    }
}

#[test]
fn a_forged_outcome_for_another_app_takes_no_id() {
    let mut world = World::with_cells("dea", &["c1"]);
    let body = r#"{"v":1,"id":"r","app":"other","outcome":"placed","instances":[]}"#;
    world.input(AuctioneerInput::Outcome {
        id: "r".parse().unwrap(),
        body: Bytes::from(body),
    });
    let key = world.ask_one("r", "web", 100, 1);
    let asked = questions(&mut world);
    tell(&mut world, asked[0].0, found("c1", &[]));
    world.deliver_all();
    assert_eq!(world.start_reply(key).outcome, Outcome::Placed);
}

/// No cell knows anything of a task that has ended: what an auctioneer has begun and answered stands.
#[test]
fn an_outcome_that_was_announced_stands_whichever_is_heard_first() {
    for late in [false, true] {
        let mut world = World::with_cells("dea", &["c1"]);
        if !late {
            world.input(announced(5, &["r"]));
        }
        outcome(&mut world, "c1", 5);
        if late {
            world.input(announced(5, &["r"]));
        }
        let key = world.ask_one("r", "web", 100, 1);
        assert_eq!(
            world.start_reply(key).instances[0].cell.as_deref(),
            Some("c1")
        );
        assert!(questions(&mut world).is_empty());
    }
}

#[test]
fn the_announcement_goes_out_before_the_start() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r", "web", 100, 1);
    world.out.sort_by_key(AuctioneerOutput::is_for_observers);
    let position = |found: fn(&AuctioneerOutput) -> bool| world.out.iter().position(found);
    let asked = position(|o| matches!(o, AuctioneerOutput::Event(e) if e.kind == "asked"));
    let start = position(|o| matches!(o, AuctioneerOutput::Start { .. }));
    assert!(asked.unwrap() < start.unwrap());
}

/// Both auctioneers reach the same conclusion: the lower claim continues, the higher one waits for its answer.
#[test]
fn of_two_claims_the_lower_goes_on() {
    for (theirs, we_go_on) in [(u128::MAX, true), (0, false)] {
        let mut world = World::with_cells("dea", &["c1", "c2"]);
        let key = world.ask_one("r", "web", 100, 1);
        let sent = world.sent();
        world.input(announced(theirs, &["r"]));
        assert_eq!(world.machine.counters().gave_way, u64::from(!we_go_on));
        outcome(&mut world, "c9", theirs);
        world.deliver(&sent[0]);
        if !we_go_on {
            // theirs runs, and so does ours until it is killed
            world.silence(500);
            let asked = questions(&mut world);
            let lookup = asked.last().unwrap().0;
            tell(&mut world, lookup, with_claim(found("c9", &[first()]), 0));
            tell(&mut world, lookup, with_claim(found("c1", &[first()]), 7));
            tell(&mut world, lookup, found("c2", &[]));
            assert_eq!(kills(&mut world).len(), 1);
        }
        let told = world.start_reply(key).instances[0].cell.clone();
        let expected = if we_go_on { &sent[0].cell } else { "c9" };
        assert_eq!(told.as_deref(), Some(expected));
        // what runs may still change: a repeat is looked up again
        world.silence(1);
        questions(&mut world);
        world.ask_one("r", "web", 100, 1);
        world.silence(100);
        assert_eq!(questions(&mut world).len(), 1);
    }
}

#[test]
fn of_what_runs_twice_the_lowest_claim_stays_whoever_sees_it() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    world.ask_one("r", "web", 100, 1);
    let sent = world.sent();
    world.deliver(&sent[0]);
    questions(&mut world);
    outcome(&mut world, "c2", 1);
    world.silence(1);
    let asked = questions(&mut world);
    assert_eq!(asked[0].1.id_prefixes, prefixes(&[first()]));
    tell(
        &mut world,
        asked[0].0,
        with_claim(found("c1", &[first()]), 7),
    );
    assert!(kills(&mut world).is_empty());
    tell(
        &mut world,
        asked[0].0,
        with_claim(found("c2", &[first()]), 1),
    );
    let killed = kills(&mut world);
    let [(cell, stop)] = &killed[..] else {
        panic!("{killed:?}");
    };
    assert_eq!((cell.as_str(), &stop.instances[..]), ("c1", &[first()][..]));
    assert_eq!(stop.claim, Some(AuctionId::from_u128(7)));
    assert_eq!(world.machine.counters().duplicates_ended, 1);
    // it keeps looking for a while: starts may still be on their way
    world.pass(2_000);
    assert!(questions(&mut world).len() >= 2);
    // no cell answers: it ends when the cells are lost
    world.pass(20_000);
    questions(&mut world);
    world.pass(10_000);
    assert!(questions(&mut world).is_empty());
}

/// Whoever begins a request that has ended here is told its outcome.
#[test]
fn an_announcement_of_what_has_ended_is_answered_with_the_outcome() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r", "web", 100, 1);
    world.deliver_all();
    let claim = world.events("asked")[0].auction.unwrap().as_u128();
    assert_eq!(world.outcomes("r").len(), 1);
    world.input(announced(claim, &["r"]));
    assert_eq!(world.outcomes("r").len(), 1, "our own announcement");
    world.input(announced(5, &["r"]));
    assert_eq!(world.outcomes("r").len(), 2);
}

#[test]
fn an_announcement_of_much_that_waits_is_taken_at_once() {
    let mut world = World::with_cells("dea", &["c1"]);
    let ids: Vec<String> = (0..5_000).map(|n| format!("r{n:05}")).collect();
    let requests = ids.iter().map(|id| {
        let mut request = super::world::request(id, id, 2_000, 1);
        request.queue_timeout = Some(placement::Span(std::time::Duration::from_secs(60)));
        request
    });
    world.ask(requests.collect());
    assert_eq!(world.machine.waiting(), ids.len());
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    world.input(announced(1, &ids));
    assert_eq!(world.machine.counters().gave_way, 5_000);
    assert_eq!(world.machine.waiting(), 0, "all of it is looked for");
}
