//! The load: single starts, then arrays of them, as any client sends them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use async_nats::client::Request as NatsRequest;
use bytes::Bytes;
use shared::wire::{Outcome, StartReplies, StartReply, to_bytes};

use super::{
    Latency,
    report::{Batched, Single},
};
use crate::cluster::Cluster;

/// How long one array may take, as the load is meant to pile up.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns a start request as small as people write it.
pub(crate) fn request(number: usize) -> placement::Request {
    let mut request = placement::Request::new(format!("bench-{number}"), 8, 8);
    request.run = Some(placement::Run {
        command: vec!["true".into()], // the cells only simulate it
        ..placement::Run::default()
    });
    request
}

/// Sends starts one by one, each after the previous one was answered.
pub(crate) async fn single<T: serde::Serialize>(
    cluster: &Cluster,
    rounds: usize,
    request: impl Fn(usize) -> T,
) -> anyhow::Result<Single> {
    let mut took = Vec::with_capacity(rounds);
    let mut placed = 0;
    for round in 0..rounds {
        let body = to_bytes(&request(round));
        let start = Instant::now();
        let answer = cluster
            .bus
            .client
            .request(cluster.subjects.start(), body)
            .await?;
        took.push(start.elapsed());
        let reply: StartReply = serde_json::from_slice(&answer.payload)?;
        placed += usize::from(reply.outcome == Outcome::Placed);
    }
    Ok(Single {
        requests: rounds,
        placed,
        latency: Latency::of(took),
        ..Single::default()
    })
}

/// Arrays of `array` requests, `in_flight` at a time, until `requests` are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heap {
    pub(crate) requests: usize,
    pub(crate) array: usize,
    pub(crate) in_flight: usize,
    /// Whether the requests have ids.
    pub(crate) given_ids: bool,
}

/// Sends the arrays, and counts the accepted requests.
pub(crate) async fn batched(cluster: &Cluster, heap: Heap) -> anyhow::Result<Batched> {
    let in_flight = heap.in_flight;
    let array = heap.array.clamp(1, heap.requests.max(1));
    let bodies = 0..heap.requests / array;
    let bodies: Vec<Bytes> = bodies.map(|n| body(n, array, heap.given_ids)).collect();
    let bodies = Arc::new(bodies);
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..in_flight {
        let (client, subject) = (cluster.bus.client.clone(), cluster.subjects.start());
        let (bodies, next) = (Arc::clone(&bodies), Arc::clone(&next));
        tasks.spawn(async move {
            let mut accepted = 0;
            while let Some(body) = bodies.get(next.fetch_add(1, Ordering::Relaxed)) {
                let request = NatsRequest::new()
                    .payload(body.clone())
                    .timeout(Some(TIMEOUT));
                let answer = client.send_request(subject.clone(), request).await?;
                accepted += count_placed(&answer.payload)?;
            }
            anyhow::Ok(accepted)
        });
    }
    let mut accepted = 0;
    while let Some(ended) = tasks.join_next().await {
        accepted += ended??;
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(Batched {
        requests: bodies.len() * array,
        accepted,
        array,
        in_flight,
        accepted_per_second: accepted as f64 / seconds,
        ..Batched::default()
    })
}

fn body(number: usize, array: usize, given_ids: bool) -> Bytes {
    let requests: Vec<_> = (0..array)
        .map(|n| {
            let mut request = request(1_000_000 + number * array + n);
            request.deadline = Some(placement::Span(Duration::from_secs(30)));
            if given_ids {
                request.id = format!("bench-{number}-{n}");
            }
            request
        })
        .collect();
    to_bytes(&requests)
}

fn count_placed(answer: &[u8]) -> anyhow::Result<usize> {
    #[derive(serde::Deserialize)]
    struct One {
        outcome: Option<Outcome>,
    }
    let replies: StartReplies<One> = serde_json::from_slice(answer)?;
    Ok(replies
        .requests
        .iter()
        .filter(|r| r.outcome == Some(Outcome::Placed))
        .count())
}
