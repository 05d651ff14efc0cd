//! Cells that are lost, withdraw or start again, and attempts that nobody answers.

use shared::wire::TaskState;

use crate::TASK_REPLY_MS;

use super::{
    super::attempts::MAX_SENDS,
    world::{Fate, World},
};

/// Tells a manager that it has not heard of a cell that an earlier manager knew.
fn without(cell: &str, world: &mut World) {
    let cell = cell.to_owned();
    let is_here = move |name: &str| name != cell;
    world.tasks.look_for_cells(world.now, is_here);
    world.run();
}

#[test]
fn what_ran_on_a_cell_that_a_new_manager_never_hears_has_failed() {
    let mut world = World::new(2, 1);
    world.submit("t1", "");
    world.submit("t2", "");
    world.cells.get_mut("c0").unwrap().dead = true;
    world.next_manager();
    world.pass(30_000);
    assert_eq!(world.state("t1"), TaskState::Running, "it has not settled");
    without("c0", &mut world);
    world.pass(10_000);
    // neither the watch nor a new term restarts the wait
    world.tasks.gained(world.now);
    let (revision, value) = world.values["t1"].clone();
    world.store("t1", Some(value));
    assert!(world.values["t1"].0 > revision);
    without("c0", &mut world);
    world.pass(4_000);
    assert_eq!(world.state("t1"), TaskState::Running);
    world.pass(2_000);
    let status = world.status("t1");
    assert_eq!(status.state, TaskState::Failed);
    assert!(status.why.unwrap().contains("c0 was lost"));
    assert_eq!(world.state("t2"), TaskState::Running, "its cell is here");
}

#[test]
fn a_cell_that_comes_back_in_time_is_not_lost() {
    let mut world = World::new(1, 1);
    world.submit("t1", "");
    without("c0", &mut world);
    world.pass(10_000);
    world.lists(None);
    world.pass(20_000);
    assert_eq!(world.state("t1"), TaskState::Running);
}

#[test]
fn what_a_cell_accepted_while_its_rep_was_started_again_runs() {
    let mut world = World::new(1, 2);
    world.submit("t1", "");
    world.mute = true;
    world.renew_cell("c0");
    // the new run of the rep has this one
    world.submit("t2", "");
    assert_eq!(world.state("t1"), TaskState::Running, "its cell is asked");
    world.mute = false;
    world.lists(Some(world.now));
    world.pass(1_000);
    let status = world.status("t1");
    assert_eq!(status.state, TaskState::Failed);
    assert!(status.why.unwrap().contains("no longer knows"));
    assert_eq!(world.state("t2"), TaskState::Running);
    world.renew_cell("c0");
    assert_eq!(world.state("t2"), TaskState::Failed);
}

#[test]
fn what_may_have_ended_with_its_rep_is_not_repeated() {
    for renewed in [true, false] {
        let mut world = World::new(1, 1);
        world.fates.push_back(Fate::Unknown(renewed));
        world.submit("t1", "");
        if renewed {
            world.renew_cell("c0");
        }
        world.pass(10_000);
        world.lists(None);
        world.pass(5_000);
        // either its start never arrived or nobody knows
        let state = if renewed {
            TaskState::Failed
        } else {
            TaskState::Running
        };
        assert_eq!((world.state("t1"), world.runs["t1"]), (state, 1));
    }
    // another manager does not know how often the rep was restarted
    let mut world = World::new(1, 1);
    world.fates.push_back(Fate::Unknown(false));
    world.submit("t1", "");
    world.next_manager();
    world.pass(10_000);
    world.lists(Some(world.now));
    world.pass(5_000);
    assert_eq!(world.state("t1"), TaskState::Failed);
}

#[test]
fn a_cell_that_withdraws_is_given_time_to_tell_how_its_tasks_ended() {
    let mut world = World::new(1, 2);
    world.submit("ends", "");
    world.submit("lost", "");
    world.tasks.cell_left(world.now, "c0", false);
    world.pass(10_000);
    let (cell, id) = world.of("ends");
    world.end(&cell, id, Some(0));
    assert_eq!(world.state("lost"), TaskState::Running);
    world.pass(6_000);
    assert_eq!(world.state("ends"), TaskState::Succeeded);
    assert_eq!(world.state("lost"), TaskState::Failed);
    // starts in flight may have run there, unless the cell was drained and had nothing left
    for (drained, state) in [(true, TaskState::Running), (false, TaskState::Failed)] {
        let mut world = World::new(1, 1);
        world.fates.push_back(Fate::Vanishes);
        world.submit("t1", "");
        world.tasks.cell_left(world.now, "c0", drained);
        world.pass(TASK_REPLY_MS + 2_000);
        assert_eq!(world.state("t1"), state, "{drained}");
    }
}

#[test]
fn no_cell_is_believed_to_lack_something_before_the_manager_has_settled() {
    let mut world = World::new(1, 1);
    world.fates.push_back(Fate::Vanishes);
    world.submit("t1", "");
    world.settled = false;
    world.pass(TASK_REPLY_MS + 20_000);
    assert_eq!(world.starts.len(), 1);
    world.settled = true;
    world.pass(2_000);
    assert_eq!(world.starts.len(), 2);
}

#[test]
fn what_cells_do_not_answer_is_not_waited_for_without_end() {
    let mut world = World::new(1, 1);
    world.mute = true;
    world.fates.push_back(Fate::Vanishes);
    world.submit("t1", "");
    world.pass(TASK_REPLY_MS + 175_000);
    assert_eq!(world.state("t1"), TaskState::Starting);
    world.pass(10_000);
    let status = world.status("t1");
    assert_eq!(status.state, TaskState::Failed);
    assert!(status.why.unwrap().contains("may have run"));
    assert_eq!(world.starts.len(), 1);
}

#[test]
fn an_attempt_is_not_sent_without_end() {
    let sends = MAX_SENDS as usize;
    let mut world = World::new(1, 1);
    world.fates.extend(vec![Fate::Vanishes; sends + 9]);
    world.submit("t1", "");
    world.pass(4 * 60_000);
    assert_eq!(world.state("t1"), TaskState::Starting);
    world.pass(40 * 60_000);
    let status = world.status("t1");
    assert_eq!(status.state, TaskState::Failed);
    let why = status.why.unwrap();
    assert!(why.contains("no auctioneer has said"), "{why}");
    assert_eq!(world.starts.len(), sends);
    assert_eq!(world.attempts(), ["1-t1"]);
}

#[test]
fn no_room_the_second_time_does_not_say_so_of_the_first() {
    let mut world = World::new(1, 0);
    world.fates.push_back(Fate::Vanishes);
    world.submit("t1", "");
    world.pass(TASK_REPLY_MS + 12_000);
    assert!(world.starts.len() > 2);
    assert_eq!(world.status("t1").why.as_deref(), Some("no room"));
    world.cells.get_mut("c0").unwrap().slots = 1;
    world.pass(20_000);
    assert_eq!(world.state("t1"), TaskState::Running);
    assert_eq!(world.attempts(), ["1-t1"], "no second one beside the first");
}

#[test]
fn what_nobody_can_begin_any_more_waits_for_room() {
    for fate in [None, Some(Fate::Refused("overloaded"))] {
        let mut world = World::new(1, 0);
        world.fates.push_back(Fate::Vanishes);
        world.fates.extend(fate.into_iter().cycle().take(3));
        world.submit("t1", r#","queue_timeout":"70s""#);
        world.pass(25_000);
        assert_eq!(world.attempts(), ["1-t1"], "it may still be begun");
        world.pass(30_000);
        assert_eq!(world.attempts().last().unwrap(), "2-t1");
        assert_eq!(world.stored("t1").attempt, 2);
        // and it ends when its time is over
        world.pass(20_000);
        let status = world.status("t1");
        assert_eq!((status.state, status.unplaced), (TaskState::Failed, true));
    }
}

/// Another manager sent it, and this one does not know when it last did.
#[test]
fn what_another_manager_sent_may_be_begun_for_as_long() {
    let mut world = World::new(1, 0);
    world.fates.push_back(Fate::Vanishes);
    world.submit("t1", "");
    world.next_manager();
    world.pass(TASK_REPLY_MS + 25_000);
    assert_eq!(world.attempts(), ["1-t1"]);
    world.pass(25_000);
    assert!(world.attempts().contains(&"2-t1".to_owned()));
}
