//! Decides when to advertise. A state machine over the cell's own clock; it sends nothing itself.

use placement::{
    Span,
    random::{SplitMix64, finalise, hash_text},
};

use crate::cadence::{Cadence, JITTER_PART};

/// The time over which the answers of all cells to one `discover` are spread; no cell answers twice within it.
const ANSWER_MS: u64 = 250;

/// Why an advertisement may be due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Time has passed.
    Tick,
    /// At once: a new connection, the beginning of a drain.
    AtOnce,
    /// Somebody asked every cell to advertise.
    Discover,
    /// The cell leaves.
    Leave,
}

/// What is to be published now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The cell's whole state.
    Advertisement,
    /// What has changed since the last advertisement, whose version this is.
    Change(StateVersion),
    /// The cell's state with a ttl of 0; nothing is due after it.
    Withdrawal,
}

/// The version of a cell's state; a different number means a different state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateVersion(pub u64);

/// Decides when one cell advertises. The first advertisement is due at once.
#[derive(Clone, Debug)]
pub struct Advertiser {
    cadence: Cadence,
    /// This cell's delay within [`ANSWER_MS`].
    answer_delay_ms: u64,
    random: SplitMix64,
    next_regular_ms: u64,
    /// The version given to the last [`Advertiser::update`].
    version: StateVersion,
    /// The version that was last advertised; none if it could not be sent.
    advertised: Option<StateVersion>,
    /// The one advertised before it.
    advertised_before: Option<StateVersion>,
    /// When the whole state was last advertised.
    last_whole_ms: u64,
    changed: bool,
    answer_at_ms: Option<u64>,
    last_sent_ms: Option<u64>,
    last_answer_ms: Option<u64>,
    left: bool,
}

impl Advertiser {
    /// Creates the advertiser of a cell that starts at `now_ms` with its state at this version. The cell's name and the
    /// seed determine its jitter and its delay after a `discover`.
    pub fn new(
        cadence: Cadence,
        cell: &str,
        seed: u64,
        version: StateVersion,
        now_ms: u64,
    ) -> Self {
        // by name: cells that start at the same moment must not keep advertising at the same moment
        let hash = finalise(hash_text(cell) ^ seed);
        Self {
            cadence,
            answer_delay_ms: hash % ANSWER_MS,
            random: SplitMix64::new(hash),
            next_regular_ms: now_ms,
            version,
            advertised: None,
            advertised_before: None,
            last_whole_ms: now_ms,
            changed: false,
            answer_at_ms: None,
            last_sent_ms: None,
            last_answer_ms: None,
            left: false,
        }
    }

    /// Returns what is to be published now, with the state at this version; nothing after [`Due::Withdrawal`].
    pub fn handle(&mut self, now_ms: u64, version: StateVersion, trigger: Trigger) -> Option<Due> {
        if self.left {
            return None;
        }
        match trigger {
            Trigger::Tick => {}
            Trigger::AtOnce => {
                self.version = version;
                // regardless of the gap between changes: auctioneers must not act without knowing this
                return Some(self.send(now_ms, version, false));
            }
            Trigger::Discover => self.plan_answer(now_ms),
            Trigger::Leave => {
                self.left = true;
                self.advertised = Some(version);
                return Some(Due::Withdrawal);
            }
        }
        // an answer that is not due yet is served, too
        let only_changed = self.next_regular_ms > now_ms && self.answer_at_ms.is_none();
        (self.due_ms() <= now_ms).then(|| self.send(now_ms, version, only_changed))
    }

    /// Handles a possible change: the state has changed if this version differs from that of the last update.
    pub fn update(&mut self, now_ms: u64, version: StateVersion) -> Option<Due> {
        if version == self.version {
            return None;
        }
        self.version = version;
        // not sent here, so that changes of a burst within the gap share one advertisement
        self.changed = true;
        self.handle(now_ms, version, Trigger::Tick)
    }

    /// Records that what was due could not be sent: auctioneers may lack the last advertisement.
    pub fn not_sent(&mut self) {
        // not repeated at once: the connection would still be unable to take it
        (self.advertised, self.advertised_before) = (None, None);
    }

    /// Returns the version that was advertised before the last one, if both were sent.
    pub fn advertised_before(&self) -> Option<StateVersion> {
        self.advertised_before
    }

    /// Returns whether the last advertisement was sent and had this version.
    pub fn is_advertised(&self, version: StateVersion) -> bool {
        self.advertised == Some(version)
    }

    /// Returns whether the last advertisement was sent.
    pub fn has_advertised(&self) -> bool {
        self.advertised.is_some()
    }

    /// Returns whether the cell has withdrawn.
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// Returns how long what is published now is valid: 0 once the cell has withdrawn.
    pub fn ttl(&self) -> Span {
        if self.left {
            return Span::default();
        }
        self.cadence.ttl()
    }

    /// Returns when it must be called next; none once the cell has withdrawn.
    pub fn next_ms(&self) -> Option<u64> {
        (!self.left).then(|| self.due_ms())
    }

    fn plan_answer(&mut self, now_ms: u64) {
        // a second question before the answer gets the same answer
        if self.answer_at_ms.is_none() {
            // auctioneers that start together ask one after another: each cell answers at most four times a second
            let earliest = self.last_answer_ms.map_or(0, |last| last + ANSWER_MS);
            self.answer_at_ms = Some((now_ms + self.answer_delay_ms).max(earliest));
        }
    }

    fn due_ms(&self) -> u64 {
        self.next_regular_ms
            .min(self.change_ms())
            .min(self.answer_ms())
    }

    pub(crate) fn answer_ms(&self) -> u64 {
        self.answer_at_ms.unwrap_or(u64::MAX)
    }

    pub(crate) fn change_ms(&self) -> u64 {
        if !self.changed {
            return u64::MAX;
        }
        self.last_sent_ms
            .map_or(0, |last| last.saturating_add(self.cadence.on_change_ms))
    }

    /// Sends one advertisement, which serves all pending reasons; `only_changed` if there is no other than a change.
    fn send(&mut self, now_ms: u64, version: StateVersion, only_changed: bool) -> Due {
        if self.answer_at_ms.take().is_some() {
            self.last_answer_ms = Some(now_ms);
        }
        self.changed = false;
        let before = self.advertised.replace(version);
        self.advertised_before = before;
        self.last_sent_ms = Some(now_ms);
        // shortened, never lengthened: a lease is a multiple of the interval, and a late renewal would eat into it
        let jitter = self.random.draw() % (self.cadence.interval_ms / JITTER_PART + 1);
        self.next_regular_ms = now_ms + self.cadence.interval_ms - jitter;
        // whoever missed something knows all of it again soon, also while there is always something new
        let whole_ms = self.last_whole_ms + self.cadence.interval_ms / 2;
        if let Some(before) = before.filter(|_| only_changed && now_ms < whole_ms) {
            return Due::Change(before);
        }
        self.last_whole_ms = now_ms;
        Due::Advertisement
    }
}

#[cfg(test)]
mod tests;
