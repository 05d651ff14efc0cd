//! `status`: shows the state of one app, or of all apps in a line each.

use std::collections::{BTreeMap, BTreeSet};

use comfy_table::Cell;
use serde_json::{Value, json};
use shared::wire::{QueuedGroup, code};

use super::{
    app_status::AppStatus,
    instance_table::{self, Columns},
    instances::{self, Answers, Located},
};
use crate::{
    cluster::Cluster,
    context::{Exit, Failure, Format, Global, Usage},
    output::{self, counted, note},
    table::Table,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "With APP: exits with 1 when none of its instances runs; tasks that have all exited \
                  with 0 are fine. What ended earlier and was replaced, or was stopped, is counted \
                  apart, as earlier."
)]
pub(crate) struct StatusArgs {
    /// The app; without it, all apps with the number of their instances in each state
    app: Option<String>,
}

/// Shows one app or all apps.
pub(crate) async fn status(global: &Global, args: &StatusArgs) -> anyhow::Result<Exit> {
    if let Some(app) = &args.app {
        placement::check_name("APP", app).map_err(Usage::invalid)?;
    }
    let cluster = Cluster::connect(global).await?;
    let answers = instances::held_and_queued(&cluster, args.app.as_deref()).await?;
    instance_table::note_what_is_missing(&answers);
    match &args.app {
        Some(app) => show_app(global, app, &answers),
        None => show_all(global.output, &answers),
    }
}

fn show_app(global: &Global, app: &str, answers: &Answers) -> anyhow::Result<Exit> {
    if answers.instances.is_empty() && answers.queued.is_empty() {
        let cells = counted(answers.cells.len(), "cell");
        return Err(Failure::because(
            code::NOT_FOUND,
            format_args!(
                "no instance of {app} on {cells}\n\
                 `vendue explain {app}` says why it was not placed, if somebody tried to start it"
            ),
        ));
    }
    let status = AppStatus::new(&answers.instances, &answers.queued);
    if global.output == Format::Json {
        let mut document = answers.document();
        for (field, value) in summary(app, &status) {
            document[field] = value;
        }
        output::json(&document)?;
    } else {
        output::say(format_args!("{app}: {}", status.in_words()))?;
        let columns = Columns {
            ids: global.wide,
            usage: false,
        };
        instance_table::print(&answers.instances, &answers.queued, columns)?;
    }
    Ok(if status.is_well() {
        Exit::Ok
    } else {
        Exit::Failed
    })
}

/// Returns what every document says about an app as a whole.
pub(crate) fn summary(app: &str, status: &AppStatus<'_>) -> [(&'static str, Value); 5] {
    [
        ("app", json!(app)),
        ("listed", json!(status.listed())),
        ("running", json!(status.running())),
        ("states", json!(status.counts())),
        ("earlier", json!(status.earlier_counts())),
    ]
}

fn show_all(format: Format, answers: &Answers) -> anyhow::Result<Exit> {
    let apps = by_app(answers);
    if format == Format::Json {
        let document = |(app, status): (&&str, &AppStatus<'_>)| {
            Value::Object(
                summary(app, status)
                    .map(|(k, v)| (k.to_owned(), v))
                    .into_iter()
                    .collect(),
            )
        };
        let apps: Vec<Value> = apps.iter().map(document).collect();
        let silent = &answers.silent;
        output::json(&json!({"v": shared::VERSION, "apps": apps, "silent": silent}))?;
    } else if apps.is_empty() {
        let cells = counted(answers.cells.len(), "cell");
        note(format_args!("no instances on {cells}"));
    } else {
        print_all(&apps)?;
    }
    Ok(Exit::Ok)
}

/// Groups the answers by app. Stopped instances count as history, so an app may have nothing else.
fn by_app(answers: &Answers) -> BTreeMap<&str, AppStatus<'_>> {
    let of_instances = answers.instances.iter().map(|l| l.instance.app.as_str());
    let of_groups = answers.queued.iter().map(|group| group.app.as_str());
    let names: BTreeSet<&str> = of_instances.chain(of_groups).collect();
    let mut instances: BTreeMap<&str, Vec<&Located>> = BTreeMap::new();
    for located in &answers.instances {
        instances
            .entry(&located.instance.app)
            .or_default()
            .push(located);
    }
    let mut queued: BTreeMap<&str, Vec<&QueuedGroup>> = BTreeMap::new();
    for group in &answers.queued {
        queued.entry(&group.app).or_default().push(group);
    }
    let status = |app: &str| {
        AppStatus::new(
            instances.remove(app).unwrap_or_default(),
            queued.remove(app).unwrap_or_default(),
        )
    };
    names
        .iter()
        .copied()
        .zip(names.iter().copied().map(status))
        .collect()
}

/// Prints a column for each state that occurs, running first; stopped or replaced instances are separate.
fn print_all(apps: &BTreeMap<&str, AppStatus<'_>>) -> anyhow::Result<()> {
    let all: Vec<_> = apps.values().map(AppStatus::counts).collect();
    let mut states: BTreeSet<&str> = all
        .iter()
        .flat_map(|counts| counts.keys().copied())
        .collect();
    states.remove("running");
    let states: Vec<&str> = std::iter::once("running").chain(states).collect();
    let titles = states.iter().map(|state| state.to_uppercase());
    let mut header: Vec<String> = std::iter::once("APP".to_owned()).chain(titles).collect();
    let has_earlier = apps.values().any(|status| !status.earlier.is_empty());
    if has_earlier {
        header.push("EARLIER".to_owned());
    }
    let mut table = Table::new(&header).text("EARLIER");
    for ((app, status), counts) in apps.iter().zip(&all) {
        let mut row = vec![Cell::new(app)];
        let count = |state: &&str| Cell::new(counts.get(state).copied().unwrap_or_default());
        row.extend(states.iter().map(count));
        if has_earlier {
            let earlier = status.earlier_in_words();
            row.push(Cell::new(earlier.unwrap_or_else(|| "-".to_owned())));
        }
        table.add_row(row);
    }
    Ok(table.print()?)
}
