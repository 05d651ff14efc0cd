//! `vendue bench place`: how fast a policy places synthetic jobs on synthetic cells. It uses one thread and no NATS;
//! time is measured once the pool is built.

use std::time::{Duration, Instant};

use placement::{PlanContext, Policy, Pool, Verdict};
use scenarios::SyntheticLoad;
use serde::Serialize;

use crate::{
    commands::policy_file,
    context::{Exit, Format, Global},
    output,
    table::Table,
};

/// Number of cells that the plain engine may look at: it gets only the first jobs if all would take too long.
const PLAIN_LOOKS: u32 = 1_000_000;
/// A plan is timed this many times …
const TIMES: usize = 5;
/// … unless that takes longer than this.
const LONG_ENOUGH: Duration = Duration::from_secs(2);

/// Places made-up jobs: four sizes, four instances to an app, 10 % tasks, on cells of four zones and
/// four sizes that they fill to 70 %. The shortest of five times counts.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PlaceArgs {
    /// How many cells
    #[arg(long, value_name = "N", default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    cells: u32,
    /// How many jobs
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    jobs: u32,
    /// Policy: a preset's name or a file
    #[arg(long, default_value = "diego", value_name = "NAME|FILE")]
    policy: String,
    /// Measure the plain engine too, with the first jobs only (200 of them on 5,000 cells)
    #[arg(long)]
    plain: bool,
    /// Seed of the cells, the jobs and the random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// The results. Other programs read its keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Found {
    placements_per_second: f64,
    ns_per_placement: f64,
    placed: usize,
    failed: usize,
    build_ms: f64,
    engine: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    plain_placements_per_second: Option<f64>,
}

/// Runs the bench and prints the results.
pub(crate) fn run_place(global: &Global, args: &PlaceArgs) -> anyhow::Result<Exit> {
    let policy = policy_file::load(&args.policy)?;
    let found = measure(args, &policy);
    if global.output == Format::Json {
        output::document(&found)?;
    } else {
        found.table(args, &policy).print()?;
    }
    Ok(Exit::Ok)
}

fn measure(args: &PlaceArgs, policy: &Policy) -> Found {
    let workload = SyntheticLoad {
        cells: args.cells,
        jobs: args.jobs,
        seed: args.seed,
    };
    let (cells, jobs) = (workload.cells(), workload.jobs());
    let draw = PlanContext {
        seed: args.seed,
        ..PlanContext::default()
    };
    let begin = Instant::now();
    let mut pool = Pool::default();
    for cell in cells {
        pool.put(cell);
    }
    pool.prepare(policy);
    let built = begin.elapsed();

    let (placed, took) = fastest(|| pool.plan(&jobs, policy, &draw));
    let plain_placements_per_second = args.plain.then(|| {
        let few = (PLAIN_LOOKS / args.cells).max(50) as usize;
        let few = &jobs[..few.min(jobs.len())];
        let (placed, took) = fastest(|| pool.plan_plainly(few, policy, &draw));
        per_second(placed, took)
    });
    Found {
        placements_per_second: per_second(placed, took),
        ns_per_placement: took.as_secs_f64() * 1e9 / placed.max(1) as f64,
        placed,
        failed: jobs.len() - placed,
        build_ms: built.as_secs_f64() * 1e3,
        engine: Pool::engine(policy),
        plain_placements_per_second,
    }
}

/// Plans until that took [`LONG_ENOUGH`], at most [`TIMES`] times. Returns how many were placed and the shortest time,
/// which other programs have disturbed least. A plan leaves the pool unchanged, so each does the same work.
fn fastest(mut plan: impl FnMut() -> placement::Plan) -> (usize, Duration) {
    let start = Instant::now();
    let (mut count, mut shortest) = (0, Duration::MAX);
    for _ in 0..TIMES {
        let begin = Instant::now();
        let plan = plan();
        shortest = shortest.min(begin.elapsed());
        count = placed(&plan);
        if start.elapsed() > LONG_ENOUGH {
            break;
        }
    }
    (count, shortest)
}

fn placed(plan: &placement::Plan) -> usize {
    let is_placed = |d: &&placement::Decision| matches!(d.verdict, Verdict::Placed { .. });
    plan.decisions.iter().filter(is_placed).count()
}

fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64().max(1e-9)
}

impl Found {
    fn table(&self, args: &PlaceArgs, policy: &Policy) -> Table {
        let mut table = Table::new(&["", "figure"]);
        let (cells, jobs) = (args.cells, args.jobs);
        table.add_row([
            "policy, engine".into(),
            format!("{}, {}", policy.name(), self.engine),
        ]);
        table.add_row(["cells, jobs".into(), format!("{cells}, {jobs}")]);
        table.add_row([
            "placed, failed".into(),
            format!("{}, {}", self.placed, self.failed),
        ]);
        table.add_row(["pool built in".into(), format!("{:.1} ms", self.build_ms)]);
        table.add_row([
            "placements".into(),
            format!("{:.0} /s", self.placements_per_second),
        ]);
        table.add_row(["each".into(), format!("{:.0} ns", self.ns_per_placement)]);
        if let Some(plain) = self.plain_placements_per_second {
            let times = self.placements_per_second / plain.max(1e-9);
            table.add_row([
                "the plain engine".into(),
                format!("{plain:.0} /s ({times:.0} x)"),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_counted_and_the_same_seed_does_the_same() {
        let args = PlaceArgs {
            cells: 20,
            jobs: 200,
            policy: "diego".into(),
            plain: true,
            seed: 7,
        };
        let policy = policy_file::load(&args.policy).unwrap();
        let found = measure(&args, &policy);
        assert_eq!(found.placed + found.failed, 200);
        assert_eq!(found.engine, Pool::engine(&policy));
        assert!(found.plain_placements_per_second > Some(0.0));
        let again = measure(&args, &policy);
        assert_eq!((found.placed, found.failed), (again.placed, again.failed));
    }
}
