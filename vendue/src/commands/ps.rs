//! `ps` and `status`: what runs, and where.

use std::collections::BTreeMap;

use comfy_table::Cell;
use serde_json::json;
use shared::wire::{InstanceState, Instances};

use super::instances::{self, Answers, Located};
use crate::{
    cluster::Cluster,
    context::{Exit, Format, Global, Usage},
    output::{self, note},
};

#[derive(Debug, clap::Args)]
pub(crate) struct PsArgs {
    /// This app only
    app: Option<String>,
    /// Also instances that have ended
    #[arg(long, short)]
    all: bool,
    /// Only the addresses of running instances, one on each line
    #[arg(long)]
    addresses: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    /// The app
    app: String,
}

/// Asks for the instances of one app, or of all.
pub(crate) fn question(app: Option<&str>) -> Instances {
    Instances {
        v: shared::VERSION,
        app: app.map(str::to_owned),
        ids: Vec::new(),
    }
}

/// Lists instances.
pub(crate) async fn ps(global: &Global, args: &PsArgs) -> anyhow::Result<Exit> {
    if let Some(app) = &args.app {
        placement::check_name("APP", app).map_err(Usage::because)?;
    }
    let cluster = Cluster::connect(global).await?;
    let mut answers = instances::all(&cluster, &question(args.app.as_deref())).await?;
    answers.instances.retain(|i| args.all || i.lives());
    say_silent(&answers);
    if cluster.format == Format::Json {
        output::json(&json!({ "instances": answers.instances, "silent": answers.silent }))?;
        return Ok(Exit::Ok);
    }
    if args.addresses {
        let running = |i: &&Located| i.instance.state == InstanceState::Running;
        let running = answers.instances.iter().filter(running);
        for endpoint in running.filter_map(Located::endpoint) {
            output::say(endpoint)?;
        }
        return Ok(Exit::Ok);
    }
    if answers.instances.is_empty() {
        let cells = answers.cells.len();
        note(format_args!("no instances on {cells} cells"));
        return Ok(Exit::Ok);
    }
    print_instances(&answers.instances)?;
    Ok(Exit::Ok)
}

/// Shows one app.
pub(crate) async fn status(global: &Global, args: &StatusArgs) -> anyhow::Result<Exit> {
    placement::check_name("APP", &args.app).map_err(Usage::because)?;
    let cluster = Cluster::connect(global).await?;
    let answers = instances::all(&cluster, &question(Some(&args.app))).await?;
    say_silent(&answers);
    let counts = counts(&answers.instances);
    if cluster.format == Format::Json {
        let body = json!({
            "app": args.app, "counts": counts,
            "instances": answers.instances, "silent": answers.silent,
        });
        output::json(&body)?;
    } else if answers.instances.is_empty() {
        let (app, cells) = (&args.app, answers.cells.len());
        note(format_args!("no instance of {app} on {cells} cells"));
        note(format_args!(
            "`vendue explain {app}` says why it was not placed, if it was asked for"
        ));
    } else {
        let counts: Vec<String> = counts.iter().map(|(s, n)| format!("{n} {s}")).collect();
        output::say(format_args!("{}: {}", args.app, counts.join(", ")))?;
        print_instances(&answers.instances)?;
    }
    Ok(if answers.instances.is_empty() {
        Exit::Failed
    } else {
        Exit::Ok
    })
}

/// How many instances are in each state.
pub(crate) fn counts(instances: &[Located]) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for located in instances {
        *counts.entry(word(located.instance.state)).or_insert(0) += 1;
    }
    counts
}

/// The state's name as it stands on the wire.
fn word(state: InstanceState) -> &'static str {
    match state {
        InstanceState::Starting => "starting",
        InstanceState::Running => "running",
        InstanceState::Restarting => "restarting",
        InstanceState::Stopping => "stopping",
        InstanceState::Exited => "exited",
        InstanceState::Crashed => "crashed",
    }
}

/// Warns of cells that an auctioneer knows and that said nothing.
pub(crate) fn say_silent(answers: &Answers) {
    if !answers.silent.is_empty() {
        let (count, cells) = (answers.silent.len(), answers.silent.join(", "));
        note(format_args!(
            "no answer from {count} of the cells ({cells}): what runs there is not shown"
        ));
    }
}

/// The table of `ps`.
pub(crate) fn print_instances(instances: &[Located]) -> anyhow::Result<()> {
    let mut table = output::table(&[
        "APP", "INDEX", "KIND", "STATE", "ZONE", "CELL", "AGE", "ADDRESS", "MEMORY", "RESTARTS",
        "NOTE",
    ]);
    for located in instances {
        let instance = &located.instance;
        table.add_row(vec![
            Cell::new(&instance.app),
            Cell::new(instance.index),
            Cell::new(instance.kind),
            output::state_cell(instance.state),
            Cell::new(&located.zone),
            Cell::new(&located.cell),
            Cell::new(output::age(instance.age_ms)),
            Cell::new(located.endpoint().unwrap_or_else(|| "-".into())),
            Cell::new(format_args!("{} MiB", instance.memory_mb)),
            Cell::new(instance.restarts),
            Cell::new(instance.ended.as_deref().unwrap_or_default()),
        ]);
    }
    Ok(output::print(table)?)
}
