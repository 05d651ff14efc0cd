//! An instance that was sent here with one claim, and runs elsewhere under a lower one.

use super::*;

fn claimed(claim: u128) -> CellStart {
    CellStart {
        auction: AuctionId::from_u128(claim),
        ..start(vec![work(1, "a")])
    }
}

fn kill(claim: u128) -> Stop {
    Stop {
        claim: Some(AuctionId::from_u128(claim)),
        ..stop("a", &[1])
    }
}

fn claim_of(ledger: &Ledger) -> Option<u128> {
    let all = ledger.current_instances(0);
    all.first()?.claim.map(AuctionId::as_u128)
}

#[test]
fn of_several_claims_the_lowest_counts() {
    let mut ledger = ledger();
    for (claim, lowest) in [(5, 5), (7, 5), (3, 3)] {
        ledger.start(0, &claimed(claim));
        assert_eq!(claim_of(&ledger), Some(lowest));
    }
    let mut work = work(1, "a");
    work.claim = Some(AuctionId::from_u128(2));
    ledger.start(0, &start(vec![work]));
    assert_eq!(claim_of(&ledger), Some(2), "work may say which it is");
}

#[test]
fn only_what_runs_for_the_claim_is_killed_and_it_was_never_there() {
    let mut ledger = ledger();
    ledger.start(0, &claimed(5));
    ledger.report(1, runs(1, 0));
    ledger.take_actions();
    assert!(ledger.stop(2, &kill(4)).stopped.is_empty());
    assert_eq!(ledger.stop(2, &kill(5)).stopped.len(), 1);
    let killed = |action: &Action| {
        matches!(
            action,
            Action::Execute(ExecutorOrder::End { at_once: true, .. })
        )
    };
    assert!(ledger.take_actions().iter().any(killed));
    ledger.report(3, ends(1, 0, 137));
    assert_eq!(ledger.instance_count(), 0);
    let told = ledger.find_instances(3, &Instances::default());
    assert!(
        told.is_empty(),
        "nobody takes it for one that has ended: {told:?}"
    );
    assert_eq!(
        answers(&mut ledger, 4, &claimed(5)),
        ["stopped"],
        "its start comes again"
    );
}

#[test]
fn an_instance_that_is_stopping_is_killed_once() {
    let mut ledger = ledger();
    ledger.start(0, &claimed(5));
    ledger.report(1, runs(1, 0));
    ledger.stop(2, &stop("a", &[1]));
    ledger.take_actions();
    for kills in [1, 0] {
        ledger.stop(3, &kill(5));
        let killed = |action: &&Action| {
            matches!(
                action,
                Action::Execute(ExecutorOrder::End { at_once: true, .. })
            )
        };
        assert_eq!(ledger.take_actions().iter().filter(killed).count(), kills);
    }
}

#[test]
fn a_kill_for_what_is_not_here_is_not_remembered() {
    let mut ledger = ledger();
    ledger.stop(0, &kill(5));
    assert_eq!(answers(&mut ledger, 1, &claimed(5)), ["+"]);
}
