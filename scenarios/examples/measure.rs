//! How fast a policy places made-up work: `measure CELLS JOBS POLICY [--plain] [--devices] [--once]`.
//!
//! `--devices`: with GPUs on some cells and jobs for them. `--once`: one plan and nothing else, for
//! `valgrind --tool=callgrind`.
#![allow(clippy::print_stdout, missing_docs)] // a program for people

use std::time::{Duration, Instant};

use placement::{Cell, Job, PlanContext, Policy, Pool, Verdict};
use scenarios::SyntheticLoad;

/// Bytes resident, on Linux.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<f64>().ok());
    pages.unwrap_or(0.0) * 4096.0
}

/// How long half of the calls took at most, and 99 of 100, in µs.
fn spread(mut took: Vec<f64>) -> String {
    took.sort_unstable_by(f64::total_cmp);
    let at = |share: usize| took.get(took.len() * share / 100).copied().unwrap_or(0.0);
    let (half, most) = (at(50) * 1e6, at(99) * 1e6);
    format!("{half:.1} in the middle, {most:.1} at 99 %")
}

/// Seconds that a call takes.
fn time(call: impl FnOnce()) -> f64 {
    let start = Instant::now();
    call();
    start.elapsed().as_secs_f64()
}

/// Decisions on one job, with a few advertisements before each, as in life. Of each decision the
/// shortest of a few tries: the others were disturbed by other programs.
fn singles(pool: &mut Pool, jobs: &[Job], policy: &Policy) -> String {
    let draw = PlanContext::default();
    let mut news = advertisements(pool).into_iter().cycle();
    let mut single = |job: &Job| {
        for cell in news.by_ref().take(20) {
            pool.put(cell);
        }
        time(|| drop(pool.plan(std::slice::from_ref(job), policy, &draw)))
    };
    let few = jobs.iter().take(1_000);
    let shortest = few.map(|job| (0..5).map(|_| single(job)).fold(f64::INFINITY, f64::min));
    spread(shortest.collect())
}

/// Every cell says it has a little less, and then that it has it again.
fn advertisements(pool: &Pool) -> Vec<Cell> {
    let full: Vec<Cell> = pool.cells().cloned().collect();
    let less = full.iter().map(|cell| {
        let mut cell = cell.clone();
        cell.available.memory_mb -= 1;
        cell
    });
    less.zip(full.clone())
        .flat_map(|(less, full)| [less, full])
        .collect()
}

fn feed(pool: &mut Pool) -> String {
    let cells = advertisements(pool).into_iter();
    spread(cells.map(|cell| time(|| pool.put(cell))).collect())
}

/// Prints what a batch, a single decision and an advertisement take.
fn measure(pool: &mut Pool, jobs: &[Job], (name, policy): (&str, &Policy), seed: u64, built: f64) {
    let draw = PlanContext {
        seed,
        ..PlanContext::default()
    };
    // the shortest of a few: what other programs have disturbed least
    let mut took = f64::INFINITY;
    let mut plan = placement::Plan::default();
    let until = Instant::now() + Duration::from_millis(500);
    while took.is_infinite() || Instant::now() < until {
        let start = Instant::now();
        plan = pool.plan(jobs, policy, &draw);
        took = took.min(start.elapsed().as_secs_f64());
    }
    let is_placed = |d: &&placement::Decision| matches!(d.verdict, Verdict::Placed { .. });
    let placed = plan.decisions.iter().filter(is_placed).count();
    println!(
        "{name} ({}): {placed} of {} placed, {:.0}/s, {:.0} ns each, built in {:.1} ms",
        Pool::engine(policy),
        jobs.len(),
        placed as f64 / took,
        took * 1e9 / jobs.len() as f64,
        built * 1e3,
    );
    println!("  single decision, µs: {}", singles(pool, jobs, policy));
    println!("  advertisement, µs: {}", feed(pool));
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u32| {
        arguments
            .get(at)
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    let has = |option: &str| arguments.iter().any(|text| text == option);
    let workload = SyntheticLoad {
        cells: number(0, 5_000),
        jobs: number(1, 10_000),
        seed: 1,
    };
    let name = arguments.get(2).map_or("diego", String::as_str);
    let Ok(policy) = Policy::preset(name) else {
        println!("no policy {name}");
        return;
    };
    let devices = has("--devices");
    let jobs = if devices {
        workload.jobs_with_devices()
    } else {
        workload.jobs()
    };
    let cells = if devices {
        workload.cells_with_devices()
    } else {
        workload.cells()
    };
    let before = resident();
    let begin = Instant::now();
    let mut pool = Pool::default();
    for cell in cells {
        pool.put(cell);
    }
    if policy.learns() {
        // as an auctioneer does, before it decides
        for job in &jobs {
            pool.learn(&job.request);
        }
    }
    pool.prepare(&policy);
    let built = begin.elapsed().as_secs_f64();
    let per_cell = (resident() - before) / f64::from(workload.cells);
    println!("{per_cell:.0} bytes a cell");
    if has("--once") {
        drop(pool.plan(&jobs, &policy, &PlanContext::default()));
        return;
    }
    for seed in 0..3 {
        measure(&mut pool, &jobs, (name, &policy), seed, built);
    }
    if has("--plain") {
        let start = Instant::now();
        let few = &jobs[..jobs.len().min(500)];
        let _ = pool.plan_plainly(few, &policy, &PlanContext::default());
        let took = start.elapsed().as_secs_f64();
        println!("plain: {:.0}/s", few.len() as f64 / took);
    }
}
