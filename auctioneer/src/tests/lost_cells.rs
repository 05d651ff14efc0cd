//! The events of cells that come and go.

use shared::wire::kind;

use super::world::{TestCell, World};

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
    // an app takes the 6 bytes of its name and 16 more; half of the message is theirs
    world.machine.set_max_payload(2 * 22 * 10);
    world.pass(16_000);
    let lost = &world.events(kind::CELL_LOST)[0];
    assert_eq!((lost.apps.len(), lost.count, lost.more), (10, 100, true));
}
