//! Tasks are not kept, and what finds no place is not given up.

use placement::Kind;
use shared::{
    InstanceId,
    wire::{Instance, Outcome},
};
use testkit::lists;

use super::world::{Sent, TTL, World, app, three};
use crate::{AppCommand, ManagerInput};

#[test]
fn v35_a_task_is_not_started_again_and_not_stopped() {
    let mut w = three();
    let task = InstanceId::from_u128(35);
    let mut list = Box::new(w.list_of("c4"));
    list.instances.push(Instance {
        kind: Kind::Task,
        // under the id of a wave of the app: it shows a wave only where it is of an LRP
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
