//! Durable requests for several instances, and auctioneers' answers, case by case.

use serde_json::{Value, json};
use shared::{
    AttemptId,
    wire::{Instance, StartReply, TaskState, WireError, code, instance_id},
};

use super::{
    cells::task,
    world::{Fate, World},
};
use crate::{TASK_REPLY_MS, TaskCommand, TaskDefinition, TaskInput, tasks::Submitted};

/// Submits a request for three instances whose starts are not carried out.
fn submit_three(world: &mut World, id: &str) {
    let body = json!({ "id": id, "app": "a", "memory_mb": 1, "disk_mb": 1, "instances": 3,
        "run": { "command": ["true"] } });
    let definition = TaskDefinition::read(body.to_string().as_bytes(), Submitted::Any).unwrap();
    world.fates.push_back(Fate::Vanishes);
    world.command(id, TaskCommand::Submit(Box::new(definition)));
}

/// Has an auctioneer answer the last start.
fn answer(world: &mut World, instances: &Value) {
    let start = world.starts.last().unwrap();
    let attempt = AttemptId::parse(&start.id).unwrap();
    let reply: StartReply = serde_json::from_value(json!({
        "id": start.id, "app": start.app, "outcome": "unplaced", "instances": instances,
    }))
    .unwrap();
    let answer = Ok(Box::new(reply));
    world.give(TaskInput::Outcome { attempt, answer });
    world.run();
}

#[test]
fn of_what_was_placed_in_part_only_the_rest_is_tried_again() {
    let mut world = World::new(1, 0);
    submit_three(&mut world, "d1");
    assert_eq!(world.starts[0].indices, Some(vec![0, 1, 2]));
    world.fates.push_back(Fate::Vanishes);
    let part = json!([
        { "index": 0, "outcome": "placed", "cell": "c0" },
        { "index": 2, "outcome": "placed", "cell": "c0" },
        { "indices": "1", "outcome": "unplaced", "reason": "no room" },
    ]);
    answer(&mut world, &part);
    let status = world.status("d1");
    // some of it fitted, so more may
    assert_eq!((status.state, status.placed), (TaskState::Starting, 2));
    assert_eq!(status.why.as_deref(), Some("no room"));
    assert_eq!(world.starts.len(), 2);
    assert_eq!(world.starts[1].indices, Some(vec![1]));
    assert_ne!(world.starts[1].id, world.starts[0].id);
    answer(
        &mut world,
        &json!([{ "index": 1, "outcome": "placed", "cell": "c0" }]),
    );
    let status = world.status("d1");
    assert_eq!((status.state, status.placed), (TaskState::Placed, 3));
}

#[test]
fn the_result_says_which_instances_are_those_of_other_requests() {
    let mut world = World::new(1, 0);
    submit_three(&mut world, "d1");
    world.fates.push_back(Fate::Vanishes);
    let part = json!([
        { "index": 0, "outcome": "placed", "cell": "c0", "duplicate_of": "t-0000000b-1-d0" },
        { "indices": "1-2", "outcome": "unplaced", "reason": "no room" },
    ]);
    answer(&mut world, &part);
    assert_eq!(world.status("d1").why.as_deref(), Some("no room"));
    answer(
        &mut world,
        &json!([{ "indices": "1-2", "outcome": "placed", "cell": "c0", "duplicate_of": "r1" }]),
    );
    let status = world.status("d1");
    assert_eq!((status.state, status.placed), (TaskState::Placed, 3));
    let why =
        "indices 1-2 are the instances of request r1; index 0 is the instance of stored request d0";
    assert_eq!(status.why.as_deref(), Some(why));
    // with the ids as cells show them, for programs that read the bucket
    let shared = world.stored("d1").shared;
    assert_eq!(shared["t-0000000b-1-d0"], [0]);
    assert_eq!(shared["r1"], [1, 2]);
}

#[test]
fn what_may_run_is_said() {
    let mut world = World::new(1, 0);
    submit_three(&mut world, "d1");
    let unknown = json!([
        { "indices": "0,2", "outcome": "placed", "cell": "c0" },
        { "index": 1, "outcome": "unknown", "cell": "c0" },
    ]);
    answer(&mut world, &unknown);
    let status = world.status("d1");
    assert_eq!((status.state, status.placed), (TaskState::Failed, 2));
    assert!(status.why.unwrap().contains("1 may run"));
}

/// Has a cell list instances of the last start.
fn list(world: &mut World, indices: &[u32]) {
    let start = world.starts.last().unwrap().clone();
    for index in indices {
        let listed: Instance = serde_json::from_value(json!({
            "instance": instance_id(&start.id, &start.app, start.kind, *index), "app": start.app, "index": index,
            "kind": "lrp", "request": start.id, "state": "running", "age_ms": 0, "memory_mb": 1, "disk_mb": 1,
        }))
        .unwrap();
        world.tasks.listed(world.now, "c0", 1, &listed);
    }
}

#[test]
fn what_nobody_answers_is_counted_on_the_cells() {
    let mut world = World::new(1, 0);
    submit_three(&mut world, "all");
    list(&mut world, &[0, 1, 2]);
    world.pass(TASK_REPLY_MS + 2_000);
    let status = world.status("all");
    assert_eq!((status.state, status.placed), (TaskState::Placed, 3));
    // a missing instance is sent again; after a loss it may be running
    submit_three(&mut world, "some");
    list(&mut world, &[0, 1]);
    let sent = world.starts.len();
    world.fates.push_back(Fate::Vanishes);
    world.pass(TASK_REPLY_MS + 2_000);
    assert_eq!(world.starts.len(), sent + 1);
    assert_eq!(world.starts[sent], world.starts[sent - 1], "word for word");
    list(&mut world, &[0, 1]);
    world.kill_cell("c0");
    world.pass(TASK_REPLY_MS + 2_000);
    let status = world.status("some");
    assert_eq!((status.state, status.placed), (TaskState::Failed, 2));
}

#[test]
fn of_what_was_begun_in_part_the_rest_is_another_attempt() {
    let mut world = World::new(1, 0);
    submit_three(&mut world, "d1");
    world.fates.extend([Fate::Vanishes; 9]);
    list(&mut world, &[1]);
    let rest = json!([
        { "index": 1, "outcome": "placed", "cell": "c0" },
        { "indices": "0,2", "outcome": "unplaced", "reason": "no room" },
    ]);
    for _ in 0..12 {
        let sent = world.starts.len();
        world.pass(5_000);
        if world.starts.len() > sent && world.stored("d1").attempt == 1 {
            answer(&mut world, &rest);
        }
    }
    let start = world.starts.last().unwrap();
    assert_eq!(start.indices, Some(vec![0, 2]), "{}", start.id);
    let record = world.stored("d1");
    assert_eq!((record.attempt, record.placed), (2, 1));
}

#[test]
fn an_answer_to_an_earlier_attempt_is_not_of_this_one() {
    let mut world = World::new(1, 0);
    world.submit("t1", "");
    let first = AttemptId::parse(&world.starts[0].id).unwrap();
    world.fates.push_back(Fate::Vanishes);
    world.tasks.room(world.now);
    world.pass(1_000);
    assert_eq!(world.starts.len(), 2);
    let answer = Err(WireError::new(code::INVALID_REQUEST, "late"));
    let attempt = first;
    world.give(TaskInput::Outcome { attempt, answer });
    world.run();
    assert_eq!(world.state("t1"), TaskState::Starting);
}

#[test]
fn an_error_says_whether_something_was_begun() {
    for (error, state, attempts) in [
        (code::INVALID_REQUEST, TaskState::Failed, vec!["1-t1"]),
        // nothing was begun: the next attempt has another number
        (code::OVERLOADED, TaskState::Running, vec!["1-t1", "2-t1"]),
        // something may have been begun: it is looked for and sent again
        (code::INTERNAL, TaskState::Running, vec!["1-t1"]),
    ] {
        let mut world = World::new(1, 1);
        world.fates.push_back(Fate::Refused(error));
        world.submit("t1", "");
        world.pass(TASK_REPLY_MS + 2_000);
        assert_eq!(world.state("t1"), state, "{error}");
        assert_eq!(world.attempts(), attempts, "{error}");
    }
}

#[test]
fn a_stop_without_effect_is_sent_again() {
    let mut world = World::new(1, 1);
    world.submit("t1", "");
    let (cell, id) = world.of("t1");
    // the cell does not obey
    let held = world
        .cells
        .get_mut(&cell)
        .unwrap()
        .held
        .remove(&id)
        .unwrap();
    world.command("t1", TaskCommand::Cancel);
    world.pass(11_000);
    assert_eq!(world.stops, [id; 3]);
    assert_eq!(world.state("t1"), TaskState::Running);
    world.cells.get_mut(&cell).unwrap().held.insert(id, held);
    world.pass(5_000);
    assert_eq!(world.state("t1"), TaskState::Cancelled);
    world.pass(20_000);
    assert_eq!(world.stops.len(), 4);
}

#[test]
fn a_heartbeat_that_is_older_than_the_start_proves_nothing() {
    let mut world = World::new(1, 1);
    world.mute = true;
    world.submit("t1", "");
    // the list was in flight before the task was there
    let held = std::mem::take(&mut world.cells.get_mut("c0").unwrap().held);
    world.lists(None);
    assert!(!world.tasks.take_question(), "a moment later it is there");
    world.cells.get_mut("c0").unwrap().held = held;
    world.pass(3_000);
    assert_eq!(world.state("t1"), TaskState::Running);
    // later it is asked for
    world.cells.get_mut("c0").unwrap().held.clear();
    world.lists(None);
    assert!(world.tasks.take_question());
    assert_eq!(world.state("t1"), TaskState::Running);
    world.lists(Some(world.now));
    world.run();
    assert_eq!(world.state("t1"), TaskState::Failed);
}

#[test]
fn who_does_not_act_concludes_nothing_from_a_list() {
    let mut world = World::new(1, 1);
    world.submit("t1", "");
    world.pass(3_000);
    (world.acts, world.mute) = (false, true);
    world.run();
    world.cells.get_mut("c0").unwrap().held.clear();
    world.lists(Some(world.now));
    world.run();
    assert_eq!(world.state("t1"), TaskState::Running);
}

#[test]
fn an_older_value_of_the_watch_changes_nothing() {
    let mut world = World::new(1, 1);
    world.submit("t1", "");
    let early = world.values["t1"].clone();
    world.pass(2_000);
    assert_eq!(world.stored("t1").cell.as_deref(), Some("c0"));
    world.give(TaskInput::Shown {
        id: "t1".into(),
        revision: crate::Revision(early.0),
        value: Some(early.1),
    });
    world.run();
    assert_eq!(world.state("t1"), TaskState::Running);
    // nothing is left of a request that is stored again under the same id
    let other = TaskCommand::Submit(Box::new(task("t1", r#","retries":9"#)));
    world.replies.clear();
    world.command("t1", other);
    assert_eq!(world.replies, [Err(code::CONFLICT.to_owned())]);
}
