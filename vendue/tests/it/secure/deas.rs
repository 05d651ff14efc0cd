//! `dea-in` and `dea-out` between two servers, in the cluster with the keys that `vendue auth` makes, in the estate as the users
//! of docs/LEGACY.md: they do all that they must, and nothing of it is refused.

use std::sync::{Arc, Mutex};

use async_nats::{Client, ConnectOptions, Event, ServerError};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::NatsServer;

use super::cluster::{Secure, auth};
use crate::{
    common::{checkout, end, until},
    dea::{
        droplet,
        estate::Estate,
        outward::{SCRIPT_SHA1, Said, has_room, serve, start},
        staged::{reply, stage, stager_settings},
    },
    roles::Role,
};

/// The server of an estate with the users of the documentation.
async fn estate_server() -> NatsServer {
    let page = std::fs::read_to_string(checkout().join("docs/LEGACY.md")).unwrap();
    let mut blocks = page.split("```text\n").skip(1);
    let config = blocks.find(|block| block.starts_with("authorization"));
    let config = config.unwrap().split("```").next().unwrap();
    NatsServer::with_config(config).await
}

fn url_of(server: &NatsServer, user: &str) -> String {
    format!("nats://{user}:PASSWORD@{}", server.address())
}

/// A client of the estate, and what it is refused.
async fn client(server: &NatsServer, user: &str) -> (Client, Arc<Mutex<Vec<String>>>) {
    let refused: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&refused);
    let options = ConnectOptions::with_user_and_password(user.into(), "PASSWORD".into());
    let options = options.event_callback(move |event| {
        if let Event::ServerError(ServerError::Other(text)) = event {
            heard.lock().unwrap().push(text);
        }
        std::future::ready(())
    });
    let client = options.connect(server.address()).await.unwrap();
    (client, refused)
}

/// What one of the programs counts, once `counter` is `count`.
async fn state(op: &Client, subject: &str, counter: &str, count: u64) -> Value {
    let look = async || {
        let answer = op.request(subject.to_owned(), "".into()).await;
        let payload = answer.map_err(|error| error.to_string())?.payload;
        let state: Value = serde_json::from_slice(&payload).map_err(|error| error.to_string())?;
        let shown = state[counter] == count;
        shown.then_some(state.clone()).ok_or(state.to_string())
    };
    testkit::eventually(&format!("{counter} to be {count}"), look).await
}

fn nothing_was_dropped(state: &Value) {
    let mut all = state.as_object().unwrap().iter();
    let dropped = all.find(|(name, count)| name.starts_with("dropped_") && **count != 0);
    assert_eq!(dropped, None, "{state}");
}

fn instances(secure: &Secure, state: &str) -> usize {
    let said = secure.run("alice", &["ps", "orders", "--all", "--output", "json"]);
    said.expect(0, &[]);
    let all = said.json()["instances"].as_array().unwrap().clone();
    all.iter().filter(|i| i["state"] == state).count()
}

async fn until_instances(secure: &Secure, state: &str, wanted: usize) {
    until(&format!("{wanted} {state}"), || {
        let count = instances(secure, state);
        (count == wanted).then_some(()).ok_or(count.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_does_its_work_with_the_rights_that_are_made_for_it() {
    let server = estate_server().await;
    let bridge_url = url_of(&server, "bridge");
    let (of_deas, _) = client(&server, "nats").await;
    let estate = Estate::on(server, of_deas, 2).await;
    let secure = Secure::server().await;
    let _auctioneer = secure.auctioneer();
    let args = [
        "advertiser",
        "dea-in",
        "--slots",
        "2",
        "--expiry",
        "20s",
        "--settle",
        "1s",
        "--dea-server",
        &bridge_url,
    ];
    let mut bridge = Role::start(&mut secure.command("dea", &args));
    secure.healthy(2).await;
    let file = secure.dir.join("orders.json");
    std::fs::write(&file, droplet(4).to_string()).unwrap();
    let file = file.to_str().unwrap();
    secure.run("alice", &["start", file]).expect(0, &["placed"]);
    until_instances(&secure, "running", 4).await;
    // a bid, a state, an explanation, a list: each is an answer of the bridge's cells
    for args in [
        &["cells", "show", "dea-0"][..],
        &["place", "--live", file],
        &["explain", "orders", "--cells"],
        &["status", "orders"],
    ] {
        secure.run("alice", args).expect(0, &[]);
    }
    let (on, _) = estate.running().remove(0);
    estate.crash(&on);
    until_instances(&secure, "crashed", 1).await;
    secure.run("op", &["cordon", "dea-0"]).expect(0, &[]);
    secure.run("op", &["uncordon", "dea-0"]).expect(0, &[]);
    secure
        .run("op", &["drain", "dea-1", "--deadline", "1s"])
        .expect(0, &[]);
    until("the drained cell to be empty", || {
        let left = estate.running().iter().filter(|(on, _)| on == "d1").count();
        (left == 0).then_some(()).ok_or(left.to_string())
    })
    .await;
    secure.run("alice", &["stop", "orders"]).expect(0, &[]);
    until("everything to be stopped", || {
        let left = instances(&secure, "running") + estate.count();
        (left == 0).then_some(()).ok_or(left.to_string())
    })
    .await;
    let op = secure.raw("op").await;
    let subject = "vendue.bridge.dea.state";
    let state = state(&op.client, subject, "starts_placed", 4).await;
    nothing_was_dropped(&state);
    bridge.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_facade_does_its_work_with_the_rights_that_are_made_for_it() {
    let estate = estate_server().await;
    let secure = Secure::server().await;
    let files: TempDir = tempfile::tempdir().unwrap();
    let settings = stager_settings(&files, "cell-a");
    let rep = ["rep", "--config", settings.to_str().unwrap()];
    let _rep = Role::start(&mut secure.command("cell-a", &rep));
    let (cloud_controller, refused) = client(&estate, "nats").await;
    let (said, listener) = Said::on(cloud_controller.clone()).await;
    let url = url_of(&estate, "facade");
    let mut args = vec!["advertiser", "dea-out", "--cells", "cell-a"];
    args.extend(["--dea-server", &url, "--advertise", "500ms"]);
    args.extend(["--heartbeat", "500ms", "--register", "1s"]);
    let mut facades = Role::start(&mut secure.command("out", &args));
    let dea = said.wait("dea.advertise", has_room(8_192)).await;
    // a second one of the name would stop what the first one runs
    end(&mut secure.command("out", &args)).expect(1, &["another dea-out named \"out\""]);
    let dea = dea["id"].as_str().unwrap();
    let send = async |subject: String, body: String| {
        let sent = cloud_controller.publish(subject, body.into());
        sent.await.unwrap();
    };
    send(format!("dea.{dea}.start"), start(serve(), SCRIPT_SHA1)).await;
    said.wait("router.register", |_| true).await;
    for (subject, question) in [
        ("dea.find.droplet", json!({"droplet": "orders"})),
        ("dea.status", json!({})),
    ] {
        let found = cloud_controller.request(subject, question.to_string().into());
        assert!(!found.await.unwrap().payload.is_empty(), "{subject}");
    }
    for subject in ["dea.locate", "healthmanager.start", "router.start"] {
        send(subject.into(), String::new()).await;
    }
    send("dea.stop".into(), json!({"droplet": "orders"}).to_string()).await;
    said.wait("router.unregister", |_| true).await;
    said.wait("dea.advertise", has_room(8_192)).await;
    for subject in ["staging.locate", "staging.stop"] {
        send(subject.into(), json!({"app_id": "other"}).to_string()).await;
    }
    said.wait("staging.advertise", has_room(8_192)).await;
    let mut replies = stage(&cloud_controller, dea, "bad", 1).await;
    assert_eq!(reply(&mut replies).await["error"], Value::Null);
    assert_eq!(reply(&mut replies).await["error"], "Error staging: exit 3");
    let op = secure.raw("op").await;
    let subject = "vendue.facade.out.state";
    let state = state(&op.client, subject, "starts_accepted", 2).await;
    nothing_was_dropped(&state);
    facades.end();
    said.wait("dea.shutdown", |down| down["id"] == dea).await;
    assert_eq!(*refused.lock().unwrap(), Vec::<String>::new());
    listener.abort();
}

/// Neither speaks as the other does, and the bridge does not read what is started by others.
#[tokio::test(flavor = "multi_thread")]
async fn the_users_of_an_estate_are_refused_the_rest() {
    let estate = estate_server().await;
    let of_bridge = ["dea.advertise", "dea.heartbeat", "dea.shutdown"];
    let of_facade = ["dea.d1.start", "dea.stop", "dea.locate"];
    let unheard = ["dea.*.start", "dea.>", ">", "_INBOX.facade.>"];
    for (user, publish, subscribe) in [
        ("bridge", of_bridge, &unheard[..]),
        ("facade", of_facade, &["dea.>", ">", "_INBOX.bridge.>"]),
    ] {
        let (client, refused) = client(&estate, user).await;
        for subject in publish {
            client.publish(subject, "{}".into()).await.unwrap();
        }
        let mut all = Vec::new();
        for subject in subscribe {
            all.push(client.subscribe(*subject).await.unwrap());
        }
        client.flush().await.unwrap();
        let expected = publish.len() + subscribe.len();
        until(&format!("{user} to be refused all"), || {
            let refused = refused.lock().unwrap().clone();
            let count = refused.len();
            (count == expected)
                .then_some(())
                .ok_or(format!("{refused:?}"))
        })
        .await;
    }
}

#[test]
fn a_cell_is_of_one_facade() {
    let files = tempfile::tempdir().unwrap();
    let dir = files.path().join("auth");
    auth(&dir, &["init"]).expect(0, &[]);
    auth(&dir, &["add-facade", "one", "--cells", "c1,c2"]).expect(0, &[]);
    let second = auth(&dir, &["add-facade", "two", "--cells", "c3,c2"]);
    second.expect(2, &["CELL \"c2\"", "the facade one has it"]);
    auth(&dir, &["add-facade", "two", "--cells", "c3"]).expect(0, &[]);
}
