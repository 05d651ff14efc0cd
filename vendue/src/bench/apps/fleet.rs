//! A private cluster with a manager and simulated cells.

use std::time::Duration;

use anyhow::{Context, bail};
use nats_server::{Options, Server};
use serde_json::{Value, json};
use shared::{
    permissions::Role,
    wire::{AppExport, AppStatus},
};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::super::{cluster::counters, part::Part};
use crate::{
    cluster::Cluster,
    commands::{app, instances},
    context::Global,
    output::note,
};

/// How long the cluster may take to start, and then to run everything.
const PATIENCE: Duration = Duration::from_secs(600);
/// Writes are acknowledged only once they are on disk.
pub(super) const STORE_SAFELY: &str = "sync_interval: always";
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of cells per connection.
const CELLS_PER_CONNECTION: u32 = 32;

/// Cells in one process.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    /// The number of the first cell.
    pub(super) first: u32,
    pub(super) count: u32,
    /// Each instance ends by itself after one to two times this.
    pub(super) ends_after: Option<Duration>,
}

impl Cells {
    pub(super) fn new(first: u32, count: u32) -> Self {
        Self {
            first,
            count,
            ends_after: None,
        }
    }

    fn arguments(&self) -> Vec<String> {
        let connections = self.count.div_ceil(CELLS_PER_CONNECTION);
        let mut arguments = vec![
            "bench".to_owned(),
            "cells".to_owned(),
            format!("--first={}", self.first),
            format!("--cells={}", self.count),
            format!("--connections={connections}"),
        ];
        let ends = self.ends_after.map(humantime::format_duration);
        arguments.extend(ends.map(|time| format!("--ends-after={time}")));
        arguments
    }
}

/// The whole cluster, which ends when this is dropped.
pub(super) struct Fleet {
    // dropped in this order, so that processes end before the server does
    pub(super) cells: Vec<Part>,
    pub(super) manager: Part,
    _auctioneer: Part,
    pub(super) cluster: Cluster,
    _server: Server,
    _data: TempDir,
}

/// Sums over all apps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) running: u32,
    pub(super) suspect: u32,
}

impl Fleet {
    /// Starts it, and waits until an auctioneer knows all cells and a manager acts.
    pub(super) async fn start(global: &Global, cells: &[Cells]) -> anyhow::Result<Self> {
        Self::start_with(global, cells, "").await
    }

    /// Like [`Fleet::start`], with additional JetStream settings.
    pub(super) async fn start_with(
        global: &Global,
        cells: &[Cells],
        settings: &str,
    ) -> anyhow::Result<Self> {
        let data = tempfile::tempdir().context("a directory for the apps")?;
        let store = data.path().display();
        let config = format!("jetstream {{ store_dir: \"{store}\"\n{settings} }}\n");
        let options = Options {
            config,
            ..Options::default()
        };
        let server = Server::start(options).await?;
        let mut global = global.clone();
        global.nats = Some(server.url());
        let url = global.url().context("no server")?;
        let parts = cells
            .iter()
            .map(|cells| Part::start(&url, &cells.arguments()));
        let parts = parts.collect::<anyhow::Result<Vec<Part>>>()?;
        let auctioneer = Part::start(&url, &["auctioneer".to_owned()])?;
        let manager = Part::start(&url, &["manager".to_owned()])?;
        let cluster = Cluster::connect(&global).await?;
        let count = cells.iter().map(|cells| cells.count as usize).sum();
        let mut fleet = Self {
            cells: parts,
            manager,
            _auctioneer: auctioneer,
            cluster,
            _server: server,
            _data: data,
        };
        fleet.until_acting().await?;
        let (client, subjects) = (&fleet.cluster.bus.client, &fleet.cluster.subjects);
        instances::until_known(client, subjects, count, 1, PATIENCE).await?;
        Ok(fleet)
    }

    async fn until_acting(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.manager.ended()? {
                bail!("the manager ended ({status}); what it said stands above");
            }
            let listed = app::list::all(&self.cluster).await;
            match listed {
                Ok(listed) if listed.acting => return Ok(()),
                Err(error) if Instant::now() > end => return Err(error),
                _ => sleep(PAUSE).await,
            }
        }
    }

    /// Puts `apps` apps with `each` instances, and waits until everything runs. Returns how long that took.
    pub(super) async fn run(&self, apps: u32, each: u32, more: &Value) -> anyhow::Result<Duration> {
        let instances = u64::from(apps) * u64::from(each);
        note(format_args!(
            "starting {instances} instances of {apps} apps"
        ));
        let from = Instant::now();
        let definitions = (0..apps).map(|number| AppExport {
            definition: definition(&name(number), each, more),
            ..AppExport::default()
        });
        let imported = app::import::put(&self.cluster, definitions.collect(), false).await?;
        let mut imported = imported.into_iter().flat_map(|answer| answer.apps);
        if let Some(error) = imported.find_map(|app| app.error) {
            bail!("an app was refused: {}", error.message);
        }
        self.until("everything to run", |totals| {
            u64::from(totals.running) == instances
        })
        .await?;
        Ok(from.elapsed())
    }

    /// Waits until a condition holds for the sums over all apps.
    pub(super) async fn until(
        &self,
        what: &str,
        good: impl Fn(&Totals) -> bool,
    ) -> anyhow::Result<Totals> {
        let end = Instant::now() + PATIENCE;
        loop {
            let begun = Instant::now();
            let totals = self.totals().await;
            match totals {
                Ok(totals) if good(&totals) => return Ok(totals),
                Ok(totals) if Instant::now() > end => {
                    bail!("waiting for {what}: {totals:?} after {PATIENCE:?}")
                }
                Err(error) if Instant::now() > end => return Err(error),
                // looking must not be most of the manager's work
                _ => sleep(PAUSE.max(begun.elapsed() * 4)).await,
            }
        }
    }

    async fn totals(&self) -> anyhow::Result<Totals> {
        let listed = app::list::all(&self.cluster).await?;
        let sum = |count: fn(&AppStatus) -> u32| listed.apps.iter().map(count).sum();
        Ok(Totals {
            running: sum(|app| app.running),
            suspect: sum(|app| app.suspect),
        })
    }

    /// Returns a counter of the manager.
    pub(super) async fn counter(&self, name: &str) -> anyhow::Result<u64> {
        let counters = counters(&self.cluster, Role::Manager, "put").await?;
        let count = counters[name].as_u64();
        count.with_context(|| format!("the manager has no counter {name}"))
    }
}

/// Returns the name of an app.
pub(super) fn name(number: u32) -> String {
    format!("app-{number}")
}

/// Returns the definition of an app, with further fields.
pub(super) fn definition(app: &str, instances: u32, more: &Value) -> Value {
    let mut definition = json!({
        "app": app, "instances": instances, "memory_mb": 8, "disk_mb": 8,
        "run": {"command": ["true"]}, // the cells only simulate it
    });
    if let (Value::Object(all), Value::Object(more)) = (&mut definition, more.clone()) {
        all.extend(more);
    }
    definition
}
