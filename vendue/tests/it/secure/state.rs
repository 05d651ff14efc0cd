//! Stored state is out of reach of the cluster's account: on a server whose JetStream works, the API answers none of
//! its identities and does nothing for them.

use async_nats::Client;
use serde_json::{Value, json};
use testkit::{NatsServer, eventually};

use super::cluster::Secure;

/// One identity of every role of the cluster's account.
const WHO: [&str; 8] = [
    "cell-a", "auc-0", "mgr-0", "alice", "op", "obs", "met", "rec",
];
const KEEPER: &str = "{user: keeper, password: kept}";
const STREAM: &str = "KV_vendue-apps";

/// Returns the JetStream API's answer to the account that has it.
async fn api(keeper: &Client, subject: &str, body: &Value) -> Value {
    let subject = format!("$JS.API.{subject}");
    let answer = keeper.request(subject, body.to_string().into()).await;
    let answer: Value = serde_json::from_slice(&answer.unwrap().payload).unwrap();
    assert_eq!(answer.get("error"), None, "{answer}");
    answer
}

/// Returns complete and valid requests of the API: streams that take what cells are sent, and consumers that deliver to
/// a cell or to whoever asks.
fn attempts(who: &str) -> Vec<(String, Value)> {
    let inbox = format!("_INBOX.{who}.stolen");
    let stream = |name: &str, subjects: &str| json!({"name": name, "subjects": [subjects], "storage": "memory", "retention": "limits"});
    let consumer = |deliver: &str| {
        json!({"stream_name": STREAM, "config": {"name": "c", "deliver_subject": deliver,
            "deliver_policy": "all", "ack_policy": "none", "replay_policy": "instant"}})
    };
    let list = [
        ("STREAM.CREATE.mine", stream("mine", "vendue.cell.*.start")),
        ("STREAM.CREATE.asked", stream("asked", "vendue.start")),
        ("STREAM.UPDATE.KV_vendue-apps", stream(STREAM, "vendue.>")),
        ("STREAM.NAMES", json!({})),
        ("STREAM.INFO.KV_vendue-apps", json!({})),
        ("STREAM.MSG.GET.KV_vendue-apps", json!({"seq": 1})),
        ("DIRECT.GET.KV_vendue-apps", json!({"seq": 1})),
        ("STREAM.PURGE.KV_vendue-apps", json!({})),
        ("STREAM.DELETE.KV_vendue-apps", json!({})),
        ("CONSUMER.CREATE.KV_vendue-apps", consumer(&inbox)),
        (
            "CONSUMER.CREATE.KV_vendue-apps.c",
            consumer("vendue.cell.cell-a.start"),
        ),
        ("CONSUMER.CREATE.KV_vendue-apps.c.>", consumer(&inbox)),
        ("CONSUMER.DURABLE.CREATE.KV_vendue-apps.c", consumer(&inbox)),
        ("CONSUMER.NAMES.KV_vendue-apps", json!({})),
        ("CONSUMER.MSG.NEXT.KV_vendue-apps.c", json!({})),
    ];
    let named = list.map(|(subject, body)| (format!("$JS.API.{subject}"), body));
    let direct = (format!("$KV.vendue-apps.{who}"), json!("mine"));
    named.into_iter().chain([direct]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_makes_a_stream_or_a_consumer_or_reads_one() {
    let secure = Secure::server().await;
    let generated = std::fs::read_to_string(secure.dir.join("vendue-auth.conf")).unwrap();
    let of_state = "VENDUE_STATE {\n    jetstream: enabled\n    users: [\n";
    assert_eq!(generated.matches(of_state).count(), 1, "{generated}");
    let store = tempfile::tempdir().unwrap();
    let server = NatsServer::with_config(&format!(
        "jetstream {{ store_dir: \"{}\" }}\n{}",
        store.path().display(),
        generated.replace(of_state, &format!("{of_state}      {KEEPER}\n"))
    ))
    .await;
    // the same requests are carried out where they are permitted
    let keeper = async_nats::ConnectOptions::with_user_and_password("keeper".into(), "kept".into());
    let keeper = keeper.connect(server.url()).await.unwrap();
    let kept = json!({"name": STREAM, "subjects": ["$KV.vendue-apps.>"], "storage": "memory"});
    api(&keeper, &format!("STREAM.CREATE.{STREAM}"), &kept).await;
    let stored = keeper
        .request("$KV.vendue-apps.web", "a secret".into())
        .await
        .unwrap();
    let stored: Value = serde_json::from_slice(&stored.payload).unwrap();
    assert_eq!(stored["seq"], 1, "{stored}");

    for who in WHO {
        let raw = secure.raw_on(&server, who).await;
        let mut heard = raw
            .client
            .subscribe(format!("_INBOX.{who}.>"))
            .await
            .unwrap();
        let attempts = attempts(who);
        for (nth, (subject, body)) in attempts.iter().enumerate() {
            let reply = format!("_INBOX.{who}.{nth}");
            let body = body.to_string().into();
            raw.client
                .publish_with_reply(subject.clone(), reply, body)
                .await
                .unwrap();
        }
        eventually(&format!("{who} is refused everything"), async || {
            let mut left = attempts.iter().map(|(subject, _)| subject);
            let left = left.find(|subject| !raw.was_refused("publish", subject, None));
            left.map_or(Ok(()), |subject| Err(subject.clone()))
        })
        .await;
        raw.client.flush().await.unwrap();
        let answer =
            futures_util::FutureExt::now_or_never(futures_util::StreamExt::next(&mut heard));
        assert!(answer.is_none(), "{who} was answered: {answer:?}");
    }
    let streams = api(&keeper, "STREAM.NAMES", &json!({})).await;
    assert_eq!(streams["streams"], json!([STREAM]));
    let state = &api(&keeper, &format!("STREAM.INFO.{STREAM}"), &json!({})).await["state"];
    assert_eq!(
        (&state["messages"], &state["consumer_count"]),
        (&json!(1), &json!(0))
    );
}
