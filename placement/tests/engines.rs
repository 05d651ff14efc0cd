//! The fast engines decide what the plain engine decides, seed for seed.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;

use common::{Dice, amounts, assert_same, cell, counts, draw, jobs, policy, pool};
use placement::{Cell, PlanContext, Policy, Pool, Rating, Request, Resources, Verdict};
use proptest::prelude::*;

/// Takes a pool through several plans, under policies that change now and then, with advertisements, departures and
/// debits in between; and copies of the pool as well.
fn live_through(seed: u64) {
    let mut dice = Dice::new(seed);
    let rich = dice.one_in(2);
    let mut policy = policy(&mut dice);
    let most = if dice.one_in(20) { 120 } else { 30 };
    let cells = 1 + dice.below(most);
    let mut pool = pool(&mut dice, cells, rich);
    for round in 0..4 {
        let draw = draw(&mut dice, &pool);
        let requests = 1 + dice.below(10);
        let jobs = jobs(&mut dice, requests, rich);
        if policy.learns() {
            // like an auctioneer, before it decides
            for job in &jobs {
                pool.learn(&job.request);
            }
        }
        let plain = pool.plan_plainly(&jobs, &policy, &draw);
        let context = format!("seed {seed}, round {round}, policy\n{}", policy.to_toml());
        if dice.one_in(4) {
            // what if: the copy plans, and also forgets a cell
            let mut copy = pool.clone();
            copy.remove("cell-0");
            let without = copy.plan_plainly(&jobs, &policy, &draw);
            assert_same(&copy.plan(&jobs, &policy, &draw), &without, &context);
        }
        let fast = pool.plan(&jobs, &policy, &draw);
        assert_same(&fast, &plain, &context);
        for decision in &fast.decisions {
            if let Verdict::Placed { cell } = &decision.verdict
                && dice.one_in(2)
            {
                pool.debit(cell, &jobs[decision.job], decision.devices.as_deref());
            }
        }
        news(&mut dice, &mut pool, cells, rich);
        if dice.one_in(4) {
            policy = common::policy(&mut dice);
        }
    }
}

/// Lets cells come, change and go.
fn news(dice: &mut Dice, pool: &mut Pool, cells: u64, rich: bool) {
    let most = if dice.one_in(4) { 40 } else { 6 };
    for i in 0..dice.below(most) {
        let name = format!("cell-{}", dice.below(cells + 3));
        let known = pool.get(&name).cloned();
        match (known, i % 4) {
            (Some(_), 0) if dice.one_in(2) => drop(pool.remove(&name)),
            (Some(mut known), 1) => {
                amounts(dice, &mut known);
                pool.put(known);
            }
            (Some(mut known), 2) => {
                counts(dice, &mut known);
                pool.put(known);
            }
            _ => pool.put(cell(dice, &name, rich)),
        }
    }
}

proptest! {
    // a seed cannot be shrunk: the first that fails is as good as any
    #![proptest_config(ProptestConfig { cases: 1_000, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn fast_is_plain(seed in any::<u64>()) {
        live_through(seed);
    }
}

/// What once made the engines differ: a term of weight 0 after a narrowing, in a product. It changes nothing but the
/// scale, because the best cell may have been narrowed away.
#[test]
fn a_weight_of_0_scales_what_a_narrowing_left() {
    let text = r#"
        name = "scaled"
        order = "asked"
        combine = "product"
        [[stage]]
        score = "memory"
        weight = 1.0
        mode = "ratio"
        [[stage]]
        narrow = "upper-half-memory"
        [[stage]]
        score = "disk"
        weight = 0.0
        mode = "ratio"
        [[stage]]
        pick = "highest"
    "#;
    let policy = Policy::parse(text).unwrap();
    let mut pool = Pool::default();
    for (name, free) in [("a", 100), ("b", 300), ("c", 600), ("d", 800)] {
        let mut cell = Cell::new(name, Resources::new(1000, 1000, 10));
        cell.available.memory_mb = free;
        pool.put(cell);
    }
    let jobs = Arc::new(Request::new("web", 10, 10)).jobs();
    let plain = pool.plan_plainly(&jobs, &policy, &PlanContext::default());
    assert_eq!(plain.decisions[0].rating, Some(Rating::Score(1.0)));
    let fast = pool.plan(&jobs, &policy, &PlanContext::default());
    assert_same(&fast, &plain, "");
}

/// More blobs in a batch than are kept as columns; each job counts two of them.
#[test]
fn a_batch_of_very_many_blobs() {
    let text = r#"
        preset = "objective"
        expression = "count(ai.AppSourceBlobID, r.CachedBlobIDs) + 2 * count(ai.AppID, r.CachedBlobIDs)"
    "#;
    let policy = Policy::parse(text).unwrap();
    let mut pool = Pool::default();
    let mut cells: Vec<Cell> = (0..3)
        .map(|n| Cell::new(format!("c{n}"), Resources::new(1 << 20, 1 << 20, 10_000)))
        .collect();
    let mut jobs = Vec::new();
    for n in 0..600 {
        cells[n % 3]
            .attributes_mut()
            .cached_blobs
            .push(format!("app-{n}"));
        cells[(n + 1) % 3]
            .attributes_mut()
            .cached_blobs
            .push(format!("blob-{n}"));
        let mut request = Request::new(format!("app-{n}"), 1, 1);
        request.source_blob = Some(format!("blob-{n}"));
        jobs.extend(Arc::new(request).jobs());
    }
    for cell in cells {
        pool.put(cell);
    }
    let plain = pool.plan_plainly(&jobs, &policy, &PlanContext::default());
    assert!(
        plain
            .decisions
            .iter()
            .all(|d| d.rating == Some(Rating::Score(2.0)))
    );
    let fast = pool.plan(&jobs, &policy, &PlanContext::default());
    assert_same(&fast, &plain, "");
}

/// `make engines SEEDS=1000000 FROM=0`
#[test]
#[ignore = "takes minutes: make engines"]
fn fast_is_plain_for_very_many_seeds() {
    let seeds = std::env::var("SEEDS").map_or(100_000_u64, |n| n.parse().unwrap());
    let from = std::env::var("FROM").map_or(0_u64, |n| n.parse().unwrap());
    let start = std::time::Instant::now();
    for done in 0..seeds {
        if done % (seeds / 20).max(1) == 0 {
            let seconds = start.elapsed().as_secs();
            eprintln!("{done} of {seeds} seeds after {seconds} s");
        }
        live_through(from + done);
    }
    let seconds = start.elapsed().as_secs();
    eprintln!("{seeds} seeds from {from}: the engines decide the same, in {seconds} s");
}
