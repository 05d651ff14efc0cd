//! `policy`: the presets and the user's own policy files, without any cluster.

mod tune;

use std::path::{Path, PathBuf};

use comfy_table::Cell;
use placement::{Constants, ExpectedWork, Kind, Objective, Policy, PolicyError, Pool, Size};
use serde_json::{Value, json};
use simulator::trace::{self, Columns, Source};

use super::{
    policy_file::{load, refused, warnings},
    request_file,
};
use crate::{
    context::{Exit, Format, Global, Usage},
    output,
    table::Table,
};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum PolicyCommand {
    /// List the presets
    List,
    /// Print a policy as a file: a preset with its comments, a file as it is understood
    Show {
        /// A preset's name or a file
        #[arg(value_name = "NAME|FILE")]
        policy: String,
    },
    /// Check a policy file: exit code 2 and the line of the mistake when it is not valid
    Check {
        /// The file; - reads standard input
        file: String,
        /// Print each of its objectives as it was parsed, one node a line
        #[arg(long)]
        tree: bool,
    },
    /// Print the expected work of a trace's pods, to be added to a policy file
    Expected {
        /// The pods, as CSV (columns: name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec)
        #[arg(value_name = "PODS")]
        pods: PathBuf,
        /// Column names that differ: field=column, separated by commas
        #[arg(long, value_name = "MAP")]
        columns: Option<Columns>,
    },
    /// Search the weights of a policy's scores with the simulator
    Tune(tune::TuneArgs),
}

impl PolicyCommand {
    /// Returns whether it handles Ctrl-C itself.
    pub(crate) fn is_search(&self) -> bool {
        matches!(self, Self::Tune(_))
    }

    /// Runs the subcommand.
    pub(crate) async fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        match self {
            Self::List => list(global.output),
            Self::Show { policy } => show(global.output, policy),
            Self::Check { file, tree } => check(global.output, file, *tree),
            Self::Expected { pods, columns } => expected(global.output, pods, columns.as_ref()),
            Self::Tune(args) => tune::tune(global, args).await,
        }
    }
}

fn list(format: Format) -> anyhow::Result<Exit> {
    let mut table = Table::new(&["POLICY", "BIDS", "ENGINE", "HOW IT DECIDES"])
        .optional(&["ENGINE", "BIDS"])
        .text("HOW IT DECIDES");
    let mut listed = Vec::new();
    for name in Policy::PRESETS {
        let policy = load(name)?;
        let about = comment(Policy::preset_text(name).unwrap_or_default());
        let mut facts = facts(&policy);
        facts["about"] = about.clone().into();
        listed.push(facts);
        let bids = if policy.wants_bids() { "yes" } else { "no" };
        let engine = Pool::engine(&policy);
        table.add_row([name, bids, engine, about.as_str()].map(Cell::new));
    }
    match format {
        Format::Json => output::document(&json!({ "policies": listed }))?,
        Format::Table => table.print()?,
    }
    Ok(Exit::Ok)
}

/// Returns the properties that every policy has, for programs.
fn facts(policy: &Policy) -> Value {
    json!({
        "name": policy.name(), "bids": policy.wants_bids(), "engine": Pool::engine(policy),
        "hash": format!("{:016x}", policy.hash()),
    })
}

/// Prints the sizes of a trace's pods with their shares.
fn expected(format: Format, pods: &Path, columns: Option<&Columns>) -> anyhow::Result<Exit> {
    let name = pods.display().to_string();
    let text =
        std::fs::File::open(pods).map_err(|e| Usage::because(format_args!("{name}: {e}")))?;
    let source = Source { name: &name, text };
    let columns = columns.cloned().unwrap_or_default();
    let requests = trace::requests(source, &columns, Kind::Lrp);
    let requests =
        requests.map_err(|e| Usage::because(format_args!("{:#}", anyhow::Error::from(e))))?;
    let sizes = requests.iter().map(|request| (Size::of(request), 1.0));
    let work = ExpectedWork::of(sizes);
    match format {
        Format::Json => output::document(&json!({ "sizes": work.sizes() }))?,
        Format::Table => output::say(work.to_toml().trim())?,
    }
    Ok(Exit::Ok)
}

/// Returns the introduction of a file: its comment up to the first other line.
fn comment(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix('#'));
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

fn show(format: Format, name: &str) -> anyhow::Result<Exit> {
    let policy = load(name)?;
    let text = Policy::preset_text(name).map_or_else(|| policy.to_toml(), str::to_owned);
    if format == Format::Json {
        let mut facts = facts(&policy);
        facts["toml"] = text.into();
        output::document(&facts)?;
    } else {
        output::say(text.trim_end())?;
    }
    Ok(Exit::Ok)
}

fn check(format: Format, file: &str, tree: bool) -> anyhow::Result<Exit> {
    let text = request_file::read(file)?;
    let file = request_file::named(file);
    let policy = match Policy::parse(&text) {
        Ok(policy) => policy,
        Err(fault) => {
            if format == Format::Json {
                output::document(&told(file, &fault))?;
                output::note(format_args!("error: {}", refused(file, &text, &fault)));
                return Ok(Exit::BadUsage);
            }
            return Err(refused(file, &text, &fault));
        }
    };
    let objectives = objectives(&policy);
    let warnings = warnings(&policy);
    if format == Format::Json {
        let mut facts = facts(&policy);
        facts["file"] = file.into();
        facts["valid"] = true.into();
        facts["warnings"] = warnings.into();
        if tree {
            let of = |o: &Objective| json!({ "expression": o.text(), "tree": o.tree() });
            facts["objectives"] = objectives.iter().map(of).collect();
        }
        output::document(&facts)?;
        return Ok(Exit::Ok);
    }
    let (name, engine) = (policy.name(), Pool::engine(&policy));
    output::say(format_args!(
        "{file}: valid; policy {name}, engine {engine}"
    ))?;
    for warning in &warnings {
        output::note(format_args!("warning: {file}: {warning}"));
    }
    if tree {
        for objective in &objectives {
            output::say(format_args!("objective {}", objective.text()))?;
            output::say(objective.tree().trim_end())?;
        }
        if objectives.is_empty() {
            output::say("it has no objective")?;
        }
    }
    Ok(Exit::Ok)
}

fn told(file: &str, fault: &PolicyError) -> Value {
    let mut told = json!({
        "file": file, "valid": false, "line": fault.line, "column": fault.column,
        "message": fault.message, "nearest": fault.nearest,
    });
    if let Some(fields) = told.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
    }
    told
}

/// Returns the objectives of a policy, from its own file.
fn objectives(policy: &Policy) -> Vec<Objective> {
    let table: toml::Table = policy.to_toml().parse().unwrap_or_default();
    let stages = table.get("stage").and_then(toml::Value::as_array);
    let parsed = |stage: &toml::Value| {
        let text = stage.get("expression")?.as_str()?;
        let mut constants = Constants::default();
        let named = stage.get("constants").and_then(toml::Value::as_table);
        for (name, value) in named.into_iter().flatten() {
            constants.set(name, value.as_float()?);
        }
        constants.azs = stage.get("azs").and_then(toml::Value::as_float);
        Objective::parse(text, &constants).ok()
    };
    stages.into_iter().flatten().filter_map(parsed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_found_where_there_are_any() {
        for name in Policy::PRESETS {
            let policy = load(name).unwrap();
            let found = objectives(&policy).len();
            assert_eq!(found > 0, policy.has_objective(), "{name}");
        }
    }
}
