//! Requests that wait for their turn, for room, or for their next attempt. Requests that found no room wait by shape:
//! the two oldest of each shape are tried when there may be room, and each that fits lets two more follow.

use std::{collections::BTreeSet, sync::Arc};

use super::{Tasks, entry::Step, record::TaskPhase};

/// Delay after a change before what found no room is tried again.
const ROOM_MS: u64 = 200;
/// The longest pause between two tries of a shape of which nothing fits, however often there may be room; the pause
/// doubles each time up to this.
const LONGEST_PAUSE_MS: u64 = 5_000;
/// Requests that found no room are tried again after this time at the latest, as a change may be missed.
const RETRY_MS: u64 = 30_000;
/// Delay before it is stored that a request found no room, if it was not tried again.
const LATER_MS: u64 = 10_000;
/// Number of requests of a shape that are tried when one may fit.
const TRIED: usize = 2;
/// Maximum number of shapes that are tried at once.
const MAX_SHAPES: usize = 256;

/// Requests that fit in the same places and wait for room.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// In the order of their submission.
    waiting: BTreeSet<(u64, Arc<str>)>,
    /// It is not tried before this time.
    try_ms: u64,
    /// The last pause after a try that found no room; 0 = one has fitted since.
    pause_ms: u64,
}

impl Shape {
    /// Returns how many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }
}

impl Tasks {
    /// Notes that there may be more room than before.
    pub(crate) fn room(&mut self, now_ms: u64) {
        self.room_ms = self.room_ms.min(now_ms + ROOM_MS);
    }

    /// Lets a request wait for its turn, behind requests of its shape that found no room.
    pub(super) fn queue(&mut self, id: &Arc<str>) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let waiting = (entry.order, Arc::clone(id));
        if self.ready.contains(&waiting) {
            return;
        }
        let others = self.no_room.get(&entry.shape);
        let others_wait = others.is_some_and(|shape| shape.len() > 0);
        if entry.record.sent_ms == 0 && others_wait {
            entry.record.why = Some("older requests that need the same wait for room".into());
            return self.wait_for_room(id);
        }
        self.ready.insert(waiting);
    }

    fn wait_for_room(&mut self, id: &Arc<str>) {
        self.set_step(id, Step::NoRoom);
        self.room_ms = self.room_ms.min(self.now_ms + RETRY_MS);
    }

    /// Adds a request to those of its shape that wait for room.
    pub(super) fn enter_shape(&mut self, shape: Arc<str>, order: u64, id: &Arc<str>) {
        let shape = self.no_room.entry(shape).or_default();
        shape.waiting.insert((order, Arc::clone(id)));
    }

    /// Removes a request from those that wait for room.
    pub(super) fn leave_shape(&mut self, name: &Arc<str>, order: u64, id: &Arc<str>) {
        if let Some(shape) = self.no_room.get_mut(name) {
            shape.waiting.remove(&(order, Arc::clone(id)));
            if shape.waiting.is_empty() && shape.pause_ms == 0 {
                self.no_room.remove(name);
            }
        }
    }

    /// Handles that a request found no room.
    pub(super) fn no_room_for(&mut self, id: &Arc<str>, reason: &str) {
        let now_ms = self.now_ms;
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.record.why = Some(placement::cut(reason).into_owned());
        entry.record.phase = TaskPhase::Waiting;
        // the attempt that follows is stored anyway, and a manager that finds this one stored asks for it
        (entry.unsaved, entry.later_ms) = (true, now_ms + LATER_MS);
        let shape = Arc::clone(&entry.shape);
        if entry.record.cancelled {
            return self.cancel_now(id);
        }
        let shape = self.no_room.entry(shape).or_default();
        if now_ms >= shape.try_ms {
            shape.pause_ms = (shape.pause_ms * 2).clamp(ROOM_MS, LONGEST_PAUSE_MS);
            shape.try_ms = now_ms + shape.pause_ms;
        }
        self.name_instances(id);
        self.wait_for_room(id);
    }

    /// Lets a request wait for `wait_ms`, and then for its turn.
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

    /// Tries some requests of each shape if there may be room.
    pub(super) fn release(&mut self) {
        let now_ms = self.now_ms;
        if now_ms < self.room_ms {
            return;
        }
        self.room_ms = now_ms + RETRY_MS;
        self.no_room
            .retain(|_, shape| shape.len() > 0 || now_ms < shape.try_ms + RETRY_MS);
        // those after the last one that was tried come first
        let last = self.last_shape.clone();
        let after = self
            .no_room
            .iter()
            .filter(|(shape, _)| Some(*shape) > last.as_ref());
        let before = self
            .no_room
            .iter()
            .filter(|(shape, _)| Some(*shape) <= last.as_ref());
        let mut due = Vec::new();
        for (name, shape) in after.chain(before) {
            if now_ms < shape.try_ms {
                self.room_ms = self.room_ms.min(shape.try_ms);
            } else if due.len() < MAX_SHAPES {
                due.push(Arc::clone(name));
            }
        }
        for shape in due {
            self.try_some(&shape);
            self.last_shape = Some(shape);
        }
    }

    /// Handles that a request of this shape found room: others may too.
    pub(super) fn fits(&mut self, name: &Arc<str>) {
        if let Some(shape) = self.no_room.get_mut(name) {
            (shape.try_ms, shape.pause_ms) = (0, 0);
            self.try_some(name);
        }
    }

    /// Tries the oldest requests of a shape.
    fn try_some(&mut self, name: &Arc<str>) {
        let due_ms = self.now_ms;
        let Some(shape) = self.no_room.get(name) else {
            return;
        };
        let oldest: Vec<(u64, Arc<str>)> = shape.waiting.iter().take(TRIED).cloned().collect();
        if oldest.is_empty() && shape.pause_ms == 0 {
            self.no_room.remove(name);
        }
        for (order, id) in oldest {
            self.set_step(&id, Step::Waiting { due_ms });
            self.ready.insert((order, id));
        }
    }
}
