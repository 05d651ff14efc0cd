//! The shipped scenarios, and what they must show.
#![allow(clippy::unwrap_used)] // a test may panic

use std::collections::BTreeMap;

use simulator::{
    RunSettings,
    outcome::{CellEnd, SimRun},
    scenario::Scenario,
    shipped,
};

fn scenario(name: &str) -> Scenario {
    Scenario::read(shipped::find(name).unwrap(), true).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn play(scenario: &Scenario, seed: u64) -> Vec<SimRun> {
    let settings = RunSettings {
        seed,
        verbatim: false,
    };
    let run = |contender| {
        let (run, _) = simulator::run(scenario, contender, settings, &mut |_| true).unwrap();
        assert_within_bounds(&run);
        run
    };
    scenario.contenders.iter().map(run).collect()
}

/// Checks that no policy exceeds its bound.
fn assert_within_bounds(run: &SimRun) {
    for (of, gap) in run.figures.bounds.iter().flat_map(|bounds| &bounds.gap) {
        assert!(*gap >= 0.0, "{} {of}: {:?}", run.policy, run.figures.bounds);
    }
    let above = run.figures.most_even.map_or(0.0, |even| even.gap);
    assert!(above >= 0.0, "{}: {above}", run.policy);
}

fn first(name: &str, seed: u64) -> SimRun {
    play(&scenario(name), seed).remove(0)
}

/// Counts the instances that did not run before the first request.
fn new(cell: &CellEnd) -> u32 {
    cell.instances
        .iter()
        .filter(|i| !i.before)
        .map(|i| i.count)
        .sum()
}

/// Checks Diego's own rule: no cell that got any instances is further than `within` from the mean of those. This is
/// stricter than there: cells that got none count as well.
fn assert_even(name: &str, run: &SimRun, within: f64) {
    assert_eq!(run.figures.waiting, 0, "{name}");
    let counts: Vec<f64> = run.cells.iter().map(|cell| f64::from(new(cell))).collect();
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    for (cell, count) in run.cells.iter().zip(&counts) {
        let off = (count - mean).abs();
        assert!(
            off <= within,
            "{name}: {} got {count}, mean {mean}",
            cell.cell
        );
    }
}

#[test]
fn cold_starts_are_even() {
    for (name, within) in [
        ("small-cold-4", 1.0),
        ("small-cold-10", 1.0),
        ("small-cold-20", 1.0),
        ("small-cold-40", 1.0),
        ("large-cold-25", 10.0),
    ] {
        for seed in 1..=3 {
            let run = first(name, seed);
            assert_eq!(run.figures.placed, run.figures.asked, "{name}");
            assert_even(name, &run, within);
        }
    }
    assert_even("large-cold-100", &first("large-cold-100", 1), 10.0);
}

#[test]
fn empty_cells_are_not_overloaded() {
    for name in ["imbalanced-deploy-5", "imbalanced-deploy-1"] {
        let run = first(name, 1);
        assert_eq!(run.figures.placed, run.figures.asked, "{name}");
        assert_even(name, &run, 1.0);
    }
}

#[test]
fn an_app_is_spread_over_cells_and_zones() {
    for name in ["watters-10", "watters-30", "watters-100"] {
        for seed in 1..=3 {
            let run = first(name, seed);
            assert_eq!(run.figures.placed, run.figures.asked, "{name}");
            assert_even(name, &run, 1.0);
        }
    }
    let run = first("az-distribution", 1);
    let mut zones: BTreeMap<&str, u32> = BTreeMap::new();
    for cell in &run.cells {
        *zones.entry(&cell.zone).or_default() += new(cell);
    }
    assert_eq!(zones, BTreeMap::from([("z0", 20), ("z1", 20)]));
}

#[test]
fn the_first_boulder_goes_before_the_pebbles_and_the_second_after_them() {
    let run = first("boulders-and-pebbles", 1);
    assert_eq!((run.figures.placed, run.figures.unplaced), (51, 31));
    let boulder = run.apps.iter().position(|app| app == "boulder").unwrap();
    let cell = &run.cells[0];
    let boulders: Vec<u32> = (cell.instances.iter())
        .filter(|i| i.app as usize == boulder)
        .map(|i| i.index)
        .collect();
    assert_eq!(boulders, [0]);
    assert_eq!(cell.used_mb, 100);
    assert_eq!(run.refusals.iter().map(|(_, n)| n).sum::<u64>(), 31);
}

/// Returns the counts of the cells of each zone, in the order of their index.
fn by_zone(run: &SimRun) -> BTreeMap<&str, Vec<u32>> {
    let mut zones: BTreeMap<&str, Vec<(usize, u32)>> = BTreeMap::new();
    for cell in &run.cells {
        let index = cell.cell.rsplit('-').next().unwrap().parse().unwrap();
        zones
            .entry(&cell.zone)
            .or_default()
            .push((index, new(cell)));
    }
    let sorted = |mut cells: Vec<(usize, u32)>| {
        cells.sort_unstable();
        cells.into_iter().map(|(_, count)| count).collect()
    };
    zones
        .into_iter()
        .map(|(zone, cells)| (zone, sorted(cells)))
        .collect()
}

#[test]
fn bin_packing_fills_low_indices_first() {
    let text = shipped::find("bin-pack").unwrap();
    for (cells, apps) in [(2, 8), (5, 40), (10, 200), (20, 800)] {
        let text = text.replace("count = 10\n", &format!("count = {cells}\n"));
        let text = text.replace("count = 200", &format!("count = {apps}"));
        let scenario = Scenario::read(&text, true).unwrap();
        assert_eq!(scenario.base.cells.len(), 2 * cells);
        for run in play(&scenario, 1) {
            assert_eq!(run.figures.placed, apps, "{}", run.policy);
            let zones = by_zone(&run);
            for (zone, counts) in &zones {
                assert!(
                    counts.is_sorted_by(|a, b| a >= b),
                    "{} {zone}: {counts:?}",
                    run.policy
                );
            }
            let mean = apps as f64 / 2.0;
            for counts in zones.values() {
                let all: u32 = counts.iter().sum();
                assert!(
                    (f64::from(all) - mean).abs() <= 1.0,
                    "{}: {zones:?}",
                    run.policy
                );
            }
        }
    }
    for run in play(&scenario("bin-pack-one-app"), 1) {
        assert_even(&run.policy, &run, 1.0);
    }
}

#[test]
fn the_imbalance_after_a_zone_returned_persists() {
    for run in play(&scenario("dea-zone-returns"), 1) {
        let zones = by_zone(&run);
        let [z1, z2] = ["z1", "z2"].map(|zone| zones[zone].iter().sum::<u32>());
        assert!(
            f64::from(z1) > 1.5 * f64::from(z2),
            "{}: {z1} {z2}",
            run.policy
        );
        assert_eq!(run.figures.waiting, 0);
        assert!(run.figures.lost > 150, "{}", run.figures.lost);
        // half of each app was lost, and all of it runs again
        assert_eq!(run.figures.placed, run.figures.asked);
    }
}

#[test]
fn bin_packing_saves_cells_in_the_mendix_scenario() {
    // it saves at least one of the ten larger cells
    for (name, least) in [("mendix-48h", 4), ("mendix-128gb", 1)] {
        let scenario = scenario(name);
        let runs = play(&scenario, 1);
        let [spread, packed] = &runs[..] else {
            panic!("two policies")
        };
        for run in &runs {
            assert_eq!(run.figures.virtual_ms, 48 * 3_600_000);
            assert_eq!(run.figures.waiting, 0, "{name} {}", run.policy);
            assert_eq!(run.series.len(), 240);
        }
        assert!(
            packed.figures.spare_cells >= least,
            "{name}: {}",
            packed.figures.spare_cells
        );
        assert!(
            packed.figures.spare_cells > spread.figures.spare_cells,
            "{name}"
        );
        let saved = packed.figures.saved.unwrap();
        let expected = packed.figures.spare_cells as f64 * 48.0 * 0.5;
        assert!((saved - expected).abs() < 1e-9);
    }
}

#[test]
fn platform_roll_out_drains_the_old_platforms() {
    let runs = play(&scenario("platform-roll-out"), 1);
    let new_one = "instances on platform 20260501T000000Z";
    let [dapi, diego] = &runs[..] else {
        panic!("two policies")
    };
    assert_eq!(dapi.figures.waiting, 0);
    assert!(dapi.figures.extra[new_one] > diego.figures.extra[new_one]);
    let hits = "instances on cells that will reboot";
    assert!(dapi.figures.extra[hits] < diego.figures.extra[hits]);
}

#[test]
fn several_auctioneers_place_every_instance_once() {
    for name in [
        "one-app-1-auctioneers",
        "one-app-2-auctioneers",
        "one-app-4-auctioneers",
        "one-app-4-single",
    ] {
        for seed in 1..=5 {
            let run = first(name, seed);
            assert_eq!(
                (run.figures.placed, run.figures.unplaced),
                (20, 0),
                "{name} {seed}"
            );
            let held: u32 = run.cells.iter().map(new).sum();
            assert_eq!(held, 20, "{name} {seed}");
        }
    }
}

#[test]
fn with_single_one_auctioneer_decides_and_another_takes_over() {
    for seed in 1..=5 {
        let run = first("one-app-4-single", seed);
        // no cell has more of the app than it was believed to have
        assert!(run.figures.rounds.max < 1.5, "{seed}");
        assert_even("one-app-4-single", &run, 0.5);
    }
    let run = first("single-killed", 1);
    assert_eq!((run.figures.placed, run.figures.waiting), (2_400, 0));
    // the grant of one that is killed lasts for 5 s, and what it had is sent again 5 s after it was
    let longest_ms = run.figures.wait_ms.max;
    assert!((4_000.0..11_000.0).contains(&longest_ms), "{longest_ms}");
}

#[test]
fn every_shipped_scenario_reads_and_has_its_own_name() {
    for (name, _) in shipped::ALL {
        let scenario = scenario(name);
        assert_eq!(scenario.base.name, *name);
        assert!(!scenario.description.is_empty(), "{name}");
        assert_eq!(scenario.base.warnings, [""; 0], "{name}");
    }
    assert_eq!(shipped::find("nosuch"), None);
}

/// The scenario with `vendue` as its only policy.
fn under_vendue(mut scenario: Scenario) -> Scenario {
    let own = "policy = \"vendue\"\n[[groups]]\ncount = 1\ntotal = { memory_mb = 1 }";
    let own = Scenario::read(own, true).unwrap();
    scenario.contenders.clone_from(&own.contenders);
    scenario
}

/// The requests have no queue timeout, and a start takes 10 s.
#[test]
fn vendue_fills_empty_cells_ten_starts_at_a_time_and_refuses_nothing() {
    let run = play(&under_vendue(scenario("imbalanced-deploy-5")), 1).remove(0);
    let figures = &run.figures;
    assert_eq!((figures.placed, figures.waiting), (figures.asked, 0));
    assert!(figures.distribution <= 0.02, "{}", figures.distribution);
    let last = figures.wait_ms.p99;
    assert!((10_000.0..60_000.0).contains(&last), "{last} ms");
    assert_eq!(
        (figures.apps_sharing_cells, figures.apps_sharing_zones),
        (0, 0)
    );
}

/// Checks every fourth of the scenarios of up to 50 cells, from `part` on: `vendue` places everything that could be
/// placed, up to 2 % of each resource. The number of instances is not checked, as 80 small instances may need as much
/// memory as two large ones.
fn assert_near_the_bound(part: usize) {
    let all = shipped::ALL.iter().map(|(name, _)| (name, scenario(name)));
    let small = all.filter(|(_, scenario)| scenario.base.cells.len() <= 50);
    for (name, scenario) in small.skip(part).step_by(4) {
        let scenario = under_vendue(scenario);
        for run in play(&scenario, 1) {
            let bounds = run.figures.bounds.unwrap_or_default();
            assert!(!bounds.gap.is_empty(), "{name}: no bound");
            for (of, gap) in &bounds.gap {
                let is_near = of == "instances" || *gap <= 2.0;
                assert!(is_near, "{name} {of}: {bounds:?}");
            }
        }
    }
}

#[test]
fn vendue_is_near_the_bound_in_the_first_small_scenarios() {
    assert_near_the_bound(0);
}

#[test]
fn vendue_is_near_the_bound_in_the_second_small_scenarios() {
    assert_near_the_bound(1);
}

#[test]
fn vendue_is_near_the_bound_in_the_third_small_scenarios() {
    assert_near_the_bound(2);
}

#[test]
fn vendue_is_near_the_bound_in_the_fourth_small_scenarios() {
    assert_near_the_bound(3);
}
