//! A pool with the maximum number of cells.

use std::sync::Arc;

use shared::Incarnation;

use super::{feed::Bench, world::TestCell};
use crate::feed::{MAX_CELLS, Received, ReportKind};

#[test]
fn in_a_full_pool_a_cell_that_answers_takes_the_place_of_one_that_never_did() {
    let mut bench = Bench::new();
    let mut real = TestCell::new("real", 100);
    real.incarnation = Incarnation::from_u128(1);
    let state = |bench: &mut Bench, cell: &TestCell| {
        let (now_ms, body) = (bench.now_ms, cell.report(None));
        let counters = &mut bench.counters;
        bench
            .feed
            .receive(now_ms, ReportKind::State, None, &body, counters)
    };
    bench.receive(&real);
    state(&mut bench, &real);
    for number in 1..MAX_CELLS {
        let mut fake = TestCell::new(&format!("fake-{number:05}"), 1);
        fake.incarnation = Incarnation::from_u128(100 + number as u128);
        bench.receive(&fake);
    }
    let newcomer = TestCell::new("newcomer", 100);
    let refused = bench.receive(&newcomer);
    assert_eq!(refused.ask_state.as_deref(), Some("newcomer"));
    assert_eq!(
        bench.receive(&newcomer).ask_state,
        None,
        "not for each message"
    );
    let taken = state(&mut bench, &newcomer);
    assert!(taken.joined);
    assert_eq!(&*taken.left.unwrap().name, "fake-00001");
    assert!(bench.feed.get("newcomer").is_some() && bench.feed.get("real").is_some());
    let counters = &bench.counters;
    assert_eq!(
        (counters.dropped_pool_full, counters.cells_displaced),
        (2, 1)
    );
    bench.now_ms += 1_000;
    let fake = TestCell::new("fake-00001", 1);
    assert!(bench.receive(&fake).ask_state.is_some());
    assert_eq!(bench.feed.get("fake-00001").map(|_| ()), None);
}

#[test]
fn a_full_pool_of_cells_that_answer_takes_no_more() {
    let mut bench = Bench::new();
    for number in 0..MAX_CELLS {
        let mut cell = TestCell::new(&format!("c-{number}"), 1);
        cell.incarnation = Incarnation::from_u128(100 + number as u128);
        let body = cell.report(None);
        bench
            .feed
            .receive(0, ReportKind::State, None, &body, &mut bench.counters);
    }
    let newcomer = TestCell::new("newcomer", 100);
    assert_eq!(bench.receive(&newcomer), Received::default());
    let body = newcomer.report(None);
    let counters = &mut bench.counters;
    let answered = bench
        .feed
        .receive(0, ReportKind::State, None, &body, counters);
    assert_eq!(answered, Received::default());
    assert_eq!(bench.counters.dropped_pool_full, 2);
}

#[test]
fn a_pool_that_is_full_takes_no_further_cell() {
    let mut bench = Bench::new();
    let template = TestCell::new("c", 100);
    let mut join = |n: usize| {
        let mut advert = template.advert(None);
        advert.cell.cell = format!("c{n}");
        let (feed, counters) = (&mut bench.feed, &mut bench.counters);
        let received = feed.receive_parsed(0, ReportKind::Advert, Arc::new(advert), None, counters);
        (received.joined, counters.dropped_pool_full)
    };
    for n in 0..MAX_CELLS {
        assert_eq!(join(n), (true, 0), "cell {n}");
    }
    assert_eq!(join(MAX_CELLS), (false, 1));
    assert_eq!(join(0), (false, 1), "it is there already");
}
