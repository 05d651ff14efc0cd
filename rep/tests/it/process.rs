//! Real processes: how they are started, ended and limited, their output, and that none is left.

use std::{fs, os::unix::fs::PermissionsExt, process::Command, sync::Arc};

use futures_util::StreamExt;
use placement::{Kind, Run};
use rep::{ExecutorKind, MemoryLimit};
use serde_json::{Value, json as value};
use shared::InstanceId;
use shared::wire::{Instance, InstanceState, Work};
use testkit::{NatsServer, eventually};
use uuid::Uuid;

use crate::harness::{
    Cell, command, field, from, json, lives, next_where, parent, process_config, processes_with,
    subjects,
};

async fn stop(cell: &Cell, app: &str) {
    cell.ask("stop", json(&value!({"app": app}))).await;
}

/// Returns a task that runs this shell script.
fn task(script: &str) -> Work {
    Work {
        kind: Kind::Task,
        ..command("task", &["sh", "-c", script])
    }
}

/// Runs the script to its end.
async fn run(cell: &Cell, script: &str, state: InstanceState) -> Instance {
    let work = task(script);
    let id = work.instance;
    cell.must_start(vec![work]).await;
    cell.wait_for(id, state).await
}

async fn lines(cell: &Cell, app: &str) -> Vec<String> {
    let answer = cell.ask("logs", json(&value!({"app": app}))).await;
    let lines: Vec<Value> = field(&answer, "lines");
    let text = |line: &Value| {
        let part = |name: &str| line[name].as_str().unwrap().to_owned();
        format!("{}: {}", part("stream"), part("text"))
    };
    lines.iter().map(text).collect()
}

#[tokio::test]
async fn a_process_runs_with_its_environment_and_its_output_is_published() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, process_config("env")).await;
    let mut log = cell
        .client
        .subscribe(subjects().log("task", "*", "*"))
        .await
        .unwrap();
    cell.client.flush().await.unwrap();
    let script = "echo $APP $INSTANCE_INDEX $CELL $ZONE $MEMORY_LIMIT $EXTRA ${PORT:+port}; \
                  echo oops >&2; test \"$TMPDIR\" = \"$PWD\" && touch \"$TMPDIR/file\"; id -u; \
                  echo $NATS_URL${CARGO_MANIFEST_DIR}.";
    let work = task(script);
    let run = Run {
        env: [("EXTRA".to_owned(), "more".to_owned())].into(),
        port: true,
        ..work.run.as_deref().cloned().unwrap()
    };
    let id = work.instance;
    let run = Some(Arc::new(run));
    cell.must_start(vec![Work { run, ..work }]).await;
    let ended = cell.wait_for(id, InstanceState::Exited).await;
    assert_eq!(ended.ended.as_deref(), Some("exit 0"));
    let mut said = lines(&cell, "task").await;
    said.sort();
    // root gives each instance a user of its own
    let user = if rustix::process::geteuid().is_root() {
        let users = said
            .iter()
            .filter_map(|line| line.strip_prefix("stdout: ")?.parse().ok());
        let user = users
            .clone()
            .find(|user| (70_000..=79_999_u32).contains(user));
        user.unwrap_or_else(|| panic!("{said:?}")).to_string()
    } else {
        rustix::process::geteuid().as_raw().to_string()
    };
    let mut expected = vec![
        "stderr: oops".to_owned(),
        "stdout: task 0 env z1 100m more port".to_owned(),
        format!("stdout: {user}"),
        "stdout: .".to_owned(),
    ];
    expected.sort();
    assert_eq!(said, expected);
    let published = next_where(&mut log, |line| line["stream"] == "stderr").await;
    assert_eq!(published["text"], "oops");
    cell.end().await;
}

/// A library that appends the user and the program of each process that loads it to the file named in `MARKER`.
const PRELOADED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
__attribute__((constructor)) static void mark(void) {
    char program[4096] = {0};
    const char *marker = getenv("MARKER");
    if (readlink("/proc/self/exe", program, sizeof program - 1) < 0 || marker == NULL) return;
    FILE *file = fopen(marker, "a");
    if (file != NULL) { fprintf(file, "%d %s\n", (int)getuid(), program); fclose(file); }
}
"#;

#[tokio::test]
async fn a_requests_environment_reaches_only_its_command() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, process_config("preload")).await;
    let directory = tempfile::tempdir().unwrap();
    let all = fs::Permissions::from_mode(0o777);
    fs::set_permissions(directory.path(), all).unwrap();
    let [source, library, marker] =
        ["mark.c", "mark.so", "marker"].map(|name| directory.path().join(name));
    fs::write(&source, PRELOADED).unwrap();
    let mut cc = Command::new("cc");
    let built = cc
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source]);
    assert!(built.status().unwrap().success());

    let work = task("sleep 1000");
    let env = [("LD_PRELOAD", &library), ("MARKER", &marker)]
        .map(|(name, path)| (name.to_owned(), path.to_str().unwrap().to_owned()));
    let run = Run {
        env: env.into(),
        ..work.run.as_deref().cloned().unwrap()
    };
    let id = work.instance;
    let run = Some(Arc::new(run));
    cell.must_start(vec![Work { run, ..work }]).await;
    let instance = cell.wait_for(id, InstanceState::Running).await;
    let told = eventually("the command to have loaded it", async || {
        fs::read_to_string(&marker)
    })
    .await;
    let user = shared::proc::user(instance.pid.unwrap()).unwrap();
    assert_ne!(user, 0);
    for line in told.lines() {
        assert!(line.starts_with(&format!("{user} ")), "{told}");
        assert!(!line.contains("mini-rep"), "{told}");
    }
    // nor is anything else of the request in the supervisor's environment
    let supervisor = parent(instance.pid.unwrap());
    let environment = fs::read(format!("/proc/{supervisor}/environ")).unwrap();
    assert!(environment.is_empty(), "{environment:?}");
    let line = fs::read_to_string(format!("/proc/{supervisor}/cmdline")).unwrap();
    let arguments: Vec<&str> = line.trim_end_matches('\0').split('\0').collect();
    let [_, "supervise", directory] = arguments[..] else {
        panic!("{arguments:?}")
    };
    assert!(directory.ends_with(&format!("{id}-0")), "{directory}");
    cell.end().await;
}

#[tokio::test]
async fn instances_inherit_no_open_files() {
    let server = NatsServer::start().await;
    // like `9< file` in a shell
    let secret = fs::File::open("/proc/self/status").unwrap();
    rustix::io::fcntl_setfd(&secret, rustix::io::FdFlags::empty()).unwrap();
    let cell = Cell::start(&server, process_config("open")).await;
    run(
        &cell,
        "ls -l /proc/self/fd | grep -c status",
        InstanceState::Crashed,
    )
    .await;
    assert_eq!(lines(&cell, "task").await[0], "stdout: 0");
    let script = format!("cat <&{}", std::os::fd::AsRawFd::as_raw_fd(&secret));
    run(&cell, &script, InstanceState::Crashed).await;
    cell.end().await;
}

#[tokio::test]
async fn the_end_of_a_process_is_reported() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, process_config("ended")).await;
    for (script, state, text) in [
        ("exit 0", InstanceState::Exited, "exit 0"),
        ("exit 7", InstanceState::Crashed, "exit 7"),
        ("kill -9 $$", InstanceState::Crashed, "signal 9"),
    ] {
        let ended = run(&cell, script, state).await;
        assert_eq!(ended.ended.as_deref(), Some(text), "{script}");
    }
    // what a request runs appears in no event, not even the name of the program
    for (app, words, text) in [
        (
            "path",
            &["/no/such/program", "x"][..],
            "No such file or directory (os error 2)",
        ),
        ("name", &["no-such-program"], "no such program in PATH"),
        (
            "missing",
            &["echo hi; true"],
            "no such program in PATH; the program's name contains spaces: a shell command needs \
             sh -c",
        ),
    ] {
        let work = Work {
            kind: Kind::Task,
            ..command(app, words)
        };
        let id = work.instance;
        cell.must_start(vec![work]).await;
        let ended = cell.wait_for(id, InstanceState::Crashed).await.ended;
        assert_eq!(ended, Some(format!("cannot run the command: {text}")));
    }
    let said = lines(&cell, "missing").await;
    assert!(said[0].contains("no such program"), "{said:?}");
    cell.end().await;
}

#[tokio::test]
async fn a_stop_ends_everything_that_came_of_the_command() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, process_config("tree")).await;
    let word = Uuid::new_v4().to_string();
    // a background child, one that left the session, and one that left twice
    let script = format!(
        ": {word}; sh -c 'sleep 1000; : {word}' & setsid sh -c 'sleep 1000; : {word}' & \
         (setsid sh -c '(sleep 1000; : {word}) & exit' &) ; wait"
    );
    let work = command("tree", &["sh", "-c", &script]);
    let id = work.instance;
    cell.must_start(vec![work]).await;
    eventually("four processes", async || {
        let found = processes_with(&word).len();
        if found >= 4 { Ok(()) } else { Err(found) }
    })
    .await;
    stop(&cell, "tree").await;
    cell.wait_for(id, InstanceState::Exited).await;
    assert_eq!(processes_with(&word), Vec::<u32>::new());
    cell.end().await;
}

#[tokio::test]
async fn what_ignores_sigterm_is_killed_after_the_grace_period() {
    let server = NatsServer::start().await;
    let mut config = process_config("stubborn");
    config.grace = placement::Span(std::time::Duration::from_millis(200));
    let cell = Cell::start(&server, config).await;
    let work = command(
        "deaf",
        &[
            "sh",
            "-c",
            "trap '' TERM; echo deaf; while :; do sleep 1; done",
        ],
    );
    let id = work.instance;
    cell.must_start(vec![work]).await;
    eventually("the trap", async || !lines(&cell, "deaf").await.is_empty()).await;
    stop(&cell, "deaf").await;
    let ended = cell.wait_for(id, InstanceState::Exited).await;
    assert_eq!(ended.ended.as_deref(), Some("stopped"));
    cell.end().await;
}

#[tokio::test]
async fn a_trace_goes_on_in_the_environment_the_output_and_the_events() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, process_config("trace")).await;
    let mut events = cell.client.subscribe("vendue.event.>").await.unwrap();
    let mut log = cell.client.subscribe("vendue.log.>").await.unwrap();
    cell.client.flush().await.unwrap();
    let work = Work {
        traceparent: Some(TRACE.into()),
        request: Some("r-1".parse().unwrap()),
        owner: Some("acme".into()),
        version: Some("v7".into()),
        ..task("echo $TRACEPARENT; exit 3")
    };
    let id = work.instance;
    cell.must_start(vec![work]).await;
    let line = next_where(&mut log, |line| line["text"] == TRACE).await;
    assert_eq!(line["traceparent"], TRACE);
    let crashed = next_where(&mut events, |e| e["kind"] == "crashed").await;
    let ended = &crashed["instances"][0];
    assert_eq!(ended["traceparent"], TRACE);
    assert_eq!(ended["final"], true, "a task is not started again");
    assert!(ended["ran"].is_string(), "{ended}");
    let kept = cell.ask("logs", json(&value!({"app": "task"}))).await;
    assert_eq!(kept["lines"][0]["traceparent"], TRACE);
    let listed = cell.wait_for(id, InstanceState::Crashed).await;
    assert_eq!(listed.request.unwrap(), "r-1");
    assert_eq!(
        (listed.owner.as_deref(), listed.version.as_deref()),
        (Some("acme"), Some("v7"))
    );
    cell.end().await;
}

#[tokio::test]
async fn a_crash_is_reported_and_restarted() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, process_config("crash")).await;
    let mut events = cell.client.subscribe("vendue.event.>").await.unwrap();
    cell.client.flush().await.unwrap();
    let work = command("web", &["sleep", "1000"]);
    let id = work.instance;
    cell.must_start(vec![work]).await;
    let first = cell.wait_for(id, InstanceState::Running).await;
    let pid = rustix::process::Pid::from_raw(first.pid.unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let crashed = next_where(&mut events, |e| e["kind"] == "crashed").await;
    assert_eq!(crashed["instances"][0]["ended"], "signal 9");
    assert_eq!(crashed["instances"][0].get("final"), None);
    assert!(crashed["instances"][0]["ran"].is_string(), "{crashed}");
    assert_eq!(crashed["reason"], "starts again at once");
    next_where(&mut events, |e| e["kind"] == "restarted").await;
    let again = cell.wait_for(id, InstanceState::Running).await;
    assert_eq!(again.restarts, 1);
    assert_ne!(again.pid, first.pid);
    assert_eq!(cell.state().await["apps"]["web"], 1);
    cell.end().await;
    assert!(!lives(again.pid.unwrap()));
}

async fn too_much(limit: MemoryLimit, name: &str) {
    let server = NatsServer::start().await;
    let mut config = process_config(name);
    if let ExecutorKind::Process(process) = &mut config.executor {
        process.memory = limit;
    }
    let cell = Cell::start(&server, config).await;
    // 100 MiB are allowed; tail keeps all of an input without line ends
    let ended = run(
        &cell,
        "head -c 300m /dev/zero | tail",
        InstanceState::Crashed,
    )
    .await;
    assert_eq!(ended.ended.as_deref(), Some("over its memory limit"));
    cell.end().await;
}

#[tokio::test]
async fn too_much_memory_ends_it() {
    Box::pin(too_much(MemoryLimit::Auto, "memory")).await;
}

#[tokio::test]
async fn too_much_memory_is_seen_without_control_groups() {
    Box::pin(too_much(MemoryLimit::Watch, "watch")).await;
}

#[tokio::test]
async fn a_flood_of_output_is_cut_down_and_counted() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, process_config("flood")).await;
    let mut log = cell
        .client
        .subscribe(subjects().log("task", "0", "flood"))
        .await
        .unwrap();
    cell.client.flush().await.unwrap();
    run(&cell, "seq 1 20000", InstanceState::Exited).await;
    let (mut published, mut dropped) = (0_u64, 0);
    while published + dropped < 20_000 {
        let message = tokio::time::timeout(testkit::DEFAULT_DEADLINE, log.next()).await;
        let line: Value = from(&message.unwrap().unwrap().payload);
        published += u64::from(line["stream"] == "stdout");
        dropped += line["dropped"].as_u64().unwrap_or(0);
    }
    assert_eq!(published + dropped, 20_000);
    assert!(dropped > 0 && published >= 1_000, "{published} published");
    let kept = lines(&cell, "task").await;
    assert_eq!(kept.len(), 100);
    assert_eq!(kept.last().unwrap(), "stdout: 20000");
    cell.end().await;
}

#[tokio::test]
async fn ports_are_free_and_differ() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, process_config("ports")).await;
    let work: Vec<Work> = (0..4)
        .map(|index| {
            let run = Run {
                command: ["sleep", "1000"].map(String::from).to_vec(),
                port: true,
                ..Run::default()
            };
            Work {
                index,
                run: Some(Arc::new(run)),
                ..command("web", &[""])
            }
        })
        .collect();
    let ids: Vec<InstanceId> = work.iter().map(|work| work.instance).collect();
    cell.must_start(work).await;
    let mut ports = std::collections::BTreeSet::new();
    for id in ids {
        let instance = cell.wait_for(id, InstanceState::Running).await;
        assert_eq!(instance.address.as_deref(), Some("127.0.0.1"));
        ports.insert(instance.port.unwrap());
    }
    assert_eq!(ports.len(), 4);
    cell.end().await;
}

#[tokio::test]
async fn a_withdrawn_cell_does_not_bid_while_its_instances_end() {
    let server = NatsServer::start().await;
    let cell = Cell::start(&server, process_config("left")).await;
    let mut adverts = cell
        .client
        .subscribe("vendue.cell.left.advert")
        .await
        .unwrap();
    let script = "trap '' TERM; echo deaf; while :; do sleep 1; done";
    cell.must_start(vec![command("deaf", &["sh", "-c", script])])
        .await;
    eventually("the trap", async || !lines(&cell, "deaf").await.is_empty()).await;
    cell.shutdown.cancel();
    next_where(&mut adverts, |advert| advert["ttl"] == "0s").await;

    let inbox = cell.client.new_inbox();
    let mut bids = cell.client.subscribe(inbox.clone()).await.unwrap();
    let question = json(&value!({"auction": Uuid::new_v4()}));
    let asked = cell
        .client
        .publish_with_reply(subjects().bid(), inbox, question);
    asked.await.unwrap();
    assert_eq!(cell.state().await["ttl"], "0s");
    let start = cell.start_of(vec![command("late", &["true"])]).await;
    assert_eq!(cell.send(&start).await.refused[0].reason, "draining");

    let client = cell.client.clone();
    assert_eq!(cell.task.await.unwrap().unwrap(), rep::RepExit::Shutdown);
    client.flush().await.unwrap();
    assert!(futures_util::FutureExt::now_or_never(bids.next()).is_none());
}
