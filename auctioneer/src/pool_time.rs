//! Pool time, which passes only while messages arrive.

/// The interval of the echo to itself; a lease may end this much late.
pub const ECHO_MS: u64 = 100;
/// The longest pause between two messages in which time passes. The auctioneer sends an echo to itself ten times a
/// second.
pub const MAX_GAP_MS: u64 = 2_500;

/// A clock for leases. While we are blocked, disconnected or suspended we receive nothing, and no
/// cell expires.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolTime {
    now_ms: u64,
    last_evidence_ms: Option<u64>,
}

impl PoolTime {
    /// Returns how many milliseconds have passed while messages arrived.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Records that a message arrived. Returns false if there was an interruption before it: then every lease begins
    /// again, so that nothing expires before messages have arrived for a whole ttl.
    pub(crate) fn evidence(&mut self, now_ms: u64) -> bool {
        let last = self.last_evidence_ms.replace(now_ms);
        let gap = last.map(|last| now_ms.saturating_sub(last));
        match gap {
            Some(gap) if gap <= MAX_GAP_MS => {
                self.now_ms += gap;
                true
            }
            // the gap is not counted: what cells said during it was not heard
            _ => false,
        }
    }

    /// Records that the connection is down.
    pub(crate) fn interrupted(&mut self) {
        self.last_evidence_ms = None;
    }
}
