//! The lease: which of several managers acts.
//!
//! It is one key, replaced every [`RENEW_MS`] by its holder. Another manager takes it when it was given back or has not
//! changed for [`LEASE_MS`] of the other's own clock. Clocks are never compared, and what decides in the end is the
//! compare-and-set of the write.

use crate::{
    clocks::ACT_MS,
    ids::{Revision, WriteId},
    stored::LeaseRecord,
};

/// How long a lease lives without a renewal. A cluster of servers that loses its leader is back in less.
pub const LEASE_MS: u64 = 15_000;
/// How often its holder renews it.
pub const RENEW_MS: u64 = 2_000;

/// What the write that has just ended means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseChange {
    /// This manager acts from now on.
    Gained,
    /// It goes on.
    Renewed,
    /// It does not act any more.
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
    /// Of the key.
    revision: Revision,
    /// When the key was last seen to change.
    changed_ms: u64,
    /// Somebody else may hold it.
    taken: bool,
    /// When the last acknowledged renewal was sent; none = not the holder.
    renewed_ms: Option<u64>,
    writing: Option<Renewal>,
    next_ms: u64,
    leaving: bool,
    /// The key is not known: the watch shows everything again.
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

    /// Whether it holds the lease.
    pub(crate) fn is_held(&self) -> bool {
        self.renewed_ms.is_some()
    }

    /// Whether its last renewal is fresh enough to act.
    pub(crate) fn is_fresh(&self, now_ms: u64) -> bool {
        let renewed = self.renewed_ms.filter(|_| !self.leaving);
        renewed.is_some_and(|at| now_ms.saturating_sub(at) < ACT_MS)
    }

    /// The key as the watch shows it; none = deleted.
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

    /// The bucket is another one, or is read again.
    pub(crate) fn forget(&mut self, now_ms: u64) {
        (self.revision, self.taken, self.blind) = (Revision::NONE, true, true);
        self.changed_ms = now_ms;
    }

    /// All keys were read: without this one the lease is free.
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

    /// Whether a write of the key is due now.
    pub(crate) fn is_due(&self, now_ms: u64) -> bool {
        !self.leaving && !self.blind && self.writing.is_none() && now_ms >= self.due_ms()
    }

    fn due_ms(&self) -> u64 {
        if self.taken {
            return (self.changed_ms + LEASE_MS).max(self.next_ms);
        }
        self.next_ms
    }

    /// When it must be looked at.
    pub(crate) fn next_ms(&self) -> u64 {
        if self.leaving || self.blind || self.writing.is_some() {
            return u64::MAX;
        }
        self.due_ms()
    }

    /// The write is sent: what it says, and the revision that it replaces.
    pub(crate) fn write(&mut self, now_ms: u64, write: WriteId) -> (String, Revision) {
        self.writing = Some(Renewal {
            write,
            sent_ms: now_ms,
        });
        self.next_ms = now_ms + RENEW_MS;
        (self.me.clone(), self.revision)
    }

    /// A write has ended: with the key's new revision, or without (`refused` if another one came first). Says what
    /// that means, and when the write was sent.
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

    /// Without an acknowledgement for the whole lease it is another's.
    pub(crate) fn outlived(&mut self, now_ms: u64) -> LeaseChange {
        match self.renewed_ms {
            Some(at) if now_ms.saturating_sub(at) >= LEASE_MS => {
                (self.taken, self.changed_ms) = (true, now_ms);
                self.lose()
            }
            _ => LeaseChange::None,
        }
    }

    /// Gives the lease back: the revision to replace with an empty holder, if it is held.
    pub(crate) fn leave(&mut self) -> Option<Revision> {
        self.leaving = true;
        self.renewed_ms.take().map(|_| self.revision)
    }

    /// Takes part again.
    pub(crate) fn stay(&mut self) {
        self.leaving = false;
    }
}
