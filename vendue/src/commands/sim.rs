//! `sim`: simulates a scenario in virtual time under one or several policies, and reports the result.

mod check;
mod contenders;
mod estate;
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
use scenarios::ScenarioError;
use simulator::{
    outcome::{SimOutcome, SimRun},
    report,
    scenario::{Decider, Scenario, TraceTable},
    shipped,
};

use super::request_file;
use crate::{
    context::{Exit, Format, Global, Usage},
    output::{self, note},
    table::Table,
    terminal,
};
use progress::Bar;
use timing::{Stopwatch, Timing};

/// See `vendue sim --help`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The same seed gives the same report, byte for byte. Real time, processor time and memory go to \
                  standard error and --timings. Ctrl-C ends the simulation and reports what there is."
)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    command: Option<SimCommand>,
    /// Scenario file (TOML if its name ends in .toml, else JSON), name of a shipped scenario, or - for
    /// standard input
    #[arg(required_unless_present_any = ["list", "nodes"])]
    scenario: Option<String>,
    /// Policy to use instead of the scenario's: a preset, a policy file, or an auction of 2014
    /// (diego-2014-random, diego-2014-pick-best, diego-2014-reserve-n-best, diego-2014-all-rebid, each also
    /// with -slow-starts); repeat it to compare policies
    #[arg(long, value_name = "NAME|FILE")]
    policy: Vec<String>,
    /// Seed to use instead of the scenario's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Simulate N seeds and show the mean and standard deviation of each figure; an HTML report shows the
    /// first seed and the figures over all
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..=1_000), conflicts_with = "over")]
    seeds: Option<u64>,
    /// Simulate in virtual time, or run the real roles in real time with a private nats-server
    #[arg(long, value_enum, default_value_t, value_name = "HOW")]
    over: Over,
    /// Write the report to an HTML file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Open the HTML report (written to a temporary file without --html)
    #[arg(long)]
    open: bool,
    /// Write real time, processor time and memory as JSON
    #[arg(long, value_name = "FILE")]
    timings: Option<PathBuf>,
    /// Nodes of a trace, as CSV, instead of a scenario (columns: sn,cpu_milli,memory_mib,gpu,model)
    #[arg(
        long,
        value_name = "FILE",
        requires = "pods",
        conflicts_with = "scenario"
    )]
    nodes: Option<PathBuf>,
    /// Pods of the trace, as CSV (columns: name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,
    /// creation_time,deletion_time)
    #[arg(long, value_name = "FILE", requires = "nodes")]
    pods: Option<PathBuf>,
    /// Column names that differ: field=column, separated by commas
    #[arg(long, value_name = "MAP", requires = "nodes")]
    columns: Option<String>,
    /// Draw pods of the trace until they ask for this many per cent of what the nodes have, put them in random order,
    /// and let them come one after the other and stay; their times are not read
    #[arg(long, value_name = "PERCENT", requires = "nodes")]
    demand: Option<f64>,
    /// The resource of which --demand is counted (default: gpu, or memory where no node has gpus)
    #[arg(long, value_name = "RESOURCE", requires = "demand")]
    demand_of: Option<String>,
    /// List the shipped scenarios
    #[arg(long)]
    list: bool,
}

/// How a scenario is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Over {
    /// Virtual time: the same seed gives the same report
    #[default]
    InProcess,
    /// Real time: the real roles, a real nats-server and simulated executors
    Nats,
}

/// Subcommands.
#[derive(Clone, Debug, clap::Subcommand)]
enum SimCommand {
    /// Record the requests of a live cluster as a scenario
    Record(record::RecordArgs),
    /// Check that the protocol's promises hold under random faults
    Check(check::CheckArgs),
    /// Move apps from DEAs to cells, and lose a zone of both
    Estate(estate::EstateSimArgs),
}

/// Simulates the scenario and reports the result.
pub(crate) async fn sim(global: &Global, args: &SimArgs) -> anyhow::Result<Exit> {
    match &args.command {
        Some(SimCommand::Record(record)) => return record::record(global, record).await,
        Some(SimCommand::Check(check)) => return check::check(global, check).await,
        Some(SimCommand::Estate(args)) => return estate::estate(global, args).await,
        None => {}
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
            let simulate = move || run_seeds(&scenario, seeds, &command, &ended);
            tokio::task::spawn_blocking(simulate).await??
        }
        Over::Nats => {
            let mut outcome = simulator::outcome(&scenario, seed, &command);
            outcome.over = "nats".into();
            let runs = run_over_nats(global, &scenario, outcome, &ended).await?;
            (vec![runs.outcome], runs.timings)
        }
    };
    stop.abort();
    report_timings(args, &timings)?;
    let interrupted = outcomes.iter().any(|o| o.interrupted);
    match outcomes.as_slice() {
        [outcome] if args.seeds.is_none() => {
            write_html(args, outcome)?;
            write(global.output, outcome)?;
        }
        outcomes => {
            let seeds = seeds::over(outcomes, &self::command(args));
            if let Some(first) = outcomes.first() {
                let mut first = first.clone();
                first.seeds = Some(seeds.clone());
                write_html(args, &first)?;
            }
            seeds::write(global.output, &seeds)?;
        }
    }
    Ok(if interrupted {
        Exit::Interrupted
    } else {
        Exit::Ok
    })
}

/// Simulates one seed after the other, until all are done or one is interrupted.
fn run_seeds(
    scenario: &Scenario,
    seeds: std::ops::Range<u64>,
    command: &str,
    end: &AtomicBool,
) -> anyhow::Result<(Vec<SimOutcome>, Vec<Timing>)> {
    let (mut outcomes, mut timings) = (Vec::new(), Vec::new());
    for seed in seeds {
        let outcome = simulator::outcome(scenario, seed, command);
        let runs = run_policies(scenario, outcome, end)?;
        let mut outcome = runs.outcome;
        let interrupted = outcome.interrupted;
        // of all seeds but the first, only the figures are needed
        if !outcomes.is_empty() {
            drop_cells(&mut outcome);
        }
        outcomes.push(outcome);
        timings.extend(runs.timings);
        if interrupted {
            break;
        }
    }
    Ok((outcomes, timings))
}

fn drop_cells(outcome: &mut SimOutcome) {
    for run in &mut outcome.runs {
        run.cells.clear();
        run.series.clear();
    }
}

/// Reads the scenario, with the policies of the command line.
fn read(args: &SimArgs) -> anyhow::Result<Scenario> {
    let mut scenario = match (&args.nodes, &args.pods) {
        (Some(nodes), Some(pods)) => return trace(args, nodes, pods),
        _ => read_scenario(args.scenario.as_deref().unwrap_or("-"))?,
    };
    if !args.policy.is_empty() {
        scenario.contenders = contenders::read(&args.policy)?;
    }
    Ok(scenario)
}

/// Returns a scenario of the trace's files, whose text reproduces the report.
fn trace(args: &SimArgs, nodes: &Path, pods: &Path) -> anyhow::Result<Scenario> {
    let contenders = contenders::read(&args.policy)?;
    let table = TraceTable {
        nodes: nodes.display().to_string(),
        pods: pods.display().to_string(),
        columns: args.columns.clone(),
        demand: args.demand,
        of: args.demand_of.clone(),
        ..TraceTable::default()
    };
    let text = table.to_scenario(&read_file, args.seed, &contenders);
    let text = text.map_err(Usage::because)?;
    let mut scenario = Scenario::read_with(&text, true, &read_file).map_err(Usage::because)?;
    if !contenders.is_empty() {
        // the text contains the policies themselves, whereas these have their labels
        scenario.contenders = contenders;
    }
    Ok(scenario)
}

/// Reads a file of a trace; its name is relative to the current directory.
fn read_file(name: &str) -> std::io::Result<Vec<u8>> {
    std::fs::read(name)
}

/// Reads a scenario: a shipped one by its name, or a file.
pub(super) fn read_scenario(name: &str) -> anyhow::Result<Scenario> {
    let (text, toml) = match shipped::find(name) {
        Some(text) => (text.to_owned(), true),
        None => match request_file::read(name) {
            Ok(text) => (
                text,
                Path::new(name).extension().is_some_and(|e| e == "toml"),
            ),
            Err(e) if Path::new(name).extension().is_none() && name != "-" => {
                let advice = "`vendue sim --list` lists the shipped scenarios";
                return Err(Usage::because(format_args!("{e}\n{advice}")));
            }
            Err(e) => return Err(e),
        },
    };
    let name = request_file::named(name);
    let refuse = |e: ScenarioError| Usage::because(format_args!("{name}: {e}"));
    let scenario = Scenario::read_with(&text, toml, &read_file).map_err(refuse)?;
    for warning in &scenario.warnings {
        note(format_args!("warning: {warning}"));
    }
    Ok(scenario)
}

/// Returns the command as the report shows it, without output files.
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
    words.extend(args.columns.iter().map(|map| format!("--columns {map}")));
    words.extend(args.demand.map(|demand| format!("--demand {demand}")));
    words.extend(args.demand_of.iter().map(|of| format!("--demand-of {of}")));
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

/// The runs so far.
struct Runs {
    outcome: SimOutcome,
    timings: Vec<Timing>,
}

impl Runs {
    /// Creates it before the first run.
    fn of(outcome: SimOutcome) -> Self {
        let timings = Vec::new();
        Self { outcome, timings }
    }

    /// Adds a run. Returns whether it was interrupted: then no other one follows.
    fn add(&mut self, stopwatch: Stopwatch, (run, interrupted): (SimRun, bool)) -> bool {
        self.timings.push(stopwatch.stop(&run));
        self.outcome.runs.push(run);
        self.outcome.interrupted |= interrupted;
        interrupted
    }
}

fn run_policies(
    scenario: &Scenario,
    outcome: SimOutcome,
    end: &AtomicBool,
) -> anyhow::Result<Runs> {
    let settings = simulator::RunSettings {
        seed: outcome.seed,
        verbatim: false,
    };
    let mut runs = Runs::of(outcome);
    for contender in &scenario.contenders {
        let mut bar = Bar::new(&contender.label);
        let stopwatch = Stopwatch::start();
        let mut watch = |progress: simulator::Progress| {
            bar.show(progress);
            !end.load(Ordering::Relaxed)
        };
        let run = simulator::run(scenario, contender, settings, &mut watch);
        bar.clear();
        if runs.add(stopwatch, run.map_err(Usage::because)?) {
            break;
        }
    }
    Ok(runs)
}

async fn run_over_nats(
    global: &Global,
    scenario: &Scenario,
    outcome: SimOutcome,
    end: &AtomicBool,
) -> anyhow::Result<Runs> {
    let settings = simulator::RunSettings {
        seed: outcome.seed,
        verbatim: true,
    };
    let demands = scenario.demands(outcome.seed).map_err(Usage::because)?;
    over_nats::check(scenario, &demands).map_err(Usage::because)?;
    let mut runs = Runs::of(outcome);
    for contender in &scenario.contenders {
        let label = &contender.label;
        let Decider::Policy(policy) = &contender.decider else {
            return Err(Usage::because(format_args!(
                "{label}: --over nats runs policies only, not the auctions of 2014"
            )));
        };
        let stopwatch = Stopwatch::start();
        let played = over_nats::play(global, scenario, label, policy, &demands, settings, end);
        if runs.add(stopwatch, Box::pin(played).await?) {
            break;
        }
    }
    Ok(runs)
}

/// Reports the timings on standard error and in the file of `--timings`.
fn report_timings(args: &SimArgs, timings: &[Timing]) -> anyhow::Result<()> {
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

/// Writes and opens the HTML report, if requested.
fn write_html(args: &SimArgs, outcome: &SimOutcome) -> anyhow::Result<()> {
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
    Ok(())
}

fn write(format: Format, outcome: &SimOutcome) -> anyhow::Result<()> {
    match format {
        Format::Json => output::json(outcome),
        Format::Table => {
            let width = terminal::terminal_width().unwrap_or(100);
            Ok(output::say(
                report::text(outcome, width, terminal::colours()).trim_end(),
            )?)
        }
    }
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

fn list(format: Format) -> anyhow::Result<Exit> {
    let described = shipped::ALL.iter().map(|(name, text)| {
        let scenario = Scenario::read(text, true).map_err(Usage::because)?;
        Ok((*name, scenario.description))
    });
    let described: Vec<(&str, String)> = described.collect::<anyhow::Result<_>>()?;
    match format {
        Format::Json => {
            let entry = |(name, description): &(&str, String)| serde_json::json!({ "name": name, "description": description });
            let scenarios: Vec<_> = described.iter().map(entry).collect();
            output::document(&serde_json::json!({ "scenarios": scenarios }))?;
        }
        Format::Table => {
            let mut table = Table::new(&["NAME", "WHAT IT SHOWS"]).text("WHAT IT SHOWS");
            for (name, description) in described {
                table.add_row([name.to_owned(), description]);
            }
            table.print()?;
        }
    }
    Ok(Exit::Ok)
}
