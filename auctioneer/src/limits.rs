//! Limits on what others may ask for.

/// Limits on what others may ask for, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest ttl of an advertisement; a longer one is cut to this. It limits how long a forged advertisement is
    /// believed.
    pub max_ttl_ms: u64,
    /// The longest `queue_timeout`.
    pub max_queue_ms: u64,
}

impl Limits {
    /// The highest limits that an operator may set: a ttl of an hour, a `queue_timeout` of a day.
    pub const MOST: Self = Self {
        max_ttl_ms: 3_600_000,
        max_queue_ms: 24 * 3_600_000,
    };
}

impl Default for Limits {
    /// Returns a ttl of a minute, four times the default of `vendue rep`, and a `queue_timeout` of an hour.
    fn default() -> Self {
        Self {
            max_ttl_ms: 60_000,
            max_queue_ms: 3_600_000,
        }
    }
}
