//! Unsuitable servers, and settings.

use manager::{BucketConfig, ManagerConfig, ManagerError};
use serde_json::json;
use shared::{
    Subjects,
    nats::{NatsOptions, connect},
    shutdown::CancellationToken,
};
use testkit::NatsServer;

use crate::harness::{Cluster, server, web};

async fn error_of(server: &NatsServer, replicas: usize) -> ManagerError {
    let options = NatsOptions {
        url: server.url(),
        name: "m1".into(),
        patient: true,
        ..NatsOptions::default()
    };
    let bus = connect(&options).await.unwrap();
    let config = ManagerConfig {
        name: "m1".into(),
        bucket: BucketConfig {
            name: "apps".into(),
            replicas,
        },
    };
    let subjects = Subjects::new("vendue").unwrap();
    let (state, shutdown) = (bus.clone(), CancellationToken::new());
    let ended = manager::run(config, bus, state, subjects, shutdown).await;
    ended.unwrap_err()
}

/// A configuration with the permissions of a user of an earlier version.
const EARLIER: &str = r#"
authorization { users: [
  { user: everything, password: "x" }
  { user: m1, password: "x", permissions: {
      publish: { deny: ["$KV.apps-tasks.>", "$JS.API.STREAM.*.KV_apps-tasks", "$JS.API.CONSUMER.CREATE.KV_apps-tasks.>",
          "$JS.API.CONSUMER.CREATE.KV_apps-tasks"] }
      subscribe: { deny: ["vendue.cell.*.result"] } } }
] }
no_auth_user: everything
"#;

#[tokio::test]
async fn with_the_permissions_of_an_earlier_version_apps_are_kept_running() {
    let Some(cluster) = Cluster::with(EARLIER).await else {
        return;
    };
    let _cells = cluster.cells(2).await;
    let _manager = cluster.manager_as("m1", "m1:x@").await;
    cluster.put(web(3)).await;
    cluster.runs("web", 3).await;
    let task = json!({ "app": "a", "kind": "task", "memory_mb": 1, "disk_mb": 1, "run": { "command": ["true"] } });
    for (subject, body) in [
        (cluster.subjects.task("run", "t-1"), task),
        (cluster.subjects.task_list(), json!({})),
    ] {
        let answer = cluster.ask(&subject, &body).await;
        assert_eq!(answer["error"]["code"], "not_permitted", "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("not permitted to"), "{message}");
    }
    cluster
        .app("scale", "web", json!({ "v": 1, "instances": 4 }))
        .await;
    cluster.runs("web", 4).await;
}

#[tokio::test]
async fn a_server_without_jetstream_is_refused_with_what_to_do() {
    if Cluster::start().await.is_none() {
        return;
    }
    let server = NatsServer::start().await;
    let error = error_of(&server, 1).await;
    assert!(matches!(error, ManagerError::NoJetStream(_)), "{error}");
    let text = error.to_string();
    assert!(text.contains("-js") && text.contains("--state"), "{text}");
}

#[tokio::test]
async fn a_configuration_that_no_server_can_have_is_refused() {
    let (server, _data) = server("").await;
    let error = error_of(&server, 2).await;
    assert!(matches!(error, ManagerError::Config(_)), "{error}");
}

#[tokio::test]
async fn the_buckets_have_no_history_and_no_direct_reads() {
    let Some(cluster) = Cluster::start().await else {
        return;
    };
    let _manager = cluster.manager("m1").await;
    cluster.put(crate::harness::web(1)).await;
    let context = async_nats::jetstream::new(cluster.client.clone());
    for name in ["KV_apps", "KV_apps-lease"] {
        let stream = context.get_stream(name).await.unwrap();
        let config = &stream.cached_info().config;
        assert_eq!(config.max_messages_per_subject, 1);
        assert!(!config.allow_direct && !config.allow_rollup && config.deny_delete);
    }
}
