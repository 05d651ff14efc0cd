//! What instances use is measured with each heartbeat.

use std::time::Duration;

use placement::Span;
use shared::wire::InstanceState;
use testkit::{NatsServer, eventually};

use crate::harness::{Cell, command, process_config};

#[tokio::test]
async fn a_busy_instance_is_seen_to_use_the_processor() {
    let server = NatsServer::start().await;
    let config = rep::RepConfig {
        heartbeat: Span(Duration::from_millis(200)),
        ..process_config("usage")
    };
    let cell = Cell::start(&server, config).await;
    // in a child process, which belongs to the instance
    let busy = command("busy", &["sh", "-c", "sh -c 'while :; do :; done'; true"]);
    let idle = command("idle", &["sleep", "1000"]);
    let (busy_id, idle_id) = (busy.instance, idle.instance);
    cell.must_start(vec![busy, idle]).await;
    cell.wait_for(busy_id, InstanceState::Running).await;
    cell.wait_for(idle_id, InstanceState::Running).await;
    eventually("both to be measured", async || {
        let instances = cell.instances().await;
        let usage = |id| instances.iter().find(|one| one.instance == id)?.usage;
        let (busy, idle) = usage(busy_id).zip(usage(idle_id)).ok_or("not measured")?;
        let seen = busy.cpu_millis > 0 && busy.memory_mb > 0 && idle.cpu_millis < 100;
        seen.then_some(()).ok_or("other figures")
    })
    .await;
    cell.end().await;
}
