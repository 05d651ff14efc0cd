//! What is known of one cell beside its resources.

use placement::{DeviceShares, Job};
use shared::{Incarnation, InstanceId, clock::CellTime, wire::Envelope};

/// One cell as it is known.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its present incarnation.
    pub incarnation: Incarnation,
    /// The version of its last full report.
    pub seq: u64,
    /// The cell's clock in its last report.
    pub clock_ms: CellTime,
    /// Our clock then.
    pub reported_at_ms: u64,
    /// How long a report is valid.
    pub ttl_ms: u64,
    /// In pool time.
    pub expires_at_ms: u64,
    /// Silent: it missed a bid deadline, and auctions do not wait for it until it advertises again.
    pub silent: bool,
    /// There were no responders: nothing is sent to it until then (our clock).
    pub absent_until_ms: u64,
    /// What was sent to it and is not in its report yet.
    pub debits: Vec<Debit>,
    /// What is advertised for it and does not count.
    pub(super) ignored: Option<Ignored>,
}

/// Advertisements, one after another, that do not count because another one made them old.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ignored {
    incarnation: Incarnation,
    since_ms: u64,
    last_ms: u64,
}

/// An instance that was sent to a cell whose report does not show it yet.
#[derive(Clone, Debug)]
pub struct Debit {
    /// The instance.
    pub instance: InstanceId,
    /// What was debited.
    pub job: Job,
    /// With these devices.
    pub devices: Option<Box<DeviceShares>>,
    /// The cell's version in its answer: reports of that version or later show it.
    pub answered_seq: Option<u64>,
    /// On the cell's clock; later the cell refuses the start.
    pub expires_ms: CellTime,
}

impl Known {
    /// Heard for the first time now. Until a report says more, the cell's clock begins at 0 now: a rep's first
    /// report is of that time.
    pub(super) fn new(now_ms: u64, envelope: &Envelope, ttl_ms: u64) -> Self {
        Self {
            incarnation: envelope.incarnation,
            seq: envelope.seq,
            clock_ms: CellTime::default(),
            reported_at_ms: now_ms,
            ttl_ms,
            expires_at_ms: 0,
            silent: false,
            absent_until_ms: 0,
            debits: Vec::new(),
            ignored: None,
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
        // 0: the message has no clock, and the last one still counts
        if envelope.clock_ms > CellTime::default() {
            self.clock_ms = envelope.clock_ms;
            self.reported_at_ms = now_ms;
        }
        // the incarnation that counts is there: another one is as old as before
        let same = |ignored: &Ignored| ignored.incarnation == envelope.incarnation;
        self.ignored = self.ignored.filter(same);
    }

    /// An advertisement with this ttl that another one made old. Whether such have arrived for a whole ttl:
    /// then the cell speaks, and what made them old was forged.
    pub(super) fn goes_on(
        &mut self,
        now_ms: u64,
        pool_ms: u64,
        envelope: &Envelope,
        ttl_ms: u64,
    ) -> bool {
        let incarnation = envelope.incarnation;
        if incarnation == self.incarnation {
            // it is there, whatever is right of it
            self.expires_at_ms = self.expires_at_ms.max(pool_ms + lease_ms(ttl_ms));
        }
        let earlier = self.ignored.filter(|ignored| {
            let pause_ms = now_ms.saturating_sub(ignored.last_ms);
            ignored.incarnation == incarnation && pause_ms <= ttl_ms
        });
        let since_ms = earlier.map_or(now_ms, |earlier| earlier.since_ms);
        self.ignored = Some(Ignored {
            incarnation,
            since_ms,
            last_ms: now_ms,
        });
        now_ms.saturating_sub(since_ms) >= lease_ms(ttl_ms)
    }

    /// Whether the sender has our cell's name and was replaced: it has run for longer than the rep that we
    /// know, by more than messages take.
    pub(super) fn replaced(&self, now_ms: u64, envelope: &Envelope) -> bool {
        let since_ms = now_ms.saturating_sub(self.reported_at_ms);
        let age_ms = self.clock_ms.as_ms().saturating_add(since_ms);
        let theirs_ms = envelope.clock_ms.as_ms();
        envelope.incarnation != self.incarnation
            // a third of the ttl is an interval: messages of one that runs may be late by about that
            && theirs_ms > age_ms.saturating_add(self.ttl_ms / 3)
    }

    /// It advertised by itself, so it is not silent any more.
    pub(super) fn advertised(&mut self) {
        self.silent = false;
        self.absent_until_ms = 0;
    }
}

/// How long a report is treated as valid. Time is checked, and passes, in steps of a tenth of a
/// second: a fiftieth less than the ttl, so that a dead cell is removed when its ttl is over (15
/// s), not soon after.
pub(super) fn lease_ms(ttl_ms: u64) -> u64 {
    ttl_ms - ttl_ms / 50
}
