//! The stored form of a request: plain data with the number of its format, under its id, in a bucket of its own.

use std::{collections::BTreeMap, sync::Arc};

use placement::{Request, Span};
use serde::{Deserialize, Serialize};
use shared::{BucketId, wire::TaskState};

/// The stored phase of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskPhase {
    /// Nothing of it is in flight.
    Waiting,
    /// Its start may have been sent.
    Sent,
    /// A cell has accepted it, or may have.
    Accepted,
    /// It has ended; `end` says how.
    Over,
}

/// How a stored request ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEnd {
    /// One of the final states.
    pub state: TaskState,
    /// When it ended, in milliseconds since 1970.
    pub ended_ms: u64,
    /// The exit code of its last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended its last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The end of its output; only in the bucket, not in memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Whether it was never started within its time.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unplaced: bool,
}

/// A stored request. Times are milliseconds since 1970 by the clock of the manager that wrote them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskRecord {
    /// [`FORMAT`](crate::FORMAT).
    pub format: u32,
    /// The request as submitted; its id is the key.
    pub request: Arc<Request>,
    /// How often a run that failed is repeated.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub retries: u32,
    /// How long a run may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Span>,
    /// When it was stored.
    pub submitted_ms: u64,
    /// Since when it has been waiting to be started, or had been before its last attempt.
    pub waiting_ms: u64,
    /// Its phase.
    pub phase: TaskPhase,
    /// The managers' bucket whose id is part of the last attempt's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketId>,
    /// The number of the last attempt, counted from 1; 0 before the first one.
    #[serde(default)]
    pub attempt: u32,
    /// When the last attempt was begun.
    #[serde(default)]
    pub sent_ms: u64,
    /// Number of attempts that failed before the command ran.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// Number of runs that have ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub runs: u32,
    /// The indices that have not been placed; once there was an attempt, those of the last one.
    pub left: Vec<u32>,
    /// Number of instances that were placed, for a request that is not a task.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub placed: u32,
    /// Number of instances that may or may not run, for a request that is not a task.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown: u32,
    /// Indices that were placed as instances of other requests, by the ids of those: another request for the same index
    /// of the app began at the same moment.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub shared: BTreeMap<String, Vec<u32>>,
    /// The cell of the last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// Whether the cell has yet to say that it accepted it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub doubtful: bool,
    /// When the last run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// Whether it is to be cancelled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cancelled: bool,
    /// Whether its run took too long and is to end.
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
