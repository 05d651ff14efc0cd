//! What commands report if nobody answers: exactly that, rather than that there is nothing.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
};

use futures_util::StreamExt;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use shared::{AnswerTo, Subjects};
use testkit::{Link, NatsServer};

use crate::{
    common::{Up, run, until, vendue},
    roles::Role,
};

/// A command that runs during a test.
struct Running {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
    err: BufReader<std::process::ChildStderr>,
}

impl Running {
    fn start(up: &Up, url: &str, args: &[&str]) -> Self {
        let mut command = up.command(args);
        command.env("NATS_URL", url);
        Self::of(command)
    }

    fn of(mut command: Command) -> Self {
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let err = BufReader::new(child.stderr.take().unwrap());
        Self { child, out, err }
    }

    fn says(&mut self, text: &str) {
        until_line(&mut self.out, text);
    }

    fn notes(&mut self, text: &str) {
        until_line(&mut self.err, text);
    }

    /// Sends Ctrl-C.
    fn interrupt(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // it may already have ended
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads lines up to one with this text.
fn until_line(stream: &mut impl BufRead, text: &str) {
    let mut seen = String::new();
    loop {
        let begun = seen.len();
        let read = stream.read_line(&mut seen).unwrap();
        assert!(read > 0, "{text:?} was not said: {seen:?}");
        if seen[begun..].contains(text) {
            return;
        }
    }
}

/// Starts a cluster with a running instance of `w`, and a link to its server.
async fn cluster() -> (Up, Link, String) {
    let up = Up::start();
    up.run(&[
        "run",
        "w",
        "--memory",
        "16",
        "--disk",
        "16",
        "--",
        "sh",
        "-c",
        "echo hello; exec sleep 1000",
    ])
    .expect(0, &["placed"]);
    up.run(&["wait", "w"]).expect(0, &["w: 1 running"]);
    let (address, port) = up.url.rsplit_once(':').unwrap();
    let link = Link::to(port.parse().unwrap()).await;
    let url = format!("{address}:{}", link.port());
    (up, link, url)
}

/// Ends every connection; new ones hang.
fn lose(link: &Link) {
    link.block();
    link.cut();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_loses_the_connection_does_not_say_that_nothing_runs() {
    let (up, link, url) = cluster().await;
    // one look, however short the timeout
    up.run(&["wait", "w", "--timeout", "0s"])
        .expect(0, &["w: 1 running"]);
    up.run(&["wait", "w", "--instances", "2", "--timeout", "0s"])
        .expect(1, &["w is not ready after 0s: 1 running"]);
    let args = ["wait", "w", "--instances", "2", "--timeout", "20s"];
    let mut wait = Running::start(&up, &url, &args);
    wait.notes("… w: 1 running");
    lose(&link);
    wait.notes("lost; reconnecting");
    wait.notes("error: whether w is ready is not known after 20s: the connection to NATS at");
    assert_eq!(wait.child.wait().unwrap().code(), Some(1));
    let mut rest = String::new();
    wait.err.read_to_string(&mut rest).unwrap();
    assert!(!rest.contains("start it"), "{rest}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_says_that_the_connection_is_lost_and_there_again() {
    let (up, link, url) = cluster().await;
    let mut ps = Running::start(&up, &url, &["ps", "--watch"]);
    let mut logs = Running::start(&up, &url, &["logs", "w", "--follow"]);
    let mut events = Running::start(&up, &url, &["events", "w", "--follow"]);
    ps.says("running");
    logs.says("hello");
    events.notes("listening on");
    lose(&link);
    for command in [&mut ps, &mut logs, &mut events] {
        command.notes("lost; reconnecting");
    }
    ps.notes("no list: ");
    link.unblock();
    for command in [&mut ps, &mut logs, &mut events] {
        command.notes("connected to NATS at ");
    }
    ps.says("running");
    // the subscription exists before the next question is asked
    up.run(&["stop", "w"]).expect(0, &["told to stop"]);
    events.says("stopped");
    let shown = ps.interrupt();
    assert!(!shown.contains("no instances"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn that_nobody_answers_does_not_mean_that_nothing_runs() {
    let server = NatsServer::start().await;
    let client = server.client().await;
    let subjects = Subjects::new("vendue").unwrap();
    // a cell that listens but hangs
    let _questions = client.subscribe(subjects.instances()).await.unwrap();
    client.flush().await.unwrap();
    let url = server.url();
    for args in [&["ps"][..], &["status", "w"], &["logs", "w"]] {
        let args = [args, &["--nats", &url]].concat();
        let said = run(&args);
        said.expect(1, &["error: no cell answered within 2s"]);
    }
    run(&["wait", "w", "--timeout", "0s", "--nats", &url]).expect(
        1,
        &["error: whether w is ready is not known after 0s: no cell answered within 2s"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_goes_on_until_there_is_a_cell() {
    let server = NatsServer::start().await;
    let url = server.url();
    run(&["wait", "w", "--timeout", "0s", "--nats", &url]).expect(
        1,
        &["whether w is ready is not known after 0s: no cell answers on vendue.instances: no cell runs there, or --prefix"],
    );
    let mut wait = vendue();
    wait.args(["wait", "w", "--nats", &url]);
    let mut wait = Running::of(wait);
    wait.notes("… w: no cell answers");
    let role = |args: &[&str]| Role::start(vendue().args(args).env("NATS_URL", &url));
    let _roles = [
        role(&["auctioneer"]),
        role(&["rep", "--cell", "c1", "--memory", "64", "--simulated"]),
    ];
    let start = [
        "run", "w", "--memory", "1", "--disk", "1", "--nats", &url, "--", "true",
    ];
    until("the instance to be placed", || {
        let said = run(&start);
        (said.code == Some(0))
            .then_some(())
            .ok_or(format!("{said:?}"))
    })
    .await;
    wait.says("w: 1 running");
    assert_eq!(wait.child.wait().unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cell_that_missed_a_bid_deadline_is_heard() {
    let server = NatsServer::start().await;
    let client = server.client().await;
    let subjects = Subjects::new("vendue").unwrap();
    let entry = |cell: &str, silent: bool| {
        json!({"cell": {"cell": cell, "total": {"memory_mb": 64}, "available": {"memory_mb": 64}},
            "incarnation": uuid::Uuid::nil(), "seq": 1, "age_ms": 1, "left_ms": 9_000, "debits": 0, "silent": silent})
    };
    let pool = json!({"v": 1, "auctioneer": "a", "policy": "diego", "total": 2,
        "cells": [entry("c1", false), entry("c2", true)]});
    let mut pools = client.subscribe(subjects.pool()).await.unwrap();
    let mut questions = client.subscribe(subjects.instances()).await.unwrap();
    client.flush().await.unwrap();
    tokio::spawn({
        let client = client.clone();
        async move {
            while let Some(asked) = pools.next().await {
                let body = pool.to_string().into();
                client.publish(asked.reply.unwrap(), body).await.unwrap();
            }
        }
    });
    // the cell that counts as silent answers last
    tokio::spawn(async move {
        while let Some(asked) = questions.next().await {
            let to = AnswerTo::of(&asked).unwrap().unwrap();
            for cell in ["c1", "c2"] {
                let body = shared::wire::to_bytes(&testkit::lists::list(cell, Vec::new()));
                let subject = subjects.cell_answer(cell, &to);
                client.publish(subject, body).await.unwrap();
            }
        }
    });
    let said = run(&["ps", "--nats", &server.url()]);
    said.expect(0, &["no instances on 2 cells"]);
    assert!(!said.err.contains("no answer"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_broken_off_says_that_the_work_stays() {
    let server = NatsServer::start().await;
    let client = server.client().await;
    // an auctioneer that does not answer
    let subjects = Subjects::new("vendue").unwrap();
    let mut starts = client.subscribe(subjects.start()).await.unwrap();
    client.flush().await.unwrap();
    let mut command = crate::common::vendue();
    command.args(["run", "w", "--memory", "16", "--disk", "16", "--again"]);
    command.args(["--queue-timeout", "1h", "--nats", &server.url()]);
    command.args(["--", "sleep", "1000"]);
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    starts.next().await.unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(
        said.contains("stay queued") && said.contains("`vendue stop w`"),
        "{said}"
    );
}

#[tokio::test]
async fn the_end_of_a_command_is_no_lost_connection() {
    let up = Up::with(&["--cells", "1"]);
    up.run(&[
        "run", "web", "--memory", "16", "--disk", "16", "--", "sleep", "1000",
    ])
    .expect(0, &[]);
    for _ in 0..10 {
        let said = up.run(&["wait", "web"]);
        said.expect(0, &[]);
        assert!(!said.err.contains("lost"), "{said:?}");
    }
}
