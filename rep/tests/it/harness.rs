//! A cell under test, its server, and functions to talk to it.

use std::{sync::Arc, time::Duration};

use async_nats::{Client, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use placement::{Resources, Run, Span};
use rep::{ExecutorKind, ProcessConfig, RepConfig, RepError, RepExit, SimulatedConfig};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use shared::{
    InstanceId, Subjects,
    clock::CellTime,
    nats::{Bus, Echo, NatsOptions},
    shutdown::CancellationToken,
    wire::{Acceptance, CellStart, Instance, InstanceState, InstancesAnswer, Work},
};
use testkit::NatsServer;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// A cell that runs in this process.
pub(crate) struct Cell {
    pub(crate) name: String,
    pub(crate) client: Client,
    pub(crate) shutdown: CancellationToken,
    pub(crate) task: JoinHandle<Result<RepExit, RepError>>,
}

/// Returns the configuration of a simulated cell with 1,000 MiB of each resource.
pub(crate) fn config(name: &str) -> RepConfig {
    let mut config = RepConfig::new(name, "z1", Resources::new(1_000, 1_000, 100));
    config.executor = ExecutorKind::Simulated(SimulatedConfig::default());
    config.grace = Span(Duration::from_secs(2));
    config
}

pub(crate) fn subjects() -> Subjects {
    Subjects::new("vendue").unwrap()
}

pub(crate) async fn bus(url: &str) -> Bus {
    let options = NatsOptions {
        url: url.into(),
        name: format!("test-{}", Uuid::new_v4()),
        echo: Echo::None,
        ..NatsOptions::default()
    };
    shared::nats::connect(&options).await.unwrap()
}

impl Cell {
    /// Starts a cell and waits until it answers.
    pub(crate) async fn start(server: &NatsServer, config: RepConfig) -> Self {
        let cell = Self::start_through(&server.url(), server.client().await, config).await;
        testkit::eventually("the cell's state", async || {
            cell.client
                .request(subjects().cell(&cell.name, "state"), Bytes::new())
                .await
        })
        .await;
        cell
    }

    /// Starts a cell that reaches the server at `url`.
    pub(crate) async fn start_through(url: &str, client: Client, config: RepConfig) -> Self {
        let shutdown = CancellationToken::new();
        let name = config.cell.clone();
        let task = tokio::spawn(rep::run(
            config,
            bus(url).await,
            subjects(),
            shutdown.clone(),
        ));
        Self {
            name,
            client,
            shutdown,
            task,
        }
    }

    /// Sends a request to the cell, and returns the body of the answer.
    pub(crate) async fn ask(&self, what: &str, body: impl Into<Bytes>) -> Value {
        let subject = subjects().cell(&self.name, what);
        let answer = self.client.request(subject, body.into()).await.unwrap();
        serde_json::from_slice(&answer.payload).unwrap()
    }

    pub(crate) async fn state(&self) -> Value {
        self.ask("state", "").await
    }

    /// Returns a start for this cell as it is now, valid for 5 s.
    pub(crate) async fn start_of(&self, work: Vec<Work>) -> CellStart {
        let state = self.state().await;
        CellStart {
            v: shared::VERSION,
            auction: Uuid::new_v4().into(),
            incarnation: field(&state, "incarnation"),
            expires_ms: CellTime::from_ms(state["clock_ms"].as_u64().unwrap() + 5_000),
            work,
        }
    }

    pub(crate) async fn send(&self, start: &CellStart) -> Acceptance {
        let answer = self.ask("start", json(start)).await;
        serde_json::from_value(answer.clone()).unwrap_or_else(|e| panic!("{e}: {answer}"))
    }

    /// Starts this work; all of it must be accepted.
    pub(crate) async fn must_start(&self, work: Vec<Work>) -> Acceptance {
        let answer = self.send(&self.start_of(work).await).await;
        assert_eq!(answer.refused, []);
        answer
    }

    pub(crate) async fn instances(&self) -> Vec<Instance> {
        let answer = self
            .client
            .request(subjects().instances(), Bytes::new())
            .await
            .unwrap();
        from::<InstancesAnswer>(&answer.payload).instances
    }

    /// Waits until the instance is in this state, and returns it.
    pub(crate) async fn wait_for(&self, id: InstanceId, state: InstanceState) -> Instance {
        testkit::eventually(&format!("{id} to be {state:?}"), async || {
            let all = self.instances().await;
            let found = all.iter().find(|i| i.instance == id && i.state == state);
            found.cloned().ok_or_else(|| format!("{all:?}"))
        })
        .await
    }

    /// Ends the cell in an orderly way.
    pub(crate) async fn end(self) -> RepExit {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap()
    }
}

/// Returns an LRP of 100 MiB of each resource.
pub(crate) fn work(app: &str, index: u32) -> Work {
    Work {
        index,
        ..Work::new(Uuid::new_v4().into(), app, 100, 100)
    }
}

/// Returns an LRP that runs this command.
pub(crate) fn command(app: &str, words: &[&str]) -> Work {
    Work {
        run: Some(Arc::new(Run {
            command: words.iter().map(|word| (*word).to_owned()).collect(),
            ..Run::default()
        })),
        ..work(app, 0)
    }
}

pub(crate) fn json(value: &impl Serialize) -> Bytes {
    serde_json::to_vec(value).unwrap().into()
}

pub(crate) fn from<T: DeserializeOwned>(body: &[u8]) -> T {
    let text = String::from_utf8_lossy(body);
    serde_json::from_slice(body).unwrap_or_else(|e| panic!("{e}: {text}"))
}

pub(crate) fn field<T: DeserializeOwned>(value: &Value, name: &str) -> T {
    serde_json::from_value(value[name].clone()).unwrap_or_else(|e| panic!("{name}: {e}: {value}"))
}

/// Returns the next message; fails if none arrives for a long time.
pub(crate) async fn next(messages: &mut Subscriber) -> Value {
    let message = tokio::time::timeout(testkit::DEFAULT_DEADLINE, messages.next())
        .await
        .expect("a message")
        .expect("an open subscription");
    from(&message.payload)
}

/// Returns the next message that `accept` accepts.
pub(crate) async fn next_where(
    messages: &mut Subscriber,
    accept: impl Fn(&Value) -> bool,
) -> Value {
    loop {
        let message = next(messages).await;
        if accept(&message) {
            return message;
        }
    }
}

/// Returns the configuration of a cell that runs processes, supervised by the test's own small program.
pub(crate) fn process_config(name: &str) -> RepConfig {
    let mut config = config(name);
    config.executor = ExecutorKind::Process(ProcessConfig {
        supervisor: Some(env!("CARGO_BIN_EXE_mini-rep").into()),
        ..ProcessConfig::default()
    });
    config
}

/// Returns whether the process is alive; a zombie is not.
pub(crate) fn lives(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.starts_with(" Z"))
}

/// Returns all processes whose command line contains this word.
pub(crate) fn processes_with(word: &str) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(word) && lives(*pid)
        })
        .collect()
}

/// Subscribes, and returns once the server knows the subscription.
pub(crate) async fn subscribe(server: &NatsServer, subject: &str) -> async_nats::Subscriber {
    let client = server.client().await;
    let subscriber = client.subscribe(subject.to_owned()).await.unwrap();
    client.flush().await.unwrap();
    subscriber
}

/// Returns the process that started this one.
pub(crate) fn parent(pid: u32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    rest.split(' ').nth(1).unwrap().parse().unwrap()
}
