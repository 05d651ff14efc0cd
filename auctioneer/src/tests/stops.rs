use shared::wire::{Outcome, Stop, StopAnswer, StopOutcome, StopReply, Stopped};

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
