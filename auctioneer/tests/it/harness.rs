//! A cluster for one test.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_nats::{Client, Message};
use futures_util::StreamExt;
use placement::Policy;
use serde_json::{Value, json};
use shared::{
    Subjects,
    nats::{Bus, Echo, NatsOptions, connect},
    shutdown::CancellationToken,
};
use testkit::{Link, NatsServer, eventually};
use tokio::task::JoinHandle;

/// How long a test waits for an answer; only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Cluster {
    pub(crate) server: NatsServer,
    pub(crate) subjects: Subjects,
    pub(crate) client: Client,
}

/// A running auctioneer; when dropped, it is gone at once, as if killed.
pub(crate) struct Running {
    pub(crate) shutdown: CancellationToken,
    task: JoinHandle<Result<(), auctioneer::AuctioneerError>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Running {
    /// Waits until it ends by itself.
    pub(crate) async fn ended(mut self) -> Result<(), auctioneer::AuctioneerError> {
        let ended = tokio::time::timeout(PATIENCE, &mut self.task).await;
        ended.expect("it ends in time").unwrap()
    }

    /// Asks it to leave, and waits until it has.
    pub(crate) async fn leave(mut self) {
        self.shutdown.cancel();
        let ended = tokio::time::timeout(PATIENCE, &mut self.task).await;
        ended.expect("it leaves in time").unwrap().unwrap();
    }
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        Self::on(NatsServer::start().await).await
    }

    pub(crate) async fn on(server: NatsServer) -> Self {
        let client = server.client().await;
        Self {
            server,
            subjects: Subjects::new("vendue").unwrap(),
            client,
        }
    }

    pub(crate) async fn bus(&self, name: &str) -> Bus {
        bus(self.server.url(), name).await
    }

    /// Starts an auctioneer, which may not have warmed up yet.
    pub(crate) async fn auctioneer(&self, name: &str, policy: &str) -> Running {
        self.auctioneer_at(self.server.url(), name, policy).await
    }

    /// Starts an auctioneer that connects through a link.
    pub(crate) async fn auctioneer_through(
        &self,
        link: &Link,
        name: &str,
        policy: &str,
    ) -> Running {
        self.auctioneer_at(link.url(), name, policy).await
    }

    async fn auctioneer_at(&self, url: String, name: &str, policy: &str) -> Running {
        let options = NatsOptions {
            echo: Echo::ToItself,
            ..options(url, name)
        };
        let bus = connect(&options).await.unwrap();
        let shutdown = CancellationToken::new();
        let config = auctioneer::AuctioneerConfig {
            single: false,
            limits: auctioneer::Limits::default(),
            name: name.to_owned(),
            policy: Policy::preset(policy).unwrap(),
        };
        let run = auctioneer::run(config, bus, self.subjects.clone(), shutdown.clone());
        Running {
            shutdown,
            task: tokio::spawn(run),
        }
    }

    /// Starts an auctioneer, and waits until it accepts requests and sees this many cells.
    pub(crate) async fn warm(&self, name: &str, policy: &str, cells: usize) -> Running {
        let running = self.auctioneer(name, policy).await;
        self.sees(name, cells).await;
        running
    }

    /// Waits until this auctioneer sees this many cells. With several auctioneers, each gets some of the requests.
    pub(crate) async fn sees(&self, name: &str, cells: usize) {
        eventually(&format!("{name} to see {cells} cells"), async || {
            let pool = self.try_ask(&self.subjects.pool(), b"").await?;
            if pool["auctioneer"] == name && pool["total"] == cells {
                return Ok(());
            }
            Err(pool.to_string())
        })
        .await;
    }

    pub(crate) async fn try_ask(&self, subject: &str, body: &[u8]) -> Result<Value, String> {
        let message = self.raw(subject, body).await?;
        serde_json::from_slice(&message.payload).map_err(|e| e.to_string())
    }

    pub(crate) async fn raw(&self, subject: &str, body: &[u8]) -> Result<Message, String> {
        self.raw_within(PATIENCE, subject, body).await
    }

    /// Sends a request, and gives up after `patience`.
    pub(crate) async fn raw_within(
        &self,
        patience: Duration,
        subject: &str,
        body: &[u8],
    ) -> Result<Message, String> {
        let request = async_nats::Request::new()
            .payload(body.to_vec().into())
            .timeout(Some(patience));
        let sent = self.client.send_request(subject.to_owned(), request).await;
        sent.map_err(|e| e.to_string())
    }

    /// Waits until the server knows that a cell is gone: its connection is closed a moment after it was dropped.
    pub(crate) async fn no_connection_of(&self, cell: &str) {
        let subject = self.subjects.cell(cell, "start");
        eventually("no responders", async || {
            let asked = self
                .raw_within(Duration::from_millis(200), &subject, b"")
                .await;
            match asked {
                Err(e) if e.contains("no responders") => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .await;
    }

    pub(crate) async fn ask(&self, subject: &str, body: &Value) -> Value {
        let body = serde_json::to_vec(body).unwrap();
        self.try_ask(subject, &body).await.unwrap()
    }

    /// Sends a start request, and returns its answer.
    pub(crate) async fn start_app(&self, body: &Value) -> Value {
        self.ask(&self.subjects.start(), body).await
    }

    /// Returns the counters of the auctioneers, by name.
    pub(crate) async fn counters(&self) -> BTreeMap<String, Value> {
        let inbox = self.client.new_inbox();
        let mut answers = self.client.subscribe(inbox.clone()).await.unwrap();
        let subject = "$SRV.STATS.vendue-auctioneer";
        self.client
            .publish_with_reply(subject, inbox, "".into())
            .await
            .unwrap();
        let mut counters = BTreeMap::new();
        let wait = Duration::from_millis(200);
        while let Ok(Some(answer)) = tokio::time::timeout(wait, answers.next()).await {
            let stats: Value = serde_json::from_slice(&answer.payload).unwrap();
            let endpoints = stats["endpoints"].as_array().unwrap();
            let start = endpoints.iter().find(|e| e["name"] == "start");
            let data = start.map(|e| e["data"].clone()).unwrap_or_default();
            counters.insert(stats["id"].as_str().unwrap().to_owned(), data);
        }
        counters
    }

    /// Returns one counter of the only auctioneer.
    pub(crate) async fn counter(&self, name: &str) -> u64 {
        let counters = self.counters().await;
        counters
            .values()
            .next()
            .and_then(|c| c[name].as_u64())
            .unwrap_or_default()
    }

    /// Records all messages from now on.
    pub(crate) async fn watch(&self) -> Watch {
        let client = self.server.client().await;
        let mut subscription = client.subscribe("vendue.>").await.unwrap();
        client.flush().await.unwrap();
        let messages: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let kept = Arc::clone(&messages);
        tokio::spawn(async move {
            while let Some(message) = subscription.next().await {
                let body = serde_json::from_slice(&message.payload).unwrap_or_default();
                kept.lock()
                    .unwrap()
                    .push((message.subject.to_string(), body));
            }
        });
        Watch { messages }
    }
}

async fn bus(url: String, name: &str) -> Bus {
    connect(&options(url, name)).await.unwrap()
}

fn options(url: String, name: &str) -> NatsOptions {
    NatsOptions {
        url,
        name: name.to_owned(),
        patient: true,
        ..NatsOptions::default()
    }
}

/// The messages that an observer has received.
pub(crate) struct Watch {
    messages: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Watch {
    /// Returns the bodies on subjects with this prefix.
    pub(crate) fn on(&self, subject: &str) -> Vec<Value> {
        let messages = self.messages.lock().unwrap();
        let on = messages.iter().filter(|(s, _)| s.starts_with(subject));
        on.map(|(_, body)| body.clone()).collect()
    }

    pub(crate) fn count(&self, subject: &str) -> usize {
        self.on(subject).len()
    }

    /// Waits for a message on a subject with this prefix.
    pub(crate) async fn received(&self, subject: &str) -> Value {
        eventually(subject, async || self.on(subject).pop()).await
    }
}

/// Returns a start request as JSON.
pub(crate) fn request(id: &str, app: &str, memory_mb: i64, instances: u32) -> Value {
    json!({ "id": id, "app": app, "memory_mb": memory_mb, "disk_mb": 1, "instances": instances,
        "run": { "command": ["true"] } })
}

/// Returns the cells of an answer's instances.
pub(crate) fn cells_of(reply: &Value) -> Vec<String> {
    let instances = reply["instances"].as_array().unwrap();
    let cells = instances.iter().filter_map(|i| i["cell"].as_str());
    cells.map(str::to_owned).collect()
}
