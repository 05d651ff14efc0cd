//! `place`: decides where work would go, for a scenario file or the present cluster.

use std::path::Path;

use placement::{DecisionOutcome, DecisionReport, Explain};
use scenarios::{OfflineAuction, ScenarioError};
use serde_json::{Value, json};
use shared::wire::{AddCells, PlaceAnswer};

use super::{decisions, policy_file, request_file};
use crate::{
    cluster::{Cluster, Peer, TIMEOUT},
    context::{Exit, Format, Global, Usage},
    output::{self, note},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "A scenario is decided without any cluster. Nothing is started either way. The exit \
                  code is 3 when something is unplaced.\n\n\
                  Examples:\n  vendue place examples/scenario.json --policy dea\n  \
                  vendue place --live examples/worker.json --explain"
)]
pub(crate) struct PlaceArgs {
    /// A scenario (TOML if its name ends in .toml, else JSON); with --live a start request; - reads
    /// standard input
    file: String,
    /// The file is a start request: ask a running auctioneer where it would go
    #[arg(long)]
    live: bool,
    /// Policy to use instead of the scenario's: a preset's name or a file
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "live")]
    policy: Option<String>,
    /// Say what each stage dropped, and each finalist's cost or score; =cells names the cells
    #[arg(long, value_enum, num_args = 0..=1, require_equals = true, value_name = "HOW",
          default_missing_value = "stages")]
    explain: Option<Depth>,
    /// With --live: as if this cell were not there; may be repeated
    #[arg(long, value_name = "CELL", requires = "live")]
    without: Vec<String>,
    /// With --live: as if there were more cells, such as 3:like=z1-cell-0; may be repeated
    #[arg(long, value_name = "N:like=CELL", requires = "live", value_parser = add_cells)]
    add_cells: Vec<AddCells>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Depth {
    /// Each stage, each finalist's cost or score
    Stages,
    /// Also the names of the cells that each stage dropped
    Cells,
}

fn add_cells(text: &str) -> Result<AddCells, String> {
    let (count, like) = text
        .split_once(":like=")
        .ok_or_else(|| format!("{text:?}: expected N:like=CELL, such as 3:like=z1-cell-0"))?;
    let count = count
        .parse()
        .map_err(|_| format!("{count:?}: expected a number of cells"))?;
    placement::check_name("like", like).map_err(|e| e.to_string())?;
    Ok(AddCells {
        count,
        like: like.into(),
    })
}

/// Decides without starting anything.
pub(crate) async fn place(global: &Global, args: &PlaceArgs) -> anyhow::Result<Exit> {
    let text = request_file::read(&args.file)?;
    if args.live {
        return live(global, args, &text).await;
    }
    let scenario = scenario(&args.file, &text, args.policy.as_deref())?;
    let report = scenario.run(explain(args.explain));
    let (exit, policy) = (exit(&report.decisions), scenario.policy.name());
    match global.output {
        Format::Json => output::document(&Offline {
            policy,
            cells: scenario.cells.len(),
            decisions: &report.decisions,
        })?,
        Format::Table => {
            decisions::print(&report.decisions)?;
            let (file, counts) = (
                request_file::named(&args.file),
                decisions::counts(&report.decisions),
            );
            note(format_args!(
                "{counts}; the cells of {file}, policy {policy}"
            ));
        }
    }
    Ok(exit)
}

/// The decisions of `place FILE`, with the fields of an auctioneer's answer.
#[derive(serde::Serialize)]
struct Offline<'a> {
    policy: &'a str,
    cells: usize,
    decisions: &'a [DecisionReport],
}

/// Returns how much to explain; the finalists are always included.
pub(crate) fn explain(depth: Option<Depth>) -> Explain {
    match depth {
        None => Explain::Finalists,
        Some(Depth::Stages) => Explain::Stages,
        Some(Depth::Cells) => Explain::Cells,
    }
}

/// Returns the exit code, depending on whether every instance is placed.
pub(crate) fn exit(decisions: &[DecisionReport]) -> Exit {
    let placed = |d: &DecisionReport| d.outcome == DecisionOutcome::Placed;
    if decisions.iter().all(placed) {
        Exit::Ok
    } else {
        Exit::Unplaced
    }
}

/// Reads a scenario from the text of a file, with another policy if one is given.
pub(crate) fn scenario(
    file: &str,
    text: &str,
    other: Option<&str>,
) -> anyhow::Result<OfflineAuction> {
    let toml = Path::new(file).extension().is_some_and(|e| e == "toml");
    let read = if toml {
        OfflineAuction::from_toml(text)
    } else {
        OfflineAuction::from_json(text)
    };
    let file = request_file::named(file);
    let refuse = |e: ScenarioError| Usage::because(format_args!("{file}: {e}"));
    let mut scenario = read.map_err(refuse)?;
    if let Some(name) = other {
        scenario.policy = policy_file::load(name)?;
        for (i, request) in scenario.requests.iter().enumerate() {
            let checked = scenario.policy.check_request(request);
            checked.map_err(|e| Usage::because(format_args!("{file}: requests[{i}].{e}")))?;
        }
    }
    for warning in &scenario.warnings {
        note(format_args!("warning: {warning}: no such field; ignored"));
    }
    for warning in scenario.ignored_fields() {
        note(format_args!("warning: {warning}"));
    }
    Ok(scenario)
}

async fn live(global: &Global, args: &PlaceArgs, text: &str) -> anyhow::Result<Exit> {
    let request = request_file::check(&args.file, text)?;
    let cluster = Cluster::connect(global).await?;
    let question = json!({
        "v": shared::VERSION, "request": request,
        "without": args.without, "add_cells": args.add_cells,
        "explain": args.explain.map(|depth| match depth {
            Depth::Stages => "stages",
            Depth::Cells => "cells",
        }),
    });
    let subject = cluster.subjects.place();
    let value: Value = cluster
        .ask(Peer::Auctioneer, subject, &question, TIMEOUT)
        .await?;
    if cluster.format == Format::Json {
        output::json(&value)?;
    }
    let answer: PlaceAnswer = serde_json::from_value(value)?;
    for warning in &answer.warnings {
        note(format_args!("warning: {warning}"));
    }
    if cluster.format == Format::Table {
        decisions::print(&answer.decisions)?;
        let (auctioneer, policy) = (&answer.auctioneer, &answer.policy);
        let counts = decisions::counts(&answer.decisions);
        note(format_args!(
            "{counts}; decided by {auctioneer}, policy {policy}; nothing was started"
        ));
    }
    Ok(exit(&answer.decisions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_cells_are_a_number_and_a_model() {
        let three = add_cells("3:like=z1-cell-0").unwrap();
        assert_eq!((three.count, three.like.as_str()), (3, "z1-cell-0"));
        for bad in ["3", "x:like=a", "3:like=", "3:like=a.b"] {
            assert!(add_cells(bad).is_err(), "{bad}");
        }
    }
}
