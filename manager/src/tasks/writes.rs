//! Writes to the bucket, and what follows from their results. There is at most one write in flight for each request,
//! and each names the revision that it replaces.

use std::{sync::Arc, time::Duration};

use shared::wire::to_bytes;

use super::{
    Tasks,
    ends::KEPT_MS,
    entry::{Step, Writing},
    record::TaskPhase,
    requests::{DELETED_MS, MAX_BYTES, MAX_RESULTS},
};
use crate::{
    ids::WriteId,
    io::{ManagerOutput, TaskOutput, WriteResult},
};

/// The wait after a write without effect, and the longest one: it doubles each time while the bucket does not answer.
const AGAIN_MS: u64 = 1_000;
const LONGEST_AGAIN_MS: u64 = 30_000;
/// After this many unanswered writes in a row nothing new is stored for a while.
const MAX_FAILED_WRITES: u32 = 3;
/// After this many conflicts in a row that the watch does not explain, a request is forgotten: somebody has emptied the
/// bucket.
const MAX_CONFLICTS: u32 = 60;
/// Maximum number of results that are deleted at a time.
const MAX_DELETIONS: usize = 64;
/// Number of results looked at for these, as results that are not stored yet are not deleted.
const LOOKED_AT: usize = 256;
/// How long a deletion marker of an id is kept.
const MARKER: Duration = Duration::from_millis(DELETED_MS);

impl Tasks {
    pub(super) fn next_write(&mut self) -> WriteId {
        self.last_write += 1;
        WriteId(self.last_write)
    }

    /// Stores what has changed.
    pub(super) fn save(&mut self) {
        let (now_ms, acts) = (self.now_ms, self.office.acts);
        self.save_ms = u64::MAX;
        for id in std::mem::take(&mut self.unsaved) {
            let Some(entry) = self.entries.get(&id).filter(|entry| entry.unsaved) else {
                continue;
            };
            // it is looked at again when the write in progress has ended
            if entry.writing.is_some() {
                continue;
            }
            if !acts && entry.cancellers.is_empty() {
                // the acting manager stores it, which may be this one a moment later
                self.unsaved.insert(id);
                continue;
            }
            if now_ms < entry.blocked_ms {
                self.save_ms = self.save_ms.min(entry.blocked_ms);
                self.unsaved.insert(id);
                continue;
            }
            self.write(&id);
        }
    }

    fn write(&mut self, id: &Arc<str>) {
        let write = self.next_write();
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.unsaved = false;
        let value = to_bytes(&entry.record);
        entry.writing = Some(Writing {
            write,
            value: value.clone(),
            cancelled: entry.record.cancelled,
            begins: (entry.step == Step::Storing).then_some(entry.record.attempt),
            shown: false,
        });
        let is_over = entry.record.phase == TaskPhase::Over;
        let output = TaskOutput::Write {
            write,
            id: Arc::clone(id),
            value: Some(value),
            expected: entry.revision,
            // the server deletes it even if no manager is there
            ttl: is_over.then_some(Duration::from_millis(KEPT_MS)),
        };
        self.writes.insert(write, Arc::clone(id));
        self.out.push(ManagerOutput::Task(Box::new(output)));
    }

    fn is_surplus(&self) -> bool {
        let results = self.over.len().saturating_sub(self.deletions.len());
        results > MAX_RESULTS || self.bytes - self.open_bytes > MAX_BYTES
    }

    /// Returns when more surplus results are to be deleted.
    pub(super) fn surplus_ms(&self) -> u64 {
        if self.deletions.is_empty() && self.is_surplus() {
            return self.delete_ms;
        }
        u64::MAX
    }

    /// Deletes the oldest results if there are too many, some at a time. Results that are not stored yet are kept, as
    /// another manager would carry the request out again.
    pub(super) fn delete_surplus(&mut self) {
        if self.now_ms < self.delete_ms || !self.is_surplus() {
            return;
        }
        self.delete_ms = self.now_ms + AGAIN_MS;
        let oldest = self.over.iter().take(LOOKED_AT);
        let stored = |id: &&Arc<str>| {
            let entry = self.entries.get(*id);
            !self.deleting.contains(*id)
                && entry.is_some_and(|entry| entry.writing.is_none() && !entry.unsaved)
        };
        let oldest = oldest.map(|(_, id)| id).filter(stored);
        let oldest: Vec<Arc<str>> = oldest.cloned().collect();
        for id in oldest {
            if self.deletions.len() >= MAX_DELETIONS || !self.is_surplus() {
                return;
            }
            self.delete(&id);
        }
    }

    /// Deletes a result. It is forgotten once the deletion is stored.
    fn delete(&mut self, id: &Arc<str>) {
        let write = self.next_write();
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        let output = TaskOutput::Write {
            write,
            id: Arc::clone(id),
            value: None,
            expected: entry.revision,
            ttl: Some(MARKER),
        };
        self.deletions.insert(write, Arc::clone(id));
        self.deleting.insert(Arc::clone(id));
        self.out.push(ManagerOutput::Task(Box::new(output)));
    }

    pub(super) fn written(&mut self, write: WriteId, result: WriteResult) {
        self.answered(result);
        if let Some(id) = self.deletions.remove(&write) {
            self.deleting.remove(&id);
            if result != WriteResult::Failed {
                self.delete_ms = self.now_ms;
                self.forget(&id);
            }
            return;
        }
        if let Some(creation) = self.creations.remove(&write) {
            return self.created(creation, result);
        }
        let Some(id) = self.writes.remove(&write) else {
            return;
        };
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let Some(writing) = entry.writing.take_if(|writing| writing.write == write) else {
            return;
        };
        if entry.unsaved && self.now_ms >= entry.later_ms {
            self.unsaved.insert(Arc::clone(&id));
        }
        let revision = match result {
            WriteResult::Written(revision) => revision,
            // an attempt is sent only by the manager that is told that it is stored
            _ if writing.shown && writing.begins.is_none() => entry.revision,
            _ => return self.not_written(&id, writing.begins, result),
        };
        entry.revision = entry.revision.max(revision);
        (entry.failed_writes, entry.conflicts) = (0, 0);
        let is_over = entry.record.phase == TaskPhase::Over && !entry.unsaved;
        if let Some(end) = entry.record.end.as_mut().filter(|_| is_over) {
            // it is read from the bucket when it is asked for
            end.output = None;
            self.tell_end(&id);
        }
        if writing.cancelled {
            self.answer_cancellers(&id);
        }
        if let Some(attempt) = writing.begins {
            self.stored.push((id, attempt));
        }
    }

    /// Records whether the bucket answers: while it does not, nothing new is stored.
    fn answered(&mut self, result: WriteResult) {
        if result != WriteResult::Failed {
            (self.failed_writes, self.refuse_ms) = (0, 0);
            return;
        }
        self.failed_writes = self.failed_writes.saturating_add(1);
        if let Some(more) = self.failed_writes.checked_sub(MAX_FAILED_WRITES) {
            self.refuse_ms = self.now_ms + pause_ms(more);
        }
    }

    /// Handles a write that was not done. An accepted request is kept, however long the bucket does not answer.
    fn not_written(&mut self, id: &Arc<str>, begins: Option<u32>, result: WriteResult) {
        let now_ms = self.now_ms;
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let again_ms = if result == WriteResult::Failed {
            entry.failed_writes = entry.failed_writes.saturating_add(1);
            now_ms + pause_ms(entry.failed_writes - 1)
        } else {
            entry.conflicts += 1;
            now_ms + AGAIN_MS
        };
        entry.blocked_ms = again_ms;
        if entry.conflicts >= MAX_CONFLICTS {
            return self.forget(id);
        }
        if entry.step == Step::Storing && begins == Some(entry.record.attempt) {
            // nothing was sent: the number is not used again, and if the write was stored all the same, the watch shows
            // it
            entry.record.phase = TaskPhase::Waiting;
            entry.unsaved = false;
            self.unsaved.remove(id);
            self.set_step(id, Step::Waiting { due_ms: again_ms });
        } else {
            self.touch(id);
        }
        self.look_at(id, again_ms);
    }
}

/// Returns the wait after an unanswered write that follows `before` others.
fn pause_ms(before: u32) -> u64 {
    let doubled = before.min(u64::BITS - 1);
    AGAIN_MS.saturating_mul(1 << doubled).min(LONGEST_AGAIN_MS)
}
