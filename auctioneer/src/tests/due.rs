//! When the machine wakes up, what it counts, and what it draws from its seed.

use std::time::Duration;

use placement::{Span, random::SplitMix64};
use shared::AuctionId;

use super::world::{World, asked, request};
use crate::{
    AuctioneerInput, AuctioneerOutput, BID_WAIT_MS, DEFAULT_DEADLINE_MS, DispatchId, GATHER_MS,
    REQUEUE_MS, START_WAIT_MS, feed::ReportKind, sim::SimulatedInput,
};

fn hold(world: &mut World, id: &str) {
    let mut request = request(id, "web", 5_000, 1);
    request.queue_timeout = Some(Span(Duration::from_secs(60)));
    world.ask(vec![request]);
}

/// A request and two cells, of which only c1 has bid for it.
fn one_of_two_has_bid() -> World {
    let mut world = World::with_cells("diego", &["c1", "c2"]);
    world.ask_one("r1", "web", 100, 1);
    world.bid("c1");
    assert!(world.sent().is_empty());
    world
}

#[test]
fn it_wakes_for_leases_and_for_answers() {
    let mut world = World::with_cells("dea", &["c1"]);
    assert_eq!(world.machine.next_work_ms(), u64::MAX);
    assert_eq!(world.machine.next_wake_ms(), world.now_ms + 100);
    world.ask_one("r1", "web", 100, 1);
    let sent_ms = world.now_ms;
    assert_eq!(world.machine.next_work_ms(), sent_ms + START_WAIT_MS);
    world.silence(START_WAIT_MS - 1);
    assert_eq!(world.machine.counters().unanswered, 0);
    world.silence(1);
    assert_eq!(world.machine.counters().unanswered, 1);
    assert_eq!(world.machine.next_work_ms(), u64::MAX);
}

#[test]
fn the_wait_for_answers_begins_when_the_starts_are_sent() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r1", "web", 100, 1);
    // deciding took the machine this long
    let sent_ms = world.now_ms + 700;
    world.machine.sent(sent_ms);
    assert_eq!(world.machine.next_work_ms(), sent_ms + START_WAIT_MS);
}

#[test]
fn of_open_requests_it_says_which_wait_for_room() {
    let mut world = World::with_cells("dea", &["c1"]);
    hold(&mut world, "waits");
    world.ask_one("sent", "web", 100, 1);
    let mut open: Vec<_> = world.machine.open_requests().collect();
    open.sort_unstable();
    assert_eq!(open, [("sent", false), ("waits", true)]);
}

#[test]
fn it_wakes_when_the_bids_are_due() {
    let mut world = World::with_cells("diego", &["c1", "c2"]);
    world.ask_one("r1", "web", 100, 1);
    assert_eq!(world.machine.next_work_ms(), world.now_ms + BID_WAIT_MS);
    world.silence(BID_WAIT_MS - 1);
    assert_eq!(world.machine.counters().auctions, 0);
    world.silence(1);
    assert_eq!(world.machine.counters().auctions, 1);
    assert_eq!(world.machine.counters().missed_bids, 2);
}

#[test]
fn requests_gather_while_starts_are_in_flight() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r1", "a", 100, 1);
    let first = world.sent();
    world.ask_one("r2", "b", 100, 1);
    assert_eq!(world.machine.next_work_ms(), world.now_ms + GATHER_MS);
    world.silence(GATHER_MS - 1);
    assert!(world.sent().is_empty());
    world.silence(1);
    assert_eq!((first.len(), world.sent().len()), (1, 1));
}

#[test]
fn held_work_comes_back_when_the_pool_changed_at_most_ten_times_a_second() {
    let mut world = World::with_cells("dea", &["c1"]);
    hold(&mut world, "r1");
    let asked_ms = world.now_ms;
    assert_eq!(world.machine.waiting(), 1);
    assert_eq!(world.machine.next_work_ms(), asked_ms + DEFAULT_DEADLINE_MS);
    let change = |world: &mut World| {
        world.cell("c1").seq += 1;
        world.advertise("c1");
        world.machine.counters().auctions
    };
    assert_eq!(change(&mut world), 2, "the first time at once");
    world.now_ms += 10;
    assert_eq!(change(&mut world), 2);
    assert_eq!(world.machine.next_work_ms(), asked_ms + REQUEUE_MS);
    world.silence(REQUEUE_MS - 11);
    assert_eq!(world.machine.counters().auctions, 2);
    world.silence(1);
    assert_eq!(world.machine.counters().auctions, 3);
    world.silence(2 * REQUEUE_MS);
    assert_eq!(world.machine.counters().auctions, 3, "nothing changed");
    world.silence(DEFAULT_DEADLINE_MS);
    assert_eq!(world.machine.next_work_ms(), asked_ms + 60_000);
}

#[test]
fn a_lost_connection_begins_every_lease_again() {
    let lost_after = |interrupted: bool| {
        let mut world = World::with_cells("dea", &["c1"]);
        world.pass(14_000);
        if interrupted {
            world.input(AuctioneerInput::Connected(false));
            world.input(AuctioneerInput::Connected(true));
        }
        world.pass(2_000);
        world.machine.counters().cells_lost
    };
    assert_eq!((lost_after(false), lost_after(true)), (1, 0));
}

#[test]
fn what_is_done_is_counted() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r1", "web", 100, 2);
    world.deliver_all();
    let counters = world.machine.counters();
    assert_eq!((counters.requests, counters.auctions), (1, 1));
    assert_eq!(
        (counters.jobs, counters.starts_sent, counters.accepted),
        (2, 1, 2)
    );
    world.input(AuctioneerInput::Unreadable);
    world.input(AuctioneerInput::WrongSubject);
    let counters = world.machine.counters();
    assert_eq!(counters.dropped_malformed, 1);
    assert_eq!(counters.dropped_wrong_subject, 1);
    let dispatch = DispatchId::new(999);
    world.input(AuctioneerInput::NoResponders { dispatch });
    let counters = world.machine.counters();
    assert_eq!((counters.stray_answers, counters.no_responders), (1, 0));
    world.ask_one("r2", "db", 100, 1);
    let dispatch = world.sent()[0].dispatch;
    assert_eq!(world.free("c1"), 700);
    world.input(AuctioneerInput::NoResponders { dispatch });
    assert_eq!(world.machine.counters().no_responders, 1);
    assert_eq!(world.free("c1"), 800, "nobody has it");
}

#[test]
fn a_late_answer_settles_once() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r1", "web", 100, 1);
    let sent = world.sent().remove(0);
    world.silence(START_WAIT_MS);
    let answer = world.cell("c1").answer(&sent.start);
    world.answered(&sent, answer.clone());
    let counters = world.machine.counters();
    assert_eq!((counters.settled_late, counters.stray_answers), (1, 0));
    world.answered(&sent, answer);
    let counters = world.machine.counters();
    assert_eq!((counters.settled_late, counters.stray_answers), (1, 1));
}

#[test]
fn an_auction_and_its_seed_follow_from_the_machines_seed() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r1", "web", 100, 1);
    let held = world.out.iter().find_map(|output| match output {
        AuctioneerOutput::AuctionHeld { auction, seed, .. } => Some((*auction, *seed)),
        _ => None,
    });
    let mut random = SplitMix64::new(1);
    let (high, low) = (random.draw(), random.draw());
    let bytes = ((u128::from(high) << 64) | u128::from(low)).to_be_bytes();
    let id: AuctionId = uuid::Builder::from_random_bytes(bytes).into_uuid().into();
    assert_eq!(held, Some((id, random.draw())));
}

#[test]
fn a_state_that_was_asked_for_is_a_bid() {
    let mut world = one_of_two_has_bid();
    world.cell("c2").seq += 1;
    let state = world.cells["c2"].report(None);
    world.receive(ReportKind::State, None, state);
    assert_eq!(world.sent().len(), 1);
}

#[test]
fn many_bids_may_be_summarised() {
    let mut world = World::with_cells("diego", &["c1", "c2", "c3"]);
    world.ask_one("r1", "web", 100, 1);
    let auction = world.asked_bids().unwrap();
    let except = ["c2".into()].into();
    let unchanged = SimulatedInput::Unchanged {
        auction: Some(auction),
        except,
    };
    world.input(AuctioneerInput::Simulated(unchanged));
    assert!(world.sent().is_empty(), "c2 has not bid");
    world.bid("c2");
    assert_eq!(world.sent().len(), 1);
    assert_eq!(world.machine.counters().missed_bids, 0);
    let cells = world.out.iter().find_map(|output| match output {
        AuctioneerOutput::AuctionHeld { cells, .. } => Some(*cells),
        _ => None,
    });
    assert_eq!(cells, Some(3), "all have bid");
}

#[test]
fn a_cell_that_leaves_is_not_waited_for() {
    let mut world = one_of_two_has_bid();
    world.cell("c2").ttl_ms = 0;
    world.advertise("c2");
    assert_eq!(world.sent().len(), 1);
    assert_eq!(world.machine.counters().missed_bids, 0);
}

#[test]
fn many_advertisements_may_be_summarised() {
    let mut world = World::with_cells("dea", &["c1", "c2", "c3"]);
    let heard_ms = world.cells["c1"].clock_ms;
    world.pass(10_000);
    let unchanged = |auction| SimulatedInput::Unchanged {
        auction,
        except: ["c2".into()].into(),
    };
    world.input(AuctioneerInput::Simulated(unchanged(None)));
    world.pass(5_000);
    assert_eq!(world.machine.counters().cells_lost, 1);
    assert!(world.machine.feed().get("c2").is_none());
    // their clocks advanced as much as ours
    world.ask_one("r", "web", 100, 1);
    let expires_ms = world.sent()[0].start.expires_ms;
    assert_eq!(expires_ms, heard_ms.after(Duration::from_secs(15 + 5)));
    world.pass(10_100);
    assert_eq!(world.machine.counters().cells_lost, 3);
}

#[test]
fn who_bids_again_is_waited_for_again() {
    let mut world = World::with_cells("diego", &["c1", "c2"]);
    let bid = |world: &mut World, name: &str| {
        world.bid(name);
        world.sent().len()
    };
    world.ask_one("r1", "a", 10, 1);
    world.silence(BID_WAIT_MS);
    world.ask_one("r2", "b", 10, 1);
    assert_eq!(
        bid(&mut world, "c1"),
        0,
        "all were silent, so both are awaited"
    );
    world.silence(BID_WAIT_MS);
    world.sent();
    // c2 is silent, but bids before c1 does
    world.ask_one("r3", "c", 10, 1);
    assert_eq!(bid(&mut world, "c2"), 0);
    assert!(bid(&mut world, "c1") > 0);
    world.ask_one("r4", "d", 10, 1);
    assert_eq!(bid(&mut world, "c1"), 0, "c2 is waited for");
    assert!(bid(&mut world, "c2") > 0);
}

#[test]
fn a_silent_cell_that_bids_is_waited_for_in_the_next_auction() {
    let mut world = World::with_cells("diego", &["c1", "c2"]);
    let bid = |world: &mut World, name: &str| {
        world.bid(name);
        world.machine.counters().auctions
    };
    world.ask_one("r1", "a", 10, 1);
    bid(&mut world, "c1");
    world.silence(BID_WAIT_MS);
    assert_eq!(world.machine.counters().missed_bids, 1);
    // c2, which is not waited for, bids before c1
    world.ask_one("r2", "b", 10, 1);
    assert_eq!(bid(&mut world, "c2"), 1);
    assert_eq!(bid(&mut world, "c1"), 2);
    world.ask_one("r3", "c", 10, 1);
    assert_eq!(bid(&mut world, "c1"), 2, "c2 is waited for");
    assert_eq!(bid(&mut world, "c2"), 3);
}

#[test]
fn outcomes_that_are_forgotten_before_their_time_are_counted() {
    let mut world = World::with_cells("dea", &["c1"]);
    // at most 64 MiB are remembered
    let long = "x".repeat(48 << 20);
    for (id, dropped) in [("r1", 0), ("r2", 1), ("r3", 2)] {
        let body = format!(
            r#"{{"id":"{id}","app":"a","outcome":"placed","instances":[],"warnings":["{long}"]}}"#
        );
        let (id, body) = (id.parse().unwrap(), bytes::Bytes::from(body));
        world.input(AuctioneerInput::Outcome { id, body });
        assert_eq!(world.machine.counters().dropped_outcomes, dropped);
    }
}

#[test]
fn the_time_of_a_start_runs_from_when_it_is_sent_however_long_deciding_took() {
    let mut world = World::with_cells("dea", &["c1"]);
    let heard_ms = world.cells["c1"].clock_ms;
    let ask = asked(vec![request("r", "web", 100, 1)], None);
    world.machine.take(world.now_ms, ask);
    world.machine.plan(world.now_ms);
    world.now_ms += 700;
    let outputs = world.machine.send(world.now_ms);
    world.out.extend(outputs);
    let expires_ms = world.sent()[0].start.expires_ms;
    assert_eq!(expires_ms, heard_ms.after(Duration::from_millis(5_700)));
    // so does the wait for its answer
    world.pass(999);
    assert!(world.events("unknown").is_empty());
    world.pass(1);
    assert_eq!(world.events("unknown").len(), 1);
}
