//! What is written to the bucket, and what follows from how that ended. One write of a request is on its way at a time,
//! and each names the revision that it replaces.

use std::{sync::Arc, time::Duration};

use shared::wire::to_bytes;

use super::{
    Tasks,
    ends::KEPT_MS,
    entry::{Step, Writing},
    record::TaskPhase,
};
use crate::{
    ids::WriteId,
    io::{ManagerOutput, TaskOutput, WriteResult},
};

/// After a write that was not done.
const AGAIN_MS: u64 = 1_000;
/// Somebody has emptied the bucket: what cannot be stored is forgotten after so many tries.
const MAX_FAILED_WRITES: u32 = 60;
/// What says that a key was deleted is kept for this long.
const MARKER: Duration = Duration::from_secs(60);

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
            // what is being written is looked at again when that is over
            if entry.writing.is_some() || !acts && entry.cancellers.is_empty() {
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
        });
        let is_over = entry.record.phase == TaskPhase::Over;
        let output = TaskOutput::Write {
            write,
            id: Arc::clone(id),
            value: Some(value),
            expected: entry.revision,
            // the server deletes it, also when no manager is there
            ttl: is_over.then_some(Duration::from_millis(KEPT_MS)),
        };
        self.writes.insert(write, Arc::clone(id));
        self.out.push(ManagerOutput::Task(Box::new(output)));
    }

    /// Deletes a result, and forgets it.
    pub(super) fn delete(&mut self, id: &Arc<str>) {
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
        self.out.push(ManagerOutput::Task(Box::new(output)));
        self.forget(id);
    }

    pub(super) fn written(&mut self, write: WriteId, result: WriteResult) {
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
        if entry.unsaved {
            self.unsaved.insert(Arc::clone(&id));
        }
        let WriteResult::Written(revision) = result else {
            return self.not_written(&id, writing.begins);
        };
        entry.revision = entry.revision.max(revision);
        entry.failed_writes = 0;
        let is_over = entry.record.phase == TaskPhase::Over && !entry.unsaved;
        if let Some(end) = entry.record.end.as_mut().filter(|_| is_over) {
            // read from the bucket where it is asked for
            end.output = None;
            self.tell_end(&id);
        }
        if writing.cancelled {
            self.answer_cancellers(&id);
        }
        if let Some(attempt) = writing.begins {
            self.attempt_stored(&id, attempt);
        }
    }

    fn not_written(&mut self, id: &Arc<str>, begins: Option<u32>) {
        let again_ms = self.now_ms + AGAIN_MS;
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.failed_writes += 1;
        entry.blocked_ms = again_ms;
        if entry.failed_writes >= MAX_FAILED_WRITES {
            return self.forget(id);
        }
        if entry.step == Step::Storing && begins == Some(entry.record.attempt) {
            // nothing was sent: the number is not used again, and what was stored all the same is shown by the watch
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
