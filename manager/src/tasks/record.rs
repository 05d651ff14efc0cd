//! What is stored of a request: plain data with the number of its format, under its id, in a bucket of its own.

use std::{collections::BTreeMap, sync::Arc};

use placement::{Request, Span};
use serde::{Deserialize, Serialize};
use shared::{BucketId, wire::TaskState};

/// How far a stored request is, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskPhase {
    /// Nothing of it is on its way.
    Waiting,
    /// Its start may have been sent.
    Sent,
    /// A cell has accepted it, or may have.
    Accepted,
    /// It is over: `end` says how.
    Over,
}

/// How a stored request ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEnd {
    /// One of the states in which nothing follows.
    pub state: TaskState,
    /// When, milliseconds since 1970.
    pub ended_ms: u64,
    /// The exit code of its last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended its last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The last of what it wrote; only in the bucket, not in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// It was never started in the time that it had for that.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unplaced: bool,
}

/// A stored request. Times are milliseconds since 1970 by the clock of the manager that wrote them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// [`FORMAT`](crate::FORMAT).
    pub format: u32,
    /// As it was submitted; its id is the key.
    pub request: Arc<Request>,
    /// How often a run that failed is repeated.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// How long a run may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// When it was stored.
    pub submitted_ms: u64,
    /// Since when it waits to be started, or did before its last attempt.
    pub waiting_ms: u64,
    /// How far it is.
    pub phase: TaskPhase,
    /// The managers' bucket whose id the last attempt has in its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketId>,
    /// The last attempt, counted from 1; 0 before the first one.
    #[serde(default)]
    pub attempt: u32,
    /// When the last attempt was begun.
    #[serde(default)]
    pub sent_ms: u64,
    /// Attempts that failed before the command ran.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// Runs that have ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub runs: u32,
    /// The indices that have not been placed; those of the last attempt, once there was one.
    pub left: Vec<u32>,
    /// Instances that were placed, of a request that is no task.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub placed: u32,
    /// Instances of which it is not known whether they run, of a request that is no task.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown: u32,
    /// Indices that were placed as the instances of other requests, by the ids of those: another request for the same
    /// index of the app began in the same moment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shared: BTreeMap<String, Vec<u32>>,
    /// The cell of the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// The cell has not said that it accepted it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub doubtful: bool,
    /// When the last run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// It is to be cancelled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cancelled: bool,
    /// Its run took too long, and is to end.
    #[serde(default, skip_serializing_if = "is_false")]
    pub timed_out: bool,
    /// Why it waits or has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<TaskEnd>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_false(b: &bool) -> bool {
    !*b
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(n: &u32) -> bool {
    *n == 0
}
