//! What is known of one cell beside its resources.

use placement::Job;
use shared::{Incarnation, InstanceId, clock::CellTime, wire::Envelope};

/// One cell as it is known.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its present incarnation.
    pub incarnation: Incarnation,
    /// The version of its last whole report.
    pub seq: u64,
    /// Its own clock when it was last heard.
    pub clock_ms: CellTime,
    /// Our clock then.
    pub heard_at_ms: u64,
    /// How long a report holds.
    pub ttl_ms: u64,
    /// In pool time.
    pub expires_at_ms: u64,
    /// It missed a bid deadline: nobody waits for it until it advertises again.
    pub silent: bool,
    /// Nobody listened there: until then (our clock) no work goes there.
    pub absent_until_ms: u64,
    /// What was sent to it and is not in its report.
    pub debits: Vec<Debit>,
}

/// An instance that was sent to a cell whose report does not show it yet.
#[derive(Clone, Debug)]
pub struct Debit {
    /// The instance.
    pub instance: InstanceId,
    /// What was debited.
    pub job: Job,
    /// The cell's version in its answer: a report of that version or later shows it.
    pub answered_seq: Option<u64>,
    /// On the cell's clock: past it the cell refuses the start.
    pub expires_ms: CellTime,
}

impl Known {
    pub(super) fn new(envelope: &Envelope, ttl_ms: u64) -> Self {
        Self {
            incarnation: envelope.incarnation,
            seq: envelope.seq,
            clock_ms: CellTime::default(),
            heard_at_ms: 0,
            ttl_ms,
            expires_at_ms: 0,
            silent: false,
            absent_until_ms: 0,
            debits: Vec::new(),
        }
    }

    pub(super) fn touch(
        &mut self,
        now_ms: u64,
        pool_ms: u64,
        envelope: &Envelope,
        ttl_ms: Option<u64>,
    ) {
        self.ttl_ms = ttl_ms.unwrap_or(self.ttl_ms);
        self.expires_at_ms = pool_ms + lease_ms(self.ttl_ms);
        if envelope.clock_ms > CellTime::default() {
            self.clock_ms = envelope.clock_ms;
            self.heard_at_ms = now_ms;
        }
    }

    /// It advertised by itself: it is there, and may be waited for.
    pub(super) fn advertised(&mut self) {
        self.silent = false;
        self.absent_until_ms = 0;
    }
}

/// How long a report counts. Time is looked at ten times a second, and passes in such steps: a fiftieth
/// less than the ttl, so that a dead cell is gone when its ttl is over (15 s), not soon after.
pub(super) fn lease_ms(ttl_ms: u64) -> u64 {
    ttl_ms - ttl_ms / 50
}
