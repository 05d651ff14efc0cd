//! Two clocks that stop while nothing is known: a cell is lost only when its ttl has passed on both.

use shared::clock::millis;

/// The longest pause between two messages that counts as passed time. The manager's echo to itself arrives ten times a
/// second.
pub const MAX_PAUSE_MS: u64 = 2_500;
/// How long the lease holder may act after it sent the last renewal that was acknowledged.
pub const ACT_MS: u64 = 5_000;
/// The ttl of a cell that was heard but whose advertisement was not.
pub(crate) const DEFAULT_TTL_MS: u64 = 15_000;
/// A longer ttl is cut to this, as auctioneers do.
pub(crate) const MAX_TTL_MS: u64 = 60_000;

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Milliseconds in which messages arrived.
    flow_ms: u64,
    /// Milliseconds between acknowledged renewals of the lease, in which a majority of the servers could be reached.
    lease_ms: u64,
}

impl Moment {
    /// Returns whether both clocks have advanced by at least `span_ms` since then.
    pub(crate) fn is_past(self, since: Self, span_ms: u64) -> bool {
        self.flow_ms >= since.flow_ms + span_ms && self.lease_ms >= since.lease_ms + span_ms
    }

    /// Returns the milliseconds in which messages arrived since then.
    pub(crate) fn flow_since(self, since: Self) -> u64 {
        self.flow_ms.saturating_sub(since.flow_ms)
    }
}

/// Both clocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clocks {
    moment: Moment,
    heard_ms: Option<u64>,
    renewed_ms: Option<u64>,
}

impl Clocks {
    pub(crate) fn moment(&self) -> Moment {
        self.moment
    }

    /// Records that a message arrived. Returns false if there was an interruption before it.
    pub(crate) fn heard(&mut self, now_ms: u64) -> bool {
        let Some(last) = self.heard_ms.replace(now_ms) else {
            return false;
        };
        let pause = now_ms.saturating_sub(last);
        if pause <= MAX_PAUSE_MS {
            self.moment.flow_ms += pause;
        }
        pause <= MAX_PAUSE_MS
    }

    /// Records that the connection is down or that messages were lost.
    pub(crate) fn interrupted(&mut self) {
        self.heard_ms = None;
    }

    /// Records that a renewal sent at this time was acknowledged.
    pub(crate) fn renewed(&mut self, sent_ms: u64) {
        if let Some(last) = self.renewed_ms.replace(sent_ms) {
            let pause = sent_ms.saturating_sub(last);
            if pause <= ACT_MS {
                self.moment.lease_ms += pause;
            }
        }
    }

    /// Records that the lease is no longer held.
    pub(crate) fn lease_lost(&mut self) {
        self.renewed_ms = None;
    }

    /// Returns whether messages flow.
    pub(crate) fn is_heard(&self, now_ms: u64) -> bool {
        let pause = self.heard_ms.map(|last| now_ms.saturating_sub(last));
        pause.is_some_and(|pause| pause <= MAX_PAUSE_MS)
    }
}

/// Returns a ttl as it counts here, in milliseconds.
pub(crate) fn ttl_ms(ttl: placement::Span) -> u64 {
    millis(ttl.0).min(MAX_TTL_MS)
}
