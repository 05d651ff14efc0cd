//! Stored requests: tasks, and start requests that must not be lost. They have their own state machine besides that of
//! the apps, under the same lease and over the same messages of cells.
//!
//! A request is stored under its id before it is acknowledged. Each **attempt** to start it has a number that is stored
//! by compare-and-set before the start is sent, and the ids of its instances follow from id and attempt. So only one
//! manager sends it, and cells recognize it when they see it twice.
//!
//! # When it is repeated
//!
//! - A request that found no room was not begun: it waits until there may be room, and its next attempt has a new number.
//! - A run that failed before its command ran is tried again, [`MAX_FAILURES`] times.
//! - An attempt that nobody has answered is sent again, word for word, once every cell has answered with a complete
//!   list, ended instances included, that it is not there. If a cell was lost meanwhile, it may have run there.
//! - A run that failed, was lost with its cell, or may have been lost is repeated only as often as its request says
//!   (`retries`).
//!
//! # How its end is known
//!
//! A cell reports the end of each task of a manager, with its output. Every manager records it, and the acting one
//! stores it. If that message is missed, the exit code is in the cell's lists.
//!
//! | file | |
//! |---|---|
//! | `definition` | what a user stores |
//! | `record` | what is kept in the bucket |
//! | `entry` | a request in memory |
//! | `table` | all of them: their steps, their timers, what the watch shows |
//! | `writes` | what is written to the bucket |
//! | `attempts` | starts: stored, sent, answered, asked for |
//! | `answered` | an answer about several instances |
//! | `room` | what waits, and for what |
//! | `ends`, `losses` | results, lost cells, retries |
//! | `requests` | submissions and cancellations |

mod answered;
mod attempts;
pub(crate) mod definition;
mod ends;
mod entry;
mod losses;
mod record;
mod requests;
mod room;
mod table;
mod writes;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use placement::{FastMap, FastSet};
use shared::{BucketId, InstanceId};

use crate::{ids::WriteId, io::ManagerOutput};
use entry::Entry;
use requests::{Creation, Deleted, PendingTask};
use room::Shape;

pub use attempts::TASK_REPLY_MS;
pub use definition::{MAX_DURABLE_INSTANCES, MAX_STORED, Submitted, TaskDefinition};
pub use ends::{KEPT_MS, MAX_FAILURES};
pub use record::{TaskEnd, TaskPhase, TaskRecord};
pub use requests::{MAX_OPEN, MAX_RESULTS};

/// What the rest of the machine knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Office {
    /// Whether the lease is held and fresh, messages flow, and the bucket is known.
    pub(crate) acts: bool,
    /// The managers' bucket, once it is known.
    pub(crate) bucket: Option<BucketId>,
    /// Whether a ttl has passed since anything may have been missed.
    pub(crate) settled: bool,
    /// Every cell that is here has answered, with a complete list, a question asked at this time or later.
    pub(crate) answered_ms: u64,
}

/// All stored requests.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    now_ms: u64,
    /// By how much the machine's clock is behind the time since 1970.
    unix_offset_ms: u64,
    office: Office,
    entries: BTreeMap<Arc<str>, Entry>,
    /// Number of requests that have not ended.
    open: usize,
    /// Approximate size in memory of all requests, and of those that have not ended.
    bytes: usize,
    open_bytes: usize,
    by_instance: FastMap<InstanceId, Arc<str>>,
    /// The requests that each cell runs.
    by_cell: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    timers: BTreeSet<(u64, Arc<str>)>,
    /// Requests that can be begun, in order.
    ready: BTreeSet<(u64, Arc<str>)>,
    /// Requests that wait for room, by shape.
    no_room: BTreeMap<Arc<str>, Shape>,
    room_ms: u64,
    /// The shape that was last tried.
    last_shape: Option<Arc<str>>,
    /// Number of attempts that are being stored or are with an auctioneer.
    in_flight: usize,
    asking: usize,
    /// Number of lost cells and replaced runs of reps so far.
    losses: u64,
    /// Whether the cells are to be asked.
    wants_lists: bool,
    unsaved: BTreeSet<Arc<str>>,
    save_ms: u64,
    writes: FastMap<WriteId, Arc<str>>,
    /// Number of writes in a row with an unknown result. Nothing new is stored before `refuse_ms`.
    failed_writes: u32,
    refuse_ms: u64,
    /// Attempts that are stored but not sent.
    stored: Vec<(Arc<str>, u32)>,
    /// Results that are being deleted; no others are deleted before `delete_ms`.
    deletions: BTreeMap<WriteId, Arc<str>>,
    deleting: BTreeSet<Arc<str>>,
    delete_ms: u64,
    creations: BTreeMap<WriteId, Creation>,
    /// The ids of the requests being created, and the size that they will have in memory.
    creating: FastSet<String>,
    creating_bytes: usize,
    /// Deleted ids with the revisions of their deletions, which the next write of an id must name.
    deleted: Deleted,
    pending: Vec<PendingTask>,
    /// Requests that have ended, the earliest first.
    over: BTreeSet<(u64, Arc<str>)>,
    last_write: u64,
    out: Vec<ManagerOutput>,
}
