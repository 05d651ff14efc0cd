//! Events: one message per app and auction instead of one per instance.

use std::collections::BTreeMap;

use placement::{Span, Tally};
use serde::{Deserialize, Serialize};

use crate::version::{VERSION, Version};
use crate::{
    ids::{AuctionId, InstanceId, RequestId},
    subjects::EventSubject,
};

/// The kinds of events.
pub mod kind {
    /// A request has arrived.
    pub const ASKED: &str = "asked";
    /// A request was rejected.
    pub const REJECTED: &str = "rejected";
    /// Cells accepted instances.
    pub const PLACED: &str = "placed";
    /// Instances are queued.
    pub const QUEUED: &str = "queued";
    /// Instances are unplaced.
    pub const UNPLACED: &str = "unplaced";
    /// A cell refused instances; they enter the next auction.
    pub const REFUSED: &str = "refused";
    /// Instances were sent to a cell that did not answer.
    pub const UNKNOWN: &str = "unknown";
    /// An instance is running.
    pub const RUNNING: &str = "running";
    /// An instance is ready to be used.
    pub const READY: &str = "ready";
    /// An instance is no longer ready; `reason` says which check failed.
    pub const NOT_READY: &str = "not-ready";
    /// An instance ended by itself with exit code 0.
    pub const EXITED: &str = "exited";
    /// An instance failed; `reason` says whether it will be restarted.
    pub const CRASHED: &str = "crashed";
    /// An instance was restarted on its cell.
    pub const RESTARTED: &str = "restarted";
    /// An instance was stopped on request.
    pub const STOPPED: &str = "stopped";
    /// A cell advertised for the first time.
    pub const CELL_JOINED: &str = "cell-joined";
    /// A cell withdrew, or its advertisement expired.
    pub const CELL_LOST: &str = "cell-lost";
    /// A cell is draining.
    pub const CELL_DRAINING: &str = "cell-draining";
    /// An index crashed too often and is not restarted.
    pub const GIVEN_UP: &str = "app-given-up";
    /// A rollout was completed.
    pub const ROLLOUT_DONE: &str = "rollout-done";
    /// A rollout failed.
    pub const ROLLOUT_FAILED: &str = "rollout-failed";
    /// More instances should be stopped than is safe at once.
    pub const STOP_BRAKE: &str = "stop-brake";
    /// So many cells are silent that the network may be the cause: the manager waits for another ttl.
    pub const MANY_CELLS_SILENT: &str = "many-cells-silent";
    /// The stored state is older than what runs.
    pub const WENT_BACK: &str = "desired-state-went-back";
    /// The bucket has been replaced by another one.
    pub const BUCKET_CHANGED: &str = "bucket-changed";
    /// A stored value has a newer format: the manager does nothing.
    pub const NEWER_FORMAT: &str = "newer-format";
    /// A stored value cannot be read: its app is left alone.
    pub const UNREADABLE: &str = "unreadable-state";
    /// A stored request is over; `reason` says how.
    pub const TASK_ENDED: &str = "task-ended";

    /// A cell takes no new work, and keeps what runs.
    pub const CELL_CORDONED: &str = "cell-cordoned";
    /// A cell that was cordoned or drained takes work again.
    pub const CELL_UNCORDONED: &str = "cell-uncordoned";

    /// The kinds that cells publish.
    pub const OF_CELLS: [&str; 10] = [
        RUNNING,
        READY,
        NOT_READY,
        EXITED,
        CRASHED,
        RESTARTED,
        STOPPED,
        CELL_DRAINING,
        CELL_CORDONED,
        CELL_UNCORDONED,
    ];
    /// The kinds that auctioneers publish.
    pub const OF_AUCTIONEERS: [&str; 9] = [
        ASKED,
        REJECTED,
        PLACED,
        QUEUED,
        UNPLACED,
        REFUSED,
        UNKNOWN,
        CELL_JOINED,
        CELL_LOST,
    ];
    /// The kinds that managers publish.
    pub const OF_MANAGERS: [&str; 10] = [
        GIVEN_UP,
        ROLLOUT_DONE,
        ROLLOUT_FAILED,
        STOP_BRAKE,
        MANY_CELLS_SILENT,
        WENT_BACK,
        BUCKET_CHANGED,
        NEWER_FORMAT,
        UNREADABLE,
        TASK_ENDED,
    ];
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// One of [`kind`].
    pub kind: String,
    /// The cell or auctioneer that publishes it: the last token of its subject.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// When it was published, by the clock of the sender's machine (RFC 3339, UTC).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub time: String,
    /// The app that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app: Option<String>,
    /// The cell that it is about or comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// The request's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// The requests' ids, if there are several (`asked` only).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestId>,
    /// The auction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auction: Option<AuctionId>,
    /// How many instances it is about.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub count: usize,
    /// Their indices, such as `"0-4"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub indices: Option<String>,
    /// The instances; the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<EventInstance>,
    /// `cell-lost`: the long-running instances that the cell had, by app.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub apps: BTreeMap<String, u32>,
    /// `cell-lost`: the tasks that the cell had.
    #[serde(default, skip_serializing_if = "is_none")]
    pub tasks: u32,
    /// `cell-lost`: whether there were more apps than `apps` has room for; `count` includes all.
    #[serde(default, skip_serializing_if = "super::is_false")]
    pub more: bool,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What each stage dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tally: Vec<Tally>,
}

/// One instance in an event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventInstance {
    /// Its index.
    pub index: u32,
    /// Its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<InstanceId>,
    /// Its cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// Its port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// How often it was restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts: Option<u32>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Whether it has ended and is not restarted on its cell.
    #[serde(default, rename = "final", skip_serializing_if = "super::is_false")]
    pub is_final: bool,
    /// How long it had run when it ended; none if it never ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Span>,
    /// The trace that its request belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// Returns the time of this machine's clock in the format of events (RFC 3339, UTC).
pub fn time_now() -> String {
    humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string()
}

impl Event {
    /// Creates an event of this kind about an app.
    pub fn app(kind: &str, app: impl Into<String>) -> Self {
        Self {
            v: VERSION,
            kind: kind.into(),
            app: Some(app.into()),
            ..Self::default()
        }
    }

    /// Creates an event of this kind about a cell.
    pub fn cell(kind: &str, cell: impl Into<String>) -> Self {
        Self {
            v: VERSION,
            kind: kind.into(),
            cell: Some(cell.into()),
            ..Self::default()
        }
    }

    /// Sets the sender, and the current time. State machines know no wall time, so their shells set it.
    pub fn stamp(&mut self, by: &str) {
        self.stamp_at(by, &time_now());
    }

    /// Sets the sender and the time, in the format of [`time_now`].
    pub fn stamp_at(&mut self, by: &str, time: &str) {
        by.clone_into(&mut self.by);
        time.clone_into(&mut self.time);
    }

    /// Returns whether the body names the same sender, kind and app or cell as the subject. An event of a cell about an
    /// app also names the cell in its body.
    pub fn agrees_with(&self, subject: EventSubject<'_>) -> bool {
        let cell = match &self.app {
            Some(_) => self.cell.as_deref(),
            None => None,
        };
        self.by == subject.by
            && self.kind == subject.kind
            && self.about() == subject.about
            && cell.is_none_or(|cell| cell == subject.by)
    }

    /// Returns what the subject names: the app, or else the cell.
    pub fn about(&self) -> &str {
        self.app
            .as_deref()
            .or(self.cell.as_deref())
            .unwrap_or("unnamed")
    }
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(n: &usize) -> bool {
    *n == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_none(n: &u32) -> bool {
    *n == 0
}
