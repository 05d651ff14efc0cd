use bytes::Bytes;
use placement::Kind;
use shared::wire::{InstanceState, InstancesAnswer, Outcome, instance_id};
use testkit::lists;

use super::{
    claims::questions,
    world::{World, request},
};
use crate::{Announcement, AuctioneerInput, AuctioneerOutput, LookupId, REMEMBER_MS};
use shared::{AuctionId, InstanceId};

fn query(world: &World) -> Option<LookupId> {
    world.out.iter().rev().find_map(|o| match o {
        AuctioneerOutput::AskInstances { lookup, .. } => Some(*lookup),
        _ => None,
    })
}

pub(super) fn found(cell: &str, ids: &[InstanceId]) -> InstancesAnswer {
    let instances = ids.iter().map(|id| lists::instance(*id, "web", 0));
    lists::list(cell, instances.collect())
}

/// An announcement that an auctioneer, this one or another, has begun these requests.
pub(super) fn announced(claim: u128, ids: &[&str]) -> AuctioneerInput {
    AuctioneerInput::Announced(Announcement {
        claim: AuctionId::from_u128(claim),
        ids: ids.iter().map(|id| id.parse().unwrap()).collect(),
    })
}

#[test]
fn the_same_id_gets_the_same_answer() {
    let mut world = World::with_cells("dea", &["c1"]);
    let first = world.ask_one("r", "web", 100, 2);
    let during = world.ask_one("r", "web", 100, 2);
    world.deliver_all();
    let after = world.ask_one("r", "web", 100, 2);
    assert!(world.sent().is_empty());
    let answer = world.reply(first).unwrap();
    assert_eq!(
        world.reply(during),
        Some(answer.clone()),
        "both askers get the answer"
    );
    assert_eq!(world.reply(after), Some(answer));
    assert_eq!(world.outcomes("r").len(), 1);
    assert_eq!(world.machine.counters().repeats, 2);
    world.pass(REMEMBER_MS + 1_000);
    world.advertise("c1");
    world.ask_one("r", "web", 100, 2);
    assert!(
        world.sent().is_empty(),
        "the outcome is forgotten, not the id"
    );
    let lookup = query(&world).expect("the cells are asked");
    world.input(AuctioneerInput::InstancesReported {
        lookup,
        answer: Box::new(found("c1", &[])),
    });
    assert_eq!(world.sent().len(), 1, "no cell knows it any more");
}

#[test]
fn the_same_id_with_another_body_is_warned_of() {
    let mut world = World::with_cells("dea", &["c1"]);
    let key = world.ask_one("r", "web", 100, 1);
    world.ask_one("r", "web", 200, 1);
    world.deliver_all();
    assert_eq!(world.start_reply(key).warnings.len(), 1);
}

#[test]
fn an_id_used_by_another_app_is_rejected() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r", "web", 100, 1);
    let during = world.ask_one("r", "db", 100, 1);
    world.deliver_all();
    let after = world.ask_one("r", "db", 100, 1);
    for key in [during, after] {
        let error = &world.reply(key).unwrap()["error"];
        assert_eq!(error["code"], "invalid_request");
        assert_eq!(error["field"], "id");
        let says = "id: \"r\" is not allowed; expected an unused id; the request with this id is \
                    for the app web";
        assert_eq!(error["message"], says);
    }
    // heard while the cells are being asked for the request
    world.input(announced(9, &["s"]));
    let key = world.ask_one("s", "db", 100, 1);
    let body = r#"{"v":1,"id":"s","app":"web","outcome":"placed","instances":[]}"#;
    world.input(AuctioneerInput::Outcome {
        id: "s".parse().unwrap(),
        body: Bytes::from(body),
    });
    assert_eq!(world.reply(key).unwrap()["error"]["field"], "id");
}

#[test]
fn the_same_id_with_other_instances_is_warned_of_after_the_outcome() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r", "web", 100, 2);
    world.deliver_all();
    let other = world.ask_one("r", "web", 100, 3);
    let same = world.ask_one("r", "web", 100, 2);
    let warnings = world.start_reply(other).warnings;
    let warning = "duplicate request id with other instances; the first ones are used";
    assert_eq!(warnings, [warning]);
    assert!(world.start_reply(same).warnings.is_empty());
    assert!(world.sent().is_empty());
}

#[test]
fn after_the_deadline_a_repeat_is_answered_with_what_is_known() {
    let mut world = World::with_cells("dea", &["c1"]);
    let mut waits = request("r", "web", 5_000, 1);
    waits.queue_timeout = Some(placement::Span(std::time::Duration::from_secs(60)));
    world.ask(vec![waits.clone()]);
    world.pass(4_000);
    let again = world.ask(vec![waits]);
    assert_eq!(world.start_reply(again).outcome, Outcome::Queued);
}

#[test]
fn another_auctioneers_outcome_is_the_answer() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.input(announced(9, &["r"]));
    let body = r#"{"v":1,"id":"r","app":"web","outcome":"placed","instances":[]}"#;
    world.input(AuctioneerInput::Outcome {
        id: "r".parse().unwrap(),
        body: Bytes::from(body),
    });
    let key = world.ask_one("r", "web", 100, 1);
    assert_eq!(world.start_reply(key).outcome, Outcome::Placed);
    assert!(world.sent().is_empty());
    // in an array, too
    let key = world.ask(vec![
        request("r", "web", 100, 1),
        request("s", "db", 100, 1),
    ]);
    world.deliver_all();
    let reply = world.reply(key).unwrap();
    assert_eq!(reply["requests"][0]["id"], "r");
    assert_eq!(reply["outcome"], "placed");
}

#[test]
fn a_request_announced_by_another_is_looked_up_first() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    world.input(announced(9, &["r"]));
    let key = world.ask_one("r", "web", 100, 2);
    let query = query(&world).expect("the cells are asked");
    assert!(world.sent().is_empty());
    let held = instance_id("r", "web", Kind::Lrp, 1);
    world.input(AuctioneerInput::InstancesReported {
        lookup: query,
        answer: Box::new(found("c2", &[held])),
    });
    assert!(world.sent().is_empty(), "c1 has not answered");
    world.input(AuctioneerInput::InstancesReported {
        lookup: query,
        answer: Box::new(found("c1", &[])),
    });
    let sent = world.sent();
    assert_eq!(sent.len(), 1);
    let indices: Vec<u32> = sent[0].start.work.iter().map(|w| w.index).collect();
    assert_eq!(indices, [0], "the other one runs");
    world.deliver(&sent[0]);
    let reply = world.start_reply(key);
    assert_eq!(reply.outcome, Outcome::Placed);
    let cells: Vec<_> = reply.instances.iter().map(|i| i.cell.clone()).collect();
    assert!(cells.contains(&Some("c2".into())));
}

#[test]
fn the_search_ends_with_its_time_or_with_the_others_outcome() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.input(announced(9, &["r", "s"]));
    let key = world.ask_one("r", "web", 100, 1);
    world.pass(2_499);
    assert_eq!(
        world.reply(key),
        None,
        "there is time until an auction must be held"
    );
    world.pass(1);
    assert!(world.sent().is_empty(), "c1 may run it");
    let reply = world.start_reply(key);
    assert_eq!(reply.outcome, Outcome::Unknown);
    let told = &reply.instances[0];
    assert_eq!(told.cell.as_deref(), Some("c1"));
    let why = "c1 did not answer whether it runs there already; not started elsewhere";
    assert_eq!(told.reason.as_deref(), Some(why));

    let key = world.ask_one("s", "db", 100, 1);
    let body = r#"{"v":1,"id":"s","app":"db","outcome":"unknown","instances":[]}"#;
    world.input(AuctioneerInput::Outcome {
        id: "s".parse().unwrap(),
        body: Bytes::from(body),
    });
    assert_eq!(world.start_reply(key).outcome, Outcome::Unknown);
    world.pass(1_000);
    assert!(world.sent().is_empty());
    assert!(world.machine.is_idle());
}

#[test]
fn our_own_events_change_nothing() {
    let mut world = World::with_cells("dea", &["c1"]);
    let key = world.ask_one("r", "web", 100, 1);
    let claim = world.events("asked")[0].auction.unwrap().as_u128();
    world.input(announced(claim, &["r"]));
    world.deliver_all();
    let body = Bytes::from(serde_json::to_vec(&world.outcomes("r")[0]).unwrap());
    world.input(AuctioneerInput::Outcome {
        id: "r".parse().unwrap(),
        body,
    });
    world.input(announced(claim, &["r"]));
    let again = world.ask_one("r", "web", 100, 1);
    assert_eq!(world.reply(again), world.reply(key));
    assert!(query(&world).is_none());
}

#[test]
fn a_search_that_outlasts_the_deadline_starts_nothing() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.input(announced(9, &["r"]));
    let mut asked = request("r", "web", 100, 1);
    asked.deadline = Some(placement::Span(std::time::Duration::from_millis(100)));
    let key = world.ask(vec![asked]);
    world.silence(100);
    let reply = world.start_reply(key);
    assert_eq!(reply.outcome, Outcome::Unknown);
    let reason = reply.instances[0].reason.as_deref();
    let expected = "cells did not report in time whether it runs already; not started elsewhere";
    assert_eq!(reason, Some(expected));
    assert_eq!(
        world.machine.next_work_ms(),
        u64::MAX,
        "nobody waits for it"
    );
    world.pass(2_000);
    assert!(world.sent().is_empty());
}

/// The request wants to be (or not to be) where an instance is: the cells are asked first.
#[test]
fn named_instances_are_located_before_the_auction() {
    for (field, expected) in [("near", "c2"), ("far", "c1")] {
        let mut world = World::with_cells("dapi", &["c1", "c2"]);
        let there = InstanceId::from_u128(0xabcd);
        let mut wants = request("r", "web", 100, 1);
        // in the way people write ids
        let item = vec![format!("instance:{}", there.to_string().to_uppercase())];
        if field == "near" {
            wants.near = item;
        } else {
            wants.far = item;
        }
        wants.strict = true;
        let asked = world.ask(vec![wants]);
        assert!(world.sent().is_empty() && world.asked_bids().is_none());
        let (key, question) = questions(&mut world).remove(0);
        assert_eq!(question.ids, [there]);
        for (cell, ids) in [("c1", vec![]), ("c2", vec![there])] {
            let answer = Box::new(found(cell, &ids));
            world.input(AuctioneerInput::InstancesReported {
                lookup: key,
                answer,
            });
        }
        if world.asked_bids().is_some() {
            world.bid_all();
        }
        world.deliver_all();
        let reply = world.start_reply(asked);
        assert_eq!(
            reply.instances[0].cell.as_deref(),
            Some(expected),
            "{field}"
        );
    }
}

/// An instance that has ended is not located, and with a policy that ignores locality no cells are asked.
#[test]
fn only_what_runs_is_located_and_only_where_it_counts() {
    let there = InstanceId::from_u128(0xabcd);
    let mut wants = request("r", "web", 100, 1);
    wants.near = vec![format!("instance:{there}")];
    wants.strict = true;
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask(vec![wants.clone()]);
    assert_eq!((query(&world), world.sent().len()), (None, 1));

    let mut world = World::with_cells("dapi", &["c1"]);
    let asked = world.ask(vec![wants]);
    let mut answer = found("c1", &[there]);
    answer.instances[0].state = InstanceState::Exited;
    let key = query(&world).unwrap();
    let answer = Box::new(answer);
    world.input(AuctioneerInput::InstancesReported {
        lookup: key,
        answer,
    });
    if world.asked_bids().is_some() {
        world.bid_all();
    }
    let reply = world.start_reply(asked);
    assert_eq!(reply.outcome, Outcome::Unplaced);
}

fn report(world: &mut World, lookup: LookupId, answer: InstancesAnswer) {
    let answer = Box::new(answer);
    world.input(AuctioneerInput::InstancesReported { lookup, answer });
}

/// Sends a request that another auctioneer has announced. Returns the question to the cells about it.
fn looked_up(world: &mut World, instances: u32) -> LookupId {
    world.input(announced(9, &["r"]));
    world.ask_one("r", "web", 1, instances);
    query(world).expect("the cells are asked")
}

#[test]
fn an_answer_in_several_messages_is_awaited_to_its_end() {
    let mut world = World::with_cells("dea", &["c1"]);
    let lookup = looked_up(&mut world, 2);
    assert_eq!(world.machine.counters().repeats, 1);
    let held = instance_id("r", "web", Kind::Lrp, 1);
    let first = InstancesAnswer {
        more: true,
        ..found("c1", &[])
    };
    report(&mut world, lookup, first);
    assert!(world.sent().is_empty(), "there is more to come");
    report(&mut world, lookup, found("c1", &[held]));
    let sent = world.sent();
    assert_eq!((sent.len(), sent[0].start.work.len()), (1, 1));
    report(&mut world, lookup, found("c1", &[]));
    assert_eq!(world.machine.counters().stray_answers, 1);
}

#[test]
fn a_few_instances_are_asked_for_by_id_and_many_by_app() {
    for (instances, ids) in [(4_096, true), (4_097, false)] {
        let mut world = World::with_cells("dea", &["c1"]);
        looked_up(&mut world, instances);
        let body = world.out.iter().find_map(|o| match o {
            AuctioneerOutput::AskInstances { body, .. } => Some(body.clone()),
            _ => None,
        });
        let asked: shared::wire::Instances = serde_json::from_slice(&body.unwrap()).unwrap();
        assert_eq!(asked.app.as_deref(), Some("web"));
        assert_eq!(!asked.id_prefixes.is_empty(), ids, "{instances}");
    }
}

#[test]
fn a_cell_that_leaves_is_asked_in_vain_and_not_waited_for() {
    let mut world = World::with_cells("dea", &["c1", "c2", "c3"]);
    let asked_ms = world.now_ms;
    let lookup = looked_up(&mut world, 1);
    assert_eq!(world.machine.next_work_ms(), asked_ms + 500);
    report(&mut world, lookup, found("c1", &[]));
    for (gone, left) in [("c2", 1), ("c3", 0)] {
        assert!(world.sent().is_empty(), "{left} cells may have it");
        world.cell(gone).ttl_ms = 0;
        world.advertise(gone);
    }
    assert_eq!(world.sent().len(), 1);
}

#[test]
fn what_is_announced_and_wants_to_be_near_an_instance_takes_two_questions() {
    let mut world = World::with_cells("dapi", &["c1", "c2"]);
    let there = InstanceId::from_u128(0xabcd);
    world.input(announced(9, &["r"]));
    let mut wants = request("r", "web", 100, 1);
    wants.near = vec![format!("instance:{there}")];
    wants.strict = true;
    let key = world.ask(vec![wants]);
    for ids in [vec![], vec![there]] {
        let lookup = query(&world).expect("the cells are asked");
        world.out.clear();
        report(&mut world, lookup, found("c1", &[]));
        report(&mut world, lookup, found("c2", &ids));
    }
    assert_eq!(query(&world), None, "all is known");
    if world.asked_bids().is_some() {
        world.bid_all();
    }
    world.deliver_all();
    let placed = world.start_reply(key);
    assert_eq!(placed.instances[0].cell.as_deref(), Some("c2"));
}
