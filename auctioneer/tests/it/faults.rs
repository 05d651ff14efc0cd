//! Cells that do not answer, servers that disappear, auctioneers that die.

use std::time::Duration;

use auctioneer::AuctioneerError;
use serde_json::json;
use testkit::{Link, eventually};

use crate::{
    cells::{HandCell, Starts},
    harness::{Cluster, cells_of, request},
};

#[tokio::test]
async fn without_responders_another_cell_gets_it() {
    for policy in ["dea", "diego"] {
        let cluster = Cluster::start().await;
        let dead = HandCell::start(&cluster, "c1", 1_000).await;
        let _alive = HandCell::start(&cluster, "c2", 400).await;
        let _auctioneer = cluster.warm("a1", policy, 2).await;
        drop(dead); // without withdrawing: its advertisement is still valid
        cluster.no_connection_of("c1").await;
        let reply = cluster.start_app(&request("r1", "web", 100, 1)).await;
        assert_eq!(cells_of(&reply), ["c2"], "{policy}: {reply}");
        cluster.sees("a1", 2).await; // and it is not reported as lost for that
        if policy == "dea" {
            assert_eq!(cluster.counter("no_responders").await, 1);
        }
    }
}

#[tokio::test]
async fn no_answer_is_unknown_and_a_late_one_settles_it() {
    let cluster = Cluster::start().await;
    let slow = HandCell::start(&cluster, "c1", 1_000).await;
    let other = HandCell::start(&cluster, "c2", 400).await;
    slow.set(|s| s.starts = Starts::AnswerLate);
    let _auctioneer = cluster.warm("a1", "dea", 2).await;
    let watch = cluster.watch().await;
    let reply = cluster.start_app(&request("r1", "web", 100, 1)).await;
    assert_eq!(reply["outcome"], "unknown");
    assert_eq!(reply["instances"][0]["cell"], "c1");
    assert_eq!(
        reply["instances"][0]["reason"],
        "no answer within 1s; not started elsewhere"
    );
    watch.received("vendue.event.unknown.web").await;
    assert_eq!(watch.count("vendue.event.placed.web"), 0);
    slow.answer_late().await;
    let placed = watch.received("vendue.event.placed.web").await;
    assert_eq!(
        (&placed["request"], &placed["count"]),
        (&json!("r1"), &json!(1))
    );
    assert_eq!(
        other.get(|s| s.starts_received.len()),
        0,
        "never started elsewhere"
    );
}

#[tokio::test]
async fn a_later_report_settles_unknown_instances() {
    let cluster = Cluster::start().await;
    let slow = HandCell::start(&cluster, "c1", 1_000).await;
    slow.set(|s| s.starts = Starts::AnswerLate);
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    let watch = cluster.watch().await;
    let reply = cluster.start_app(&request("r1", "web", 100, 1)).await;
    assert_eq!(reply["outcome"], "unknown");
    slow.advertise().await;
    watch.received("vendue.event.placed.web").await;
    let pool = cluster.ask(&cluster.subjects.pool(), &json!({})).await;
    assert_eq!(
        pool["cells"][0]["cell"]["available"]["memory_mb"], 900,
        "debited once"
    );
    assert_eq!(pool["cells"][0]["debits"], 0);
}

#[tokio::test]
async fn a_frozen_cell_delays_one_batch() {
    let cluster = Cluster::start().await;
    let frozen = HandCell::start(&cluster, "c1", 1_000).await;
    let _alive = HandCell::start(&cluster, "c2", 400).await;
    let _auctioneer = cluster.warm("a1", "diego", 2).await;
    frozen.set(|s| s.bids = false);
    for n in 0..5 {
        let reply = cluster
            .start_app(&request(&format!("r{n}"), "web", 10, 1))
            .await;
        assert_eq!(cells_of(&reply), ["c2"]);
    }
    assert_eq!(
        cluster.counter("missed_bids").await,
        1,
        "it was waited for once"
    );
    assert_eq!(cluster.counter("auctions").await, 5);
    // it advertises and bids again, so it takes part again
    frozen.set(|s| s.bids = true);
    frozen.advertise().await;
    eventually("c1 to win", async || {
        let reply = cluster
            .start_app(
                &json!({"app": "db", "memory_mb": 1, "disk_mb": 1, "run": { "command": ["true"] }}),
            )
            .await;
        cells_of(&reply) == ["c1"]
    })
    .await;
}

#[tokio::test]
async fn after_a_restart_it_warms_up_before_it_accepts_requests() {
    let cluster = Cluster::start().await;
    let mut cells = Vec::new();
    for n in 0..10 {
        cells.push(HandCell::start(&cluster, &format!("c{n}"), 1_000).await);
    }
    let killed = cluster.warm("a1", "diego", 10).await;
    drop(killed);
    let _again = cluster.auctioneer("a2", "diego").await;
    let body = serde_json::to_vec(&request("r1", "web", 100, 10)).unwrap();
    // the first answer at all: there is none before the pool is warm
    let reply = eventually("an answer", async || {
        // whatever the killed one still received is lost, and sent again
        let second = Duration::from_secs(1);
        cluster
            .raw_within(second, &cluster.subjects.start(), &body)
            .await
    })
    .await;
    let reply: serde_json::Value = serde_json::from_slice(&reply.payload).unwrap();
    assert_eq!(reply["outcome"], "placed", "{reply}");
    assert_eq!(cells_of(&reply).len(), 10);
    assert!(cells.iter().all(|c| c.get(|s| s.discovers_received) > 0));
}

#[tokio::test]
async fn a_server_restart_loses_no_cell() {
    let mut cluster = Cluster::start().await;
    let cells = [
        HandCell::start(&cluster, "c1", 1_000).await,
        HandCell::start(&cluster, "c2", 1_000).await,
    ];
    let _auctioneer = cluster.warm("a1", "diego", 2).await;
    cluster.server.restart().await;
    let reply = eventually("placement", async || {
        let body = json!({"app": "web", "memory_mb": 10, "disk_mb": 1, "run": { "command": ["true"] }, "instances": 2});
        let body = serde_json::to_vec(&body).unwrap();
        let reply = cluster.try_ask(&cluster.subjects.start(), &body).await?;
        if reply["outcome"] == "placed" {
            Ok(reply)
        } else {
            Err(reply.to_string())
        }
    })
    .await;
    assert_eq!(cells_of(&reply).len(), 2);
    assert_eq!(cluster.counter("cells_lost").await, 0);
    assert_eq!(cluster.counter("cells_joined").await, 2);
    drop(cells);
}

#[tokio::test]
async fn a_disconnected_auctioneer_expires_no_cell() {
    let cluster = Cluster::start().await;
    let cell = HandCell::start(&cluster, "c1", 1_000).await;
    // an advertisement that is valid for one second
    cell.set(|s| s.ttl = Duration::from_secs(1));
    let link = Link::to(cluster.server.port()).await;
    let _auctioneer = cluster.auctioneer_through(&link, "a1", "dea").await;
    let keep_alive = async {
        loop {
            cell.advertise().await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let test = async {
        cluster.sees("a1", 1).await;
        link.block();
        // many times its ttl, and longer than the longest pause between two echoes
        tokio::time::sleep(Duration::from_secs(4)).await;
        link.unblock();
        cluster.sees("a1", 1).await;
        assert_eq!(cluster.counter("cells_lost").await, 0);
        let reply = cluster.start_app(&request("r1", "web", 10, 1)).await;
        assert_eq!(reply["outcome"], "placed");
    };
    tokio::select! {
        () = keep_alive => {}
        () = test => {}
    }
}

#[tokio::test]
async fn a_cell_without_advertisements_is_lost() {
    let cluster = Cluster::start().await;
    let cell = HandCell::start(&cluster, "c1", 1_000).await;
    cell.set(|s| s.ttl = Duration::from_secs(1));
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    let watch = cluster.watch().await;
    let lost = watch.received("vendue.event.cell-lost.c1").await;
    assert_eq!(lost["reason"], "advertisement expired (no message for 1s)");
    cluster.sees("a1", 0).await;
}

#[tokio::test]
async fn leaving_finishes_what_is_in_flight() {
    let cluster = Cluster::start().await;
    let slow = HandCell::start(&cluster, "c1", 1_000).await;
    slow.set(|s| s.starts = Starts::AnswerLate);
    let running = cluster.warm("a1", "dea", 1).await;
    let body = request("r1", "web", 100, 1);
    let asked = cluster.start_app(&body);
    let leaving = async {
        eventually("the start to arrive", async || {
            slow.get(|s| !s.starts_received.is_empty())
        })
        .await;
        running.shutdown.cancel();
        slow.answer_late().await;
        running.leave().await;
    };
    let (reply, ()) = tokio::join!(asked, leaving);
    assert_eq!(reply["outcome"], "placed");
    let refused = cluster.raw(&cluster.subjects.start(), b"{}").await;
    assert!(refused.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn of_two_auctioneers_of_one_name_that_start_together_one_leaves() {
    let cluster = Cluster::start().await;
    // each checks the name before the other one has it
    let one = cluster.auctioneer("a1", "dea").await;
    let two = cluster.auctioneer("a1", "dea").await;
    let (one, two) = (one.ended(), two.ended());
    tokio::pin!(one, two);
    tokio::select! {
        gone = &mut one => assert!(matches!(gone, Err(AuctioneerError::NameTaken(_))), "{gone:?}"),
        gone = &mut two => assert!(matches!(gone, Err(AuctioneerError::NameTaken(_))), "{gone:?}"),
    }
    cluster.sees("a1", 0).await;
}
