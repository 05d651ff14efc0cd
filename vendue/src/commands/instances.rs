//! Asking every cell what it runs: works with no auctioneer alive.

use std::{collections::BTreeSet, time::Duration};

use anyhow::anyhow;
use serde::Serialize;
use shared::{
    ask::{GatherEnd, gather},
    wire::{
        Instance, InstanceState, Instances, InstancesAnswer, Page, PoolAnswer, PoolCell, to_bytes,
    },
};

use crate::cluster::Cluster;

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
const POOL_TIMEOUT: Duration = Duration::from_millis(500);

/// Asks all cells. Where an auctioneer says which cells there are, this ends with the last of
/// their answers; else some time after the last one that came.
pub(crate) async fn all(cluster: &Cluster, question: &Instances) -> anyhow::Result<Answers> {
    let pool = pool(cluster, POOL_TIMEOUT).await.ok();
    let expected = pool.map(Expected::of).unwrap_or_default();
    let quiet = expected.awaited.is_empty().then_some(QUIET);
    ask(cluster, question, expected, quiet).await
}

async fn ask(
    cluster: &Cluster,
    question: &Instances,
    mut expected: Expected,
    quiet: Option<Duration>,
) -> anyhow::Result<Answers> {
    let mut answers = Answers::default();
    let mut unreadable = None;
    let take = |message: async_nats::Message| {
        match serde_json::from_slice::<InstancesAnswer>(&message.payload) {
            Ok(answer) => {
                if !answer.more {
                    expected.answered(&answer.cell);
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
        quiet.is_none() && expected.awaited.is_empty()
    };
    let subject = cluster.subjects.instances();
    let client = &cluster.bus.client;
    let ended = gather(client, subject, to_bytes(question), DEADLINE, quiet, take).await?;
    if ended == GatherEnd::NoResponders {
        return Err(anyhow!(
            "no cell answers on {}: no cell runs there, or --prefix is another",
            cluster.subjects.instances()
        ));
    }
    if let Some(e) = unreadable {
        return Err(anyhow!("a cell's answer cannot be read: {e}"));
    }
    answers.silent = expected.left();
    answers.instances.sort_by(|a, b| {
        let key = |l: &Located| (l.instance.app.clone(), l.instance.index, l.cell.clone());
        key(a).cmp(&key(b))
    });
    Ok(answers)
}

/// The cells that an auctioneer knows.
#[derive(Debug, Default)]
struct Expected {
    awaited: BTreeSet<String>,
    /// Silent already: not waited for, but told of if they stay so.
    silent: BTreeSet<String>,
}

impl Expected {
    fn of(pool: PoolAnswer) -> Self {
        let (silent, awaited): (Vec<_>, Vec<_>) = pool.cells.into_iter().partition(|c| c.silent);
        let names = |cells: Vec<PoolCell>| cells.into_iter().map(|c| c.cell.cell).collect();
        Self {
            awaited: names(awaited),
            silent: names(silent),
        }
    }

    fn answered(&mut self, cell: &str) {
        self.awaited.remove(cell);
        self.silent.remove(cell);
    }

    /// Those that did not answer, by name.
    fn left(mut self) -> Vec<String> {
        self.silent.append(&mut self.awaited);
        self.silent.into_iter().collect()
    }
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

#[cfg(test)]
mod tests {
    use placement::Resources;

    use super::*;

    #[test]
    fn cells_that_were_silent_already_are_told_of_unless_they_answer() {
        let cell = |name: &str, silent| PoolCell {
            cell: placement::Cell::new(name, Resources::new(1, 1, 1)),
            incarnation: shared::Incarnation::nil(),
            seq: 1,
            age_ms: 0,
            left_ms: 0,
            debits: 0,
            silent,
        };
        let pool = PoolAnswer {
            v: shared::VERSION,
            auctioneer: "a".into(),
            policy: "diego".into(),
            total: 4,
            cells: vec![
                cell("a", true),
                cell("b", false),
                cell("c", true),
                cell("d", false),
            ],
            next: None,
        };
        let mut expected = Expected::of(pool);
        assert_eq!(
            expected.awaited.len(),
            2,
            "the silent ones are not waited for"
        );
        expected.answered("b");
        expected.answered("c");
        assert_eq!(expected.left(), ["a", "d"]);
    }
}
