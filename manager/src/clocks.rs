//! Two clocks that stand still when nothing is known: a cell is lost only when both are past its ttl.

use shared::clock::millis;

/// The longest pause between two messages in which time passes. The manager's echo to itself comes ten times a second.
pub const MAX_PAUSE_MS: u64 = 2_500;
/// How long after its last acknowledged renewal the lease holder acts, measured from when it sent the renewal.
pub const ACT_MS: u64 = 5_000;
/// The ttl of a cell that was heard, but whose advertisement was not.
pub(crate) const DEFAULT_TTL_MS: u64 = 15_000;
/// A longer ttl counts as this, as at auctioneers.
pub(crate) const MAX_TTL_MS: u64 = 60_000;

/// A moment on both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Milliseconds during which messages arrived.
    flow_ms: u64,
    /// Milliseconds between acknowledged renewals of the lease: the server's majority was reached.
    lease_ms: u64,
}

impl Moment {
    /// Whether both clocks have advanced by this much since.
    pub(crate) fn is_past(self, since: Self, span_ms: u64) -> bool {
        self.flow_ms >= since.flow_ms + span_ms && self.lease_ms >= since.lease_ms + span_ms
    }

    /// Milliseconds of messages since.
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

    /// A message arrived. Returns false if there was an interruption before it.
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

    /// The connection is down, or messages were lost.
    pub(crate) fn interrupted(&mut self) {
        self.heard_ms = None;
    }

    /// A renewal that was sent then is acknowledged.
    pub(crate) fn renewed(&mut self, sent_ms: u64) {
        if let Some(last) = self.renewed_ms.replace(sent_ms) {
            let pause = sent_ms.saturating_sub(last);
            if pause <= ACT_MS {
                self.moment.lease_ms += pause;
            }
        }
    }

    /// The lease is not held any more.
    pub(crate) fn lease_lost(&mut self) {
        self.renewed_ms = None;
    }

    /// Whether messages flow.
    pub(crate) fn is_heard(&self, now_ms: u64) -> bool {
        let pause = self.heard_ms.map(|last| now_ms.saturating_sub(last));
        pause.is_some_and(|pause| pause <= MAX_PAUSE_MS)
    }
}

/// A ttl as it counts here, milliseconds.
pub(crate) fn ttl_ms(ttl: placement::Span) -> u64 {
    millis(ttl.0).min(MAX_TTL_MS)
}
