//! What an auction is held over, what it reports about that, and that it can be held again.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use placement::{Decision, PlanContext, Policy, Request, Verdict};
use shared::{AuctionId, wire::kind};

use super::world::{Sent, World, request};
use crate::{AuctioneerInput, AuctioneerOutput, MAX_BATCH};

/// An auction as reported in the log.
struct Held {
    auction: AuctionId,
    seed: u64,
    jobs: usize,
    cells: usize,
}

fn held(world: &World) -> Vec<Held> {
    let held = world.out.iter().filter_map(|output| match output {
        AuctioneerOutput::AuctionHeld {
            auction,
            seed,
            jobs,
            cells,
            ..
        } => Some(Held {
            auction: *auction,
            seed: *seed,
            jobs: *jobs,
            cells: *cells,
        }),
        _ => None,
    });
    held.collect()
}

/// Returns the cell of each app.
fn cells_of(sent: &[Sent]) -> BTreeMap<String, String> {
    let works = sent.iter().flat_map(|sent| {
        let work = sent.start.work.iter();
        work.map(|work| (work.app.clone(), sent.cell.clone()))
    });
    works.collect()
}

/// Returns the same for an auction that is held again over this pool.
fn held_again(
    world: &World,
    pool: &placement::Pool,
    requests: &[Request],
    policy: &str,
) -> BTreeMap<String, String> {
    let held = held(world).remove(0);
    let context = PlanContext {
        seed: held.seed,
        auction: held.auction.as_u128(),
        now_ms: i64::try_from(world.now_ms).unwrap(),
        ..PlanContext::default()
    };
    let jobs: Vec<_> = requests
        .iter()
        .flat_map(|request| Arc::new(request.clone()).jobs())
        .collect();
    let policy = Policy::preset(policy).unwrap();
    let plan = pool.clone().plan(&jobs, &policy, &context);
    let cell = |decision: Decision| match decision.verdict {
        Verdict::Placed { cell } => (requests[decision.job].app.clone(), cell.to_string()),
        other => panic!("{other:?}"),
    };
    plan.decisions.into_iter().map(cell).collect()
}

#[test]
fn an_auction_follows_from_its_pool_its_id_and_its_seed() {
    for policy in ["dea", "diego", "dapi"] {
        let names = ["c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8", "c9"];
        let mut world = World::with_cells(policy, &names);
        let pool = world.machine.feed().pool().clone();
        let requests: Vec<Request> = (0..8)
            .map(|n| request(&format!("r{n}"), &format!("app{n}"), 10, 1))
            .collect();
        world.ask(requests.clone());
        if world.asked_bids().is_some() {
            world.bid_all();
        }
        let placed = cells_of(&world.sent());
        assert_eq!(placed.len(), 8);
        assert_eq!(
            placed,
            held_again(&world, &pool, &requests, policy),
            "{policy}"
        );
    }
}

#[test]
fn planned_reboots_are_compared_with_the_time_of_the_auction() {
    // a reboot in the past does not count
    for (day, last_wins) in [(1, true), (40, false)] {
        let mut world = World::with_reboots(day);
        world.ask_one("r", "web", 10, 1);
        if world.asked_bids().is_some() {
            world.bid_all();
        }
        assert_eq!(world.sent()[0].cell == "c9", last_wins, "on day {day}");
    }
}

#[test]
fn cells_without_a_bid_and_those_that_are_away_are_not_counted() {
    let mut world = World::with_cells("dea", &["c1", "c2", "c3"]);
    world.ask_one("r1", "web", 10, 1);
    let sent = world.sent().remove(0);
    world.input(AuctioneerInput::NoResponders {
        dispatch: sent.dispatch,
    });
    let cells: Vec<usize> = held(&world).iter().map(|held| held.cells).collect();
    assert_eq!(cells, [3, 2]);

    let mut world = World::with_cells("diego", &["c1", "c2", "c3"]);
    world.ask_one("r1", "web", 10, 1);
    let auction = world.asked_bids().unwrap();
    let bid = world.cells["c1"].unchanged(auction);
    world.receive(crate::feed::ReportKind::Bid, None, bid);
    world.silence(crate::BID_WAIT_MS);
    assert_eq!(held(&world)[0].cells, 1);
}

#[test]
fn an_auction_has_ten_thousand_jobs_at_most() {
    let mut world = World::new("dea");
    world.ask_one("r", "web", 1, 10_001);
    world.silence(0);
    let jobs: Vec<usize> = held(&world).iter().map(|held| held.jobs).collect();
    assert_eq!(jobs, [MAX_BATCH, 1]);
}

#[test]
fn an_auction_names_the_requests_that_it_begins_as_far_as_a_message_holds_them() {
    let mut world = World::with_cells("diego", &["c1"]);
    for n in 10..60 {
        let mut asked = request(&format!("r{n}"), "web", 1, 1);
        asked.indices = Some(vec![n]);
        asked.deadline = Some(placement::Span(Duration::from_secs(60)));
        world.ask(vec![asked]);
    }
    world.ask_one("alone", "db", 1, 3);
    // an id takes its 3 bytes and 3 more; half of the message is reserved for ids
    world.machine.set_max_payload(2 * 6 * 20);
    world.bid_all();
    let asked = world.events(kind::ASKED);
    let [web, db] = asked.as_slice() else {
        panic!("one event for each app: {asked:?}");
    };
    assert_eq!(
        (db.request.as_ref().unwrap().as_str(), db.requests.len()),
        ("alone", 0)
    );
    assert_eq!((db.count, db.indices.as_deref()), (3, Some("0-2")));
    assert_eq!((web.request.as_ref(), web.requests.len()), (None, 20));
    assert_eq!((web.count, web.indices.as_deref()), (50, Some("10-59")));
}

/// A policy that allows a cell to start two instances at a time.
const TWO_AT_A_TIME: &str = r#"
    name = "two"
    bids = false
    max_starting_per_cell = 2
    [[stage]]
    filter = "memory"
    [[stage]]
    score = "memory"
    mode = "raw"
    [[stage]]
    pick = "highest"
"#;

#[test]
fn what_wins_a_cell_that_starts_enough_waits_and_goes_nowhere_else() {
    let mut world = World::new(TWO_AT_A_TIME);
    world.add("c1");
    world.add("c2");
    // so that c1 has the most free memory, whatever starts there
    world.cell("c2").cell.available.memory_mb = 100;
    world.cell("c2").seq += 1;
    world.advertise("c2");
    let reply = world.ask_one("r1", "web", 10, 5);
    world.deliver_all();
    assert_eq!((world.machine.waiting(), world.reply(reply)), (3, None));
    let deferred = world.events(kind::QUEUED);
    assert_eq!(deferred.len(), 1, "{deferred:?}");
    // those are running now, so there may be two more
    for left in [1, 0] {
        world.pass(crate::REQUEUE_MS);
        world.cell("c1").cell.counts.starting = 0;
        world.cell("c1").seq += 1;
        world.advertise("c1");
        world.deliver_all();
        assert_eq!(world.machine.waiting(), left);
    }
    let runs = |cell: &str| world.cells[cell].recent.len();
    assert_eq!((runs("c1"), runs("c2")), (5, 0));
    assert!(world.reply(reply).is_some());
}

#[test]
fn what_is_deferred_waits_beyond_its_deadline_for_as_long_as_the_policy_says() {
    let minute = TWO_AT_A_TIME.replace("bids = false", "bids = false\nmax_deferral = \"1m\"");
    let mut world = World::new(&minute);
    world.add("c1");
    let mut four = request("r1", "web", 10, 4);
    four.deadline = Some(placement::Span(Duration::from_secs(5)));
    let reply = world.ask(vec![four]);
    world.deliver_all();
    world.silence(5_000);
    assert_eq!(world.machine.waiting(), 2);
    let answer = world.reply(reply).unwrap().to_string();
    assert!(answer.contains("\"queued\""), "{answer}");
    world.cell("c1").cell.counts.starting = 1;
    world.cell("c1").seq += 1;
    world.advertise("c1");
    world.deliver_all();
    assert_eq!(world.machine.waiting(), 1);
    world.silence(54_999);
    assert_eq!(world.machine.waiting(), 1);
    world.silence(1);
    assert_eq!(world.machine.waiting(), 0);
    assert_eq!(world.events(kind::UNPLACED).len(), 1);
}

#[test]
fn what_fits_nowhere_does_not_wait_because_the_rest_of_its_request_is_deferred() {
    let mut world = World::new(TWO_AT_A_TIME);
    world.add("c1");
    let reply = world.ask_one("r1", "web", 10, 3);
    world.deliver_all();
    assert_eq!((world.machine.waiting(), world.reply(reply)), (1, None));
    // the cell has too little for it now
    world.cell("c1").cell.counts.starting = 0;
    world.cell("c1").cell.available.memory_mb = 5;
    world.cell("c1").seq += 1;
    world.advertise("c1");
    world.deliver_all();
    assert_eq!(world.machine.waiting(), 0);
    let answer = world.reply(reply).unwrap().to_string();
    assert!(
        answer.contains("insufficient resources: memory"),
        "{answer}"
    );
}

#[test]
fn with_a_queue_timeout_of_nothing_what_is_deferred_is_given_up_at_its_deadline() {
    let mut world = World::new(TWO_AT_A_TIME);
    world.add("c1");
    let mut three = request("r1", "web", 10, 3);
    three.deadline = Some(placement::Span(Duration::from_secs(5)));
    three.queue_timeout = Some(placement::Span::default());
    let reply = world.ask(vec![three]);
    world.deliver_all();
    world.silence(4_999);
    assert_eq!((world.machine.waiting(), world.reply(reply)), (1, None));
    world.silence(1);
    assert_eq!(world.machine.waiting(), 0);
    let answer = world.reply(reply).unwrap().to_string();
    assert!(
        answer.contains("its cell is starting as many instances as max_starting_per_cell allows"),
        "{answer}"
    );
    assert!(answer.contains("2 of 2 instances are starting"), "{answer}");
}
