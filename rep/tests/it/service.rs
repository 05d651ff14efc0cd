//! Cells that are taken out of service, and reps that are told to end.

use placement::Kind;
use rep::{ExecutorKind, RepConfig, RepExit};
use serde_json::{Value, json as value};
use shared::{
    InstanceId, RequestId,
    shutdown::Ending,
    wire::{InstanceState, Work},
};
use testkit::{NatsServer, eventually};

use crate::harness::{
    Cell, bus, command, config, json, lives, next_where, process_config, subjects, subscribe, work,
};

fn kept_in(directory: &std::path::Path) -> RepConfig {
    let mut config = process_config("a");
    if let ExecutorKind::Process(process) = &mut config.executor {
        process.state_dir = Some(directory.to_owned());
    }
    config
}

/// Starts a cell that keeps its state in this directory, and an instance that runs on it.
async fn with_web(server: &NatsServer, directory: &std::path::Path) -> (Cell, InstanceId) {
    let cell = Cell::start(server, kept_in(directory)).await;
    let web = command("web", &["sleep", "1000"]);
    let id = web.instance;
    cell.must_start(vec![web]).await;
    cell.wait_for(id, InstanceState::Running).await;
    (cell, id)
}

async fn is_refused(cell: &Cell) -> String {
    let start = cell.start_of(vec![command("b", &["true"])]).await;
    let answer = cell.send(&start).await;
    answer
        .refused
        .first()
        .map_or("accepted", |r| &r.reason)
        .to_owned()
}

#[tokio::test]
async fn a_drained_cell_stays_empty_and_out_of_service_until_it_is_uncordoned() {
    let server = NatsServer::start().await;
    let mut events = subscribe(&server, "vendue.event.*.a.a").await;
    let directory = tempfile::tempdir().unwrap();
    let (cell, id) = with_web(&server, directory.path()).await;
    let drain = value!({"v":1,"deadline":"0s"});
    let answer = cell.ask("drain", json(&drain)).await;
    assert_eq!(
        (&answer["instances"], &answer["kept"], &answer["exit"]),
        (&1.into(), &true.into(), &false.into())
    );
    cell.wait_for(id, InstanceState::Exited).await;
    assert_eq!(is_refused(&cell).await, "draining");
    assert!(!cell.task.is_finished(), "it stays");
    cell.end().await;

    let cell = Cell::start(&server, kept_in(directory.path())).await;
    assert_eq!(cell.state().await["evacuating"], true);
    assert_eq!(is_refused(&cell).await, "draining");
    let answer = cell.ask("uncordon", r#"{"v":1}"#).await;
    let expected = value!({"v":1,"cell":"a","cordoned":false,"instances":0,"kept":true});
    assert_eq!(answer, expected);
    let told = next_where(&mut events, |e| e["kind"] == "cell-uncordoned").await;
    assert_eq!(told["cell"], "a");
    assert_eq!(is_refused(&cell).await, "accepted");
    cell.end().await;

    let cell = Cell::start(&server, kept_in(directory.path())).await;
    assert_eq!(cell.state().await.get("evacuating"), None);
    cell.end().await;
}

#[tokio::test]
async fn a_cordoned_cell_keeps_what_runs() {
    let server = NatsServer::start().await;
    let mut adverts = subscribe(&server, "vendue.cell.a.advert").await;
    let mut events = subscribe(&server, "vendue.event.*.a.a").await;
    let directory = tempfile::tempdir().unwrap();
    let (cell, id) = with_web(&server, directory.path()).await;
    let answer = cell.ask("cordon", r#"{"v":1}"#).await;
    let expected = value!({"v":1,"cell":"a","cordoned":true,"instances":1,"kept":true});
    assert_eq!(answer, expected);
    next_where(&mut adverts, |a| {
        a["cordoned"] == true && a["evacuating"] == true
    })
    .await;
    next_where(&mut events, |e| e["kind"] == "cell-cordoned").await;
    assert_eq!(is_refused(&cell).await, "cordoned");
    cell.wait_for(id, InstanceState::Running).await;
    cell.end().await;

    let cell = Cell::start(&server, kept_in(directory.path())).await;
    assert_eq!(is_refused(&cell).await, "cordoned");
    cell.end().await;
}

#[tokio::test]
async fn a_cell_without_a_state_directory_says_that_it_forgets() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, config("a")).await;
    for what in ["cordon", "uncordon", "drain"] {
        let answer = cell.ask(what, r#"{"v":1}"#).await;
        assert_eq!(answer["kept"], false, "{what}: {answer}");
    }
    cell.end().await;
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.out-of-service"), "nonsense").unwrap();
    let error = rep::validate(&kept_in(directory.path())).unwrap_err();
    assert!(matches!(error, rep::RepError::Config(_)), "{error}");
}

/// Makes this work that of a manager.
fn managed(work: Work) -> Work {
    let wave = RequestId::new("m-0000000b-000000a1-3-17").unwrap();
    Work {
        request: Some(wave),
        ..work
    }
}

#[tokio::test]
async fn a_rep_that_ends_gently_waits_until_a_manager_has_stopped_its_instances() {
    let server = NatsServer::start().await;
    let mut adverts = subscribe(&server, "vendue.cell.a.advert").await;
    let mut config = config("a");
    config.grace = placement::Span(std::time::Duration::from_secs(600));
    let ending = Ending::default();
    let cell = tokio::spawn(rep::run(
        config,
        bus(&server.url()).await,
        subjects(),
        ending.clone(),
    ));
    next_where(&mut adverts, |a| a["cell"] == "a").await;
    let client = server.client().await;
    let cell = Cell {
        name: "a".into(),
        client,
        shutdown: ending.now.clone(),
        task: cell,
    };
    cell.must_start(vec![managed(work("web", 0)), work("other", 0)])
        .await;
    let mut seen = subscribe(&server, "vendue.event.stopped.*.a").await;
    ending.gently.cancel();
    // it drains, which makes a manager start replacements and stop what they replace
    next_where(&mut adverts, |a| {
        a["evacuating"] == true && a["ttl"] != "0s"
    })
    .await;
    assert_eq!(cell.state().await["apps"], value!({"web":1,"other":1}));
    cell.ask("stop", r#"{"app":"web"}"#).await;
    // nobody replaces what is left: it is ended at once, long before the grace period is over
    let mut stopped = Vec::new();
    while stopped.len() < 2 {
        let event: Value = next_where(&mut seen, |_| true).await;
        stopped.push(event["app"].as_str().unwrap().to_owned());
    }
    stopped.sort();
    assert_eq!(stopped, ["other", "web"]);
    assert_eq!(cell.task.await.unwrap().unwrap(), RepExit::Shutdown);
}

#[tokio::test]
async fn a_second_signal_ends_a_rep_and_its_instances_at_once() {
    use rustix::process::{Pid, Signal, kill_process};
    let server = NatsServer::start().await;
    let client = server.client().await;
    let config = value!({"cell":"a","total":{"memory_mb":1000,"disk_mb":1000},"grace":"10m",
        "executor":{"kind":"process"}});
    let mut rep = std::process::Command::new(env!("CARGO_BIN_EXE_mini-rep"))
        .args([server.url(), config.to_string()])
        .spawn()
        .unwrap();
    let cell = Cell {
        name: "a".into(),
        client,
        shutdown: Default::default(),
        task: tokio::spawn(async { Ok(RepExit::Shutdown) }),
    };
    eventually("the cell's state", async || {
        let subject = subjects().cell("a", "state");
        cell.client.request(subject, "".into()).await
    })
    .await;
    let task = Work {
        kind: Kind::Task,
        ..command("long", &["sleep", "1000"])
    };
    let id = task.instance;
    cell.must_start(vec![task]).await;
    let pid = cell.wait_for(id, InstanceState::Running).await.pid.unwrap();
    let mut adverts = subscribe(&server, "vendue.cell.a.advert").await;
    let own = Pid::from_raw(rep.id().cast_signed()).unwrap();
    kill_process(own, Signal::TERM).unwrap();
    next_where(&mut adverts, |a| a["evacuating"] == true).await;
    assert!(
        lives(pid),
        "a task may end by itself within the grace period"
    );
    kill_process(own, Signal::TERM).unwrap();
    let ended = tokio::task::spawn_blocking(move || rep.wait())
        .await
        .unwrap();
    assert_eq!(ended.unwrap().code(), Some(143));
    eventually("the instance to be gone", async || {
        if lives(pid) { Err(pid) } else { Ok(()) }
    })
    .await;
}
