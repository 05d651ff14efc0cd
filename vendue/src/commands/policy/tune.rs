//! `policy tune`: searches for the weights of a policy's scores with the simulator.

use std::{
    io::{self, IsTerminal, Write},
    ops::Range,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use comfy_table::Cell;
use placement::Policy;
use serde_json::{Value, json};
use simulator::{
    scenario::Scenario,
    seeds,
    tune::{self, Goal, Search, Tried, TuneProgress, TuneSettings},
};

use super::load;
use crate::{
    commands::sim,
    context::{Exit, Format, Global, Usage},
    output::{self, note},
    table::Table,
};

/// Interval between two progress updates, on a terminal and elsewhere.
const PAUSE: Duration = Duration::from_millis(200);
const LONG_PAUSE: Duration = Duration::from_secs(2);

/// See `vendue policy tune --help`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The same seed gives the same weights. The choice is then compared with the policy as it is on as many seeds \
                  again, which the search has not seen. Ctrl-C ends the search, shows what was found and writes nothing."
)]
pub(crate) struct TuneArgs {
    /// Scenario file, or name of a shipped scenario
    scenario: String,
    /// The policy to begin with: a preset or a file; only its weights are changed
    #[arg(long, value_name = "NAME|FILE")]
    policy: String,
    /// What is to become better; repeat it for several at once
    #[arg(long = "for", value_name = "GOAL", value_enum, required = true)]
    goals: Vec<GoalName>,
    /// Simulate each try with N seeds
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    seeds: u64,
    /// The first of these seeds, which also determines the tries (default: the scenario's)
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Try at most N sets of weights, the policy's own included
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    tries: u32,
    /// Compare the choice with the policy in this scenario, too; repeat it for several
    #[arg(long, value_name = "SCENARIO")]
    also: Vec<String>,
    /// Write the policy with the chosen weights to a file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// See [`Goal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum GoalName {
    /// What is placed, of what could be placed at most
    Allocated,
    /// Memory used per cell, standard deviation / mean, at the end
    Balance,
    /// Stranded memory, mean over time
    Stranded,
    /// The mean wait
    Wait,
    /// Cells that are never needed
    Spare,
}

impl GoalName {
    fn goal(self) -> Goal {
        match self {
            Self::Allocated => Goal::Allocated,
            Self::Balance => Goal::Balance,
            Self::Stranded => Goal::Stranded,
            Self::Wait => Goal::Wait,
            Self::Spare => Goal::Spare,
        }
    }
}

/// A comparison on seeds that the search did not see.
struct Unseen {
    scenario: String,
    seeds: Range<u64>,
    compared: std::collections::BTreeMap<&'static str, tune::Compared>,
}

/// The results to show.
struct Found {
    search: Search,
    unseen: Vec<Unseen>,
    interrupted: bool,
}

/// Searches, compares, and writes the policy.
pub(super) async fn tune(global: &Global, args: &TuneArgs) -> anyhow::Result<Exit> {
    let end = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&end);
    let stop = tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            end.store(true, Ordering::Relaxed);
        }
    });
    let own = args.clone();
    let found = tokio::task::spawn_blocking(move || find(&own, &ended)).await;
    stop.abort();
    let found = found??;
    match global.output {
        Format::Json => output::document(&document(args, &found))?,
        Format::Table => show(args, &found)?,
    }
    if found.interrupted {
        return Ok(Exit::Interrupted);
    }
    if let Some(file) = &args.out {
        let text = format!("# {}\n{}", command(args), found.search.policy.to_toml());
        std::fs::write(file, text).with_context(|| format!("--out {}", file.display()))?;
        note(format_args!("policy: {}", file.display()));
    }
    Ok(Exit::Ok)
}

fn find(args: &TuneArgs, ended: &AtomicBool) -> anyhow::Result<Found> {
    let policy = load(&args.policy)?;
    let scenario = sim::read_scenario(&args.scenario)?;
    let others: Vec<Scenario> = args
        .also
        .iter()
        .map(|name| sim::read_scenario(name))
        .collect::<anyhow::Result<_>>()?;
    let goals: Vec<Goal> = distinct(args.goals.iter().map(|name| name.goal()));
    let first = args.seed.unwrap_or(scenario.base.seed);
    let settings = TuneSettings {
        goals: goals.clone(),
        seeds: first..first.saturating_add(args.seeds),
        tries: args.tries,
        seed: first,
        name: tuned_name(&policy),
    };
    let mut bar = Bar::new("search");
    let mut watch = |progress: TuneProgress| {
        bar.show(progress);
        !ended.load(Ordering::Relaxed)
    };
    let search = tune::search(&scenario, &policy, &settings, &mut watch).map_err(Usage::because)?;
    bar.clear();
    let mut found = Found {
        interrupted: search.interrupted,
        search,
        unseen: Vec::new(),
    };
    let next = settings.seeds.end..settings.seeds.end.saturating_add(args.seeds);
    for scenario in std::iter::once(&scenario).chain(&others) {
        if found.interrupted {
            break;
        }
        let policies = (&policy, &found.search.policy);
        match compare(scenario, next.clone(), &goals, policies, ended)? {
            Some(unseen) => found.unseen.push(unseen),
            None => found.interrupted = true,
        }
    }
    Ok(found)
}

fn compare(
    scenario: &Scenario,
    seeds: Range<u64>,
    goals: &[Goal],
    policies: (&Policy, &Policy),
    ended: &AtomicBool,
) -> anyhow::Result<Option<Unseen>> {
    let mut shown = goals.to_vec();
    shown.push(Goal::Allocated);
    let mut bar = Bar::new("unseen seeds");
    let mut watch = |progress: TuneProgress| {
        bar.show(progress);
        !ended.load(Ordering::Relaxed)
    };
    let shown = distinct(shown.into_iter());
    let compared = tune::unseen(scenario, seeds.clone(), &shown, policies, &mut watch);
    bar.clear();
    let compared = compared.map_err(Usage::because)?;
    Ok(compared.map(|compared| Unseen {
        scenario: scenario.base.name.clone(),
        seeds,
        compared,
    }))
}

fn distinct(goals: impl Iterator<Item = Goal>) -> Vec<Goal> {
    let mut once = Vec::new();
    for goal in goals {
        if !once.contains(&goal) {
            once.push(goal);
        }
    }
    once
}

/// Returns the policy's name with the suffix `-tuned`, shortened to the maximum length of names.
fn tuned_name(policy: &Policy) -> String {
    let stem: String = policy.name().chars().take(120).collect();
    let stem = stem.strip_suffix("-tuned").unwrap_or(&stem);
    format!("{stem}-tuned")
}

/// Returns the command as the policy's file shows it.
fn command(args: &TuneArgs) -> String {
    let mut words = vec![format!(
        "vendue policy tune {} --policy {}",
        args.scenario, args.policy
    )];
    let goals = args.goals.iter();
    words.extend(goals.map(|goal| format!("--for {}", goal.goal().name())));
    words.push(format!("--seeds {}", args.seeds));
    words.extend(args.seed.map(|seed| format!("--seed {seed}")));
    words.push(format!("--tries {}", args.tries));
    words.join(" ")
}

fn document(args: &TuneArgs, found: &Found) -> Value {
    let unseen = |unseen: &Unseen| {
        json!({
            "scenario": unseen.scenario,
            "seeds": unseen.seeds.clone().collect::<Vec<_>>(),
            "goals": unseen.compared,
        })
    };
    json!({
        "command": command(args),
        "tries": found.search.tries,
        "interrupted": found.interrupted,
        "frontier": found.search.frontier,
        "unseen": found.unseen.iter().map(unseen).collect::<Vec<_>>(),
        "toml": found.search.policy.to_toml(),
    })
}

fn show(args: &TuneArgs, found: &Found) -> anyhow::Result<()> {
    let search = &found.search;
    let Some(own) = search.frontier.iter().find(|tried| tried.own) else {
        output::say("ended before the first try was done")?;
        return Ok(());
    };
    output::say(format_args!(
        "{} tries with {} seeds each; those that no other is better than, and the policy as it is:",
        search.tries, args.seeds
    ))?;
    let goals = own.values.keys().map(|name| name.to_uppercase());
    let header: Vec<String> = [String::new()]
        .into_iter()
        .chain(goals)
        .chain(["WEIGHTS".to_owned()])
        .collect();
    let mut table = Table::new(&header).text("WEIGHTS");
    for tried in &search.frontier {
        let mut row = vec![Cell::new(mark(tried))];
        row.extend(
            tried
                .values
                .values()
                .map(|value| Cell::new(output::number(*value))),
        );
        row.push(Cell::new(weights(tried, own)));
        table.add_row(row);
    }
    table.print()?;
    for unseen in &found.unseen {
        show_unseen(unseen)?;
    }
    if search
        .frontier
        .iter()
        .any(|tried| tried.own && tried.chosen)
    {
        note("no try is better than the policy as it is");
    }
    Ok(())
}

fn mark(tried: &Tried) -> &'static str {
    match (tried.own, tried.chosen) {
        (true, true) => "as it is, chosen",
        (true, false) => "as it is",
        (false, true) => "chosen",
        (false, false) => "",
    }
}

/// Formats all weights of the original policy; for others, those that differ.
fn weights(tried: &Tried, own: &Tried) -> String {
    let pairs = tried.weights.iter().zip(&own.weights);
    let differs = |weight: f64, own: f64| weight.to_bits() != own.to_bits();
    let shown = pairs.filter(|(weight, own)| tried.own || differs(weight.weight, own.weight));
    let shown = shown.map(|(weight, _)| format!("{} {}", weight.score, weight.weight));
    shown.collect::<Vec<_>>().join("; ")
}

fn show_unseen(unseen: &Unseen) -> anyhow::Result<()> {
    output::say(format_args!(
        "\n{}, seeds {}, which the search has not seen:",
        unseen.scenario,
        seeds::ranges(&unseen.seeds.clone().collect::<Vec<_>>())
    ))?;
    let mut table = Table::new(&[
        "GOAL",
        "AS IT IS",
        "CHOSEN",
        "DIFFERENCE",
        "BETTER",
        "WORSE",
    ]);
    for (goal, compared) in &unseen.compared {
        table.add_row([
            (*goal).to_owned(),
            seeds::show(&compared.before),
            seeds::show(&compared.after),
            seeds::show(&compared.difference),
            compared.better.to_string(),
            compared.worse.to_string(),
        ]);
    }
    table.print()?;
    Ok(())
}

/// Progress on standard error: on a terminal one line that is overwritten, elsewhere a line now and then.
struct Bar {
    what: &'static str,
    next: Instant,
    terminal: bool,
}

impl Bar {
    fn new(what: &'static str) -> Self {
        let terminal = io::stderr().is_terminal();
        Self {
            what,
            next: Instant::now() + if terminal { PAUSE } else { LONG_PAUSE },
            terminal,
        }
    }

    fn show(&mut self, progress: TuneProgress) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + if self.terminal { PAUSE } else { LONG_PAUSE };
        let (runs, all) = (progress.runs, progress.runs_in_all);
        let line = format!("{}: {runs} of {all} simulations", self.what);
        if self.terminal {
            // progress is dispensable if the terminal cannot be written to
            let _ = write!(io::stderr(), "\r{line}\x1b[K");
        } else {
            note(line);
        }
    }

    fn clear(&self) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tuned_policy_keeps_its_name() {
        let policy = Policy::preset("vendue").unwrap();
        assert_eq!(tuned_name(&policy), "vendue-tuned");
        let again = Policy::parse("name = \"a-tuned\"\n[[stage]]\npick = \"sample\"").unwrap();
        assert_eq!(tuned_name(&again), "a-tuned");
    }
}
