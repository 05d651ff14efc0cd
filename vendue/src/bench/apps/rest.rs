//! Measures a manager at rest: it hears all cells, but has nothing to do.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{
    Divided,
    fleet::{Cells, Fleet},
    report::Rest,
};
use crate::{context::Global, output::note, process_usage};

/// Number of instances of an app.
const EACH: u32 = 25;
/// Longer than the interval of heartbeats, so that the effects of the starts are over.
const SETTLE: Duration = Duration::from_secs(35);

/// Runs the measurement.
pub(super) async fn measure(
    global: &Global,
    sizes: Divided,
    idle: Duration,
) -> anyhow::Result<Rest> {
    let (cells, apps) = (sizes.of(1_000, 2), sizes.of(10_000, 1));
    let fleet = Fleet::start(global, &[Cells::new(0, cells)]).await?;
    let started = fleet.run(apps, EACH, &json!({})).await?;
    note(format_args!("measuring the manager at rest for {idle:?}"));
    sleep(SETTLE.min(idle)).await;
    let pid = fleet.manager.pid;
    let (before, from) = (process_usage::cpu_seconds(pid)?, Instant::now());
    sleep(idle).await;
    let seconds = from.elapsed().as_secs_f64();
    let used = process_usage::cpu_seconds(pid)? - before;
    Ok(Rest {
        cells,
        apps,
        instances: apps * EACH,
        started_seconds: started.as_secs_f64(),
        seconds,
        manager_cpu_percent: used / seconds * 100.0,
        manager_kib: process_usage::resident_kib(pid)?,
    })
}
