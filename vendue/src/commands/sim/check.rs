//! `sim check`: checks whether the promises of the protocol hold under random faults, seed by seed.

use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use simulator::check::{CheckReport, Failure, check_seeds, replay};

use crate::{
    context::{Exit, Format, Global},
    output::{self, note, say},
};

/// Interval between two progress updates.
const PAUSE: Duration = Duration::from_millis(500);

/// See `vendue sim check --help`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "A seed always plays the same run. The first failing seed of each broken promise is made as small \
                  as possible and shown as a timeline."
)]
pub(crate) struct CheckArgs {
    /// How many seeds to play
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    seeds: u64,
    /// The first of them
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "seed")]
    first: u64,
    /// Play only this seed, and show what happens in it
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    seed: Option<u64>,
}

/// Plays the seeds, and shows which promises they broke.
pub(crate) async fn check(global: &Global, args: &CheckArgs) -> anyhow::Result<Exit> {
    if let Some(seed) = args.seed {
        return one(global.output, seed);
    }
    let end = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&end);
    let stop = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            end.store(true, Ordering::Relaxed);
        }
    });
    let seeds = args.first..args.first.saturating_add(args.seeds);
    let (count, interrupted) = (args.seeds, Arc::clone(&ended));
    let began = Instant::now();
    let play = move || {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let shown = Mutex::new(Instant::now());
        let terminal = io::stderr().is_terminal();
        check_seeds(seeds, threads, &|played, failed| {
            let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
            if terminal && shown.elapsed() >= PAUSE {
                *shown = Instant::now();
                let _ = write!(
                    io::stderr(),
                    "\r{played} of {count} seeds, {failed} failed\x1b[K"
                );
            }
            !ended.load(Ordering::Relaxed)
        })
    };
    let report = tokio::task::spawn_blocking(play).await?;
    stop.abort();
    if io::stderr().is_terminal() {
        let _ = write!(io::stderr(), "\r\x1b[K");
    }
    note(format_args!("{:.1} s", began.elapsed().as_secs_f64()));
    write_report(global.output, &report)?;
    Ok(if interrupted.load(Ordering::Relaxed) {
        Exit::Interrupted
    } else if report.violations.is_empty() {
        Exit::Ok
    } else {
        Exit::Failed
    })
}

/// Plays one seed, showing everything that happens in it.
fn one(format: Format, seed: u64) -> anyhow::Result<Exit> {
    let (timeline, violation) = replay(seed);
    let broken = violation
        .as_ref()
        .map(|v| json!({ "invariant": v.invariant, "at_ms": v.at_ms, "what": v.what }));
    match format {
        Format::Json => {
            output::document(&json!({ "seed": seed, "violation": broken, "timeline": timeline }))?;
        }
        Format::Table => {
            for line in timeline {
                say(line)?;
            }
            if violation.is_none() {
                say(format_args!("seed {seed}: every promise held"))?;
            }
        }
    }
    Ok(if violation.is_none() {
        Exit::Ok
    } else {
        Exit::Failed
    })
}

fn write_report(format: Format, report: &CheckReport) -> anyhow::Result<()> {
    match format {
        Format::Json => {
            let failures: Vec<_> = report.failures.iter().map(failure).collect();
            output::document(&json!({
                "seeds": report.seeds, "managed": report.managed, "events": report.events,
                "asked": report.asked, "commands": report.commands,
                "faults": report.faults, "short_doubles": report.short_doubles,
                "longest_double_ms": report.longest_double_ms, "violations": report.violations,
                "failures": failures,
            }))
        }
        Format::Table => {
            for failure in &report.failures {
                table(failure)?;
            }
            let faults: Vec<String> = report
                .faults
                .iter()
                .map(|(kind, count)| format!("{count} × {kind}"))
                .collect();
            say(format_args!(
                "{} seeds, {} of them with managers, {} requests, {} commands, {} events; faults: {}",
                report.seeds,
                report.managed,
                report.asked,
                report.commands,
                report.events,
                faults.join(", ")
            ))?;
            say(format_args!(
                "instances that ran twice for a moment: {}, the longest for {} ms",
                report.short_doubles, report.longest_double_ms
            ))?;
            if report.violations.is_empty() {
                say("every promise held")?;
            }
            for (invariant, count) in &report.violations {
                say(format_args!("broken in {count} seeds: {invariant}"))?;
            }
            Ok(())
        }
    }
}

fn failure(failure: &Failure) -> serde_json::Value {
    let violation = &failure.violation;
    json!({
        "seed": failure.seed, "invariant": violation.invariant, "at_ms": violation.at_ms,
        "what": violation.what, "steps": failure.steps.1, "timeline": failure.timeline,
    })
}

fn table(failure: &Failure) -> io::Result<()> {
    let (before, after) = failure.steps;
    say(format_args!(
        "seed {}: {}: {}\n(with {after} of its {before} requests and faults)",
        failure.seed, failure.violation.invariant, failure.violation.what
    ))?;
    for line in &failure.timeline {
        say(format_args!("  {line}"))?;
    }
    say("")
}
