//! Repeated requests, also at another auctioneer.

use std::time::Duration;

use serde_json::json;
use testkit::eventually;

use crate::{
    cells::{HandCell, Starts},
    harness::{Cluster, request},
};

#[tokio::test]
async fn every_auctioneer_gives_a_repeat_the_same_answer() {
    let cluster = Cluster::start().await;
    let cell = HandCell::start(&cluster, "c1", 1_000).await;
    let first = cluster.warm("a1", "dea", 1).await;
    let second = cluster.warm("a2", "dea", 1).await;
    let watch = cluster.watch().await;
    let body = request("r1", "web", 100, 3);
    let answer = cluster.start_app(&body).await;
    watch.received("vendue.outcome.r1").await;
    for _ in 0..20 {
        assert_eq!(cluster.start_app(&body).await, answer);
    }
    let counters = cluster.counters().await;
    let repeats: Vec<u64> = counters
        .values()
        .filter_map(|c| c["repeats"].as_u64())
        .collect();
    assert_eq!(repeats.iter().sum::<u64>(), 20);
    assert!(
        repeats.iter().all(|n| *n > 0),
        "both were asked: {repeats:?}"
    );
    assert_eq!(
        cell.get(|s| s.starts_received.len()),
        1,
        "nothing was started twice"
    );
    drop((first, second));
}

#[tokio::test]
async fn what_a_dead_auctioneer_announced_is_looked_up_first() {
    let cluster = Cluster::start().await;
    let cell = HandCell::start(&cluster, "c1", 1_000).await;
    let other = HandCell::start(&cluster, "c2", 400).await;
    cell.set(|s| s.starts = Starts::AnswerLate);
    let first = cluster.warm("a1", "dea", 2).await;
    let id = cluster.counters().await.into_keys().next().unwrap();
    let second = cluster.warm("a2", "dea", 2).await;
    let body = request("r1", "web", 10, 1);
    let bytes = serde_json::to_vec(&body).unwrap();
    let subject = cluster.subjects.start();
    let published = bytes.clone().into();
    cluster.client.publish(subject, published).await.unwrap();
    eventually("its start", async || {
        cell.get(|s| s.starts_received.len() == 1)
    })
    .await;
    // the server chooses which of them gets it
    let first_took = eventually("one to have taken it", async || {
        let counters = cluster.counters().await;
        let took = counters
            .iter()
            .find(|(_, c)| c["requests"].as_u64() == Some(1));
        took.map(|(took, _)| *took == id)
    })
    .await;
    let (dead, left) = if first_took {
        (first, second)
    } else {
        (second, first)
    };
    drop(dead); // before the answer
    let reply = eventually("an answer", async || {
        // whatever the dead one still received is lost, and sent again
        let second = Duration::from_secs(1);
        cluster
            .raw_within(second, &cluster.subjects.start(), &bytes)
            .await
    })
    .await;
    let reply: serde_json::Value = serde_json::from_slice(&reply.payload).unwrap();
    assert_eq!(reply["outcome"], "placed", "found where it runs");
    assert_eq!(reply["instances"][0]["cell"], "c1");
    assert_eq!(
        cell.get(|s| s.starts_received.len()),
        1,
        "not started again"
    );
    assert_eq!(other.get(|s| s.starts_received.len()), 0, "nor elsewhere");
    drop(left);
}

#[tokio::test]
async fn a_request_in_progress_is_answered_to_both() {
    let cluster = Cluster::start().await;
    let cell = HandCell::start(&cluster, "c1", 1_000).await;
    cell.set(|s| s.starts = Starts::AnswerLate);
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    let body = request("r1", "web", 100, 1);
    let mut other = body.clone();
    other["memory_mb"] = json!(200);
    let late = async {
        eventually("both to be asked", async || {
            match cluster.counter("repeats").await {
                1 => Ok(()),
                n => Err(n.to_string()),
            }
        })
        .await;
        cell.answer_late().await;
    };
    let (one, two, ()) = tokio::join!(cluster.start_app(&body), cluster.start_app(&other), late);
    assert_eq!(one, two);
    assert_eq!(
        one["warnings"].as_array().unwrap().len(),
        1,
        "another body under the same id"
    );
    assert_eq!(cell.get(|s| s.starts_received.len()), 1);
}
