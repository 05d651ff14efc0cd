//! How often a cell advertises, and how long an advertisement is valid.

use std::time::Duration;

use placement::{Invalid, Span};

/// The default of the shortest time between two advertisements caused by changes.
const ON_CHANGE_MS: u64 = 100;
/// The shortest interval.
const MIN_INTERVAL_MS: u64 = 10;
/// An interval is shortened by a random part, at most one part in this many.
pub(crate) const JITTER_PART: u64 = 10;

/// The times of a cell's advertisements.
#[allow(clippy::struct_field_names)] // units end a name
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cadence {
    pub(crate) interval_ms: u64,
    pub(crate) ttl_ms: u64,
    pub(crate) on_change_ms: u64,
}

impl Default for Cadence {
    /// Returns the default of reps: every 5 s, valid for 15 s.
    fn default() -> Self {
        Self {
            interval_ms: 5_000,
            ttl_ms: 15_000,
            on_change_ms: ON_CHANGE_MS,
        }
    }
}

impl Cadence {
    /// Rejects an interval shorter than 10 ms or longer than half the ttl: a single lost message must not expire a
    /// cell.
    pub fn new(interval: Span, ttl: Span) -> Result<Self, Invalid> {
        let (interval_ms, ttl_ms) = (millis(interval.0), millis(ttl.0));
        if interval_ms < MIN_INTERVAL_MS {
            let value = text(interval);
            return Err(Invalid::new("interval", value, "at least 10ms"));
        }
        if interval_ms > ttl_ms / 2 {
            let most = text(Span(Duration::from_millis(ttl_ms / 2)));
            let expected = format!("at most half the ttl of {} ({most})", text(ttl));
            return Err(Invalid::new("interval", text(interval), expected));
        }
        Ok(Self {
            interval_ms,
            ttl_ms,
            on_change_ms: ON_CHANGE_MS,
        })
    }

    /// Returns the longest time between two advertisements.
    pub fn interval(&self) -> Span {
        Span(Duration::from_millis(self.interval_ms))
    }

    /// Returns how long an advertisement is valid.
    pub fn ttl(&self) -> Span {
        Span(Duration::from_millis(self.ttl_ms))
    }
}

pub(crate) fn millis(duration: Duration) -> u64 {
    // far beyond any sensible setting, so that additions to a clock stay far from overflowing
    u64::try_from(duration.as_millis())
        .unwrap_or(u64::MAX)
        .min(1 << 50)
}

fn text(span: Span) -> String {
    format!("{:?}", span.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(ms: u64) -> Span {
        Span(Duration::from_millis(ms))
    }

    fn refused(interval_ms: u64, ttl_ms: u64) -> Option<String> {
        let refused = Cadence::new(span(interval_ms), span(ttl_ms)).err()?;
        assert_eq!(refused.field, "interval");
        Some(refused.expected)
    }

    #[test]
    fn an_interval_is_at_least_10_ms_and_at_most_half_the_ttl() {
        assert_eq!(refused(10, 20), None);
        assert_eq!(refused(5_000, 10_000), None);
        assert_eq!(refused(9, 20), Some("at least 10ms".into()));
        let expected = "at most half the ttl of 10s (5s)";
        assert_eq!(refused(5_001, 10_000), Some(expected.into()));
        let default = Cadence::new(span(5_000), span(15_000)).unwrap();
        assert_eq!(default, Cadence::default());
        assert_eq!(default.interval(), span(5_000));
        assert_eq!(default.ttl(), span(15_000));
    }

    #[test]
    fn absurdly_long_times_are_cut_so_that_sums_do_not_overflow() {
        let long = Span(Duration::from_secs(u64::MAX));
        let cadence = Cadence::new(span(10), long).unwrap();
        assert_eq!(cadence.ttl_ms, 1 << 50);
    }
}
