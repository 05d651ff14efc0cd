//! A droplet's credentials, in its URL, its environment and the bindings of its services, are in the messages that
//! start it and in what a manager stores, but nowhere else: everything that leaves the programs is searched.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use futures_util::StreamExt;
use serde_json::{Value, json};
use testkit::NatsServer;
use tokio::task::JoinHandle;

use super::{
    Cluster, droplet,
    estate::Estate,
    outward::{SCRIPT_SHA1, Said, has_room, rep_settings, serve, start},
};
use crate::{
    common::{Finished, is_old_server, until},
    roles::Role,
};

/// A part of all credentials.
const SECRET: &str = "s3cret";
/// A DEA's message, on its side.
const DESCRIPTION: &str = "error downloading: http://me:s3cret@127.0.0.1/d?token=s3cret (404)";

/// Everything that was published on a server: subject, reply subject, body and headers as text.
type Heard = Arc<Mutex<Vec<(String, String, String)>>>;

async fn hear_all(server: &NatsServer) -> (Heard, JoinHandle<()>) {
    let client = server.client().await;
    let mut all = client.subscribe(">").await.unwrap();
    client.flush().await.unwrap();
    let heard = Heard::default();
    let to = Arc::clone(&heard);
    let task = tokio::spawn(async move {
        while let Some(message) = all.next().await {
            let body = String::from_utf8_lossy(&message.payload);
            let text = format!("{body} {:?}", message.headers);
            let reply = message.reply.map(|reply| reply.to_string());
            let subject = message.subject.to_string();
            to.lock()
                .unwrap()
                .push((subject, reply.unwrap_or_default(), text));
        }
    });
    (heard, task)
}

/// Returns whether a message must contain credentials.
fn must_have_them(subject: &str, reply: &str) -> bool {
    let tokens: Vec<&str> = subject.split('.').collect();
    match tokens[..] {
        // docs/SECURITY.md says whom the server's permissions let hear it
        ["vendue", "start" | "place"]
        | ["vendue", "cell", _, "start"]
        | ["vendue", "app", "put", _]
        | ["dea", _, "start"] => true,
        // stored, and shown to the manager that watches it
        ["$KV", "vendue-apps", ..] => true,
        _ => reply.starts_with("$JS.ACK.KV_vendue-apps."),
    }
}

fn is_clean(heard: &Heard) {
    let heard = heard.lock().unwrap();
    assert!(heard.len() > 10);
    for (subject, reply, text) in heard.iter() {
        let text = text.replace(DESCRIPTION, "");
        let fine = !text.contains(SECRET) || must_have_them(subject, reply);
        assert!(fine, "{subject} {reply} {text}");
    }
}

/// Programs whose logs are kept.
struct Programs {
    cluster: Cluster,
    logs: Vec<PathBuf>,
    running: Vec<Role>,
}

impl Programs {
    fn start(&mut self, args: &[&str]) {
        let log = self
            .cluster
            .files
            .path()
            .join(format!("{}.log", self.logs.len()));
        let role = Role::logged(&mut self.cluster.command(args), &log);
        self.running.push(role);
        self.logs.push(log);
    }

    /// Runs a command, whose output must be clean.
    fn run(&self, code: i32, args: &[&str]) -> Finished {
        let said = self.cluster.run(args);
        said.expect(code, &[]);
        assert!(!format!("{said:?}").contains(SECRET), "{args:?} {said:?}");
        said
    }
}

/// Returns a request for a droplet with every kind of credentials.
fn request(app: &str, instances: u32, port: u16, sha1: &str) -> Value {
    let mut request = droplet(instances);
    request["app"] = json!(app);
    let droplet = &mut request["run"]["droplet"];
    droplet["uri"] = json!(format!("http://me:s3cret@127.0.0.1:{port}/d?token=s3cret"));
    droplet["sha1"] = json!(sha1);
    droplet["services"] = json!([{"name": "db", "label": "postgres", "tags": [],
        "credentials": {"uri": "postgres://me:s3cret@db.example.test/x", "password": "s3cret"}}]);
    request["run"]["env"] = json!({"TOKEN": "s3cret"});
    request
}

impl Programs {
    /// Starts droplets on both kinds of cells: one that runs, one with a wrong archive, one for which there is no room.
    async fn starts(&self, estate: &Estate, port: u16) {
        for (code, body) in [
            (0, request("orders", 3, port, "")),
            (0, request("broken", 3, port, &"0".repeat(40))),
            (3, request("huge", 100, port, "")),
        ] {
            let app = body["app"].as_str().unwrap().to_owned();
            let file = self.cluster.file("request.json", &body);
            let file = file.to_str().unwrap();
            self.run(code, &["place", "--live", file, "--explain"]);
            self.run(code, &["start", file, "--output", "json"]);
            self.run(0, &["explain", &app, "--cells"]);
            self.run(0, &["explain", &app, "--output", "json"]);
        }
        until("what cannot be fetched to crash", || {
            let crashed = self.cluster.instances("broken", "crashed")?;
            let said = || format!("{:?}", self.cluster.run(&["ps", "--all"]));
            (!crashed.is_empty()).then_some(()).ok_or_else(said)
        })
        .await;
        a_dea_says_where_it_could_not_fetch(estate).await;
        until("the crash on the DEA to be told", || {
            let said = self.run(0, &["ps", "--all", "--output", "json"]);
            let shown = "http://(hidden)@127.0.0.1/d?(hidden) (404)";
            said.out.contains(shown).then_some(()).ok_or(said.out)
        })
        .await;
        self.run(0, &["stop", "orders"]);
        self.run(0, &["stop", "broken"]);
    }

    /// Has a manager store, change and show an app.
    fn app(&self, port: u16) {
        let app = request("kept", 1, port, SCRIPT_SHA1);
        let file = self.cluster.file("kept.json", &app);
        let file = file.to_str().unwrap();
        for args in [
            &["app", "put", file, "--dry-run"][..],
            &["app", "put", file, "--wait"],
            &["app", "scale", "kept", "2"],
            &["app", "show", "kept"],
            &["app", "show", "kept", "--output", "json"],
            &["app", "history", "kept", "--output", "json"],
            &["app", "list", "--output", "json"],
            &["status", "kept"],
            &["ps", "--all", "--output", "json"],
            &["cells", "--output", "json"],
        ] {
            self.run(0, args);
        }
    }
}

/// Has a Cloud Controller start two on a cell, one of them with a wrong archive.
async fn starts_of_a_cloud_controller(others: &NatsServer, port: u16) {
    let client = others.client().await;
    let (said, listener) = Said::on(client.clone()).await;
    let dea = said.wait("dea.advertise", |ad| !has_room(0)(ad)).await;
    let subject = format!("dea.{}.start", dea["id"].as_str().unwrap());
    for sha1 in [SCRIPT_SHA1, &"1".repeat(40)] {
        let body = start(port, sha1).into();
        client.publish(subject.clone(), body).await.unwrap();
    }
    said.wait("droplet.exited", |_| true).await;
    listener.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_nowhere_but_where_they_must_be() {
    if is_old_server() {
        return; // managers need a newer one
    }
    let (estate, others) = (Estate::of(1).await, NatsServer::start().await);
    let data = tempfile::tempdir().unwrap();
    let config = format!("jetstream {{ store_dir: \"{}\" }}", data.path().display());
    let server = NatsServer::with_config(&config).await;
    let mut listening = Vec::new();
    for server in [&server, &estate.server, &others] {
        listening.push(hear_all(server).await);
    }
    let cluster = Cluster {
        url: server.url(),
        files: tempfile::tempdir().unwrap(),
    };
    let settings = rep_settings(&cluster.files, "c1");
    let mut programs = Programs {
        cluster,
        logs: Vec::new(),
        running: Vec::new(),
    };
    let (estate_url, others_url) = (estate.server.url(), others.url());
    let bridge = ["advertiser", "dea-in", "--dea-server", &estate_url];
    let facade = ["advertiser", "dea-out", "--dea-server", &others_url];
    programs.start(&["auctioneer"]);
    programs.start(&["manager"]);
    programs.start(&["rep", "--config", settings.to_str().unwrap()]);
    programs.start(&[&bridge[..], &["--slots", "2", "--settle", "1s"]].concat());
    programs.start(&[&facade[..], &["--cells", "c1", "--advertise", "500ms"]].concat());
    programs.cluster.cells(2).await;
    let port = serve();
    programs.starts(&estate, port).await;
    programs.app(port);
    starts_of_a_cloud_controller(&others, port).await;

    programs.running.iter_mut().for_each(Role::end);
    for log in &programs.logs {
        let text = fs::read_to_string(log).unwrap();
        assert!(!text.is_empty() && !text.contains(SECRET), "{text}");
    }
    for (heard, task) in listening {
        is_clean(&heard);
        task.abort();
    }
}

/// Sends a message like DEAs do, with the whole URL.
async fn a_dea_says_where_it_could_not_fetch(estate: &Estate) {
    let (_, start) = estate.running().remove(0);
    let exited = json!({"cc_partition": "default", "droplet": start.droplet, "version": start.version,
        "instance": "c0ffee", "index": start.index, "reason": "CRASHED", "exit_status": -1,
        "exit_description": DESCRIPTION});
    let client = estate.server.client().await;
    let body = exited.to_string().into();
    client.publish("droplet.exited", body).await.unwrap();
    client.flush().await.unwrap();
}
