//! `task cancel`: waiting tasks are not started, running ones are stopped.

use shared::wire::{TaskState, TaskStatus, TaskStored};

use super::{PATIENCE, Which, about_each, known, list};
use crate::{
    cluster::Cluster,
    context::{Exit, Format, Global},
    output::{self, note},
};

#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    which: Which,
}

/// Cancels the tasks.
pub(super) async fn cancel(global: &Global, args: &CancelArgs) -> anyhow::Result<Exit> {
    args.which.check()?;
    let cluster = Cluster::connect(global).await?;
    let ids: Vec<String> = if args.which.app.is_some() {
        let known = known(&cluster, &args.which).await?;
        let open = known.into_iter().filter(|task| !task.state.is_over());
        open.map(|task| task.id).collect()
    } else {
        args.which.ids.clone()
    };
    let cancelled = about_each::<TaskStored>(&cluster, "cancel", ids, PATIENCE).await?;
    let stored = cancelled.answers.iter();
    let tasks: Vec<TaskStatus> = stored.map(|stored| stored.task.clone()).collect();
    if cluster.format == Format::Json {
        let errors = &cancelled.errors;
        output::document(&serde_json::json!({ "tasks": tasks, "errors": errors }))?;
        return Ok(cancelled.exit());
    }
    if !tasks.is_empty() {
        list::print(&tasks)?;
    } else if cancelled.errors.is_empty() {
        note("the app has no task to cancel");
    }
    for task in tasks.iter().filter(|task| task.state.is_over()) {
        if task.state != TaskState::Cancelled {
            note(format_args!("{} had already ended", task.id));
        }
    }
    cancelled.tell_errors();
    Ok(cancelled.exit())
}
