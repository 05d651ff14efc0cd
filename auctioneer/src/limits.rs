//! How much others may ask for.

/// How much others may ask for, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest ttl of an advertisement: a longer one counts as this. So what a forged one says is
    /// not believed for longer.
    pub max_ttl_ms: u64,
    /// The longest `queue_timeout`.
    pub max_queue_ms: u64,
}

impl Limits {
    /// The most that an operator may allow: a ttl of an hour, a `queue_timeout` of a day.
    pub const MOST: Self = Self {
        max_ttl_ms: 3_600_000,
        max_queue_ms: 24 * 3_600_000,
    };
}

impl Default for Limits {
    /// A ttl of a minute, four times the default of `vendue rep`; a `queue_timeout` of an hour.
    fn default() -> Self {
        Self {
            max_ttl_ms: 60_000,
            max_queue_ms: 3_600_000,
        }
    }
}
