//! Questions: what runs, what the pool holds, what was decided.

use placement::{Capacity, Cell, DecisionReport, Kind, Tally};
use serde::{Deserialize, Serialize};

use super::{Instance, Version, is_false};
use crate::{AuctionId, Incarnation, InstanceId, RequestId};

/// To every cell: what runs. Filters are combined; absent = all.
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
}

/// One cell's answer, also with nothing; large ones come in several messages. Heartbeats have the
/// same body.
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
    /// What it holds.
    pub instances: Vec<Instance>,
    /// More follow in another message.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// A part of a long list.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Skip so many.
    #[serde(default)]
    pub offset: usize,
    /// At most so many (default and most: 500).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The cells as one auctioneer sees them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which auctioneer.
    pub auctioneer: String,
    /// Its policy's name.
    pub policy: String,
    /// How many cells there are in all.
    pub total: usize,
    /// This page, by name.
    pub cells: Vec<PoolCell>,
    /// Where the next page starts; none = this was the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<usize>,
}

/// One cell in the pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolCell {
    /// The cell with this auctioneer's debits taken off.
    pub cell: Cell,
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Its ledger's version.
    pub seq: u64,
    /// How long ago it was heard.
    pub age_ms: u64,
    /// How much longer its word holds.
    pub left_ms: u64,
    /// Instances sent to it that its word does not show yet.
    pub debits: usize,
    /// It missed its last bid deadline and is not waited for.
    #[serde(default, skip_serializing_if = "is_false")]
    pub silent: bool,
}

/// How many more of a size fit, as one auctioneer sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CapacityAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which auctioneer.
    pub auctioneer: String,
    /// Its policy's name.
    pub policy: String,
    /// How many cells were looked at.
    pub cells: usize,
    /// In all and by zone; when none fits, why.
    #[serde(flatten)]
    pub capacity: Capacity,
    /// What the asker should know: fields that do not exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// "Why did it go where it went?"
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExplainRequest {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The app.
    pub app: String,
    /// Judge it again over the pool as it is now, and say what each stage dropped, cells by name.
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
    /// Which auctioneer remembers.
    pub auctioneer: String,
    /// Auctions that dealt with the app, of the last 16.
    pub auctions: Vec<AuctionRecord>,
    /// Where `cells` was asked for: the app's last jobs (at most 10) judged again over the pool as
    /// it is now; each like a decision of a dry run that explains `cells`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub now: Vec<DecisionReport>,
}

/// One auction as it is remembered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuctionRecord {
    /// Its id.
    pub auction: AuctionId,
    /// Its seed: with the same cells it can be replayed.
    pub seed: u64,
    /// The policy's name.
    pub policy: String,
    /// How the policy picks the winner: `lowest` (cost), `highest` (score), `sample` (any cell that
    /// its stages leave) or `first-of` (one of the best).
    pub pick: String,
    /// How long ago.
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
    /// What became of it: `unplaced` also when the auction placed it and the `cell` refused it
    /// (then a later auction may have placed it), `unknown` when that did not answer.
    pub outcome: super::Outcome,
    /// Where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// The winner's cost, where the lowest wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The winner's score, where the highest wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Why not, also in the cell's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What each stage dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tally: Vec<Tally>,
}

/// What a dry run may say beside the start request (or array) under `request`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceExtra {
    /// As if these cells were not there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<String>,
    /// As if there were more cells: `{"count":3,"like":"z1-cell-0"}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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
    /// How many cells the decisions were made over.
    pub cells: usize,
    /// One for each instance.
    pub decisions: Vec<DecisionReport>,
    /// What the asker should know: fields that do not exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// To every auctioneer: which work waits there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueuedRequest {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// This app only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// At most so many groups (default and most: 500).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The work that waits at one auctioneer, also when there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueuedAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which auctioneer.
    pub auctioneer: String,
    /// How many instances wait, also those that are not listed.
    pub count: usize,
    /// By app, then by request.
    pub queued: Vec<QueuedGroup>,
    /// Not all are listed: more groups wait than were asked for or fit into one message.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// Instances of one request that wait for the same reason.
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
    /// Why they wait.
    pub reason: String,
    /// What each stage dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tally: Vec<Tally>,
    /// How long ago the request came in.
    pub waited_ms: u64,
    /// How much longer it may wait; then it is unplaced.
    pub left_ms: u64,
}

/// More cells like one that is there, empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddCells {
    /// How many.
    pub count: usize,
    /// Like this one.
    pub like: String,
}
