//! What goes to one cell and comes back from it.

use std::{collections::BTreeMap, sync::Arc};

use placement::{Kind, Resources, Run, Span};
use serde::{Deserialize, Serialize};

use super::{Version, WireError, parse_strict};
use crate::{AuctionId, Incarnation, InstanceId, clock::CellTime};

/// Why a cell refuses an instance. Lack of room says `insufficient resources: …`.
pub mod reason {
    /// The start came after its time.
    pub const STALE: &str = "stale";
    /// The start was meant for an earlier incarnation.
    pub const RESTARTED: &str = "restarted";
    /// The cell holds more of the app than the auctioneer believed.
    pub const CHANGED: &str = "changed";
    /// The cell takes no new work.
    pub const DRAINING: &str = "draining";
    /// The instance was stopped before it was started.
    pub const STOPPED: &str = "stopped";
}

/// Work for one cell, from one auction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellStart {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The auction.
    pub auction: AuctionId,
    /// Whom it is meant for: another incarnation refuses `restarted`.
    pub incarnation: Incarnation,
    /// On the cell's own clock; past it the cell refuses `stale`.
    pub expires_ms: CellTime,
    /// The instances.
    pub work: Vec<Work>,
}

/// One instance to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// The same id is the same work.
    pub instance: InstanceId,
    /// LRP or task.
    #[serde(default)]
    pub kind: Kind,
    /// The app.
    pub app: String,
    /// Which instance of it.
    pub index: u32,
    /// MiB.
    pub memory_mb: i64,
    /// MiB.
    pub disk_mb: i64,
    /// Thousandths of a core.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cpu_millis: i64,
    /// Named resources.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, i64>,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// How many of the app the auctioneer thinks the cell has before this one; with more, the cell
    /// refuses `changed`. Absent = do not check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub believed: Option<u32>,
    /// What to execute; without it only a simulated executor can start it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Arc<Run>>,
}

/// A cell's answer to [`CellStart`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Acceptance {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The cell.
    pub cell: String,
    /// The cell's incarnation.
    pub incarnation: Incarnation,
    /// The ledger's version after this.
    pub seq: u64,
    /// What is left.
    pub available: Resources,
    /// How many of each app in this work the cell holds now.
    pub apps: BTreeMap<String, u32>,
    /// Taken (or held already).
    pub accepted: Vec<InstanceId>,
    /// Not taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refusal>,
}

/// One instance that a cell did not take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// Which.
    pub instance: InstanceId,
    /// One of [`reason`], or `insufficient resources: …`.
    pub reason: String,
    /// What was needed of the first thing lacking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<i64>,
    /// What there was of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<i64>,
}

/// An instance's state on its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceState {
    /// Promised, not yet running.
    Starting,
    /// Running.
    Running,
    /// Crashed, and waiting to be started again here.
    Restarting,
    /// Told to stop, not yet gone.
    Stopping,
    /// A task that ended well; an LRP that ended by itself and well.
    Exited,
    /// Ended badly, for good.
    Crashed,
}

/// One instance as its cell tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// Its id.
    pub instance: InstanceId,
    /// Its app.
    pub app: String,
    /// Which instance of it.
    pub index: u32,
    /// LRP or task.
    #[serde(default)]
    pub kind: Kind,
    /// Its state.
    pub state: InstanceState,
    /// How long it has been in that state.
    pub age_ms: u64,
    /// MiB promised.
    pub memory_mb: i64,
    /// MiB promised.
    pub disk_mb: i64,
    /// Where it can be reached, when it asked for a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The process on its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// How often it was started again here.
    #[serde(default)]
    pub restarts: u32,
    /// How it ended, in words: `exit 1`, `signal 9`, `over its memory limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The exit code with which it ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The number of the signal by which it ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// "Say this of yourself from now on."
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CellSet {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Attributes by name (`rack`, `traits.ssd`); null = as configured.
    pub set: BTreeMap<String, serde_json::Value>,
}

/// The cell says it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellSetAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The cell.
    pub cell: String,
    /// The ledger's version from which on it says so.
    pub seq: u64,
    /// Everything that operators have changed.
    pub changed: BTreeMap<String, serde_json::Value>,
    /// Whether that survives a restart.
    pub kept: bool,
}

/// "Take no new work, and stop what runs after the deadline."
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drain {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Until when instances may go on; `"0s"` stops them at once.
    #[serde(default)]
    pub deadline: Option<Span>,
}

impl Drain {
    /// Reads a drain from the wire; no body = the cell's own deadline. A misspelt deadline is an
    /// error.
    pub fn read(body: &[u8]) -> Result<Self, WireError> {
        let body = if body.is_empty() { b"{}" } else { body };
        parse_strict(body, "deadline")
    }
}

/// The cell drains.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DrainAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The cell.
    pub cell: String,
    /// Instances still there.
    pub instances: usize,
    /// When they will be stopped, from now.
    pub deadline: Span,
}

/// The last lines of an app's output on one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Logs {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The app.
    pub app: String,
    /// Instances with this index only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// This instance only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceId>,
    /// Lines of at most this age only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Span>,
    /// How many lines of each instance at most (default 100).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<usize>,
}

/// The answer to [`Logs`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogsAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The cell.
    pub cell: String,
    /// Oldest first.
    pub lines: Vec<LogLine>,
}

/// One line of output; also what is published on the log subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The app.
    pub app: String,
    /// Which instance of it.
    pub index: u32,
    /// The instance's id.
    #[serde(default = "InstanceId::nil")]
    pub instance: InstanceId,
    /// When the cell read it, by the clock of its machine: milliseconds since 1970, UTC.
    #[serde(default)]
    pub time_ms: u64,
    /// On which cell.
    pub cell: String,
    /// `stdout`, `stderr`, or `vendue` for what the cell says of it.
    pub stream: String,
    /// The line, without its end; at most 4 KiB.
    pub text: String,
    /// Lines dropped before this one because there were too many.
    #[serde(default, skip_serializing_if = "is_zero_u")]
    pub dropped: u64,
    /// How long ago.
    #[serde(default)]
    pub age_ms: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(n: &i64) -> bool {
    *n == 0
}
#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero_u(n: &u64) -> bool {
    *n == 0
}
