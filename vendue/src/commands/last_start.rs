//! What happened to the last start of an app of which nothing is left, for commands that wait for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use shared::wire::{
    AuctionRecord, DecisionRecord, ExplainAnswer, ExplainRequest, Outcome, format_indices,
};

use super::{instances, reasons::why};
use crate::{
    cluster::{Cluster, Peer},
    output,
};

/// How long an auctioneer may take, as it answers from its memory.
const PATIENCE: Duration = Duration::from_millis(500);
/// Work that a cell refused enters the next auction, so only a decision older than this was the last one.
const SETTLED_MS: u64 = 1_000;

/// The last auction of the app that an auctioneer remembers.
pub(crate) struct LastStart {
    auction: AuctionRecord,
    /// The existing cells; none if unknown.
    cells: Option<BTreeSet<String>>,
}

/// Asks any auctioneer. Returns none if the one that answers does not remember the app.
pub(crate) async fn ask(cluster: &Cluster, app: &str) -> anyhow::Result<Option<LastStart>> {
    let question = ExplainRequest {
        v: shared::VERSION,
        app: app.to_owned(),
        cells: false,
    };
    let subject = cluster.subjects.explain();
    let asked = cluster.ask::<ExplainAnswer>(Peer::Auctioneer, subject, &question, PATIENCE);
    let auctions = asked.await?.auctions.into_iter();
    let Some(auction) = auctions.min_by_key(|auction| auction.age_ms) else {
        return Ok(None);
    };
    let pool = instances::pool(cluster, PATIENCE).await.ok();
    let names = |pool: shared::wire::PoolAnswer| {
        let cells = pool.cells.into_iter();
        cells.map(|entry| entry.cell.cell.clone()).collect()
    };
    Ok(Some(LastStart {
        auction,
        cells: pool.map(names),
    }))
}

impl LastStart {
    /// Explains why nothing was placed, if the start ended like that and nothing more will come of it.
    pub(crate) fn unplaced(&self, app: &str) -> Option<String> {
        let decisions = &self.auction.decisions;
        let none = decisions.iter().all(|d| d.outcome == Outcome::Unplaced);
        if !none || self.auction.age_ms < SETTLED_MS {
            return None;
        }
        let first = decisions.first()?;
        let indices = format_indices(decisions.iter().map(|decision| decision.index));
        let (reason, ago) = (reason(first), output::age(self.auction.age_ms));
        Some(format!(
            "{app} {indices} unplaced {ago} ago: {reason}\nit is not queued: start it again, with \
             --queue-timeout to wait for room; `vendue explain {app}` says more"
        ))
    }

    /// Says where it was placed, if it is not there any more.
    pub(crate) fn gone(&self, app: &str) -> Option<String> {
        let mut by_cell: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for decision in &self.auction.decisions {
            if let (Outcome::Placed, Some(cell)) = (decision.outcome, &decision.cell) {
                by_cell.entry(cell).or_default().push(decision.index);
            }
        }
        if by_cell.is_empty() {
            return None;
        }
        let place = |(cell, indices): (&&str, &Vec<u32>)| {
            let cells = self.cells.as_ref();
            let left = cells.is_some_and(|cells| !cells.contains(*cell));
            let left = if left { " (not there any more)" } else { "" };
            format!(
                "{} on {cell}{left}",
                format_indices(indices.iter().copied())
            )
        };
        let places: Vec<String> = by_cell.iter().map(place).collect();
        let (places, ago) = (places.join(", "), output::age(self.auction.age_ms));
        Some(format!(
            "its last start, {ago} ago, placed {places}; what is stopped, drained or lost with its cell is \
             not started elsewhere: start {app} again"
        ))
    }
}

fn reason(decision: &DecisionRecord) -> String {
    match why(decision.reason.as_deref(), &decision.tally) {
        none if none.is_empty() => "no reason is known".to_owned(),
        reason => reason,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn last(age_ms: u64, decisions: &serde_json::Value) -> LastStart {
        let auction = json!({
            "auction": uuid::Uuid::nil(), "seed": 1, "policy": "diego", "pick": "lowest",
            "age_ms": age_ms, "cells": 2, "decisions": decisions,
        });
        LastStart {
            auction: serde_json::from_value(auction).unwrap(),
            cells: Some(["c1".to_owned()].into()),
        }
    }

    #[test]
    fn an_unplaced_start_says_why_once_it_is_settled() {
        let no = |index: u32| json!({"index": index, "outcome": "unplaced", "reason": "too large"});
        let decisions = json!([no(0), no(1)]);
        let said = last(5_000, &decisions).unplaced("a").unwrap();
        assert!(
            said.starts_with("a 0-1 unplaced 5s ago: too large\n"),
            "{said}"
        );
        assert_eq!(last(100, &decisions).unplaced("a"), None);
        assert_eq!(last(5_000, &decisions).gone("a"), None);
        let yes = json!({"index": 2, "outcome": "placed", "cell": "c1"});
        let some = last(5_000, &json!([no(0), yes]));
        assert_eq!(some.unplaced("a"), None);
    }

    #[test]
    fn what_was_placed_and_is_gone_says_where_it_was() {
        let on =
            |index: u32, cell: &str| json!({"index": index, "outcome": "placed", "cell": cell});
        let gone = last(5_000, &json!([on(0, "c2"), on(1, "c1"), on(2, "c2")]));
        let said = gone.gone("a").unwrap();
        let places = "its last start, 5s ago, placed 1 on c1, 0,2 on c2 (not there any more);";
        assert!(said.starts_with(places), "{said}");
    }
}
