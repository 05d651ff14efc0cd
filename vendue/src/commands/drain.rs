//! `drain`: empty a cell.

use std::time::Duration;

use placement::Span;
use shared::wire::{Drain, DrainAnswer};

use super::one_cell;
use crate::{
    cluster::{Cluster, TIMEOUT},
    context::{Exit, Format, Global, Usage},
    output,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "What it ran is not started elsewhere. The rep exits with 0; started again, the cell takes work again."
)]
pub(crate) struct DrainArgs {
    /// The cell
    cell: String,
    /// How long its instances may continue to run
    #[arg(long, value_name = "TIME", default_value = "30s",
          value_parser = humantime::parse_duration)]
    deadline: Duration,
}

/// Asks a cell to drain.
pub(crate) async fn drain(global: &Global, args: &DrainArgs) -> anyhow::Result<Exit> {
    placement::check_name("CELL", &args.cell).map_err(Usage::invalid)?;
    let cluster = Cluster::connect(global).await?;
    let question = Drain {
        v: shared::VERSION,
        deadline: Some(Span(args.deadline)),
    };
    let answer: DrainAnswer =
        one_cell::ask(&cluster, &args.cell, "drain", &question, TIMEOUT).await?;
    if cluster.format == Format::Json {
        output::json(&answer)?;
        return Ok(Exit::Ok);
    }
    let (cell, count) = (&answer.cell, answer.instances);
    let deadline = humantime::format_duration(answer.deadline.0);
    output::say(format_args!(
        "{cell} accepts no new work; its {} stop within {deadline}, then it exits",
        output::counted(count, "instance")
    ))?;
    Ok(Exit::Ok)
}
