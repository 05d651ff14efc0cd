//! The subject names the sender: a body that says otherwise is not believed, and answers only go to inboxes.

use std::{
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_nats::HeaderMap;
use futures_util::StreamExt;
use serde_json::{Value, json};
use shared::{ANSWER_TO, wire::Instances};
use testkit::eventually;
use uuid::Uuid;

use crate::{
    cells::HandCell,
    harness::{Cluster, cells_of, request},
};

/// Waits until the only auctioneer has counted at least this many.
async fn counted(cluster: &Cluster, counter: &str, wanted: u64) {
    eventually(counter, async || match cluster.counter(counter).await {
        count if count >= wanted => Ok(()),
        count => Err(count),
    })
    .await;
}

#[tokio::test]
async fn an_answer_below_another_cells_subject_is_not_believed() {
    let cluster = Cluster::start().await;
    let _honest = HandCell::start(&cluster, "c1", 1_000).await;
    let forger = HandCell::start(&cluster, "c2", 100_000).await;
    forger.set(|s| s.speaks_as = Some("c1".into()));
    let _auctioneer = cluster.warm("a1", "diego", 2).await;
    let reply = cluster.start_app(&request("r1", "web", 100, 1)).await;
    // the other cell has much more room, but its bid did not count
    assert_eq!(cells_of(&reply), ["c1"], "{reply}");
    counted(&cluster, "dropped_wrong_subject", 1).await;

    let bus = cluster.bus("asker").await;
    let mut heard = Vec::new();
    let wait = (Duration::from_secs(20), Some(Duration::from_millis(300)));
    let take = |answer: Result<shared::wire::InstancesAnswer, _>| {
        heard.push(answer.unwrap().cell);
        false
    };
    let question = Instances::default();
    shared::ask::instances(&bus, &cluster.subjects, &question, wait, take)
        .await
        .unwrap();
    assert_eq!(heard, ["c1"]);
}

/// What is logged on this thread.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn unreadable_answers_are_counted_and_logged() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let cluster = Cluster::start().await;
    let cell = HandCell::start(&cluster, "c1", 1_000).await;
    cell.set(|s| s.is_unreadable = true);
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    let reply = cluster.start_app(&request("r1", "web", 100, 1)).await;
    assert_eq!(reply["outcome"], "unknown");
    counted(&cluster, "dropped_malformed", 1).await;
    cluster
        .raw("vendue.stop", br#"{"app":"web"}"#)
        .await
        .unwrap();
    counted(&cluster, "dropped_malformed", 2).await;
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let dropped = text
        .lines()
        .filter(|line| line.contains("malformed message"));
    let dropped: Vec<&str> = dropped
        .filter(|line| line.contains("missing field"))
        .collect();
    assert!(dropped.len() >= 2, "{text}");
    assert!(dropped[0].contains(".answer.a1.start-"), "{text}");
}

#[tokio::test]
async fn an_announcement_below_another_auctioneers_subject_is_not_believed() {
    let cluster = Cluster::start().await;
    let _cell = HandCell::start(&cluster, "c1", 1_000).await;
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    let forged = json!({"v": 1, "kind": "asked", "app": "web", "by": "a2", "request": "r1", "auction": Uuid::from_u128(1)});
    let subject = cluster.subjects.event("asked", "web", "c1");
    let body = serde_json::to_vec(&forged).unwrap();
    cluster.client.publish(subject, body.into()).await.unwrap();
    counted(&cluster, "dropped_wrong_subject", 1).await;
    let reply = cluster.start_app(&request("r1", "web", 100, 1)).await;
    assert_eq!(reply["outcome"], "placed");
    assert_eq!(cluster.counter("repeats").await, 0);
}

#[tokio::test]
async fn what_waits_is_told_below_the_auctioneers_own_subject() {
    let cluster = Cluster::start().await;
    let _auctioneer = cluster.warm("a1", "dea", 0).await;
    let answers = "vendue.auctioneer.*.answer.alice.n1";
    let mut answers = cluster.client.subscribe(answers).await.unwrap();
    let mut headers = HeaderMap::new();
    headers.insert(ANSWER_TO, "alice.n1");
    let sent = cluster
        .client
        .publish_with_headers(cluster.subjects.queued(), headers, "".into());
    sent.await.unwrap();
    let answer = tokio::time::timeout(testkit::DEFAULT_DEADLINE, answers.next()).await;
    let answer = answer.unwrap().unwrap();
    assert_eq!(
        answer.subject.as_str(),
        "vendue.auctioneer.a1.answer.alice.n1"
    );
    let body: Value = serde_json::from_slice(&answer.payload).unwrap();
    assert_eq!(body["auctioneer"], "a1");
    // without the header, the way every NATS client asks
    let plain = cluster.try_ask(&cluster.subjects.queued(), b"").await;
    assert_eq!(plain.unwrap()["auctioneer"], "a1");
}

#[tokio::test]
async fn nobody_can_make_an_auctioneer_publish_on_a_subject_of_his_choice() {
    let cluster = Cluster::start().await;
    let _cell = HandCell::start(&cluster, "c1", 1_000).await;
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    let mut elsewhere = cluster.client.subscribe("elsewhere").await.unwrap();
    let watch = cluster.watch().await;
    let body = serde_json::to_vec(&request("r1", "web", 100, 1)).unwrap();
    for subject in [cluster.subjects.start(), cluster.subjects.pool()] {
        let sent = cluster
            .client
            .publish_with_reply(subject, "elsewhere", body.clone().into());
        sent.await.unwrap();
    }
    // the work is done nevertheless: its outcome is published
    let outcome = watch.received("vendue.outcome.r1").await;
    assert_eq!(outcome["outcome"], "placed");
    counted(&cluster, "dropped_reply_subject", 2).await;
    let heard = tokio::time::timeout(Duration::ZERO, elsewhere.next()).await;
    assert!(heard.is_err(), "{heard:?}");
}
