//! `explain`: why an app's instances went where they went, or nowhere.

use comfy_table::Cell;
use placement::Tally;
use shared::wire::{DecisionRecord, ExplainAnswer, ExplainRequest, format_indices};

use super::place;
use crate::{
    cluster::{Cluster, TIMEOUT},
    context::{Exit, Format, Global, Usage},
    output::{self, number},
};

#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArgs {
    /// The app
    app: String,
    /// Judge it again over the cells as they are now: what each stage dropped, cells by name, and
    /// what each finalist scored
    #[arg(long)]
    cells: bool,
}

/// Asks an auctioneer for its last decisions.
pub(crate) async fn explain(global: &Global, args: &ExplainArgs) -> anyhow::Result<Exit> {
    placement::check_name("APP", &args.app).map_err(Usage::because)?;
    let cluster = Cluster::connect(global).await?;
    let question = ExplainRequest {
        v: shared::VERSION,
        app: args.app.clone(),
        cells: args.cells,
    };
    let subject = cluster.subjects.explain();
    let answer: ExplainAnswer = cluster
        .ask("auctioneer", subject, &question, TIMEOUT)
        .await?;
    if cluster.format == Format::Json {
        output::json(&answer)?;
    } else if answer.auctions.is_empty() {
        let (auctioneer, app) = (&answer.auctioneer, &args.app);
        let text = "had no part in the last 16 auctions of";
        output::note(format_args!("{app} {text} {auctioneer}"));
    }
    if answer.auctions.is_empty() {
        return Ok(Exit::Failed);
    }
    if cluster.format == Format::Table {
        print(&answer)?;
    }
    Ok(Exit::Ok)
}

fn print(answer: &ExplainAnswer) -> anyhow::Result<()> {
    for auction in &answer.auctions {
        let (id, policy, cells) = (auction.auction, &auction.policy, auction.cells);
        let (age, seed) = (output::age(auction.age_ms), auction.seed);
        output::say(format_args!(
            "auction {id}, {age} ago: policy {policy}, {cells} cells, seed {seed}"
        ))?;
        let mut table = output::table(&["INDEX", "OUTCOME", "CELL", "VALUE", "WHY"]);
        for alike in auction.decisions.chunk_by(same_no) {
            table.add_row(row(alike));
        }
        output::print(table)?;
    }
    if !answer.now.is_empty() {
        output::say("judged again, over the cells as they are now")?;
        place::print_decisions(&answer.now)?;
    }
    Ok(())
}

/// Both are placed nowhere, for the same reason: a row for all of them will do.
fn same_no(a: &DecisionRecord, b: &DecisionRecord) -> bool {
    let of = |d: &DecisionRecord| (d.outcome, d.cell.is_none(), d.reason.clone());
    a.cell.is_none() && of(a) == of(b) && a.tally == b.tally
}

fn row(alike: &[DecisionRecord]) -> Vec<Cell> {
    let Some(decision) = alike.first() else {
        return Vec::new();
    };
    let mut why: Vec<String> = decision.reason.clone().into_iter().collect();
    why.extend(decision.tally.iter().map(Tally::in_words));
    vec![
        Cell::new(format_indices(alike.iter().map(|d| d.index))),
        Cell::new(decision.outcome),
        Cell::new(decision.cell.as_deref().unwrap_or("-")),
        Cell::new(decision.value.map_or("-".into(), number)),
        Cell::new(why.join("; ")),
    ]
}

#[cfg(test)]
mod tests {
    use shared::wire::Outcome;

    use super::*;

    #[test]
    fn equal_failures_share_a_row() {
        let decision = |index, cell: Option<&str>, reason: Option<&str>| DecisionRecord {
            index,
            outcome: if cell.is_some() {
                Outcome::Placed
            } else {
                Outcome::Unplaced
            },
            cell: cell.map(Into::into),
            value: None,
            reason: reason.map(Into::into),
            tally: Vec::new(),
        };
        let decisions = [
            decision(0, Some("a"), None),
            decision(1, Some("a"), None),
            decision(2, None, Some("memory")),
            decision(3, None, Some("memory")),
            decision(4, None, Some("disk")),
        ];
        let rows: Vec<usize> = decisions.chunk_by(same_no).map(<[_]>::len).collect();
        assert_eq!(rows, [1, 1, 2, 1]);
    }
}
