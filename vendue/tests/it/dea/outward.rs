//! Cells as DEAs, and the migration from one to the other.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use async_nats::Client;
use futures_util::{StreamExt, stream::select_all};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::NatsServer;
use tokio::task::JoinHandle;

use super::Cluster;
use crate::{common::until, roles::Role};

/// A droplet that is not an archive.
const SCRIPT: &str = "#!/bin/sh\nexec sleep 1000\n";
pub(crate) const SCRIPT_SHA1: &str = "557cbec31dcb971968bcb0a9f62c5704f7d3f238";

/// Serves the script for every request; returns the port. It ends with the test.
pub(crate) fn serve() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let _ = lines.map_while(Result::ok).find(String::is_empty);
            let length = SCRIPT.len();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close");
            let _ = write!(stream, "{head}\r\n\r\n{SCRIPT}");
        }
    });
    port
}

/// Writes the settings of a rep that runs droplets to a file.
pub(crate) fn rep_settings(files: &TempDir, cell: &str) -> PathBuf {
    let settings = format!(
        "cell = \"{cell}\"\nmemory = 1024\ndisk = 1024\ngrace = \"1s\"\nheartbeat = \"1s\"\nstate-dir = \"{}\"\n\
         [attributes]\ndroplets = true\nstacks = [\"cflinuxfs2\"]\n",
        files.path().display()
    );
    let file = files.path().join(format!("{cell}.toml"));
    fs::write(&file, settings).unwrap();
    // instances, which run as another user if the test is root's, must be able to pass through
    fs::set_permissions(files, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

impl Cluster {
    /// Starts a rep that runs droplets.
    pub(super) fn rep(&self, cell: &str) -> Role {
        let file = rep_settings(&self.files, cell);
        self.role(&["rep", "--config", file.to_str().unwrap()])
    }
}

/// What is published on an estate: the last message on each subject, and all messages.
#[derive(Default)]
pub(crate) struct Said(Mutex<Vec<(String, Value)>>);

impl Said {
    pub(crate) async fn on(client: Client) -> (Arc<Self>, JoinHandle<()>) {
        let subjects = ["dea.>", "staging.advertise", "droplet.exited", "router.*"];
        Self::on_these(client, &subjects).await
    }

    /// Listens to what is published in a cluster.
    pub(crate) async fn on_all(client: Client) -> (Arc<Self>, JoinHandle<()>) {
        Self::on_these(client, &["vendue.>"]).await
    }

    async fn on_these(client: Client, subjects: &[&'static str]) -> (Arc<Self>, JoinHandle<()>) {
        let mut all = Vec::new();
        for subject in subjects {
            all.push(client.subscribe(*subject).await.unwrap());
        }
        client.flush().await.unwrap();
        let said = Arc::new(Self::default());
        let to = Arc::clone(&said);
        let task = tokio::spawn(async move {
            let mut messages = select_all(all);
            while let Some(message) = messages.next().await {
                let body = serde_json::from_slice(&message.payload).unwrap_or_default();
                to.0.lock()
                    .unwrap()
                    .push((message.subject.to_string(), body));
            }
        });
        (said, task)
    }

    pub(crate) fn last(&self, subject: &str) -> Option<Value> {
        let said = self.0.lock().unwrap();
        let mut said = said.iter().rev();
        said.find(|(on, _)| on == subject)
            .map(|(_, body)| body.clone())
    }

    /// Asserts that no message contains the text, except for those on one subject.
    #[track_caller]
    pub(crate) fn nowhere_but(&self, subject: &str, text: &str) {
        let said = self.0.lock().unwrap();
        let has = |body: &Value| body.to_string().contains(text);
        let found = said.iter().find(|(on, body)| on != subject && has(body));
        assert_eq!(found, None);
        assert!(said.iter().any(|(on, body)| on == subject && has(body)));
    }

    /// Waits until the last message on a subject is as wanted.
    pub(crate) async fn wait(&self, subject: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        until(subject, || {
            let last = self.last(subject);
            let found = last.clone().filter(&wanted);
            found.ok_or(format!("{last:?}"))
        })
        .await
    }
}

/// Returns a start as a Cloud Controller sends it.
pub(crate) fn start(port: u16, sha1: &str) -> String {
    json!({"droplet": "orders", "name": "orders", "stack": "cflinuxfs2", "uris": ["orders.example.test"], "prod": false,
        "sha1": sha1, "executableFile": "deprecated",
        "executableUri": format!("http://me:s3cret@127.0.0.1:{port}/d"), "version": "v1", "services": [],
        "limits": {"mem": 256, "disk": 64, "fds": 256}, "env": ["KEY=s3cret"], "cc_partition": "default", "console": false,
        "debug": null, "start_command": "exec ./source", "health_check_timeout": null, "vcap_application": {}, "index": 0,
        "egress_network_rules": []})
    .to_string()
}

pub(crate) fn has_room(memory: i64) -> impl Fn(&Value) -> bool {
    move |ad| ad["available_memory"] == memory
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cloud_controller_starts_finds_and_stops_a_droplet_on_a_cell() {
    let estate = NatsServer::start().await;
    let server = NatsServer::start().await;
    let cluster = Cluster {
        url: server.url(),
        files: tempfile::tempdir().unwrap(),
    };
    let (said, listener) = Said::on(estate.client().await).await;
    let _auctioneer = cluster.role(&["auctioneer"]);
    let _rep = cluster.rep("c1");
    cluster.cells(1).await;
    let url = estate.url();
    let mut args = vec![
        "advertiser",
        "dea-out",
        "--cells",
        "c1",
        "--dea-server",
        &url,
    ];
    args.extend([
        "--advertise",
        "500ms",
        "--heartbeat",
        "500ms",
        "--register",
        "1s",
    ]);
    let mut facades = cluster.role(&args);
    let dea = said.wait("dea.advertise", has_room(1_024)).await;
    assert_eq!(dea["stacks"], json!(["cflinuxfs2"]));
    let dea = dea["id"].as_str().unwrap();
    let (port, cloud_controller) = (serve(), estate.client().await);
    let send = async |subject: String, body: String| {
        cloud_controller
            .publish(subject, body.into())
            .await
            .unwrap();
    };
    send(format!("dea.{dea}.start"), start(port, &"0".repeat(40))).await;
    // the content differs, so that it never runs
    let ended = said
        .wait("droplet.exited", |ended| ended["droplet"] == "orders")
        .await;
    let why = ended["exit_description"].as_str().unwrap();
    assert!(why.contains("sha1") && !why.contains("s3cret"), "{why}");
    let sha1 = why.split("sha1: ").nth(1).unwrap();
    let sha1 = sha1.split(';').next().unwrap();
    send(format!("dea.{dea}.start"), start(port, sha1)).await;
    let runs = |beat: &Value| {
        let all = beat["droplets"].as_array();
        all.is_some_and(|all| all.iter().any(|i| i["state"] == "RUNNING"))
    };
    said.wait("dea.heartbeat", runs).await;
    let route = said.wait("router.register", |_| true).await;
    assert_eq!(route["uris"], json!(["orders.example.test"]));
    let question = json!({"droplet": "orders", "states": ["RUNNING"]}).to_string();
    let found = cloud_controller.request("dea.find.droplet", question.into());
    let found: Value = serde_json::from_slice(&found.await.unwrap().payload).unwrap();
    assert_eq!(
        (&found["dea"], &found["version"]),
        (&json!(dea), &json!("v1"))
    );
    said.wait("dea.advertise", has_room(768)).await;
    send("dea.stop".into(), json!({"droplet": "orders"}).to_string()).await;
    said.wait("router.unregister", |_| true).await;
    said.wait("dea.advertise", has_room(1_024)).await;
    facades.end();
    said.wait("dea.shutdown", |down| down["id"] == dea).await;
    listener.abort();
}

/// In the view of its operators a cell is drained; in the view of its Cloud Controller a DEA is evacuated, and another
/// one appears.
#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_is_drained_is_a_dea_that_evacuates() {
    let estate = NatsServer::start().await;
    let server = NatsServer::start().await;
    let cluster = Cluster {
        url: server.url(),
        files: tempfile::tempdir().unwrap(),
    };
    let cloud_controller = estate.client().await;
    let (said, listener) = Said::on(cloud_controller.clone()).await;
    let _auctioneer = cluster.role(&["auctioneer"]);
    let _rep = cluster.rep("c1");
    cluster.cells(1).await;
    let url = estate.url();
    let mut args = vec!["advertiser", "dea-out", "--cells", "c1"];
    args.extend(["--dea-server", &url, "--advertise", "500ms"]);
    args.extend(["--heartbeat", "500ms", "--register", "1s"]);
    let _facades = cluster.role(&args);
    let dea = said.wait("dea.advertise", has_room(1_024)).await;
    let dea = dea["id"].as_str().unwrap();
    let send = async |subject: String, body: String| {
        let sent = cloud_controller.publish(subject, body.into());
        sent.await.unwrap();
    };
    send(format!("dea.{dea}.start"), start(serve(), SCRIPT_SHA1)).await;
    let in_state = |state: &'static str| {
        move |beat: &Value| {
            let all = beat["droplets"].as_array();
            all.is_some_and(|all| all.iter().any(|i| i["state"] == state))
        }
    };
    said.wait("dea.heartbeat", in_state("RUNNING")).await;
    cluster
        .run(&["drain", "c1", "--deadline", "10m", "--no-wait"])
        .expect(0, &[]);
    said.wait("dea.shutdown", |down| down["id"] == dea).await;
    said.wait("droplet.exited", |ended| {
        ended["reason"] == "DEA_EVACUATION"
    })
    .await;
    said.wait("dea.heartbeat", in_state("EVACUATING")).await;
    // it runs until the Cloud Controller has it elsewhere
    assert_eq!(cluster.instances("orders", "running").unwrap().len(), 1);
    send("dea.stop".into(), json!({"droplet": "orders"}).to_string()).await;
    until("the instance to be stopped", || {
        let left = cluster.instances("orders", "running")?;
        left.is_empty().then_some(()).ok_or(format!("{left:?}"))
    })
    .await;
    cluster.run(&["uncordon", "c1"]).expect(0, &[]);
    said.wait("dea.start", |hello| hello["id"] != dea).await;
    let next = said.wait("dea.advertise", has_room(1_024)).await;
    assert_ne!(next["id"], dea);
    listener.abort();
}
