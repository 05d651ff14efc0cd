//! Ratings that the columnar engine keeps from job to job are those of the plain engine: large batches of few
//! shapes, over pools with many equal cells.
#![allow(clippy::unwrap_used, clippy::format_push_string)] // a test may panic

mod common;

use std::sync::Arc;

use common::{Dice, amounts, assert_same, cell, counts, jobs};
use placement::{Cell, Explain, Job, PlanContext, Policy, Pool, Request, Verdict};
use proptest::prelude::*;

/// A policy whose ratings are kept, as it is or with other weights and modes.
fn policy(dice: &mut Dice) -> Policy {
    let weight = |dice: &mut Dice| dice.of(&["0.0", "0.3", "0.5", "1.0", "2.0", "7.5", "-0.5"]);
    let mode = |dice: &mut Dice| dice.of(&["rank", "ratio"]);
    let text = match dice.below(7) {
        0 => format!(
            "preset = \"objective\"\nexpression = \"{}\"",
            dice.of(&[
                "(ai.InstanceNumber + r.AvailZoneNumber) mod 3 - r.AvailableMemoryMB / 1000",
                "r.AvailableDiskMB * (r.AvailZoneNumber + ai.TotalInstances mod 2)",
                "count(ai.AppID, r.RunningAppIDs) * ai.InstanceNumber - r.Available.card",
                "count(ai.AppSourceBlobID, r.CachedBlobIDs) - count(ai.AppID, r.RunningAppIDs) / 3",
                "ai.AppID mod 2",
                "1 / (r.AvailableMemoryMB - 500)",
            ])
        ),
        1 | 2 => format!(
            "preset = \"{}\"\nmemory_weight = {}\ndisk_weight = {}\nplatform_weight = {}\nreboot_weight = {}\n\
             random_weight = {}\nmode = \"{}\"\ncombine = \"{}\"",
            dice.of(&["dapi", "rfd24"]),
            weight(dice),
            weight(dice),
            weight(dice),
            weight(dice),
            weight(dice),
            mode(dice),
            dice.of(&["sum", "product"]),
        ),
        3 => by_kind(dice),
        _ => return Policy::preset(dice.of(&["objective", "dapi", "rfd24", "vendue"])).unwrap(),
    };
    Policy::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Some of the scores that compare cells, some of them only for LRPs or tasks.
fn by_kind(dice: &mut Dice) -> String {
    let mut text = String::from("name = \"by-kind\"\n");
    if dice.one_in(3) {
        text.push_str("combine = \"product\"\n");
    }
    for filter in ["memory", "disk", "containers", "cpu", "extra"] {
        text.push_str(&format!("[[stage]]\nfilter = \"{filter}\"\n"));
    }
    if dice.one_in(2) {
        text.push_str("[[stage]]\nnarrow = \"locality\"\n");
    }
    for score in ["platform", "memory", "reboot", "random", "disk"] {
        // a pick needs a score
        if score != "memory" && dice.one_in(4) {
            continue;
        }
        let weight = dice.of(&["0.5", "1.0", "2.0", "3.0"]);
        let mode = dice.of(&["rank", "ratio"]);
        text.push_str(&format!(
            "[[stage]]\nscore = \"{score}\"\nweight = {weight}\nmode = \"{mode}\"\n"
        ));
        if dice.one_in(3) {
            text.push_str(dice.of(&["kind = \"lrp\"\n", "kind = \"task\"\n"]));
        }
    }
    text.push_str("[[stage]]\npick = \"highest\"\n");
    text
}

/// Jobs of a few shapes, mixed.
fn few_shapes(dice: &mut Dice, rich: bool) -> Vec<Job> {
    let shapes = 1 + dice.below(3);
    let shapes = jobs(dice, shapes, rich);
    let many = 20 + dice.below(100);
    let apps = 1 + dice.below(30);
    let job = |n: u64| {
        let mut request = Request::clone(&dice.of(&shapes).request);
        request.app = format!("app-{}", dice.below(apps));
        request.id = format!("task-{n}");
        if dice.one_in(3) {
            request.owner = Some(format!("owner-{}", dice.below(4)));
        }
        Job {
            request: Arc::new(request),
            index: u32::try_from(n).unwrap(),
        }
    };
    (0..many).map(job).collect()
}

/// Cells of a few kinds, many of them equal, and large enough for many jobs.
fn equal_cells(dice: &mut Dice, many: u64, rich: bool) -> Vec<Cell> {
    let kinds: Vec<Cell> = (0..=dice.below(6))
        .map(|_| cell(dice, "kind", rich))
        .collect();
    let grown = dice.of(&[1, 10]);
    let one = |n: u64| {
        let mut cell = dice.of(&kinds);
        cell.cell = format!("cell-{n}");
        cell.total.memory_mb *= grown;
        cell.available.memory_mb = cell.total.memory_mb;
        cell.available.containers = None;
        if dice.one_in(8) {
            amounts(dice, &mut cell);
        }
        if dice.one_in(12) {
            counts(dice, &mut cell);
        }
        cell
    };
    (0..many).map(one).collect()
}

fn live_through(seed: u64) {
    let mut dice = Dice::new(seed);
    let rich = dice.one_in(2);
    let policy = policy(&mut dice);
    let many = 1 + dice.below(150);
    let mut pool = Pool::default();
    let cells = equal_cells(&mut dice, many, rich);
    cells.iter().cloned().for_each(|cell| pool.put(cell));
    for round in 0..3 {
        let mut draw = common::draw(&mut dice, &pool);
        if dice.one_in(2) {
            (draw.first, draw.explain) = (false, Explain::Winner);
        }
        let jobs = few_shapes(&mut dice, rich);
        if policy.learns() {
            for job in &jobs {
                pool.learn(&job.request);
            }
        }
        let context = format!("seed {seed}, round {round}, policy\n{}", policy.to_toml());
        let plain = pool.plan_plainly(&jobs, &policy, &draw);
        let fast = pool.plan(&jobs, &policy, &draw);
        assert_same(&fast, &plain, &context);
        for decision in &fast.decisions {
            if let Verdict::Placed { cell } = &decision.verdict
                && dice.one_in(3)
            {
                pool.debit(cell, &jobs[decision.job], decision.devices.as_deref());
            }
        }
        for _ in 0..dice.below(12) {
            let cell = dice.of(&cells);
            if dice.one_in(3) {
                drop(pool.remove(&cell.cell));
            } else {
                pool.put(cell);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn kept_is_plain(seed in any::<u64>()) {
        live_through(seed);
    }
}

/// `cargo test --release -p placement --test kept -- --ignored`, with `SEEDS` and `FROM`
#[test]
#[ignore = "takes minutes"]
fn kept_is_plain_for_very_many_seeds() {
    let seeds = std::env::var("SEEDS").map_or(20_000_u64, |n| n.parse().unwrap());
    let from = std::env::var("FROM").map_or(0_u64, |n| n.parse().unwrap());
    (from..from + seeds).for_each(live_through);
}

/// Equal cells, one shape: every decision is a tie, and the ring decides.
#[test]
fn ties_among_equal_cells() {
    let mut pool = Pool::default();
    for n in 0..300 {
        let mut cell = Cell::new(format!("c{n}"), placement::Resources::new(1000, 1000, 100));
        cell.attributes_mut().zone = format!("z{}", n % 3);
        pool.put(cell);
    }
    let mut request = Request::new("web", 10, 10);
    request.instances = 200;
    let jobs = Arc::new(request).jobs();
    for preset in ["objective", "vendue", "dapi", "rfd24"] {
        let policy = Policy::preset(preset).unwrap();
        for explain in [Explain::Winner, Explain::Finalists] {
            let context = PlanContext {
                explain,
                ..PlanContext::default()
            };
            let plain = pool.plan_plainly(&jobs, &policy, &context);
            assert_same(&pool.plan(&jobs, &policy, &context), &plain, preset);
        }
    }
}

/// What once told the engines apart: the last cell with a limit of disk is full, and all others share one place
/// by disk.
#[test]
fn only_cells_without_a_limit_of_disk_are_left() {
    let mut pool = Pool::default();
    for n in 0..40 {
        let mut cell = Cell::new(format!("c{n}"), placement::Resources::new(1000, 1000, 100));
        if n > 1 {
            (cell.total.disk_mb, cell.available.disk_mb) = (None, None);
        }
        pool.put(cell);
    }
    let mut request = Request::new("web", 10, 300);
    request.instances = 60;
    let jobs = Arc::new(request).jobs();
    let policy = Policy::preset("dapi").unwrap();
    let context = PlanContext::default();
    let plain = pool.plan_plainly(&jobs, &policy, &context);
    assert_same(&pool.plan(&jobs, &policy, &context), &plain, "");
}

/// A decision with [`Explain::Winner`] has the same winner and rating as one that names its finalists.
#[test]
fn the_winner_alone_is_the_same() {
    let mut dice = Dice::new(5);
    let mut pool = Pool::default();
    for cell in equal_cells(&mut dice, 200, true) {
        pool.put(cell);
    }
    let jobs = few_shapes(&mut dice, true);
    for preset in ["objective", "vendue", "dapi", "rfd24"] {
        let policy = Policy::preset(preset).unwrap();
        let context = |explain| PlanContext {
            explain,
            ..PlanContext::default()
        };
        let alone = pool.plan(&jobs, &policy, &context(Explain::Winner));
        let named = pool.plan(&jobs, &policy, &context(Explain::Finalists));
        for (alone, named) in alone.decisions.iter().zip(&named.decisions) {
            assert_eq!(alone.verdict, named.verdict, "{preset}");
            assert_eq!(alone.rating, named.rating, "{preset}");
        }
    }
}
