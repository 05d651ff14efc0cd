//! Takes a cell out of service: it accepts no new work, and keeps or ends what it runs.

use placement::Kind;
use shared::{InstanceId, WaveId};

use super::{Ledger, entry::Entry};

/// The progress of a drain.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drain {
    /// When the instances are stopped; none once that has begun.
    at_ms: Option<u64>,
    /// Whether the rep ends when nothing is left.
    exits: bool,
    /// Whether the rep was told to end: it cannot be put back into service.
    leaving: bool,
    /// Whether its instances are ended as soon as none is left that is worth waiting for.
    hurries: bool,
}

/// What a cell holds, counted for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// All instances with a reservation.
    pub instances: usize,
    /// Instances of a manager, which replaces them elsewhere and stops them here.
    pub managed: usize,
    /// Tasks.
    pub tasks: usize,
}

impl Ledger {
    /// Accepts no new work from now on, and stops all instances `after_ms` from now. A second drain replaces the
    /// deadline of the first, and whether the rep exits. Returns whether the cell was not draining before.
    pub fn drain(&mut self, now_ms: u64, after_ms: u64, exits: bool) -> bool {
        let mut at_ms = now_ms.saturating_add(after_ms);
        if self.drain.leaving {
            // nobody can make a rep stay that was told to end
            at_ms = at_ms.min(self.drain.at_ms.unwrap_or(now_ms));
        }
        let first = !self.drains();
        self.drain.at_ms = Some(at_ms);
        self.drain.exits = exits || self.drain.leaving;
        if first {
            (self.cell.evacuating, self.cell.cordoned) = (true, false);
            self.cell_changed();
        }
        // a deadline of 0 ends the instances within this call
        self.tick(now_ms);
        first
    }

    /// Drains because the rep is to end. Waits for at most `grace_ms`, and only for tasks and for instances that a
    /// manager replaces.
    pub fn leave(&mut self, now_ms: u64, grace_ms: u64) -> bool {
        self.drain.hurries = true;
        let first = self.drain(now_ms, grace_ms, true);
        self.drain.leaving = true;
        first
    }

    /// Accepts no new work from now on, and keeps what runs, even if the cell was draining. Returns whether that is a
    /// change; none if the rep is ending.
    pub fn cordon(&mut self) -> Option<bool> {
        if self.drain.leaving {
            return None;
        }
        self.drain = Drain::default();
        let first = !self.cell.cordoned;
        if first {
            (self.cell.evacuating, self.cell.cordoned) = (true, true);
            self.cell_changed();
        }
        Some(first)
    }

    /// Accepts work again. Returns whether that is a change; none if the rep is ending.
    pub fn uncordon(&mut self) -> Option<bool> {
        if self.drain.leaving {
            return None;
        }
        self.drain = Drain::default();
        let first = self.cell.evacuating;
        if first {
            (self.cell.evacuating, self.cell.cordoned) = (false, false);
            self.cell_changed();
        }
        Some(first)
    }

    /// Returns whether the rep was told to end.
    pub(crate) fn is_leaving(&self) -> bool {
        self.drain.leaving
    }

    fn drains(&self) -> bool {
        self.cell.evacuating && !self.cell.cordoned
    }

    /// Returns whether the drain is complete: no new work is accepted, and no instance is left.
    pub fn is_drained(&self) -> bool {
        self.drains() && self.instances.is_empty()
    }

    /// Returns whether it is drained and the rep should exit for that reason.
    pub fn may_exit(&self) -> bool {
        self.drain.exits && self.is_drained()
    }

    /// Counts what holds a reservation.
    pub fn held(&self) -> Held {
        let mut held = Held::default();
        for entry in self.instances.values() {
            held.instances += 1;
            held.managed += usize::from(entry.is_managed());
            held.tasks += usize::from(entry.work.kind == Kind::Task);
        }
        held
    }

    /// Returns when [`Ledger::tick_drain`] has something to do.
    pub(super) fn next_drain_ms(&self) -> Option<u64> {
        let at_ms = self.drain.at_ms?;
        Some(if self.waits_in_vain() { 0 } else { at_ms })
    }

    fn waits_in_vain(&self) -> bool {
        let worth_it = |entry: &Entry| entry.is_managed() || entry.work.kind == Kind::Task;
        self.drain.hurries && !self.instances.values().any(worth_it)
    }

    /// Ends all instances once the deadline has passed.
    pub(super) fn tick_drain(&mut self, now_ms: u64) {
        let Some(at_ms) = self.drain.at_ms else {
            return;
        };
        if at_ms > now_ms && !self.waits_in_vain() {
            return;
        }
        self.drain.at_ms = None;
        let all: Vec<InstanceId> = self.instances.keys().copied().collect();
        for id in all {
            self.end(now_ms, &id, false);
        }
    }
}

impl Entry {
    /// Returns whether it was started by a manager, which replaces and stops it.
    fn is_managed(&self) -> bool {
        let request = self.work.request.as_ref();
        request.is_some_and(|id| WaveId::parse(id.as_str()).is_some())
    }
}
