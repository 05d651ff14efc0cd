//! `vendue bench cluster`: simulated cells in one process, the auctioneer in another, a real nats-server, and plain
//! NATS measured in the same run.

use std::time::Duration;

use anyhow::Context;
use nats_server::{Options, Server};
use shared::{permissions::Role, shutdown, wire::to_bytes};
use tokio::time::{Instant, sleep};

use super::{
    footprint, load,
    part::Part,
    raw,
    report::{Adverts, Cpu, Raw, Report},
};
use crate::{
    cluster::Cluster,
    commands::instances,
    context::{Exit, Format, Global},
    output::{self, note},
    process_usage,
    table::Table,
};

/// Measures a cluster of simulated cells on a private nats-server.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ClusterArgs {
    /// How many cells
    #[arg(long, value_name = "N", default_value_t = 1000)]
    cells: usize,
    /// How many starts to send in arrays; before them a tenth as many, at most 300, one at a time
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    requests: usize,
    /// The auctioneer's policy
    #[arg(long, value_name = "NAME|FILE", default_value = "diego")]
    policy: String,
    /// Apps that each cell holds from the start
    #[arg(long, value_name = "N", default_value_t = 0)]
    apps_per_cell: usize,
    /// Requests in an array
    #[arg(long, value_name = "N", default_value_t = 1000)]
    array: usize,
    /// Arrays that wait for their answers at the same time
    #[arg(long, value_name = "N", default_value_t = 8)]
    in_flight: usize,
    /// Give the requests in arrays ids, for which a new auctioneer asks the cells first
    #[arg(long)]
    given_ids: bool,
    /// How long to measure the idle cluster, in which cells only advertise
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    idle: Duration,
    /// Connections that the cells share
    #[arg(long, value_name = "N", default_value_t = 32)]
    connections: usize,
}

/// Runs the bench and prints the results.
pub(crate) async fn run_cluster(global: &Global, args: &ClusterArgs) -> anyhow::Result<Exit> {
    let end = shutdown::on_signals()?;
    let mut server = Server::start(Options::default()).await?;
    let mut global = global.clone();
    global.nats = Some(server.url());
    let done = tokio::select! {
        done = measure(&global, args, server.pid().unwrap_or_default()) => done,
        () = end.cancelled() => Ok(Exit::Interrupted),
    };
    server.stop().await;
    done
}

async fn measure(global: &Global, args: &ClusterArgs, server: u32) -> anyhow::Result<Exit> {
    let url = global.url().context("no server")?;
    note(format_args!("starting {} simulated cells", args.cells));
    let cells = Part::start(
        &url,
        &[
            "bench".into(),
            "cells".into(),
            format!("--cells={}", args.cells),
            format!("--connections={}", args.connections),
            format!("--apps-per-cell={}", args.apps_per_cell),
        ],
    )?;
    let cluster = Cluster::connect(global).await?;
    let mut report = Report {
        policy: args.policy.clone(),
        cells: args.cells,
        apps_per_cell: args.apps_per_cell,
        ..Report::default()
    };
    let auctioneer = Part::start(
        &url,
        &["auctioneer".into(), format!("--policy={}", args.policy)],
    )?;
    let (client, subjects) = (&cluster.bus.client, &cluster.subjects);
    let patience = Duration::from_secs(60);
    instances::until_known(client, subjects, args.cells, 1, patience).await?;

    note("measuring plain NATS");
    report.raw = measure_raw(&cluster, args).await?;
    let rounds = (args.requests / 10).clamp(1, 300);
    note(format_args!("{rounds} starts, one at a time"));
    report.single = load::single(&cluster, rounds, load::request).await?;
    report.single.over_request = report.single.latency.p50_us / report.raw.request.p50_us;
    report.single.over_question_and_request =
        report.single.latency.p50_us / report.raw.question_and_request.p50_us;
    note(format_args!(
        "{} starts in arrays of {}",
        args.requests, args.array
    ));
    let pids = [auctioneer.pid, cells.pid, server, std::process::id()];
    let before = cpu_of(pids)?;
    let heap = load::Heap {
        requests: args.requests,
        array: args.array,
        in_flight: args.in_flight,
        given_ids: args.given_ids,
    };
    report.batched = load::batched(&cluster, heap).await?;
    report.batched.cpu = cpu_per_start(before, cpu_of(pids)?, report.batched.accepted);
    report.batched.share_of_raw =
        report.batched.accepted_per_second / report.raw.requests_per_second;
    note(format_args!(
        "measuring the idle cluster for {:?}",
        args.idle
    ));
    report.adverts = measure_adverts(&cluster, auctioneer.pid, args).await?;
    report.memory = footprint::measure(global, auctioneer.pid).await?;
    drop((cells, auctioneer));
    print(global.output, &report)?;
    Ok(Exit::Ok)
}

async fn measure_raw(cluster: &Cluster, args: &ClusterArgs) -> anyhow::Result<Raw> {
    let client = &cluster.bus.client;
    let body = to_bytes(&load::request(0)).len();
    let rounds = 200;
    Ok(Raw {
        request: raw::one_at_a_time(client, body, 2000).await?,
        question_and_request: raw::question_and_request(client, args.cells, body, rounds).await?,
        requests_per_second: raw::rate(client, body, 256, 200_000).await?,
    })
}

async fn measure_adverts(
    cluster: &Cluster,
    pid: u32,
    args: &ClusterArgs,
) -> anyhow::Result<Adverts> {
    sleep(Duration::from_secs(2)).await; // effects of the load
    let (before, start) = (process_usage::cpu_seconds(pid)?, Instant::now());
    sleep(args.idle).await;
    let seconds = start.elapsed().as_secs_f64();
    let used = process_usage::cpu_seconds(pid)? - before;
    let (client, subjects) = (&cluster.bus.client, &cluster.subjects);
    let known = instances::first_of_pool(client, subjects).await;
    Ok(Adverts {
        seconds,
        auctioneer_cpu_percent: used / seconds * 100.0,
        dropped: dropped(cluster).await?,
        cells_known: known.map_or(0, |page| page.total),
    })
}

/// Returns the number of cells' messages that the auctioneer did not use, from its service's statistics.
async fn dropped(cluster: &Cluster) -> anyhow::Result<u64> {
    dropped_of(&counters(cluster, Role::Auctioneer, "start").await?)
}

/// Returns the counters of a role, which one endpoint of its service reports.
pub(super) async fn counters(
    cluster: &Cluster,
    role: Role,
    endpoint: &str,
) -> anyhow::Result<serde_json::Value> {
    let subject = format!("$SRV.STATS.{}", cluster.subjects.service(role));
    let answer = cluster.bus.client.request(subject, "".into()).await?;
    let mut stats: serde_json::Value = serde_json::from_slice(&answer.payload)?;
    let endpoints = stats["endpoints"].as_array_mut().into_iter().flatten();
    let mut counters = endpoints.filter(|found| found["name"] == endpoint);
    let counters = counters.next();
    let counters = counters.with_context(|| format!("no endpoint {endpoint}"))?;
    Ok(counters["data"].take())
}

/// The auctioneer's counters of cells' messages that it did not use. Messages with a version older than the known one
/// count too, as they take up capacity on the way.
const DROPPED: [&str; 7] = [
    "dropped_too_fast",
    "dropped_malformed",
    "dropped_wrong_subject",
    "dropped_too_large",
    "dropped_old_seq",
    "dropped_old_incarnation",
    "dropped_pool_full",
];

fn dropped_of(counters: &serde_json::Value) -> anyhow::Result<u64> {
    let count = |name| {
        let count = counters[name].as_u64();
        count.with_context(|| format!("the auctioneer has no counter {name}"))
    };
    DROPPED.into_iter().map(count).sum()
}

fn cpu_of(pids: [u32; 4]) -> anyhow::Result<[f64; 4]> {
    let mut seconds = [0.0; 4];
    for (pid, seconds) in pids.into_iter().zip(&mut seconds) {
        *seconds = process_usage::cpu_seconds(pid)?;
    }
    Ok(seconds)
}

fn cpu_per_start(before: [f64; 4], after: [f64; 4], starts: usize) -> Cpu {
    let us = |which: usize| (after[which] - before[which]) * 1e6 / starts.max(1) as f64;
    Cpu {
        auctioneer_us: us(0),
        cells_us: us(1),
        server_us: us(2),
        client_us: us(3),
    }
}

fn print(format: Format, report: &Report) -> anyhow::Result<()> {
    if format == Format::Json {
        return output::document(report);
    }
    let mut table = Table::new(&["", "figure", "beside"]);
    for row in report.rows() {
        table.add_row(row);
    }
    Ok(table.print()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_is_summed_by_the_names_that_the_auctioneer_counts_under() {
        let counters = auctioneer::Counters {
            dropped_too_fast: 1,
            dropped_malformed: 2,
            dropped_wrong_subject: 4,
            dropped_too_large: 8,
            dropped_old_seq: 16,
            dropped_old_incarnation: 32,
            dropped_pool_full: 64,
            reports: 1_000,
            refused: 1_000,
            ..auctioneer::Counters::default()
        };
        let counters = serde_json::to_value(counters).unwrap();
        assert_eq!(dropped_of(&counters).unwrap(), 127);
        assert!(dropped_of(&serde_json::Value::Null).is_err());
    }
}
