//! The lease: decides which of several managers acts.
//!
//! It is one key, which its holder replaces every [`RENEW_MS`]. Another manager takes it when it was given back or has
//! not changed for [`LEASE_MS`] on that manager's own clock. Clocks are never compared; in the end the compare-and-set
//! of the write decides.

use crate::{
    clocks::ACT_MS,
    ids::{Revision, WriteId},
    stored::LeaseRecord,
};

/// How long a lease lives without a renewal. A cluster of servers that loses its leader recovers in less.
pub const LEASE_MS: u64 = 15_000;
/// How often its holder renews it.
pub const RENEW_MS: u64 = 2_000;

/// What the write that has just ended means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseChange {
    /// This manager acts from now on.
    Gained,
    /// It continues to act.
    Renewed,
    /// It no longer acts.
    Lost,
    /// Nothing has changed.
    None,
}

#[derive(Clone, Copy, Debug)]
struct Renewal {
    write: WriteId,
    sent_ms: u64,
}

/// The lease as this manager sees it.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    me: String,
    /// The key's revision.
    revision: Revision,
    /// When the key was last seen to change.
    changed_ms: u64,
    /// Whether somebody else may hold it.
    taken: bool,
    /// When the last acknowledged renewal was sent; none = this manager is not the holder.
    renewed_ms: Option<u64>,
    writing: Option<Renewal>,
    next_ms: u64,
    leaving: bool,
    /// The key is unknown while the watch shows everything again.
    blind: bool,
}

impl Lease {
    pub(crate) fn new(me: String) -> Self {
        Self {
            me,
            revision: Revision::NONE,
            changed_ms: 0,
            taken: false,
            renewed_ms: None,
            writing: None,
            next_ms: 0,
            leaving: false,
            blind: true,
        }
    }

    /// Returns whether this manager holds the lease.
    pub(crate) fn is_held(&self) -> bool {
        self.renewed_ms.is_some()
    }

    /// Returns whether its last renewal is fresh enough to act.
    pub(crate) fn is_fresh(&self, now_ms: u64) -> bool {
        let renewed = self.renewed_ms.filter(|_| !self.leaving);
        renewed.is_some_and(|at| now_ms.saturating_sub(at) < ACT_MS)
    }

    /// Handles the key as the watch shows it; none = deleted.
    pub(crate) fn seen(
        &mut self,
        now_ms: u64,
        revision: Revision,
        record: Option<&LeaseRecord>,
    ) -> LeaseChange {
        if revision <= self.revision {
            return LeaseChange::None;
        }
        (self.revision, self.changed_ms) = (revision, now_ms);
        let holder = record.map_or("", |record| record.holder.as_str());
        self.taken = !holder.is_empty() && holder != self.me;
        if !self.taken && self.renewed_ms.is_none() {
            self.next_ms = now_ms;
        }
        // its own write, whose acknowledgement is still on its way
        if holder == self.me {
            return LeaseChange::None;
        }
        self.lose()
    }

    /// Forgets the key because the bucket is another one or is read again.
    pub(crate) fn forget(&mut self, now_ms: u64) {
        (self.revision, self.taken, self.blind) = (Revision::NONE, true, true);
        self.changed_ms = now_ms;
    }

    /// Handles that all keys were read: if the key was not among them, the lease is free.
    pub(crate) fn ready(&mut self, now_ms: u64) {
        self.blind = false;
        if self.revision == Revision::NONE {
            (self.taken, self.next_ms) = (false, now_ms);
        }
    }

    fn lose(&mut self) -> LeaseChange {
        match self.renewed_ms.take() {
            Some(_) => LeaseChange::Lost,
            None => LeaseChange::None,
        }
    }

    /// Returns whether a write of the key is due now.
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        !self.leaving && !self.blind && self.writing.is_none() && now_ms >= self.due_ms()
    }

    fn due_ms(&self) -> u64 {
        if self.taken {
            return (self.changed_ms + LEASE_MS).max(self.next_ms);
        }
        self.next_ms
    }

    /// Returns when it must be looked at next.
    pub(crate) fn next_ms(&self) -> u64 {
        if self.leaving || self.blind || self.writing.is_some() {
            return u64::MAX;
        }
        self.due_ms()
    }

    /// Begins a write. Returns its content and the revision that it replaces.
    pub(crate) fn write(&mut self, now_ms: u64, write: WriteId) -> (String, Revision) {
        self.writing = Some(Renewal {
            write,
            sent_ms: now_ms,
        });
        self.next_ms = now_ms + RENEW_MS;
        (self.me.clone(), self.revision)
    }

    /// Handles the end of a write, with the key's new revision or without (`refused` if another write came first).
    /// Returns what that means and when the write was sent.
    pub(crate) fn written(
        &mut self,
        now_ms: u64,
        write: WriteId,
        revision: Option<Revision>,
        refused: bool,
    ) -> (LeaseChange, u64) {
        let Some(renewal) = self.writing.take_if(|renewal| renewal.write == write) else {
            return (LeaseChange::None, now_ms);
        };
        let change = match revision {
            Some(revision) => {
                (self.revision, self.taken) = (revision.max(self.revision), false);
                match self.renewed_ms.replace(renewal.sent_ms) {
                    Some(_) => LeaseChange::Renewed,
                    None => LeaseChange::Gained,
                }
            }
            None if refused => {
                (self.taken, self.changed_ms) = (true, now_ms);
                self.lose()
            }
            None => self.outlived(now_ms),
        };
        (change, renewal.sent_ms)
    }

    /// Gives up the lease if no renewal was acknowledged for its whole duration: it is another manager's by then.
    pub(crate) fn outlived(&mut self, now_ms: u64) -> LeaseChange {
        match self.renewed_ms {
            Some(at) if now_ms.saturating_sub(at) >= LEASE_MS => {
                (self.taken, self.changed_ms) = (true, now_ms);
                self.lose()
            }
            _ => LeaseChange::None,
        }
    }

    /// Gives the lease back. Returns the revision to replace with an empty holder, if the lease is held.
    pub(crate) fn leave(&mut self) -> Option<Revision> {
        self.leaving = true;
        self.renewed_ms.take().map(|_| self.revision)
    }

    /// Competes for the lease again.
    pub(crate) fn stay(&mut self) {
        self.leaving = false;
    }
}
