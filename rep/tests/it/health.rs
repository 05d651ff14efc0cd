//! Health and readiness of real processes.

use std::{path::Path, sync::Arc};

use placement::Run;
use serde_json::{Value, json as value};
use shared::wire::{InstanceState, Work};
use testkit::{NatsServer, eventually};

use crate::harness::{Cell, command, next_where, process_config, subscribe};

/// Returns an instance that answers with the status in the file `status` of `directory`, and listens once that exists.
fn server(directory: &Path, checks: &Value) -> Work {
    // copied to where instances of any user can execute it
    let program = directory.join("program");
    std::fs::copy(env!("CARGO_BIN_EXE_mini-rep"), &program).unwrap();
    let status = directory.join("status");
    let [program, status] = [&program, &status].map(|path| path.to_str().unwrap());
    let work = command("web", &[program, "serve", status]);
    let run = Run {
        port: true,
        ..work.run.as_deref().cloned().unwrap()
    };
    let read = |name: &str| serde_json::from_value(checks[name].clone()).unwrap();
    Work {
        run: Some(Arc::new(run)),
        health: read("health"),
        ready: read("ready"),
        ..work
    }
}

/// Creates a directory that instances of any user can read.
fn open_directory() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(directory.path(), all).unwrap();
    directory
}

fn set_status(directory: &Path, status: u16) {
    let new = directory.join("new");
    std::fs::write(&new, status.to_string()).unwrap();
    std::fs::rename(new, directory.join("status")).unwrap();
}

#[tokio::test]
async fn an_instance_runs_when_it_answers_and_fails_when_it_does_not_any_more() {
    let nats = NatsServer::start().await;
    let cell = Cell::start(&nats, process_config("health")).await;
    let mut events = subscribe(&nats, "vendue.event.*.web.*").await;
    let directory = open_directory();
    let checks = value!({"health":{"kind":"http","path":"/up","interval":"1s","failures":2}});
    let work = server(directory.path(), &checks);
    let id = work.instance;
    cell.must_start(vec![work]).await;
    eventually("a process that is not healthy yet", async || {
        let found = cell.instances().await.pop().ok_or("none")?;
        let waits = found.state == InstanceState::Starting && found.pid.is_some();
        waits.then_some(()).ok_or("not there")
    })
    .await;
    set_status(directory.path(), 302);
    let first = cell.wait_for(id, InstanceState::Running).await;
    assert_eq!((first.restarts, first.ready), (0, None));

    set_status(directory.path(), 500);
    let crashed = next_where(&mut events, |e| e["kind"] == "crashed").await;
    let about = &crashed["instances"][0];
    assert_eq!(about["ended"], "not healthy: GET /up: HTTP 500");
    assert_eq!(about.get("final"), None, "{crashed}");
    assert!(about["ran"].is_string(), "{crashed}");
    set_status(directory.path(), 200);
    let again = cell.wait_for(id, InstanceState::Running).await;
    assert_eq!(again.restarts, 1);
    assert_ne!(again.pid, first.pid);
    cell.end().await;
}

#[tokio::test]
async fn an_instance_that_does_not_answer_in_time_is_started_again() {
    let nats = NatsServer::start().await;
    let cell = Cell::start(&nats, process_config("late")).await;
    let mut events = subscribe(&nats, "vendue.event.*.web.*").await;
    let directory = open_directory();
    let checks = value!({"health":{"kind":"port","start_timeout":"1s"}});
    cell.must_start(vec![server(directory.path(), &checks)])
        .await;
    let crashed = next_where(&mut events, |e| e["kind"] == "crashed").await;
    let about = &crashed["instances"][0];
    let why = "not healthy within 1s: its port: connection refused";
    assert_eq!(about["ended"], why, "{crashed}");
    assert_eq!(about.get("ran"), None, "it never ran");
    next_where(&mut events, |e| e["kind"] == "restarted").await;
    cell.end().await;
}

#[tokio::test]
async fn readiness_is_shown_and_told() {
    let nats = NatsServer::start().await;
    let cell = Cell::start(&nats, process_config("ready")).await;
    let mut events = subscribe(&nats, "vendue.event.*.web.*").await;
    let directory = open_directory();
    set_status(directory.path(), 503);
    let checks = value!({"ready":{"kind":"http","path":"/up","interval":"1s","failures":1}});
    let work = server(directory.path(), &checks);
    let id = work.instance;
    cell.must_start(vec![work]).await;
    let first = cell.wait_for(id, InstanceState::Running).await;
    assert_eq!(first.ready, Some(false));
    set_status(directory.path(), 200);
    next_where(&mut events, |e| e["kind"] == "ready").await;
    let found = cell.wait_for(id, InstanceState::Running).await;
    assert_eq!(found.ready, Some(true));
    set_status(directory.path(), 503);
    let told = next_where(&mut events, |e| e["kind"] == "not-ready").await;
    assert_eq!(told["reason"], "GET /up: HTTP 503");
    let found = cell.wait_for(id, InstanceState::Running).await;
    assert_eq!((found.ready, found.pid), (Some(false), first.pid));
    cell.end().await;
}

#[tokio::test]
async fn a_simulated_instance_is_healthy_after_its_time() {
    let nats = NatsServer::start().await;
    let mut config = crate::harness::config("simulated");
    config.executor = rep::ExecutorKind::Simulated(rep::SimulatedConfig {
        healthy: placement::Span(std::time::Duration::from_millis(1_500)),
        ..rep::SimulatedConfig::default()
    });
    let cell = Cell::start(&nats, config).await;
    let checks = value!({"health":{"kind":"port"},"ready":{"kind":"port"}});
    let mut events = subscribe(&nats, "vendue.event.*.web.*").await;
    let directory = open_directory();
    cell.must_start(vec![server(directory.path(), &checks)])
        .await;
    assert_eq!(cell.instances().await[0].state, InstanceState::Starting);
    next_where(&mut events, |e| e["kind"] == "running").await;
    next_where(&mut events, |e| e["kind"] == "ready").await;
    assert_eq!(cell.instances().await[0].ready, Some(true));
    cell.end().await;
}
