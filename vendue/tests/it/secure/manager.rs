//! A manager with exactly its permissions: apps run, over its two connections, and nothing is refused.

use std::{fs, process::Command};

use serde_json::{Value, json};

use super::cluster::{Raw, Secure};
use crate::{
    common::{PATIENCE, end, is_old_server, until},
    roles::Role,
};

/// Returns a manager's answer; an error if it does not answer.
async fn ask(raw: &Raw, subject: &str, body: &Value) -> Value {
    let answer = raw
        .client
        .request(subject.to_owned(), body.to_string().into());
    answer.await.map_or_else(
        |error| json!({"error": error.to_string()}),
        |answer| serde_json::from_slice(&answer.payload).unwrap(),
    )
}

/// Puts an app as soon as a manager answers.
async fn put_web(alice: &Raw) {
    let web = json!({"app": "web", "memory_mb": 16, "disk_mb": 16, "instances": 2,
                     "run": {"command": ["sleep", "1000"], "env": {"KEY": "s3cret"}}});
    let put = json!({"v": 1, "definition": web});
    testkit::eventually_within(PATIENCE, "a manager to answer", async || {
        let said = ask(alice, "vendue.app.put.web", &put).await;
        said.get("error")
            .map_or(Ok(()), |error| Err(error.to_string()))
    })
    .await;
}

async fn runs(secure: &Secure, count: usize) {
    until("the instances to run", || {
        let said = secure.run("alice", &["ps", "--output", "json"]);
        let running = said.out.matches("\"running\"").count();
        (running == count).then_some(()).ok_or(format!("{said:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_keeps_an_app_running_and_each_role_asks_what_it_may() {
    let (secure, _roles) = Secure::cluster().await;
    if is_old_server() {
        return;
    }
    let mut manager = Role::start(&mut secure.manager("mgr-0"));
    let alice = secure.raw("alice").await;
    put_web(&alice).await;
    runs(&secure, 2).await;
    for who in ["alice", "op", "obs"] {
        let raw = secure.raw(who).await;
        for (subject, body) in [
            ("vendue.app.list", json!({"v": 1})),
            ("vendue.app.show.web", json!({"v": 1})),
            ("vendue.app.history.web", json!({"v": 1})),
        ] {
            let said = ask(&raw, subject, &body).await;
            assert_eq!(said.get("error"), None, "{who} {subject}: {said}");
            assert!(!said.to_string().contains("s3cret"), "{who} {subject}");
        }
        assert_eq!(raw.refusals(), [""; 0], "{who}");
        for command in [
            &["app", "list"][..],
            &["app", "show", "web"],
            &["app", "history", "web"],
        ] {
            secure.run(who, command).expect(0, &[]);
        }
    }
    let op = secure.raw("op").await;
    let export = ask(&op, "vendue.app.export.web", &json!({"v": 1})).await;
    assert!(export.to_string().contains("s3cret"), "{export}");
    let stats = ask(&op, "$SRV.STATS.vendue-manager", &json!({})).await;
    assert!(
        stats.to_string().contains("dropped_not_permitted"),
        "{stats}"
    );
    let scale = json!({"v": 1, "instances": 1});
    let scaled = ask(&alice, "vendue.app.scale.web", &scale).await;
    assert_eq!(scaled.get("error"), None, "{scaled}");
    runs(&secure, 1).await;
    // like the health check in its container, with the same key
    let own = ["health", "--role", "manager", "--name", "mgr-0"];
    secure.run("mgr-0", &own).expect(0, &["manager mgr-0"]);
    let any = secure.run("alice", &["health", "--role", "manager"]);
    any.expect(0, &["manager mgr-0, 1 app"]);
    manager.end();
    let log = secure.server.log();
    let refused: Vec<&str> = log.lines().filter(|l| l.contains("Violation")).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_cell_ran_runs_elsewhere() {
    if is_old_server() {
        return;
    }
    let secure = Secure::server().await;
    let cell = |name: &str| {
        let args = ["rep", "--cell", name, "--memory", "256", "--grace", "1s"];
        let short = ["--interval", "500ms", "--ttl", "3s"];
        Role::start(&mut secure.command(name, &[&args[..], &short].concat()))
    };
    let _roles = [
        secure.auctioneer(),
        Role::start(&mut secure.manager("mgr-0")),
        cell("cell-b"),
    ];
    let killed = cell("cell-a");
    secure.healthy(2).await;
    put_web(&secure.raw("alice").await).await;
    runs(&secure, 2).await;
    let cells = || {
        let said = secure.run("alice", &["ps", "web", "--output", "json"]);
        let instances = said.json()["instances"].as_array().cloned();
        let running = instances.unwrap_or_default().into_iter();
        let running = running.filter(|i| i["state"] == "running");
        running.map(|i| i["cell"].clone()).collect::<Vec<Value>>()
    };
    assert!(cells().contains(&json!("cell-a")), "{:?}", cells());
    drop(killed);
    until("both instances to run on the other cell", || {
        let cells = cells();
        (cells == ["cell-b", "cell-b"])
            .then_some(())
            .ok_or(format!("{cells:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_grants_an_auctioneer_to_accept_requests() {
    if is_old_server() {
        return;
    }
    let secure = Secure::server().await;
    let _roles = [
        Role::start(&mut secure.manager("mgr-0")),
        secure.rep("cell-a"),
        Role::start(&mut secure.command("auc-0", &["auctioneer", "--single"])),
    ];
    secure.healthy(1).await;
    let log = secure.server.log();
    let refused: Vec<&str> = log.lines().filter(|l| l.contains("Violation")).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// Tries both connections, a bucket with another name, and the credentials of others.
#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_may_not_do_its_work_ends_and_says_why() {
    let secure = Secure::server().await;
    if is_old_server() {
        let said = end(&mut secure.manager("mgr-0"));
        said.expect(1, &["too old", "2.11.15"]);
        return;
    }
    let with = |command: &mut Command, args: &[&str]| end(command.args(args));
    // the account of the cluster has no JetStream
    let said = with(&mut secure.command("mgr-0", &["manager"]), &[]);
    said.expect(1, &["not permitted to publish to $JS.API.INFO", "--state-"]);
    let said = with(&mut secure.manager("mgr-0"), &["--bucket", "other"]);
    said.expect(
        1,
        &["not permitted to publish to $JS.API.STREAM.INFO.KV_other"],
    );
    let said = with(&mut secure.manager("mgr-0"), &["--name", "mgr-1"]);
    said.expect(1, &["not permitted to", "mgr-1", "credentials"]);
    let mut alice = secure.command("alice", &["manager"]);
    alice.env("VENDUE_STATE_NKEY", secure.key("mgr-0-state"));
    with(&mut alice, &[]).expect(1, &["not permitted to subscribe to", "credentials"]);
}

#[test]
fn a_manager_has_two_contexts_and_two_keys() {
    let files = tempfile::tempdir().unwrap();
    let dir = files.path().join("auth");
    super::cluster::auth(&dir, &["init"]).expect(0, &[]);
    let added = super::cluster::auth(&dir, &["add-manager", "m", "--output", "json"]);
    let added = added.expect(0, &[]).json();
    let entries = added["added"].as_array().unwrap();
    let of =
        |key: &str| -> Vec<&str> { entries.iter().map(|e| e[key].as_str().unwrap()).collect() };
    assert_eq!(of("name"), ["m", "m-state"]);
    assert_eq!(of("role"), ["manager", "manager-state"]);
    for context in of("context") {
        let text = fs::read_to_string(context).unwrap();
        let context: Value = serde_json::from_str(&text).unwrap();
        let inbox = context["inbox_prefix"].as_str().unwrap();
        let key = context["nkey"].as_str().unwrap();
        let name = inbox.strip_prefix("_INBOX.").unwrap();
        assert!(key.ends_with(&format!("keys/{name}.nk")), "{text}");
    }
}
