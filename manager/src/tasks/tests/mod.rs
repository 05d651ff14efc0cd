//! Stored requests, from their submission to their end, whatever is lost on the way.

mod bounds;
mod cells;
mod durable;
mod ends;
mod lost;
mod random;
mod room;
mod world;
mod writes;

use shared::wire::{TaskState, code};

use crate::{TaskCommand, TaskDefinition, TaskPhase, tasks::Submitted};
use world::{Fate, World};

#[test]
fn a_task_is_stored_run_once_and_its_result_kept_for_an_hour() {
    let mut world = World::new(1, 4);
    world.hold_writes = true;
    world.submit("t1", "");
    assert!(world.replies.is_empty() && world.starts.is_empty());
    let creation = world.held_writes.pop_front().unwrap();
    world.finish(creation);
    world.run();
    assert!(
        world.replies[0].as_ref().unwrap().changed,
        "it is stored, so it is acknowledged"
    );
    assert_eq!(world.attempts(), ["1-t1"]);
    assert_eq!(world.state("t1"), TaskState::Running);
    world.hold_writes = false;
    world.pass(1_000);
    assert_eq!(world.stored("t1").cell.as_deref(), Some("c0"));
    world.end_all(0);
    assert_eq!(world.state("t1"), TaskState::Succeeded);
    assert_eq!(world.writes, 3, "it ran for a second");
    let end = world.stored("t1").end.unwrap();
    assert_eq!(
        (end.exit_code, end.output.as_deref()),
        (Some(0), Some("done\n"))
    );
    assert_eq!(world.ends, ["succeeded"]);
    world.pass(super::KEPT_MS - 60_000);
    assert_eq!(world.status("t1").attempts, 1);
    world.pass(61_000);
    assert!(world.tasks.status("t1").is_none());
}

#[test]
fn the_same_id_is_the_same_task() {
    let mut world = World::new(1, 4);
    world.submit("t1", "");
    world.submit("t1", "");
    world.submit("t1", r#","retries":1"#);
    let [first, again, other] = world.replies.as_slice() else {
        panic!("{:?}", world.replies);
    };
    assert!(first.as_ref().unwrap().changed && !again.as_ref().unwrap().changed);
    assert_eq!(other, &Err(code::CONFLICT.to_owned()));
    assert_eq!(world.runs["t1"], 1);
}

#[test]
fn what_is_not_acknowledged_by_the_bucket_is_stored_once() {
    for stored in [true, false] {
        let mut world = World::new(1, 4);
        world.failing.push_back(stored);
        world.submit("t1", "");
        world.pass(1_000);
        assert!(world.replies[0].is_ok(), "{stored} {:?}", world.replies);
        // a manager that finds an attempt in the bucket waits for an answer and asks the cells
        world.pass(super::TASK_REPLY_MS + 1_000);
        assert_eq!(world.runs["t1"], 1, "{stored}");
    }
}

#[test]
fn what_finds_no_room_starts_when_there_is_some() {
    let mut world = World::new(1, 2);
    for n in 0..10 {
        world.submit(&format!("t{n}"), "");
    }
    assert_eq!(world.running().len(), 2);
    assert_eq!(world.state("t9"), TaskState::Waiting);
    let sent = world.starts.len();
    world.pass(5_000);
    assert_eq!(world.starts.len(), sent, "nobody asks again and again");
    for _ in 0..5 {
        assert_eq!(world.running().len(), 2);
        world.end_all(0);
        world.pass(500);
    }
    assert!(world.running().is_empty());
    assert!((0..10).all(|n| world.state(&format!("t{n}")) == TaskState::Succeeded));
    assert!(world.runs.values().all(|runs| *runs == 1));
}

#[test]
fn what_is_not_started_in_time_has_failed() {
    let mut world = World::new(1, 0);
    world.submit("t1", "");
    world.submit("t2", r#","queue_timeout":"10s""#);
    world.pass(11_000);
    let late = world.status("t2");
    assert_eq!((late.state, late.unplaced), (TaskState::Failed, true));
    assert!(late.why.unwrap().contains("not started in time: "));
    assert_eq!(world.state("t1"), TaskState::Waiting);
    world.pass(1_790_000);
    assert_eq!(world.state("t1"), TaskState::Failed);
}

#[test]
fn a_failed_run_is_repeated_as_often_as_its_task_says() {
    for (retries, runs) in [(0, 1), (2, 3)] {
        let mut world = World::new(1, 2);
        world.submit("t1", &format!(r#","retries":{retries}"#));
        for _ in 0..4 {
            world.end_all(7);
            world.pass(1_500);
        }
        let status = world.status("t1");
        assert_eq!(
            (status.state, status.exit_code),
            (TaskState::Failed, Some(7))
        );
        assert_eq!((world.runs["t1"], status.attempts), (runs, runs));
    }
}

#[test]
fn what_never_ran_is_tried_three_more_times() {
    let mut world = World::new(1, 2);
    world.submit("t1", "");
    for n in 1..=4 {
        assert_eq!(world.attempts(), [format!("{n}-t1")]);
        let (cell, id) = world.running()[0].clone();
        let mut result = world.result(&cell, id);
        (result.began, result.ended) = (false, "no such program".into());
        world.cells.get_mut(&cell).unwrap().held.remove(&id);
        world.give(crate::TaskInput::Ended(Box::new(result)));
        world.run();
        world.pass(1_500);
    }
    assert!(world.attempts().is_empty());
    let status = world.status("t1");
    assert_eq!((status.state, status.attempts), (TaskState::Failed, 4));
    assert!(status.why.unwrap().contains("no such program"));
}

#[test]
fn a_start_that_nobody_has_answered_is_sent_again_once_the_cells_were_asked() {
    let mut world = World::new(2, 2);
    world.fates.push_back(Fate::Vanishes);
    world.submit("t1", "");
    assert_eq!(world.starts.len(), 1);
    world.pass(super::TASK_REPLY_MS - 500);
    assert_eq!(world.starts.len(), 1);
    world.pass(3_000);
    assert_eq!(world.starts.len(), 2);
    assert_eq!(world.starts[0], world.starts[1], "word for word");
    assert_eq!(world.state("t1"), TaskState::Running);
    // a placed task whose answer was lost is found
    world.fates.push_back(Fate::Unanswered);
    world.submit("t2", "");
    assert_eq!(world.state("t2"), TaskState::Starting);
    world.pass(super::TASK_REPLY_MS + 2_000);
    assert_eq!(world.state("t2"), TaskState::Running);
    assert_eq!((world.runs["t1"], world.runs["t2"]), (1, 1));
}

#[test]
fn what_was_held_up_on_its_way_is_waited_for() {
    let mut world = World::new(1, 2);
    world.fates.push_back(Fate::Vanishes);
    world.submit("t1", "");
    world.pass(super::TASK_REPLY_MS - 1_000);
    world.tasks.settle(world.now);
    world.pass(super::TASK_REPLY_MS - 1_000);
    assert_eq!(world.starts.len(), 1);
    world.pass(3_000);
    assert_eq!(world.starts.len(), 2);
}

#[test]
fn no_cell_speaks_for_another() {
    let mut world = World::new(2, 2);
    world.submit("t1", "");
    let (cell, id) = world.of("t1");
    assert_eq!(cell, "c0");
    let mut forged = world.result(&cell, id);
    (forged.cell, forged.exit_code) = ("c1".into(), Some(0));
    world.give(crate::TaskInput::Ended(Box::new(forged)));
    world.run();
    assert_eq!(world.state("t1"), TaskState::Running);
}

#[test]
fn what_may_have_run_on_a_lost_cell_is_not_repeated() {
    let mut world = World::new(2, 2);
    world.submit("t1", "");
    world.kill_cell("c0");
    let status = world.status("t1");
    assert_eq!(status.state, TaskState::Failed);
    assert!(status.why.unwrap().contains("c0 was lost"));
    // nor if it only may have been running there
    world.fates.push_back(Fate::Unanswered);
    world.submit("t2", "");
    world.kill_cell("c0");
    world.pass(super::TASK_REPLY_MS + 2_000);
    let status = world.status("t2");
    assert_eq!(status.state, TaskState::Failed);
    assert!(status.why.unwrap().contains("may have run"));
    assert_eq!((world.runs["t1"], world.runs["t2"]), (1, 1));
    world.submit("t3", r#","retries":1"#);
    world.kill_cell("c0");
    world.pass(2_000);
    assert_eq!(
        (world.state("t3"), world.runs["t3"]),
        (TaskState::Running, 2)
    );
}

#[test]
fn another_manager_goes_on_where_the_first_was_killed() {
    let mut world = World::new(2, 2);
    world.submit("runs", "");
    world.fates.push_back(Fate::Vanishes);
    world.submit("sent", "");
    world.fates.push_back(Fate::Unanswered);
    world.submit("placed", "");
    world.deaf = true;
    world.submit("ended", "");
    let (cell, id) = world.of("ended");
    world.end(&cell, id, Some(3));
    world.deaf = false;
    world.next_manager();
    world.pass(super::TASK_REPLY_MS + 3_000);
    assert_eq!(world.state("runs"), TaskState::Running);
    assert_eq!(world.state("sent"), TaskState::Running);
    assert_eq!(world.state("placed"), TaskState::Running);
    let ended = world.status("ended");
    assert_eq!((ended.state, ended.exit_code), (TaskState::Failed, Some(3)));
    assert!(
        world.runs.values().all(|runs| *runs == 1),
        "{:?}",
        world.runs
    );
    // after a long time nobody remembers what was sent
    world.fates.push_back(Fate::Vanishes);
    world.submit("old", "");
    world.now += 200_000;
    world.next_manager();
    world.pass(super::TASK_REPLY_MS + 3_000);
    assert_eq!(world.state("old"), TaskState::Failed);
}

#[test]
fn a_task_is_cancelled_wherever_it_is() {
    let mut world = World::new(1, 1);
    world.submit("runs", "");
    world.submit("waits", "");
    world.command("waits", TaskCommand::Cancel);
    assert_eq!(world.state("waits"), TaskState::Cancelled);
    world.command("runs", TaskCommand::Cancel);
    assert_eq!(world.stops.len(), 1);
    assert_eq!(world.state("runs"), TaskState::Cancelled);
    let changed: Vec<bool> = world
        .replies
        .iter()
        .map(|r| r.as_ref().unwrap().changed)
        .collect();
    assert_eq!(changed, [true; 4]);
    world.command("runs", TaskCommand::Cancel);
    assert!(!world.replies.pop().unwrap().unwrap().changed);
    world.command("nobody", TaskCommand::Cancel);
    assert_eq!(world.replies.pop().unwrap().unwrap_err(), code::NOT_FOUND);
    // what was sent is not forgotten, as it may run
    world.fates.push_back(Fate::Unanswered);
    world.submit("sent", "");
    world.command("sent", TaskCommand::Cancel);
    assert_eq!(world.state("sent"), TaskState::Starting);
    world.pass(super::TASK_REPLY_MS + 2_000);
    assert_eq!(world.state("sent"), TaskState::Cancelled);
    assert_eq!(world.stops.len(), 2);
}

#[test]
fn a_run_that_takes_too_long_is_stopped() {
    let mut world = World::new(1, 1);
    world.submit("t1", r#","timeout":"30s""#);
    world.pass(29_000);
    assert!(world.stops.is_empty());
    world.pass(2_000);
    assert_eq!(world.stops.len(), 1);
    let status = world.status("t1");
    assert_eq!(status.state, TaskState::Failed);
    assert_eq!(status.why.as_deref(), Some("timed out"));
}

#[test]
fn a_result_that_was_not_heard_is_asked_for() {
    let mut world = World::new(1, 2);
    world.submit("t1", "");
    world.deaf = true;
    world.end_all(5);
    world.pass(3_000);
    assert_eq!(world.state("t1"), TaskState::Running);
    world.lists(None);
    world.pass(2_000);
    let status = world.status("t1");
    assert_eq!(
        (status.state, status.exit_code),
        (TaskState::Failed, Some(5))
    );
}

#[test]
fn who_does_not_act_stores_and_starts_nothing() {
    let mut world = World::new(1, 1);
    world.acts = false;
    world.submit("t1", "");
    world.pass(2_000);
    assert!(world.starts.is_empty(), "stored by any, started by one");
    assert_eq!(world.stored("t1").phase, TaskPhase::Waiting);
    world.acts = true;
    world.tasks.gained(world.now);
    world.run();
    assert_eq!(world.state("t1"), TaskState::Running);
    world.pass(1_000);
    world.acts = false;
    world.end_all(0);
    assert_eq!(world.stored("t1").phase, TaskPhase::Accepted);
    world.acts = true;
    world.tasks.gained(world.now);
    world.run();
    assert_eq!(world.stored("t1").phase, TaskPhase::Over);
}

#[test]
fn a_durable_start_is_over_when_everything_is_placed() {
    let mut world = World::new(1, 9);
    let body =
        br#"{"id":"d1","app":"a","memory_mb":1,"disk_mb":1,"run":{"command":["x"]},"instances":1}"#;
    let definition = TaskDefinition::read(body, Submitted::Any).unwrap();
    world.command("d1", TaskCommand::Submit(Box::new(definition)));
    let status = world.status("d1");
    assert_eq!((status.state, status.placed), (TaskState::Placed, 1));
}

#[test]
fn an_unreadable_value_is_named_and_a_newer_one_is_not_touched() {
    let mut world = World::new(1, 1);
    let shown = |value: &'static [u8]| crate::TaskInput::Shown {
        id: "t1".into(),
        revision: crate::Revision(9),
        value: Some(value.into()),
    };
    let newer = world.tasks.take(1, shown(br#"{"format":99}"#));
    assert_eq!(newer, Err(crate::Unusable::Newer(99)));
    assert!(world.tasks.take(1, shown(br#"{"format":1}"#)).is_err());
    assert_eq!(world.tasks.count(), 0);
}
