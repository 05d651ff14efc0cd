use std::time::Duration;

use shared::wire::{Outcome, kind};

use super::world::{World, asked, request};
use crate::{AuctioneerInput, AuctioneerOutput, MAX_WAITING, ReplyKey, feed::ReportKind};

#[test]
fn dea_asks_for_no_bids_and_sends_one_start_to_each_winner() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    let key = world.ask_one("r", "web", 100, 4);
    assert!(world.asked_bids().is_none());
    assert_eq!(world.events(kind::ASKED).len(), 1);
    let sent = world.sent();
    assert_eq!(sent.len(), 2, "one for each winning cell: {sent:#?}");
    assert_eq!(
        world.free("c1") + world.free("c2"),
        2_000 - 400,
        "debited at dispatch"
    );
    for sent in &sent {
        let believed: Vec<_> = sent.start.work.iter().map(|w| w.believed).collect();
        assert_eq!(
            believed,
            [Some(0), Some(1)],
            "how many are there before each"
        );
        assert_eq!(
            sent.start.expires_ms,
            world.cells[&sent.cell]
                .clock_ms
                .after(Duration::from_secs(5))
        );
        assert!(world.reply(key).is_none());
        world.deliver(sent);
    }
    let reply = world.start_reply(key);
    assert_eq!((reply.id.as_str(), reply.outcome), ("r", Outcome::Placed));
    assert_eq!(reply.instances.len(), 4);
    assert!(
        reply
            .instances
            .iter()
            .all(|i| i.cell.is_some() && i.instance.is_some())
    );
    let placed = world.events(kind::PLACED);
    assert_eq!(placed.len(), 1, "one for the app and auction");
    assert_eq!(
        (placed[0].count, placed[0].indices.as_deref()),
        (4, Some("0-3"))
    );
    assert_eq!(world.outcomes("r").len(), 1);
    assert!(world.machine.is_idle());
    assert_eq!(world.free("c1") + world.free("c2"), 2_000 - 400);
}

#[test]
fn under_load_work_gathers_for_a_moment_and_alone_it_does_not() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r1", "a", 10, 1);
    let first = world.sent();
    assert_eq!(first.len(), 1, "on an idle cluster it goes out at once");
    world.ask_one("r2", "b", 10, 1);
    world.ask_one("r3", "c", 10, 1);
    assert!(
        world.sent().is_empty(),
        "a start is on its way: more may come"
    );
    world.pass(crate::GATHER_MS);
    let second = world.sent();
    assert_eq!(second.len(), 1, "one message for both: {second:#?}");
    assert_eq!(second[0].start.work.len(), 2);
    world.deliver(&first[0]);
    world.deliver(&second[0]);
    world.ask_one("r4", "d", 10, 1);
    assert_eq!(world.sent().len(), 1, "idle again");
}

#[test]
fn the_cells_clock_is_extrapolated_between_reports() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.pass(1_234);
    world.ask_one("r", "web", 100, 1);
    let heard_ms = world.cells["c1"].clock_ms;
    assert_eq!(
        world.sent()[0].start.expires_ms,
        heard_ms.after(Duration::from_millis(1_234 + 5_000))
    );
}

#[test]
fn diego_asks_once_and_decides_when_all_have_answered() {
    let mut world = World::with_cells("diego", &["c1", "c2", "c3"]);
    let key = world.ask_one("r", "web", 100, 3);
    let auction = world.asked_bids().unwrap();
    for name in ["c1", "c2"] {
        let bid = world.cells[name].unchanged(auction);
        world.receive(ReportKind::Bid, None, bid);
        assert!(world.sent().is_empty(), "one is missing");
    }
    // a full bid is newer than the last advertisement
    world.cell("c3").seq = 2;
    world.cell("c3").cell.available.memory_mb = 5;
    let bid = world.cells["c3"].report(Some(auction));
    world.receive(ReportKind::Bid, None, bid);
    let sent = world.sent();
    assert!(
        sent.iter().all(|s| s.cell != "c3"),
        "it had no room: {sent:#?}"
    );
    assert!(sent.iter().all(|s| s.start.auction == auction));
    for sent in &sent {
        world.deliver(sent);
    }
    assert_eq!(world.start_reply(key).outcome, Outcome::Placed);
    let asked = world
        .out
        .iter()
        .filter(|o| matches!(o, AuctioneerOutput::AskBids { .. }));
    assert_eq!(asked.count(), 1, "once per batch");
}

#[test]
fn work_that_arrives_while_waiting_for_bids_takes_part() {
    let mut world = World::with_cells("diego", &["c1"]);
    let first = world.ask_one("r1", "a", 100, 1);
    let second = world.ask_one("r2", "b", 100, 1);
    world.bid_all();
    let sent = world.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].start.work.len(), 2);
    // while answers are awaited the next auction may begin
    let third = world.ask_one("r3", "c", 100, 1);
    world.bid_all();
    world.deliver(&sent[0]);
    world.deliver_all();
    for key in [first, second, third] {
        assert_eq!(world.start_reply(key).outcome, Outcome::Placed);
    }
    assert_eq!(world.machine.counters().auctions, 2);
}

#[test]
fn a_cell_that_misses_a_bid_delays_one_batch() {
    let mut world = World::with_cells("diego", &["c1", "c2"]);
    let bid = |world: &mut World, name: &str| {
        let auction = world.asked_bids().unwrap();
        let bid = world.cells[name].unchanged(auction);
        world.receive(ReportKind::Bid, None, bid);
    };
    world.ask_one("r1", "a", 100, 1);
    bid(&mut world, "c1");
    world.silence(299);
    assert!(world.sent().is_empty());
    world.silence(1);
    let sent = world.sent();
    assert_eq!(sent[0].cell, "c1", "without a bid c2 does not exist");
    world.ask_one("r2", "b", 100, 1);
    bid(&mut world, "c1");
    assert_eq!(world.sent().len(), 1, "nobody waits for c2 now");
    assert_eq!(world.machine.counters().missed_bids, 1);
    // it advertises: it is waited for again
    world.advertise("c2");
    world.ask_one("r3", "c", 100, 1);
    bid(&mut world, "c1");
    assert!(world.sent().is_empty());
    bid(&mut world, "c2");
    assert_eq!(world.sent().len(), 1);
}

#[test]
fn when_all_cells_were_silent_all_are_waited_for() {
    let mut world = World::with_cells("diego", &["c1", "c2"]);
    let first = world.ask_one("r1", "a", 100, 1);
    world.silence(300);
    assert_eq!(world.start_reply(first).outcome, Outcome::Unplaced);
    let second = world.ask_one("r2", "b", 100, 1);
    assert!(world.reply(second).is_none());
    world.bid_all();
    world.deliver_all();
    assert_eq!(world.start_reply(second).outcome, Outcome::Placed);
}

#[test]
fn no_cells_is_an_answer_at_once() {
    for policy in ["dea", "diego"] {
        let mut world = World::new(policy);
        let key = world.ask_one("r", "web", 100, 3);
        let reply = world.start_reply(key);
        assert_eq!(reply.outcome, Outcome::Unplaced, "{policy}");
        assert_eq!(reply.instances.len(), 1, "equal failures are grouped");
        assert_eq!(reply.instances[0].indices.as_deref(), Some("0-2"));
        assert_eq!(world.events(kind::UNPLACED).len(), 1, "{policy}");
    }
}

#[test]
fn nothing_is_sent_after_the_deadline() {
    let mut world = World::with_cells("diego", &["c1"]);
    let mut asked = request("r", "web", 100, 1);
    asked.deadline = Some(placement::Span(std::time::Duration::from_millis(50)));
    let key = world.ask(vec![asked]);
    world.silence(50);
    assert_eq!(world.start_reply(key).outcome, Outcome::Unplaced);
    world.bid_all();
    assert!(world.sent().is_empty());
}

#[test]
fn work_that_may_wait_is_placed_when_the_pool_changes() {
    let mut world = World::with_cells("dea", &["c1"]);
    let mut asked = request("r", "web", 2_000, 1);
    asked.queue_timeout = Some(placement::Span(std::time::Duration::from_secs(60)));
    let key = world.ask(vec![asked]);
    assert_eq!(world.events(kind::QUEUED).len(), 1);
    world.pass(3_999);
    assert_eq!(
        world.machine.counters().auctions,
        1,
        "it starts no auction by itself"
    );
    assert!(world.reply(key).is_none());
    world.pass(1);
    let reply = world.start_reply(key);
    assert_eq!(reply.outcome, Outcome::Queued);
    assert!(reply.instances[0].reason.is_some());
    let mut large = super::world::TestCell::new("c9", 4_000);
    large.clock_ms = shared::clock::CellTime::from_ms(5);
    world.cells.insert("c9".into(), large);
    world.advertise("c9");
    assert_eq!(world.deliver_all(), 1);
    assert_eq!(world.events(kind::PLACED).len(), 1);
    assert_eq!(world.events(kind::QUEUED).len(), 1);
    assert!(world.machine.is_idle());
}

#[test]
fn changes_bring_waiting_work_back_every_100_ms_at_most() {
    let mut world = World::with_cells("dea", &["c1"]);
    let mut asked = request("r", "web", 2_000, 1);
    asked.queue_timeout = Some(placement::Span(std::time::Duration::from_secs(60)));
    world.ask(vec![asked]);
    for _ in 0..100 {
        world.now_ms += 10;
        world.cell("c1").seq += 1;
        world.advertise("c1");
    }
    let auctions = world.machine.counters().auctions;
    assert!((10..=12).contains(&auctions), "{auctions} in a second");
}

#[test]
fn waiting_ends_with_its_time() {
    let mut world = World::with_cells("dea", &["c1"]);
    let mut asked = request("r", "web", 2_000, 2);
    asked.queue_timeout = Some(placement::Span(std::time::Duration::from_secs(2)));
    let key = world.ask(vec![asked]);
    world.pass(2_000);
    let reply = world.start_reply(key);
    assert_eq!(reply.outcome, Outcome::Unplaced);
    assert!(
        reply.instances[0]
            .reason
            .as_ref()
            .unwrap()
            .contains("memory"),
        "{reply:?}"
    );
    assert_eq!(world.events(kind::UNPLACED).len(), 1);
    assert!(world.machine.is_idle());
}

#[test]
fn duplicates_in_a_batch_share_the_first_ones_outcome() {
    let mut world = World::with_cells("diego", &["c1"]);
    let first = world.ask_one("r1", "web", 100, 1);
    let second = world.ask_one("r2", "web", 300, 2);
    world.bid_all();
    let sent = world.sent();
    assert_eq!(sent[0].start.work.len(), 2, "web.0 once, web.1");
    world.deliver(&sent[0]);
    let (first, second) = (world.start_reply(first), world.start_reply(second));
    assert_eq!(first.instances[0].duplicate_of, None);
    let shared = &second.instances[0];
    assert_eq!((shared.index, shared.outcome), (Some(0), Outcome::Placed));
    assert_eq!(
        shared.duplicate_of.as_ref().map(shared::RequestId::as_str),
        Some("r1")
    );
    assert_eq!(second.instances[1].duplicate_of, None);
}

#[test]
fn a_duplicate_of_what_fits_nowhere_fits_nowhere() {
    for policy in ["dea", "diego"] {
        let mut world = World::with_cells(policy, &["c1"]);
        let key = world.ask(vec![
            request("r1", "web", 5_000, 1),
            request("r2", "web", 5_000, 1),
        ]);
        if policy == "diego" {
            world.bid_all();
        }
        let reply = world.reply(key).unwrap();
        assert_eq!(reply["outcome"], "unplaced");
        assert_eq!(reply["requests"][1]["instances"][0]["duplicate_of"], "r1");
        assert!(world.machine.is_idle());
    }
}

#[test]
fn an_array_is_answered_in_order_and_judged_one_by_one() {
    let mut world = World::with_cells("dea", &["c1"]);
    let reply = Some(ReplyKey::new(7));
    let AuctioneerInput::Start(mut start) = asked(
        vec![request("r1", "a", 10, 1), request("r2", "b", 5_000, 1)],
        reply,
    ) else {
        unreachable!()
    };
    let error = shared::wire::WireError::new("invalid_request", "app: missing");
    start.requests.insert(
        1,
        Err(crate::Rejected {
            id: "bad".parse().unwrap(),
            app: None,
            error,
        }),
    );
    world.input(AuctioneerInput::Start(start));
    world.deliver_all();
    let reply = world.reply(ReplyKey::new(7)).unwrap();
    assert_eq!(reply["outcome"], "unplaced");
    assert_eq!(reply["requests"][0]["outcome"], "placed");
    assert_eq!(reply["requests"][1]["error"]["message"], "app: missing");
    assert_eq!(reply["requests"][2]["id"], "r2");
    assert_eq!(world.events(kind::REJECTED).len(), 1);
    assert!(
        world.outcomes("bad").is_empty(),
        "its sender hears it by the answer"
    );
}

#[test]
fn too_much_that_waits_is_an_answer() {
    let mut world = World::new("diego");
    world
        .cells
        .insert("c1".into(), super::world::TestCell::new("c1", 10));
    world.advertise("c1");
    let most = u32::try_from(MAX_WAITING).unwrap();
    world.ask_one("r1", "web", 100, most / 2);
    world.ask_one("r2", "api", 100, most / 2);
    let key = world.ask_one("r3", "db", 100, 1);
    let reply = world.reply(key).unwrap();
    assert_eq!(reply["error"]["code"], "overloaded");
    let why = "200000 jobs are waiting; 1 more would exceed the limit of 200000";
    assert_eq!(reply["error"]["message"], why);
    assert_eq!(world.machine.counters().overloaded, 1);
    assert_eq!(world.events(kind::REJECTED).len(), 1);
}

#[test]
fn a_large_request_takes_several_auctions_and_one_answer_that_fits() {
    let mut world = World::with("dea", 64 << 10);
    for n in 0..10 {
        let name = format!("c{n}");
        let mut cell = super::world::TestCell::new(&name, 1_000_000);
        cell.cell.total.containers = None;
        cell.cell.available.containers = None;
        cell.cell.total.disk_mb = None;
        cell.cell.available.disk_mb = None;
        world.cells.insert(name.clone(), cell);
        world.advertise(&name);
    }
    let key = world.ask_one("r", "web", 1, 25_000);
    for _ in 0..4 {
        world.deliver_all();
        world.silence(0);
    }
    assert_eq!(world.machine.counters().auctions, 3);
    assert_eq!(world.machine.counters().accepted, 25_000);
    let Some(AuctioneerOutput::Reply { body, .. }) = world
        .out
        .iter()
        .find(|o| matches!(o, AuctioneerOutput::Reply { to, .. } if *to == key))
    else {
        panic!("no answer")
    };
    assert!(body.len() <= 64 << 10);
    assert_eq!(world.start_reply(key).outcome, Outcome::Placed);
}

#[test]
fn a_start_that_is_too_large_is_split_and_one_that_cannot_be_is_unplaced() {
    let mut world = World::with("dea", 4_096);
    world
        .cells
        .insert("c1".into(), super::world::TestCell::new("c1", 1_000));
    world.advertise("c1");
    let key = world.ask_one("r", "web", 1, 40);
    let sent = world.sent();
    assert!(sent.len() > 1);
    for sent in &sent {
        assert!(shared::wire::to_bytes(&sent.start).len() <= 4_096);
        world.deliver(sent);
    }
    assert_eq!(world.start_reply(key).outcome, Outcome::Placed);
    let mut large = request("r2", "db", 1, 1);
    large.run = Some(placement::Run {
        command: vec!["x".repeat(4_000)],
        ..placement::Run::default()
    });
    let key = world.ask(vec![large]);
    assert!(world.sent().is_empty());
    let reply = world.start_reply(key);
    assert_eq!(reply.outcome, Outcome::Unplaced);
    assert!(
        reply.instances[0].reason.as_ref().unwrap().contains("4096"),
        "{reply:?}"
    );
    assert_eq!(world.free("c1"), 960, "given back");
}

#[test]
fn an_auction_reports_its_outcomes() {
    let mut world = World::with_cells("dea", &["c1"]);
    let mut waits = request("r1", "web", 600, 3);
    waits.queue_timeout = Some(placement::Span(std::time::Duration::from_secs(60)));
    world.input(asked(vec![waits, request("r2", "db", 5_000, 2)], None));
    let held = world.out.iter().find_map(|o| match o {
        AuctioneerOutput::AuctionHeld {
            jobs,
            placed,
            queued,
            unplaced,
            ..
        } => Some((*jobs, *placed, *queued, *unplaced)),
        _ => None,
    });
    assert_eq!(held, Some((5, 1, 2, 2)));
}

#[test]
fn the_same_seed_draws_the_same() {
    let run = || {
        let mut world = World::with_cells("dea", &["c1", "c2", "c3", "c4"]);
        for n in 0..20 {
            world.ask_one(&format!("r{n}"), &format!("app{n}"), 10, 2);
        }
        let sent = world.sent();
        sent.iter()
            .map(|s| (s.cell.clone(), s.start.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[test]
fn shutdown_accepts_nothing_new_and_ends_queued_work() {
    let mut world = World::with_cells("dea", &["c1"]);
    let flying = world.ask_one("r1", "a", 100, 1);
    let mut waits = request("r2", "b", 5_000, 1);
    waits.queue_timeout = Some(placement::Span(std::time::Duration::from_secs(60)));
    let waiting = world.ask(vec![waits]);
    world.input(AuctioneerInput::Shutdown);
    assert_eq!(world.start_reply(waiting).outcome, Outcome::Unplaced);
    let late = world.ask_one("r3", "c", 100, 1);
    assert_eq!(world.reply(late).unwrap()["error"]["code"], "shutting_down");
    assert!(!world.machine.is_idle());
    world.deliver_all();
    assert_eq!(world.start_reply(flying).outcome, Outcome::Placed);
    assert!(world.machine.is_idle());
}
