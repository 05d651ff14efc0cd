//! `explain`: why an app's instances went where they went, or nowhere.

use std::collections::BTreeSet;

use comfy_table::Cell;
use serde_json::json;
use shared::{
    ask::queued,
    wire::{
        AuctionRecord, DecisionRecord, ExplainAnswer, ExplainRequest, Outcome, QueuedGroup,
        QueuedRequest, code, format_indices,
    },
};

use super::{decisions, devices, instances, reasons::why};
use crate::{
    cluster::{Cluster, Peer, TIMEOUT},
    context::{Exit, Failure, Format, Global, Usage},
    output::{self, counted, number},
    table::Table,
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "One auctioneer answers, from its last 16 auctions; what is queued comes from all. Outcomes: \
                  placed; queued (waits for room); unplaced (fits nowhere, or the cell refused it); unknown \
                  (sent, and the cell did not answer)."
)]
pub(crate) struct ExplainArgs {
    /// The app
    app: String,
    /// Also decide again over the cells as they are now, with what each stage dropped, cells by
    /// name, and each finalist's cost or score
    #[arg(long)]
    cells: bool,
}

/// Asks an auctioneer for its last decisions.
pub(crate) async fn explain(global: &Global, args: &ExplainArgs) -> anyhow::Result<Exit> {
    placement::check_name("APP", &args.app).map_err(Usage::invalid)?;
    let cluster = Cluster::connect(global).await?;
    let question = ExplainRequest {
        v: shared::VERSION,
        app: args.app.clone(),
        cells: args.cells,
    };
    let subject = cluster.subjects.explain();
    let answer: ExplainAnswer = cluster
        .ask(Peer::Auctioneer, subject, &question, TIMEOUT)
        .await?;
    let waiting = queued_now(&cluster, &args.app).await?;
    if answer.auctions.is_empty() && waiting.is_empty() {
        let (app, auctioneer) = (&args.app, &answer.auctioneer);
        return Err(Failure::because(
            code::NOT_FOUND,
            format_args!(
                "no decision for {app}: it does not appear in the last 16 auctions of {auctioneer}"
            ),
        ));
    }
    match cluster.format {
        Format::Json => {
            let mut document = json!(answer);
            document["queued"] = json!(waiting);
            output::json(&document)?;
        }
        Format::Table => print(&answer, &waiting)?,
    }
    Ok(Exit::Ok)
}

/// Returns what waits for room at any auctioneer.
async fn queued_now(cluster: &Cluster, app: &str) -> anyhow::Result<Vec<QueuedGroup>> {
    let request = QueuedRequest {
        v: shared::VERSION,
        app: Some(app.to_owned()),
        limit: None,
    };
    let answers = queued(&cluster.bus, &cluster.subjects, &request).await?;
    Ok(answers
        .into_iter()
        .flat_map(|answer| answer.queued)
        .collect())
}

fn print(answer: &ExplainAnswer, waiting: &[QueuedGroup]) -> anyhow::Result<()> {
    for group in waiting {
        let (app, indices, left) = (&group.app, &group.indices, output::age(group.left_ms));
        let why = why(Some(&group.reason), &group.tally);
        output::say_wrapped(&format!(
            "{app} {indices} queued, for {left} more at most: {why}"
        ))?;
    }
    let waiting: BTreeSet<u32> = waiting.iter().flat_map(instances::indices).collect();
    for auction in &answer.auctions {
        print_auction(auction, &waiting)?;
    }
    if !answer.now.is_empty() {
        output::say("decided again over the cells as they are now")?;
        decisions::print(&answer.now)?;
    }
    Ok(())
}

fn print_auction(auction: &AuctionRecord, waiting: &BTreeSet<u32>) -> anyhow::Result<()> {
    let (id, policy, cells) = (auction.auction, &auction.policy, auction.cells);
    let (age, seed) = (output::age(auction.age_ms), auction.seed);
    let cells = counted(cells, "cell");
    output::say_wrapped(&format!(
        "auction {id}, {age} ago: policy {policy}, {cells}, seed {seed}"
    ))?;
    let rating = if auction.decisions.iter().any(|d| d.score.is_some()) {
        "SCORE"
    } else {
        "COST"
    };
    let mut header = vec!["INDEX", "OUTCOME", "CELL", rating, "WHY"];
    let shows_devices = auction.decisions.iter().any(|d| d.devices.is_some());
    if shows_devices {
        header.insert(3, "DEVICES");
    }
    let mut table = Table::new(&header).text("WHY");
    for alike in auction.decisions.chunk_by(|a, b| same_no(a, b, waiting)) {
        if let [first, ..] = alike {
            let indices = format_indices(alike.iter().map(|decision| decision.index));
            let mut row = row(&indices, first, &auction.pick, waiting);
            if shows_devices {
                let given = first.devices.as_deref();
                row.insert(3, Cell::new(given.map_or("-".into(), devices::given)));
            }
            table.add_row(row);
        }
    }
    Ok(table.print()?)
}

/// Returns whether both were placed nowhere for the same reason, so that one row suffices for all of them.
fn same_no(a: &DecisionRecord, b: &DecisionRecord, waiting: &BTreeSet<u32>) -> bool {
    let nowhere = a.cell.is_none() && b.cell.is_none();
    nowhere
        && (a.outcome, &a.reason, &a.tally) == (b.outcome, &b.reason, &b.tally)
        && waiting.contains(&a.index) == waiting.contains(&b.index)
}

/// Formats a row. An instance that an auction did not place and that has been waiting since is queued.
fn row(indices: &str, decision: &DecisionRecord, pick: &str, waiting: &BTreeSet<u32>) -> Vec<Cell> {
    let outcome = match decision.cell {
        None if waiting.contains(&decision.index) => Outcome::Queued,
        _ => decision.outcome,
    };
    let rating = decision.cost.or(decision.score);
    let why = match outcome {
        Outcome::Placed => why_there(pick).to_owned(),
        _ => why(decision.reason.as_deref(), &decision.tally),
    };
    vec![
        Cell::new(indices),
        Cell::new(outcome),
        Cell::new(decision.cell.as_deref().unwrap_or("-")),
        Cell::new(rating.map_or("-".into(), number)),
        Cell::new(why),
    ]
}

/// Explains why a cell won, by the way its policy picks the winner.
fn why_there(pick: &str) -> &'static str {
    match pick {
        "lowest" => "lowest cost of the cells that passed every stage",
        "highest" => "highest score of the cells that passed every stage",
        "first-of" => "drawn from the best of the cells that passed every stage",
        _ => "drawn from the cells that passed every stage",
    }
}

#[cfg(test)]
mod tests {
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
            devices: None,
            cost: None,
            score: None,
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
        let rows = |waiting: &[u32]| -> Vec<usize> {
            let waiting = waiting.iter().copied().collect();
            let alike = decisions.chunk_by(|a, b| same_no(a, b, &waiting));
            alike.map(<[_]>::len).collect()
        };
        assert_eq!(rows(&[]), [1, 1, 2, 1]);
        assert_eq!(rows(&[2]), [1, 1, 1, 1, 1]);
    }
}
