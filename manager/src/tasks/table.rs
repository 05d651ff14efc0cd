//! All stored requests: their steps, their timers and what the watch of the bucket shows.

use std::sync::Arc;

use bytes::Bytes;
use shared::wire::TaskStatus;

use super::{
    Office, TASK_REPLY_MS, Tasks,
    ends::KEPT_MS,
    entry::{Entry, Step},
    record::{TaskPhase, TaskRecord},
    room::Shape,
};
use crate::{
    ids::Revision,
    io::{ManagerOutput, TaskInput},
    stored::{Unusable, read_stored},
};

impl Tasks {
    /// Takes one input.
    pub(crate) fn take(&mut self, now_ms: u64, input: TaskInput) -> Result<(), Unusable> {
        self.now_ms = now_ms;
        match input {
            TaskInput::Time { unix_ms } => self.unix_offset_ms = unix_ms.saturating_sub(now_ms),
            TaskInput::Shown {
                id,
                revision,
                value,
            } => return self.shown(&id, revision, value.as_ref()),
            TaskInput::Written { write, result } => self.written(write, result),
            TaskInput::Outcome { attempt, answer } => self.outcome(&attempt, answer),
            TaskInput::Ended(result) => self.ended(result),
            TaskInput::Command { to, id, command } => self.command(to, id, command),
        }
        Ok(())
    }

    /// Does what is due.
    pub(crate) fn run(&mut self, now_ms: u64, office: Office) -> Vec<ManagerOutput> {
        (self.now_ms, self.office) = (now_ms, office);
        self.send_stored();
        self.try_pending();
        self.forget_old();
        if office.acts {
            while let Some((at_ms, id)) = self.timers.pop_first() {
                if at_ms > now_ms {
                    self.timers.insert((at_ms, id));
                    break;
                }
                let due = self.entries.get_mut(&id).filter(|e| e.wake_ms == at_ms);
                if let Some(entry) = due {
                    entry.wake_ms = u64::MAX;
                    self.wake(&id);
                }
            }
            self.release();
            self.begin_ready();
            self.delete_surplus();
        }
        self.save();
        std::mem::take(&mut self.out)
    }

    /// Returns whether the cells are to be asked for their instances, and resets that.
    pub(crate) fn take_question(&mut self) -> bool {
        std::mem::take(&mut self.wants_lists)
    }

    /// Returns whether it matters which cells have answered.
    pub(crate) fn is_asking(&self) -> bool {
        self.asking > 0
    }

    /// Returns by when [`Tasks::run`] must be called.
    pub(crate) fn next_ms(&self) -> u64 {
        let pending = self.pending.iter().map(|pending| pending.due_ms).min();
        let acting = if self.office.acts {
            let timer = self.timers.first().map_or(u64::MAX, |(at, _)| *at);
            timer
                .min(self.surplus_ms())
                .min(if self.no_room.is_empty() {
                    u64::MAX
                } else {
                    self.room_ms
                })
        } else {
            u64::MAX
        };
        pending.unwrap_or(u64::MAX).min(acting).min(self.save_ms)
    }

    /// Forgets results after an hour. The server deletes them by itself, which its watch does not show.
    fn forget_old(&mut self) {
        let before_ms = self.unix_ms().saturating_sub(KEPT_MS);
        while let Some((ended_ms, id)) = self.over.first().cloned()
            && ended_ms <= before_ms
        {
            let entry = self.entries.get(&id);
            if entry.is_some_and(|entry| entry.writing.is_some() || entry.unsaved) {
                // until its end is stored, another manager would carry it out again
                return;
            }
            self.over.pop_first();
            self.forget(&id);
        }
    }

    /// Returns the number of known requests.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }

    /// Returns the number of requests that have not ended.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Returns the approximate size in memory of those that have not ended.
    pub(crate) fn open_bytes(&self) -> usize {
        self.open_bytes
    }

    /// Returns the number of requests that wait for room or for their turn.
    pub(crate) fn waiting(&self) -> usize {
        self.no_room.values().map(Shape::len).sum::<usize>() + self.ready.len()
    }

    /// Returns the state of one as users see it.
    pub(crate) fn status(&self, id: &str) -> Option<TaskStatus> {
        self.entries.get(id).map(Entry::status)
    }

    /// Returns the ids and apps of those after this id, in order.
    pub(crate) fn after(&self, id: &str) -> impl Iterator<Item = (&str, &str)> {
        let from = (
            std::ops::Bound::Excluded(Arc::<str>::from(id)),
            std::ops::Bound::Unbounded,
        );
        let after = self.entries.range(from);
        after.map(|(id, entry)| (&**id, entry.record.request.app.as_str()))
    }

    pub(super) fn unix_ms(&self) -> u64 {
        self.now_ms + self.unix_offset_ms
    }

    /// Converts a time since 1970 to the machine's clock.
    pub(super) fn own_ms(&self, unix_ms: u64) -> u64 {
        unix_ms.saturating_sub(self.unix_offset_ms)
    }

    /// Schedules a look at a request at this time at the latest.
    pub(super) fn look_at(&mut self, id: &Arc<str>, at_ms: u64) {
        if let Some(entry) = self.entries.get_mut(id)
            && at_ms < entry.wake_ms
        {
            entry.wake_ms = at_ms;
            self.timers.insert((at_ms, Arc::clone(id)));
        }
    }

    pub(super) fn set_step(&mut self, id: &Arc<str>, step: Step) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let before = std::mem::replace(&mut entry.step, step);
        let (order, cell) = (entry.order, entry.record.cell.clone());
        let (bytes, shape) = (entry.bytes, Arc::clone(&entry.shape));
        self.in_flight += usize::from(step.in_flight());
        self.in_flight -= usize::from(before.in_flight());
        let asks = |step: Step| matches!(step, Step::Asking { .. });
        self.asking += usize::from(asks(step));
        self.asking -= usize::from(asks(before));
        self.open += usize::from(step != Step::Over);
        self.open -= usize::from(before != Step::Over);
        self.open_bytes += if step == Step::Over { 0 } else { bytes };
        self.open_bytes -= if before == Step::Over { 0 } else { bytes };
        self.ready.remove(&(order, Arc::clone(id)));
        if before == Step::NoRoom {
            self.leave_shape(&shape, order, id);
        }
        if step == Step::NoRoom {
            self.enter_shape(shape, order, id);
        }
        if let (Step::Accepted { .. }, Some(cell)) = (step, cell) {
            let held = self.by_cell.entry(cell.into()).or_default();
            held.insert(Arc::clone(id));
        }
        self.look_at(id, self.now_ms);
    }

    /// Removes a request from its cell.
    pub(super) fn off_cell(&mut self, id: &Arc<str>) {
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        let Some(cell) = entry.record.cell.as_deref() else {
            return;
        };
        if let Some(held) = self.by_cell.get_mut(cell) {
            held.remove(id);
            if held.is_empty() {
                self.by_cell.remove(cell);
            }
        }
    }

    /// Sets its instances to those of its present attempt; none if nothing of it is in flight.
    pub(super) fn name_instances(&mut self, id: &Arc<str>) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        for (_, instance) in std::mem::take(&mut entry.instances) {
            self.by_instance.remove(&instance);
        }
        entry.found.clear();
        if !matches!(entry.record.phase, TaskPhase::Sent | TaskPhase::Accepted) {
            return;
        }
        entry.instances = entry.attempt_instances();
        for (_, instance) in &entry.instances {
            self.by_instance.insert(*instance, Arc::clone(id));
        }
    }

    /// Marks its record as changed.
    pub(super) fn touch(&mut self, id: &Arc<str>) {
        if let Some(entry) = self.entries.get_mut(id) {
            (entry.unsaved, entry.later_ms) = (true, 0);
            self.unsaved.insert(Arc::clone(id));
        }
    }

    /// Handles a value as the watch shows it.
    fn shown(
        &mut self,
        id: &str,
        revision: Revision,
        value: Option<&Bytes>,
    ) -> Result<(), Unusable> {
        let id: Arc<str> = id.into();
        self.deleted.remove(&id);
        let Some(value) = value else {
            self.deleted.insert(self.now_ms, &id, revision);
            if self.entries.get(&id).is_some_and(|e| e.revision < revision) {
                self.forget(&id);
            }
            return Ok(());
        };
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.unshown = false;
            if revision <= entry.revision {
                return Ok(());
            }
            let own = entry.writing.as_mut().filter(|w| w.value == *value);
            if let Some(own) = own {
                // its acknowledgement follows or is lost
                own.shown = true;
                entry.revision = revision;
                return Ok(());
            }
        }
        let mut record: TaskRecord = read_stored(value)?;
        if let Some(end) = &mut record.end {
            end.output = None;
        }
        self.adopt(&id, record, revision, value.len());
        Ok(())
    }

    /// Adopts what is stored; `bytes` is its size.
    pub(super) fn adopt(
        &mut self,
        id: &Arc<str>,
        record: TaskRecord,
        revision: Revision,
        bytes: usize,
    ) {
        self.off_cell(id);
        self.set_step(id, Step::Over);
        self.bytes += bytes;
        match self.entries.get_mut(id) {
            None => {
                let mut entry = Entry::new(record, revision, bytes);
                (entry.taken_up, entry.losses) = (true, self.losses);
                self.entries.insert(Arc::clone(id), entry);
            }
            Some(entry) => {
                if record.attempt != entry.record.attempt {
                    (entry.taken_up, entry.losses, entry.sends) = (true, self.losses, 0);
                }
                if record.attempt != entry.record.attempt || record.cell != entry.record.cell {
                    (entry.lost_ms, entry.stop_ms) = (None, 0);
                }
                self.bytes -= std::mem::replace(&mut entry.bytes, bytes);
                if let Some(end) = &entry.record.end {
                    self.over.remove(&(end.ended_ms, Arc::clone(id)));
                }
                (entry.record, entry.revision) = (record, revision);
                // a write in progress is based on an earlier record, and comes too late
                (entry.unsaved, entry.writing) = (false, None);
                if !entry.cancellers.is_empty() && entry.record.end.is_none() {
                    entry.record.cancelled = true;
                    self.touch(id);
                }
            }
        }
        self.name_instances(id);
        self.step_as_stored(id);
    }

    /// Sets the step that follows from what is stored.
    fn step_as_stored(&mut self, id: &Arc<str>) {
        let now_ms = self.now_ms;
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let step = match entry.record.phase {
            TaskPhase::Waiting => Step::Waiting { due_ms: now_ms },
            // whoever sent it may have done so just now
            TaskPhase::Sent => Step::Sent {
                ask_ms: now_ms + TASK_REPLY_MS,
            },
            TaskPhase::Accepted => Step::Accepted { proof_ms: now_ms },
            TaskPhase::Over => Step::Over,
        };
        let ended_ms = entry.record.end.as_ref().map(|end| end.ended_ms);
        if step == Step::Over {
            entry.heard = None;
        }
        self.set_step(id, step);
        if let Some(ended_ms) = ended_ms {
            self.over.insert((ended_ms, Arc::clone(id)));
            self.answer_cancellers(id);
        }
    }

    /// Forgets a request.
    pub(super) fn forget(&mut self, id: &Arc<str>) {
        self.off_cell(id);
        self.set_step(id, Step::Over);
        let Some(entry) = self.entries.remove(id) else {
            return;
        };
        self.bytes -= entry.bytes;
        for (_, instance) in &entry.instances {
            self.by_instance.remove(instance);
        }
        self.unsaved.remove(id);
        if let Some(end) = &entry.record.end {
            self.over.remove(&(end.ended_ms, Arc::clone(id)));
        }
        self.refuse_cancellers(id, entry.cancellers);
    }

    /// Handles the end of the watch: everything will be shown again.
    pub(crate) fn interrupted(&mut self) {
        for entry in self.entries.values_mut() {
            entry.unshown = true;
        }
    }

    /// Handles that everything was shown: requests that were not shown no longer exist.
    pub(crate) fn shown_all(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        let gone = self.entries.iter().filter(|(_, entry)| entry.unshown);
        let gone: Vec<Arc<str>> = gone.map(|(id, _)| Arc::clone(id)).collect();
        for id in gone {
            self.forget(&id);
        }
    }

    /// Handles that messages were held up: starts that were sent may be in flight only now.
    pub(crate) fn settle(&mut self, now_ms: u64) {
        if self.in_flight + self.asking == 0 {
            return;
        }
        let sent = |entry: &Entry| matches!(entry.step, Step::Sent { .. } | Step::Asking { .. });
        let all = self.entries.iter().filter(|(_, entry)| sent(entry));
        let all: Vec<Arc<str>> = all.map(|(id, _)| Arc::clone(id)).collect();
        let ask_ms = now_ms + TASK_REPLY_MS;
        for id in all {
            self.set_step(&id, Step::Sent { ask_ms });
        }
    }

    /// Handles that this manager acts from now on: starts that others have sent may be anywhere.
    pub(crate) fn gained(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        let open = self.entries.iter().filter(|(_, e)| e.step != Step::Over);
        let open: Vec<Arc<str>> = open.map(|(id, _)| Arc::clone(id)).collect();
        for id in open {
            let idle = self.entries.get(&id).is_some_and(|e| e.writing.is_none());
            if idle {
                self.off_cell(&id);
                self.step_as_stored(&id);
            }
            self.look_at(&id, now_ms);
        }
    }
}
