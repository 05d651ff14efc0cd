//! What events and answers say about single instances and rejected requests.

use shared::wire::{Event, Outcome, WireError, code, instance_id, kind};

use super::world::{World, asked, request};
use crate::{AuctioneerInput, AuctioneerOutput, Rejected, ReplyKey, StartMessage};

const KEY: ReplyKey = ReplyKey::new(1);

fn rejected(id: &str, app: &str, why: &str) -> Rejected {
    Rejected {
        id: id.parse().unwrap(),
        app: Some(app.to_owned()),
        error: WireError::new(code::INVALID_REQUEST, why),
    }
}

fn only(mut events: Vec<Event>) -> Event {
    assert_eq!(events.len(), 1, "{events:?}");
    events.remove(0)
}

#[test]
fn an_event_names_each_instance_with_its_cell_and_trace() {
    let mut world = World::with_cells("dea", &["c1"]);
    let mut traced = request("r", "web", 100, 1);
    traced.indices = Some(vec![7]);
    traced.traceparent = Some("00-trace".to_owned());
    world.ask(vec![traced]);
    world.deliver_all();
    let placed = only(world.events(kind::PLACED));
    let [instance] = placed.instances.as_slice() else {
        panic!("{placed:?}");
    };
    let id = instance_id("r", "web", placement::Kind::Lrp, 7);
    assert_eq!((instance.index, instance.instance), (7, Some(id)));
    assert_eq!(instance.cell.as_deref(), Some("c1"));
    assert_eq!(instance.traceparent.as_deref(), Some("00-trace"));
}

#[test]
fn an_answer_names_one_failed_instance_by_index_and_several_by_indices() {
    let mut world = World::with_cells("dea", &["c1"]);
    for (id, instances, index, indices) in [("r", 1, Some(0), None), ("s", 2, None, Some("0-1"))] {
        let key = world.ask_one(id, "web", 5_000, instances);
        let reply = world.start_reply(key);
        let [failed] = reply.instances.as_slice() else {
            panic!("{reply:?}");
        };
        assert_eq!(failed.outcome, Outcome::Unplaced);
        assert_eq!((failed.index, failed.indices.as_deref()), (index, indices));
    }
}

#[test]
fn rejected_requests_are_counted_once_for_a_message_and_reported_once_for_an_app() {
    let mut world = World::with_cells("dea", &["c1"]);
    let AuctioneerInput::Start(fine) = asked(vec![request("r0", "web", 1, 1)], None) else {
        panic!("a start");
    };
    let mut requests = fine.requests;
    requests.push(Err(rejected("r1", "db", "first")));
    requests.push(Err(rejected("r2", "db", "second")));
    world.input(AuctioneerInput::Start(StartMessage {
        requests,
        array: true,
        reply: None,
    }));
    assert_eq!(world.machine.counters().rejected, 1);
    let event = only(world.events(kind::REJECTED));
    assert_eq!((event.app.as_deref(), event.count), (Some("db"), 2));
    assert_eq!(event.reason.as_deref(), Some("first"));
    assert_eq!(
        event.request.as_ref().map(shared::RequestId::as_str),
        Some("r1")
    );

    world.input(AuctioneerInput::Rejected {
        rejected: rejected("r3", "db", "third"),
        reply: Some(KEY),
    });
    assert_eq!(world.machine.counters().rejected, 2);
    assert_eq!(world.reply(KEY).unwrap()["error"]["message"], "third");
    world.deliver_all();
    world.input(AuctioneerInput::Start(StartMessage {
        requests: vec![Err(rejected("r4", "db", "fourth"))],
        array: false,
        reply: None,
    }));
    let unanswered = world.machine.parts.requests.unanswered_messages();
    assert_eq!(unanswered, 0, "nothing of it is kept");
}

#[test]
fn observers_may_wait_for_events_and_outcomes_but_not_for_announcements() {
    let mut world = World::with_cells("dea", &["c1"]);
    world.ask_one("r", "web", 100, 1);
    let mut all = world.out.clone();
    world.deliver_all();
    all.append(&mut world.out);
    let (mut announced, mut events, mut outcomes) = (0, 0, 0);
    for output in &all {
        let for_observers = match output {
            AuctioneerOutput::Event(event) if event.kind == kind::ASKED => {
                announced += 1;
                false
            }
            AuctioneerOutput::Event(_) => {
                events += 1;
                true
            }
            AuctioneerOutput::Outcome { .. } => {
                outcomes += 1;
                true
            }
            _ => false,
        };
        assert_eq!(output.is_for_observers(), for_observers, "{output:?}");
    }
    assert!(announced > 0 && events > 0 && outcomes > 0);
}
