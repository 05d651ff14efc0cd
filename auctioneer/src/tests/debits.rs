//! Work that was sent to a cell and is not in its reports yet.

use shared::{
    InstanceId,
    clock::CellTime,
    wire::{Acceptance, Refusal},
};

use super::{feed::Bench, world::TestCell};
use crate::PoolVersion;

fn acceptance(cell: &TestCell, seq: u64, accepted: &[u128], refused: &[u128]) -> Acceptance {
    let refuse = |id: &u128| Refusal {
        instance: InstanceId::from_u128(*id),
        reason: "insufficient resources: memory".into(),
        needs: None,
        has: None,
    };
    Acceptance {
        v: shared::VERSION,
        cell: cell.cell.cell.clone(),
        incarnation: cell.incarnation,
        seq,
        available: cell.cell.available.clone(),
        apps: cell.cell.counts.apps.clone(),
        accepted: accepted
            .iter()
            .map(|id| InstanceId::from_u128(*id))
            .collect(),
        refused: refused.iter().map(refuse).collect(),
    }
}

#[test]
fn debits_stay_until_a_report_shows_them() {
    let mut cell = TestCell::new("c", 100);
    cell.seq = 10;
    // (what, reports after a debit of 30 answered with version 12, free in the end)
    for (what, reports, free) in [
        ("no report yet", vec![], 70),
        ("an older report", vec![(11, 100)], 70),
        ("the report of its version", vec![(12, 70)], 70),
        ("a later report", vec![(13, 65)], 65),
        ("an older, then its own", vec![(11, 100), (12, 70)], 70),
    ] {
        let mut bench = Bench::new();
        bench.receive(&cell);
        bench.debit(1, 30);
        assert_eq!(bench.free(), 70, "{what}: debited at dispatch");
        bench.feed.answered(&acceptance(&cell, 12, &[1], &[]));
        assert_eq!(bench.free(), 70, "{what}: the answer is not a second debit");
        for (seq, memory_mb) in reports {
            let mut report = cell.clone();
            report.seq = seq;
            report.cell.available.memory_mb = memory_mb;
            bench.receive(&report);
        }
        assert_eq!(bench.free(), free, "{what}");
    }
}

#[test]
fn a_report_before_the_answer_does_not_debit_twice() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    bench.receive(&cell);
    bench.debit(1, 30);
    cell.seq = 2;
    cell.cell.available.memory_mb = 70;
    // not listed as recent (as if there were 64 others): its debit applies in addition until the answer arrives
    bench.receive(&cell);
    assert_eq!(bench.free(), 40);
    bench.feed.answered(&acceptance(&cell, 2, &[1], &[]));
    assert_eq!(bench.free(), 70);
    assert!(bench.feed.get("c").unwrap().debits.is_empty());
}

#[test]
fn starts_without_an_answer_stay_debited_until_listed_or_expired() {
    let id = InstanceId::from_u128(1);
    for (what, seq, recent, clock_ms, free, settled) in [
        ("a report without it", 2, vec![], 1_100, 60, false),
        ("a report that lists it", 2, vec![id], 1_100, 90, true),
        ("a report from past its time", 2, vec![], 6_001, 90, false),
        ("a report from just before", 2, vec![], 6_000, 60, false),
        (
            "the same report, past its time",
            1,
            vec![],
            6_001,
            100,
            false,
        ),
        ("the same report, listing it", 1, vec![id], 1_100, 100, true),
    ] {
        let mut bench = Bench::new();
        let mut cell = TestCell::new("c", 100);
        bench.receive(&cell);
        bench.debit(1, 30);
        cell.seq = seq;
        cell.recent = recent.into_iter().collect();
        cell.clock_ms = CellTime::from_ms(clock_ms);
        cell.cell.available.memory_mb = 90;
        let version = bench.feed.version();
        let received = bench.receive(&cell);
        assert_eq!(bench.free(), free, "{what}");
        let next = PoolVersion::new(version.number() + 1);
        assert_eq!(bench.feed.version(), next, "{what}: work may fit");
        assert_eq!(received.settled.contains(&id), settled, "{what}");
    }
}

#[test]
fn refusals_are_credited_and_the_answers_amounts_are_used() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    bench.receive(&cell);
    bench.debit(1, 30);
    bench.debit(2, 30);
    bench.debit(3, 5);
    // another auctioneer was faster: 20 are left after the first one, and two of the app are there
    cell.cell.available.memory_mb = 20;
    cell.cell.counts.apps.insert("app".into(), 2);
    bench.feed.answered(&acceptance(&cell, 3, &[1], &[2]));
    assert_eq!(
        bench.free(),
        15,
        "its 20 minus the one that is still on its way"
    );
    assert_eq!(bench.feed.pool().get("c").unwrap().count_of("app"), 3);
    assert_eq!(bench.feed.get("c").unwrap().debits.len(), 2);
    bench.feed.undebit("c", &[InstanceId::from_u128(3)]);
    assert_eq!(bench.free(), 20);
}

/// The answers to two starts may overtake one another.
#[test]
fn what_was_accepted_after_a_refusal_is_not_in_the_refusals_amounts() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    bench.receive(&cell);
    bench.debit(1, 30);
    bench.debit(2, 60);
    bench.feed.answered(&acceptance(&cell, 4, &[1], &[]));
    // the answer to the earlier start arrives later
    cell.cell.available.memory_mb = 50;
    bench.feed.answered(&acceptance(&cell, 3, &[], &[2]));
    assert_eq!(bench.free(), 50 - 30);
}
