//! Commands to store or cancel a request. Any manager may answer them, even one that does not hold the lease.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use placement::FastMap;
use shared::wire::{WireError, code, to_bytes};

use super::{
    Tasks,
    definition::TaskDefinition,
    entry::{Entry, Step},
    record::{TaskPhase, TaskRecord},
};
use crate::{
    ids::{CommandKey, Revision},
    io::{ManagerOutput, TaskAnswer, TaskCommand, TaskOutput, WriteResult},
    stored::{FORMAT, unavailable},
};

/// Maximum number of stored requests that have not ended; further ones are refused.
pub const MAX_OPEN: usize = 50_000;
/// Maximum size of those in bytes; further ones are refused. The same limit applies to results.
pub(super) const MAX_BYTES: usize = 256 * 1024 * 1024;
/// Maximum number of results that are kept; beyond that, the oldest are deleted first.
pub const MAX_RESULTS: usize = 20_000;
/// How long a deleted id is remembered, which is longer than cells and auctioneers remember what ran under it.
pub(super) const DELETED_MS: u64 = 900_000;
/// Maximum number of deleted ids that are remembered.
const MAX_DELETED: usize = 50_000;
/// Maximum number of commands that wait for the bucket.
const MAX_PENDING: usize = 4_096;
/// Maximum number of cancellations of one request that wait for the bucket.
const MAX_CANCELLERS: usize = 64;
/// Pause between two attempts, after which the watch shows what was written before.
const AGAIN_MS: u64 = 200;
/// How long a command may wait; the client waits for 10 s.
const MAX_WAIT_MS: u64 = 8_000;

/// A command that is yet to be tried or to be tried again.
#[derive(Clone, Debug)]
pub(super) struct PendingTask {
    to: CommandKey,
    id: String,
    command: TaskCommand,
    since_ms: u64,
    pub(super) due_ms: u64,
    /// Whether it may be stored.
    written: bool,
    /// The number before that of its first attempt, so that nothing that ran under a deleted id is mistaken for it.
    attempt: u32,
}

/// Ids whose deletion markers the bucket may still have.
#[derive(Debug, Default)]
pub(super) struct Deleted {
    revisions: FastMap<Arc<str>, Revision>,
    /// The earliest first, including those that have been stored again.
    order: VecDeque<(u64, Arc<str>, Revision)>,
}

impl Deleted {
    pub(super) fn insert(&mut self, now_ms: u64, id: &Arc<str>, revision: Revision) {
        self.revisions.insert(Arc::clone(id), revision);
        self.order.push_back((now_ms, Arc::clone(id), revision));
        while self.order.len() > MAX_DELETED
            || self
                .order
                .front()
                .is_some_and(|(at, ..)| at + DELETED_MS <= now_ms)
        {
            let Some((_, id, revision)) = self.order.pop_front() else {
                return;
            };
            if self.revisions.get(&id) == Some(&revision) {
                self.revisions.remove(&id);
            }
        }
    }

    pub(super) fn remove(&mut self, id: &str) {
        self.revisions.remove(id);
    }

    fn get(&self, id: &str) -> Revision {
        self.revisions.get(id).copied().unwrap_or(Revision::NONE)
    }
}

/// A request that is being stored.
#[derive(Clone, Debug)]
pub(super) struct Creation {
    pending: PendingTask,
    record: TaskRecord,
    bytes: usize,
}

impl Tasks {
    /// Takes a command.
    pub(super) fn command(&mut self, to: CommandKey, id: String, command: TaskCommand) {
        if self.pending.len() + self.creations.len() >= MAX_PENDING {
            let error = WireError::new(code::OVERLOADED, "too many requests wait; try again");
            return self.reply(to, Err(error));
        }
        let (since_ms, due_ms) = (self.now_ms, self.now_ms);
        self.pending.push(PendingTask {
            to,
            id,
            command,
            since_ms,
            due_ms,
            written: false,
            attempt: 0,
        });
    }

    /// Tries the commands that are due.
    pub(super) fn try_pending(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let now_ms = self.now_ms;
        let pending = std::mem::take(&mut self.pending);
        for command in pending {
            if command.due_ms > now_ms {
                self.pending.push(command);
            } else if self.office.bucket.is_none() {
                self.reply(command.to, Err(unavailable()));
            } else {
                match &command.command {
                    TaskCommand::Submit(definition) => {
                        let definition = definition.clone();
                        self.submit(command, &definition);
                    }
                    TaskCommand::Cancel => self.cancel(command.to, &command.id),
                }
            }
        }
    }

    fn submit(&mut self, mut pending: PendingTask, definition: &TaskDefinition) {
        if let Some(entry) = self.entries.get(pending.id.as_str()) {
            let record = &entry.record;
            let same = record.request == definition.request
                && record.retries == definition.retries
                && record.timeout == definition.timeout;
            let answer = if same {
                Ok(answer(entry, false))
            } else {
                let message = format!("{} is the id of another stored request", pending.id);
                Err(WireError::new(code::CONFLICT, message))
            };
            return self.reply(pending.to, answer);
        }
        if !pending.written
            && let Some(error) = self.refuses()
        {
            return self.reply(pending.to, Err(error));
        }
        if !self.creating.insert(pending.id.clone()) {
            return self.again(pending);
        }
        let expected = self.deleted.get(&pending.id);
        if expected != Revision::NONE {
            // half of the numbers are left for its attempts
            pending.attempt = u32::try_from(expected.0 % (1 << 31)).unwrap_or_default();
        }
        let mut record = self.new_record(definition, &pending);
        if self.begins_at_once(&record.request) {
            record.attempt += 1;
            (record.phase, record.bucket) = (TaskPhase::Sent, self.office.bucket);
            record.sent_ms = self.unix_ms();
        }
        let write = self.next_write();
        let value = to_bytes(&record);
        let bytes = value.len();
        let output = TaskOutput::Write {
            write,
            id: pending.id.as_str().into(),
            value: Some(value),
            expected,
            ttl: None,
        };
        self.creating_bytes += bytes;
        let creation = Creation {
            pending,
            record,
            bytes,
        };
        self.creations.insert(write, creation);
        self.out.push(ManagerOutput::Task(Box::new(output)));
    }

    /// Returns why nothing new is stored at present, if that is so.
    fn refuses(&self) -> Option<WireError> {
        let message = if self.open + self.creations.len() >= MAX_OPEN {
            format!("{MAX_OPEN} stored requests have not ended; try again later")
        } else if self.open_bytes + self.creating_bytes >= MAX_BYTES {
            let mib = MAX_BYTES / (1024 * 1024);
            format!("the stored requests that have not ended take {mib} MiB; try again later")
        } else if self.now_ms < self.refuse_ms {
            let message =
                "the bucket does not acknowledge writes; nothing new is stored, try again";
            return Some(WireError::new(code::INTERNAL, message));
        } else {
            return None;
        };
        Some(WireError::new(code::OVERLOADED, message))
    }

    /// Creates the record of a new request, which is as old as its command.
    fn new_record(&self, definition: &TaskDefinition, pending: &PendingTask) -> TaskRecord {
        let submitted_ms = pending.since_ms + self.unix_offset_ms;
        let instances = definition.request.instances;
        let indices = definition.request.indices.clone();
        let mut left = indices.unwrap_or_else(|| (0..instances).collect());
        left.sort_unstable();
        TaskRecord {
            format: FORMAT,
            request: Arc::clone(&definition.request),
            retries: definition.retries,
            timeout: definition.timeout,
            submitted_ms,
            waiting_ms: submitted_ms,
            phase: TaskPhase::Waiting,
            bucket: None,
            attempt: pending.attempt,
            sent_ms: 0,
            failures: 0,
            runs: 0,
            left,
            placed: 0,
            unknown: 0,
            shared: BTreeMap::new(),
            cell: None,
            doubtful: false,
            started_ms: None,
            cancelled: false,
            timed_out: false,
            why: None,
            end: None,
        }
    }

    fn again(&mut self, mut pending: PendingTask) {
        pending.due_ms = self.now_ms + AGAIN_MS;
        self.pending.push(pending);
    }

    /// Handles the end of the write of a new request. If it failed it is tried again, unless the watch shows that
    /// somebody else was first.
    pub(super) fn created(&mut self, creation: Creation, result: WriteResult) {
        let Creation {
            mut pending,
            record,
            bytes,
        } = creation;
        self.creating.remove(&pending.id);
        self.creating_bytes -= bytes;
        let WriteResult::Written(revision) = result else {
            if self.now_ms >= pending.since_ms + MAX_WAIT_MS {
                let message = "the bucket does not acknowledge the write: the request may be stored or not; to \
                               repeat it with the same id is safe";
                let error = WireError::new(code::INTERNAL, message);
                return self.reply(pending.to, Err(error));
            }
            pending.written |= result == WriteResult::Failed;
            if result == WriteResult::Conflict {
                // either its deletion marker has gone, or the watch is going to show what is stored
                self.deleted.remove(&pending.id);
            }
            return self.again(pending);
        };
        let id: Arc<str> = pending.id.as_str().into();
        if !self.entries.contains_key(&id) {
            self.deleted.remove(&id);
            self.adopt(&id, record, revision, bytes);
        }
        self.begun(&id, revision);
        if let Some(entry) = self.entries.get(&id) {
            let answer = answer(entry, true);
            self.reply(pending.to, Ok(answer));
        }
    }

    fn cancel(&mut self, to: CommandKey, id: &str) {
        let Some(entry) = self.entries.get_mut(id) else {
            let message =
                format!("no stored request has the id {id:?}; results are kept for an hour");
            return self.reply(to, Err(WireError::new(code::NOT_FOUND, message)));
        };
        let stored = entry.record.cancelled && !entry.unsaved && entry.writing.is_none();
        if entry.step == Step::Over || stored {
            let answer = answer(entry, false);
            return self.reply(to, Ok(answer));
        }
        if entry.cancellers.len() >= MAX_CANCELLERS {
            let error = WireError::new(
                code::OVERLOADED,
                "too many cancellations of it wait already; try again",
            );
            return self.reply(to, Err(error));
        }
        entry.cancellers.push(to);
        entry.record.cancelled = true;
        let id: Arc<str> = id.into();
        self.touch(&id);
        self.look_at(&id, self.now_ms);
    }

    /// Answers cancellations once it is stored that the request is to be cancelled or has ended.
    pub(super) fn answer_cancellers(&mut self, id: &Arc<str>) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        for to in std::mem::take(&mut entry.cancellers) {
            let changed = entry.record.cancelled;
            let answer = Ok(Box::new(answer(entry, changed)));
            let output = TaskOutput::Reply { to, answer };
            self.out.push(ManagerOutput::Task(Box::new(output)));
        }
    }

    /// Answers cancellations of a request that no longer exists.
    pub(super) fn refuse_cancellers(&mut self, id: &str, cancellers: Vec<CommandKey>) {
        for to in cancellers {
            let message = format!("{id} is no longer stored");
            self.reply(to, Err(WireError::new(code::NOT_FOUND, message)));
        }
    }

    fn reply(&mut self, to: CommandKey, answer: Result<TaskAnswer, WireError>) {
        let answer = answer.map(Box::new);
        let output = TaskOutput::Reply { to, answer };
        self.out.push(ManagerOutput::Task(Box::new(output)));
    }
}

fn answer(entry: &Entry, changed: bool) -> TaskAnswer {
    TaskAnswer {
        status: entry.status(),
        changed,
    }
}
