//! Cells' answers to starts, and what follows from them.

use std::time::Duration;

use shared::wire::{Acceptance, Outcome, Refusal, kind};

use super::world::{Sent, World, request};
use crate::{AuctioneerInput, AuctioneerOutput, START_WAIT_MS};

/// The answer of a cell that has room but refuses.
fn refusal(world: &mut World, sent: &Sent) -> Acceptance {
    let before = world.cell(&sent.cell).clone();
    let mut answer = before.clone().answer(&sent.start);
    let refuse = |instance| Refusal {
        instance,
        reason: "odd".into(),
        needs: Some(5),
        has: Some(4),
    };
    answer.refused = answer.accepted.drain(..).map(refuse).collect();
    answer.available = before.cell.available.clone();
    answer.apps.clear();
    answer
}

#[test]
fn refused_work_enters_three_auctions_at_most() {
    let mut world = World::with_cells("dea", &["c1"]);
    let key = world.ask_one("r", "web", 100, 1);
    for auction in 1..=3 {
        let sent = world.sent();
        assert_eq!(sent.len(), 1, "auction {auction}");
        let answer = refusal(&mut world, &sent[0]);
        world.answered(&sent[0], answer);
        assert_eq!(world.free("c1"), if auction < 3 { 900 } else { 1_000 });
    }
    assert!(world.sent().is_empty());
    let reply = world.start_reply(key);
    assert_eq!(reply.outcome, Outcome::Unplaced);
    assert_eq!(
        reply.instances[0].reason.as_deref(),
        Some("c1 refused: odd")
    );
    assert_eq!(reply.instances[0].tally[0].needs, Some(5.0));
    assert_eq!(world.events(kind::REFUSED).len(), 3);
    assert_eq!(world.events(kind::UNPLACED).len(), 1);
    assert_eq!(world.machine.counters().refused, 3);
}

#[test]
fn a_refusal_that_comes_late_settles_what_was_unknown() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r", "web", 100, 2);
    let sent = world.sent().remove(0);
    world.silence(START_WAIT_MS);
    let answer = refusal(&mut world, &sent);
    world.answered(&sent, answer.clone());
    let told = world.events(kind::UNPLACED);
    assert_eq!(told.len(), 2);
    assert_eq!(told[0].reason.as_deref(), Some("c1 refused late: odd"));
    let counters = world.machine.counters();
    assert_eq!((counters.settled_late, counters.stray_answers), (2, 0));
    assert_eq!(world.free("c1"), 1_000, "given back");
    world.answered(&sent, answer);
    assert_eq!(world.machine.counters().stray_answers, 1, "the second time");
}

#[test]
fn believed_is_left_out_after_two_changed_refusals() {
    let mut world = World::with_cells("dea", &["c1"]);
    let key = world.ask_one("r", "web", 100, 1);
    // each time, another auctioneer has just placed one of the app
    for (auction, believed) in [(1, Some(0)), (2, Some(1)), (3, None)] {
        let other = request("x", "web", 100, 1);
        world.cell("c1").cell.debit(&other, None);
        world.cell("c1").seq += 1;
        let sent = world.sent();
        assert_eq!(
            sent[0].start.work[0].believed, believed,
            "auction {auction}"
        );
        world.deliver(&sent[0]);
    }
    assert_eq!(world.start_reply(key).outcome, Outcome::Placed);
}

#[test]
fn a_refused_instance_goes_where_the_answers_show_room() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    // c1 is full and has not advertised it yet; dea prefers the one with more memory
    world.cell("c2").cell.available.memory_mb = 400;
    world.cell("c2").seq += 1;
    world.advertise("c2");
    world.cell("c1").cell.available.memory_mb = 10;
    world.cell("c1").seq += 1;
    let key = world.ask_one("r", "web", 100, 1);
    assert_eq!(world.deliver_all(), 2);
    let reply = world.start_reply(key);
    assert_eq!(reply.instances[0].cell.as_deref(), Some("c2"));
    assert_eq!(world.free("c1"), 10, "its own report");
}

#[test]
fn an_outdated_cell_is_asked_for_its_state_and_left_out() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    world.cell("c2").cell.available.memory_mb = 400;
    world.cell("c2").seq += 1;
    world.advertise("c2");
    world.cell("c1").incarnation = shared::Incarnation::from_u128(77);
    let key = world.ask_one("r", "web", 100, 1);
    world.deliver_all();
    assert_eq!(
        world.start_reply(key).instances[0].cell.as_deref(),
        Some("c2")
    );
    let asks = |o: &&AuctioneerOutput| matches!(o, AuctioneerOutput::AskState { cell } if cell.as_ref() == "c1");
    assert_eq!(world.out.iter().filter(asks).count(), 1);
}

#[test]
fn without_responders_an_instance_goes_elsewhere() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    let key = world.ask_one("r", "web", 100, 1);
    let sent = world.sent();
    let dead = sent[0].cell.clone();
    world.input(AuctioneerInput::NoResponders {
        dispatch: sent[0].dispatch,
    });
    assert_eq!(world.free(&dead), 1_000, "given back");
    let again = world.sent();
    assert_ne!(again[0].cell, dead);
    world.deliver(&again[0]);
    assert_eq!(world.start_reply(key).outcome, Outcome::Placed);
    assert_eq!(
        world.events(kind::CELL_LOST).len(),
        0,
        "it is not called lost for it"
    );
    // nothing is sent there for one interval
    for (n, wait_ms) in [(2, 0), (3, 4_000)] {
        world.pass(wait_ms);
        world.ask_one(&format!("r{n}"), &format!("app{n}"), 10, 1);
        let sent = world.sent();
        assert_ne!(sent[0].cell, dead);
        world.deliver(&sent[0]);
    }
    world.pass(1_000);
    world.ask_one("r4", "web", 10, 1);
    assert_eq!(
        world.sent()[0].cell,
        dead,
        "the other one has an instance of it"
    );
}

#[test]
fn no_answer_is_unknown_and_never_started_elsewhere() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    let key = world.ask_one("r", "web", 100, 1);
    let sent = world.sent();
    world.silence(999);
    assert!(world.reply(key).is_none());
    world.silence(1);
    let reply = world.start_reply(key);
    assert_eq!(reply.outcome, Outcome::Unknown);
    assert_eq!(
        reply.instances[0].cell.as_deref(),
        Some(sent[0].cell.as_str())
    );
    let reason = reply.instances[0].reason.as_deref();
    assert_eq!(reason, Some("no answer within 1s; not started elsewhere"));
    assert_eq!(world.events(kind::UNKNOWN).len(), 1);
    world.pass(3_000);
    assert!(world.sent().is_empty());
    assert_eq!(world.free(&sent[0].cell), 900, "still debited");
    // the late answer settles it, which an event reports
    world.deliver(&sent[0]);
    let placed = world.events(kind::PLACED);
    assert_eq!(
        (
            placed.len(),
            placed[0].request.as_ref().map(shared::RequestId::as_str)
        ),
        (1, Some("r"))
    );
    assert_eq!(world.machine.counters().settled_late, 1);
}

#[test]
fn a_report_that_lists_it_settles_an_unknown_instance() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r", "web", 100, 1);
    let sent = world.sent();
    world.silence(1_000);
    let _lost = world.cell("c1").answer(&sent[0].start);
    world.advertise("c1");
    assert_eq!(world.events(kind::PLACED).len(), 1);
    assert_eq!(world.free("c1"), 900, "debited once, by the cell itself");
}

#[test]
fn the_deadline_answers_with_what_is_known() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    let mut asked = request("r", "web", 800, 2);
    asked.deadline = Some(placement::Span(std::time::Duration::from_millis(200)));
    let key = world.ask(vec![asked]);
    let sent = world.sent();
    world.deliver(&sent[0]);
    world.silence(200);
    let reply = world.start_reply(key);
    let outcomes: Vec<Outcome> = reply.instances.iter().map(|i| i.outcome).collect();
    assert!(outcomes.contains(&Outcome::Placed) && outcomes.contains(&Outcome::Unknown));
    assert!(world.events(kind::PLACED).is_empty());
    world.deliver(&sent[1]);
    let placed = world.events(kind::PLACED);
    assert_eq!(
        (placed.len(), placed[0].count),
        (1, 2),
        "what is later known comes as an event"
    );
    assert_eq!(world.outcomes("r").len(), 1, "the outcome is told once");
    assert!(world.machine.is_idle());
}

#[test]
fn an_answer_that_does_not_fit_tells_less() {
    let told = |max_payload: usize| {
        let mut world = World::with_cells("dea", &["c1", "c2"]);
        let key = world.ask_one("r", "web", 10, 40);
        // a different body under the same id causes a warning
        world.ask_one("r", "web", 20, 40);
        let sent = world.sent();
        world.machine.set_max_payload(max_payload);
        for sent in sent {
            world.deliver(&sent);
        }
        let reply = world.start_reply(key);
        assert_eq!(reply.outcome, Outcome::Placed);
        let bytes = shared::wire::to_bytes(&reply).len();
        let first = &reply.instances[0];
        let instances = match (&first.instance, &first.indices, &first.reason) {
            (Some(_), None, None) => "each",
            (None, Some(_), None) => "by cell",
            (None, None, Some(reason)) => {
                assert_eq!(reason, "40 instances; too many to list");
                "counts"
            }
            _ => panic!("{first:?}"),
        };
        let warned = reply.warnings.len();
        ((instances, reply.instances.len(), warned), bytes)
    };
    let mut max_payload = 1 << 20;
    for expected in [
        ("each", 40, 1),
        ("by cell", 2, 1),
        ("counts", 1, 1),
        ("counts", 1, 0),
    ] {
        let (is, bytes) = told(max_payload);
        assert_eq!(is, expected, "in {max_payload} bytes");
        assert_eq!(told(bytes).0, expected, "it just fits");
        max_payload = bytes - 1;
    }
}

#[test]
fn an_event_lists_a_hundred_instances_and_counts_all() {
    for (instances, listed) in [(100, 100), (101, 100)] {
        let mut world = World::with_cells("dea", &["c1"]);
        world.ask_one("r", "web", 1, instances);
        world.deliver_all();
        let placed = &world.events(kind::PLACED)[0];
        assert_eq!(placed.count, instances as usize);
        assert_eq!(placed.instances.len(), listed);
        let last = instances - 1;
        assert_eq!(placed.indices, Some(format!("0-{last}")));
    }
}

#[test]
fn an_event_names_its_request_when_it_is_of_one() {
    for (ids, named) in [(vec!["r1"], Some("r1")), (vec!["r1", "r2"], None)] {
        let mut world = World::with_cells("diego", &["c1"]);
        for (index, id) in (0..).zip(&ids) {
            let mut asked = request(id, "web", 10, 2);
            asked.indices = Some(vec![index, index + 10]);
            world.ask(vec![asked]);
        }
        world.bid_all();
        world.deliver_all();
        let placed = &world.events(kind::PLACED)[0];
        let request = placed.request.as_ref().map(shared::RequestId::as_str);
        assert_eq!((request, placed.count), (named, 2 * ids.len()));
    }
}

#[test]
fn a_cell_that_does_not_answer_is_set_aside_until_it_advertises() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    world.ask_one("r", "web", 100, 1);
    let hung = world.sent()[0].cell.clone();
    world.pass(1_000);
    for n in 0..8 {
        world.ask_one(&format!("s{n}"), &format!("db{n}"), 10, 1);
        for sent in world.sent() {
            assert_ne!(sent.cell, hung);
            world.deliver(&sent);
        }
    }
    let away_until = |world: &World| world.machine.feed().get(&hung).unwrap().absent_until_ms;
    assert!(away_until(&world) > world.now_ms);
    world.advertise(&hung);
    assert_eq!(away_until(&world), 0);
}

#[test]
fn what_is_refused_after_the_reply_is_auctioned_again_while_its_sender_would_wait() {
    for (queue_timeout, again) in [(None, 0), (Some(Duration::from_secs(60)), 1)] {
        let mut world = World::with_cells("dea", &["c1", "c2"]);
        let mut asked = request("r", "web", 100, 1);
        asked.deadline = Some(placement::Span(Duration::from_millis(100)));
        asked.queue_timeout = queue_timeout.map(placement::Span);
        let key = world.ask(vec![asked]);
        let sent = world.sent().remove(0);
        world.silence(100);
        world.start_reply(key);
        world.input(AuctioneerInput::NoResponders {
            dispatch: sent.dispatch,
        });
        assert_eq!(world.sent().len(), again, "{queue_timeout:?}");
    }
}

#[test]
fn a_second_start_names_the_auction_with_which_the_request_began() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    world.ask_one("r", "web", 100, 1);
    let first = world.sent().remove(0);
    assert_eq!(first.start.work[0].claim, None, "it is that of the start");
    world.input(AuctioneerInput::NoResponders {
        dispatch: first.dispatch,
    });
    let second = world.sent().remove(0);
    assert_ne!(second.start.auction, first.start.auction);
    assert_eq!(second.start.work[0].claim, Some(first.start.auction));
}
