//! What is repeated and what is over, and what the watch shows meanwhile.

use shared::wire::TaskState;

use super::world::{Fate, World};
use crate::{KEPT_MS, Revision, TASK_REPLY_MS, TaskCommand, TaskInput, TaskPhase};

/// Creates a world with one slot, in which t1 begins as soon as its attempt is stored, but that write is held.
fn storing() -> World {
    let mut world = World::new(1, 1);
    world.submit("t0", "");
    world.submit("t1", "");
    world.end_all(0);
    world.starts.clear();
    world.hold_writes = true;
    world.pass(500);
    world.hold_writes = false;
    assert_eq!((world.held_writes.len(), world.starts.len()), (1, 0));
    world
}

#[test]
fn an_attempt_that_is_cancelled_while_it_is_stored_is_not_sent() {
    let mut world = storing();
    world.command("t1", TaskCommand::Cancel);
    let attempt = world.held_writes.pop_front().unwrap();
    world.finish(attempt);
    world.run();
    assert_eq!(world.state("t1"), TaskState::Cancelled);
    assert!(world.starts.is_empty());
}

#[test]
fn a_new_term_does_not_lose_the_attempt_that_is_being_stored() {
    let mut world = storing();
    world.tasks.gained(world.now);
    world.run();
    let attempt = world.held_writes.pop_front().unwrap();
    world.finish(attempt);
    world.run();
    assert_eq!(world.starts.len(), 1);
}

#[test]
fn an_attempt_that_was_not_sent_for_long_may_have_been_by_another_manager() {
    let mut world = storing();
    let attempt = world.held_writes.pop_front().unwrap();
    world.finish(attempt);
    world.acts = false;
    world.pass(120_000);
    world.acts = true;
    world.tasks.gained(world.now);
    world.pass(TASK_REPLY_MS + 2_000);
    assert_eq!(world.state("t1"), TaskState::Failed);
    assert!(world.starts.is_empty());
}

#[test]
fn a_start_that_its_cell_did_not_answer_may_be_on_its_way() {
    let mut world = World::new(1, 1);
    world.fates.push_back(Fate::Unknown(false));
    world.submit("t1", "");
    world.pass(1_000);
    world.lists(Some(world.now));
    world.pass(3_000);
    assert_eq!(world.starts.len(), 1);
    world.pass(3_000);
    world.lists(Some(world.now));
    world.pass(1_500);
    assert_eq!(world.attempts(), ["1-t1", "2-t1"]);
    assert_eq!(world.state("t1"), TaskState::Running);
}

#[test]
fn the_output_is_kept_when_a_list_says_less() {
    let mut world = World::new(1, 1);
    world.submit("t1", "");
    let (cell, id) = world.of("t1");
    world.end(&cell, id, Some(3));
    world.lists(Some(world.now));
    world.run();
    let end = world.stored("t1").end.unwrap();
    assert_eq!(end.output.as_deref(), Some("done\n"));
    // and a list without it does not undo what an earlier one said
    let mut world = World::new(1, 1);
    world.submit("t1", "");
    world.deaf = true;
    let (cell, id) = world.of("t1");
    world.end(&cell, id, Some(3));
    world.lists(Some(world.now));
    world.cells.get_mut(&cell).unwrap().held.clear();
    world.lists(Some(world.now));
    world.pass(1_000);
    assert_eq!(world.status("t1").exit_code, Some(3));
}

#[test]
fn what_ran_was_not_unplaced() {
    let mut world = World::new(1, 1);
    world.submit("t1", r#","retries":1,"queue_timeout":"5s""#);
    world.cells.get_mut("c0").unwrap().slots = 0;
    world.end_all(7);
    world.pass(7_000);
    let status = world.status("t1");
    assert_eq!((status.state, status.unplaced), (TaskState::Failed, false));
}

#[test]
fn a_repeat_has_its_own_time_to_start_and_to_run() {
    let mut world = World::new(1, 1);
    world.submit("t1", r#","retries":2,"queue_timeout":"5s","timeout":"20s""#);
    world.pass(19_000);
    world.end_all(7);
    world.pass(1_500);
    assert_eq!(
        (world.state("t1"), world.runs["t1"]),
        (TaskState::Running, 2)
    );
    // the second run takes too long; the third may take as long again
    world.pass(23_000);
    assert_eq!(
        (world.state("t1"), world.runs["t1"]),
        (TaskState::Running, 3)
    );
    assert_eq!(world.stops.len(), 1);
    world.pass(10_000);
    assert_eq!(
        (world.state("t1"), world.stops.len()),
        (TaskState::Running, 1)
    );
    world.end_all(0);
    assert_eq!(world.state("t1"), TaskState::Succeeded);
}

#[test]
fn what_is_cancelled_or_stopped_is_not_repeated() {
    let retried = |world: &mut World, id: &str| {
        world.submit(id, r#","retries":3"#);
        world.of(id)
    };
    let mut world = World::new(1, 1);
    // somebody stops it, as a drain does
    let (cell, id) = retried(&mut world, "stopped");
    world.end(&cell, id, None);
    world.pass(3_000);
    let status = world.status("stopped");
    assert_eq!(status.why.as_deref(), Some("it was stopped"));
    // it fails by itself before its stop arrives
    let (cell, id) = retried(&mut world, "fails");
    world.mute = true;
    let mut result = world.result(&cell, id);
    (result.exit_code, result.ended) = (Some(7), "exit 7".into());
    world.cells.get_mut(&cell).unwrap().held.clear();
    world.command("fails", TaskCommand::Cancel);
    world.give(TaskInput::Ended(Box::new(result)));
    world.pass(3_000);
    assert_eq!(world.status("fails").exit_code, Some(7));
    // its cell is lost before that
    retried(&mut world, "lost");
    world.cells.get_mut("c0").unwrap().held.clear();
    world.command("lost", TaskCommand::Cancel);
    world.kill_cell("c0");
    world.pass(3_000);
    for id in ["stopped", "fails", "lost"] {
        assert_eq!(
            (world.state(id), world.runs[id]),
            (TaskState::Failed, 1),
            "{id}"
        );
    }
}

#[test]
fn an_end_that_is_not_stored_is_kept_for_longer_than_an_hour() {
    let mut world = World::new(1, 1);
    world.submit("t1", "");
    world.pass(2_000);
    world.down = true;
    world.end_all(0);
    world.pass(KEPT_MS + 60_000);
    assert_eq!(world.stored("t1").phase, TaskPhase::Accepted);
    world.down = false;
    world.pass(31_000);
    assert_eq!(world.stored("t1").phase, TaskPhase::Over);
}

#[test]
fn a_cancellation_outlives_what_another_manager_stores_meanwhile() {
    let mut world = World::new(1, 1);
    world.fates.push_back(Fate::Vanishes);
    world.submit("t1", "");
    world.replies.clear();
    world.hold_writes = true;
    world.command("t1", TaskCommand::Cancel);
    let (_, value) = world.values["t1"].clone();
    world.store("t1", Some(value));
    world.hold_writes = false;
    while let Some(write) = world.held_writes.pop_front() {
        world.finish(write);
    }
    world.pass(2_000);
    assert!(world.replies[0].as_ref().unwrap().changed);
    assert!(world.stored("t1").cancelled);
    // once that is stored, nobody waits for it again
    world.hold_writes = true;
    world.command("t1", TaskCommand::Cancel);
    assert!(!world.replies[1].as_ref().unwrap().changed);
}

#[test]
fn what_the_watch_no_longer_shows_is_gone() {
    let mut world = World::new(1, 2);
    world.submit("t1", "");
    world.submit("t2", "");
    // the deletion of an earlier request of the same id
    world.give(TaskInput::Shown {
        id: "t1".into(),
        revision: Revision(0),
        value: None,
    });
    assert_eq!(world.tasks.count(), 2);
    world.tasks.interrupted();
    let (revision, value) = world.values["t2"].clone();
    world.give(TaskInput::Shown {
        id: "t2".into(),
        revision: Revision(revision),
        value: Some(value),
    });
    world.tasks.shown_all(world.now);
    assert!(world.tasks.status("t1").is_none());
    assert_eq!(world.state("t2"), TaskState::Running);
}
