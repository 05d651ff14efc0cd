//! Servers that cannot be used, and settings.

use manager::{BucketConfig, ManagerConfig, ManagerError};
use shared::{
    Subjects,
    nats::{NatsOptions, connect},
    shutdown::CancellationToken,
};
use testkit::NatsServer;

use crate::harness::{Cluster, server};

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
