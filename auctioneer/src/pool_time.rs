//! Pool time: it passes only while messages demonstrably flow.

/// Between two echoes to ourselves: time passes only with evidence, so a lease may end so much late.
pub const ECHO_MS: u64 = 100;
/// The longest pause between two messages in which time passes. The auctioneer's echo to itself
/// comes ten times a second.
pub const MAX_GAP_MS: u64 = 2_500;

/// A clock for leases. Blocked, disconnected or frozen, we hear nobody, and nobody is lost for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolTime {
    now_ms: u64,
    last_evidence_ms: Option<u64>,
}

impl PoolTime {
    /// Milliseconds of flowing messages.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// A message arrived. Returns false when the flow was interrupted before it: then every lease
    /// is to begin again, so that nothing expires before one whole ttl of evidence.
    pub(crate) fn evidence(&mut self, now_ms: u64) -> bool {
        let last = self.last_evidence_ms.replace(now_ms);
        let gap = last.map(|last| now_ms.saturating_sub(last));
        match gap {
            Some(gap) if gap <= MAX_GAP_MS => {
                self.now_ms += gap;
                true
            }
            _ => false,
        }
    }

    /// The connection is known to be down.
    pub(crate) fn interrupted(&mut self) {
        self.last_evidence_ms = None;
    }
}
