//! `vendue bench`: what this machine and this program achieve, compared with plain NATS in the same run.

mod apps;
mod cells;
mod cluster;
mod dea;
mod footprint;
mod load;
mod part;
mod place;
mod raw;
mod report;

use std::time::Duration;

use serde::Serialize;

use crate::context::{Exit, Global};

/// What can be measured.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Bench {
    /// A cluster of simulated cells on a private nats-server: latency, throughput, processor time, memory
    Cluster(cluster::ClusterArgs),
    /// A manager on simulated cells: restarts, a rollout, lost cells, memory and processor time
    Apps(apps::AppsArgs),
    /// A bridge to a thousand simulated DEAs: processor time, memory, latency of starts
    Dea(dea::DeaArgs),
    /// The placement engine by itself, one thread: made-up jobs on made-up cells
    Place(place::PlaceArgs),
    /// The cells of `bench cluster`, in a process of their own
    #[command(hide = true)]
    Cells(cells::CellsArgs),
}

impl Bench {
    /// Runs a benchmark and prints the results.
    pub(crate) async fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        match self {
            Bench::Cluster(args) => Box::pin(cluster::run_cluster(global, args)).await,
            Bench::Apps(args) => apps::run_apps(global, args).await,
            Bench::Dea(args) => dea::run_dea(global, args).await,
            Bench::Place(args) => place::run_place(global, args),
            Bench::Cells(args) => cells::run_cells(global, args).await,
        }
    }
}

/// The spread of a measured time, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Latency {
    /// Half of the measurements took at most this.
    pub(crate) p50_us: f64,
    /// 99 of 100 took at most this.
    pub(crate) p99_us: f64,
}

impl Latency {
    pub(crate) fn of(mut took: Vec<Duration>) -> Self {
        took.sort_unstable();
        let at = |percent: usize| {
            let last = took.len().saturating_sub(1);
            took.get((last * percent).div_ceil(100))
                .map_or(0.0, |d| d.as_secs_f64() * 1e6)
        };
        Self {
            p50_us: at(50),
            p99_us: at(99),
        }
    }
}
