//! Measures the loss of half of the cells at once.

use std::time::{Duration, Instant};

use anyhow::ensure;
use placement::Resources;
use rep::RepConfig;
use serde_json::json;
use tokio::time::sleep;

use super::{
    Divided,
    fleet::{Cells, Fleet, Totals},
    report::Loss,
};
use crate::{context::Global, output::note};

/// Number of instances of an app.
const EACH: u32 = 100;
/// Pause between two looks; the manager updates its counters once a second.
const PAUSE: Duration = Duration::from_millis(200);
/// How long it may take until all lost cells count as lost.
const PATIENCE: Duration = Duration::from_secs(300);

/// Runs the measurement.
pub(super) async fn measure(global: &Global, sizes: Divided) -> anyhow::Result<Loss> {
    let (half, apps) = (sizes.of(100, 2), sizes.of(100, 1));
    let halves = [Cells::new(0, half), Cells::new(half, half)];
    let mut fleet = Fleet::start(global, &halves).await?;
    fleet.run(apps, EACH, &json!({})).await?;
    let before = fleet.counter("cells_lost").await?;
    note(format_args!("ending {half} cells at once"));
    let from = Instant::now();
    // killed, so that they do not withdraw
    fleet.cells.pop();
    while fleet.counter("cells_lost").await? < before + u64::from(half) {
        ensure!(
            from.elapsed() < PATIENCE,
            "not all cells count as lost after {PATIENCE:?}"
        );
        sleep(PAUSE).await;
    }
    let noticed = from.elapsed();
    let instances = apps * EACH;
    let again = |totals: &Totals| totals.running == instances;
    let totals = fleet.until("everything to run again", again).await?;
    let cell = RepConfig::new("any", "any", Resources::new(1, 1, 1));
    Ok(Loss {
        cells: 2 * half,
        lost_cells: half,
        instances,
        lost_instances: totals.suspect,
        ttl_seconds: cell.ttl.0.as_secs_f64(),
        noticed_seconds: noticed.as_secs_f64(),
        seconds: from.elapsed().as_secs_f64(),
    })
}
