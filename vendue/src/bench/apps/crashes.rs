//! Measures the time from the event of an instance's end to its next instance.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::Context;
use futures_util::StreamExt;
use serde_json::json;
use shared::{
    Subjects, ask,
    nats::Bus,
    wire::{Event, EventInstance, Instances, InstancesAnswer, kind},
};
use tokio::{task::JoinSet, time::timeout};

use super::{
    Divided,
    fleet::{Cells, Fleet},
    report::Crashes,
};
use crate::{bench::Latency, cluster::Cluster, context::Global, output::note};

/// Number of ends that are measured.
const MEASURED: u32 = 400;
/// Number of instances of an app.
const EACH: u32 = 10;
/// Instances end after one to two times this, so that a few end each second.
const ENDS_AFTER: Duration = Duration::from_secs(5);
/// How long to wait for the next event.
const PATIENCE: Duration = Duration::from_secs(60);

/// The ends by app and index, with the time of the event.
type Ended = HashMap<(String, u32), Instant>;

/// How long until an instance that ended was replaced.
#[derive(Clone, Copy, Debug)]
struct Again {
    /// Until it ran.
    running: Duration,
    /// Until the event arrived that says so.
    told: Duration,
}

/// A start that was reported.
#[derive(Clone, Debug)]
struct Found {
    instance: EventInstance,
    /// When the event of the preceding end arrived.
    since: Instant,
    /// When the event of the start arrived.
    told: Instant,
}

impl Found {
    /// Asks its cell since when it has been running, as events are published up to 100 ms later.
    async fn look(self, bus: Bus, subjects: Subjects) -> anyhow::Result<Again> {
        let id = self.instance.instance.context("an event without an id")?;
        let question = Instances {
            v: shared::VERSION,
            ids: vec![id],
            ..Instances::default()
        };
        let mut ran_at = None;
        let take = |answer: Result<InstancesAnswer, _>| {
            let found = answer
                .ok()
                .and_then(|answer| answer.instances.into_iter().next());
            let age = found.map(|instance| Duration::from_millis(instance.age_ms));
            ran_at = age.and_then(|age| Instant::now().checked_sub(age));
            ran_at.is_some()
        };
        ask::instances(&bus, &subjects, &question, (PATIENCE, None), take).await?;
        let ran_at = ran_at.context("no cell has the instance")?;
        Ok(Again {
            running: ran_at.saturating_duration_since(self.since),
            told: self.told.saturating_duration_since(self.since),
        })
    }
}

/// Runs the measurement.
pub(super) async fn measure(global: &Global, sizes: Divided) -> anyhow::Result<Crashes> {
    let (cells, apps) = (sizes.of(100, 2), sizes.of(10, 1));
    let all = Cells {
        ends_after: Some(ENDS_AFTER),
        ..Cells::new(0, cells)
    };
    let fleet = Fleet::start(global, &[all]).await?;
    // each end counts as the first one, so an immediate start follows, as after the first two crashes of a failing app
    let rules = json!({"crash": {"reset": "1s"}});
    fleet.run(apps, EACH, &rules).await?;
    let wanted = sizes.of(MEASURED, 10);
    note(format_args!("measuring {wanted} instances that end"));
    let again = watch(&fleet.cluster, wanted as usize).await?;
    let spread = |of: fn(&Again) -> Duration| Latency::of(again.iter().map(of).collect());
    Ok(Crashes {
        cells,
        instances: apps * EACH,
        measured: again.len(),
        running: spread(|one| one.running),
        told: spread(|one| one.told),
    })
}

/// Follows `wanted` ends to the next start.
async fn watch(cluster: &Cluster, wanted: usize) -> anyhow::Result<Vec<Again>> {
    let (client, subjects) = (&cluster.bus.client, &cluster.subjects);
    let mut ends = client
        .subscribe(subjects.event(kind::EXITED, "*", "*"))
        .await?;
    let mut starts = client
        .subscribe(subjects.event(kind::RUNNING, "*", "*"))
        .await?;
    let mut ended = Ended::new();
    let mut asked = JoinSet::new();
    let mut again = Vec::new();
    while again.len() < wanted {
        let next = async {
            tokio::select! {
                biased;
                message = ends.next() => message.map(|message| (true, message)),
                message = starts.next() => message.map(|message| (false, message)),
            }
        };
        let (is_end, message) = timeout(PATIENCE, next)
            .await
            .context("no instance ended or started")?
            .context("the connection was closed")?;
        let now = Instant::now();
        let event: Event = serde_json::from_slice(&message.payload)?;
        let app = event.app.unwrap_or_default();
        for instance in event.instances {
            let index = (app.clone(), instance.index);
            if is_end {
                ended.insert(index, now);
            } else if let Some(since) = ended.remove(&index) {
                let (bus, subjects) = (cluster.bus.clone(), subjects.clone());
                let found = Found {
                    instance,
                    since,
                    told: now,
                };
                asked.spawn(found.look(bus, subjects));
            }
        }
        while let Some(one) = asked.try_join_next() {
            again.push(one??);
        }
    }
    Ok(again)
}
