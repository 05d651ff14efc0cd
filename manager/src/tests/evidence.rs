//! Conclusions from messages and from silence.

use shared::{
    InstanceId,
    wire::{InstanceState, Outcome, instance_id, kind},
};

use super::world::{Sent, TTL, World, app, three};
use crate::{AppCommand, ManagerInput};

/// Returns a world with app A whose index 0 was accepted by c1, which has not listed it yet.
fn accepted() -> (World, InstanceId) {
    let mut w = World::new();
    w.put(&app("A", 1, ""));
    let request = w.id("1-1");
    w.cell("c1").seq = 43;
    w.placed(&request, &[(0, "c1")]);
    let id = instance_id(&request, "A", placement::Kind::Lrp, 0);
    // two starts of an index are a second apart
    w.now += 1_000;
    w.give(ManagerInput::Echo);
    w.sent = Sent::default();
    (w, id)
}

/// Sends a list of c1 with this version and without any instance.
fn empty_list(w: &mut World, seq: u64) {
    w.cell("c1").seq = seq;
    w.cell("c1").held.clear();
    w.list("c1", None);
}

#[test]
fn v18_of_a_cell_that_returns_the_running_one_stays() {
    let mut w = three();
    w.cell("c2").silent = true;
    w.pass(TTL + 6_000);
    let next = w.id("1-2");
    w.placed(&next, &[(1, "c3")]);
    let second = w.add("c3", &next, 1, InstanceState::Starting);
    w.advertise("c3");
    w.list("c3", None);
    w.cell("c2").silent = false;
    w.pass(500);
    w.heartbeats();
    w.pass(100);
    assert_eq!(w.manager.status("A").unwrap().suspect, 0);
    assert_eq!(w.stops(), [second]);
}

#[test]
fn v19_v20_of_a_cell_that_returns_when_both_run_one_ends_after_a_ttl() {
    let mut w = three();
    w.cell("c2").silent = true;
    w.pass(TTL + 6_000);
    let next = w.id("1-2");
    w.runs(&next, &[(1, "c3")]);
    let second = instance_id(&next, "A", placement::Kind::Lrp, 1);
    w.cell("c2").silent = false;
    w.heartbeats();
    w.pass(TTL - 1_000);
    assert!(w.stops().is_empty());
    w.pass(30_000);
    assert_eq!(w.stops(), [second]);
    w.end("c3", second, kind::STOPPED, 0);
    w.pass(4 * TTL);
    assert!(w.stops().is_empty() && w.starts().iter().all(|(id, _)| id == "1-2"));
}

#[test]
fn v22_a_replacement_that_is_lost_too_is_replaced() {
    let mut w = three();
    w.cell("c2").silent = true;
    w.pass(TTL + 6_000);
    let next = w.id("1-2");
    w.placed(&next, &[(1, "c3")]);
    w.add("c3", &next, 1, InstanceState::Starting);
    w.heartbeats();
    w.sent = Sent::default();
    w.cell("c3").silent = true;
    w.pass(TTL + 6_000);
    let starts = w.starts();
    assert!(
        starts.iter().any(|(_, indices)| indices.contains('1')),
        "{starts:?}"
    );
    assert!(w.stops().is_empty());
    assert_eq!(w.manager.status("A").unwrap().suspect, 3);
}

/// An auctioneer knew the cell for longer than the manager, and sent the replacement there.
#[test]
fn what_was_sent_to_a_lost_cell_is_lost_with_it() {
    for outcome in [Outcome::Unknown, Outcome::Placed] {
        let mut w = three();
        w.cell("c2").silent = true;
        w.pass(TTL + 6_000);
        let next = w.id("1-2");
        w.outcome(&next, &[(1, "c2")], outcome, None);
        let sent = instance_id(&next, "A", placement::Kind::Lrp, 1);
        w.sent = Sent::default();
        w.pass(TTL - 1_000);
        assert!(w.starts().is_empty(), "the cell may be heard again");
        w.pass(3_000);
        assert_eq!(w.starts(), [("1-3".to_owned(), "1".to_owned())]);
        // nobody would hear a stop
        w.command(AppCommand::Delete);
        w.pass(60_000);
        assert!(!w.stops().contains(&sent));
    }
}

#[test]
fn v23_the_crash_of_a_suspect_is_not_counted() {
    let mut w = three();
    let (_, old) = w.only(1);
    w.cell("c2").silent = true;
    w.pass(TTL + 6_000);
    let next = w.id("1-2");
    w.runs(&next, &[(1, "c3")]);
    w.sent = Sent::default();
    w.cell("c2").silent = false;
    w.end("c2", old, kind::CRASHED, 1_000);
    w.pass(3 * TTL);
    assert_eq!(w.manager.counters().crashed, 0);
    assert!(w.starts().is_empty() && w.stops().is_empty());
}

#[test]
fn v38_after_a_change_of_manager_silence_proves_nothing_for_a_ttl() {
    let mut w = three();
    w.cell("c2").held.clear();
    w.cell("c2").silent = true;
    w.next_manager();
    w.pass(TTL - 1_000);
    assert!(w.starts().is_empty());
    w.pass(4_000);
    assert_eq!(w.starts()[0].1, "1");
}

#[test]
fn v42_without_messages_nothing_is_lost_started_or_stopped() {
    for lease_down in [false, true] {
        let mut w = three();
        let (cell, id) = w.only(1);
        w.lease_down = lease_down;
        w.deaf = true;
        w.pass(3_000);
        w.cell(&cell).held.remove(&id);
        w.pass(600_000);
        assert!(w.starts().is_empty() && w.stops().is_empty());
        assert_eq!(w.manager.status("A").unwrap().running, 3);
    }
}

#[test]
fn v51_v52_a_list_proves_absence_only_if_it_is_new_enough() {
    let (mut w, id) = accepted();
    // the cell says at which version it accepted the instance
    let heard = crate::CellHeard {
        cell: "c1".into(),
        incarnation: shared::Incarnation::from_u128(w.cells["c1"].incarnation),
        seq: 43,
        ttl: placement::Span(std::time::Duration::from_millis(TTL)),
        draining: false,
        leaving: false,
        recent: vec![id],
    };
    w.give(ManagerInput::Cell(heard));
    empty_list(&mut w, 42);
    assert!(w.starts().is_empty());
    assert_eq!(w.manager.status("A").unwrap().starting, 1);
    empty_list(&mut w, 44);
    assert_eq!(w.starts(), [("1-2".into(), "0".into())]);
    assert_eq!(w.manager.counters().crashed, 0);
}

#[test]
fn v53_an_unknown_outcome_is_decided_by_the_cell() {
    let mut w = World::new();
    w.put(&app("A", 1, ""));
    let request = w.id("1-1");
    w.outcome(&request, &[(0, "c1")], Outcome::Unknown, None);
    w.sent = Sent::default();
    w.pass(5_000);
    assert!(w.starts().is_empty(), "its start may still arrive");
    w.pass(20_000);
    assert_eq!(w.starts(), [("1-2".into(), "0".into())]);

    let mut w = World::new();
    w.put(&app("A", 1, ""));
    let request = w.id("1-1");
    w.outcome(&request, &[(0, "c1")], Outcome::Unknown, None);
    w.add("c1", &request, 0, InstanceState::Running);
    w.sent = Sent::default();
    w.pass(40_000);
    assert!(w.starts().is_empty() && w.stops().is_empty());
}

#[test]
fn v54_a_new_incarnation_has_nothing_of_the_one_before() {
    let mut w = three();
    w.cell("c1").incarnation = 77;
    w.cell("c1").seq = 1;
    w.cell("c1").held.clear();
    w.advertise("c1");
    assert_eq!(w.starts(), [("1-2".into(), "0".into())]);
    assert_eq!(w.manager.counters().crashed, 0);
    // a late message of the former one is dropped
    w.cell("c1").incarnation = 1_000;
    w.list("c1", None);
    assert_eq!(w.manager.counters().dropped_former, 1);
}

#[test]
fn what_so_far_only_an_event_has_shown_is_gone_with_its_cell() {
    let mut w = World::new();
    w.put(&app("A", 1, ""));
    let request = w.id("1-1");
    let id = instance_id(&request, "A", placement::Kind::Lrp, 0);
    // the cell's message is faster than the auctioneer's
    w.event("c1", kind::RUNNING, 0, id, (false, 0));
    w.placed(&request, &[(0, "c1")]);
    assert_eq!(w.starts(), [("1-1".into(), "0".into())]);
    w.cell("c1").incarnation = 77;
    w.cell("c1").seq = 1;
    w.advertise("c1");
    w.pass(10_000);
    assert_eq!(w.starts(), [("1-2".into(), "0".into())]);
}

#[test]
fn what_only_an_auctioneer_has_spoken_of_is_no_reason_to_stop_another() {
    let mut w = World::new();
    w.put(&app("A", 4, ""));
    let late = w.id("1-1");
    // an auctioneer that was suspended still has it
    w.command(AppCommand::Scale(3));
    w.pass(4 * TTL);
    let next = w.id("1-2");
    assert!(w.starts().iter().any(|(id, _)| id == "1-2"));
    for index in 0..3 {
        w.add("c1", &late, index, InstanceState::Starting);
    }
    w.list("c1", None);
    w.outcome(
        &next,
        &[(0, "c2"), (1, "c2"), (2, "c2")],
        Outcome::Unknown,
        None,
    );
    assert!(w.sent.stops.iter().all(|(cell, _)| cell == "c2"));
}

#[test]
fn v61_half_of_the_cells_are_replaced() {
    let names: Vec<String> = (0..200).map(|n| format!("d{n:03}")).collect();
    let cells: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut w = World::bare(Default::default(), &cells);
    w.show_all();
    w.pass(2 * TTL);
    w.put(&app("A", 10_000, ""));
    let request = w.id("1-1");
    let on: Vec<(u32, &str)> = (0..10_000).map(|i| (i, cells[i as usize % 200])).collect();
    w.placed(&request, &on);
    for (index, cell) in &on {
        w.add(cell, &request, *index, InstanceState::Running);
    }
    w.heartbeats();
    w.pass(2 * TTL);
    w.sent = Sent::default();
    for name in &cells[..100] {
        w.cell(name).silent = true;
    }
    w.pass(TTL + 6_000);
    let first = &w.sent.starts[0];
    assert_eq!(first.indices.as_ref().unwrap().len(), 5_000);
}

#[test]
fn v62_without_renewals_nothing_is_done() {
    let mut w = three();
    w.lease_down = true;
    w.cell("c2").silent = true;
    w.pass(600_000);
    assert!(w.starts().is_empty() && w.stops().is_empty());
    assert_eq!(w.manager.counters().cells_lost, 0);
}

#[test]
fn v63_without_a_first_part_no_absence_is_concluded() {
    let mut w = three();
    w.pass(2_000);
    w.sent = Sent::default();
    let mut list = Box::new(w.list_of("c1"));
    list.instances.clear();
    (list.seq, list.part, list.parts) = (list.seq + 1, 2, 2);
    let question = None;
    w.give(ManagerInput::Listed { question, list });
    assert!(w.starts().is_empty());
    assert_eq!(w.sent.questions.len(), 1, "the cell is asked");
    assert_eq!(w.manager.status("A").unwrap().running, 3);
}

#[test]
fn both_parts_of_a_list_prove_absence() {
    let mut w = three();
    let mut first = Box::new(w.list_of("c1"));
    let mut second = first.clone();
    second.instances.clear();
    first.instances.clear();
    (first.seq, first.part, first.parts) = (first.seq + 1, 1, 2);
    (second.seq, second.part, second.parts) = (first.seq, 2, 2);
    let question = None;
    w.give(ManagerInput::Listed {
        question,
        list: first,
    });
    assert!(w.starts().is_empty());
    w.give(ManagerInput::Listed {
        question,
        list: second,
    });
    assert_eq!(w.starts().len(), 1);
}

#[test]
fn v67_placed_but_not_on_the_cell_means_the_next_wave() {
    let (mut w, _) = accepted();
    // no list proves it until the cell was asked after the outcome
    empty_list(&mut w, 44);
    w.pass(2_000);
    assert_eq!(w.starts(), [("1-2".into(), "0".into())]);
}

#[test]
fn v68_when_most_cells_are_silent_a_further_ttl_is_waited() {
    let mut w = three();
    for cell in ["c1", "c2", "c3"] {
        w.cell(cell).silent = true;
    }
    w.pass(TTL + 8_000);
    assert!(w.starts().is_empty());
    assert_eq!(w.events(), [kind::MANY_CELLS_SILENT]);
    w.pass(TTL);
    assert_eq!(w.starts()[0].1, "0-2");
}

#[test]
fn when_all_cells_are_silent_nothing_is_replaced() {
    let mut w = three();
    for cell in ["c1", "c2", "c3", "c4"] {
        w.cell(cell).silent = true;
    }
    w.pass(20 * TTL);
    assert!(w.starts().is_empty() && w.stops().is_empty());
}

#[test]
fn an_instance_whose_id_is_false_is_dropped() {
    let mut w = three();
    let mut list = Box::new(w.list_of("c4"));
    let mut false_one = w.list_of("c1").instances.remove(0);
    false_one.instance = InstanceId::from_u128(5);
    list.instances.push(false_one);
    let question = None;
    w.give(ManagerInput::Listed { question, list });
    assert_eq!(w.manager.counters().dropped_false_ids, 1);
    w.command(AppCommand::Delete);
    assert!(!w.stops().contains(&InstanceId::from_u128(5)));
}

#[test]
fn a_suspect_is_forgotten_in_the_end() {
    let mut w = three();
    w.cell("c2").silent = true;
    w.pass(TTL + 6_000);
    let next = w.id("1-2");
    w.runs(&next, &[(1, "c3")]);
    assert_eq!(w.manager.status("A").unwrap().suspect, 1);
    w.pass(3_700_000);
    assert_eq!(w.manager.status("A").unwrap().suspect, 0);
}

#[test]
fn an_app_is_new_only_until_something_can_have_been_missed() {
    let mut w = World::new();
    w.full = true;
    w.obey = true;
    w.put(&app("A", 3, ""));
    assert_eq!(w.starts().len(), 1);
    w.give(ManagerInput::Interrupted);
    w.command(AppCommand::Scale(5));
    w.pass(TTL - 1_000);
    let late = w.starts();
    assert!(
        late.iter().all(|(_, indices)| !indices.contains('3')),
        "{late:?}"
    );
    w.pass(2 * TTL);
    assert!(!w.starts().is_empty());
}

/// Events of different kinds come on different subjects, and lists on a third.
#[test]
fn in_whatever_order_messages_come_the_last_attempt_counts() {
    use shared::wire::kind::{CRASHED, RESTARTED, RUNNING};
    let events = [(RUNNING, 0), (CRASHED, 0), (RESTARTED, 1), (RUNNING, 1)];
    let orders = [
        [0, 1, 2, 3],
        [1, 0, 2, 3],
        [3, 2, 1, 0],
        [2, 3, 0, 1],
        [0, 3, 1, 2],
    ];
    for crashed_again in [false, true] {
        for order in orders {
            let mut w = World::new();
            w.put(&app("A", 1, ""));
            let request = w.id("1-1");
            w.placed(&request, &[(0, "c1")]);
            let id = w.add("c1", &request, 0, InstanceState::Running);
            if crashed_again {
                w.attempt("c1", CRASHED, id, 1);
            }
            for at in order {
                let (kind, restarts) = events[at];
                w.attempt("c1", kind, id, restarts);
            }
            let running = u32::from(!crashed_again);
            assert_eq!(w.manager.status("A").unwrap().running, running, "{order:?}");
            // a list from before
            w.cell("c1").held.get_mut(&id).unwrap().restarts = 0;
            w.list("c1", None);
            assert_eq!(w.manager.status("A").unwrap().running, running, "{order:?}");
        }
    }
}
