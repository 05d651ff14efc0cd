//! `task list`: lists the tasks, one per line.

use std::time::SystemTime;

use comfy_table::{Cell, Color};
use placement::Kind;
use shared::{
    clock::millis,
    wire::{TaskState, TaskStatus},
};

use super::all;
use crate::{
    cluster::Cluster,
    context::{Exit, Format, Global, Usage},
    output::{self, age, note, printable},
    table::Table,
};

#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    /// Only tasks of this app
    #[arg(long, value_name = "APP")]
    app: Option<String>,
}

/// Lists the tasks.
pub(super) async fn list(global: &Global, args: &ListArgs) -> anyhow::Result<Exit> {
    if let Some(app) = &args.app {
        placement::check_name("--app", app).map_err(Usage::invalid)?;
    }
    let cluster = Cluster::connect(global).await?;
    let listed = all(&cluster, args.app.clone()).await?;
    if cluster.format == Format::Json {
        output::json(&listed)?;
        return Ok(Exit::Ok);
    }
    if listed.tasks.is_empty() {
        match &args.app {
            Some(app) => note(format_args!(
                "no task of {app} is known; results are kept for an hour"
            )),
            None => note("no tasks; `vendue task run FILE` runs some"),
        }
        return Ok(Exit::Ok);
    }
    print(&listed.tasks)?;
    Ok(Exit::Ok)
}

/// Prints a line for each task.
pub(super) fn print(tasks: &[TaskStatus]) -> anyhow::Result<()> {
    let columns = [
        "TASK", "APP", "KIND", "STATE", "EXIT", "CELL", "ATTEMPTS", "AGE", "TOOK", "WHY",
    ];
    let mut table = Table::new(&columns)
        .optional(&["KIND", "AGE", "ATTEMPTS", "CELL"])
        .text("WHY");
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now_ms = since_1970.map_or(0, millis);
    for task in tasks {
        table.add_row(vec![
            Cell::new(&task.id),
            Cell::new(&task.app),
            Cell::new(task.kind),
            state(task.state),
            Cell::new(exit(task)),
            Cell::new(task.cell.as_deref().unwrap_or("-")),
            Cell::new(attempts(task).map_or("-".into(), |count| count.to_string())),
            Cell::new(age(now_ms.saturating_sub(task.submitted_ms))),
            Cell::new(took(task).map_or("-".into(), age)),
            Cell::new(why(task).map_or(String::new(), printable)),
        ]);
    }
    Ok(table.print()?)
}

/// Returns how long its last run took, in milliseconds.
pub(super) fn took(task: &TaskStatus) -> Option<u64> {
    Some(task.ended_ms?.saturating_sub(task.started_ms?))
}

/// Returns how often it has run; none if it is not a task, of which cells count the runs.
pub(super) fn attempts(task: &TaskStatus) -> Option<u32> {
    (task.kind == Kind::Task).then_some(task.attempts)
}

/// Returns why it waits or has failed, or that it is being ended.
pub(super) fn why(task: &TaskStatus) -> Option<&str> {
    let ends = task.cancelled && !task.state.is_over();
    let why = ends.then_some("cancelled; it is being stopped");
    why.or(task.why.as_deref())
}

/// Returns its exit code, or the signal that ended it.
pub(super) fn exit(task: &TaskStatus) -> String {
    match (task.exit_code, task.signal) {
        (Some(code), _) => code.to_string(),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "-".into(),
    }
}

fn state(state: TaskState) -> Cell {
    let color = match state {
        TaskState::Succeeded | TaskState::Placed => Color::Green,
        TaskState::Waiting | TaskState::Starting => Color::Yellow,
        TaskState::Failed => Color::Red,
        TaskState::Running | TaskState::Cancelled => Color::Reset,
    };
    Cell::new(state).fg(color)
}
