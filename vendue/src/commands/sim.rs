//! `sim`: a scenario under virtual time, under one policy or several, and a report of it.

mod over_nats;
mod progress;
mod record;
mod seeds;
mod timing;

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use anyhow::Context;
use placement::ScenarioError;
use simulator::{
    outcome::Outcome,
    report,
    scenario::{Contender, Decider, Scenario},
    shipped,
    trace::{Columns, Source},
};

use super::{Done, policy, start};
use crate::{
    asking::Usage,
    cli::Global,
    output::{self, Format, note},
};
use progress::Bar;
use timing::{Stopwatch, Timing};

/// See `vendue sim --help`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The same seed gives the same report, byte for byte. What it took in real time, processor \
                  and memory goes to standard error and --timings. Ctrl-C ends it and reports how far it came."
)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    command: Option<SimCommand>,
    /// A scenario's file (TOML by its name's end, else JSON), the name of a shipped one, or - for
    /// standard input
    #[arg(required_unless_present_any = ["list", "nodes"])]
    scenario: Option<String>,
    /// Another policy than the scenario's: a preset's name, a file, or era-random, era-pick-best,
    /// era-reserve-n-best, era-all-rebid; may be repeated, to compare
    #[arg(long, value_name = "NAME|FILE")]
    policy: Vec<String>,
    /// Another seed than the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Play so many seeds, one after the other, and show how far their figures lie apart
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1_000), conflicts_with_all = ["html", "open", "over"])]
    seeds: Option<u64>,
    /// In virtual time, or with the real roles and a nats-server of its own in real time
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    over: Over,
    /// Write the report as one HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Show the HTML report when it is written (to a temporary file without --html)
    #[arg(long)]
    open: bool,
    /// Write what it took in real time, processor and memory, as JSON
    #[arg(long, value_name = "FILE")]
    timings: Option<PathBuf>,
    /// Instead of a scenario: a trace's nodes, as CSV (columns: sn,cpu_milli,memory_mib,gpu,model)
    #[arg(
        long,
        value_name = "FILE",
        requires = "pods",
        conflicts_with = "scenario"
    )]
    nodes: Option<PathBuf>,
    /// The trace's pods, as CSV (columns: name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,
    /// creation_time,deletion_time)
    #[arg(long, value_name = "FILE", requires = "nodes")]
    pods: Option<PathBuf>,
    /// Other names of the trace's columns: field=column, with commas between them
    #[arg(long, value_name = "MAP", requires = "nodes")]
    columns: Option<Columns>,
    /// List the shipped scenarios
    #[arg(long)]
    list: bool,
}

/// How a scenario is played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Over {
    /// Virtual time: the same seed gives the same report
    #[default]
    InProcess,
    /// Real time, a real nats-server, simulated executors
    Nats,
}

/// What else there is to do with scenarios.
#[derive(Clone, Debug, clap::Subcommand)]
enum SimCommand {
    /// Listen to a live cluster and write what was asked of it as a scenario
    Record(record::RecordArgs),
}

/// Plays the scenario and reports.
pub(crate) async fn sim(global: &Global, args: &SimArgs) -> anyhow::Result<Done> {
    if let Some(SimCommand::Record(record)) = &args.command {
        return record::record(global, record).await;
    }
    if args.list {
        return list(global.output);
    }
    let scenario = read(args)?;
    let seed = args.seed.unwrap_or(scenario.base.seed);
    let end = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&end);
    let command = command(args);
    let seeds = seed..seed.saturating_add(args.seeds.unwrap_or(1));
    let stop = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            end.store(true, Ordering::Relaxed);
        }
    });
    let (outcomes, timings) = match args.over {
        Over::InProcess => {
            let play = move || play_all(&scenario, seeds, &command, &ended);
            tokio::task::spawn_blocking(play).await??
        }
        Over::Nats => {
            let mut outcome = simulator::outcome(&scenario, seed, &command);
            outcome.over = "nats".into();
            let (outcome, timings) = play_over_nats(global, &scenario, outcome, &ended).await?;
            (vec![outcome], timings)
        }
    };
    stop.abort();
    tell(args, &timings)?;
    let interrupted = outcomes.iter().any(|o| o.interrupted);
    match outcomes.as_slice() {
        [outcome] if args.seeds.is_none() => write(global.output, args, outcome)?,
        _ => seeds::write(global.output, &outcomes, &self::command(args))?,
    }
    Ok(if interrupted {
        Done::Interrupted
    } else {
        Done::Well
    })
}

/// Every seed in turn; ends with the one during which it was ended.
fn play_all(
    scenario: &Scenario,
    seeds: std::ops::Range<u64>,
    command: &str,
    end: &AtomicBool,
) -> anyhow::Result<(Vec<Outcome>, Vec<Timing>)> {
    let (mut outcomes, mut timings) = (Vec::new(), Vec::new());
    for seed in seeds {
        let outcome = simulator::outcome(scenario, seed, command);
        let (mut outcome, took) = play(scenario, outcome, end)?;
        let interrupted = outcome.interrupted;
        // of many seeds only the figures are wanted
        if let Some(last) = outcomes.last_mut() {
            forget_cells(last);
            forget_cells(&mut outcome);
        }
        outcomes.push(outcome);
        timings.extend(took);
        if interrupted {
            break;
        }
    }
    Ok((outcomes, timings))
}

fn forget_cells(outcome: &mut Outcome) {
    for run in &mut outcome.runs {
        run.cells.clear();
        run.series.clear();
    }
}

/// The scenario with the policies and workload that the command line names.
fn read(args: &SimArgs) -> anyhow::Result<Scenario> {
    let mut scenario = match (&args.nodes, &args.pods) {
        (Some(nodes), Some(pods)) => trace(nodes, pods, args.columns.as_ref())?,
        _ => file(args.scenario.as_deref().unwrap_or("-"))?,
    };
    if !args.policy.is_empty() {
        scenario.contenders = contenders(&args.policy)?;
    }
    Ok(scenario)
}

fn trace(nodes: &Path, pods: &Path, columns: Option<&Columns>) -> anyhow::Result<Scenario> {
    let open = |path: &Path| {
        std::fs::File::open(path)
            .map_err(|e| Usage::because(format_args!("{}: {e}", path.display())))
    };
    let (node_name, pod_name) = (nodes.display().to_string(), pods.display().to_string());
    let (node_file, pod_file) = (open(nodes)?, open(pods)?);
    let read = simulator::trace::read(
        Source {
            name: &node_name,
            text: node_file,
        },
        Source {
            name: &pod_name,
            text: pod_file,
        },
        columns.unwrap_or(&Columns::default()),
        placement::Kind::Lrp,
    );
    let read = read.map_err(Usage::because)?;
    Scenario::of_trace("trace", read.cells, read.demands).map_err(Usage::because)
}

fn file(name: &str) -> anyhow::Result<Scenario> {
    let (text, toml) = match shipped::find(name) {
        Some(text) => (text.to_owned(), true),
        None => match start::read(name) {
            Ok(text) => (
                text,
                Path::new(name).extension().is_some_and(|e| e == "toml"),
            ),
            Err(e) if Path::new(name).extension().is_none() && name != "-" => {
                let advice = "`vendue sim --list` names the shipped scenarios";
                return Err(Usage::because(format_args!("{e}\n{advice}")));
            }
            Err(e) => return Err(e),
        },
    };
    let refuse = |e: ScenarioError| Usage::because(format_args!("{name}: {e}"));
    let scenario = Scenario::read(&text, toml).map_err(refuse)?;
    for warning in &scenario.base.warnings {
        note(format_args!("warning: {warning}: no such field; ignored"));
    }
    Ok(scenario)
}

fn contenders(names: &[String]) -> anyhow::Result<Vec<Contender>> {
    let mut all: Vec<Contender> = Vec::with_capacity(names.len());
    for name in names {
        let contender = if simulator::scenario::ERA.contains(&name.as_str()) {
            Contender::read(&name.as_str().into(), "--policy").map_err(Usage::because)?
        } else {
            let policy = policy::load(name)?;
            Contender {
                label: policy.name().to_owned(),
                decider: Decider::Policy(Box::new(policy)),
            }
        };
        if all.iter().any(|other| other.label == contender.label) {
            let label = contender.label;
            return Err(Usage::because(format_args!(
                "--policy {label} is there twice"
            )));
        }
        all.push(contender);
    }
    Ok(all)
}

/// The command as the report shows it: without the paths of what it writes.
fn command(args: &SimArgs) -> String {
    let mut words = vec!["vendue sim".to_owned()];
    words.extend(args.scenario.clone());
    if let (Some(nodes), Some(pods)) = (&args.nodes, &args.pods) {
        words.push(format!(
            "--nodes {} --pods {}",
            nodes.display(),
            pods.display()
        ));
    }
    for policy in &args.policy {
        words.push(format!("--policy {policy}"));
    }
    if args.over == Over::Nats {
        words.push("--over nats".to_owned());
    }
    words.extend(args.seed.map(|seed| format!("--seed {seed}")));
    words.extend(args.seeds.map(|seeds| format!("--seeds {seeds}")));
    words.join(" ")
}

fn play(
    scenario: &Scenario,
    mut outcome: Outcome,
    end: &AtomicBool,
) -> anyhow::Result<(Outcome, Vec<Timing>)> {
    let mut timings = Vec::new();
    let settings = simulator::Settings {
        seed: outcome.seed,
        verbatim: false,
    };
    for contender in &scenario.contenders {
        let mut bar = Bar::new(&contender.label);
        let stopwatch = Stopwatch::start();
        let mut watch = |progress: simulator::Progress| {
            bar.show(progress);
            !end.load(Ordering::Relaxed)
        };
        let run = simulator::run(scenario, contender, settings, &mut watch);
        bar.clear();
        let (run, interrupted) = run.map_err(Usage::because)?;
        timings.push(stopwatch.stop(&run));
        outcome.runs.push(run);
        if interrupted {
            outcome.interrupted = true;
            break;
        }
    }
    Ok((outcome, timings))
}

async fn play_over_nats(
    global: &Global,
    scenario: &Scenario,
    mut outcome: Outcome,
    end: &AtomicBool,
) -> anyhow::Result<(Outcome, Vec<Timing>)> {
    let mut timings = Vec::new();
    let settings = simulator::Settings {
        seed: outcome.seed,
        verbatim: true,
    };
    let demands = scenario.demands(outcome.seed).map_err(Usage::because)?;
    over_nats::check(scenario, &demands).map_err(Usage::because)?;
    for contender in &scenario.contenders {
        let label = &contender.label;
        let Decider::Policy(policy) = &contender.decider else {
            return Err(Usage::because(format_args!(
                "{label}: --over nats plays policies only"
            )));
        };
        let stopwatch = Stopwatch::start();
        let played = over_nats::play(global, scenario, label, policy, &demands, settings, end);
        let (run, interrupted) = Box::pin(played).await?;
        timings.push(stopwatch.stop(&run));
        outcome.runs.push(run);
        if interrupted {
            outcome.interrupted = true;
            break;
        }
    }
    Ok((outcome, timings))
}

/// Says what it took, on standard error and in the file for it.
fn tell(args: &SimArgs, timings: &[Timing]) -> anyhow::Result<()> {
    if let Some(file) = &args.timings {
        let text = serde_json::to_string_pretty(timings)?;
        std::fs::write(file, text + "\n")
            .with_context(|| format!("--timings {}", file.display()))?;
    }
    for timing in timings {
        note(timing);
    }
    Ok(())
}

fn write(format: Format, args: &SimArgs, outcome: &Outcome) -> anyhow::Result<()> {
    if args.html.is_some() || args.open {
        let file = match &args.html {
            Some(file) => file.clone(),
            None => std::env::temp_dir().join(format!("vendue-sim-{}.html", outcome.name)),
        };
        std::fs::write(&file, report::html(outcome))
            .with_context(|| format!("--html {}", file.display()))?;
        note(format_args!("report: {}", file.display()));
        if args.open {
            open(&file);
        }
    }
    match format {
        Format::Json => output::json(outcome),
        Format::Table => {
            let colour = std::env::var_os("NO_COLOR").is_none()
                && rustix::termios::isatty(std::io::stdout());
            Ok(output::say(
                report::text(outcome, width(), colour).trim_end(),
            )?)
        }
    }
}

/// Columns of the terminal; 100 where there is none.
fn width() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout())
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
        .unwrap_or(100)
}

fn open(file: &Path) {
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    let opened = std::process::Command::new(opener)
        .arg(file)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn();
    if let Err(error) = opened {
        note(format_args!(
            "{opener}: {error}; open {} yourself",
            file.display()
        ));
    }
}

fn list(format: Format) -> anyhow::Result<Done> {
    let described = shipped::ALL.iter().map(|(name, text)| {
        let scenario = Scenario::read(text, true).map_err(Usage::because)?;
        Ok((*name, scenario.description))
    });
    let described: Vec<(&str, String)> = described.collect::<anyhow::Result<_>>()?;
    match format {
        Format::Json => {
            let entry = |(name, description): &(&str, String)| serde_json::json!({ "name": name, "description": description });
            output::json(&described.iter().map(entry).collect::<Vec<_>>())?;
        }
        Format::Table => {
            let mut table = output::table(&["NAME", "WHAT IT SHOWS"]);
            for (name, description) in described {
                table.add_row([name.to_owned(), description]);
            }
            output::print(table)?;
        }
    }
    Ok(Done::Well)
}
