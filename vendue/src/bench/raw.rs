//! What plain NATS achieves on this machine with bodies of the same sizes: the reference for the rest.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_nats::Client;
use bytes::Bytes;
use futures_util::StreamExt;
use shared::ask;

use super::Latency;

/// Raw subjects, separate from the cluster's own.
pub(crate) const ECHO: &str = "bench.raw.echo";
/// Every raw cell answers this one.
pub(crate) const ALL: &str = "bench.raw.all";

/// Answers everything on a subject with a body of this size: a raw cell, or the raw counterpart of an auctioneer.
pub(crate) async fn serve(client: Client, subject: &str, answer: usize) -> anyhow::Result<()> {
    let mut questions = client.subscribe(subject.to_owned()).await?;
    let body = Bytes::from(vec![b'x'; answer]);
    while let Some(question) = questions.next().await {
        if let Some(reply) = question.reply {
            client.publish(reply, body.clone()).await?;
        }
    }
    Ok(())
}

/// Times requests that are sent one at a time.
pub(crate) async fn one_at_a_time(
    client: &Client,
    body: usize,
    rounds: usize,
) -> anyhow::Result<Latency> {
    let body = Bytes::from(vec![b'x'; body]);
    timed(rounds, async || {
        client.request(ECHO, body.clone()).await?;
        Ok(())
    })
    .await
}

/// Repeats an operation, timing each.
async fn timed(
    rounds: usize,
    once: impl AsyncFn() -> anyhow::Result<()>,
) -> anyhow::Result<Latency> {
    let mut took = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let start = Instant::now();
        once().await?;
        took.push(start.elapsed());
    }
    Ok(Latency::of(took))
}

/// Times one question to all with all their answers, followed by one request: the minimum cost of a placement that asks
/// all cells.
pub(crate) async fn question_and_request(
    client: &Client,
    cells: usize,
    body: usize,
    rounds: usize,
) -> anyhow::Result<Latency> {
    let body = Bytes::from(vec![b'x'; body]);
    timed(rounds, async || {
        let mut answers = 0;
        let ended = ask::gather(
            client,
            ALL.into(),
            body.clone(),
            Duration::from_secs(10),
            None,
            |_| {
                answers += 1;
                answers == cells
            },
        )
        .await?;
        anyhow::ensure!(
            ended == ask::GatherEnd::Enough,
            "only {answers} of {cells} raw cells answered"
        );
        client.request(ECHO, body.clone()).await?;
        Ok(())
    })
    .await
}

/// Returns the requests per second with this many in flight.
pub(crate) async fn rate(
    client: &Client,
    body: usize,
    in_flight: usize,
    requests: usize,
) -> anyhow::Result<f64> {
    let body = Bytes::from(vec![b'x'; body]);
    let left = Arc::new(AtomicUsize::new(requests));
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..in_flight {
        let (client, body, left) = (client.clone(), body.clone(), Arc::clone(&left));
        tasks.spawn(async move {
            let take = |n: usize| n.checked_sub(1);
            while left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .is_ok()
            {
                client.request(ECHO, body.clone()).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(requests as f64 / start.elapsed().as_secs_f64())
}
