//! JetStream in a separate account, which managers reach by `--state-nats`; users have passwords here.

use async_nats::ConnectOptions;
use serde_json::Value;
use testkit::NatsServer;

use crate::{
    common::{Finished, end, is_old_server, until, vendue},
    roles::Role,
};

const ACCOUNTS: &str = "accounts {
  CLUSTER { users: [{ user: all, password: one }] }
  STATE { jetstream: enabled, users: [{ user: keeper, password: two }] }
}\n";
const WEB: &str = r#"{"app":"web","instances":2,"memory_mb":16,"disk_mb":16,
                      "run":{"command":["sleep","1000"],"env":{"KEY":"s3cret"}}}"#;

/// A user of the cluster's account who types commands.
struct User(String);

impl User {
    fn run(&self, line: &str) -> Finished {
        end(vendue().args(line.split(' ')).env("NATS_URL", &self.0))
    }

    async fn runs(&self, count: usize) -> Vec<Value> {
        until("the instances to run", || {
            let said = self.run("ps web --output json");
            // there is no document until a cell answers
            let told: Value = serde_json::from_str(&said.out).unwrap_or_default();
            let instances = told["instances"].as_array().cloned();
            let instances = instances.unwrap_or_default().into_iter();
            let running: Vec<Value> = instances
                .filter(|i| i["state"] == "running")
                .map(|i| i["instance"].clone())
                .collect();
            (running.len() == count)
                .then_some(running)
                .ok_or(format!("{said:?}"))
        })
        .await
    }
}

/// Deletes the apps behind the manager's back.
async fn lose_bucket(server: &NatsServer) {
    let keeper = ConnectOptions::with_user_and_password("keeper".into(), "two".into());
    let keeper = keeper.connect(server.address()).await.unwrap();
    let delete = keeper.request("$JS.API.STREAM.DELETE.KV_vendue-apps", "".into());
    let answer: Value = serde_json::from_slice(&delete.await.unwrap().payload).unwrap();
    assert_eq!(answer["success"], true, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_bucket_is_restored_and_what_runs_is_taken_over() {
    let files = tempfile::tempdir().unwrap();
    let store = files.path().join("jetstream");
    let config = format!(
        "jetstream {{ store_dir: \"{}\" }}\n{ACCOUNTS}",
        store.display()
    );
    let server = NatsServer::with_config(&config).await;
    let url = |who: &str| format!("nats://{who}@{}", server.address());
    let user = User(url("all:one"));
    if is_old_server() {
        user.run("manager").expect(1, &["2.12.6 or newer"]);
        return;
    }
    user.run("manager")
        .expect(1, &["JetStream is not available", "--state-nats"]);
    let role = |line: &str| {
        let mut command = vendue();
        command.args(line.split(' ')).env("NATS_URL", &user.0);
        Role::start(&mut command)
    };
    let _roles = [
        role("auctioneer"),
        role("rep --cell c1 --memory 256 --grace 1s"),
        role(&format!("manager --state-nats {}", url("keeper:two"))),
    ];
    let file = files.path().join("web.json");
    std::fs::write(&file, WEB).unwrap();
    let put = format!("app put {}", file.display());
    until("the app to be put", || {
        let said = user.run(&put);
        (said.code == Some(0))
            .then_some(())
            .ok_or(format!("{said:?}"))
    })
    .await;
    let before = user.runs(2).await;

    let exported = files.path().join("exported.json");
    user.run(&format!("app export --file {}", exported.display()))
        .expect(0, &["1 app"]);
    lose_bucket(&server).await;
    let restore = format!("app import {} --restore", exported.display());
    // refused until the manager has noticed
    until("the app to be restored", || {
        let said = user.run(&restore);
        let done = said.code == Some(0) && said.out.contains("imported");
        done.then_some(()).ok_or(format!("{said:?}"))
    })
    .await;
    user.run("app wait web").expect(0, &["2 of 2 running"]);
    assert_eq!(user.runs(2).await, before);
    user.run("app scale web 3").expect(0, &[]);
    let after = user.runs(3).await;
    assert!(
        before.iter().all(|id| after.contains(id)),
        "{before:?} {after:?}"
    );
}
