//! Only for the simulator: counts advertisements without news instead of simulating them, and allows cells that do not
//! advertise changes. A rep needs none of this.

use placement::Span;

use crate::{
    Advertiser, Cadence,
    cadence::{JITTER_PART, millis},
};

impl Cadence {
    /// Changes the shortest time between two advertisements caused by changes. If it exceeds the interval, changes
    /// cause no advertisements: the DEAs of 2014 advertised only every few seconds.
    pub fn with_on_change(self, gap: Span) -> Self {
        Self {
            on_change_ms: millis(gap.0),
            ..self
        }
    }

    /// Returns whether a change is advertised before the interval is over.
    pub fn advertises_changes(&self) -> bool {
        self.on_change_ms < self.interval_ms
    }

    /// Returns the mean interval between two advertisements without news, in milliseconds: the interval less the mean
    /// of its jitter.
    pub fn mean_interval_ms(&self) -> f64 {
        self.interval_ms as f64 - (self.interval_ms / JITTER_PART) as f64 / 2.0
    }
}

impl Advertiser {
    /// Returns when it must be called next for a reason other than the end of an interval: a change, or an answer to
    /// `discover`. None if there is no such reason.
    pub fn next_news_ms(&self) -> Option<u64> {
        let due_ms = self.change_ms().min(self.answer_ms());
        (!self.has_left() && due_ms < u64::MAX).then_some(due_ms)
    }
}
