//! Every bound, at its limit and beyond it.

use std::collections::BTreeSet;

use shared::wire::{TaskState, code};

use super::{
    super::requests::{MAX_BYTES, MAX_OPEN, MAX_RESULTS},
    cells::task,
    world::{Fate, World},
};
use crate::{CommandKey, TaskCommand, TaskInput, TaskPhase};

/// Submits another request and returns the code of the error, if there is one.
fn another(world: &mut World, id: &str) -> Option<String> {
    world.replies.clear();
    world.submit(id, "");
    world.replies.pop().unwrap().err()
}

#[test]
fn attempts_on_their_way_are_limited() {
    let mut world = World::new(1, 9);
    world.fates.extend(vec![Fate::Vanishes; 600]);
    for n in 0..600 {
        world.submit(&format!("t{n}"), "");
    }
    assert_eq!(world.starts.len(), 512);
}

#[test]
fn open_requests_are_limited() {
    let mut world = World::new(1, 9);
    world.tasks.open = MAX_OPEN - 1;
    assert_eq!(another(&mut world, "t1"), None);
    assert_eq!(another(&mut world, "t2").as_deref(), Some(code::OVERLOADED));
    // a repeated submission is not another one
    assert_eq!(another(&mut world, "t1"), None);
}

#[test]
fn the_bytes_of_open_requests_are_limited_and_counted() {
    let mut world = World::new(2, 2);
    for n in 0..6 {
        world.submit(&format!("t{n}"), r#","extra":{"gpu":1}"#);
    }
    world.submit("t6", r#","queue_timeout":"1s""#);
    assert!(world.tasks.open_bytes() > 7 * 100);
    world.next_manager();
    assert!(world.tasks.open_bytes() > 7 * 100);
    for _ in 0..6 {
        world.pass(21_000);
        world.end_all(0);
    }
    assert_eq!((world.tasks.open(), world.tasks.open_bytes()), (0, 0));
    assert!(world.tasks.bytes > 7 * 100);
    world.pass(crate::KEPT_MS);
    assert_eq!((world.tasks.count(), world.tasks.bytes), (0, 0));
    (world.tasks.bytes, world.tasks.open_bytes) = (MAX_BYTES - 1, MAX_BYTES - 1);
    assert_eq!(another(&mut world, "t7"), None);
    assert_eq!(another(&mut world, "t8").as_deref(), Some(code::OVERLOADED));
}

#[test]
fn commands_that_wait_are_limited() {
    let mut world = World::new(1, 9);
    for n in 0..4_097 {
        world.give(TaskInput::Command {
            to: CommandKey(n),
            id: "nobody".into(),
            command: TaskCommand::Cancel,
        });
    }
    world.run();
    let overloaded = Err(code::OVERLOADED.to_owned());
    let refused = world.replies.iter().filter(|reply| **reply == overloaded);
    assert_eq!(refused.count(), 1);
}

#[test]
fn cancellations_of_one_request_are_limited() {
    let mut world = World::new(1, 9);
    world.fates.push_back(Fate::Vanishes);
    world.submit("t1", "");
    world.replies.clear();
    world.hold_writes = true;
    for _ in 0..65 {
        world.command("t1", TaskCommand::Cancel);
    }
    assert_eq!(world.replies, [Err(code::OVERLOADED.to_owned())]);
}

#[test]
fn shapes_that_are_tried_at_once_are_limited() {
    let mut world = World::new(1, 0);
    for n in 0..300 {
        let mut definition = task(&format!("t{n}"), "");
        let mut request = placement::Request::clone(&definition.request);
        request.memory_mb = n;
        definition.request = request.into();
        world.command(&format!("t{n}"), TaskCommand::Submit(Box::new(definition)));
    }
    world.pass(5_000);
    world.starts.clear();
    world.tasks.room(world.now);
    world.pass(250);
    assert_eq!(world.starts.len(), 256);
    // the others are next
    world.tasks.room(world.now);
    world.pass(250);
    let tried: BTreeSet<&String> = world.starts.iter().map(|start| &start.id).collect();
    assert_eq!(tried.len(), 300);
}

/// More than are kept end at once, while writes are slow.
#[test]
fn surplus_results_are_deleted_in_portions_once_they_are_stored() {
    const ALL: usize = MAX_RESULTS + 150;
    let mut world = World::new(1, 0);
    for n in 0..ALL {
        let id = format!("t{n}");
        let command = TaskCommand::Submit(Box::new(task(&id, r#","queue_timeout":"20s""#)));
        let to = CommandKey(1);
        world.give(TaskInput::Command { to, id, command });
        if n % 4_000 == 0 {
            world.run();
        }
    }
    world.run();
    assert_eq!(world.tasks.open(), ALL);
    world.pass(15_000);
    world.hold_writes = true;
    world.pass(10_000);
    assert_eq!(world.tasks.open(), 0);
    let deletes = |world: &World| {
        let deletes = world.held_writes.iter().filter(|write| write.2.is_none());
        deletes.count()
    };
    assert_eq!((world.held_writes.len(), deletes(&world)), (ALL, 0));
    while let Some(write) = world.held_writes.pop_front() {
        world.finish(write);
    }
    world.pass(1_000);
    assert_eq!(deletes(&world), 64);
    assert_eq!(world.tasks.count(), ALL, "none is forgotten before");
    world.down = true;
    let failing: Vec<_> = world.held_writes.drain(..).collect();
    for write in failing {
        world.finish(write);
    }
    world.run();
    (world.down, world.hold_writes) = (false, false);
    world.pass(5_000);
    assert_eq!(world.tasks.count(), MAX_RESULTS);
    assert_eq!(world.values.len(), MAX_RESULTS);
    let over = |id: &String| world.stored(id).phase == TaskPhase::Over;
    assert!(world.values.keys().take(500).all(over));
    assert_eq!(world.state("t9999"), TaskState::Failed);
}
