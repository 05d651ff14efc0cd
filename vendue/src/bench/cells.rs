//! The other process of the bench: simulated cells, together with raw NATS.

use std::time::Duration;

use placement::{Resources, Span};
use rep::{ExecutorKind, RepConfig, SimulatedConfig};
use shared::{
    Subjects,
    nats::{Bus, Echo, NatsOptions},
    shutdown::{self, CancellationToken},
};
use tokio::task::JoinSet;

use super::raw;
use crate::{
    cluster::{connect, nats_options, short_name},
    context::{Exit, Global},
};

/// How long a task takes on them.
const TASK: Duration = Duration::from_millis(10);

/// Cells of a bench: nothing runs on them.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct CellsArgs {
    /// How many
    #[arg(long, default_value_t = 1000)]
    pub(crate) cells: usize,
    /// The number of the first
    #[arg(long, default_value_t = 0)]
    pub(crate) first: usize,
    /// Long-running instances end by themselves: on the first cell after this, on the last after twice as long
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) ends_after: Option<Duration>,
    /// Connections they share
    #[arg(long, default_value_t = 32)]
    pub(crate) connections: usize,
    /// Apps that each cell holds from the start
    #[arg(long, default_value_t = 0)]
    pub(crate) apps_per_cell: usize,
    /// Size of the raw answers, bytes
    #[arg(long, default_value_t = 300)]
    pub(crate) answer: usize,
}

/// Runs the cells until told to end.
pub(crate) async fn run_cells(global: &Global, args: &CellsArgs) -> anyhow::Result<Exit> {
    let end = shutdown::on_signals()?;
    let subjects = Subjects::new(global.prefix.as_str())?;
    let mut buses = Vec::new();
    for _ in 0..args.connections.clamp(1, args.cells.max(1)) {
        // like `vendue rep`
        let options = NatsOptions {
            echo: Echo::None,
            ..nats_options(global, &short_name("bench-cells"), true)
        };
        buses.push(connect(&options).await?);
    }
    let mut tasks = JoinSet::new();
    for (number, bus) in (args.first..).zip(buses.iter().cycle()).take(args.cells) {
        let raw = bus.client.clone();
        let answer = args.answer;
        tasks.spawn(async move { raw::serve(raw, raw::ALL, answer).await });
        let cell = simulated(number, args);
        tasks.spawn(one_cell(cell, bus.clone(), subjects.clone(), end.clone()));
    }
    let echo = buses[0].client.clone();
    let answer = args.answer;
    tasks.spawn(async move { raw::serve(echo, raw::ECHO, answer).await });
    end.cancelled().await;
    tasks.shutdown().await;
    Ok(Exit::Ok)
}

async fn one_cell(
    config: RepConfig,
    bus: Bus,
    subjects: Subjects,
    end: CancellationToken,
) -> anyhow::Result<()> {
    rep::run(config, bus, subjects, end).await?;
    Ok(())
}

fn simulated(number: usize, args: &CellsArgs) -> RepConfig {
    let zone = format!("z{}", number % 4 + 1);
    let mut total = Resources::new(1 << 24, 1 << 24, 100_000);
    total.cpu_millis = 1 << 20;
    let mut config = RepConfig::new(format!("cell-{number}"), zone, total);
    config.executor = ExecutorKind::Simulated(SimulatedConfig {
        apps: args.apps_per_cell,
        task: Some(Span(TASK)),
        lrp: args
            .ends_after
            .map(|after| Span(spread(after, number - args.first, args.cells))),
        ..SimulatedConfig::default()
    });
    config.service = false;
    config.seed = number as u64;
    config
}

/// Returns `after` to twice that, so that not everything ends at the same moment.
fn spread(after: Duration, nth: usize, of: usize) -> Duration {
    after + after.mul_f64(nth as f64 / of.max(1) as f64)
}
