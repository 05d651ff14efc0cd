//! Messages to one cell, and its answers.

use std::{collections::BTreeMap, sync::Arc};

use placement::{DeviceShares, Form, HealthCheck, Kind, Resources, Run, Span, Usage};
use serde::{Deserialize, Serialize};

use super::{WireError, parse_strict};
use crate::version::Version;
use crate::{
    attempt::AttemptId,
    clock::CellTime,
    ids::{AuctionId, Incarnation, InstanceId, RequestId},
    subjects::LogSubject,
};

/// Reasons why a cell refuses an instance. For lack of resources the reason is `insufficient resources: …`.
pub mod reason {
    /// The start arrived after it had expired.
    pub const STALE: &str = "stale";
    /// The start was meant for an earlier incarnation.
    pub const RESTARTED: &str = "restarted";
    /// The cell has more instances of the app than the auctioneer expected.
    pub const CHANGED: &str = "changed";
    /// The cell takes no new work: it drains.
    pub const DRAINING: &str = "draining";
    /// The cell takes no new work: it is cordoned.
    pub const CORDONED: &str = "cordoned";
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
    /// The incarnation that it is meant for; another one refuses it as `restarted`.
    pub incarnation: Incarnation,
    /// A time on the cell's own clock, after which the cell refuses it as `stale`.
    pub expires_ms: CellTime,
    /// The instances.
    pub work: Vec<Work>,
}

/// One instance to start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Its id. A start with an id that the cell already has is a repeat.
    pub instance: InstanceId,
    /// LRP or task.
    #[serde(default)]
    pub kind: Kind,
    /// The app.
    pub app: String,
    /// Its index.
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
    /// The devices that it gets, chosen by the auctioneer; the cell refuses it if one of them has too little free. An
    /// entry without numbers means that it asks for some, but none was free.
    #[serde(
        default,
        deserialize_with = "placement::object::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub devices: DeviceShares,
    /// Its owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The request that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// The request's version of the app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The trace that the request belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// How many instances of the app the auctioneer expects on the cell before this one; a cell that has more refuses
    /// it as `changed`. Absent means not to check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub believed: Option<u32>,
    /// What to execute; without it only a simulated executor can start it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<Arc<Run>>,
    /// How to check that it is healthy; absent means that its process exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Arc<HealthCheck>>,
    /// How to check that it is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Arc<HealthCheck>>,
    /// The auction with which its request was begun; absent means this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<AuctionId>,
}

impl Work {
    /// Returns whether its cell publishes its end as a [`TaskResult`](super::TaskResult): for a task that a manager
    /// started, or the staging of an app.
    pub fn has_result(&self) -> bool {
        let attempt = |id: &RequestId| AttemptId::parse(id.as_str()).is_some();
        let of_manager = self.request.as_ref().is_some_and(attempt);
        self.kind == Kind::Task && (of_manager || self.is_staging())
    }

    /// Returns whether it stages an app.
    pub fn is_staging(&self) -> bool {
        let run = self.run.as_ref();
        run.is_some_and(|run| run.form() == Form::Staging)
    }

    /// Creates an LRP with index 0 and this memory and disk in MiB, which asks for nothing else and executes nothing.
    pub fn new(instance: InstanceId, app: impl Into<String>, memory_mb: i64, disk_mb: i64) -> Self {
        Self {
            instance,
            kind: Kind::Lrp,
            app: app.into(),
            index: 0,
            memory_mb,
            disk_mb,
            cpu_millis: 0,
            extra: BTreeMap::new(),
            devices: BTreeMap::new(),
            owner: None,
            request: None,
            version: None,
            traceparent: None,
            tags: BTreeMap::new(),
            believed: None,
            run: None,
            health: None,
            ready: None,
            claim: None,
        }
    }
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
    /// The ledger's version after this start.
    pub seq: u64,
    /// What is available after this start.
    pub available: Resources,
    /// How many instances of each app of this work the cell now has.
    pub apps: BTreeMap<String, u32>,
    /// Instances accepted now or before.
    pub accepted: Vec<InstanceId>,
    /// Instances that were not accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refusal>,
}

/// One instance that a cell did not accept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// Its id.
    pub instance: InstanceId,
    /// One of [`reason`], or `insufficient resources: …`.
    pub reason: String,
    /// How much was needed of the first resource that is short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<i64>,
    /// How much of it was available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub has: Option<i64>,
}

/// An instance's state on its cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceState {
    /// Reserved, not yet running.
    Starting,
    /// Running.
    Running,
    /// Crashed; it will be restarted on this cell.
    Restarting,
    /// Being stopped: not all of its processes have ended.
    Stopping,
    /// Ended with exit code 0, or stopped.
    Exited,
    /// Failed, and not restarted.
    Crashed,
}

/// One instance, as its cell reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// Its id.
    pub instance: InstanceId,
    /// Its app.
    pub app: String,
    /// Its index.
    pub index: u32,
    /// LRP or task.
    #[serde(default)]
    pub kind: Kind,
    /// The request that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// The tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The version of the app, as the request named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its state.
    pub state: InstanceState,
    /// How long it has been in that state.
    pub age_ms: u64,
    /// MiB reserved.
    pub memory_mb: i64,
    /// MiB reserved.
    pub disk_mb: i64,
    /// The devices that it has.
    #[serde(
        default,
        deserialize_with = "placement::object::map",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub devices: DeviceShares,
    /// The address where it can be reached, if it asked for a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Its process id on the cell's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Whether it is ready, if its request has a readiness check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// What it was last measured to use; none if its cell does not measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// How often it was restarted on this cell.
    #[serde(default)]
    pub restarts: u32,
    /// How it ended, in words: `exit 1`, `signal 9`, `over its memory limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The exit code with which it last ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The number of the signal by which it last ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The claim with which it was started: the lowest, if it was sent here with several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<AuctionId>,
}

impl Instance {
    /// Creates an LRP that has just entered this state, and of which nothing else is known.
    pub fn new(
        instance: InstanceId,
        app: impl Into<String>,
        index: u32,
        state: InstanceState,
    ) -> Self {
        Self {
            instance,
            app: app.into(),
            index,
            kind: Kind::Lrp,
            request: None,
            owner: None,
            version: None,
            state,
            age_ms: 0,
            memory_mb: 0,
            disk_mb: 0,
            devices: DeviceShares::new(),
            address: None,
            port: None,
            pid: None,
            ready: None,
            usage: None,
            restarts: 0,
            ended: None,
            exit_code: None,
            signal: None,
            claim: None,
        }
    }
}

/// To one cell: change attributes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CellSet {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Attributes by name (`rack`, `traits.ssd`); null restores the configured value.
    pub set: BTreeMap<String, serde_json::Value>,
}

/// The answer to [`CellSet`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellSetAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The cell.
    pub cell: String,
    /// The ledger's version with the change.
    pub seq: u64,
    /// Everything that operators have changed.
    pub changed: BTreeMap<String, serde_json::Value>,
    /// Whether the changes survive a restart.
    pub kept: bool,
}

/// To one cell: accept no new work, and stop the instances after the deadline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drain {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// How long instances may continue; `"0s"` stops them at once.
    #[serde(default)]
    pub deadline: Option<Span>,
    /// Whether the rep ends when nothing is left; otherwise it stays until it is uncordoned.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub exit: bool,
}

impl Drain {
    /// Parses a drain; without a deadline, the cell's own applies. A misspelt deadline is an error, and so is an empty
    /// body, which may have been meant for something else.
    pub fn read(body: &[u8]) -> Result<Self, WireError> {
        parse_strict(body, "deadline or exit")
    }
}

/// The cell is draining.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DrainAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The cell.
    pub cell: String,
    /// How many instances are still there.
    pub instances: usize,
    /// How many of them a manager replaces and stops.
    #[serde(default)]
    pub managed: usize,
    /// How many of them are tasks, which may end by themselves before the deadline.
    #[serde(default)]
    pub tasks: usize,
    /// When the instances will be stopped, from now.
    pub deadline: Span,
    /// Whether the rep ends when nothing is left.
    #[serde(default)]
    pub exit: bool,
    /// Whether the cell stays out of service after a restart.
    #[serde(default)]
    pub kept: bool,
}

/// To one cell: accept no new work and keep what runs, or accept work again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cordon {
    /// 1.
    #[serde(default)]
    pub v: Version,
}

impl Cordon {
    /// Parses it. An empty body is an error, because it may have been meant for something else.
    pub fn read(body: &[u8]) -> Result<Self, WireError> {
        parse_strict(body, "v")
    }
}

/// The answer to [`Cordon`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CordonAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The cell.
    pub cell: String,
    /// Whether it accepts no new work now.
    pub cordoned: bool,
    /// How many instances it runs.
    pub instances: usize,
    /// Whether this survives a restart.
    pub kept: bool,
}

/// To one cell: asks for the last lines of an app's output.
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
    /// The most lines per instance (default 100).
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

/// One line of output; also the message on the log subject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The app.
    pub app: String,
    /// Its index.
    pub index: u32,
    /// The instance's id.
    #[serde(default = "InstanceId::nil")]
    pub instance: InstanceId,
    /// When the cell read it, by the wall clock of its machine, in milliseconds since 1970, UTC.
    #[serde(default)]
    pub time_ms: u64,
    /// The cell.
    pub cell: String,
    /// `stdout`, `stderr`, or `vendue` for lines of the rep.
    pub stream: String,
    /// The line, without its end; at most 4 KiB.
    pub text: String,
    /// Lines dropped before this one because there were too many.
    #[serde(default, skip_serializing_if = "is_zero_u")]
    pub dropped: u64,
    /// Its age.
    #[serde(default)]
    pub age_ms: u64,
    /// The trace that the instance's request belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

impl LogLine {
    /// Returns whether the body names the same sender and instance as the subject.
    pub fn agrees_with(&self, subject: LogSubject<'_>) -> bool {
        self.cell == subject.cell
            && self.app == subject.app
            && subject.index.parse() == Ok(self.index)
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(n: &i64) -> bool {
    *n == 0
}
#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero_u(n: &u64) -> bool {
    *n == 0
}
