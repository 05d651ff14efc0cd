//! Measures tasks and durable requests: how soon a manager has carried them out, and how many it stores per second.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use async_nats::{
    Subscriber,
    jetstream::{
        self,
        stream::{Config, DiscardPolicy, StorageType},
    },
};
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use shared::wire::{TaskStored, kind, to_bytes};
use tokio::time::timeout;

use super::{
    Divided,
    fleet::{Cells, Fleet, STORE_SAFELY},
    report::{DurableRate, TasksTime},
};
use crate::{
    cluster::{Cluster, Peer},
    context::Global,
    output::note,
};

/// Number of requests that wait for their answers at the same time.
const IN_FLIGHT: usize = 256;
/// How long an answer, or the next end of a task, may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns one request, for a task or an LRP.
fn request(kind: &str, number: u32) -> Value {
    json!({
        "id": format!("{kind}-{number}"), "app": format!("stored-{kind}"), "kind": kind,
        "memory_mb": 1, "disk_mb": 1,
        "run": {"command": ["true"]}, // the cells only simulate it
    })
}

/// Measures how long many tasks take, from the submission of the first to the stored end of the last.
pub(super) async fn tasks(global: &Global, sizes: Divided) -> anyhow::Result<TasksTime> {
    let (cells, count) = (sizes.of(100, 2), sizes.of(1_000, 10));
    let fleet = Fleet::start(global, &[Cells::new(0, cells)]).await?;
    let mut ends = ends(&fleet.cluster).await?;
    note(format_args!("running {count} tasks"));
    let from = Instant::now();
    let submit = store(&fleet.cluster, "task", count);
    let all_ended = async {
        until_ended(&mut ends, count).await?;
        anyhow::Ok(from.elapsed())
    };
    let (submitted, took) = tokio::join!(submit, all_ended);
    Ok(TasksTime {
        cells,
        tasks: count,
        submitted_seconds: submitted?.as_secs_f64(),
        seconds: took?.as_secs_f64(),
    })
}

/// Subscribes to the ends of stored requests.
async fn ends(cluster: &Cluster) -> anyhow::Result<Subscriber> {
    let subject = cluster.subjects.event(kind::TASK_ENDED, "*", "*");
    let ends = cluster.bus.client.subscribe(subject).await?;
    cluster.bus.client.flush().await?;
    Ok(ends)
}

/// Waits until this many stored requests have ended.
async fn until_ended(ends: &mut Subscriber, count: u32) -> anyhow::Result<()> {
    for _ in 0..count {
        let next = timeout(PATIENCE, ends.next()).await;
        next.context("no stored request ended")?
            .context("the connection was closed")?;
    }
    Ok(())
}

/// Measures how many single durable requests are acknowledged per second, each of which waits for the disk, and what
/// the server itself achieves on that disk: half of that before and half after, as others may use the disk, too.
pub(super) async fn durable(global: &Global, sizes: Divided) -> anyhow::Result<DurableRate> {
    let (cells, count) = (sizes.of(100, 2), sizes.of(5_000, 50));
    let cells_of = [Cells::new(0, cells)];
    let fleet = Fleet::start_with(global, &cells_of, STORE_SAFELY).await?;
    note(format_args!("storing {count} messages and then requests"));
    let mut ends = ends(&fleet.cluster).await?;
    let before = publish(&fleet.cluster, count / 2).await?;
    let stored = store(&fleet.cluster, "lrp", count).await?;
    // the ends of the last ones are still being stored
    until_ended(&mut ends, count).await?;
    let after = publish(&fleet.cluster, count - count / 2).await?;
    let published = before + after;
    let rate = |took: Duration| f64::from(count) / took.as_secs_f64();
    Ok(DurableRate {
        cells,
        requests: count,
        in_flight: IN_FLIGHT,
        acknowledged_per_second: rate(stored),
        published_per_second: rate(published),
        ratio: published.as_secs_f64() / stored.as_secs_f64(),
    })
}

/// Has `count` requests stored and returns how long that took.
async fn store(cluster: &Cluster, kind: &str, count: u32) -> anyhow::Result<Duration> {
    let one = async |number: u32| {
        let request = request(kind, number);
        let subject = match kind {
            "task" => cluster
                .subjects
                .task("run", request["id"].as_str().unwrap_or_default()),
            _ => cluster.subjects.app_submit(),
        };
        let who = Peer::ManagerOfTasks;
        let answer = cluster.ask_quietly(who, subject, to_bytes(&request), PATIENCE);
        let stored: TaskStored = serde_json::from_slice(&answer.await?)?;
        if !stored.changed {
            bail!("{} was stored before", stored.task.id);
        }
        Ok(())
    };
    let from = Instant::now();
    let mut answers = stream::iter(0..count).map(one).buffer_unordered(IN_FLIGHT);
    while let Some(answer) = answers.next().await {
        answer?;
    }
    Ok(from.elapsed())
}

/// Measures the server's own rate: acknowledged messages of the same size in a stream with file storage.
async fn publish(cluster: &Cluster, count: u32) -> anyhow::Result<Duration> {
    const STREAM: &str = "BENCH";
    let context = jetstream::new(cluster.bus.client.clone());
    let config = Config {
        name: STREAM.into(),
        subjects: vec!["bench.stored.*".into()],
        max_messages_per_subject: 1,
        discard: DiscardPolicy::New,
        storage: StorageType::File,
        ..Config::default()
    };
    context.create_stream(config).await?;
    let body = to_bytes(&request("lrp", 0));
    let one = async |number: u32| {
        let subject = format!("bench.stored.{number}");
        context.publish(subject, body.clone()).await?.await?;
        anyhow::Ok(())
    };
    let from = Instant::now();
    let mut acks = stream::iter(0..count).map(one).buffer_unordered(IN_FLIGHT);
    while let Some(ack) = acks.next().await {
        ack?;
    }
    let took = from.elapsed();
    context.delete_stream(STREAM).await?;
    Ok(took)
}
