//! `vendue manager` as a separate program.

use futures_util::StreamExt;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;
use testkit::NatsServer;

use crate::{
    common::{Finished, PATIENCE, end, run, until, until_healthy, vendue},
    roles::Role,
};

/// Returns whether a server is too old for managers, in which case that is tested.
async fn is_too_old(server: &NatsServer) -> bool {
    let version = server.client().await.server_info().version;
    ["2.9.", "2.10."].iter().any(|old| version.starts_with(old))
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_settings_and_servers_are_refused_with_what_to_do() {
    for (args, expected) in [
        (&["--replicas", "2"][..], "1, 3 or 5"),
        (&["--bucket", "a.b"], "bucket"),
        (&["--name", "a b"], "name"),
        (&["--state-nkey", "/no/such/file"], "/no/such/file"),
    ] {
        let mut command = vendue();
        command.args(["manager", "--nats", "nats://127.0.0.1:1"]);
        let said = end(command.args(args));
        assert!(matches!(said.code, Some(1 | 2)), "{args:?} {said:?}");
        said.expect(said.code.unwrap(), &[expected]);
    }
    let server = NatsServer::start().await;
    let said = run(&["manager", "--nats", &server.url()]);
    let expected = if is_too_old(&server).await {
        "2.11.15 or newer"
    } else {
        "start nats-server with -js"
    };
    said.expect(1, &[expected]);
}

/// Starts a server with JetStream and returns it with its directory; none if it is too old for managers, in which case
/// that was tested.
pub(crate) async fn server() -> Option<(NatsServer, TempDir)> {
    let data = tempfile::tempdir().unwrap();
    let config = format!("jetstream {{ store_dir: \"{}\" }}", data.path().display());
    let server = NatsServer::with_config(&config).await;
    if is_too_old(&server).await {
        let said = run(&["manager", "--nats", &server.url()]);
        said.expect(1, &["2.12.6 or newer"]);
        return None;
    }
    Some((server, data))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_the_other_goes_on_when_the_one_that_acts_is_killed() {
    let Some((server, data)) = server().await else {
        return;
    };
    let url = server.url();
    let role = |args: &[&str]| Role::start(vendue().args(args).env("NATS_URL", &url));
    let _up = role(&[
        "up",
        "--nats",
        &url,
        "--no-manager",
        "--cells",
        "2",
        "--grace",
        "1s",
    ]);
    let first = role(&["manager", "--name", "first"]);
    let at = |args: &[&str]| -> Finished { end(vendue().args(args).env("NATS_URL", &url)) };
    let acting = async |name: &str| {
        until(name, || {
            let client = at(&["app", "list", "--output", "json"]);
            let list: Value = serde_json::from_str(&client.out).unwrap_or_default();
            let acts = list["manager"] == name && list["acting"] == true;
            acts.then_some(()).ok_or(client.out + &client.err)
        })
        .await;
    };
    acting("first").await;
    // which may be before the cells are there
    until_healthy(&url, &[]).await;
    let file = data.path().join("web.json");
    let definition = r#"{"app":"web","instances":2,"memory_mb":16,"disk_mb":16,"run":{"command":["sleep","1000"]}}"#;
    std::fs::write(&file, definition).unwrap();
    at(&["app", "put", file.to_str().unwrap()]).expect(0, &[]);
    at(&["wait", "web", "--instances", "2"]).expect(0, &["2 running"]);
    let ids = || {
        let instances = at(&["ps", "web", "--output", "json"]).json();
        let instances = instances["instances"].as_array().unwrap().clone();
        let ids: Vec<Value> = instances.iter().map(|i| i["instance"].clone()).collect();
        ids
    };
    let before = ids();
    let second = role(&["manager", "--name", "second"]);
    kill_process(first.pid(), Signal::KILL).unwrap();
    acting("second").await;
    at(&["app", "scale", "web", "3"]).expect(0, &[]);
    at(&["wait", "web", "--instances", "3"]).expect(0, &["3 running"]);
    let after = ids();
    assert_eq!(after.len(), 3);
    assert!(
        before.iter().all(|id| after.contains(id)),
        "{before:?} {after:?}"
    );
    let mut second = second;
    second.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rep_that_is_told_to_end_hands_its_instances_over() {
    let Some((server, data)) = server().await else {
        return;
    };
    let url = server.url();
    let role = |args: &[&str]| Role::start(vendue().args(args).env("NATS_URL", &url));
    let at = |args: &[&str]| -> Finished { end(vendue().args(args).env("NATS_URL", &url)) };
    // it ends before its grace period is over only if nothing is left
    let rep = |name: &str| {
        role(&[
            "rep",
            "--cell",
            name,
            "--memory",
            "200",
            "--simulated",
            "--grace",
            "1h",
        ])
    };
    let _roles = [role(&["auctioneer"]), role(&["manager"])];
    let known = async |count: u32| {
        until("an auctioneer that knows the cells", || {
            let cells = at(&["cells", "--output", "json"]);
            let all = cells.code == Some(0) && cells.json()["total"] == count;
            all.then_some(()).ok_or(cells.out + &cells.err)
        })
        .await;
    };
    let mut first = rep("first");
    known(1).await;
    let file = data.path().join("web.json");
    let definition = r#"{"app":"web","instances":2,"memory_mb":16,"disk_mb":16,"run":{"command":["true"]},"update":{"min_healthy":"1s"}}"#;
    std::fs::write(&file, definition).unwrap();
    let put = ["app", "put", file.to_str().unwrap()];
    until("a manager", || {
        let said = at(&put);
        (said.code == Some(0)).then_some(()).ok_or(said.err)
    })
    .await;
    at(&["app", "wait", "web"]).expect(0, &["2 of 2 running"]);
    // not a new version; and nobody waits for a rep that ends
    std::fs::write(&file, definition.replace("1s", "1h")).unwrap();
    at(&put).expect(0, &[]);
    let _second = rep("second");
    known(2).await;
    let client = server.client().await;
    let mut events = client.subscribe("vendue.event.*.web.*").await.unwrap();
    client.flush().await.unwrap();
    first.end();
    // that the second one runs it is reported before the first one stops it
    let mut running = Vec::new();
    let mut stopped = 0;
    while stopped < 2 {
        let event = tokio::time::timeout(PATIENCE, events.next()).await;
        let event: Value = serde_json::from_slice(&event.unwrap().unwrap().payload).unwrap();
        for instance in event["instances"].as_array().into_iter().flatten() {
            let index = instance["index"].clone();
            if event["kind"] == "running" && event["by"] == "second" {
                running.push(index);
            } else if event["kind"] == "stopped" {
                assert!(running.contains(&index), "{event}");
                stopped += 1;
            }
        }
    }
    until("both to run", || {
        let shown = at(&["app", "show", "web", "--output", "json"]).json();
        let status = &shown["status"];
        (status["running"] == 2)
            .then_some(())
            .ok_or(status.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_a_task_of_a_newer_format_is_stored_nothing_is_started() {
    let Some((server, data)) = server().await else {
        return;
    };
    let url = server.url();
    let role = |args: &[&str]| Role::start(vendue().args(args).env("NATS_URL", &url));
    let at = |args: &[&str]| -> Finished { end(vendue().args(args).env("NATS_URL", &url)) };
    let _roles = [
        role(&["auctioneer"]),
        role(&["manager"]),
        role(&["rep", "--cell", "c1", "--memory", "200", "--simulated"]),
    ];
    let file = data.path().join("task.json");
    let task = r#"{"app":"batch","memory_mb":16,"disk_mb":16,"run":{"command":["true"]},"id":"t-"#;
    let run = |n: u32| {
        std::fs::write(&file, format!("{task}{n}\"}}")).unwrap();
        at(&["task", "run", file.to_str().unwrap()])
    };
    until("a manager", || {
        let said = run(1);
        (said.code == Some(0)).then_some(()).ok_or(said.err)
    })
    .await;
    let client = server.client().await;
    let key = "$KV.vendue-apps-tasks.newer";
    client
        .publish(key, r#"{"format":99}"#.into())
        .await
        .unwrap();
    until("the manager to refuse", || {
        let said = run(2);
        (said.code != Some(0)).then_some(()).ok_or(said.out)
    })
    .await;
    // as if a newer manager had carried it out
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("KV-Operation", "DEL");
    client
        .publish_with_headers(key, headers, "".into())
        .await
        .unwrap();
    until("the manager to go on", || {
        let said = run(3);
        (said.code == Some(0)).then_some(()).ok_or(said.err)
    })
    .await;
    let shown = at(&["task", "show", "t-3", "--output", "json"]).json();
    assert_ne!(shown["task"]["state"], "failed", "{shown}");
}
