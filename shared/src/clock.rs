//! The only place where a process reads its clock; everything else takes `now_ms` as an argument.

use std::{
    fmt,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

/// A process's monotonic clock, in milliseconds since its creation. Its readings are only meaningful to its owner:
/// other processes send them back unchanged.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Creates a clock that starts at 0 now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        millis(self.0.elapsed())
    }

    /// Returns the instant of a reading of this clock, for timers.
    pub fn instant(&self, at_ms: u64) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.0 + Duration::from_millis(at_ms))
    }
}

/// Returns the wall time in milliseconds since the Unix epoch; only for dates that operators set, and for ids.
pub fn wall_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Returns a duration in whole milliseconds, saturating.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A reading of one cell's monotonic clock, in milliseconds. The clocks of two processes are not comparable, so an
/// auctioneer only adds to a reading and sends it back to its cell.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct CellTime(u64);

impl CellTime {
    /// Creates a reading from the number that the cell's clock showed.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Returns the milliseconds on the cell's clock.
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// Returns the reading of the cell's clock this much later.
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }
}

impl fmt::Display for CellTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
