//! What is stored and when, and a bucket that does not answer.

use shared::wire::{TaskState, code};

use super::{super::ends::MAX_FAILURES, world::World};
use crate::{TaskCommand, TaskInput, TaskPhase};

#[test]
fn what_was_accepted_is_kept_while_the_bucket_does_not_answer() {
    let mut world = World::new(1, 1);
    world.submit("t1", "");
    world.submit("t2", "");
    world.end_all(0);
    world.pass(1_000);
    world.down = true;
    world.end_all(0);
    let before = world.writes;
    world.pass(600_000);
    // t2's end: 1, 2, 4, 8, 16 and then every 30 s
    assert!(world.writes - before < 30, "{}", world.writes - before);
    assert_eq!(world.tasks.count(), 2);
    // a new request would wait in vain
    let asked = world.writes;
    world.submit("t3", "");
    assert_eq!(world.replies.pop().unwrap().unwrap_err(), code::INTERNAL);
    assert_eq!(world.writes, asked);
    world.down = false;
    world.pass(31_000);
    assert_eq!(world.state("t2"), TaskState::Succeeded);
    assert_eq!(world.stored("t2").phase, TaskPhase::Over);
    world.submit("t3", "");
    assert!(world.replies.pop().unwrap().is_ok());
}

#[test]
fn what_another_manager_deleted_for_good_is_not_stored_without_end() {
    let mut world = World::new(1, 1);
    world.submit("t1", "");
    // the bucket was emptied, and the watch does not show it
    world.values.clear();
    world.end_all(0);
    world.pass(55_000);
    assert_eq!(world.tasks.count(), 1);
    world.pass(10_000);
    assert_eq!(world.tasks.count(), 0);
}

#[test]
fn who_has_lost_the_lease_since_sends_nothing_that_it_stored() {
    let mut world = World::new(1, 1);
    world.hold_writes = true;
    world.submit("t1", "");
    world.hold_writes = false;
    let attempt = world.held_writes.pop_front().unwrap();
    world.finish(attempt);
    world.acts = false;
    world.pass(1_000);
    assert!(world.starts.is_empty());
    assert_eq!(world.stored("t1").phase, TaskPhase::Sent);
    // holding the lease again, it does not know what others have done with the task
    world.acts = true;
    world.tasks.gained(world.now);
    world.pass(crate::TASK_REPLY_MS + 2_000);
    assert_eq!(world.attempts(), ["1-t1"]);
    assert_eq!(world.runs["t1"], 1);
}

#[test]
fn a_request_is_as_old_as_its_first_try_to_be_stored() {
    let mut world = World::new(1, 1);
    world.give(TaskInput::Time {
        unix_ms: 1_500_000_000_000,
    });
    world.failing.extend([false; 9]);
    let first = world.now;
    world.submit("t1", "");
    world.pass(5_000);
    assert!(world.replies[0].is_ok());
    let offset = 1_500_000_000_000 - first;
    assert_eq!(world.stored("t1").submitted_ms, offset + first);
}

#[test]
fn what_a_cell_says_is_cut_to_what_can_be_stored() {
    let mut world = World::new(1, 2);
    world.submit("t1", "");
    let (cell, id) = world.of("t1");
    let mut result = world.result(&cell, id);
    result.exit_code = Some(3);
    result.ended = "é".repeat(500_000);
    result.output = Some(format!("x{}end", "é".repeat(500_000)));
    world.give(TaskInput::Ended(Box::new(result)));
    world.run();
    let stored = world.stored("t1");
    let output = stored.end.unwrap().output.unwrap();
    assert!(output.len() <= 10 * 1024 && output.len() > 10 * 1024 - 4);
    assert!(output.starts_with('é') && output.ends_with("éend"));
    assert!(stored.why.unwrap().len() < 1_024);
    // the same for a task that never began
    world.submit("t2", "");
    for _ in 0..=MAX_FAILURES {
        let (cell, id) = world.of("t2");
        let mut result = world.result(&cell, id);
        (result.began, result.ended) = (false, "é".repeat(500_000));
        world.cells.get_mut(&cell).unwrap().held.remove(&id);
        world.give(TaskInput::Ended(Box::new(result)));
        world.pass(1_500);
        assert!(world.values["t2"].1.len() < 2_048);
    }
    assert_eq!(world.state("t2"), TaskState::Failed);
}

#[test]
fn an_id_can_be_used_again_when_its_result_was_deleted() {
    let mut world = World::new(1, 1);
    for marked in [true, false] {
        world.submit("t1", "");
        world.end_all(0);
        assert_eq!(world.state("t1"), TaskState::Succeeded);
        world.store("t1", None);
        assert!(world.tasks.status("t1").is_none());
        if !marked {
            // the server has removed the deletion marker
            world.deleted.clear();
        }
        world.replies.clear();
        world.submit("t1", "");
        world.pass(500);
        assert!(world.replies[0].as_ref().unwrap().changed, "{marked}");
        world.end_all(0);
        world.store("t1", None);
        world.pass(200_000);
    }
}

#[test]
fn a_cancellation_is_answered_when_it_is_stored() {
    let mut world = World::new(1, 1);
    world.submit("t1", "");
    world.replies.clear();
    world.hold_writes = true;
    world.command("t1", TaskCommand::Cancel);
    assert!(world.replies.is_empty());
    world.hold_writes = false;
    while let Some(write) = world.held_writes.pop_front() {
        world.finish(write);
    }
    world.run();
    assert!(world.replies[0].as_ref().unwrap().changed);
}

#[test]
fn two_writes_are_enough() {
    let mut world = World::new(1, 1);
    world.submit("t1", "");
    world.end_all(0);
    assert_eq!(world.state("t1"), TaskState::Succeeded);
    assert_eq!(world.writes, 2);
    // a task whose acceptance is stored later is found on the cell by then
    world.submit("t2", "");
    assert_eq!(world.stored("t2").phase, TaskPhase::Sent);
    world.next_manager();
    world.pass(crate::TASK_REPLY_MS + 2_000);
    assert_eq!(
        (world.state("t2"), world.runs["t2"]),
        (TaskState::Running, 1)
    );
    assert_eq!(world.stored("t2").phase, TaskPhase::Accepted);
}

/// Leaves the end of a task that has begun unstored, and has the manager stop acting.
fn ends_and_leaves(world: &mut World) {
    world.submit("t1", "");
    world.pass(2_000);
    world.hold_writes = true;
    world.end_all(0);
    assert_eq!(world.state("t1"), TaskState::Running);
    world.acts = false;
    world.hold_writes = false;
}

#[test]
fn what_the_watch_has_shown_is_stored_whatever_is_answered() {
    let mut world = World::new(1, 1);
    ends_and_leaves(&mut world);
    // the acknowledgement is lost
    world.failing.push_back(true);
    let end = world.held_writes.pop_front().unwrap();
    world.finish(end);
    world.pass(60_000);
    assert_eq!(world.state("t1"), TaskState::Succeeded);
}

#[test]
fn a_write_that_another_manager_came_before_changes_nothing() {
    let mut world = World::new(1, 1);
    ends_and_leaves(&mut world);
    let end = world.held_writes.pop_front().unwrap();
    // the acting manager has heard the end too, at another time by its clock
    let mut record: crate::TaskRecord = serde_json::from_slice(end.2.as_ref().unwrap()).unwrap();
    record.end.as_mut().unwrap().ended_ms += 7;
    let value = serde_json::to_vec(&record).unwrap();
    world.store("t1", Some(value.into()));
    world.finish(end);
    world.pass(60_000);
    assert_eq!(world.state("t1"), TaskState::Succeeded);
    let writes = world.writes;
    world.acts = true;
    world.pass(60_000);
    assert_eq!(world.writes, writes, "it is stored as it is");
}

#[test]
fn what_was_not_stored_is_stored_by_who_acts_again() {
    let mut world = World::new(1, 1);
    ends_and_leaves(&mut world);
    // it was never stored
    world.failing.push_back(false);
    let end = world.held_writes.pop_front().unwrap();
    world.finish(end);
    world.pass(60_000);
    assert_eq!(world.state("t1"), TaskState::Running);
    world.acts = true;
    world.pass(1_000);
    assert_eq!(world.state("t1"), TaskState::Succeeded);
    assert_eq!(world.stored("t1").phase, TaskPhase::Over);
}
