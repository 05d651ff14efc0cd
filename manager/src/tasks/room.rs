//! What waits: for its turn, for room, for its next attempt. What found no room waits with everything of its shape, and
//! two of each shape are tried when there may be room; each that fits lets two more follow.

use std::{collections::VecDeque, sync::Arc};

use super::{Tasks, entry::Step, record::TaskPhase};

/// How soon after a change what found no room is tried again.
const ROOM_MS: u64 = 200;
/// What found no room is tried again after this at the latest: a change may be missed.
const RETRY_MS: u64 = 30_000;
/// How many of a shape are tried when one may fit.
const TRIED: usize = 2;
/// Shapes that are tried at once.
const MAX_SHAPES: usize = 256;

impl Tasks {
    /// There may be more room than before.
    pub(crate) fn room(&mut self, now_ms: u64) {
        self.room_ms = self.room_ms.min(now_ms + ROOM_MS);
    }

    /// It waits for its turn: behind what found no room and is as large.
    pub(super) fn queue(&mut self, id: &Arc<str>) {
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        let (order, shape) = (entry.order, Arc::clone(&entry.shape));
        if self.ready.contains(&(order, Arc::clone(id))) {
            return;
        }
        let is_new = entry.record.attempt == 0;
        if is_new && self.others_wait(&shape) {
            if let Some(entry) = self.entries.get_mut(id) {
                let why = "requests that need as much wait for room";
                entry.record.why = Some(why.into());
            }
            return self.wait_for_room(id, &shape);
        }
        self.ready.insert((order, Arc::clone(id)));
    }

    /// Whether something of this shape waits for room.
    fn others_wait(&mut self, shape: &Arc<str>) -> bool {
        let Some(waiting) = self.no_room.get_mut(shape) else {
            return false;
        };
        let waits = |id: &Arc<str>| {
            let entry = self.entries.get(id);
            entry.is_some_and(|entry| entry.step == Step::NoRoom)
        };
        // what was cancelled meanwhile, or has come to its end
        while waiting.front().is_some_and(|first| !waits(first)) {
            waiting.pop_front();
        }
        let any = !waiting.is_empty();
        if !any {
            self.no_room.remove(shape);
        }
        any
    }

    fn wait_for_room(&mut self, id: &Arc<str>, shape: &Arc<str>) {
        self.set_step(id, Step::NoRoom);
        let waiting = self.no_room.entry(Arc::clone(shape)).or_default();
        waiting.push_back(Arc::clone(id));
        self.room_ms = self.room_ms.min(self.now_ms + RETRY_MS);
    }

    /// It found no room.
    pub(super) fn no_room_for(&mut self, id: &Arc<str>, reason: &str) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.record.why = Some(placement::cut(reason).into_owned());
        entry.record.phase = TaskPhase::Waiting;
        let shape = Arc::clone(&entry.shape);
        if entry.record.cancelled {
            return self.cancel_now(id);
        }
        self.name_instances(id);
        self.touch(id);
        self.wait_for_room(id, &shape);
    }

    /// It waits for so long, and then for its turn.
    pub(super) fn wait_again(&mut self, id: &Arc<str>, wait_ms: u64, why: &str) {
        let due_ms = self.now_ms + wait_ms;
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.record.why = Some(placement::cut(why).into_owned());
        entry.record.phase = TaskPhase::Waiting;
        if entry.record.cancelled {
            return self.cancel_now(id);
        }
        self.name_instances(id);
        self.touch(id);
        self.set_step(id, Step::Waiting { due_ms });
    }

    /// Tries some of each shape, when there may be room.
    pub(super) fn release(&mut self) {
        if self.now_ms < self.room_ms || self.no_room.is_empty() {
            return;
        }
        self.room_ms = self.now_ms + RETRY_MS;
        // those after the last one that was tried come first
        let last = self.last_shape.clone();
        let after = self
            .no_room
            .keys()
            .filter(|shape| Some(*shape) > last.as_ref());
        let before = self
            .no_room
            .keys()
            .filter(|shape| Some(*shape) <= last.as_ref());
        let shapes: Vec<Arc<str>> = after.chain(before).take(MAX_SHAPES).cloned().collect();
        for shape in shapes {
            self.fits(&shape);
            self.last_shape = Some(shape);
        }
    }

    /// One of this shape found room: others may.
    pub(super) fn fits(&mut self, shape: &Arc<str>) {
        let now_ms = self.now_ms;
        let mut tried = 0;
        while tried < TRIED
            && let Some(waiting) = self.no_room.get_mut(shape)
        {
            let Some(id) = waiting.pop_front() else {
                self.no_room.remove(shape);
                return;
            };
            // it may have been cancelled, or have come to its end
            let entry = self.entries.get(&id);
            let Some(order) = entry.filter(|e| e.step == Step::NoRoom).map(|e| e.order) else {
                continue;
            };
            self.set_step(&id, Step::Waiting { due_ms: now_ms });
            self.ready.insert((order, id));
            tried += 1;
        }
        if self.no_room.get(shape).is_some_and(VecDeque::is_empty) {
            self.no_room.remove(shape);
        }
    }
}
