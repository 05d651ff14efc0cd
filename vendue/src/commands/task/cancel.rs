//! `task cancel`: what waits is not started, what runs is stopped.

use shared::wire::{AppAction, TaskStatus, TaskStored};

use super::{Which, known, list};
use crate::{
    cluster::{Cluster, Peer, TIMEOUT},
    context::{Exit, Format, Global},
    output,
};

#[derive(Debug, clap::Args)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    which: Which,
}

/// Cancels them.
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
    let mut tasks: Vec<TaskStatus> = Vec::new();
    for id in &ids {
        let subject = cluster.subjects.task("cancel", id);
        let question = AppAction { v: shared::VERSION };
        let patience = TIMEOUT * 2;
        let answer = cluster.ask::<TaskStored>(Peer::Manager, subject, &question, patience);
        tasks.push(answer.await?.task);
    }
    if cluster.format == Format::Json {
        output::document(&serde_json::json!({ "tasks": tasks }))?;
    } else if tasks.is_empty() {
        output::note("no task of it was left to cancel");
    } else {
        list::print(&tasks)?;
    }
    Ok(Exit::Ok)
}
