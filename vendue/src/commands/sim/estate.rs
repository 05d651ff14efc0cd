//! `sim estate`: simulates moving apps from DEAs to cells, in virtual time.

use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use simulator::check::{EstateRun, move_from_deas};

use crate::{
    context::{Exit, Format, Global},
    output::{self, note, say},
};

/// Interval between two progress updates.
const PAUSE: Duration = Duration::from_millis(500);

/// See `vendue sim estate --help`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "100 DEAs behind a bridge, 20 cells, an auctioneer and a manager, in three zones. 20 apps of 10 instances are put on \
                  DEAs at 20 s, half of them moved to cells at 65 s; at 125 s a zone of both is lost, and the bridge restarts."
)]
pub(crate) struct EstateSimArgs {
    /// What every random choice follows from
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

/// Plays the scenario, and shows what happened to the apps.
pub(crate) async fn estate(global: &Global, args: &EstateSimArgs) -> anyhow::Result<Exit> {
    let end = Arc::new(AtomicBool::new(false));
    let (ended, ending) = (Arc::clone(&end), Arc::clone(&end));
    let stop = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            ending.store(true, Ordering::Relaxed);
        }
    });
    let seed = args.seed;
    let (began, terminal) = (Instant::now(), io::stderr().is_terminal());
    let play = move || {
        let mut shown = Instant::now();
        move_from_deas(seed, &mut |now_ms, end_ms| {
            if terminal && shown.elapsed() >= PAUSE {
                shown = Instant::now();
                let (now, all) = (now_ms / 1_000, end_ms / 1_000);
                let _ = write!(io::stderr(), "\r{now} of {all} s\x1b[K");
            }
            !ended.load(Ordering::Relaxed)
        })
    };
    let run = tokio::task::spawn_blocking(play).await?;
    stop.abort();
    if terminal {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    note(format_args!("{:.1} s", began.elapsed().as_secs_f64()));
    match global.output {
        Format::Json => output::document(&json!(run))?,
        Format::Table => say(table(&run))?,
    }
    Ok(if end.load(Ordering::Relaxed) {
        Exit::Interrupted
    } else if run.is_right() {
        Exit::Ok
    } else {
        Exit::Failed
    })
}

fn table(run: &EstateRun) -> String {
    let time = |ms: Option<u64>| {
        ms.map_or("not in time".to_owned(), |ms| {
            format!("{:.1} s", ms as f64 / 1_000.0)
        })
    };
    let rows = [
        ("DEAs, cells", format!("{}, {}", run.deas, run.cells)),
        ("apps, indices", format!("{}, {}", run.apps, run.indices)),
        ("all put on DEAs after", time(run.deployed_ms)),
        ("half of them moved to cells after", time(run.moved_ms)),
        (
            "  indices missing meanwhile, at most",
            run.moving_missing.to_string(),
        ),
        (
            "  indices that ran twice, at most",
            run.moving_twice.to_string(),
        ),
        ("indices lost with a zone", run.lost.to_string()),
        ("  all run again after", time(run.recovered_ms)),
        (
            "  indices that ran twice, at most",
            run.recovering_twice.to_string(),
        ),
        (
            "least free memory of a DEA",
            format!("{} MB", run.least_dea_memory_mb),
        ),
        ("events", run.events.to_string()),
    ];
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let row = |(name, value): &(&str, String)| format!("{name:width$}  {value}");
    let mut lines: Vec<String> = rows.iter().map(row).collect();
    lines.extend(
        run.broken
            .iter()
            .map(|what| format!("broken promise: {what}")),
    );
    lines.extend(
        run.wrong_at_end
            .iter()
            .map(|what| format!("wrong at the end: {what}")),
    );
    lines.join("\n")
}
