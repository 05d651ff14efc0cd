use shared::wire::{Outcome, Stop, StopAnswer, StopOutcome, StopReply, Stopped, instance_id, kind};

use crate::{ReplyKey, StopId};

const KEY: ReplyKey = ReplyKey::new(99);

use super::world::{World, request};
use crate::{AuctioneerInput, AuctioneerOutput};
use shared::InstanceId;

fn stop(world: &mut World, app: &str, indices: Vec<u32>) -> StopId {
    world.input(AuctioneerInput::Stop {
        stop: Stop {
            v: shared::VERSION,
            app: app.into(),
            indices,
            instances: Vec::new(),
            claim: None,
        },
        reply: Some(KEY),
    });
    let query = world.out.iter().rev().find_map(|o| match o {
        AuctioneerOutput::StopCells { stop: query, .. } => Some(*query),
        _ => None,
    });
    query.expect("the cells are told")
}

fn answer(world: &mut World, query: StopId, cell: &str, stopped: u32) {
    let one = |index| Stopped {
        instance: InstanceId::from_u128(u128::from(index)),
        index,
        cell: None,
    };
    world.input(AuctioneerInput::StopAnswered {
        stop: query,
        answer: Box::new(StopAnswer {
            v: shared::VERSION,
            cell: cell.into(),
            stopped: (0..stopped).map(one).collect(),
        }),
    });
}

/// Stops an app on `cells` cells, of which only the first answers. Returns the reply.
fn answered_by_first(cells: usize, stopped: u32, max_payload: usize) -> StopReply {
    let names: Vec<String> = (0..cells).map(|n| format!("c{n:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut world = World::with_cells("dea", &names);
    let query = stop(&mut world, "web", Vec::new());
    world.machine.set_max_payload(max_payload);
    answer(&mut world, query, names[0], stopped);
    world.silence(1_000);
    reply(&world)
}

fn reply(world: &World) -> StopReply {
    serde_json::from_value(world.reply(KEY).expect("an answer")).unwrap()
}

#[test]
fn one_answer_for_all_cells() {
    for (what, counts, outcome, message) in [
        ("nothing", [0, 0], StopOutcome::None, Some("none found")),
        ("some", [2, 0], StopOutcome::Stopped, None),
        ("on both", [2, 3], StopOutcome::Stopped, None),
    ] {
        let mut world = World::with_cells("dea", &["c1", "c2"]);
        let query = stop(&mut world, "web", Vec::new());
        answer(&mut world, query, "c1", counts[0]);
        assert!(world.reply(KEY).is_none(), "{what}: c2 has not answered");
        answer(&mut world, query, "c2", counts[1]);
        let reply = reply(&world);
        assert_eq!(
            (reply.outcome, reply.message.as_deref()),
            (outcome, message),
            "{what}"
        );
        assert_eq!(reply.count, (counts[0] + counts[1]) as usize, "{what}");
        assert!(reply.stopped.iter().all(|s| s.cell.is_some()), "{what}");
    }
}

#[test]
fn silent_cells_are_named() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    let query = stop(&mut world, "web", Vec::new());
    answer(&mut world, query, "c1", 1);
    world.silence(1_000);
    let reply = reply(&world);
    assert_eq!(
        (reply.outcome, reply.silent),
        (StopOutcome::Partial, vec!["c2".to_owned()])
    );
    answer(&mut world, query, "c2", 1);
    assert_eq!(world.machine.counters().stray_answers, 1);
}

#[test]
fn without_cells_nothing_is_found_at_once() {
    let mut world = World::new("dea");
    stop(&mut world, "web", Vec::new());
    assert_eq!(reply(&world).outcome, StopOutcome::None);
}

#[test]
fn work_that_was_not_sent_is_cancelled() {
    let mut world = World::with_cells("diego", &["c1"]);
    let key = world.ask_one("r", "web", 100, 3);
    let other = world.ask_one("s", "db", 100, 1);
    let query = stop(&mut world, "web", vec![0, 2]);
    answer(&mut world, query, "c1", 0);
    let told = reply(&world);
    assert_eq!((told.outcome, told.cancelled), (StopOutcome::Stopped, 2));
    world.bid_all();
    assert_eq!(world.deliver_all(), 1);
    let outcomes: Vec<_> = world.start_reply(key).instances;
    assert_eq!(
        outcomes
            .iter()
            .filter(|i| i.outcome == Outcome::Placed)
            .count(),
        1
    );
    let cancelled = outcomes
        .iter()
        .find(|i| i.outcome == Outcome::Unplaced)
        .unwrap();
    assert_eq!(cancelled.indices.as_deref(), Some("0,2"));
    assert_eq!(
        cancelled.reason.as_deref(),
        Some("stopped before it was started")
    );
    assert_eq!(world.start_reply(other).outcome, Outcome::Placed);
}

#[test]
fn queued_work_is_cancelled() {
    let mut world = World::with_cells("dea", &["c1"]);
    let mut waits = request("r", "web", 5_000, 2);
    waits.queue_timeout = Some(placement::Span(std::time::Duration::from_secs(60)));
    let key = world.ask(vec![waits]);
    let query = stop(&mut world, "web", Vec::new());
    answer(&mut world, query, "c1", 0);
    assert_eq!(reply(&world).cancelled, 2);
    assert_eq!(world.start_reply(key).outcome, Outcome::Unplaced);
    assert!(world.machine.is_idle() && world.machine.waiting() == 0);
}

#[test]
fn a_cell_that_leaves_is_not_waited_for() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    let query = stop(&mut world, "web", Vec::new());
    answer(&mut world, query, "c1", 1);
    world.cell("c2").ttl_ms = 0;
    world.advertise("c2");
    assert_eq!(reply(&world).outcome, StopOutcome::Stopped);
}

#[test]
fn an_answer_names_those_who_were_silent_and_counts_them() {
    for (cells, message) in [
        (2, "1 cell did not answer: it may still run some of it"),
        (3, "2 cells did not answer: they may still run some of it"),
    ] {
        let reply = answered_by_first(cells, 1, 1 << 20);
        assert_eq!(reply.message.as_deref(), Some(message));
        assert_eq!(reply.silent.len(), cells - 1);
    }
}

#[test]
fn an_answer_lists_a_thousand_and_counts_all() {
    let mut world = World::with_cells("dea", &["c1", "c2", "c3"]);
    let query = stop(&mut world, "web", Vec::new());
    for (cell, stopped) in [("c1", 600), ("c2", 600), ("c3", 5)] {
        answer(&mut world, query, cell, stopped);
    }
    let reply = reply(&world);
    assert_eq!((reply.count, reply.stopped.len()), (1_205, 1_000));
    let of_c2 = reply
        .stopped
        .iter()
        .filter(|s| s.cell.as_deref() == Some("c2"));
    assert_eq!(of_c2.count(), 400);
}

#[test]
fn an_answer_fits_into_a_message_and_lists_what_it_can() {
    let bytes = |reply: &StopReply| shared::wire::to_bytes(reply).len();
    for (what, cells, stopped) in [
        ("many instances", 1, 900),
        ("many silent cells", 300, 0),
        ("both", 300, 900),
    ] {
        let whole = answered_by_first(cells, stopped, usize::MAX);
        let listed = |reply: &StopReply| (reply.stopped.len(), reply.silent.len());
        assert_eq!(listed(&whole), (stopped as usize, cells - 1), "{what}");
        let fits = answered_by_first(cells, stopped, bytes(&whole));
        assert_eq!(listed(&fits), listed(&whole), "{what}: it just fits");
        let cut = answered_by_first(cells, stopped, bytes(&whole) - 1);
        let halves = (listed(&whole).0 / 2, listed(&whole).1 / 2);
        assert_eq!(listed(&cut), halves, "{what}: not quite");
        assert_eq!((cut.count, &cut.message), (whole.count, &whole.message));
        let none = answered_by_first(cells, stopped, 1);
        assert_eq!(listed(&none), (0, 0), "{what}: there is always an answer");
    }
}

#[test]
fn a_stop_is_answered_in_a_second_and_until_then_the_machine_is_not_idle() {
    let mut world = World::with_cells("dea", &["c1"]);
    stop(&mut world, "web", Vec::new());
    assert_eq!(world.machine.next_work_ms(), world.now_ms + 1_000);
    world.silence(999);
    assert!(world.reply(KEY).is_none() && !world.machine.is_idle());
    world.silence(1);
    assert!(world.reply(KEY).is_some() && world.machine.is_idle());
    assert_eq!(world.machine.next_work_ms(), u64::MAX);
}

#[test]
fn too_many_stops_at_a_time_are_turned_away() {
    let mut world = World::with_cells("dea", &["c1"]);
    let mut waits = request("r", "web", 5_000, 1);
    waits.queue_timeout = Some(placement::Span(std::time::Duration::from_secs(60)));
    let key = world.ask(vec![waits]);
    for n in 0..1_000 {
        let (app, reply) = (format!("app{n}"), None);
        let stop = Stop {
            v: shared::VERSION,
            app,
            indices: Vec::new(),
            instances: Vec::new(),
            claim: None,
        };
        world.input(AuctioneerInput::Stop { stop, reply });
    }
    assert_eq!(world.machine.counters().overloaded, 0);
    stop(&mut world, "web", Vec::new());
    let told = world.reply(KEY).unwrap();
    assert_eq!(told["error"]["code"], "overloaded");
    assert_eq!(world.machine.counters().overloaded, 1);
    assert!(world.reply(key).is_none(), "nothing of it was done");
    world.silence(1_000);
    world.out.clear();
    let query = stop(&mut world, "web", Vec::new());
    answer(&mut world, query, "c1", 0);
    assert_eq!(reply(&world).cancelled, 1);
}

#[test]
fn a_stop_by_id_or_index_cancels_only_what_it_means() {
    for (indices, ids, cancelled) in [
        (vec![], vec![], "0-2"),
        (vec![1], vec![], "1"),
        (vec![], vec![2], "2"),
        (vec![1, 2], vec![2], "2"),
        (vec![0], vec![1], ""),
    ] {
        let mut world = World::with_cells("diego", &["c1"]);
        let key = world.ask_one("r", "web", 100, 3);
        let id = |index: &u32| instance_id("r", "web", placement::Kind::Lrp, *index);
        let instances = ids.iter().map(id).collect();
        let (app, reply) = ("web".into(), None);
        let what = format!("{indices:?} {ids:?}");
        let stop = Stop {
            v: shared::VERSION,
            app,
            indices,
            instances,
            claim: None,
        };
        world.input(AuctioneerInput::Stop { stop, reply });
        let events = world.events(kind::UNPLACED);
        let told: Vec<_> = events.iter().filter_map(|e| e.indices.as_deref()).collect();
        assert_eq!(told.join(""), cancelled, "{what}");
        if cancelled != "0-2" {
            assert!(world.reply(key).is_none(), "{what}: the others go on");
        }
    }
}
