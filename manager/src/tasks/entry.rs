//! One stored request in memory.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use placement::{Kind, Request};
use shared::{
    AttemptId, InstanceId,
    clock::millis,
    wire::{TaskResult, TaskState, TaskStatus, instance_id},
};

use super::record::{TaskPhase, TaskRecord};
use crate::ids::{CommandKey, Revision, WriteId};

/// What is not started within this time has failed, unless its request has another `queue_timeout`.
pub(crate) const START_WITHIN_MS: u64 = 1_800_000;

/// Where a stored request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is begun when its turn comes, not before this.
    Waiting { due_ms: u64 },
    /// It found no room, and waits for some.
    NoRoom,
    /// Its next attempt is being stored.
    Storing,
    /// The start was sent, or may have been; the cells are asked at this time if nobody has answered.
    Sent { ask_ms: u64 },
    /// The cells are to answer a question that was asked then or later.
    Asking { asked_ms: u64 },
    /// A cell has accepted it. A complete list without it, asked for then or later, proves that it is not there.
    Accepted { proof_ms: u64 },
    /// It is over.
    Over,
}

impl Step {
    /// Whether an auctioneer has it.
    pub(super) fn in_flight(self) -> bool {
        matches!(self, Self::Storing | Self::Sent { .. })
    }

    pub(super) fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting { .. } | Self::NoRoom)
    }
}

/// What is being stored.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    pub(super) write: WriteId,
    pub(super) value: Bytes,
    /// It says that the request is to be cancelled.
    pub(super) cancelled: bool,
    /// It begins this attempt, which is sent once it is stored.
    pub(super) begins: Option<u32>,
    /// The watch has shown it: it is stored, whatever is answered.
    pub(super) shown: bool,
}

/// A stored request.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// When it was stored: the order of the queue.
    pub(super) order: u64,
    pub(super) record: TaskRecord,
    pub(super) revision: Revision,
    pub(super) step: Step,
    /// The last attempt's, with their indices.
    pub(super) instances: Vec<(u32, InstanceId)>,
    /// Indices of the last attempt that cells have listed, of a request that is no task.
    pub(super) found: BTreeSet<u32>,
    /// Requests of one shape fit in the same places.
    pub(super) shape: Arc<str>,
    pub(super) writing: Option<Writing>,
    /// The record is not stored as it is.
    pub(super) unsaved: bool,
    /// It is not stored before this.
    pub(super) blocked_ms: u64,
    /// That it found no room is not stored before this: most often its next attempt is stored first.
    pub(super) later_ms: u64,
    /// Writes in a row of which it is not known whether they were done.
    pub(super) failed_writes: u32,
    /// Writes in a row that another one came before.
    pub(super) conflicts: u32,
    /// How its run ended.
    pub(super) heard: Option<Box<TaskResult>>,
    /// When that counts: the message with the output may come after a list.
    pub(super) heard_ms: u64,
    /// Its cell is lost; that counts from this time.
    pub(super) lost_ms: Option<u64>,
    pub(super) cancellers: Vec<CommandKey>,
    /// How many cells had been lost when the last attempt was sent.
    pub(super) losses: u64,
    /// It is not this manager that sent the last attempt, or not in its present term.
    pub(super) taken_up: bool,
    /// How often this manager has sent the last attempt, and when last.
    pub(super) sends: u32,
    pub(super) sent_ms: u64,
    /// An auctioneer has answered the last of these: it began nothing.
    pub(super) refused: bool,
    /// When one was sent that nobody has answered, the last one of those.
    pub(super) unanswered_ms: u64,
    /// The last list of its cell that had it.
    pub(super) list: u32,
    /// When its stop was sent last; 0 = never.
    pub(super) stop_ms: u64,
    /// When it is looked at next.
    pub(super) wake_ms: u64,
    /// The watch has not shown it since it began again.
    pub(super) unshown: bool,
    /// About what it takes in memory.
    pub(super) bytes: usize,
}

impl Entry {
    pub(super) fn new(record: TaskRecord, revision: Revision, bytes: usize) -> Self {
        Self {
            order: record.submitted_ms,
            shape: shape(&record.request),
            record,
            revision,
            step: Step::Over,
            instances: Vec::new(),
            found: BTreeSet::new(),
            writing: None,
            unsaved: false,
            blocked_ms: 0,
            later_ms: 0,
            failed_writes: 0,
            conflicts: 0,
            heard: None,
            heard_ms: 0,
            lost_ms: None,
            cancellers: Vec::new(),
            losses: 0,
            taken_up: false,
            sends: 0,
            sent_ms: 0,
            refused: false,
            unanswered_ms: 0,
            list: 0,
            stop_ms: 0,
            wake_ms: u64::MAX,
            unshown: false,
            bytes,
        }
    }

    /// The last attempt was sent more than once.
    pub(super) fn is_resent(&self) -> bool {
        self.sends > 1 || (self.taken_up && self.sends > 0)
    }

    /// The last attempt is sent now.
    pub(super) fn sends_now(&mut self, now_ms: u64) {
        if self.sends > 0 && !self.refused {
            self.unanswered_ms = self.sent_ms;
        } else if self.sends == 0 {
            // another manager may have sent it until this one took its place
            self.unanswered_ms = if self.taken_up { now_ms } else { 0 };
        }
        self.sends += 1;
        (self.sent_ms, self.refused) = (now_ms, false);
    }

    pub(super) fn is_task(&self) -> bool {
        self.record.request.kind == Kind::Task
    }

    /// The id of the last attempt's request; none before the first one.
    pub(super) fn attempt_id(&self) -> Option<AttemptId> {
        Some(AttemptId {
            bucket: self.record.bucket?,
            attempt: self.record.attempt,
            id: self.record.request.id.clone(),
        })
    }

    /// The instances of the last attempt.
    pub(super) fn attempt_instances(&self) -> Vec<(u32, InstanceId)> {
        let Some(id) = self.attempt_id() else {
            return Vec::new();
        };
        let (id, request) = (id.to_string(), &self.record.request);
        let instance = |index: &u32| {
            let instance = instance_id(&id, &request.app, request.kind, *index);
            (*index, instance)
        };
        self.record.left.iter().map(instance).collect()
    }

    /// The request of the last attempt: the same each time.
    pub(super) fn start(&self) -> Option<Arc<Request>> {
        let mut request = Request::clone(&self.record.request);
        request.id = self.attempt_id()?.to_string();
        // this manager is the queue
        (request.queue_timeout, request.deadline) = (None, None);
        if !self.is_task() {
            request.indices = Some(self.record.left.clone());
        }
        Some(Arc::new(request))
    }

    /// Until when it must have been started, milliseconds since 1970.
    pub(super) fn start_by_ms(&self) -> u64 {
        let wait = self.record.request.queue_timeout;
        let wait_ms = wait.map_or(START_WITHIN_MS, |wait| millis(wait.0));
        self.record.waiting_ms.saturating_add(wait_ms)
    }

    /// Whether another cell than this one has accepted it.
    pub(super) fn is_on_another(&self, cell: &str) -> bool {
        matches!(self.step, Step::Accepted { .. })
            && !self.record.doubtful
            && self.record.cell.as_deref() != Some(cell)
    }

    /// As users see it.
    pub(super) fn status(&self) -> TaskStatus {
        let record = &self.record;
        // nobody is told of an end that may be lost
        let stored = !self.unsaved && self.writing.is_none();
        let end = record.end.as_ref().filter(|_| stored);
        let state = match (end, self.step, record.phase) {
            (Some(end), ..) => end.state,
            (None, Step::Accepted { .. }, _) => TaskState::Running,
            (None, Step::Over, _) if record.cell.is_some() => TaskState::Running,
            (None, step, _) if step.is_waiting() => TaskState::Waiting,
            (None, _, TaskPhase::Waiting) => TaskState::Waiting,
            (None, ..) => TaskState::Starting,
        };
        let runs = matches!(self.step, Step::Accepted { .. });
        TaskStatus {
            id: record.request.id.clone(),
            app: record.request.app.clone(),
            kind: record.request.kind,
            state,
            cell: record.cell.clone(),
            attempts: record.failures + record.runs + u32::from(runs),
            placed: record.placed,
            submitted_ms: record.submitted_ms,
            started_ms: record.started_ms,
            ended_ms: end.map(|end| end.ended_ms),
            exit_code: end.and_then(|end| end.exit_code),
            signal: end.and_then(|end| end.signal),
            cancelled: record.cancelled,
            unplaced: end.is_some_and(|end| end.unplaced),
            why: record.why.clone(),
        }
    }
}

/// What decides where a request fits, as text.
pub(super) fn shape(request: &Request) -> Arc<str> {
    let Request {
        memory_mb,
        disk_mb,
        cpu_millis,
        extra,
        devices,
        stack,
        placement_tags,
        volume_drivers,
        networks,
        traits,
        near,
        far,
        ..
    } = request;
    format!(
        "{memory_mb} {disk_mb} {cpu_millis} {extra:?} {devices:?} {stack:?} {placement_tags:?} {volume_drivers:?} {networks:?} {traits:?} {near:?} {far:?}"
    )
    .into()
}
