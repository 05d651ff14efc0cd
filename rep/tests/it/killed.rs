//! A rep in a process of its own: what is left when it, or a supervisor, is killed.

use std::process::{Command, Stdio};

use placement::Kind;
use serde_json::json as value;
use shared::wire::{InstanceState, Work};
use testkit::{NatsServer, eventually};
use uuid::Uuid;

use crate::harness::{
    Cell, command, lives, next_where, parent, process_config, processes_with, subjects,
};

/// A cell in its own process.
struct Apart {
    child: std::process::Child,
}

impl Drop for Apart {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn apart(server: &NatsServer, name: &str, state_dir: &std::path::Path) -> Apart {
    let config = value!({"cell": name, "total": {"memory_mb": 1000, "disk_mb": 1000},
        "executor": {"kind": "process", "state_dir": state_dir}});
    let child = Command::new(env!("CARGO_BIN_EXE_mini-rep"))
        .args([server.url(), config.to_string()])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    Apart { child }
}

/// A client for a cell that is not in this process.
async fn client_of(server: &NatsServer, name: &str) -> Cell {
    let client = server.client().await;
    eventually("the cell's state", async || {
        client
            .request(subjects().cell(name, "state"), "".into())
            .await
    })
    .await;
    Cell {
        name: name.into(),
        client,
        shutdown: shared::shutdown::CancellationToken::new(),
        task: tokio::spawn(async { Ok(rep::RepExit::Shutdown) }),
    }
}

#[tokio::test]
async fn a_killed_rep_leaves_no_process_and_no_directory() {
    let server = NatsServer::start().await;
    let home = tempfile::tempdir().unwrap();
    let mut rep = apart(&server, "killed", home.path());
    let cell = client_of(&server, "killed").await;
    let word = Uuid::new_v4().to_string();
    let script =
        format!("sh -c 'sleep 1000; : {word}' & setsid sh -c 'sleep 1000; : {word}' & wait");
    let work: Vec<Work> = (0..3)
        .map(|_| command("web", &["sh", "-c", &script]))
        .collect();
    cell.must_start(work).await;
    eventually("all processes", async || {
        let found = processes_with(&word).len();
        if found >= 9 { Ok(()) } else { Err(found) }
    })
    .await;
    rep.child.kill().unwrap();
    rep.child.wait().unwrap();
    eventually("no process", async || {
        let found = processes_with(&word);
        if found.is_empty() {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    })
    .await;
    eventually("no directory", async || {
        !home.path().join("instances").exists()
    })
    .await;
}

#[tokio::test]
async fn sigterm_ends_a_rep_and_its_instances_in_order() {
    let server = NatsServer::start().await;
    let home = tempfile::tempdir().unwrap();
    let mut rep = apart(&server, "ordered", home.path());
    let cell = client_of(&server, "ordered").await;
    let mut adverts = cell
        .client
        .subscribe("vendue.cell.ordered.advert")
        .await
        .unwrap();
    let mut log = cell.client.subscribe("vendue.log.>").await.unwrap();
    cell.client.flush().await.unwrap();
    let work = command(
        "web",
        &[
            "sh",
            "-c",
            "trap 'echo bye; exit 0' TERM; echo hi; while :; do sleep 0.05; done",
        ],
    );
    let id = work.instance;
    cell.must_start(vec![work]).await;
    let running = cell.wait_for(id, InstanceState::Running).await;
    next_where(&mut log, |line| line["text"] == "hi").await;
    let pid = rustix::process::Pid::from_child(&rep.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    next_where(&mut adverts, |advert| advert["ttl"] == "0s").await;
    next_where(&mut log, |line| line["text"] == "bye").await;
    let status = tokio::task::spawn_blocking(move || rep.child.wait().unwrap());
    assert!(status.await.unwrap().success());
    assert!(!lives(running.pid.unwrap()));
}

#[tokio::test]
async fn a_killed_supervisor_takes_its_instance_with_it() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, process_config("orphan")).await;
    let word = Uuid::new_v4().to_string();
    let work = Work {
        kind: Kind::Task,
        ..command("web", &["sh", "-c", &format!("sleep 1000; : {word}")])
    };
    let id = work.instance;
    cell.must_start(vec![work]).await;
    let running = cell.wait_for(id, InstanceState::Running).await;
    let supervisor = parent(running.pid.unwrap());
    let pid = rustix::process::Pid::from_raw(supervisor).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let ended = cell.wait_for(id, InstanceState::Crashed).await;
    assert!(ended.ended.unwrap().contains("its supervisor was lost"));
    eventually("no process", async || processes_with(&word).is_empty()).await;
    cell.end().await;
}
