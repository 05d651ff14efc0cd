//! `sim record`: a live cluster's advertisements and requests, as a scenario to be replayed.

use std::{path::PathBuf, time::Duration};

use anyhow::Context;
use async_nats::{Client, Subscriber};
use futures_util::StreamExt;
use shared::{
    ask::gather,
    wire::{Instances, InstancesAnswer, Page, PoolAnswer, to_bytes},
};
use simulator::record::Recording;
use tokio::time::{Instant, sleep_until};

use crate::{
    asking::{Cluster, PATIENCE},
    cli::Global,
    commands::Done,
    output::{note, say},
};

/// How long cells have to say how they are before the recording begins.
const ROLL_CALL: Duration = Duration::from_secs(2);
/// Cells that say nothing for so long have all spoken.
const QUIET: Duration = Duration::from_millis(500);

/// See `vendue sim record --help`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct RecordArgs {
    /// Where the scenario goes, as TOML [default: standard output]
    file: Option<PathBuf>,
    /// How long to listen [default: until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    lasts: Option<Duration>,
    /// The scenario's name
    #[arg(long, default_value = "recorded")]
    name: String,
}

struct Heard {
    adverts: Subscriber,
    starts: Subscriber,
    stops: Subscriber,
}

/// Listens, then writes.
pub(crate) async fn record(global: &Global, args: &RecordArgs) -> anyhow::Result<Done> {
    let cluster = Cluster::connect(global).await?;
    let client = &cluster.bus.client;
    let subjects = &cluster.subjects;
    let mut heard = Heard {
        adverts: client.subscribe(subjects.adverts()).await?,
        starts: client.subscribe(subjects.start()).await?,
        stops: client.subscribe(subjects.stop()).await?,
    };
    let mut recording = Recording::default();
    roll_call(&cluster, &mut heard, &mut recording).await?;
    let policy = policy(&cluster).await;
    let begin = Instant::now();
    note(format_args!(
        "recording {} cells; Ctrl-C ends it",
        recording.cells()
    ));
    listen(&mut heard, &mut recording, begin, args.lasts).await;
    let lasted_ms = u64::try_from(begin.elapsed().as_millis())?;
    let text = recording.scenario(&args.name, &policy, lasted_ms)?;
    note(format_args!(
        "{} cells, {} requests and stops in {:.1} s; {} messages left out",
        recording.cells(),
        recording.demands(),
        lasted_ms as f64 / 1e3,
        recording.left_out
    ));
    match &args.file {
        None => say(text.trim_end())?,
        Some(file) => std::fs::write(file, text).with_context(|| file.display().to_string())?,
    }
    Ok(Done::Well)
}

/// Every cell says how it is and what it holds.
async fn roll_call(
    cluster: &Cluster,
    heard: &mut Heard,
    recording: &mut Recording,
) -> anyhow::Result<()> {
    let (client, subjects) = (&cluster.bus.client, &cluster.subjects);
    let body = to_bytes(&serde_json::json!({ "v": shared::VERSION }));
    client.publish(subjects.discover(), body).await?;
    let end = Instant::now() + ROLL_CALL;
    let mut quiet = end;
    loop {
        tokio::select! {
            advert = heard.adverts.next() => {
                let Some(advert) = advert else { anyhow::bail!("the connection was closed") };
                recording.advert(&advert.payload);
                quiet = Instant::now() + QUIET;
            }
            () = sleep_until(quiet.min(end)) => break,
        }
    }
    held(client, subjects.instances(), recording).await
}

async fn held(client: &Client, subject: String, recording: &mut Recording) -> anyhow::Result<()> {
    let (cells, mut answered) = (recording.cells(), 0);
    let question = to_bytes(&Instances::default());
    let answers = |message: async_nats::Message| {
        if let Ok(answer) = serde_json::from_slice::<InstancesAnswer>(&message.payload) {
            answered += usize::from(!answer.more);
            recording.holds(answer);
        }
        answered >= cells
    };
    gather(client, subject, question, PATIENCE, Some(QUIET), answers).await?;
    if answered < cells {
        note(format_args!(
            "{} of {cells} cells did not say what they hold",
            cells - answered
        ));
    }
    Ok(())
}

/// The policy of whoever answers; a replay may name another.
async fn policy(cluster: &Cluster) -> String {
    let page = Page {
        v: shared::VERSION,
        offset: 0,
        limit: Some(1),
    };
    let asked = cluster.ask::<PoolAnswer>("auctioneer", cluster.subjects.pool(), &page, PATIENCE);
    let known = |name: &String| placement::Policy::preset(name).is_ok();
    let answer = asked.await.ok().map(|answer| answer.policy);
    answer.filter(known).unwrap_or_else(|| "diego".into())
}

async fn listen(
    heard: &mut Heard,
    recording: &mut Recording,
    begin: Instant,
    lasts: Option<Duration>,
) {
    // a year is for ever
    let end = begin + lasts.unwrap_or(Duration::from_secs(365 * 86_400));
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let at_ms = || u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        tokio::select! {
            Some(advert) = heard.adverts.next() => recording.advert(&advert.payload),
            Some(start) = heard.starts.next() => recording.start(at_ms(), &start.payload),
            Some(stop) = heard.stops.next() => recording.stop(at_ms(), &stop.payload),
            () = sleep_until(end) => return,
            _ = &mut interrupted => return,
            else => return,
        }
    }
}
