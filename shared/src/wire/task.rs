//! Tasks and other start requests that managers have stored: requests about them, managers' answers, and what cells
//! report about their ends.

use placement::Kind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::is_false;
use crate::{
    ids::{InstanceId, RequestId},
    version::Version,
};

/// How much of a run's output is kept, in bytes, counted from its end.
pub const MAX_TASK_OUTPUT: usize = 10 * 1024;

/// Returns the last [`MAX_TASK_OUTPUT`] bytes of an output: cells are not trusted to send a short one.
pub fn last_of_output(mut output: String) -> String {
    let from = output.len().saturating_sub(MAX_TASK_OUTPUT);
    let from = (from..=output.len()).find(|at| output.is_char_boundary(*at));
    output.drain(..from.unwrap_or_default());
    output
}

/// The state of a stored request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    /// It is stored and waits for room or its next attempt.
    Waiting,
    /// It was sent to an auctioneer.
    Starting,
    /// A cell has accepted it.
    Running,
    /// Its command ended with exit code 0.
    Succeeded,
    /// Every instance of a request that is no task was placed.
    Placed,
    /// It was not started in time, its last run failed, or how that ended is unknown.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl TaskState {
    /// Returns whether it is final.
    pub fn is_over(self) -> bool {
        self >= Self::Succeeded
    }
}

impl std::fmt::Display for TaskState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Placed => "placed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

/// A stored request as a manager sees it. Times are in milliseconds since 1970 by the managers' clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// The id under which it is stored.
    pub id: String,
    /// Its app.
    pub app: String,
    /// A task, or instances that are only started.
    pub kind: Kind,
    /// Its state.
    pub state: TaskState,
    /// The cell of its last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// How often it was started, including starts that failed before its command ran.
    pub attempts: u32,
    /// How many instances were placed, for a request that is no task.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub placed: u32,
    /// When it was stored.
    pub submitted_ms: u64,
    /// When its last run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<u64>,
    /// When it became final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_ms: Option<u64>,
    /// The exit code of its last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended its last run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether it is to be cancelled.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cancelled: bool,
    /// Whether it was never started within the time allowed for that.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unplaced: bool,
    /// Why it waits or has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The answer to `run`, `submit` and `cancel`, once the bucket has acknowledged it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStored {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which manager.
    pub manager: String,
    /// Whether anything changed: a repeat changes nothing.
    pub changed: bool,
    /// The task.
    pub task: TaskStatus,
}

/// The answer to `show` and `result`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskShown {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which manager.
    pub manager: String,
    /// Whether it holds the lease.
    pub acting: bool,
    /// The task.
    pub task: TaskStatus,
    /// `result` only: the last 10 KiB of its last run's output; none if no manager has heard it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

/// `list`; an empty body asks for the first page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskList {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Only tasks of this app.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// Only these, as far as known; at most 1,000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<String>,
    /// Only those after this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The most tasks to list (default and maximum: 500).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// The answer to `list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskListed {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which manager.
    pub manager: String,
    /// Whether it holds the lease.
    pub acting: bool,
    /// How many tasks it knows.
    pub total: usize,
    /// In the order of their ids.
    pub tasks: Vec<TaskStatus>,
    /// The `after` of the next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// What a cell reports about the end of a task that a manager started, or that staged an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResult {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The cell.
    pub cell: String,
    /// The instance.
    pub instance: InstanceId,
    /// The start request.
    pub request: RequestId,
    /// Its exit code, if it ended by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// How it ended, such as `exit 1`.
    pub ended: String,
    /// Whether it was stopped on request.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stopped: bool,
    /// Whether its command may have run: false only if it certainly has not.
    pub began: bool,
    /// How long it ran, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_ms: Option<u64>,
    /// The last 10 KiB of its standard output and standard error, in the order in which the cell read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The content of the file `result.json` left by the staging of an app; at most 32 KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Map<String, Value>>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(n: &u32) -> bool {
    *n == 0
}
