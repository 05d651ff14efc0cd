//! Asks every cell what it runs and every auctioneer what waits. Asking the cells works without any auctioneer.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::bail;
use serde_json::{Value, json};
use shared::{
    Subjects,
    ask::{self, GatherEnd, queued},
    wire::{
        Instance, InstanceState, Instances, InstancesAnswer, Page, PoolAnswer, QueuedAnswer,
        QueuedGroup, QueuedRequest, to_bytes,
    },
};
use tokio::time::{Instant, sleep};

use crate::{
    cluster::{Cluster, Peer},
    context::{Failure, failure_code},
};

/// An instance with its place.
#[derive(Clone, Debug)]
pub(crate) struct Located {
    /// Its zone.
    pub(crate) zone: String,
    /// Its cell.
    pub(crate) cell: String,
    /// The cell's description of it.
    pub(crate) instance: Instance,
}

impl Located {
    /// Returns whether it holds a place: it has not ended for good.
    pub(crate) fn lives(&self) -> bool {
        !matches!(
            self.instance.state,
            InstanceState::Exited | InstanceState::Crashed
        )
    }

    /// Returns whether it ended because somebody asked for it.
    pub(crate) fn was_stopped(&self) -> bool {
        self.instance.state == InstanceState::Exited
            && self.instance.ended.as_deref() == Some("stopped")
    }

    /// Returns its state in one word; `stopped` is distinguished from `exited`.
    pub(crate) fn state(&self) -> &'static str {
        match self.instance.state {
            InstanceState::Starting => "starting",
            InstanceState::Running => "running",
            InstanceState::Restarting => "restarting",
            InstanceState::Stopping => "stopping",
            InstanceState::Exited if self.was_stopped() => "stopped",
            InstanceState::Exited => "exited",
            InstanceState::Crashed => "crashed",
        }
    }

    /// Returns `address:port`, if it has one.
    pub(crate) fn endpoint(&self) -> Option<String> {
        let port = self.instance.port?;
        let address = self.instance.address.as_deref().unwrap_or("127.0.0.1");
        Some(format!("{address}:{port}"))
    }

    /// Returns the document for programs: the cell's description with its place, and the state as people read it.
    pub(crate) fn document(&self) -> Value {
        let mut document = json!(self.instance);
        document["zone"] = json!(self.zone);
        document["cell"] = json!(self.cell);
        document["state"] = json!(self.state());
        document
    }
}

/// The answers of the cells and the auctioneers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// Sorted by app, index, cell.
    pub(crate) instances: Vec<Located>,
    /// Work that waits for room, sorted by app; empty if only the cells were asked.
    pub(crate) queued: Vec<QueuedGroup>,
    /// Number of waiting instances in groups that were not listed.
    pub(crate) queued_unlisted: usize,
    /// The cells that answered, with their zones.
    pub(crate) cells: BTreeMap<String, String>,
    /// Cells that an auctioneer knows but that did not answer.
    pub(crate) silent: Vec<String>,
}

impl Answers {
    /// Returns the fields that every document about instances has.
    pub(crate) fn document(&self) -> Value {
        let instances: Vec<Value> = self.instances.iter().map(Located::document).collect();
        json!({
            "v": shared::VERSION,
            "instances": instances,
            "queued": self.queued,
            "silent": self.silent,
        })
    }
}

/// How long the slowest cell may take.
const DEADLINE: Duration = Duration::from_secs(2);
/// How long to wait after the last answer if no auctioneer says how many cells there are.
const QUIET: Duration = Duration::from_millis(300);
/// How long to wait for an auctioneer, which answers from its memory.
const POOL_TIMEOUT: Duration = Duration::from_millis(500);

/// Asks all cells what they hold of one app, or of all apps. If an auctioneer says which cells there are, this ends
/// with the last of their answers; otherwise some time after the last answer.
pub(crate) async fn held(cluster: &Cluster, app: Option<&str>) -> anyhow::Result<Answers> {
    let answers = ask_cells(cluster, app).await?;
    cluster.check_connected()?;
    match answers {
        Some(answers) => Ok(answers),
        None => Err(no_cells(cluster)),
    }
}

/// Does the same as [`held`], and asks all auctioneers what waits. A cluster without cells is no error as long as an
/// auctioneer answers.
pub(crate) async fn held_and_queued(
    cluster: &Cluster,
    app: Option<&str>,
) -> anyhow::Result<Answers> {
    let request = QueuedRequest {
        v: shared::VERSION,
        app: app.map(str::to_owned),
        limit: None,
    };
    let waiting = queued(&cluster.bus, &cluster.subjects, &request);
    let (cells, waiting) = tokio::join!(ask_cells(cluster, app), waiting);
    let (waiting, cells) = (waiting?, cells?);
    // nothing follows from answers that may have been lost on the way
    cluster.check_connected()?;
    let mut answers = match cells {
        Some(answers) => answers,
        None if waiting.is_empty() => return Err(no_cells(cluster)),
        None => Answers::default(),
    };
    answers.add_queued(waiting);
    Ok(answers)
}

/// Returns the error for a cluster in which cells listen but none answered, so that what runs is unknown.
fn no_answer(cluster: &Cluster) -> anyhow::Error {
    if let Err(lost) = cluster.check_connected() {
        return lost;
    }
    let time = placement::Span(DEADLINE);
    Failure::because(
        failure_code::NO_ANSWER,
        format_args!("no cell answered within {time}: what runs is not known"),
    )
}

fn no_cells(cluster: &Cluster) -> anyhow::Error {
    let subject = cluster.subjects.instances();
    Failure::because(
        failure_code::UNREACHABLE,
        format_args!(
            "no cell answers on {subject}: no cell runs there, or --prefix names another cluster"
        ),
    )
}

impl Answers {
    fn add_queued(&mut self, waiting: Vec<QueuedAnswer>) {
        for answer in waiting {
            let listed: usize = answer.queued.iter().map(count).sum();
            self.queued_unlisted += answer.count.saturating_sub(listed);
            self.queued.extend(answer.queued);
        }
        self.queued.sort_by(|a, b| a.app.cmp(&b.app));
    }
}

/// Returns the number of instances of a group.
pub(crate) fn count(group: &QueuedGroup) -> usize {
    indices(group).len()
}

/// Returns the indices of a group's instances.
pub(crate) fn indices(group: &QueuedGroup) -> Vec<u32> {
    shared::wire::parse_indices(&group.indices, MAX_INSTANCES).unwrap_or_default()
}

/// Maximum number of instances of one request.
const MAX_INSTANCES: usize = 100_000;

/// Asks the cells. Returns none if the server says that no cell listens.
async fn ask_cells(cluster: &Cluster, app: Option<&str>) -> anyhow::Result<Option<Answers>> {
    let pool = pool(cluster, POOL_TIMEOUT).await.ok();
    let mut expected = pool.map(names).unwrap_or_default();
    let quiet = expected.is_empty().then_some(QUIET);
    let mut answers = Answers::default();
    let mut unreadable = None;
    let take = |answer: Result<InstancesAnswer, _>| {
        match answer {
            Ok(answer) => answers.take(answer, &mut expected),
            Err(e) => unreadable = Some(e),
        }
        quiet.is_none() && expected.is_empty()
    };
    let question = Instances {
        v: shared::VERSION,
        app: app.map(str::to_owned),
        ..Instances::default()
    };
    let (bus, subjects) = (&cluster.bus, &cluster.subjects);
    let ended = ask::instances(bus, subjects, &question, (DEADLINE, quiet), take).await?;
    if ended == GatherEnd::NoResponders {
        return Ok(None);
    }
    if let Some(e) = unreadable {
        return Err(anyhow::Error::new(e).context("reading a cell's answer"));
    }
    if answers.cells.is_empty() && answers.instances.is_empty() {
        return Err(no_answer(cluster));
    }
    answers.silent = expected.into_iter().collect();
    answers.instances.sort_by(|a, b| {
        let key = |l: &Located| (l.instance.app.clone(), l.instance.index, l.cell.clone());
        key(a).cmp(&key(b))
    });
    Ok(Some(answers))
}

impl Answers {
    fn take(&mut self, answer: InstancesAnswer, expected: &mut BTreeSet<String>) {
        if !answer.more {
            expected.remove(&answer.cell);
            self.cells.insert(answer.cell.clone(), answer.zone.clone());
        }
        for instance in answer.instances {
            self.instances.push(Located {
                zone: answer.zone.clone(),
                cell: answer.cell.clone(),
                instance,
            });
        }
    }
}

/// Returns the names of the cells that an auctioneer knows. A cell that missed a bid deadline may still answer, and is
/// waited for like the others.
fn names(pool: PoolAnswer) -> BTreeSet<String> {
    let cells = pool.cells.into_iter();
    cells.map(|entry| entry.cell.cell.clone()).collect()
}

/// Returns all pages of an auctioneer's pool.
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
        let answer: PoolAnswer = cluster
            .ask(Peer::Auctioneer, subject, &page, patience)
            .await?;
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

/// Waits until `auctioneers` auctioneers know `cells` cells.
pub(crate) async fn until_known(
    client: &async_nats::Client,
    subjects: &Subjects,
    cells: usize,
    auctioneers: usize,
    patience: Duration,
) -> anyhow::Result<()> {
    let end = Instant::now() + patience;
    let (mut knowing, mut most) = (BTreeSet::new(), None);
    while knowing.len() < auctioneers {
        match first_of_pool(client, subjects).await {
            Some(page) if page.total >= cells => drop(knowing.insert(page.auctioneer)),
            page => {
                most = most.max(page.map(|page| page.total));
                sleep(Duration::from_millis(20)).await;
            }
        }
        if Instant::now() > end {
            let (some, patience) = (knowing.len(), placement::Span(patience));
            bail!(match most {
                _ if some > 0 => format!(
                    "{some} of {auctioneers} auctioneers know all {cells} cells after {patience}"
                ),
                Some(most) => format!("only {most} of {cells} cells are known after {patience}"),
                None => format!("no auctioneer answers after {patience}"),
            });
        }
    }
    Ok(())
}

/// Returns the smallest page of any auctioneer's pool: each page says how many cells it knows.
pub(crate) async fn first_of_pool(
    client: &async_nats::Client,
    subjects: &Subjects,
) -> Option<PoolAnswer> {
    let page = Page {
        v: shared::VERSION,
        offset: 0,
        limit: Some(1),
    };
    let asked = client.request(subjects.pool(), to_bytes(&page)).await;
    serde_json::from_slice(&asked.ok()?.payload).ok()
}
