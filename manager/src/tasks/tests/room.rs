//! Requests waiting for room: the order in which they are tried, how often, and what of that is stored.

use shared::wire::TaskState;

use super::world::World;
use crate::TaskPhase;

/// Signals possible room again and again, although there is none.
fn tries(world: &mut World, seconds: u64) {
    for _ in 0..seconds * 4 {
        world.tasks.room(world.now);
        world.pass(250);
    }
}

#[test]
fn the_oldest_of_a_shape_starts_first_however_often_it_was_tried() {
    let mut world = World::new(1, 1);
    for n in 0..6 {
        world.submit(&format!("t{n}"), "");
        world.pass(10);
    }
    tries(&mut world, 20);
    assert!(world.starts.len() > 6);
    for n in 0..6 {
        let (_, id) = world.of(&format!("t{n}"));
        assert_eq!(world.running()[0].1, id);
        world.end_all(0);
        tries(&mut world, 1);
        world.pass(6_000);
    }
}

#[test]
fn a_try_that_finds_no_room_is_one_write_and_they_become_rarer() {
    let mut world = World::new(1, 0);
    world.submit("t1", "");
    assert_eq!(world.writes, 1, "the request, with its first attempt");
    tries(&mut world, 60);
    let sent = u32::try_from(world.starts.len()).unwrap();
    assert!((10..=25).contains(&sent), "{sent} tries");
    assert_eq!(world.writes, sent);
    // when nothing happens, it is stored as waiting
    assert_eq!(world.stored("t1").phase, TaskPhase::Sent);
    world.pass(12_000);
    assert_eq!(world.stored("t1").phase, TaskPhase::Waiting);
    // with room, the pause does not matter
    world.cells.get_mut("c0").unwrap().slots = 2;
    tries(&mut world, 6);
    assert_eq!(world.state("t1"), TaskState::Running);
}

#[test]
fn one_that_fits_ends_the_pause_of_its_shape() {
    let mut world = World::new(1, 0);
    for n in 0..9 {
        world.submit(&format!("t{n}"), "");
    }
    tries(&mut world, 60);
    world.cells.get_mut("c0").unwrap().slots = 9;
    tries(&mut world, 6);
    assert_eq!(world.running().len(), 9);
}

#[test]
fn what_waits_for_room_is_taken_up_by_the_next_manager() {
    for stored in [TaskPhase::Sent, TaskPhase::Waiting] {
        let mut world = World::new(1, 0);
        world.submit("t1", "");
        if stored == TaskPhase::Waiting {
            world.pass(11_000);
        }
        assert_eq!(world.stored("t1").phase, stored);
        world.next_manager();
        world.cells.get_mut("c0").unwrap().slots = 1;
        world.pass(40_000);
        assert_eq!(world.state("t1"), TaskState::Running);
    }
}

#[test]
fn what_is_cancelled_while_it_waits_does_not_hold_up_the_others() {
    let mut world = World::new(1, 1);
    for n in 0..4 {
        world.submit(&format!("t{n}"), "");
    }
    for n in 1..3 {
        world.command(&format!("t{n}"), crate::TaskCommand::Cancel);
    }
    assert_eq!(world.tasks.waiting(), 1);
    world.end_all(0);
    world.pass(1_000);
    assert_eq!(world.state("t3"), TaskState::Running);
    assert_eq!(world.tasks.waiting(), 0);
}

/// One that fits nowhere holds up only those that fit nowhere either.
#[test]
fn whatever_decides_where_a_request_fits_makes_another_shape() {
    let shape = |more: &str| {
        let body = format!(r#"{{"app":"a","memory_mb":1,"disk_mb":1{more}}}"#);
        crate::tasks::entry::shape(&serde_json::from_str(&body).unwrap())
    };
    let plain = shape("");
    for more in [
        r#","kind":"task""#,
        r#","volumes_from":["v"]"#,
        r#","min_platform":{"7.0":"20260101T000000Z"}"#,
        r#","far":["app:b"]"#,
        r#","strict":true"#,
        r#","exclude_cells":["c1"]"#,
        r#","overcommit":{"cpu":1.0}"#,
        r#","objective":"r.TotalMemoryMB""#,
    ] {
        assert_ne!(shape(more), plain, "{more}");
    }
    for more in [
        r#","id":"x","version":"v2","owner":"o","tags":{"a":"b"}"#,
        r#","instances":3"#,
    ] {
        assert_eq!(shape(more), plain, "{more}");
    }
}
