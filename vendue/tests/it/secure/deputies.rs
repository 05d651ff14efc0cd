//! What the permissions allow but the programs do not do: publish something for somebody who may not, or believe a body
//! that names another sender than its subject.

use std::time::Duration;

use async_nats::HeaderMap;
use futures_util::StreamExt;
use serde_json::{Value, json};
use testkit::eventually;

use super::cluster::Secure;

/// Returns whether a cell still accepts work.
fn serves(secure: &Secure, cell: &str) -> bool {
    let said = secure.run("alice", &["cells", "show", cell, "--output", "json"]);
    said.code == Some(0) && said.json()["evacuating"] != true
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_made_to_publish_where_the_asker_may_not() {
    let (secure, _roles) = Secure::cluster().await;
    let alice = secure.raw("alice").await;
    // would hear it if it were published
    let mut drained = secure
        .raw("op")
        .await
        .client
        .subscribe("vendue.event.>")
        .await
        .unwrap();
    for reply in [
        "vendue.cell.cell-b.drain",
        "vendue.cell.cell-b.stop",
        "vendue.cells.stop",
        "vendue.event.crashed.web.cell-b",
        "vendue.outcome.r-1",
        "$KV.vendue-apps.web",
        "$JS.API.STREAM.PURGE.KV_vendue-apps",
        "$JS.API.CONSUMER.CREATE.KV_vendue-apps",
        "$SYS.REQ.SERVER.PING",
    ] {
        for asked in [
            "vendue.instances",
            "vendue.pool",
            "vendue.queued",
            "vendue.cell.cell-a.state",
            "vendue.start",
        ] {
            let sent = alice.client.publish_with_reply(asked, reply, "{}".into());
            sent.await.unwrap();
        }
    }
    // nor does the header lead anywhere but below the answering program's own subject
    for to in ["bob.n", "bob.n.drain", ">.n", "cell-b.drain"] {
        let mut headers = HeaderMap::new();
        headers.insert("Vendue-Answer-To", to);
        let sent = alice
            .client
            .publish_with_headers("vendue.instances", headers, "{}".into());
        sent.await.unwrap();
    }
    alice.client.flush().await.unwrap();
    // once a later message is answered, all of these have been handled
    eventually("both cells go on", async || {
        let both = serves(&secure, "cell-a") && serves(&secure, "cell-b");
        both.then_some(()).ok_or("a cell drains")
    })
    .await;
    let heard = tokio::time::timeout(Duration::ZERO, drained.next()).await;
    if let Ok(Some(event)) = heard {
        let by_nobody = ["crashed", "stopped", "cell-draining"];
        let subject = event.subject.as_str();
        assert!(
            !by_nobody.iter().any(|kind| subject.contains(kind)),
            "{subject}"
        );
    }
    assert_eq!(alice.refusals(), [""; 0], "she may ask all of that");
}

/// Servers can permit a client to publish to the reply subject of whatever it receives, including its own messages and
/// those of an accomplice. Nobody has that right.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_with_a_reply_subject_gives_no_right_to_publish_there() {
    let secure = Secure::server().await;
    let alice = secure.raw("alice").await;
    for (who, own, shared) in [
        (
            "cell-a",
            "vendue.cell.cell-a.advert",
            "vendue.cell.cell-a.state",
        ),
        ("auc-0", "vendue.echo.auc-0", "vendue.pool"),
        ("mgr-0", "vendue.manager.mgr-0.echo", "vendue.app.list"),
    ] {
        let raw = secure.raw(who).await;
        let queue = match who {
            "cell-a" => "q",
            "auc-0" => "auctioneers",
            _ => "managers",
        };
        let mut heard = raw.client.subscribe(own).await.unwrap();
        let mut asked = raw
            .client
            .queue_subscribe(shared, queue.to_owned())
            .await
            .unwrap();
        raw.client.flush().await.unwrap();
        let targets = [
            "vendue.cell.cell-b.advert",
            "vendue.cell.cell-b.drain",
            "vendue.event.crashed.web.cell-b",
            "vendue.app.export.web",
            "$JS.API.STREAM.PURGE.KV_vendue-apps",
        ];
        for target in targets {
            // the first one returns once the server knows both subscriptions
            for (client, subject, messages) in [
                (&raw.client, own, &mut heard),
                (&alice.client, shared, &mut asked),
            ] {
                let sent = client.publish_with_reply(subject, target, "{}".into());
                sent.await.unwrap();
                client.flush().await.unwrap();
                let message = tokio::time::timeout(Duration::from_secs(20), messages.next());
                let message = message.await.expect("it is delivered").unwrap();
                assert_eq!(message.reply.as_deref(), Some(target));
            }
            raw.client.publish(target, "{}".into()).await.unwrap();
        }
        eventually(&format!("{who} is refused all"), async || {
            let refused = |target: &&&str| raw.was_refused("publish", target, None);
            let count = targets.iter().filter(refused).count();
            (count == targets.len()).then_some(()).ok_or(count)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_is_not_believed_what_it_says_as_another() {
    let (secure, _roles) = Secure::cluster().await;
    let alice = secure.raw("alice").await;
    let state = alice
        .client
        .request("vendue.cell.cell-b.state", "".into())
        .await
        .unwrap();
    let mut forged: Value = serde_json::from_slice(&state.payload).unwrap();
    // a new run of cell-b, with nothing to offer
    forged["incarnation"] = json!(uuid::Uuid::new_v4());
    forged["available"] = json!({"memory_mb": 0, "disk_mb": 0, "containers": 0});
    let body = serde_json::to_vec(&forged).unwrap();
    let cell_a = secure.raw("cell-a").await;
    for subject in [
        "vendue.cell.cell-a.advert",
        "vendue.cell.cell-a.heartbeat",
        "vendue.cell.cell-a.answer.auc-0.n",
    ] {
        let sent = cell_a.client.publish(subject, body.clone().into());
        sent.await.unwrap();
    }
    cell_a.client.flush().await.unwrap();
    assert_eq!(cell_a.refusals(), [""; 0], "it may publish there");
    eventually("it is counted", async || {
        let stats = secure.raw("op").await;
        let answer = stats
            .client
            .request("$SRV.STATS.vendue-auctioneer", "".into())
            .await;
        let stats: Value = serde_json::from_slice(&answer.unwrap().payload).unwrap();
        let endpoints = stats["endpoints"].as_array().unwrap();
        let dropped = endpoints
            .iter()
            .find_map(|e| e["data"]["dropped_wrong_subject"].as_u64());
        (dropped == Some(1)).then_some(()).ok_or(stats.to_string())
    })
    .await;
    let cells = secure.run("alice", &["cells", "--output", "json"]).json();
    let cells = cells["cells"].as_array().unwrap();
    let cell_b = cells
        .iter()
        .find(|c| c["cell"]["cell"] == "cell-b")
        .unwrap();
    assert_eq!(cell_b["cell"]["available"]["memory_mb"], 256, "{cell_b}");
}
