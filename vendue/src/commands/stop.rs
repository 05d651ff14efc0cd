//! `stop`: an app, or some of its instances.

use std::time::Duration;

use comfy_table::Cell;
use shared::InstanceId;
use shared::wire::{Stop, StopOutcome, StopReply, parse_indices};

use crate::{
    cluster::Cluster,
    context::{Exit, Format, Global, Usage},
    output::{self, note},
};

#[derive(Debug, clap::Args)]
pub(crate) struct StopArgs {
    /// The app
    app: String,
    /// Only these of its instances, such as 0,2-4
    #[arg(long)]
    indices: Option<String>,
    /// Only the instance of this id; may be repeated
    #[arg(long, value_name = "UUID")]
    instance: Vec<InstanceId>,
}

/// Stops what matches.
pub(crate) async fn stop(global: &Global, args: &StopArgs) -> anyhow::Result<Exit> {
    placement::check_name("APP", &args.app).map_err(Usage::because)?;
    let indices = match &args.indices {
        None => Vec::new(),
        Some(text) => parse_indices(text, 100_000).ok_or_else(|| {
            Usage::because(format_args!(
                "--indices {text:?}: expected a list like 0,2-4"
            ))
        })?,
    };
    let cluster = Cluster::connect(global).await?;
    let question = Stop {
        v: shared::VERSION,
        app: args.app.clone(),
        indices,
        instances: args.instance.clone(),
    };
    let subject = cluster.subjects.stop();
    let patience = Duration::from_secs(6);
    let mut reply: StopReply = cluster
        .ask("auctioneer", subject, &question, patience)
        .await?;
    reply.stopped.sort_by_key(|stopped| stopped.index);
    if cluster.format == Format::Json {
        output::json(&reply)?;
    } else {
        print(&reply)?;
    }
    Ok(match reply.outcome {
        StopOutcome::Stopped => Exit::Ok,
        StopOutcome::None | StopOutcome::Partial => Exit::Failed,
    })
}

fn print(reply: &StopReply) -> anyhow::Result<()> {
    if !reply.stopped.is_empty() {
        let mut table = output::table(&["APP", "INDEX", "CELL", "INSTANCE"]);
        for stopped in &reply.stopped {
            table.add_row(vec![
                Cell::new(&reply.app),
                Cell::new(stopped.index),
                Cell::new(stopped.cell.as_deref().unwrap_or("-")),
                Cell::new(stopped.instance),
            ]);
        }
        output::print(table)?;
    }
    let app = &reply.app;
    match reply.outcome {
        StopOutcome::None => note(format_args!(
            "nothing to stop: no instance of {app} was found"
        )),
        StopOutcome::Stopped => {
            let (count, cancelled) = (reply.count, reply.cancelled);
            note(format_args!(
                "{app}: {count} told to stop, {cancelled} waiting ones cancelled"
            ));
        }
        StopOutcome::Partial => note(format_args!(
            "{app}: {} told to stop; no answer from {}, which may still run some: try again",
            reply.count,
            reply.silent.join(", ")
        )),
    }
    Ok(())
}
