//! Only for the simulator: what a driver of virtual time needs to count advertisements that hold
//! nothing new instead of making them, and cells that advertise no changes. A rep needs none of it.

use placement::Span;

use crate::{
    Advertiser, Cadence,
    cadence::{JITTER_PART, millis},
};

impl Cadence {
    /// Another shortest time between two advertisements that changes cause. Above the interval,
    /// changes cause none: the DEAs of 2014 advertised only every few seconds.
    pub fn with_on_change(self, gap: Span) -> Self {
        Self {
            on_change_ms: millis(gap.0),
            ..self
        }
    }

    /// Whether a change is advertised sooner than without it.
    pub fn advertises_changes(&self) -> bool {
        self.on_change_ms < self.interval_ms
    }

    /// Milliseconds between two advertisements without news, on average: an interval less the mean
    /// of its jitter.
    pub fn mean_interval_ms(&self) -> f64 {
        self.interval_ms as f64 - (self.interval_ms / JITTER_PART) as f64 / 2.0
    }
}

impl Advertiser {
    /// When it wants to be told of the time next for another reason than that an interval is over:
    /// a change, an answer to `discover`. None when there is none.
    pub fn next_news_ms(&self) -> Option<u64> {
        let due_ms = self.change_ms().min(self.answer_ms());
        (!self.has_left() && due_ms < u64::MAX).then_some(due_ms)
    }
}
