//! What happened, a line each, for people.

/// Keeps lines when it is to.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) kept: bool,
    pub(super) lines: Vec<String>,
}

impl Timeline {
    /// At this time, somebody did something.
    pub(super) fn add(&mut self, now_us: u64, who: &str, what: impl FnOnce() -> String) {
        if self.kept {
            let (seconds, millis) = (now_us / 1_000_000, now_us / 1_000 % 1_000);
            self.lines
                .push(format!("{seconds:>4}.{millis:03} s  {who:<7} {}", what()));
        }
    }
}
