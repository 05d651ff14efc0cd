//! How fast a policy places made-up work: `measure CELLS JOBS POLICY [--plain]`.
#![allow(clippy::print_stdout, missing_docs)] // a program for people

use std::time::Instant;

use placement::{Cell, Draw, Job, Policy, Pool, Verdict, Workload};

/// Seconds this process has had a processor: other programs do not disturb it. Elsewhere than on
/// Linux, seconds since the start.
fn seconds(start: Instant) -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.map_or(start.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

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
    let begin = Instant::now();
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
    let start = seconds(begin);
    let before = resident();
    let mut pool = Pool::default();
    for cell in workload.cells() {
        pool.put(cell);
    }
    pool.prepare(&policy);
    let built = seconds(begin) - start;
    let per_cell = (resident() - before) / f64::from(workload.cells);
    println!("{per_cell:.0} bytes a cell");
    for seed in 0..3 {
        let draw = Draw {
            seed,
            ..Draw::default()
        };
        let start = seconds(begin);
        let plan = pool.plan(&jobs, &policy, &draw);
        let took = seconds(begin) - start;
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
        let start = seconds(begin);
        let few = &jobs[..jobs.len().min(500)];
        let _ = pool.plan_plainly(few, &policy, &Draw::default());
        println!(
            "plain: {:.0}/s",
            few.len() as f64 / (seconds(begin) - start)
        );
    }
}
