//! Taking a cell out of service and back.

use shared::RequestId;

use super::*;

/// An instance that a manager started.
fn managed(id: u128) -> Work {
    let wave = RequestId::new("m-0000000b-000000a1-3-17").unwrap();
    Work {
        request: Some(wave),
        ..work(id, "managed")
    }
}

fn holding(work: Vec<Work>) -> Ledger {
    let mut ledger = ledger();
    let ids: Vec<u128> = work.iter().map(|work| work.instance.as_u128()).collect();
    ledger.start(0, &start(work));
    for id in ids {
        ledger.report(0, runs(id, 0));
    }
    summary(&mut ledger);
    ledger
}

#[test]
fn a_drained_cell_exits_only_if_it_was_told_to() {
    for exits in [false, true] {
        let mut ledger = holding(vec![work(1, "a")]);
        ledger.drain(0, 0, exits);
        assert!(!ledger.may_exit());
        ledger.report(10, ends(1, 0, 143));
        assert_eq!((ledger.is_drained(), ledger.may_exit()), (true, exits));
        // the later drain decides
        ledger.drain(20, 0, !exits);
        assert_eq!(ledger.may_exit(), !exits);
    }
}

#[test]
fn a_cordoned_cell_keeps_what_runs_and_takes_nothing() {
    let mut ledger = holding(vec![work(1, "a")]);
    let before = ledger.seq();
    assert_eq!(ledger.cordon(), Some(true));
    assert_eq!(ledger.seq(), before + 1);
    assert_eq!(ledger.cordon(), Some(false));
    assert_eq!(ledger.seq(), before + 1);
    let cell = ledger.cell();
    assert!(cell.evacuating && cell.cordoned);
    assert_eq!(
        answers(&mut ledger, 1, &start(vec![work(2, "a")])),
        ["cordoned"]
    );
    // a repeat is answered as before
    assert_eq!(answers(&mut ledger, 1, &start(vec![work(1, "a")])), ["+"]);
    assert_eq!(ledger.next_ms(), None);
    ledger.report(2, ends(1, 0, 0));
    assert!(!ledger.is_drained() && !ledger.may_exit());
    let before = ledger.seq();
    assert_eq!(ledger.uncordon(), Some(true));
    assert_eq!(ledger.seq(), before + 1);
    assert_eq!(ledger.uncordon(), Some(false));
    assert_eq!(ledger.seq(), before + 1);
    let cell = ledger.cell();
    assert!(!cell.evacuating && !cell.cordoned);
    assert_eq!(answers(&mut ledger, 3, &start(vec![work(2, "a")])), ["+"]);
}

#[test]
fn a_drain_can_be_taken_back() {
    type Back = fn(&mut Ledger) -> Option<bool>;
    let ways: [(Back, bool); 2] = [(Ledger::uncordon, false), (Ledger::cordon, true)];
    for (back, evacuating) in ways {
        let mut ledger = holding(vec![work(1, "a")]);
        ledger.drain(0, 1_000, true);
        assert_eq!(back(&mut ledger), Some(true));
        assert_eq!(ledger.next_ms(), None);
        ledger.tick(2_000);
        assert_eq!(summary(&mut ledger), [""; 0]);
        assert_eq!(ledger.cell().evacuating, evacuating);
        ledger.report(2_000, ends(1, 0, 0));
        assert!(!ledger.may_exit());
    }
}

#[test]
fn a_cordoned_cell_can_be_drained() {
    let mut ledger = holding(vec![work(1, "a")]);
    ledger.cordon();
    assert!(ledger.drain(0, 1_000, false));
    let cell = ledger.cell();
    assert!(cell.evacuating && !cell.cordoned);
    ledger.tick(1_000);
    assert_eq!(summary(&mut ledger), ["end 0"]);
}

#[test]
fn what_is_held_is_counted_for_operators() {
    let ledger = holding(vec![work(1, "a"), managed(2), managed(3), task(4)]);
    let expected = Held {
        instances: 4,
        managed: 2,
        tasks: 1,
    };
    assert_eq!(ledger.held(), expected);
}

#[test]
fn who_is_to_end_waits_for_tasks_and_for_what_a_manager_replaces() {
    for worth_it in [managed(2), task(2)] {
        let mut ledger = holding(vec![work(1, "a"), worth_it.clone()]);
        assert!(ledger.leave(0, 10_000));
        assert_eq!(ledger.next_ms(), Some(10_000));
        ledger.tick(5_000);
        assert_eq!(summary(&mut ledger), [""; 0]);
        ledger.report(6_000, ends(2, 0, 0));
        summary(&mut ledger);
        // nobody replaces the other one
        assert_eq!(ledger.next_ms(), Some(0), "at once");
        ledger.tick(6_001);
        assert_eq!(summary(&mut ledger), ["end 0"]);
        ledger.report(6_100, ends(1, 0, 143));
        assert!(ledger.may_exit());

        let mut ledger = holding(vec![worth_it]);
        ledger.leave(0, 10_000);
        ledger.tick(10_000);
        assert_eq!(summary(&mut ledger), ["end 0"], "it waits no longer");
    }
    let mut ledger = holding(vec![work(1, "a")]);
    ledger.leave(0, 10_000);
    assert_eq!(
        summary(&mut ledger),
        ["end 0"],
        "there is nothing to wait for"
    );
}

#[test]
fn a_rep_that_is_to_end_is_not_made_to_stay() {
    let mut ledger = holding(vec![managed(1)]);
    ledger.leave(0, 10_000);
    assert_eq!((ledger.cordon(), ledger.uncordon()), (None, None));
    ledger.drain(1, 3_600_000, false);
    assert_eq!(ledger.next_ms(), Some(10_000));
    ledger.drain(2, 1_000, false);
    assert_eq!(ledger.next_ms(), Some(1_002));
    ledger.tick(1_002);
    ledger.report(1_100, ends(1, 0, 143));
    assert!(ledger.may_exit());
}
