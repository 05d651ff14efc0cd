//! `sim record`: records the cells and requests of a live cluster as a scenario.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use async_nats::Subscriber;
use futures_util::StreamExt;
use shared::{
    ask,
    wire::{Instances, InstancesAnswer, Page, PoolAnswer, to_bytes},
};
use simulator::scenario::recording::Recording;
use tokio::time::{Instant, sleep_until};

use crate::{
    cluster::{Cluster, Peer, TIMEOUT},
    context::{Exit, Global},
    output::{counted, note, say},
};

/// How long cells have to advertise before the recording begins.
const DISCOVERY: Duration = Duration::from_secs(2);
/// After this long without an advertisement, all cells have advertised.
const QUIET: Duration = Duration::from_millis(500);

/// See `vendue sim record --help`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RecordArgs {
    /// File for the scenario, as TOML [default: standard output]
    file: Option<PathBuf>,
    /// How long to record [default: until Ctrl-C]
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    lasts: Option<Duration>,
    /// Name of the scenario
    #[arg(long, default_value = "recorded")]
    name: String,
}

struct Subscriptions {
    adverts: Subscriber,
    starts: Subscriber,
    stops: Subscriber,
}

/// Records, then writes the scenario.
pub(crate) async fn record(global: &Global, args: &RecordArgs) -> anyhow::Result<Exit> {
    let cluster = Cluster::connect(global).await?;
    let client = &cluster.bus.client;
    let subjects = &cluster.subjects;
    let mut subscriptions = Subscriptions {
        adverts: client.subscribe(subjects.adverts()).await?,
        starts: client.subscribe(subjects.start()).await?,
        stops: client.subscribe(subjects.stop()).await?,
    };
    let mut recording = Recording::default();
    discover(&cluster, &mut subscriptions, &mut recording).await?;
    let policy = policy(&cluster).await;
    let begin = Instant::now();
    note(format_args!(
        "recording {}; Ctrl-C ends the recording",
        counted(recording.cells(), "cell")
    ));
    listen(&mut subscriptions, &mut recording, begin, args.lasts).await;
    let lasted_ms = u64::try_from(begin.elapsed().as_millis())?;
    let text = recording.scenario(&args.name, &policy, lasted_ms)?;
    note(format_args!(
        "recorded {}, {} requests and stops in {:.1} s; {} messages left out",
        counted(recording.cells(), "cell"),
        recording.demands(),
        lasted_ms as f64 / 1e3,
        recording.left_out
    ));
    match &args.file {
        None => say(text.trim_end())?,
        Some(file) => std::fs::write(file, text).with_context(|| file.display().to_string())?,
    }
    Ok(Exit::Ok)
}

/// Asks every cell to advertise and to list its instances.
async fn discover(
    cluster: &Cluster,
    subscriptions: &mut Subscriptions,
    recording: &mut Recording,
) -> anyhow::Result<()> {
    let (client, subjects) = (&cluster.bus.client, &cluster.subjects);
    let body = to_bytes(&serde_json::json!({ "v": shared::VERSION }));
    client.publish(subjects.discover(), body).await?;
    let end = Instant::now() + DISCOVERY;
    let mut quiet = end;
    loop {
        tokio::select! {
            advert = subscriptions.adverts.next() => {
                let Some(advert) = advert else { anyhow::bail!("the connection to NATS was closed") };
                recording.advert(&advert.payload);
                quiet = Instant::now() + QUIET;
            }
            () = sleep_until(quiet.min(end)) => break,
        }
    }
    held(cluster, recording).await
}

async fn held(cluster: &Cluster, recording: &mut Recording) -> anyhow::Result<()> {
    let (cells, mut answered) = (recording.cells(), 0);
    let answers = |answer: Result<InstancesAnswer, _>| {
        if let Ok(answer) = answer {
            answered += usize::from(!answer.more);
            recording.holds(answer);
        }
        answered >= cells
    };
    let (question, wait) = (Instances::default(), (TIMEOUT, Some(QUIET)));
    ask::instances(&cluster.bus, &cluster.subjects, &question, wait, answers).await?;
    if answered < cells {
        note(format_args!(
            "{} of {cells} cells did not list their instances",
            cells - answered
        ));
    }
    Ok(())
}

/// Returns the policy of an auctioneer; a replay may use another one.
async fn policy(cluster: &Cluster) -> String {
    let page = Page {
        v: shared::VERSION,
        offset: 0,
        limit: Some(1),
    };
    let asked =
        cluster.ask::<PoolAnswer>(Peer::Auctioneer, cluster.subjects.pool(), &page, TIMEOUT);
    let known = |name: &String| placement::Policy::preset(name).is_ok();
    let answer = asked.await.ok().map(|answer| answer.policy);
    answer.filter(known).unwrap_or_else(|| "diego".into())
}

async fn listen(
    subscriptions: &mut Subscriptions,
    recording: &mut Recording,
    begin: Instant,
    lasts: Option<Duration>,
) {
    // without an end, a year
    let end = begin + lasts.unwrap_or(Duration::from_secs(365 * 86_400));
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let at_ms = || u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        tokio::select! {
            Some(advert) = subscriptions.adverts.next() => recording.advert(&advert.payload),
            Some(start) = subscriptions.starts.next() => recording.start(at_ms(), &start.payload),
            Some(stop) = subscriptions.stops.next() => recording.stop(at_ms(), &stop.payload),
            () = sleep_until(end) => return,
            _ = &mut interrupted => return,
            else => return,
        }
    }
}
