//! `vendue bench dea`: what a bridge to many simulated DEAs costs, and how soon a start through it is answered. The
//! cluster and the estate each have a private nats-server; the bridge is a separate process.

mod report;

use std::time::Duration;

use advertiser::{
    SimulatedEstate,
    dea::{DeaLimits, DeaStart, FacadeOptions, SimulatedDeas, subjects},
    dea_in::DeaInConfig,
};
use anyhow::{Context, bail};
use async_nats::ConnectOptions;
use nats_server::{Options, Server};
use serde_json::{Value, json};
use shared::{clock::wall_ms, shutdown};
use tokio::time::{Instant, sleep};

use self::report::{Report, Rest};
use super::{load, part::Part};
use crate::{
    cluster::Cluster,
    commands::instances,
    context::{Exit, Format, Global},
    output::{self, note},
    process_usage,
    table::Table,
};

/// Measures a bridge between simulated DEAs and a cluster, on two private nats-servers.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct DeaArgs {
    /// How many DEAs; each advertises every 5 s and sends a heartbeat every 10 s
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    deas: usize,
    /// Instances that each DEA has from the start
    #[arg(long, value_name = "N", default_value_t = 50)]
    instances: usize,
    /// How many starts to send, one at a time
    #[arg(long, value_name = "N", default_value_t = 200)]
    starts: usize,
    /// How long to measure the bridge while DEAs only speak
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = humantime::parse_duration)]
    idle: Duration,
}

/// How long the bridge may take until it knows everything.
const PATIENCE: Duration = Duration::from_secs(120);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);
const BRIDGE: &str = "dea";
const STACK: &str = "cflinuxfs2";
/// Memory in MB of an instance; a DEA has this for each of its instances and for each one that is started.
const MEMORY_MB: i64 = 64;
/// Number of instances of an app.
const OF_APP: usize = 25;

/// Runs the bench and prints the results.
pub(crate) async fn run_dea(global: &Global, args: &DeaArgs) -> anyhow::Result<Exit> {
    let end = shutdown::on_signals()?;
    tokio::select! {
        done = Box::pin(measure(global, args)) => done,
        () = end.cancelled() => Ok(Exit::Interrupted),
    }
}

async fn measure(global: &Global, args: &DeaArgs) -> anyhow::Result<Exit> {
    let (of_cluster, of_estate) = (
        Server::start(Options::default()).await?,
        Server::start(Options::default()).await?,
    );
    let mut global = global.clone();
    global.nats = Some(of_cluster.url());
    let url = global.url().context("no server")?;
    note(format_args!(
        "{} simulated DEAs with {} instances each",
        args.deas, args.instances
    ));
    let options = ConnectOptions::new().no_echo();
    let client = options.connect(of_estate.url()).await?;
    let _estate = SimulatedEstate::start(client, deas(args, &global.prefix)?).await?;
    let _auctioneer = Part::start(&url, &["auctioneer".into(), "--policy=dea".into()])?;
    let begun = Instant::now();
    let arguments = [
        "advertiser".into(),
        "dea-in".into(),
        format!("--name={BRIDGE}"),
        format!("--slots={}", args.deas),
        format!("--dea-server={}", of_estate.url()),
    ];
    let mut bridge = Part::start(&url, &arguments)?;
    let cluster = Cluster::connect(&global).await?;
    until_known(&cluster, &mut bridge, args).await?;
    let (client, subjects) = (&cluster.bus.client, &cluster.subjects);
    let mut report = Report {
        deas: args.deas,
        instances: args.deas * args.instances,
        known_seconds: begun.elapsed().as_secs_f64(),
        ..Report::default()
    };
    instances::until_known(client, subjects, args.deas, 1, PATIENCE).await?;
    note(format_args!("measuring the bridge for {:?}", args.idle));
    report.rest = rest(&cluster, bridge.pid, args.idle).await?;
    note(format_args!("{} starts, one at a time", args.starts));
    report.starts = load::single(&cluster, args.starts, start).await?;
    let state = state(&cluster).await?;
    report.dropped = dropped(&state)?;
    report.bridge_kib = process_usage::resident_kib(bridge.pid)?;
    print(global.output, &report)?;
    Ok(Exit::Ok)
}

/// Creates DEAs as an earlier bridge of the same name left them: the names of their instances say which slot each has.
fn deas(args: &DeaArgs, prefix: &str) -> anyhow::Result<SimulatedDeas> {
    let bridge = DeaInConfig {
        name: BRIDGE.to_owned(),
        slots: args.deas,
        expiry_s: 10,
        settle_ms: 11_000,
    };
    let mark = bridge.mark(prefix);
    let now_ms = u64::try_from(wall_ms()).unwrap_or_default();
    let mut deas = SimulatedDeas::default();
    for n in 0..args.deas {
        let id = format!("{n}-{:032x}", u128::MAX - n as u128);
        let mut options = FacadeOptions::new(&id, "10.0.0.1", vec![STACK.to_owned()], n as u64);
        options.zone = format!("z{}", n % 3);
        // so that they do not all speak at the same moment
        let since_ms = now_ms - options.heartbeat_ms * n as u64 / args.deas.max(1) as u64;
        let memory_mb = i64::try_from(args.instances + args.starts)? * MEMORY_MB;
        deas.add(since_ms, options, memory_mb)?;
        for i in 0..args.instances {
            let body = serde_json::to_vec(&running(&mark, n, n * args.instances + i))?;
            deas.heard(now_ms, &subjects::start(&id), None, &body);
        }
    }
    Ok(deas)
}

/// Returns an instance that was started through a bridge, by its number among all.
fn running(mark: &str, slot: usize, number: usize) -> DeaStart {
    let (app, index) = (format!("bench-{}", number / OF_APP), number % OF_APP);
    DeaStart {
        version: format!("vendue-{mark}-{slot}-r{index}-{app}"),
        droplet: app,
        index: u32::try_from(index).unwrap_or_default(),
        stack: STACK.to_owned(),
        cc_partition: "default".to_owned(),
        limits: DeaLimits {
            mem: MEMORY_MB,
            disk: 0,
            fds: 256,
        },
        ..DeaStart::default()
    }
}

/// Returns a start request for one instance.
fn start(number: usize) -> Value {
    json!({
        "app": format!("bench-start-{number}"), "memory_mb": MEMORY_MB, "disk_mb": 0, "stack": STACK,
        "run": {"droplet": {"uri": "http://127.0.0.1:1/droplet"}},
    })
}

/// Asks the bridge for its state.
async fn state(cluster: &Cluster) -> anyhow::Result<Value> {
    let subject = cluster.subjects.bridge_state(BRIDGE);
    let answer = cluster.bus.client.request(subject, "".into()).await?;
    Ok(serde_json::from_slice(&answer.payload)?)
}

async fn until_known(cluster: &Cluster, bridge: &mut Part, args: &DeaArgs) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = bridge.ended()? {
            bail!("the bridge ended ({status}); what it said stands above");
        }
        let known = state(cluster).await;
        match known {
            Ok(known)
                if known["cells"] == args.deas
                    && known["instances"] == args.deas * args.instances =>
            {
                return Ok(());
            }
            known if Instant::now() > end => {
                bail!("the bridge does not know everything after {PATIENCE:?}: {known:?}")
            }
            _ => sleep(PAUSE).await,
        }
    }
}

async fn rest(cluster: &Cluster, pid: u32, time: Duration) -> anyhow::Result<Rest> {
    let heard = |state: &Value| state["heard"].as_u64().context("no counter heard");
    let before = (
        process_usage::cpu_seconds(pid)?,
        heard(&state(cluster).await?)?,
    );
    let begun = Instant::now();
    sleep(time).await;
    let seconds = begun.elapsed().as_secs_f64();
    let used = process_usage::cpu_seconds(pid)? - before.0;
    Ok(Rest {
        seconds,
        bridge_cpu_percent: used / seconds * 100.0,
        heard: heard(&state(cluster).await?)? - before.1,
    })
}

/// Sums everything that a bridge counts as dropped.
fn dropped(state: &Value) -> anyhow::Result<u64> {
    let all = state
        .as_object()
        .context("the bridge's state is no object")?;
    let dropped = all.iter().filter(|(name, _)| name.starts_with("dropped_"));
    let counts = dropped.map(|(name, count)| {
        let count = count.as_u64();
        count.with_context(|| format!("{name} is no number"))
    });
    counts.sum()
}

fn print(format: Format, report: &Report) -> anyhow::Result<()> {
    if format == Format::Json {
        return output::document(report);
    }
    let mut table = Table::new(&["", "figure", "aim", "beside"]);
    for row in report.rows() {
        table.add_row(row);
    }
    Ok(table.print()?)
}
