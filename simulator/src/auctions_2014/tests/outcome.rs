//! A result in the form of every other run.

use super::*;

#[test]
fn a_run_holds_the_figures_of_the_result() {
    let mut cells = imbalanced(5);
    for (i, cell) in cells.iter_mut().enumerate() {
        cell.attributes_mut().zone = ["z1", "z2"][i % 2].into();
    }
    let demands = apps(500);
    let result = check(&cells, &demands, &setting(Algorithm::AllRebid, 3));
    let run = as_run(&cells, &demands, &result);
    let figures = &run.figures;
    assert_eq!(
        (figures.asked, figures.placed, figures.unplaced),
        (500, 500, 0)
    );
    assert_eq!(figures.auctions, 500);
    assert!((figures.per_cell.mean - 52.5).abs() < 1e-9);
    assert!((figures.per_zone.mean - 2625.0).abs() < 1e-9);
    assert!(figures.distribution_before > 0.2 && figures.distribution < 0.02);
    let sent: u64 = figures.messages.values().map(|t| t.sent).sum();
    let bytes: u64 = figures.messages.values().map(|t| t.bytes).sum();
    assert_eq!((figures.traffic.sent, figures.traffic.bytes), (sent, bytes));
    assert!((figures.extra["communications"] * 2.0 - sent as f64).abs() < 1e-9);
    for histogram in [&run.wait_histogram, &run.rounds_histogram] {
        assert_eq!(histogram.counts.iter().sum::<u64>(), 500);
    }
    assert_eq!(run.load_histogram.counts.iter().sum::<u64>(), 100);
    assert_eq!(run.series.len(), 240);
    let (first, last) = (&run.series[0], &run.series[239]);
    assert_eq!(
        (first.instances, first.waiting, first.empty_cells),
        (4750, 500, 5)
    );
    assert_eq!(
        (last.instances, last.waiting, last.at_ms),
        (5250, 0, result.ended_ms)
    );
    assert!(run.series.is_sorted_by_key(|sample| sample.at_ms));
    let drawn: u32 = run
        .cells
        .iter()
        .flat_map(|c| &c.instances)
        .map(|i| i.count)
        .sum();
    assert_eq!(drawn, 5250);
    for cell in &run.cells {
        let memory: i64 = cell.instances.iter().map(|i| i.memory_mb).sum();
        assert_eq!(memory, cell.used_mb, "{}", cell.cell);
    }
    assert!(
        run.cells
            .is_sorted_by_key(|cell| (cell.zone.clone(), cell.cell.clone()))
    );
}

#[test]
fn spare_cells_are_those_that_stay_empty_less_the_one_that_is_needed() {
    let in_time = |at_ms, memory, life| {
        let request = Arc::new(Request::new(format!("a{at_ms}"), memory, 1));
        let lifetime_ms = Some(life);
        at(
            at_ms,
            DemandAction::Start {
                request,
                lifetime_ms,
            },
        )
    };
    let spare_and_saved = |demands: &[Demand]| {
        let mut cells = cells(4);
        cells[0].attributes_mut().stacks = vec!["only".into()];
        let demands: Vec<Demand> = demands
            .iter()
            .map(|d| {
                let DemandAction::Start {
                    request,
                    lifetime_ms,
                } = &d.action
                else {
                    panic!("a start")
                };
                let mut request = (**request).clone();
                request.stack = Some("only".into());
                at(
                    d.at_ms,
                    DemandAction::Start {
                        request: Arc::new(request),
                        lifetime_ms: *lifetime_ms,
                    },
                )
            })
            .collect();
        let result = check(&cells, &demands, &setting(Algorithm::PickBest, 1));
        let figures = as_run(&cells, &demands, &result).figures;
        (
            figures.spare_cells,
            figures
                .saved
                .map(|s| s / 0.5 * 3.6e6 / figures.virtual_ms as f64),
        )
    };
    // the largest size always fits beside the other one
    let (spare, saved) = spare_and_saved(&[in_time(0, 40, 100_000), in_time(50_000, 20, 1_000)]);
    assert_eq!(spare, 3);
    assert!((saved.unwrap() - 3.0).abs() < 1e-9);
    // another 60 does not fit: one of the three is kept for it
    assert_eq!(spare_and_saved(&[in_time(0, 60, 100_000)]).0, 2);
}

#[test]
fn sharing_is_counted_where_it_could_be_avoided() {
    let mut cells = cells(4);
    for (i, cell) in cells.iter_mut().enumerate() {
        cell.attributes_mut().zone = ["z1", "z2"][i % 2].into();
    }
    let put = |cells: &mut Vec<Cell>, app: &str, counts: [u32; 4]| {
        for (cell, count) in cells.iter_mut().zip(counts) {
            for _ in 0..count {
                cell.debit(&Request::new(app, 1, 1), None);
            }
        }
    };
    put(&mut cells, "apart", [1, 1, 0, 0]);
    put(&mut cells, "shares", [2, 1, 0, 1]);
    put(&mut cells, "must", [2, 1, 1, 1]);
    put(&mut cells, "one-zone", [1, 0, 1, 0]);
    let result = run(&cells, &[], &setting(Algorithm::Random, 1));
    let figures = as_run(&cells, &[], &result).figures;
    assert_eq!(
        (figures.apps_sharing_cells, figures.apps_sharing_zones),
        (1, 1)
    );
}
