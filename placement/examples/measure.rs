//! How fast a policy places made-up work: `measure CELLS JOBS POLICY [--plain]`.
#![allow(clippy::print_stdout, missing_docs)] // a program for people

use std::time::{Duration, Instant};

use placement::{Cell, Draw, Job, Policy, Pool, Verdict, Workload};

/// Bytes resident, on Linux.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4096.0
}

/// The median and the 99th percentile of what each of some calls took, in µs. Other programs do
/// disturb these.
fn spread(calls: usize, mut call: impl FnMut(usize)) -> String {
    let mut took: Vec<f64> = (0..calls)
        .map(|i| {
            let start = Instant::now();
            call(i);
            start.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    took.sort_unstable_by(f64::total_cmp);
    let at = |share: usize| took.get(took.len() * share / 100).copied().unwrap_or(0.0);
    format!("{:.1} in the middle, {:.1} at 99 %", at(50), at(99))
}

fn singles(pool: &mut Pool, jobs: &[Job], policy: &Policy) -> String {
    let draw = Draw::default();
    spread(jobs.len().min(1_000), |i| {
        std::hint::black_box(pool.plan(&jobs[i..=i], policy, &draw));
    })
}

/// Every cell says it has a little less, and then that it has it again.
fn advertisements(pool: &mut Pool) -> String {
    let mut cells: Vec<Cell> = pool.cells().cloned().collect();
    let again = cells.clone();
    for cell in &mut cells {
        cell.available.memory_mb -= 1;
    }
    cells.extend(again);
    cells.reverse();
    spread(cells.len(), |_| {
        if let Some(cell) = cells.pop() {
            pool.put(cell);
        }
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u32| {
        arguments
            .get(at)
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let workload = Workload {
        cells: number(0, 5_000),
        jobs: number(1, 10_000),
        seed: 1,
    };
    let name = arguments.get(2).map_or("diego", String::as_str);
    let Ok(policy) = Policy::preset(name) else {
        println!("no policy {name}");
        return;
    };
    let jobs = workload.jobs();
    let before = resident();
    let begin = Instant::now();
    let mut pool = Pool::default();
    for cell in workload.cells() {
        pool.put(cell);
    }
    pool.prepare(&policy);
    let built = begin.elapsed().as_secs_f64();
    let per_cell = (resident() - before) / f64::from(workload.cells);
    println!("{per_cell:.0} bytes a cell");
    for seed in 0..3 {
        let draw = Draw {
            seed,
            ..Draw::default()
        };
        // the shortest of a few: what other programs have disturbed least
        let mut took = f64::INFINITY;
        let mut plan = placement::Plan::default();
        let until = Instant::now() + Duration::from_millis(500);
        while took.is_infinite() || Instant::now() < until {
            let start = Instant::now();
            plan = pool.plan(&jobs, &policy, &draw);
            took = took.min(start.elapsed().as_secs_f64());
        }
        let is_placed = |d: &&placement::Decision| matches!(d.verdict, Verdict::Placed { .. });
        let placed = plan.decisions.iter().filter(is_placed).count();
        println!(
            "{name} ({}): {placed} of {} placed, {:.0}/s, {:.0} ns each, built in {:.1} ms",
            Pool::engine(&policy),
            jobs.len(),
            placed as f64 / took,
            took * 1e9 / jobs.len() as f64,
            built * 1e3,
        );
        println!(
            "  single decision, µs: {}",
            singles(&mut pool, &jobs, &policy)
        );
        println!("  advertisement, µs: {}", advertisements(&mut pool));
    }
    if arguments.iter().any(|text| text == "--plain") {
        let start = Instant::now();
        let few = &jobs[..jobs.len().min(500)];
        let _ = pool.plan_plainly(few, &policy, &Draw::default());
        let took = start.elapsed().as_secs_f64();
        println!("plain: {:.0}/s", few.len() as f64 / took);
    }
}
