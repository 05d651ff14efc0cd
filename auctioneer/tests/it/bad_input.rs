//! Invalid messages: requests, and reports of cells.

use async_nats::HeaderMap;
use serde_json::{Value, json};
use testkit::{NatsServer, Options, eventually};

use crate::{
    cells::HandCell,
    harness::{Cluster, request},
};

fn headers(headers: Option<&HeaderMap>) -> (Option<String>, Option<String>) {
    let get = |name: &str| headers?.get(name).map(ToString::to_string);
    (get("Nats-Service-Error"), get("Nats-Service-Error-Code"))
}

#[tokio::test]
async fn errors_are_a_body_and_two_headers() {
    let cluster = Cluster::start().await;
    let _auctioneer = cluster.warm("a1", "dea", 0).await;
    let start = cluster.subjects.start();
    let long = "x".repeat(300);
    let with = |field: &str, value: Value| {
        let mut body = json!({ "app": "web", "memory_mb": 1, "disk_mb": 1 });
        body[field] = value;
        body.to_string()
    };
    for (body, field) in [
        ("{".to_owned(), None),
        (with("memory_mb", json!("much")), Some("memory_mb")),
        (with("memory_mb", json!(-5)), Some("memory_mb")),
        (with("disk_mb", json!(1_u64 << 40)), Some("disk_mb")),
        (with("id", json!(long)), Some("id")),
        (with("instances", json!(1_000_000)), Some("instances")),
        (with("deadline", json!("never")), Some("deadline")),
        (with("v", json!(2)), Some("v")),
        (
            json!([{ "v": 2, "app": "web", "size": 7 }]).to_string(),
            Some("v"),
        ),
        (
            json!({ "memory_mb": 1, "disk_mb": 1 }).to_string(),
            Some("app"),
        ),
        (json!([{ "app": "" }, 3]).to_string(), None),
        (with("instances", json!(2)), Some("run")),
    ] {
        let answer = cluster.raw(&start, body.as_bytes()).await.unwrap();
        let value: Value = serde_json::from_slice(&answer.payload).unwrap();
        let error = &value["error"];
        assert_eq!(error["code"], "invalid_request", "{body}");
        if field.is_some() {
            assert_eq!(error["field"].as_str(), field, "{body}: {error}");
        }
        let (text, code) = headers(answer.headers.as_ref());
        assert_eq!(text.as_deref(), error["message"].as_str(), "{body}");
        assert_eq!(code.as_deref(), Some("400"), "{body}");
    }
    assert_eq!(cluster.counter("rejected").await, 12);
    assert_eq!(cluster.counter("requests").await, 0);
}

#[tokio::test]
async fn every_request_of_another_version_is_refused() {
    let cluster = Cluster::start().await;
    let _auctioneer = cluster.warm("a1", "dea", 0).await;
    let subjects = &cluster.subjects;
    let request = json!({ "app": "web", "memory_mb": 1, "disk_mb": 1 });
    for subject in [
        subjects.start(),
        subjects.place(),
        subjects.stop(),
        subjects.explain(),
        subjects.pool(),
        subjects.capacity(),
        subjects.queued(),
    ] {
        let answer = cluster.ask(&subject, &json!({ "v": 2, "app": 7 })).await;
        let told = "v: 2 is not allowed; expected 1";
        assert_eq!(answer["error"]["message"], told, "{subject}: {answer}");
    }
    let inside = json!({ "v": 2, "request": request });
    let answer = cluster.ask(&subjects.place(), &inside).await;
    assert_eq!(answer["error"]["field"], "v", "{answer}");
}

#[tokio::test]
async fn what_others_say_in_another_version_is_dropped_and_counted() {
    let cluster = Cluster::start().await;
    let _cell = HandCell::start(&cluster, "c1", 1_000).await;
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    let subjects = &cluster.subjects;
    for (subject, body) in [
        (subjects.outcome("r1"), json!({ "v": 2, "id": "r1" })),
        (
            subjects.event("asked", "web", "a2"),
            json!({ "v": 2, "request": "r1" }),
        ),
        (
            subjects.cell("c1", "advert"),
            json!({ "v": 2, "cell": "c1" }),
        ),
    ] {
        let body = serde_json::to_vec(&body).unwrap();
        cluster.client.publish(subject, body.into()).await.unwrap();
    }
    eventually("three dropped", async || {
        match cluster.counter("dropped_malformed").await {
            3 => Ok(()),
            n => Err(n.to_string()),
        }
    })
    .await;
    let reply = cluster.start_app(&request("r1", "web", 1, 1)).await;
    assert_eq!(
        reply["outcome"], "placed",
        "that outcome was not remembered"
    );
}

#[tokio::test]
async fn a_request_with_a_long_field_is_answered_shortly() {
    let cluster = Cluster::start().await;
    let _cell = HandCell::start(&cluster, "c1", 1_000).await;
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    let long = "x".repeat(1_000_000);
    let mut misspelt = request("r1", "web", 1, 1);
    misspelt[&long] = json!(7);
    let bodies = [
        json!({ "app": long }),
        json!({ "app": "web", "memory_mb": 1, "disk_mb": 1, "kind": long }),
        misspelt,
    ];
    for body in bodies {
        let subject = cluster.subjects.start();
        let answer = cluster
            .raw(&subject, body.to_string().as_bytes())
            .await
            .unwrap();
        assert!(answer.payload.len() < 2_000, "{}", answer.payload.len());
    }
}

#[tokio::test]
async fn a_misspelt_field_is_warned_of() {
    let cluster = Cluster::start().await;
    let _cell = HandCell::start(&cluster, "c1", 1_000).await;
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    let body = json!({ "app": "web", "memory_mb": 1, "disk_mb": 1, "instnces": 5, "run": { "command": ["true"] } });
    let reply = cluster.start_app(&body).await;
    assert_eq!(
        reply["warnings"],
        json!(["instnces: no such field; ignored"])
    );
    assert_eq!(reply["instances"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn one_bad_element_spoils_no_array() {
    let cluster = Cluster::start().await;
    let _cell = HandCell::start(&cluster, "c1", 1_000).await;
    let _auctioneer = cluster.warm("a1", "diego", 1).await;
    let body = json!([request("r1", "web", 1, 1), { "app": "db", "memory_mb": -1 }, request("r2", "db", 1, 1)]);
    let reply = cluster.start_app(&body).await;
    assert_eq!(reply["requests"][0]["outcome"], "placed");
    assert_eq!(reply["requests"][1]["error"]["code"], "invalid_request");
    assert_eq!(reply["requests"][2]["outcome"], "placed");
}

#[tokio::test]
async fn who_publishes_without_a_reply_subject_learns_by_event() {
    let cluster = Cluster::start().await;
    let _cell = HandCell::start(&cluster, "c1", 1_000).await;
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    let watch = cluster.watch().await;
    let publish = async |body: Value| {
        let body = serde_json::to_vec(&body).unwrap();
        cluster
            .client
            .publish(cluster.subjects.start(), body.into())
            .await
            .unwrap();
    };
    publish(request("good", "web", 1, 1)).await;
    let outcome = watch.received("vendue.outcome.good").await;
    assert_eq!(outcome["outcome"], "placed");
    publish(request("bad", "web", -1, 1)).await;
    let outcome = watch.received("vendue.outcome.bad").await;
    assert_eq!(outcome["error"]["field"], "memory_mb");
    let event = watch.received("vendue.event.rejected.web").await;
    assert_eq!(event["request"], "bad");
    // an app that cannot be part of a subject
    publish(request("worse", "a b", 1, 1)).await;
    watch.received("vendue.outcome.worse").await;
    watch.received("vendue.event.rejected.unknown").await;
}

#[tokio::test]
async fn invalid_reports_are_counted() {
    let cluster = Cluster::start().await;
    let cell = HandCell::start(&cluster, "c1", 1_000).await;
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    let advert = |cell: &str| cluster.subjects.cell(cell, "advert");
    let report: Value = serde_json::from_slice(&cell.get(|s| s.report(None))).unwrap();
    let mut huge = report.clone();
    huge["seq"] = json!(2);
    huge["apps"] = (0..20_000)
        .map(|n| (format!("a{n}"), json!(1)))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let mut reborn = report.clone();
    reborn["incarnation"] = json!(uuid::Uuid::new_v4());
    reborn["seq"] = json!(9);
    let mut backwards = reborn.clone();
    backwards["seq"] = json!(8);
    for (subject, body) in [
        (advert("c1"), json!("garbage")),
        (advert("c2"), report.clone()),
        (advert("c1"), huge),
        (advert("c1"), reborn),
        (advert("c1"), backwards),
        (advert("c1"), report), // the incarnation that was replaced
    ] {
        let body = serde_json::to_vec(&body).unwrap();
        cluster.client.publish(subject, body.into()).await.unwrap();
    }
    for counter in [
        "dropped_malformed",
        "dropped_wrong_subject",
        "dropped_too_large",
        "dropped_old_seq",
        "dropped_old_incarnation",
    ] {
        eventually(counter, async || match cluster.counter(counter).await {
            1 => Ok(()),
            n => Err(n.to_string()),
        })
        .await;
    }
    let pool = cluster.ask(&cluster.subjects.pool(), &json!({})).await;
    assert_eq!(
        (&pool["total"], &pool["cells"][0]["seq"]),
        (&json!(1), &json!(9))
    );
}

#[tokio::test]
async fn answers_fit_a_small_server() {
    let options = Options {
        max_payload: Some(16 << 10),
        ..Options::default()
    };
    let cluster = Cluster::on(NatsServer::start_with(options).await).await;
    let _cell = HandCell::start(&cluster, "c1", 100_000).await;
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    let reply = cluster.start_app(&request("r1", "web", 1, 900)).await;
    assert_eq!(reply["outcome"], "placed");
    assert_eq!(
        reply["instances"][0]["indices"], "0-899",
        "by cell, without ids"
    );
    let many: Vec<Value> = (0..200)
        .map(|n| json!({ "app": format!("a{n}"), "memory_mb": 1_000_000, "disk_mb": 1, "run": { "command": ["true"] } }))
        .collect();
    let reply = cluster.start_app(&json!(many)).await;
    assert_eq!(reply["requests"].as_array().unwrap().len(), 200);
    assert_eq!(reply["outcome"], "unplaced");
}

#[tokio::test]
async fn ten_thousand_errors_are_one_answer() {
    let cluster = Cluster::on(NatsServer::start().await).await;
    let _cell = HandCell::start(&cluster, "c1", 100_000).await;
    let _auctioneer = cluster.warm("a1", "dea", 1).await;
    // each request is short, but its error is long
    let mut many = vec![json!({}); 10_000];
    let wrong = json!({"app": "web", "memory_mb": "?", "disk_mb": 1});
    many[1..].fill(wrong);
    many[0] = request("r1", "web", 1, 1);
    let reply = cluster.start_app(&json!(many)).await;
    let requests = reply["requests"].as_array().unwrap();
    assert_eq!(requests.len(), 10_000);
    assert_eq!(requests[0]["outcome"], "placed");
    let errors = requests
        .iter()
        .filter(|one| one["error"]["code"] == "invalid_request");
    assert_eq!(errors.count(), 9_999);
}
