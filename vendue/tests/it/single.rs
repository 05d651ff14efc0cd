//! `vendue auctioneer --single`: a manager grants it to one auctioneer at a time to accept requests.

use std::{collections::BTreeMap, time::Duration};

use async_nats::Client;
use futures_util::StreamExt;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::NatsServer;

use crate::{
    common::{PATIENCE, end, run, until, vendue},
    managers::server,
    roles::Role,
};

struct Cluster {
    url: String,
    client: Client,
    _server: NatsServer,
    _data: TempDir,
}

impl Cluster {
    /// A server, a cell and a manager; none if the server is too old for managers.
    async fn start() -> Option<(Self, [Role; 2])> {
        let (server, data) = server().await?;
        let cluster = Self {
            url: server.url(),
            client: server.client().await,
            _server: server,
            _data: data,
        };
        let rep = ["rep", "--cell", "c1", "--memory", "9000", "--simulated"];
        let roles = [cluster.role(&rep), cluster.manager("m1")];
        Some((cluster, roles))
    }

    fn role(&self, args: &[&str]) -> Role {
        Role::start(vendue().args(args).env("NATS_URL", &self.url))
    }

    fn manager(&self, name: &str) -> Role {
        self.role(&["manager", "--name", name])
    }

    fn auctioneer(&self, name: &str) -> Role {
        self.role(&["auctioneer", "--single", "--name", name, "--policy", "dea"])
    }

    /// Asks, and gives up soon: an auctioneer that is frozen still gets some.
    async fn ask(&self, subject: &'static str, body: String) -> Result<Value, String> {
        let request = async_nats::Request::new().payload(body.into());
        let request = request.timeout(Some(Duration::from_secs(1)));
        let answer = self.client.send_request(subject, request).await;
        let answer = answer.map_err(|e| e.to_string())?;
        serde_json::from_slice(&answer.payload).map_err(|e| e.to_string())
    }

    /// Waits until one of the auctioneers that `which` says accepts requests, and knows the cell. Its name.
    async fn accepts(&self, which: impl Fn(&str) -> bool) -> String {
        testkit::eventually_within(PATIENCE, "one that accepts requests", async || {
            let pool = self.ask("vendue.pool", String::new()).await?;
            let name = pool["auctioneer"].as_str().unwrap_or_default();
            let is_it = which(name) && pool["total"] == 1;
            is_it.then(|| name.to_owned()).ok_or(pool.to_string())
        })
        .await
    }

    /// The counters of all auctioneers, by name.
    async fn counters(&self) -> BTreeMap<String, Value> {
        let inbox = self.client.new_inbox();
        let mut answers = self.client.subscribe(inbox.clone()).await.unwrap();
        let mut counters = BTreeMap::new();
        let mut names = BTreeMap::new();
        for what in ["INFO", "STATS"] {
            let subject = format!("$SRV.{what}.vendue-auctioneer");
            let sent = self
                .client
                .publish_with_reply(subject, inbox.clone(), "".into());
            sent.await.unwrap();
        }
        let wait = Duration::from_millis(500);
        while let Ok(Some(answer)) = tokio::time::timeout(wait, answers.next()).await {
            let said: Value = serde_json::from_slice(&answer.payload).unwrap();
            let id = said["id"].to_string();
            if let Some(name) = said["metadata"]["name"].as_str() {
                names.insert(id.clone(), name.to_owned());
            }
            let endpoints = said["endpoints"].as_array().cloned().unwrap_or_default();
            let data = endpoints.into_iter().find(|e| e["data"].is_object());
            if let Some(endpoint) = data {
                counters.insert(id, endpoint["data"].clone());
            }
        }
        let named = counters
            .into_iter()
            .filter_map(|(id, c)| Some((names.remove(&id)?, c)));
        named.collect()
    }
}

/// Freezes a program, and waits until none of its threads runs any more.
async fn freeze(role: &Role) {
    kill_process(role.pid(), Signal::STOP).unwrap();
    let tasks = format!("/proc/{}/task", role.pid().as_raw_nonzero());
    let stands = |stat: &str| {
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    };
    until("every thread to stand still", || {
        for task in std::fs::read_dir(&tasks).unwrap().flatten() {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            if !stands(&stat) {
                return Err(stat);
            }
        }
        Ok(())
    })
    .await;
}

fn request(id: &str) -> String {
    let run = json!({"command": ["true"]});
    json!({"id": id, "app": "web", "memory_mb": 1, "disk_mb": 1, "run": run}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_manager_it_does_not_start_and_says_what_to_do() {
    let server = NatsServer::start().await;
    let url = server.url();
    let said = run(&["auctioneer", "--single", "--name", "a1", "--nats", &url]);
    said.expect(
        1,
        &[
            "no manager answered on vendue.auctioneer.a1.grant",
            "start `vendue manager`",
            "leave out --single",
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_variable_and_a_file_ask_for_it_as_well() {
    let server = NatsServer::start().await;
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("auctioneer.toml");
    std::fs::write(&file, "name = \"a2\"\nsingle = true\n").unwrap();
    let by_variable = std::thread::spawn({
        let url = server.url();
        move || {
            let mut command = vendue();
            command.args(["auctioneer", "--name", "a1", "--nats", &url]);
            end(command.env("VENDUE_SINGLE", "true"))
        }
    });
    let mut command = vendue();
    command.args(["auctioneer", "--nats", &server.url(), "--config"]);
    end(command.arg(&file)).expect(1, &["vendue.auctioneer.a2.grant"]);
    let said = by_variable.join().unwrap();
    said.expect(1, &["vendue.auctioneer.a1.grant"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_several_accepts_requests_and_another_takes_over() {
    let Some((cluster, _roles)) = Cluster::start().await else {
        return;
    };
    let mut auctioneers: BTreeMap<String, Role> = ["a1", "a2", "a3"]
        .map(|name| (name.to_owned(), cluster.auctioneer(name)))
        .into();
    let first = cluster.accepts(|_| true).await;
    for n in 0..20 {
        let pool = cluster.ask("vendue.pool", String::new()).await.unwrap();
        assert_eq!(pool["auctioneer"], first.as_str());
        let placed = cluster
            .ask("vendue.start", request(&format!("r-{n}")))
            .await;
        assert_eq!(placed.unwrap()["outcome"], "placed");
    }
    testkit::eventually_within(PATIENCE, "one of three to have the grant", async || {
        let counters = cluster.counters().await;
        let granted = counters.values().filter(|c| c["granted"] == 1).count();
        (counters.len() == 3 && granted == 1)
            .then_some(())
            .ok_or(format!("{counters:?}"))
    })
    .await;
    // killed: it gives nothing back, and its grant ends
    let killed = auctioneers.remove(&first).unwrap();
    kill_process(killed.pid(), Signal::KILL).unwrap();
    let second = cluster.accepts(|name| name != first).await;
    // a clean end: it gives the grant back
    let said = cluster.client.subscribe("vendue.auctioneer.*.grant").await;
    let mut said = said.unwrap();
    cluster.client.flush().await.unwrap();
    auctioneers.remove(&second).unwrap().end();
    let third = cluster
        .accepts(|name| name != first && name != second)
        .await;
    assert!(auctioneers.contains_key(&third));
    let returned = async {
        loop {
            let asked = said.next().await.unwrap();
            let body: Value = serde_json::from_slice(&asked.payload).unwrap();
            if body["ask"] == "returns" {
                return asked.subject.to_string();
            }
        }
    };
    let returned = tokio::time::timeout(PATIENCE, returned).await.unwrap();
    assert_eq!(returned, format!("vendue.auctioneer.{second}.grant"));
    let repeated = cluster.ask("vendue.start", request("r-1")).await.unwrap();
    assert_eq!(repeated["outcome"], "placed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_holder_that_wakes_up_begins_nothing() {
    let Some((cluster, _roles)) = Cluster::start().await else {
        return;
    };
    let one = cluster.auctioneer("a1");
    assert_eq!(cluster.accepts(|_| true).await, "a1");
    freeze(&one).await;
    // the server still sends it requests: it has no other to send them to
    let inbox = cluster.client.new_inbox();
    let mut answers = cluster.client.subscribe(inbox.clone()).await.unwrap();
    let mut events = cluster
        .client
        .subscribe("vendue.event.placed.*.*")
        .await
        .unwrap();
    for n in 0..5 {
        let body = request(&format!("late-{n}")).into();
        let sent = cluster
            .client
            .publish_with_reply("vendue.start", inbox.clone(), body);
        sent.await.unwrap();
    }
    cluster.client.flush().await.unwrap();
    let _two = cluster.auctioneer("a2");
    cluster.accepts(|name| name == "a2").await;
    kill_process(one.pid(), Signal::CONT).unwrap();
    for _ in 0..5 {
        let answer = tokio::time::timeout(PATIENCE, answers.next()).await;
        let answer: Value = serde_json::from_slice(&answer.unwrap().unwrap().payload).unwrap();
        let error = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(error.contains("a1 does not hold the grant"), "{answer}");
    }
    for n in 0..10 {
        // the server may send it a last one before it hears that it has left
        testkit::eventually_within(PATIENCE, "an answer of a2", async || {
            let placed = cluster
                .ask("vendue.start", request(&format!("r-{n}")))
                .await?;
            (placed["outcome"] == "placed")
                .then_some(())
                .ok_or(placed.to_string())
        })
        .await;
        let event = tokio::time::timeout(PATIENCE, events.next()).await;
        let subject = event.unwrap().unwrap().subject;
        assert!(subject.ends_with(".a2"), "{subject}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_no_manager_acts_nobody_accepts_requests() {
    let Some((cluster, [_rep, manager])) = Cluster::start().await else {
        return;
    };
    let _auctioneer = cluster.auctioneer("a1");
    cluster.accepts(|_| true).await;
    kill_process(manager.pid(), Signal::KILL).unwrap();
    testkit::eventually_within(PATIENCE, "no responder", async || {
        let asked = cluster.ask("vendue.pool", String::new()).await;
        match asked {
            Err(error) if error.contains("no responders") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    // it leaves the queue group some time before the end
    testkit::eventually_within(PATIENCE, "the grant to end", async || {
        let counters = cluster.counters().await;
        let own = counters.get("a1").ok_or("no counters")?;
        let ended = (&own["granted"], &own["grants"]) == (&json!(0), &json!(1));
        ended.then_some(()).ok_or(own.to_string())
    })
    .await;
    let _other = cluster.manager("m2");
    cluster.accepts(|name| name == "a1").await;
    let started = cluster.ask("vendue.start", request("r-1")).await.unwrap();
    assert_eq!(started["outcome"], "placed");
}
