//! Asks one cell by name; if no cell has that name, the error suggests the nearest one.

use std::time::Duration;

use serde::{Serialize, de::DeserializeOwned};
use shared::wire::code;

use super::instances;
use crate::{
    cluster::{Cluster, Peer},
    context::Failure,
};

/// Maximum number of cells that are listed if no name is near.
const LISTED: usize = 10;
/// How long the auctioneer may take to say which cells there are.
const POOL_TIMEOUT: Duration = Duration::from_millis(500);

/// Asks a cell on the last token of its subject (`state`, `set`, `drain`, `logs`).
pub(crate) async fn ask<T: DeserializeOwned>(
    cluster: &Cluster,
    cell: &str,
    what: &str,
    question: &impl Serialize,
    timeout: Duration,
) -> anyhow::Result<T> {
    let subject = cluster.subjects.cell(cell, what);
    let asked = cluster.ask(Peer::Cell(cell), subject, question, timeout);
    let not_found = |e: &anyhow::Error| {
        e.downcast_ref::<Failure>()
            .is_some_and(|failure| failure.code == code::NOT_FOUND)
    };
    match asked.await {
        Err(e) if not_found(&e) => Err(Box::pin(unknown(cluster, cell, e)).await),
        answer => answer,
    }
}

/// Adds the names of the existing cells to an error, if an auctioneer knows them.
async fn unknown(cluster: &Cluster, cell: &str, error: anyhow::Error) -> anyhow::Error {
    let Ok(pool) = instances::pool(cluster, POOL_TIMEOUT).await else {
        return error;
    };
    let names: Vec<&str> = pool.cells.iter().map(|c| c.cell.cell.as_str()).collect();
    Failure::because(code::NOT_FOUND, unknown_in_words(cell, &names))
}

fn unknown_in_words(cell: &str, names: &[&str]) -> String {
    if names.is_empty() {
        return format!("there is no cell {cell}, nor any other");
    }
    if names.contains(&cell) {
        return format!(
            "cell {cell} does not answer any more: its rep has ended, and its advertisement has not expired yet"
        );
    }
    if let Some(nearest) = placement::nearest(cell, names) {
        return format!("there is no cell {cell}; did you mean {nearest}?");
    }
    let listed = names[..names.len().min(LISTED)].join(", ");
    let more = if names.len() > LISTED { ", ..." } else { "" };
    format!("there is no cell {cell}; there are {listed}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_cell_is_answered_with_the_nearest_or_all() {
        let names = ["z1-cell-0", "z2-cell-0"];
        let said = unknown_in_words("z1-cel-0", &names);
        assert_eq!(said, "there is no cell z1-cel-0; did you mean z1-cell-0?");
        let said = unknown_in_words("nosuch", &names);
        assert_eq!(
            said,
            "there is no cell nosuch; there are z1-cell-0, z2-cell-0"
        );
        assert!(unknown_in_words("z1-cell-0", &names).contains("does not answer any more"));
        assert!(unknown_in_words("a", &[]).contains("nor any other"));
        let many: Vec<String> = (0..20).map(|n| format!("cell-number-{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(unknown_in_words("x", &many).ends_with("cell-number-9, ..."));
    }
}
