//! Worked examples from the sources, as tables.
#![allow(clippy::unwrap_used, clippy::too_many_lines)] // a test may panic, a table may be long

use std::sync::Arc;

use placement::{
    Cell, Explain, Job, Kind, PlanContext, Policy, Pool, Rating, Request, Resources, Verdict,
};
use scenarios::OfflineAuction;
use serde_json::json;

fn cell(name: &str, zone: &str, memory: i64, available: i64) -> Cell {
    let mut cell = Cell::new(name, Resources::new(memory, 100_000, 250));
    cell.attributes_mut().zone = zone.into();
    cell.available.memory_mb = available;
    cell
}

fn pool(cells: impl IntoIterator<Item = Cell>) -> Pool {
    let mut pool = Pool::default();
    for cell in cells {
        pool.put(cell);
    }
    pool
}

fn lrp(app: &str, memory: i64, instances: u32) -> Arc<Request> {
    let request = Request::new(app, memory, 10);
    Arc::new(Request {
        instances,
        ..request
    })
}

fn task(app: &str, memory: i64) -> Arc<Request> {
    let request = Request::new(app, memory, 10);
    Arc::new(Request {
        kind: Kind::Task,
        id: app.into(),
        ..request
    })
}

fn explained() -> PlanContext {
    PlanContext {
        explain: Explain::Finalists,
        ..PlanContext::default()
    }
}

/// Returns where each job went, or why nowhere, by its position in the batch.
fn outcomes(pool: &mut Pool, jobs: &[Job], policy: &Policy) -> Vec<String> {
    let plan = pool.plan(jobs, policy, &explained());
    let mut outcomes = vec![String::new(); jobs.len()];
    for decision in plan.decisions {
        outcomes[decision.job] = match decision.verdict {
            Verdict::Placed { cell } => cell.to_string(),
            Verdict::Unplaced(why) => why.reason,
            Verdict::Duplicate { of } => format!("as {of}"),
        };
    }
    outcomes
}

#[test]
fn the_objective_takes_four_zones_in_turn() {
    // fixed, because a zone whose cell is taken away would otherwise not count
    let policy = Policy::parse("preset = \"objective\"\nazs = 4").unwrap();
    for (instance, expected) in [(0, "3214"), (1, "2143"), (2, "1432"), (3, "4321")] {
        let mut pool = pool((1..=4).map(|n| {
            let mut cell = cell(&format!("c{n}"), &format!("z{n}"), 1000, 1000);
            cell.attributes_mut().zone_number = Some(n);
            cell
        }));
        // an app whose name is the number 0
        let job = Job {
            request: lrp("0", 10, 4),
            index: instance,
        };
        let mut preferred = String::new();
        for _ in 0..4 {
            let winner = outcomes(&mut pool, std::slice::from_ref(&job), &policy).remove(0);
            preferred.push_str(&winner[1..]);
            pool.remove(&winner);
        }
        assert_eq!(preferred, expected, "instance {instance}");
    }
}

#[test]
fn weighted_bin_pack_costs() {
    let policy = Policy::preset("diego-bin-pack").unwrap();
    for (index, expected) in [(0, 0.7133), (1, 0.9633), (2, 1.2133), (3, 1.4633)] {
        // only the cell with this index has room; its fractions after the placement are 0.5, 0.5, 0.39
        let cells = (0..4).map(|i| {
            let mut cell = Cell::new(format!("c{i}"), Resources::new(1000, 1000, 100));
            cell.index = 10 + i;
            cell.counts.starting = 1;
            cell.available = Resources::new(if i == index { 600 } else { 0 }, 600, 62);
            cell
        });
        let mut pool = pool(cells);
        let jobs = Arc::new(Request::new("app", 100, 100)).jobs();
        let plan = pool.plan(&jobs, &policy, &PlanContext::default());
        let cost = plan.decisions[0].rating.and_then(Rating::cost).unwrap();
        assert!((cost - expected).abs() < 1e-4, "index {index}: {cost}");
    }
}

#[test]
fn the_order_of_a_batch() {
    let mut jobs = Vec::new();
    jobs.extend(lrp("A", 10, 3).jobs());
    jobs.extend(task("D", 10).jobs());
    jobs.extend(lrp("B", 20, 2).jobs());
    jobs.extend(task("C", 20).jobs());
    let names = ["A.1", "A.2", "A.3", "D", "B.1", "B.2", "C"];
    for (policy, expected) in [
        ("diego", ["B.1", "A.1", "C", "D", "B.2", "A.2", "A.3"]),
        ("dea", names),
    ] {
        let policy = Policy::preset(policy).unwrap();
        let plan = pool([cell("c", "z", 1000, 1000)]).plan(&jobs, &policy, &PlanContext::default());
        let order: Vec<&str> = plan.decisions.iter().map(|d| names[d.job]).collect();
        assert_eq!(order, expected, "{}", policy.name());
    }
}

#[test]
fn first_instances_precede_tasks_even_when_there_are_no_others() {
    let policy = Policy::preset("diego").unwrap();
    let jobs: Vec<Job> = [task("t", 50), lrp("a", 50, 1)]
        .iter()
        .flat_map(Request::jobs)
        .collect();
    let outcomes = outcomes(&mut pool([cell("c", "z", 100, 60)]), &jobs, &policy);
    assert_eq!(outcomes, ["insufficient resources: memory", "c"]);
}

/// One cell with memory M: which of these start?
#[test]
fn diego_fills_one_cell_in_order() {
    let policy = Policy::preset("diego").unwrap();
    let jobs: Vec<Job> = [
        lrp("pg-7", 10, 2),
        lrp("pg-8", 40, 3),
        task("tg-1", 10),
        task("tg-2", 20),
    ]
    .iter()
    .flat_map(Request::jobs)
    .filter(|job| job.request.app != "pg-8" || job.index > 0)
    .collect();
    let names = ["pg-7.0", "pg-7.1", "pg-8.1", "pg-8.2", "tg-1", "tg-2"];
    for (memory, expected) in [
        (
            130,
            vec!["pg-7.0", "pg-7.1", "pg-8.1", "pg-8.2", "tg-1", "tg-2"],
        ),
        (10, vec!["pg-7.0"]),
        (45, vec!["pg-7.0", "tg-1", "tg-2"]),
        (80, vec!["pg-7.0", "pg-8.1", "tg-1", "tg-2"]),
        (95, vec!["pg-7.0", "pg-7.1", "pg-8.1", "tg-1", "tg-2"]),
    ] {
        let outcomes = outcomes(&mut pool([cell("c", "z", 1000, memory)]), &jobs, &policy);
        let placed: Vec<&str> = names
            .iter()
            .zip(&outcomes)
            .filter(|(_, cell)| *cell == "c")
            .map(|(n, _)| *n)
            .collect();
        assert_eq!(placed, expected, "memory {memory}");
    }
}

#[test]
fn duplicates_share_the_first_ones_outcome() {
    let policy = Policy::preset("diego").unwrap();
    let mut jobs = lrp("a", 10, 2).jobs();
    // another, larger request for the same app and index: dropped nevertheless
    jobs.extend(lrp("a", 90, 1).jobs());
    jobs.extend(task("t", 10).jobs());
    jobs.extend(task("t", 10).jobs());
    // tasks without an id have no duplicates
    let nameless = |memory| {
        Arc::new(Request {
            kind: Kind::Task,
            ..Request::new("t", memory, 1)
        })
    };
    jobs.extend(nameless(1).jobs());
    jobs.extend(nameless(1).jobs());
    let outcomes = outcomes(&mut pool([cell("c", "z", 100, 100)]), &jobs, &policy);
    assert_eq!(outcomes, ["c", "c", "as 0", "c", "as 3", "c", "c"]);
}

#[test]
fn in_flight_limit() {
    for (limit, placed) in [(3, 1), (2, 0), (5, 3), (0, 4)] {
        let policy = format!("preset = \"diego\"\nmax_in_flight = {limit}");
        let policy = Policy::parse(&policy).unwrap();
        let mut busy = cell("c", "z", 1000, 1000);
        busy.counts.starting = 2;
        let outcomes = outcomes(&mut pool([busy]), &lrp("a", 1, 4).jobs(), &policy);
        let text = "waiting to start instance: reached in-flight start limit";
        assert_eq!(
            outcomes.iter().filter(|o| *o == "c").count(),
            placed,
            "limit {limit}"
        );
        assert!(
            outcomes[placed..].iter().all(|o| o == text),
            "limit {limit}: {outcomes:?}"
        );
    }
}

/// Work waits for the cell that it wins, while work that wins another cell does not.
#[test]
fn starts_of_a_cell_are_limited() {
    for (limit, placed) in [(0, 4), (1, 0), (3, 1), (9, 4)] {
        let policy = format!(
            "name = \"few\"\nmax_starting_per_cell = {limit}\n[[stage]]\nfilter = \"memory\"\n\
             [[stage]]\nscore = \"memory\"\nmode = \"raw\"\n[[stage]]\npick = \"lowest\""
        );
        let policy = Policy::parse(&policy).unwrap();
        let mut busy = cell("busy", "z", 1000, 100);
        busy.counts.starting = 2;
        let mut pool = pool([busy, cell("idle", "z", 1000, 1000)]);
        let mut jobs = lrp("a", 1, 4).jobs();
        jobs.extend(lrp("large", 500, 1).jobs());
        let plan = pool.plan(&jobs, &policy, &PlanContext::default());
        let deferred = plan.decisions.iter().filter(|decision| decision.deferred);
        assert_eq!(deferred.count(), 4 - placed, "limit {limit}");
        let outcomes = outcomes(&mut pool, &jobs, &policy);
        assert!(
            outcomes[..placed].iter().all(|o| o == "busy"),
            "limit {limit}: {outcomes:?}"
        );
        let text = "waiting to start instance: its cell is starting as many instances as max_starting_per_cell allows";
        assert!(
            outcomes[placed..4].iter().all(|o| o == text),
            "limit {limit}: {outcomes:?}"
        );
        assert_eq!(outcomes[4], "idle", "limit {limit}");
    }
}

/// What every otherwise compatible cell lacks, and nothing else.
#[test]
fn failure_texts() {
    let with = |name: &str, memory, disk, containers| {
        let mut cell = Cell::new(name, Resources::new(1000, 1000, 100));
        cell.attributes_mut().stacks = vec!["linux".into()];
        cell.available = Resources::new(memory, disk, containers);
        cell
    };
    let short = [with("a", 10, 1000, 5), with("b", 20, 1000, 5)];
    let mixed = [with("a", 10, 1000, 5), with("b", 1000, 10, 5)];
    let both = [with("a", 10, 10, 0), with("b", 10, 10, 5)];
    let mut away = with("a", 1000, 1000, 5);
    away.evacuating = true;
    let request = |change: &dyn Fn(&mut Request)| {
        let mut request = Request::new("app", 100, 100);
        request.stack = Some("linux".into());
        change(&mut request);
        Arc::new(request)
    };
    let plain = request(&|_| {});
    let tagged =
        |tags: &[&str]| request(&|r| r.placement_tags = tags.iter().map(|t| (*t).into()).collect());
    for (cells, request, expected) in [
        (&short[..], &plain, "insufficient resources: memory"),
        (&mixed[..], &plain, "insufficient resources"),
        (&both[..], &plain, "insufficient resources: disk, memory"),
        (&[], &plain, "unable to communicate to compatible cells"),
        (
            &[away][..],
            &plain,
            "unable to communicate to compatible cells",
        ),
        (
            &short[..],
            &request(&|r| r.stack = Some("windows".into())),
            "found no compatible cell for required stack",
        ),
        (
            &short[..],
            &request(&|r| r.volume_drivers = vec!["nfs".into()]),
            "found no compatible cell with required volume drivers",
        ),
        (
            &short[..],
            &tagged(&["x"]),
            "found no compatible cell with placement tag \"x\"",
        ),
        (
            &short[..],
            &tagged(&["x", "y", "z"]),
            "found no compatible cell with placement tags \"x\", \"y\" and \"z\"",
        ),
        (
            &short[..],
            &request(&|r| r.extra = [("gpu".to_owned(), 1)].into()),
            "insufficient resources: gpu, memory",
        ),
    ] {
        let policy = Policy::preset("diego").unwrap();
        let outcome = outcomes(&mut pool(cells.to_vec()), &request.jobs(), &policy).remove(0);
        assert_eq!(outcome, *expected);
    }
}

/// The cells of the Cloud Controller's own specification: name, zone, memory, instances of the app.
#[test]
fn the_dea_pool_specification() {
    let d = |name: &str, zone: &str, memory, count| {
        let mut cell = cell(name, zone, 100_000, memory);
        cell.counts.apps = [("app".to_owned(), count)].into();
        cell
    };
    let (d1, d2) = (d("d1", "default", 128, 1), d("d2", "default", 128, 2));
    let (d3, d4) = (d("d3", "default", 512, 1), d("d4", "default", 512, 2));
    let (d5, d6) = (d("d5", "zone1", 1024, 3), d("d6", "zone1", 1024, 2));
    let (d7, d8) = (d("d7", "zone1", 512, 2), d("d8", "zone1", 256, 1));
    let policy = Policy::preset("dea").unwrap();
    for (cells, memory, expected) in [
        (vec![&d1, &d4], 1, "d1"),
        (vec![&d1, &d4], 256, "d4"),
        (vec![&d5, &d6], 1, "d6"),
        (vec![&d1, &d4, &d5], 1, "d1"),
        (vec![&d1, &d4, &d5], 256, "d4"),
        (vec![&d1, &d4, &d6, &d7], 1, "d1"),
        (vec![&d1, &d4, &d5, &d6], 1, "d1"),
        (vec![&d1, &d4, &d7, &d8], 1, "d8"),
        (vec![&d1, &d4, &d5, &d6], 768, "d6"),
        (vec![&d2, &d3, &d6], 256, "d6"),
    ] {
        let names: Vec<&str> = cells.iter().map(|cell| cell.cell.as_str()).collect();
        let mut pool = pool(cells.into_iter().cloned());
        let outcome = outcomes(&mut pool, &lrp("app", memory, 1).jobs(), &policy).remove(0);
        assert_eq!(outcome, expected, "{names:?} for {memory}");
    }
}

#[test]
fn ten_starts_on_two_equal_cells_are_five_each() {
    let policy = Policy::preset("dea").unwrap();
    let mut pool = pool([cell("a", "z", 1024, 1024), cell("b", "z", 1024, 1024)]);
    let outcomes = outcomes(&mut pool, &lrp("app", 1, 10).jobs(), &policy);
    assert_eq!(outcomes.iter().filter(|cell| *cell == "a").count(), 5);
}

/// Triton's own figures for its scorers: values of three or more cells, a weight, the terms.
#[test]
fn tritons_scorers() {
    let none = json!({"preset": "dapi", "memory_weight": 0, "disk_weight": 0, "platform_weight": 0,
        "reboot_weight": 0, "random_weight": 0});
    let platform =
        |day: &str| json!({"platform": {"version": "7.0", "stamp": format!("{day}T000000Z")}});
    let memory = |mb: i64| json!({"available": {"memory_mb": mb, "disk_mb": 1000}});
    let owned = |n: u32| json!({"owners": {"me": n}});
    let days = [
        "20160305", "20160304", "20160301", "20160212", "20160205", "20150305",
    ];
    let tables = [
        (
            "memory_weight",
            4.0,
            [256, 768, 512].map(memory).to_vec(),
            vec![4.0, 0.0, 2.0],
        ),
        (
            "memory_weight",
            -4.0,
            [256, 768, 512].map(memory).to_vec(),
            vec![0.0, 4.0, 2.0],
        ),
        (
            "owner_weight",
            4.0,
            [12, 2, 0].map(owned).to_vec(),
            vec![0.0, 2.0, 4.0],
        ),
        (
            "owner_weight",
            -4.0,
            [12, 2, 0].map(owned).to_vec(),
            vec![4.0, 2.0, 0.0],
        ),
        (
            "platform_weight",
            3.0,
            days.map(platform).to_vec(),
            vec![3.0, 2.9918, 2.9672, 2.8197, 2.7623, 0.0],
        ),
        ("memory_weight", 4.0, vec![memory(100)], vec![4.0]),
        (
            "platform_weight",
            4.0,
            vec![platform("20160101")],
            vec![0.0],
        ),
        // equal values share their places
        (
            "memory_weight",
            4.0,
            [5, 5, 9].map(memory).to_vec(),
            vec![3.0, 3.0, 0.0],
        ),
    ];
    for (term, weight, changes, expected) in tables {
        let mut policy = none.clone();
        policy[term] = weight.into();
        let cells: Vec<_> = changes.iter().enumerate().map(|(i, change)| {
            let mut cell = json!({"cell": format!("c{i}"), "total": {"memory_mb": 1000, "disk_mb": 1000},
                "available": {"memory_mb": 1000, "disk_mb": 1000}});
            for (key, value) in change.as_object().unwrap() {
                cell[key] = value.clone();
            }
            cell
        }).collect();
        let best = expected.iter().copied().fold(f64::MIN, f64::max);
        let won = OfflineAuction::from_json(
            &json!({"now": "2016-04-01T00:00:00Z", "policy": policy, "cells": cells, "requests":
                [{"app": "a", "memory_mb": 1, "disk_mb": 1, "owner": "me", "far": ["app:none"]}]})
            .to_string(),
        );
        let report = won.unwrap().run(Explain::Winner);
        let winner = &report.decisions[0];
        assert!(
            (winner.score.unwrap() - best).abs() < 1e-4,
            "{term} {weight}: {winner:?}"
        );
        let tied = expected
            .iter()
            .filter(|v| (**v - best).abs() < 1e-4)
            .count();
        assert_eq!(winner.finalists.len(), tied, "{term} {weight}: {winner:?}");
    }
}

#[test]
fn a_near_and_far_batch_follows_itself() {
    let policy = Policy::preset("dapi").unwrap();
    let mut pool = pool((0..4).map(|i| cell(&format!("c{i}"), "z", 1000, 1000)));
    let copies = Arc::new(Request {
        instances: 5,
        far: vec!["app:db".into()],
        strict: true,
        ..Request::new("db", 10, 10)
    });
    let cells = outcomes(&mut pool, &copies.jobs(), &policy);
    let distinct: std::collections::BTreeSet<_> = cells[..4].iter().collect();
    assert_eq!(distinct.len(), 4, "{cells:?}");
    assert_eq!(
        cells[4],
        "found no compatible cell that satisfies near and far"
    );
}

#[test]
fn what_was_debited_is_gone_in_the_next_auction() {
    let policy = Policy::preset("diego").unwrap();
    let mut pool = Pool::default();
    assert!(pool.is_empty());
    pool.put(cell("a", "z", 100, 100));
    assert!(!pool.is_empty());
    let job = lrp("app", 60, 1).jobs().remove(0);
    for _ in 0..2 {
        // planning alone changes nothing
        let outcome = outcomes(&mut pool, std::slice::from_ref(&job), &policy);
        assert_eq!(outcome, ["a"]);
    }
    pool.debit("nobody", &job, None);
    pool.debit("a", &job, None);
    let debited = pool.get("a").unwrap();
    assert_eq!(
        (debited.available.memory_mb, debited.count_of("app")),
        (40, 1)
    );
    let outcome = outcomes(&mut pool, &[job], &policy);
    assert_eq!(outcome, ["insufficient resources: memory"]);
}

/// A zone with fewer instances whose cells are all excluded is noted; one with as many or more is not.
#[test]
fn emptier_zones_that_could_not_be_taken_are_noted() {
    let policy = Policy::preset("diego").unwrap();
    let holding = |zone: &str, count: u32, free| {
        let mut cell = cell(zone, zone, 1000, free);
        cell.counts.apps.insert("app".into(), count);
        cell
    };
    let pool = pool([
        holding("z0", 1, 10),
        holding("z1", 2, 10),
        holding("z2", 2, 500),
        holding("z3", 3, 500),
    ]);
    let context = PlanContext {
        explain: Explain::Stages,
        ..PlanContext::default()
    };
    let plan = pool.plan_plainly(&lrp("app", 100, 1).jobs(), &policy, &context);
    let explanation = plan.decisions[0].explanation.as_ref().unwrap();
    assert_eq!(
        explanation.notes,
        ["zone \"z0\" holds only 1 of app, but no cell there is left"]
    );
}
