//! Stops, dry runs, explanations, the pool, the service.

use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::{
    cells::HandCell,
    harness::{Cluster, request},
};

#[tokio::test]
async fn a_stop_is_answered_once_for_all_cells() {
    let cluster = Cluster::start().await;
    let _c1 = HandCell::start(&cluster, "c1", 1_000).await;
    let _c2 = HandCell::start(&cluster, "c2", 1_000).await;
    let _auctioneer = cluster.warm("a1", "diego", 2).await;
    cluster.start_app(&request("r1", "web", 10, 6)).await;
    let stop = cluster.subjects.stop();
    let reply = cluster.ask(&stop, &json!({ "app": "web" })).await;
    assert_eq!(
        (&reply["outcome"], &reply["count"]),
        (&json!("stopped"), &json!(6))
    );
    let cells: std::collections::BTreeSet<&str> = reply["stopped"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|s| s["cell"].as_str())
        .collect();
    assert_eq!(cells.len(), 2);
    let reply = cluster.ask(&stop, &json!({ "app": "web" })).await;
    assert_eq!(
        (&reply["outcome"], &reply["message"]),
        (&json!("none"), &json!("none found"))
    );
    let reply = cluster.ask(&stop, &json!({ "ap": "web" })).await;
    assert_eq!(reply["error"]["code"], "invalid_request");
}

#[tokio::test]
async fn queued_work_is_cancelled_by_a_stop() {
    let cluster = Cluster::start().await;
    let _cell = HandCell::start(&cluster, "c1", 10).await;
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    let watch = cluster.watch().await;
    let mut waits = request("r1", "web", 100, 3);
    waits["queue_timeout"] = json!("60s");
    let asked = cluster.start_app(&waits);
    let stopping = async {
        watch.received("vendue.event.queued.web").await;
        cluster
            .ask(&cluster.subjects.stop(), &json!({ "app": "web" }))
            .await
    };
    let (reply, stopped) = tokio::join!(asked, stopping);
    assert_eq!(
        (&stopped["outcome"], &stopped["cancelled"]),
        (&json!("stopped"), &json!(3))
    );
    assert_eq!(
        reply["instances"][0]["reason"],
        "stopped before it was started"
    );
}

#[tokio::test]
async fn every_auctioneer_lists_its_queued_work() {
    let cluster = Cluster::start().await;
    let _cell = HandCell::start(&cluster, "c1", 10).await;
    let _a1 = cluster.warm("a1", "dea", 1).await;
    let _a2 = cluster.warm("a2", "dea", 1).await;
    let watch = cluster.watch().await;
    let mut waits = request("r1", "web", 100, 3);
    waits["queue_timeout"] = json!("60s");
    let body = serde_json::to_vec(&waits).unwrap();
    let start = cluster.subjects.start();
    cluster.client.publish(start, body.into()).await.unwrap();
    watch.received("vendue.event.queued.web").await;
    let asked = |app: &str| shared::wire::QueuedRequest {
        app: Some(app.to_owned()),
        ..Default::default()
    };
    let bus = cluster.bus("asker").await;
    let all = shared::ask::queued(&bus, &cluster.subjects, &asked("web")).await;
    let all = all.unwrap();
    let names: Vec<&str> = all.iter().map(|a| a.auctioneer.as_str()).collect();
    assert_eq!(names, ["a1", "a2"]);
    assert_eq!(all.iter().map(|a| a.count).sum::<usize>(), 3);
    let group = all.iter().find_map(|a| a.queued.first()).unwrap();
    assert_eq!((group.app.as_str(), group.indices.as_str()), ("web", "0-2"));
    assert_eq!(group.reason, "insufficient resources: memory");
    assert!(
        group.left_ms > 30_000 && group.left_ms <= 60_000,
        "{group:?}"
    );
    let none = shared::ask::queued(&bus, &cluster.subjects, &asked("other")).await;
    assert!(none.unwrap().iter().all(|a| a.count == 0 && !a.more));
    let bad = cluster
        .try_ask(&cluster.subjects.queued(), b"{\"limit\":-1}")
        .await;
    assert_eq!(bad.unwrap()["error"]["code"], "invalid_request");
}

#[tokio::test]
async fn a_dry_run_starts_nothing() {
    let cluster = Cluster::start().await;
    let cell = HandCell::start(&cluster, "c1", 1_000).await;
    let _auctioneer = cluster.warm("a1", "diego", 1).await;
    let place = cluster.subjects.place();
    let body = json!({ "app": "web", "memory_mb": 600, "disk_mb": 1, "instances": 2 });
    let reply = cluster.ask(&place, &body).await;
    assert_eq!(reply["decisions"][0]["cell"], "c1");
    assert_eq!(reply["decisions"][1]["outcome"], "unplaced");
    let more = json!({ "request": body, "add_cells": [{ "count": 1, "like": "c1" }] });
    let reply = cluster.ask(&place, &more).await;
    assert_eq!(reply["decisions"][1]["outcome"], "placed");
    assert_eq!(cell.get(|s| s.starts_received.len()), 0);
    let reply = cluster
        .ask(&place, &json!({ "request": body, "without": ["c1"] }))
        .await;
    assert_eq!(reply["decisions"][0]["outcome"], "unplaced");
}

#[tokio::test]
async fn how_many_more_fit() {
    let cluster = Cluster::start().await;
    let _c1 = HandCell::start(&cluster, "c1", 1_000).await;
    let _c2 = HandCell::start(&cluster, "c2", 700).await;
    let _auctioneer = cluster.warm("a1", "diego", 2).await;
    let subject = cluster.subjects.capacity();
    let size = json!({ "memory_mb": 300, "disk_mb": 0 });
    let reply = cluster.ask(&subject, &size).await;
    assert_eq!((&reply["fits"], &reply["cells"]), (&json!(5), &json!(2)));
    assert_eq!(reply["policy"], "diego");
    let most = reply["zones"].as_object().unwrap().values();
    assert_eq!(most.map(|z| z["fits"].as_u64().unwrap()).sum::<u64>(), 5);
    let large = json!({ "memory_mb": 5000, "disk_mb": 0, "mistake": 1 });
    let reply = cluster.ask(&subject, &large).await;
    assert_eq!(reply["fits"], 0);
    assert_eq!(reply["reason"], "insufficient resources: memory");
    assert_eq!(reply["tally"][0]["best"], 1000.0);
    assert!(reply["warnings"][0].as_str().unwrap().contains("mistake"));
    for bad in [
        json!({ "memory_mb": -1, "disk_mb": 0 }),
        json!([]),
        json!({}),
    ] {
        let reply = cluster.ask(&subject, &bad).await;
        assert_eq!(reply["error"]["code"], "invalid_request", "{bad}: {reply}");
    }
}

#[tokio::test]
async fn explain_has_the_reasons() {
    let cluster = Cluster::start().await;
    let _cell = HandCell::start(&cluster, "c1", 1_000).await;
    let _auctioneer = cluster.warm("a1", "diego", 1).await;
    cluster.start_app(&request("r1", "web", 600, 2)).await;
    let reply = cluster
        .ask(&cluster.subjects.explain(), &json!({ "app": "web" }))
        .await;
    let decisions = &reply["auctions"][0]["decisions"];
    assert_eq!(decisions[0]["cell"], "c1");
    assert!(decisions[0]["cost"].is_number());
    assert_eq!(decisions[1]["reason"], "insufficient resources: memory");
}

#[tokio::test]
async fn it_is_a_nats_service() {
    let cluster = Cluster::start().await;
    let _auctioneer = cluster.warm("a1", "diego", 0).await;
    let inbox = cluster.client.new_inbox();
    let mut answers = cluster.client.subscribe(inbox.clone()).await.unwrap();
    for subject in ["$SRV.PING", "$SRV.INFO.vendue-auctioneer"] {
        let asked = cluster
            .client
            .publish_with_reply(subject, inbox.clone(), "".into());
        asked.await.unwrap();
        let answer = answers.next().await.unwrap();
        let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
        assert_eq!(answer["name"], "vendue-auctioneer");
        assert_eq!(answer["metadata"]["policy"], "diego");
        assert_eq!(
            answer["metadata"]["policy_hash"].as_str().map(str::len),
            Some(16)
        );
        if let Some(endpoints) = answer["endpoints"].as_array() {
            let mut names: Vec<&str> = endpoints
                .iter()
                .filter_map(|e| e["name"].as_str())
                .collect();
            names.sort_unstable();
            assert_eq!(
                names,
                [
                    "capacity", "explain", "place", "pool", "queued", "start", "stop"
                ]
            );
            // queued work is known only to the auctioneer that took it, so all auctioneers answer
            let shared = endpoints.iter().filter(|e| e["name"] != "queued");
            assert!(
                shared
                    .into_iter()
                    .all(|e| e["queue_group"] == "auctioneers")
            );
        }
    }
    cluster.raw(&cluster.subjects.pool(), b"").await.unwrap();
    let counters = cluster.counters().await;
    assert!(counters.values().next().unwrap()["reports"].is_u64());
}

#[tokio::test]
async fn a_name_is_one_auctioneers_own() {
    let cluster = Cluster::start().await;
    let first = cluster.warm("a1", "diego", 0).await;
    let _other = cluster.warm("a2", "diego", 0).await;
    let second = cluster.auctioneer("a1", "diego").await;
    let error = second.ended().await.unwrap_err();
    let says = "an auctioneer named a1 is running already; give this one another name";
    assert_eq!(error.to_string(), says);
    first.leave().await;
    let _again = cluster.warm("a1", "diego", 0).await;
}
