//! Both policies, and the messages that each needs.

use serde_json::json;
use testkit::eventually;

use crate::{
    cells::{HandCell, Starts},
    harness::{Cluster, cells_of, request},
};

#[tokio::test]
async fn dea_decides_from_the_pool_alone() {
    let cluster = Cluster::start().await;
    let cells = [
        HandCell::start(&cluster, "c1", 1_000).await,
        HandCell::start(&cluster, "c2", 1_000).await,
        HandCell::start(&cluster, "c3", 10).await,
    ];
    let _auctioneer = cluster.warm("a1", "dea", 3).await;
    let watch = cluster.watch().await;
    let reply = cluster.start_app(&request("r1", "web", 100, 10)).await;
    assert_eq!(reply["outcome"], "placed");
    assert_eq!(cells_of(&reply).len(), 10);
    let placed = watch.received("vendue.event.placed.web.a1").await;
    assert_eq!(placed["by"], "a1");
    assert!(placed["time"].as_str().unwrap().ends_with('Z'), "{placed}");
    watch.received("vendue.outcome.r1").await;
    assert_eq!(watch.count("vendue.bid"), 0, "it asks nobody");
    assert_eq!(watch.count("vendue.event.asked.web"), 1);
    assert_eq!(
        watch.count("vendue.event."),
        2,
        "one event of each kind for the app"
    );
    assert_eq!(watch.count("vendue.outcome."), 1);
    let starts: Vec<usize> = cells
        .iter()
        .map(|c| c.get(|s| s.starts_received.len()))
        .collect();
    assert_eq!(starts, [1, 1, 0], "one start for each winning cell");
    assert_eq!(watch.on("vendue.outcome.r1")[0], reply);
}

#[tokio::test]
async fn diego_asks_once_per_batch_and_decides_when_all_have_bid() {
    let cluster = Cluster::start().await;
    let mut cells = Vec::new();
    for n in 0..5 {
        cells.push(HandCell::start(&cluster, &format!("c{n}"), 1_000).await);
    }
    let _auctioneer = cluster.warm("a1", "diego", 5).await;
    let watch = cluster.watch().await;
    // an array of 40 requests for two apps is one batch
    let requests: Vec<_> = (0..40)
        .map(|n| {
            let mut request = request(
                &format!("r{n}"),
                if n % 2 == 0 { "web" } else { "db" },
                10,
                40,
            );
            request["indices"] = json!([n]);
            request
        })
        .collect();
    let reply = cluster.start_app(&json!(requests)).await;
    assert_eq!(reply["outcome"], "placed");
    assert_eq!(reply["requests"].as_array().unwrap().len(), 40);
    watch.received("vendue.event.placed.web").await;
    watch.received("vendue.event.placed.db").await;
    assert_eq!(watch.count("vendue.bid"), 1, "one question");
    for cell in &cells {
        assert_eq!(cell.get(|s| s.bids_received), 1);
        assert_eq!(
            cell.get(|s| s.starts_received.len()),
            1,
            "every cell won some"
        );
    }
    assert_eq!(watch.count("vendue.event.asked."), 2, "one for each app");
    assert_eq!(watch.count("vendue.event.placed."), 2);
    assert_eq!(watch.count("vendue.event."), 4);
    let asked = watch.on("vendue.event.asked.web");
    assert_eq!(asked[0]["requests"].as_array().unwrap().len(), 20);
    assert_eq!(cluster.counter("missed_bids").await, 0);
    assert_eq!(cluster.counter("auctions").await, 1);
    eventually("all outcomes", async || {
        match watch.count("vendue.outcome.") {
            40 => Ok(()),
            n => Err(n.to_string()),
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_goes_with_its_version_and_its_trace_to_the_cell_and_the_observers() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let cluster = Cluster::start().await;
    let cell = HandCell::start(&cluster, "c1", 1_000).await;
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    let watch = cluster.watch().await;
    let mut body = request("r1", "web", 100, 1);
    body["version"] = "v7".into();
    body["traceparent"] = TRACE.into();
    let reply = cluster.start_app(&body).await;
    assert_eq!(reply["outcome"], "placed", "{reply}");
    let work = cell.get(|s| s.starts_received[0].work[0].clone());
    assert_eq!(work.request.unwrap(), "r1");
    assert_eq!(work.version.as_deref(), Some("v7"));
    assert_eq!(work.traceparent.as_deref(), Some(TRACE));
    let placed = watch.received("vendue.event.placed.web.a1").await;
    assert_eq!(placed["instances"][0]["traceparent"], TRACE);

    // tracing tools put it into a header
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("traceparent", TRACE);
    let body_in_trace = serde_json::to_vec(&request("r3", "db", 100, 1)).unwrap();
    let sent = cluster.client.request_with_headers(
        cluster.subjects.start(),
        headers,
        body_in_trace.into(),
    );
    sent.await.unwrap();
    let work = cell.get(|s| s.starts_received[1].work[0].clone());
    assert_eq!(work.traceparent.as_deref(), Some(TRACE));

    body["id"] = "r2".into();
    body["traceparent"] = "00-0-0-01".into();
    let reply = cluster.start_app(&body).await;
    assert_eq!(reply["error"]["field"], "traceparent", "{reply}");
}

#[tokio::test]
async fn refused_work_goes_to_another_cell() {
    for policy in ["dea", "diego"] {
        let cluster = Cluster::start().await;
        let first = HandCell::start(&cluster, "c1", 1_000).await;
        let other = HandCell::start(&cluster, "c2", 400).await;
        first.set(|s| s.starts = Starts::Refuse("draining".into()));
        let _auctioneer = cluster.warm("a1", policy, 2).await;
        let watch = cluster.watch().await;
        let reply = cluster.start_app(&request("r1", "web", 100, 1)).await;
        assert_eq!(
            (reply["outcome"].as_str(), cells_of(&reply)),
            (Some("placed"), vec!["c2".into()])
        );
        assert_eq!(first.get(|s| s.starts_received.len()), 1);
        assert_eq!(other.get(|s| s.starts_received.len()), 1);
        let refused = watch.received("vendue.event.refused.web").await;
        assert_eq!(refused["reason"], "c1 refused: draining");
    }
}

#[tokio::test]
async fn unplaced_instances_are_answered_with_numbers() {
    let cluster = Cluster::start().await;
    let _cell = HandCell::start(&cluster, "c1", 1_000).await;
    let _auctioneer = cluster.warm("a1", "diego", 1).await;
    let reply = cluster.start_app(&request("r1", "web", 50_000, 100)).await;
    assert_eq!(reply["outcome"], "unplaced");
    let instances = reply["instances"].as_array().unwrap();
    assert_eq!(instances.len(), 1, "equal failures are grouped");
    assert_eq!(instances[0]["indices"], "0-99");
    assert_eq!(instances[0]["reason"], "insufficient resources: memory");
    assert_eq!(instances[0]["tally"][0]["needs"], 50_000.0);
    assert_eq!(instances[0]["tally"][0]["best"], 1_000.0);
    // 10,000 instances when 100 fit
    let reply = cluster.start_app(&request("r2", "db", 10, 10_000)).await;
    assert_eq!(reply["outcome"], "unplaced");
    assert_eq!(cells_of(&reply).len(), 100, "{reply}");
    // an unknown stack
    let mut odd = request("r3", "odd", 10, 1);
    odd["stack"] = json!("none");
    let reply = cluster.start_app(&odd).await;
    assert_eq!(
        reply["instances"][0]["reason"],
        "found no compatible cell for required stack"
    );
}

#[tokio::test]
async fn work_that_may_wait_is_placed_when_a_cell_comes() {
    let cluster = Cluster::start().await;
    let _small = HandCell::start(&cluster, "c1", 10).await;
    let _auctioneer = cluster.warm("a1", "diego", 1).await;
    let watch = cluster.watch().await;
    let mut waits = request("r1", "web", 100, 1);
    waits["queue_timeout"] = json!("60s");
    waits["deadline"] = json!("50ms");
    let reply = cluster.start_app(&waits).await;
    assert_eq!(reply["outcome"], "queued");
    let _large = HandCell::start(&cluster, "c2", 1_000).await;
    let placed = watch.received("vendue.event.placed.web").await;
    assert_eq!(placed["instances"][0]["cell"], "c2");
    assert_eq!(watch.count("vendue.event.cell-joined.c2"), 1);
}

#[tokio::test]
async fn duplicates_in_one_array_are_one_instance() {
    let cluster = Cluster::start().await;
    let cell = HandCell::start(&cluster, "c1", 1_000).await;
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    let body = json!([request("r1", "web", 10, 2), request("r2", "web", 10, 1)]);
    let reply = cluster.start_app(&body).await;
    assert_eq!(reply["outcome"], "placed");
    assert_eq!(reply["requests"][1]["instances"][0]["duplicate_of"], "r1");
    let sent: usize = cell.get(|s| s.starts_received.iter().map(|start| start.work.len()).sum());
    assert_eq!(sent, 2);
}
