//! Asking every cell what it runs: works with no auctioneer alive.

use std::{collections::BTreeSet, time::Duration};

use anyhow::anyhow;
use serde::Serialize;
use shared::{
    ask::{Ended, gather},
    wire::{Instance, InstanceState, Instances, InstancesAnswer, Page, PoolAnswer, to_bytes},
};

use crate::asking::Cluster;

/// An instance and where it is.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Located {
    /// Its zone.
    pub(crate) zone: String,
    /// Its cell.
    pub(crate) cell: String,
    /// What the cell says of it.
    #[serde(flatten)]
    pub(crate) instance: Instance,
}

impl Located {
    /// Whether it holds a place: it has not ended for good.
    pub(crate) fn lives(&self) -> bool {
        !matches!(
            self.instance.state,
            InstanceState::Exited | InstanceState::Crashed
        )
    }

    /// `address:port`, where it has one.
    pub(crate) fn endpoint(&self) -> Option<String> {
        let port = self.instance.port?;
        let address = self.instance.address.as_deref().unwrap_or("127.0.0.1");
        Some(format!("{address}:{port}"))
    }
}

/// What the cells said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// Sorted by app, index, cell.
    pub(crate) instances: Vec<Located>,
    /// The cells that answered.
    pub(crate) cells: BTreeSet<String>,
    /// Cells that an auctioneer knows and that did not answer.
    pub(crate) silent: Vec<String>,
}

/// How long the slowest cell may take.
const DEADLINE: Duration = Duration::from_secs(2);
/// Without an auctioneer nobody knows how many cells there are: this long after the last answer
/// there are no more.
const QUIET: Duration = Duration::from_millis(300);
/// An auctioneer answers from its memory; one that takes longer is not worth waiting for.
const POOL_PATIENCE: Duration = Duration::from_millis(500);

/// Asks all cells. Where an auctioneer says which cells there are, this ends with the last of
/// their answers; else some time after the last one that came.
pub(crate) async fn all(cluster: &Cluster, question: &Instances) -> anyhow::Result<Answers> {
    let expected = known_cells(cluster).await;
    let quiet = expected.is_none().then_some(QUIET);
    let missing = expected.unwrap_or_default();
    ask(cluster, question, missing, quiet).await
}

async fn ask(
    cluster: &Cluster,
    question: &Instances,
    mut missing: BTreeSet<String>,
    quiet: Option<Duration>,
) -> anyhow::Result<Answers> {
    let mut answers = Answers::default();
    let mut unreadable = None;
    let take = |message: async_nats::Message| {
        match serde_json::from_slice::<InstancesAnswer>(&message.payload) {
            Ok(answer) => {
                if !answer.more {
                    missing.remove(&answer.cell);
                    answers.cells.insert(answer.cell.clone());
                }
                let (zone, cell) = (answer.zone, answer.cell);
                let located = |instance| Located {
                    zone: zone.clone(),
                    cell: cell.clone(),
                    instance,
                };
                answers
                    .instances
                    .extend(answer.instances.into_iter().map(located));
            }
            Err(e) => unreadable = Some(e),
        }
        quiet.is_none() && missing.is_empty()
    };
    let subject = cluster.subjects.instances();
    let client = &cluster.bus.client;
    let ended = gather(client, subject, to_bytes(question), DEADLINE, quiet, take).await?;
    if ended == Ended::NobodyListens {
        return Err(anyhow!(
            "no cell answers on {}: no cell runs there, or --prefix is another",
            cluster.subjects.instances()
        ));
    }
    if let Some(e) = unreadable {
        return Err(anyhow!("a cell's answer cannot be read: {e}"));
    }
    answers.silent = missing.into_iter().collect();
    answers.instances.sort_by(|a, b| {
        let key = |l: &Located| (l.instance.app.clone(), l.instance.index, l.cell.clone());
        key(a).cmp(&key(b))
    });
    Ok(answers)
}

/// The cells an auctioneer knows and expects answers of; `None` without one, or when it knows none.
async fn known_cells(cluster: &Cluster) -> Option<BTreeSet<String>> {
    let pool = pool(cluster, POOL_PATIENCE).await.ok()?;
    let names = pool.cells.into_iter().filter(|c| !c.silent);
    let names: BTreeSet<String> = names.map(|c| c.cell.cell).collect();
    (!names.is_empty()).then_some(names)
}

/// All pages of an auctioneer's pool.
pub(crate) async fn pool(cluster: &Cluster, patience: Duration) -> anyhow::Result<PoolAnswer> {
    let mut whole: Option<PoolAnswer> = None;
    let mut offset = 0;
    loop {
        let page = Page {
            v: shared::VERSION,
            offset,
            limit: None,
        };
        let subject = cluster.subjects.pool();
        let answer: PoolAnswer = cluster.ask("auctioneer", subject, &page, patience).await?;
        let next = answer.next.filter(|next| *next > offset);
        let whole = match &mut whole {
            None => whole.insert(answer),
            Some(whole) => {
                whole.cells.extend(answer.cells);
                whole
            }
        };
        if let Some(next) = next {
            offset = next;
            continue;
        }
        let mut whole = whole.clone();
        whole.next = None;
        whole.cells.sort_by(|a, b| a.cell.cell.cmp(&b.cell.cell));
        whole.cells.dedup_by(|a, b| a.cell.cell == b.cell.cell);
        return Ok(whole);
    }
}
