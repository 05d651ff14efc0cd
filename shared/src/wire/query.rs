//! Queries: instances, the pool, queued work, past decisions, capacity.

use placement::{Capacity, Cell, DecisionReport, DeviceShares, ExpectedSize, Kind, Tally};
use serde::{Deserialize, Serialize};

use super::{IdPrefixes, Instance, RunningIds, is_false};
use crate::ids::{AuctionId, Incarnation, InstanceId, RequestId};
use crate::version::Version;

/// To every cell: asks for its instances. An instance must match all filters; without filters, all are returned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Instances {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// This app only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// These ids only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<InstanceId>,
    /// Only instances whose ids start with one of these, for questions about many.
    #[serde(default, skip_serializing_if = "IdPrefixes::is_empty")]
    pub id_prefixes: IdPrefixes,
    /// Return only the prefixes of the ids of instances that have not ended, instead of the instances.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ids_only: bool,
}

/// One cell's answer, even if it has no instances; large ones are split into several messages.
/// Heartbeats have the same body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InstancesAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The cell.
    pub cell: String,
    /// Its zone.
    pub zone: String,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// The version of the cell's state that the list reflects.
    #[serde(default)]
    pub seq: u64,
    /// The number of this message in the list, counted from 1.
    #[serde(default = "one")]
    pub part: u32,
    /// The number of messages in the list. Once all have arrived, an instance that is not listed does not exist.
    #[serde(default = "one")]
    pub parts: u32,
    /// Its instances.
    pub instances: Vec<Instance>,
    /// With `ids_only`: instances that have not ended. `instances` is then empty.
    #[serde(default, skip_serializing_if = "RunningIds::is_empty")]
    pub ids: RunningIds,
    /// Whether more follow in another message.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// The number of characters of each entry of [`InstancesAnswer::ids`].
const ID_BYTES: usize = 8;

impl InstancesAnswer {
    /// Splits the list into as few messages as possible; at least one, each of about `max_bytes` at most.
    pub fn split(mut self, max_bytes: usize) -> Vec<Self> {
        if !self.ids.is_empty() {
            let all = self.ids.numbers().chunks((max_bytes / ID_BYTES).max(1));
            let lists = all.map(|ids| (Vec::new(), RunningIds::from(ids.to_vec())));
            return self.numbered(lists.collect());
        }
        let mut lists = Vec::new();
        let (mut part, mut part_bytes) = (Vec::new(), 0);
        for instance in std::mem::take(&mut self.instances) {
            let bytes = super::to_bytes(&instance).len() + 1;
            if part_bytes + bytes > max_bytes && !part.is_empty() {
                lists.push(std::mem::take(&mut part));
                part_bytes = 0;
            }
            part_bytes += bytes;
            part.push(instance);
        }
        // even if it is empty: that there is nothing is an answer, too
        lists.push(part);
        let lists = lists.into_iter().map(|list| (list, RunningIds::default()));
        let lists = lists.collect();
        self.numbered(lists)
    }

    /// Returns a message for each of these.
    fn numbered(&self, lists: Vec<(Vec<Instance>, RunningIds)>) -> Vec<Self> {
        let parts = u32::try_from(lists.len()).unwrap_or(u32::MAX);
        let message = |((instances, ids), part): ((Vec<Instance>, RunningIds), u32)| Self {
            cell: self.cell.clone(),
            zone: self.zone.clone(),
            part,
            parts,
            instances,
            ids,
            more: part < parts,
            ..*self
        };
        lists.into_iter().zip(1..).map(message).collect()
    }
}

/// A page of a long list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The number of entries to skip.
    #[serde(default)]
    pub offset: usize,
    /// The most entries to return (default and maximum: 500).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The pool of one auctioneer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which auctioneer.
    pub auctioneer: String,
    /// Its policy's name.
    pub policy: String,
    /// How many cells there are in total.
    pub total: usize,
    /// This page, by name.
    pub cells: Vec<PoolCell>,
    /// Where the next page starts; none if this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
}

/// One cell in the pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolCell {
    /// The cell less this auctioneer's debits.
    pub cell: Cell,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Its ledger's version.
    pub seq: u64,
    /// How long ago its last report arrived.
    pub age_ms: u64,
    /// How much longer that report is valid.
    pub left_ms: u64,
    /// Instances sent to it that its last report does not show yet.
    pub debits: usize,
    /// Whether it is silent: it missed its last bid deadline, and auctions do not wait for it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub silent: bool,
}

/// How many more instances of a size fit, according to one auctioneer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which auctioneer.
    pub auctioneer: String,
    /// Its policy's name.
    pub policy: String,
    /// How many cells were considered.
    pub cells: usize,
    /// The capacity in total and by zone; if none fits, why.
    #[serde(flatten)]
    pub capacity: Capacity,
    /// The work that the auctioneer expects, if its policy has a score that depends on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expected>,
    /// Warnings: unknown fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// The work that an auctioneer expects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// From how many of the last requests it is learnt; 0 if the policy's file gives it.
    pub requests: usize,
    /// The sizes with their shares, the most frequent first.
    pub sizes: Vec<ExpectedSize>,
}

/// Asks why an app was placed where it is, or not at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainRequest {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The app.
    pub app: String,
    /// Whether to decide again over the current pool, naming the cells that each stage dropped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cells: bool,
}

/// The last decisions for an app, newest auction first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The app.
    pub app: String,
    /// Which auctioneer answers.
    pub auctioneer: String,
    /// Those of the last 16 auctions that had jobs of the app.
    pub auctions: Vec<AuctionRecord>,
    /// With `cells`: the app's last jobs (at most 10) decided again over the current pool; each like a decision of a
    /// dry run with `explain` set to `cells`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub now: Vec<DecisionReport>,
}

/// One past auction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuctionRecord {
    /// Its id.
    pub auction: AuctionId,
    /// Its seed: with the same cells the auction can be replayed.
    pub seed: u64,
    /// The policy's name.
    pub policy: String,
    /// How the policy picks the winner: `lowest` (cost), `highest` (score), `sample` (any cell that
    /// its stages leave) or `first-of` (one of the best).
    pub pick: String,
    /// How long ago it was held.
    pub age_ms: u64,
    /// How many cells took part.
    pub cells: usize,
    /// The app's jobs in it.
    pub decisions: Vec<DecisionRecord>,
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionRecord {
    /// The instance's index.
    pub index: u32,
    /// Its outcome: also `unplaced` if the auction placed it and the `cell` refused it (a later auction may have placed
    /// it), and `unknown` if the cell did not answer.
    pub outcome: super::Outcome,
    /// The cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// The devices that it was given there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Box<DeviceShares>>,
    /// The winner's cost, if the lowest wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The winner's score, if the highest wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Why it was not placed, or the cell's reason for refusing it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What each stage dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tally: Vec<Tally>,
}

/// The fields of a dry run besides the start request (or array) under `request`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceExtra {
    /// Leave these cells out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
    /// Add cells: `{"count":3,"like":"z1-cell-0"}`.
    #[serde(
        default,
        deserialize_with = "placement::object::list",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub add_cells: Vec<AddCells>,
    /// `stages` or `cells`: how much to explain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explain: Option<String>,
}

/// The answer to a dry run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlaceAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which auctioneer.
    pub auctioneer: String,
    /// Its policy's name.
    pub policy: String,
    /// The number of cells that were considered.
    pub cells: usize,
    /// One per instance.
    pub decisions: Vec<DecisionReport>,
    /// Warnings: unknown fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// To every auctioneer: asks for the work queued there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueuedRequest {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// This app only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// The most groups to list (default and maximum: 500).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The work queued at one auctioneer, even if there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which auctioneer.
    pub auctioneer: String,
    /// How many instances are queued, including those that are not listed.
    pub count: usize,
    /// By app, then by request.
    pub queued: Vec<QueuedGroup>,
    /// Whether there are more groups than were requested or fit into one message.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// Instances of one request that are queued for the same reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedGroup {
    /// The request.
    pub request: RequestId,
    /// Its app.
    pub app: String,
    /// Long-running or a task.
    pub kind: Kind,
    /// The instances' indices, such as `"2-9"`.
    pub indices: String,
    /// Why they are queued.
    pub reason: String,
    /// What each stage dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tally: Vec<Tally>,
    /// How long ago the request arrived.
    pub waited_ms: u64,
    /// How much longer it stays queued; then it is unplaced.
    pub left_ms: u64,
}

/// Additional empty cells modelled on an existing one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddCells {
    /// How many cells to add.
    pub count: usize,
    /// The cell to copy.
    pub like: String,
}

fn one() -> u32 {
    1
}
