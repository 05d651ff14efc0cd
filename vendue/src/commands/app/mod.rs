//! `app`: apps that managers keep running.

mod action;
mod changed;
mod export;
mod file;
mod history;
pub(crate) mod import;
pub(crate) mod list;
mod put;
mod restart;
mod scale;
mod show;
mod wait;

use std::time::Duration;

use serde_json::Value;

use crate::{
    cluster::Cluster,
    context::{Exit, Global, Usage},
    table::Table,
};

/// How long to wait for a change; a manager answers within 10 s.
const CHANGE_PATIENCE: Duration = Duration::from_secs(12);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "`app put` says what is to run, and a manager keeps it running: what crashes, or is lost with its \
                  cell, is started again. `vendue start` starts something once.\n\n\
                  Needs a manager: `vendue up` has one, `vendue manager` runs one."
)]
pub(crate) struct AppArgs {
    #[command(subcommand)]
    command: AppCommand,
}

#[derive(Debug, clap::Subcommand)]
enum AppCommand {
    /// Create or update the apps that files describe, and keep them running
    Put(put::PutArgs),
    /// List the apps: how many instances are wanted, how many run, and why not all
    List,
    /// Show an app: its state and its definition, without values of the environment
    Show(show::ShowArgs),
    /// Change how many instances an app has
    Scale(scale::ScaleArgs),
    /// Stop an app: it stays known, and `app start` starts it again
    Stop(action::ActionArgs),
    /// Start an app that was stopped
    Start(action::StartArgs),
    /// Replace every instance of an app by a new one
    Restart(restart::RestartArgs),
    /// Delete an app: its instances end, then it is forgotten
    Delete(action::ActionArgs),
    /// List the versions of an app and what changed between them
    History(history::HistoryArgs),
    /// Return to the last version of an app that ran completely
    Undo(action::StartArgs),
    /// Pause the rollout of an app's version
    Pause(action::ActionArgs),
    /// Resume a paused rollout
    Resume(action::StartArgs),
    /// Wait until every wanted instance of the apps runs
    Wait(wait::WaitArgs),
    /// Write apps to a file, with the values of the environment
    Export(export::ExportArgs),
    /// Put the apps of an exported file, or restore them after a bucket was lost
    Import(import::ImportArgs),
}

impl AppArgs {
    /// Runs the subcommand.
    pub(crate) async fn run(&self, global: &Global) -> anyhow::Result<Exit> {
        match &self.command {
            AppCommand::Put(args) => put::put(global, args).await,
            AppCommand::List => list::list(global).await,
            AppCommand::Show(args) => show::show(global, args).await,
            AppCommand::Scale(args) => scale::scale(global, args).await,
            AppCommand::Stop(args) => action::act(global, "stop", args, None).await,
            AppCommand::Start(args) => action::start(global, "start", args).await,
            AppCommand::Restart(args) => restart::restart(global, args).await,
            AppCommand::Delete(args) => action::act(global, "delete", args, None).await,
            AppCommand::History(args) => history::history(global, args).await,
            AppCommand::Undo(args) => action::start(global, "undo", args).await,
            AppCommand::Pause(args) => action::act(global, "pause", args, None).await,
            AppCommand::Resume(args) => action::start(global, "resume", args).await,
            AppCommand::Wait(args) => wait::wait(global, args).await,
            AppCommand::Export(args) => export::export(global, args).await,
            AppCommand::Import(args) => import::import(global, args).await,
        }
    }
}

fn check_app(app: &str) -> anyhow::Result<()> {
    placement::check_name("APP", app).map_err(Usage::invalid)
}

/// Connects, after checking that the name is valid.
async fn connect(global: &Global, app: &str) -> anyhow::Result<Cluster> {
    check_app(app)?;
    Cluster::connect(global).await
}

/// Formats a value of a definition in one line: text as it is, everything else as JSON.
fn in_words(value: Option<&Value>) -> String {
    match value {
        None => "-".into(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

/// Collects the lines of a definition: the path of each field and its value.
fn fields(value: &Value, at: &str, found: &mut Vec<(String, String)>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (name, value) in map {
                let dot = if at.is_empty() { "" } else { "." };
                fields(value, &format!("{at}{dot}{name}"), found);
            }
        }
        value => found.push((at.to_owned(), in_words(Some(value)))),
    }
}

/// Creates a table of differences between definitions, one per row.
fn changes_table() -> Table {
    Table::new(&["APP", "FIELD", "BEFORE", "AFTER"]).text("AFTER")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_is_shown_field_by_field() {
        let definition = json!({
            "app": "web", "memory_mb": 64, "tags": {},
            "run": {"command": ["sleep", "1"], "env": ["COLOUR"], "port": true},
        });
        let mut found = Vec::new();
        fields(&definition, "", &mut found);
        let found: Vec<String> = found.iter().map(|(f, v)| format!("{f} {v}")).collect();
        assert_eq!(
            found,
            [
                "app web",
                "memory_mb 64",
                r#"run.command ["sleep","1"]"#,
                r#"run.env ["COLOUR"]"#,
                "run.port true",
                "tags {}",
            ]
        );
    }
}
