//! How a cell handles messages: which it answers, where, and in how many parts.

use std::time::Duration;

use futures_util::StreamExt;
use placement::Span;
use serde_json::{Value, json as value};
use shared::ANSWER_TO;
use shared::wire::{InstancesAnswer, Work};
use testkit::{NatsServer, eventually};
use uuid::Uuid;

use crate::harness::{Cell, config, from, next, next_where, subjects, subscribe, work};

#[tokio::test]
async fn bad_input_is_answered_with_a_body_and_headers() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, config("a")).await;
    let own = |what: &str| subjects().cell("a", what);
    let mut absurd = value!({"auction": Uuid::new_v4(), "incarnation": Uuid::new_v4(), "expires_ms": 1,
        "work": [{"instance": Uuid::new_v4(), "app": "x", "index": 0, "memory_mb": -1, "disk_mb": 0}]});
    let cases = [
        (own("start"), "nonsense".to_owned(), None),
        (own("start"), "{}".into(), None),
        (own("start"), absurd.to_string(), Some("work[0].memory_mb")),
        (
            own("start"),
            {
                absurd["work"][0]["memory_mb"] = value!(1);
                absurd["work"][0]["app"] = value!("a b");
                absurd.to_string()
            },
            Some("work[0].app"),
        ),
        (own("stop"), r#"{"app":7}"#.into(), Some("app")),
        (
            own("drain"),
            r#"{"deadline":"soon"}"#.into(),
            Some("deadline"),
        ),
        (own("logs"), r#"{"app":""}"#.into(), Some("app")),
        (own("logs"), r#"{"app":"a","indx":3}"#.into(), Some("indx")),
        (subjects().instances(), "7".into(), None),
        (subjects().instances(), r#"{"ap":"web"}"#.into(), Some("ap")),
        (own("state"), r#"{"v":2}"#.into(), Some("v")),
        (own("start"), r#"{"v":2,"work":7}"#.into(), Some("v")),
        (own("stop"), r#"{"v":2,"app":"web"}"#.into(), Some("v")),
        (own("drain"), r#"{"v":2}"#.into(), Some("v")),
        (own("cordon"), r#"{"v":2}"#.into(), Some("v")),
        (own("uncordon"), r#"{"x":2}"#.into(), Some("x")),
        (own("set"), r#"{"v":2,"set":{}}"#.into(), Some("v")),
        (own("logs"), r#"{"v":2,"app":"web"}"#.into(), Some("v")),
        (subjects().instances(), r#"{"v":2}"#.into(), Some("v")),
        (
            subjects().cells_stop(),
            r#"{"app":"..."}"#.into(),
            Some("app"),
        ),
    ];
    for (subject, body, at) in cases {
        let answer = cell.client.request(subject.clone(), body.clone().into());
        let answer = answer.await.unwrap();
        let headers = answer.headers.unwrap_or_else(|| panic!("{subject} {body}"));
        assert_eq!(
            headers.get("Nats-Service-Error-Code").unwrap().as_str(),
            "400"
        );
        assert!(headers.get("Nats-Service-Error").is_some());
        let error: Value = from(&answer.payload);
        assert_eq!(
            error["error"]["code"], "invalid_request",
            "{subject} {body}"
        );
        if let Some(at) = at {
            assert_eq!(error["error"]["field"], at, "{error}");
        }
    }
    // it still works, and has counted them
    cell.must_start(vec![work("web", 0)]).await;
    let stats = cell.client.request("$SRV.STATS.vendue-cell", "".into());
    let stats: Value = from(&stats.await.unwrap().payload);
    assert_eq!(
        stats["endpoints"][0]["data"]["dropped_malformed"], 20,
        "{stats}"
    );
    cell.end().await;
}

#[tokio::test]
async fn a_message_that_is_one_long_field_is_answered_shortly() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, config("a")).await;
    let long = "x".repeat(1_000_000);
    for what in [
        "start",
        "stop",
        "drain",
        "set",
        "state",
        "logs",
        "instances",
    ] {
        let subject = match what {
            "instances" => subjects().instances(),
            own => subjects().cell("a", own),
        };
        let bodies = [value!({ (long.clone()): 7 }), value!({ "app": long })];
        for body in bodies {
            let answer = cell
                .client
                .request(subject.clone(), body.to_string().into());
            let answer = answer.await.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(
                answer.payload.len() < 2_000,
                "{what}: {}",
                answer.payload.len()
            );
            let error: Value = from(&answer.payload);
            let is_app = what == "logs" || what == "instances";
            assert!(
                error["error"]["code"] == "invalid_request" || is_app,
                "{what}: {error}"
            );
        }
    }
    cell.end().await;
}

#[tokio::test]
async fn a_broadcast_is_answered_below_the_cells_own_subject_and_nowhere_else() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, config("a")).await;
    let mut answers = subscribe(&server, "vendue.cell.*.answer.alice.n1").await;
    let mut elsewhere = cell.client.subscribe("elsewhere.>").await.unwrap();
    let ask = async |to: Option<&str>, reply: &str| {
        let mut headers = async_nats::HeaderMap::new();
        if let Some(to) = to {
            headers.insert(ANSWER_TO, to);
        }
        let (subject, reply) = (subjects().instances(), reply.to_owned());
        let body = "{\"v\":1}".into();
        let sent = cell
            .client
            .publish_with_reply_and_headers(subject, reply, headers, body);
        sent.await.unwrap();
    };
    ask(None, "elsewhere.inbox").await;
    ask(Some("alice.n1.elsewhere"), "elsewhere.header").await;
    ask(Some("alice.n1"), "elsewhere.both").await;
    let answer = tokio::time::timeout(testkit::DEFAULT_DEADLINE, answers.next()).await;
    let answer = answer.unwrap().unwrap();
    assert_eq!(answer.subject.as_str(), "vendue.cell.a.answer.alice.n1");
    assert_eq!(from::<InstancesAnswer>(&answer.payload).cell, "a");
    // the cell sends in order: an answer to the first question would arrive before this one
    cell.state().await;
    let heard = tokio::time::timeout(Duration::ZERO, elsewhere.next()).await;
    assert!(heard.is_err(), "{heard:?}");
    let stats = cell.client.request("$SRV.STATS.vendue-cell", "".into());
    let stats: Value = from(&stats.await.unwrap().payload);
    assert_eq!(stats["endpoints"][0]["data"]["dropped_reply_subject"], 2);
    cell.end().await;
}

#[tokio::test]
async fn a_message_meant_for_another_subject_changes_nothing() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, config("a")).await;
    let info = cell.client.request("$SRV.INFO.vendue-cell", "".into());
    let info = info.await.unwrap().payload;
    for what in [
        "drain", "cordon", "uncordon", "set", "stop", "start", "state", "logs",
    ] {
        let answer = cell.ask(what, info.clone()).await;
        assert_eq!(answer["error"]["code"], "invalid_request", "{what}");
    }
    for what in ["drain", "cordon", "uncordon", "set", "stop", "start"] {
        let answer = cell.ask(what, "").await;
        assert_eq!(answer["error"]["code"], "invalid_request", "{what}");
    }
    assert_eq!(cell.state().await.get("evacuating"), None);
    cell.end().await;
}

#[tokio::test]
async fn a_malformed_broadcast_is_dropped_and_counted() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, config("a")).await;
    let other_bid = format!("{{\"v\":2,\"auction\":\"{}\"}}", Uuid::new_v4());
    for (subject, body) in [
        (subjects().bid(), ""),
        (subjects().bid(), "{}"),
        (subjects().bid(), "[1"),
        (subjects().bid(), "{\"auction\":7}"),
        (subjects().bid(), &other_bid),
        (subjects().discover(), "{\"v\":2}"),
    ] {
        let body = body.to_owned().into();
        cell.client.publish(subject, body).await.unwrap();
    }
    eventually("six counted", async || {
        let stats = cell.client.request("$SRV.STATS.vendue-cell", "".into());
        let stats: Value = from(&stats.await.unwrap().payload);
        let malformed = stats["endpoints"][0]["data"]["dropped_malformed"].clone();
        if malformed == 6 {
            Ok(())
        } else {
            Err(malformed)
        }
    })
    .await;
    cell.end().await;
}

#[tokio::test]
async fn it_is_a_nats_service() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, config("a")).await;
    let info = cell.client.request("$SRV.INFO.vendue-cell", "".into());
    let info: Value = from(&info.await.unwrap().payload);
    assert_eq!(info["metadata"], value!({"cell": "a", "zone": "z1"}));
    let mut subjects: Vec<&str> = info["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["subject"].as_str().unwrap())
        .collect();
    subjects.sort_unstable();
    let own = [
        "cordon", "drain", "logs", "set", "start", "state", "stop", "uncordon",
    ]
    .map(|w| format!("vendue.cell.a.{w}"));
    assert_eq!(subjects, own);
    cell.end().await;
}

#[tokio::test]
async fn large_answers_come_in_parts() {
    let options = testkit::Options {
        max_payload: Some(16_384),
        ..testkit::Options::default()
    };
    let server = NatsServer::start_with(options).await;
    let mut config = config("a");
    config.heartbeat = Span(Duration::from_millis(20));
    config.total.memory_mb = 1_000_000;
    let mut heartbeats = subscribe(&server, "vendue.cell.a.heartbeat").await;
    let cell = Cell::start(&server, config).await;
    for app in 0..5 {
        let some = (0..20).map(|i| Work {
            disk_mb: 0,
            ..work(&format!("app-{app}"), i)
        });
        cell.must_start(some.collect()).await;
    }
    let mut answers = {
        let inbox = cell.client.new_inbox();
        let answers = cell.client.subscribe(inbox.clone()).await.unwrap();
        let asked = cell
            .client
            .publish_with_reply(subjects().instances(), inbox, "".into());
        asked.await.unwrap();
        answers
    };
    let mut all = std::collections::BTreeSet::new();
    let (mut parts, mut version) = (0, None);
    loop {
        let answer: InstancesAnswer = serde_json::from_value(next(&mut answers).await).unwrap();
        all.extend(answer.instances.iter().map(|i| i.instance));
        parts += 1;
        assert_eq!(answer.part, parts);
        let seen = *version.get_or_insert((answer.incarnation, answer.seq, answer.parts));
        assert_eq!(seen, (answer.incarnation, answer.seq, answer.parts));
        if !answer.more {
            break;
        }
    }
    assert_eq!(all.len(), 100);
    assert!(parts > 1, "{parts} parts");
    assert_eq!(version.unwrap().2, parts);
    next_where(&mut heartbeats, |h| h["more"] == true).await;
    next_where(&mut heartbeats, |h| h.get("more").is_none()).await;
    cell.end().await;
}
