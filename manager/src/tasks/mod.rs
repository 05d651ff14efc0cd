//! Stored requests: tasks, and start requests that must not be lost. A state machine of its own beside that of the
//! apps, under the same lease and over the same messages of cells.
//!
//! A request is stored under its id before it is acknowledged. Each **attempt** to start it has a number that is stored
//! by compare-and-set before the start is sent, and its instances' ids follow from id and attempt, so that only one
//! manager sends it, and cells know it when they see it twice.
//!
//! # When it is repeated
//!
//! - What found no room was not begun: it waits until there may be room, and its next attempt has another number.
//! - What failed before its command ran is tried again, [`MAX_FAILURES`] times.
//! - An attempt that nobody has answered is sent again, word for word, once every cell has answered with a complete
//!   list, ended instances included, that it is not there. If a cell was lost meanwhile, it may have run there.
//! - A run that failed, was lost with its cell, or may have been lost is repeated only as often as its request says
//!   (`retries`).
//!
//! # How its end is known
//!
//! A cell tells the end of each task of a manager with its output. Every manager takes note, and who acts stores it.
//! Where that message is missed the lists of the cell have the exit code.
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
//! | `ends`, `losses` | results, cells that are lost, retries |
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
    /// The lease is held and fresh, messages flow, and the bucket is known.
    pub(crate) acts: bool,
    /// The managers' bucket, once it is known.
    pub(crate) bucket: Option<BucketId>,
    /// A ttl has passed since anything may have been missed.
    pub(crate) settled: bool,
    /// Every cell that is here has answered a question that was asked then or later with a complete list.
    pub(crate) answered_ms: u64,
}

/// All stored requests.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    now_ms: u64,
    /// What the time of the machine's clock is behind that since 1970.
    unix_offset_ms: u64,
    office: Office,
    entries: BTreeMap<Arc<str>, Entry>,
    /// Those that are not over.
    open: usize,
    /// About what all take in memory, and those that are not over.
    bytes: usize,
    open_bytes: usize,
    by_instance: FastMap<InstanceId, Arc<str>>,
    /// What each cell runs.
    by_cell: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    timers: BTreeSet<(u64, Arc<str>)>,
    /// What can be begun, in its order.
    ready: BTreeSet<(u64, Arc<str>)>,
    /// What waits for room, by shape.
    no_room: BTreeMap<Arc<str>, Shape>,
    room_ms: u64,
    /// The last shape that was tried.
    last_shape: Option<Arc<str>>,
    /// Attempts that are being stored, or that an auctioneer has.
    in_flight: usize,
    asking: usize,
    /// Cells lost so far, and runs of reps that others followed.
    losses: u64,
    /// The cells are to be asked.
    wants_lists: bool,
    unsaved: BTreeSet<Arc<str>>,
    save_ms: u64,
    writes: FastMap<WriteId, Arc<str>>,
    /// Writes in a row of which it is not known whether they were done. Nothing new is stored before this time.
    failed_writes: u32,
    refuse_ms: u64,
    /// Attempts that are stored and not sent.
    stored: Vec<(Arc<str>, u32)>,
    /// Results that are being deleted; no others are before this time.
    deletions: BTreeMap<WriteId, Arc<str>>,
    deleting: BTreeSet<Arc<str>>,
    delete_ms: u64,
    creations: BTreeMap<WriteId, Creation>,
    /// The ids of these, and what they will take in memory.
    creating: FastSet<String>,
    creating_bytes: usize,
    /// Deleted ids, with the revisions of that, which the next write of the id replaces.
    deleted: Deleted,
    pending: Vec<PendingTask>,
    /// What is over, the first first.
    over: BTreeSet<(u64, Arc<str>)>,
    last_write: u64,
    out: Vec<ManagerOutput>,
}
