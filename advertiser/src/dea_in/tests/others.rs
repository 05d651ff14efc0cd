//! What others do: another auctioneer, another bridge, and requests that are repeated or ask for what no DEA has.

use serde_json::json;
use shared::wire::{InstanceState, Stop};

use super::{APP, Change, config, world};
use crate::dea_in::DeaInConfig;

/// Two auctioneers have begun the same request, and chosen two DEAs of one bridge.
#[test]
fn an_instance_that_one_cell_has_is_refused_by_the_others_of_the_bridge() {
    let mut world = world();
    world.advertise("d2", &json!({}));
    world.start_on("dea-0", 1, |_| ());
    world.start_on("dea-1", 2, |start| {
        start.auction = uuid::Uuid::from_u128(3).into();
    });
    assert_eq!(world.refused(2), "dea-0 has it");
    let starts = world.sent.iter().filter(|(to, _)| to.starts_with("dea.d"));
    assert_eq!(starts.count(), 1);
    world.says("vendue-m-0-r0-w-1", "RUNNING");
    assert_eq!(world.answers[&1].1.accepted.len(), 1);
    // the second one stops what it began, which is nothing
    let text = format!(r#"{{"app":"{APP}"}}"#);
    let stop = Stop::read(text.as_bytes()).unwrap();
    let mut out = Vec::new();
    let answer = world.cells.stop(world.now_ms, "dea-1", &stop, &mut out);
    assert!(answer.stopped.is_empty() && out.is_empty(), "{out:?}");
    assert_eq!(world.listed()[0].0, InstanceState::Running);
}

/// A repeat does not turn an instance that nobody has seen into an accepted one.
#[test]
fn a_repeat_of_an_unknown_start_is_unknown() {
    let mut world = world();
    world.start(1, |_| ());
    world.pass(1_000);
    world.start(2, |_| ());
    for ticket in [1, 2] {
        let (_, answer) = &world.answers[&ticket];
        assert!(answer.accepted.is_empty() && answer.refused.is_empty());
    }
    world.says("vendue-m-0-r0-w-1", "RUNNING");
    world.start(3, |_| ());
    assert_eq!(world.answers[&3].1.accepted.len(), 1);
}

#[test]
fn what_a_dea_does_not_have_is_refused() {
    let mut world = world();
    let changes: [(Change, &str); 2] = [
        (|start| start.work[0].cpu_millis = 100, "cpu"),
        (
            |start| _ = start.work[0].extra.insert("gpu_slots".into(), 1),
            "extra",
        ),
    ];
    for (ticket, (change, lacking)) in (1..).zip(changes) {
        world.start(ticket, change);
        let expected = format!("insufficient resources: {lacking}");
        assert_eq!(world.refused(ticket), expected);
    }
    assert!(world.sent.is_empty());
}

/// Another bridge has the same DEAs: what it has started is not ours.
#[test]
fn a_bridge_leaves_alone_what_another_one_has_started() {
    let mut world = world();
    for version in ["vendue-x-0-r0-w-1", "vendue-0-r0-w-1", "vendue-m2-0-r0-w-1"] {
        world.says(version, "RUNNING");
        assert_eq!(world.cells.instances_held(), 0, "{version}");
    }
    world.says("vendue-m-0-r0-w-1", "RUNNING");
    assert_eq!(world.cells.instances_held(), 1);
    let named = |name: &str| DeaInConfig {
        name: name.into(),
        ..config(0)
    };
    let marks = [
        named("dea").mark("vendue"),
        named("dea").mark("other"),
        named("deb").mark("vendue"),
    ];
    assert!(marks[0] != marks[1] && marks[0] != marks[2]);
}
