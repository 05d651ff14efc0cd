//! A cluster for one test.

use std::{collections::BTreeMap, time::Duration};

use async_nats::Client;
use manager::{BucketConfig, ManagerConfig, ManagerError};
use placement::{Policy, Resources, Span};
use serde_json::{Value, json};
use shared::{
    Subjects,
    nats::{Bus, Echo, NatsOptions, connect},
    shutdown::CancellationToken,
};
use tempfile::TempDir;
use testkit::{NatsServer, eventually, eventually_within};
use tokio::task::JoinHandle;

/// A manager takes the lease of one that is gone after 15 s.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

pub(crate) struct Cluster {
    pub(crate) server: NatsServer,
    pub(crate) subjects: Subjects,
    pub(crate) client: Client,
    _data: TempDir,
}

/// A running role. Dropping it ends it at once, as if killed.
pub(crate) struct Running<E> {
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), E>>,
}

impl<E> Drop for Running<E> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl<E: std::fmt::Debug> Running<E> {
    /// Asks it to leave, and waits until it has.
    pub(crate) async fn leave(mut self) {
        self.shutdown.cancel();
        let ended = tokio::time::timeout(PATIENCE, &mut self.task).await;
        ended.expect("it leaves in time").unwrap().unwrap();
    }

    /// Waits until it ends by itself.
    pub(crate) async fn ended(mut self) -> Result<(), E> {
        let ended = tokio::time::timeout(PATIENCE, &mut self.task).await;
        ended.expect("it ends in time").unwrap()
    }
}

/// Starts a server with JetStream, and creates a directory for its data.
pub(crate) async fn server(more: &str) -> (NatsServer, TempDir) {
    let data = tempfile::tempdir().unwrap();
    let store = data.path().display();
    let config = format!("jetstream {{ store_dir: \"{store}\" }}\n{more}");
    (NatsServer::with_config(&config).await, data)
}

impl Cluster {
    /// Starts a cluster; none if this server is too old for managers, in which case that was tested.
    pub(crate) async fn start() -> Option<Self> {
        Self::with("").await
    }

    pub(crate) async fn with(more: &str) -> Option<Self> {
        let (server, data) = server(more).await;
        let client = server.client().await;
        let cluster = Self {
            server,
            subjects: Subjects::new("vendue").unwrap(),
            client,
            _data: data,
        };
        if cluster.is_old() {
            let error = cluster.manager("m1").await.ended().await.unwrap_err();
            let text = error.to_string();
            assert!(matches!(error, ManagerError::OldServer(_)), "{text}");
            assert!(
                text.contains("2.11.15") && text.contains("2.12.6"),
                "{text}"
            );
            return None;
        }
        Some(cluster)
    }

    fn is_old(&self) -> bool {
        let version = self.client.server_info().version;
        ["2.9.", "2.10."].iter().any(|old| version.starts_with(old))
    }

    pub(crate) async fn bus(&self, name: &str) -> Bus {
        let options = NatsOptions {
            url: self.server.url(),
            name: name.to_owned(),
            patient: true,
            ..NatsOptions::default()
        };
        connect(&options).await.unwrap()
    }

    pub(crate) async fn manager(&self, name: &str) -> Running<ManagerError> {
        self.manager_as(name, "").await
    }

    /// Starts a manager that connects with these credentials: `user:password@`.
    pub(crate) async fn manager_as(&self, name: &str, user: &str) -> Running<ManagerError> {
        let options = NatsOptions {
            url: self
                .server
                .url()
                .replace("nats://", &format!("nats://{user}")),
            name: name.to_owned(),
            patient: true,
            ..NatsOptions::default()
        };
        let bus = connect(&options).await.unwrap();
        let shutdown = CancellationToken::new();
        let config = ManagerConfig {
            name: name.to_owned(),
            bucket: BucketConfig {
                name: "apps".into(),
                replicas: 1,
            },
        };
        let (subjects, state) = (self.subjects.clone(), bus.clone());
        let run = manager::run(config, bus, state, subjects, shutdown.clone());
        let task = tokio::spawn(run);
        Running { shutdown, task }
    }

    /// Starts an auctioneer and `count` cells, and waits until it sees them.
    pub(crate) async fn cells(&self, count: usize) -> Vec<Running<rep::RepError>> {
        let mut reps = Vec::new();
        for n in 0..count {
            reps.push(self.cell(&format!("cell-{n}")).await);
        }
        let shutdown = CancellationToken::new();
        let options = NatsOptions {
            url: self.server.url(),
            name: "a1".into(),
            patient: true,
            echo: Echo::ToItself,
            ..NatsOptions::default()
        };
        let bus = connect(&options).await.unwrap();
        let config = auctioneer::AuctioneerConfig {
            single: false,
            limits: auctioneer::Limits::default(),
            name: "a1".into(),
            policy: Policy::preset("diego").unwrap(),
        };
        let run = auctioneer::run(config, bus, self.subjects.clone(), shutdown);
        // it ends with the test's runtime
        tokio::spawn(run);
        eventually("the auctioneer to see the cells", async || {
            let pool = self.ask(&self.subjects.pool(), &json!({})).await;
            (pool["total"] == count)
                .then_some(())
                .ok_or(pool.to_string())
        })
        .await;
        reps
    }

    /// Starts a cell whose silence is noticed soon.
    pub(crate) async fn cell(&self, name: &str) -> Running<rep::RepError> {
        let seconds = |s| Span(Duration::from_secs(s));
        let mut config = rep::RepConfig::new(name, "z1", Resources::new(1_000, 100_000, 1_000));
        config.executor = rep::ExecutorKind::Simulated(rep::SimulatedConfig::default());
        (config.interval, config.ttl, config.heartbeat) = (seconds(1), seconds(3), seconds(1));
        let shutdown = CancellationToken::new();
        let bus = self.bus(name).await;
        let run = rep::run(config, bus, self.subjects.clone(), shutdown.clone());
        let task = tokio::spawn(async move { run.await.map(drop) });
        Running { shutdown, task }
    }

    /// Sends a request and returns the answer, which may be an error.
    pub(crate) async fn ask(&self, subject: &str, body: &Value) -> Value {
        self.try_ask(subject, &serde_json::to_vec(body).unwrap())
            .await
            .unwrap_or_else(|error| json!({ "none": error }))
    }

    pub(crate) async fn try_ask(&self, subject: &str, body: &[u8]) -> Result<Value, String> {
        let request = async_nats::Request::new()
            .payload(body.to_vec().into())
            .timeout(Some(Duration::from_secs(20)));
        let sent = self.client.send_request(subject.to_owned(), request).await;
        let message = sent.map_err(|e| e.to_string())?;
        serde_json::from_slice(&message.payload).map_err(|e| e.to_string())
    }

    /// Sends a request about an app, repeating it until a manager is ready.
    pub(crate) async fn app(&self, verb: &str, app: &str, body: Value) -> Value {
        let subject = self.subjects.app(verb, app);
        eventually("a manager that knows the bucket", async || {
            let answer = self.ask(&subject, &body).await;
            let early = answer["none"].is_string()
                || answer["error"]["message"]
                    .as_str()
                    .is_some_and(|m| m.contains("not available"));
            if early {
                Err(answer.to_string())
            } else {
                Ok(answer)
            }
        })
        .await
    }

    pub(crate) async fn put(&self, definition: Value) -> Value {
        let app = definition["app"].as_str().unwrap().to_owned();
        self.app("put", &app, json!({ "v": 1, "definition": definition }))
            .await
    }

    /// Waits until `count` instances of an app run, according to a manager that acts.
    pub(crate) async fn runs(&self, app: &str, count: u64) {
        eventually_within(PATIENCE, &format!("{count} of {app}"), async || {
            let shown = self.app("show", app, json!({})).await;
            let runs = shown["status"]["running"] == count;
            let good = runs && shown["status"]["starting"] == 0;
            if good { Ok(()) } else { Err(shown.to_string()) }
        })
        .await;
    }

    /// Waits until the cells have `count` instances of an app, each index once; returns their ids by index.
    pub(crate) async fn each_once(&self, app: &str, count: usize) -> BTreeMap<u64, String> {
        eventually_within(PATIENCE, &format!("{count} of {app}, once"), async || {
            let held = self.held(app).await;
            let by_index: BTreeMap<u64, String> = held.iter().cloned().collect();
            if held.len() == count && by_index.len() == count {
                return Ok(by_index);
            }
            Err(format!("{held:?}"))
        })
        .await
    }

    /// Returns index and id of each instance of an app that the cells have.
    pub(crate) async fn held(&self, app: &str) -> Vec<(u64, String)> {
        let mut held = Vec::new();
        let body = serde_json::to_vec(&json!({ "v": 1, "app": app })).unwrap();
        let (most, quiet) = (Duration::from_secs(5), Duration::from_millis(300));
        let subject = self.subjects.instances();
        shared::ask::gather(
            &self.client,
            subject,
            body.into(),
            most,
            Some(quiet),
            |answer| {
                let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
                for one in answer["instances"].as_array().unwrap() {
                    let over = ["exited", "crashed", "stopping"];
                    if !over.contains(&one["state"].as_str().unwrap()) {
                        let id = one["instance"].as_str().unwrap().to_owned();
                        held.push((one["index"].as_u64().unwrap(), id));
                    }
                }
                false
            },
        )
        .await
        .unwrap();
        held
    }
}

/// Returns the definition of the app `web`.
pub(crate) fn web(instances: u32) -> Value {
    json!({ "app": "web", "instances": instances, "memory_mb": 16, "disk_mb": 16,
        "run": { "command": ["true"], "env": { "KEY": "s3cret" } },
        "update": { "min_healthy": "0s", "max_in_flight": 10 } })
}
