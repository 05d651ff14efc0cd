//! Events about cells that come and go.

use shared::wire::kind;

use super::{
    lookups::{announced, found},
    world::{TestCell, World},
};
use crate::{AuctioneerInput, AuctioneerOutput, MAX_CELL_EVENTS, feed::ReportKind};

#[test]
fn cells_come_and_go_by_event() {
    let mut world = World::new("dea");
    world.cells.insert("c1".into(), TestCell::new("c1", 1_000));
    world.advertise("c1");
    assert_eq!(world.events(kind::CELL_JOINED).len(), 1);
    world.pass(10_000);
    world.advertise("c1");
    assert_eq!(
        world.events(kind::CELL_JOINED).len(),
        1,
        "a renewal is no news"
    );
    world.pass(15_250);
    let lost = world.events(kind::CELL_LOST);
    assert_eq!(
        lost[0].reason.as_deref(),
        Some("advertisement expired (no message for 15s)")
    );
    world.advertise("c1");
    world.cell("c1").ttl_ms = 0;
    world.advertise("c1");
    let lost = world.events(kind::CELL_LOST);
    assert_eq!(lost[1].reason.as_deref(), Some("cell withdrew"));
}

#[test]
fn a_lost_cells_event_has_what_it_ran() {
    let mut world = World::with_cells("dea", &["c1", "c2"]);
    for name in ["c1", "c2"] {
        let cell = world.cell(name);
        cell.seq += 1;
        cell.cell.counts.apps.insert("web".into(), 3);
        cell.cell.counts.apps.insert("db".into(), 1);
        cell.cell.counts.tasks = 2;
        world.advertise(name);
    }
    world.cell("c1").ttl_ms = 0;
    world.advertise("c1");
    world.pass(16_000);
    let lost = world.events(kind::CELL_LOST);
    assert_eq!(lost.len(), 2);
    for event in &lost {
        let apps: Vec<_> = event.apps.iter().map(|(a, n)| (a.as_str(), *n)).collect();
        assert_eq!(apps, [("db", 1), ("web", 3)]);
        assert_eq!((event.count, event.tasks, event.more), (6, 2, false));
    }
}

#[test]
fn a_lost_cell_names_as_many_apps_as_a_message_holds() {
    let mut world = World::with_cells("dea", &["c1"]);
    let cell = world.cell("c1");
    cell.seq += 1;
    cell.cell.counts.apps = (0..100).map(|n| (format!("app-{n:02}"), 1)).collect();
    world.advertise("c1");
    // an app takes the 6 bytes of its name and 16 more; half of the message is reserved for apps
    world.machine.set_max_payload(2 * 22 * 10);
    world.pass(16_000);
    let lost = &world.events(kind::CELL_LOST)[0];
    assert_eq!((lost.apps.len(), lost.count, lost.more), (10, 100, true));
}

/// Lets this many cells join at the same moment.
fn many_join(world: &mut World, count: u32) {
    for n in 0..count {
        let name = format!("c{n}");
        let mut cell = TestCell::new(&name, 1_000);
        cell.incarnation = shared::Incarnation::from_u128(u128::from(n) + 100);
        world.cells.insert(name.clone(), cell);
        world.advertise(&name);
    }
}

#[test]
fn of_cells_that_have_never_answered_a_thousand_events_a_second_are_published() {
    let mut world = World::new("dea");
    let (most, more) = (MAX_CELL_EVENTS, MAX_CELL_EVENTS + 10);
    many_join(&mut world, more);
    assert_eq!(world.events(kind::CELL_JOINED).len(), most as usize);
    assert_eq!(world.machine.counters().dropped_cell_events, 10);
    // a second later, events are published again
    world.pass(1_000);
    world.add("late");
    assert_eq!(world.events(kind::CELL_JOINED).len(), most as usize + 1);
    // all are lost at the same moment, but cells that have answered are always reported
    let mut real = ["c1", "c2", "c3"];
    world.ask_one("r", "web", 1, 1);
    let sent = world.sent().remove(0);
    world.deliver(&sent);
    real[0] = &sent.cell;
    let state = world.cell("c2").report(None);
    world.receive(ReportKind::State, Some("c2"), state);
    world.input(announced(9, &["s"]));
    world.ask_one("s", "db", 1, 1);
    let asked = world.out.iter().rev().find_map(|o| match o {
        AuctioneerOutput::AskInstances { lookup, .. } => Some(*lookup),
        _ => None,
    });
    world.input(AuctioneerInput::InstancesReported {
        lookup: asked.unwrap(),
        answer: Box::new(found("c3", &[])),
    });
    world.out.clear();
    world.silence(20_000);
    world.pass(20_000);
    let lost = world.events(kind::CELL_LOST);
    for name in real {
        assert!(lost.iter().any(|event| event.about() == name), "{name}");
    }
    let dropped = world.machine.counters().dropped_cell_events - 10;
    assert_eq!(lost.len() as u64 + dropped, u64::from(more) + 1);
    assert!(dropped > 0);
    assert_eq!(world.machine.counters().cells_lost, u64::from(more) + 1);
}
