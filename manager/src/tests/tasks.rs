//! Tasks are not kept running, and instances that find no place are not given up.

use std::collections::BTreeMap;

use placement::Kind;
use shared::{
    InstanceId,
    wire::{Event, Instance, Outcome, TaskState, kind},
};
use testkit::lists;

use super::world::{Sent, TTL, World, app, three};
use crate::{AppCommand, ManagerInput, Revision, TaskInput};

#[test]
fn v35_a_task_is_not_started_again_and_not_stopped() {
    let mut w = three();
    let task = InstanceId::from_u128(35);
    let mut list = Box::new(w.list_of("c4"));
    list.instances.push(Instance {
        kind: Kind::Task,
        // under the id of a wave of the app, which proves a wave only for an LRP
        request: Some(w.id("1-7").parse().unwrap()),
        ..lists::instance(task, "A", 1)
    });
    let question = None;
    w.give(ManagerInput::Listed { question, list });
    assert_eq!(w.manager.instances(), 3);
    w.cell("c4").silent = true;
    w.pass(4 * TTL);
    assert!(w.starts().is_empty());
    w.command(AppCommand::Delete);
    assert!(!w.stops().contains(&task));
}

#[test]
fn v36_v37_what_finds_no_place_is_tried_on_and_has_the_last_reason() {
    let mut w = World::new();
    w.put(&app("A", 1, ""));
    // for longer than half an hour
    for wave in 1..=70 {
        let (id, reason) = (w.id(&format!("1-{wave}")), format!("reason {wave}"));
        w.outcome(&id, &[(0, "")], Outcome::Unplaced, Some(&reason));
        let status = w.manager.status("A").unwrap();
        assert_eq!(status.unplaced, Some(reason));
        w.sent = Sent::default();
        w.pass(31_000);
        assert_eq!(w.starts(), [(format!("1-{}", wave + 1), "0".into())]);
    }
    let status = w.manager.status("A").unwrap();
    assert_eq!((status.given_up, status.crashed), (0, 0));
}

/// A cordoned cell advertises as before but for that, so its event says that there may be room.
#[test]
fn what_found_no_place_is_tried_again_when_a_cell_takes_work_again() {
    let mut w = World::new();
    w.put(&app("A", 1, ""));
    let first = w.id("1-1");
    w.outcome(&first, &[(0, "")], Outcome::Unplaced, Some("no room"));
    w.sent = Sent::default();
    w.pass(2_000);
    assert!(w.starts().is_empty());
    let mut event = Event::cell(kind::CELL_UNCORDONED, "c1");
    event.stamp_at("c1", "2026-12-01T10:00:00.000Z");
    w.give(ManagerInput::Event(Box::new(event)));
    w.pass(2_000);
    assert_eq!(w.starts(), [("1-2".to_owned(), "0".to_owned())]);
}

/// Has a manager that has just started find a task that runs on this cell.
fn with_task_on(cell: &str) -> World {
    let mut w = World::bare(BTreeMap::new(), &["c1", "c2", "c3", "c4"]);
    let record = format!(
        r#"{{"format":1,"request":{{"id":"t1","app":"a","kind":"task","memory_mb":1,"disk_mb":1,"run":{{"command":["true"]}}}},
            "submitted_ms":1,"waiting_ms":1,"phase":"accepted","bucket":"0000000b","attempt":1,"left":[0],"cell":"{cell}"}}"#
    );
    let shown = TaskInput::Shown {
        id: "t1".into(),
        revision: Revision(1),
        value: Some(record.into()),
    };
    w.give(ManagerInput::Task(shown));
    w.show_all();
    w
}

#[test]
fn a_task_on_a_cell_that_never_speaks_has_failed_once_its_manager_has_settled() {
    let mut w = with_task_on("c9");
    let state = |w: &World| w.manager.task("t1").unwrap().state;
    w.pass(TTL);
    assert_eq!(state(&w), TaskState::Running);
    w.pass(2 * TTL + 2_000);
    assert_eq!(state(&w), TaskState::Failed);
    // silence proves nothing while no cell is heard
    let mut w = with_task_on("c1");
    w.deaf = true;
    w.pass(10 * TTL);
    assert_eq!(state(&w), TaskState::Running);
}
