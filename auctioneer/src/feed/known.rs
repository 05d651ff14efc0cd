//! What is known of one cell besides its resources.

use placement::{DeviceShares, Job};
use shared::{Incarnation, InstanceId, clock::CellTime, wire::Envelope};

/// One known cell.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its present incarnation.
    pub incarnation: Incarnation,
    /// The version of its last full report.
    pub seq: u64,
    /// The cell's clock in its last report.
    pub clock_ms: CellTime,
    /// Our clock at that time.
    pub reported_at_ms: u64,
    /// How long a report is valid.
    pub ttl_ms: u64,
    /// When its lease ends, in pool time.
    pub expires_at_ms: u64,
    /// Whether it is silent: it missed a bid deadline, and auctions do not wait for it until it advertises again.
    pub silent: bool,
    /// A start had no responders or no answer: nothing is sent to the cell until then (our clock).
    pub absent_until_ms: u64,
    /// Work that was sent to it and that its report does not show yet.
    pub debits: Vec<Debit>,
    /// Whether amounts were taken from its answer to a start, so that what is known is no version of it: changes cannot
    /// be used.
    pub(super) corrected: bool,
    /// When it may next be asked for its state because a change cannot be used.
    pub(super) ask_state_ms: u64,
    /// Advertisements in its name that are being ignored.
    pub(super) ignored: Option<Ignored>,
}

/// A sequence of advertisements that are ignored because another one made them old.
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
    /// The devices debited with it.
    pub devices: Option<Box<DeviceShares>>,
    /// The cell's version in its answer: reports of this version or later show the instance.
    pub answered_seq: Option<u64>,
    /// When the start expires, on the cell's clock; after that the cell refuses it.
    pub expires_ms: CellTime,
}

impl Known {
    /// Creates a cell that is heard for the first time now. Until a report says more, its clock is taken to be 0 now,
    /// which is when a rep sends its first report.
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
            corrected: false,
            ask_state_ms: 0,
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
        // 0: the message has no clock value, and the last one still counts
        if envelope.clock_ms > CellTime::default() {
            self.clock_ms = envelope.clock_ms;
            self.reported_at_ms = now_ms;
        }
        // the current incarnation is alive: any other one remains old
        let same = |ignored: &Ignored| ignored.incarnation == envelope.incarnation;
        self.ignored = self.ignored.filter(same);
    }

    /// Records an advertisement with this ttl that another one made old. Returns whether such advertisements have
    /// arrived for a whole ttl: then the cell is alive, and what made them old was forged.
    pub(super) fn goes_on(
        &mut self,
        now_ms: u64,
        pool_ms: u64,
        envelope: &Envelope,
        ttl_ms: u64,
    ) -> bool {
        let incarnation = envelope.incarnation;
        if incarnation == self.incarnation {
            // the cell is alive, whichever of its reports is right
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

    /// Returns whether the sender is a rep of the same name that was replaced: it has been running for longer than the
    /// rep that we know, by more than message delays explain.
    pub(super) fn replaced(&self, now_ms: u64, envelope: &Envelope) -> bool {
        let since_ms = now_ms.saturating_sub(self.reported_at_ms);
        let age_ms = self.clock_ms.as_ms().saturating_add(since_ms);
        let theirs_ms = envelope.clock_ms.as_ms();
        envelope.incarnation != self.incarnation
            // a third of the ttl is one interval: messages of a live rep may be late by about that
            && theirs_ms > age_ms.saturating_add(self.ttl_ms / 3)
    }

    /// Records that the cell advertised by itself: it is no longer silent.
    pub(super) fn advertised(&mut self) {
        self.silent = false;
        self.absent_until_ms = 0;
    }
}

/// Returns whether a change from version `since` to `seq` can be used: if what is known of this incarnation is a version
/// between them.
pub(super) fn builds_on(known: Option<&Known>, since: u64, seq: u64) -> bool {
    known.is_some_and(|known| (since..=seq).contains(&known.seq) && !known.corrected)
}

/// Returns how long a report is treated as valid. Time is checked, and passes, in steps of a tenth of a second: the
/// lease is a fiftieth shorter than the ttl, so that a dead cell is removed when its ttl ends (15 s), not shortly
/// after.
pub(super) fn lease_ms(ttl_ms: u64) -> u64 {
    ttl_ms - ttl_ms / 50
}
