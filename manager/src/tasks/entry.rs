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

/// A request that is not started within this time has failed, unless it has another `queue_timeout`.
pub(crate) const START_WITHIN_MS: u64 = 1_800_000;

/// The step at which a stored request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is begun when its turn comes, but not before this time.
    Waiting { due_ms: u64 },
    /// It found no room and waits for some.
    NoRoom,
    /// Its next attempt is being stored.
    Storing,
    /// The start was or may have been sent; if nobody has answered, the cells are asked at this time.
    Sent { ask_ms: u64 },
    /// The cells are expected to answer a question asked at this time or later.
    Asking { asked_ms: u64 },
    /// A cell has accepted it. Only a complete list asked for at this time or later can prove that it is not there.
    Accepted { proof_ms: u64 },
    /// It has ended.
    Over,
}

impl Step {
    /// Returns whether it counts as in flight: it is being stored or an auctioneer has it.
    pub(super) fn in_flight(self) -> bool {
        matches!(self, Self::Storing | Self::Sent { .. })
    }

    pub(super) fn is_waiting(self) -> bool {
        matches!(self, Self::Waiting { .. } | Self::NoRoom)
    }
}

/// A write in progress.
#[derive(Clone, Debug)]
pub(super) struct Writing {
    pub(super) write: WriteId,
    pub(super) value: Bytes,
    /// Whether it marks the request as to be cancelled.
    pub(super) cancelled: bool,
    /// The attempt that it begins, which is sent once it is stored.
    pub(super) begins: Option<u32>,
    /// Whether the watch has shown it: then it is stored, whatever the answer says.
    pub(super) shown: bool,
}

/// A stored request.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// When it was stored, which determines the order of the queue.
    pub(super) order: u64,
    pub(super) record: TaskRecord,
    pub(super) revision: Revision,
    pub(super) step: Step,
    /// The instances of the last attempt, with their indices.
    pub(super) instances: Vec<(u32, InstanceId)>,
    /// Indices of the last attempt that cells have listed, for a request that is not a task.
    pub(super) found: BTreeSet<u32>,
    /// Requests of the same shape fit in the same places.
    pub(super) shape: Arc<str>,
    pub(super) writing: Option<Writing>,
    /// Whether the record differs from what is stored.
    pub(super) unsaved: bool,
    /// It is not stored before this time.
    pub(super) blocked_ms: u64,
    /// That it found no room is not stored before this time, as usually its next attempt is stored first.
    pub(super) later_ms: u64,
    /// Number of writes in a row with an unknown result.
    pub(super) failed_writes: u32,
    /// Number of writes in a row that lost against another writer.
    pub(super) conflicts: u32,
    /// How its run ended.
    pub(super) heard: Option<Box<TaskResult>>,
    /// When that counts, as the message with the output may arrive after a list.
    pub(super) heard_ms: u64,
    /// Set if its cell is lost: the time from which that counts.
    pub(super) lost_ms: Option<u64>,
    pub(super) cancellers: Vec<CommandKey>,
    /// Number of cells that had been lost when the last attempt was sent.
    pub(super) losses: u64,
    /// Whether the last attempt was sent by another manager or in an earlier term of this one.
    pub(super) taken_up: bool,
    /// How often this manager has sent the last attempt, and when last.
    pub(super) sends: u32,
    pub(super) sent_ms: u64,
    /// Whether an auctioneer has answered the last send by saying that it began nothing.
    pub(super) refused: bool,
    /// When the latest send without any answer happened.
    pub(super) unanswered_ms: u64,
    /// The last list of its cell that contained it.
    pub(super) list: u32,
    /// When a stop for it was last sent; 0 = never.
    pub(super) stop_ms: u64,
    /// When it is next looked at.
    pub(super) wake_ms: u64,
    /// Whether the watch has not shown it since it began again.
    pub(super) unshown: bool,
    /// Approximate size in memory.
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

    /// Returns whether the last attempt was sent more than once.
    pub(super) fn is_resent(&self) -> bool {
        self.sends > 1 || (self.taken_up && self.sends > 0)
    }

    /// Records that the last attempt is sent now.
    pub(super) fn sends_now(&mut self, now_ms: u64) {
        if self.sends > 0 && !self.refused {
            self.unanswered_ms = self.sent_ms;
        } else if self.sends == 0 {
            // another manager may have sent it until this one took over
            self.unanswered_ms = if self.taken_up { now_ms } else { 0 };
        }
        self.sends += 1;
        (self.sent_ms, self.refused) = (now_ms, false);
    }

    pub(super) fn is_task(&self) -> bool {
        self.record.request.kind == Kind::Task
    }

    /// Returns the id of the last attempt's request; none before the first attempt.
    pub(super) fn attempt_id(&self) -> Option<AttemptId> {
        Some(AttemptId {
            bucket: self.record.bucket?,
            attempt: self.record.attempt,
            id: self.record.request.id.clone(),
        })
    }

    /// Returns the instances of the last attempt.
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

    /// Returns the request of the last attempt, which is the same each time.
    pub(super) fn start(&self) -> Option<Arc<Request>> {
        let mut request = Request::clone(&self.record.request);
        request.id = self.attempt_id()?.to_string();
        // this manager is the queue: no auctioneer lets it wait for longer than its deadline
        (request.queue_timeout, request.deadline) = (Some(placement::Span::default()), None);
        if !self.is_task() {
            request.indices = Some(self.record.left.clone());
        }
        Some(Arc::new(request))
    }

    /// Returns by when it must have been started, in milliseconds since 1970.
    pub(super) fn start_by_ms(&self) -> u64 {
        let wait = self.record.request.queue_timeout;
        let wait_ms = wait.map_or(START_WITHIN_MS, |wait| millis(wait.0));
        self.record.waiting_ms.saturating_add(wait_ms)
    }

    /// Returns whether a cell other than this one has accepted it.
    pub(super) fn is_on_another(&self, cell: &str) -> bool {
        matches!(self.step, Step::Accepted { .. })
            && !self.record.doubtful
            && self.record.cell.as_deref() != Some(cell)
    }

    /// Returns its state as users see it.
    pub(super) fn status(&self) -> TaskStatus {
        let record = &self.record;
        // an end that may yet be lost is not reported
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

/// Returns, as text, everything that determines where a request fits. Without `..`, so that a new field is not forgotten.
pub(super) fn shape(request: &Request) -> Arc<str> {
    let Request {
        kind,
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
        min_platform,
        max_platform,
        volumes_from,
        near,
        far,
        strict,
        exclude_cells,
        overcommit,
        objective,
        id: _,
        app: _,
        instances: _,
        indices: _,
        source_blob: _,
        owner: _,
        version: _,
        prefer: _,
        traceparent: _,
        tags: _,
        deadline: _,
        queue_timeout: _,
        run: _,
        health: _,
        ready: _,
    } = request;
    let amounts = (kind, memory_mb, disk_mb, cpu_millis, extra, devices);
    let cells = (stack, placement_tags, volume_drivers, networks, traits);
    let limits = (
        min_platform,
        max_platform,
        volumes_from,
        overcommit,
        objective,
    );
    let places = (near, far, strict, exclude_cells, request.form());
    format!("{amounts:?} {cells:?} {limits:?} {places:?}").into()
}
