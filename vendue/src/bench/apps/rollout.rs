//! Measures the rollout of a new version of many instances.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use futures_util::StreamExt;
use serde_json::{Value, json};
use shared::wire::{AppChanged, AppPut, Event, kind};
use tokio::time::timeout;

use super::{
    Divided,
    fleet::{Cells, Fleet, definition, name},
    report::RolloutTime,
};
use crate::{cluster::Peer, context::Global, output::note};

/// How long it may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// Runs the measurement.
pub(super) async fn measure(global: &Global, sizes: Divided) -> anyhow::Result<RolloutTime> {
    let (cells, instances) = (sizes.of(100, 2), sizes.of(1_000, 10));
    let in_flight = sizes.of(50, 2);
    let fleet = Fleet::start(global, &[Cells::new(0, cells)]).await?;
    let rules = |version: &str| {
        json!({
            "tags": {"version": version},
            "update": {"max_in_flight": in_flight, "min_healthy": "0s"},
        })
    };
    fleet.run(1, instances, &rules("1")).await?;
    note(format_args!("replacing {instances} instances"));
    let (client, subjects) = (&fleet.cluster.bus.client, &fleet.cluster.subjects);
    let app = name(0);
    let mut done = client
        .subscribe(subjects.event(kind::ROLLOUT_DONE, &app, "*"))
        .await?;
    let mut failed = client
        .subscribe(subjects.event(kind::ROLLOUT_FAILED, &app, "*"))
        .await?;
    let from = Instant::now();
    put(&fleet, &app, definition(&app, instances, &rules("2"))).await?;
    let ended = async {
        tokio::select! {
            _ = done.next() => Ok(from.elapsed()),
            event = failed.next() => {
                let event: Event = serde_json::from_slice(&event.context("closed")?.payload)?;
                bail!("the rollout failed: {}", event.reason.unwrap_or_default());
            }
        }
    };
    let took = timeout(PATIENCE, ended)
        .await
        .context("the rollout does not end")??;
    Ok(RolloutTime {
        cells,
        instances,
        in_flight,
        seconds: took.as_secs_f64(),
    })
}

async fn put(fleet: &Fleet, app: &str, definition: Value) -> anyhow::Result<()> {
    let question = AppPut {
        v: shared::VERSION,
        definition,
        dry_run: false,
    };
    let cluster = &fleet.cluster;
    let subject = cluster.subjects.app("put", app);
    let asked = cluster.ask(Peer::Manager, subject, &question, PATIENCE);
    let changed: AppChanged = asked.await?;
    anyhow::ensure!(
        changed.version == 2,
        "version {}; expected 2",
        changed.version
    );
    Ok(())
}
