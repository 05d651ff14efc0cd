//! Forged advertisements, and how long they are believed.

use std::time::Duration;

use shared::{Incarnation, clock::CellTime};

use super::{feed::Bench, world::TestCell};

/// Forges one advertisement of a cell that advertises every second. Returns for how many seconds it is believed.
fn believed(forge: impl FnOnce(&mut TestCell)) -> u64 {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    // it has run for a while
    cell.clock_ms = CellTime::from_ms(1_000_000);
    bench.receive(&cell);
    let mut forged = cell.clone();
    forged.cell.available.memory_mb = 1;
    forge(&mut forged);
    bench.receive(&forged);
    let mut seconds = 0;
    while bench.free() == 1 {
        (seconds, cell.seq) = (seconds + 1, cell.seq + 1);
        cell.clock_ms = cell.clock_ms.after(Duration::from_secs(1));
        assert_eq!(bench.pass(1_000), [], "the cell is not lost");
        bench.receive(&cell);
    }
    assert_eq!((bench.free(), bench.counters.cells_lost), (100, 0));
    assert_eq!(bench.feed.get("c").unwrap().ttl_ms, 15_000);
    seconds
}

/// The ttl of the cell is 15 s, and begins when it advertises again.
#[test]
fn a_forged_version_is_believed_for_one_ttl_of_the_cell() {
    for ttl_ms in [15_000, 60_000, 3_600_000] {
        let seconds = believed(|forged| (forged.seq, forged.ttl_ms) = (u64::MAX, ttl_ms));
        assert_eq!(seconds, 16, "{ttl_ms}");
    }
}

#[test]
fn a_forged_incarnation_is_believed_for_one_ttl_of_the_cell() {
    let seconds = believed(|forged| {
        (forged.seq, forged.ttl_ms) = (u64::MAX, 3_600_000);
        forged.incarnation = Incarnation::from_u128(99);
        forged.clock_ms = CellTime::from_ms(1);
    });
    assert_eq!(seconds, 16);
}

/// The forged version had a long ttl.
#[test]
fn a_forged_withdrawal_is_believed_for_one_ttl_of_the_cell() {
    let mut bench = Bench::new();
    let cell = TestCell::new("c", 100);
    bench.receive(&cell);
    let mut forged = cell.clone();
    (forged.seq, forged.ttl_ms) = (u64::MAX, 3_600_000);
    bench.receive(&forged);
    forged.ttl_ms = 0;
    bench.receive(&forged);
    let mut seconds = 0;
    while bench.feed.get("c").is_none() {
        seconds += 1;
        bench.pass(1_000);
        bench.receive(&cell);
    }
    assert_eq!(seconds, 15);
}

/// An older rep of a name is ignored as long as the younger one is there.
#[test]
fn what_is_old_counts_no_more_while_what_replaced_it_speaks() {
    let mut bench = Bench::new();
    let mut older = TestCell::new("c", 100);
    older.clock_ms = CellTime::from_ms(1_000_000);
    bench.receive(&older);
    let mut younger = older.clone();
    (younger.incarnation, younger.clock_ms) = (Incarnation::from_u128(99), CellTime::from_ms(1));
    younger.cell.available.memory_mb = 7;
    for _ in 0..20 {
        for cell in [&mut older, &mut younger] {
            bench.receive(cell);
            cell.clock_ms = cell.clock_ms.after(Duration::from_secs(5));
        }
        bench.pass(5_000);
        assert_eq!(bench.free(), 7);
    }
    assert_eq!(bench.counters.cells_lost, 0);
}
