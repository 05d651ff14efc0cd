//! What happened, one line each, for people.

/// Keeps lines if they are wanted.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pub(super) kept: bool,
    pub(super) lines: Vec<String>,
}

impl Timeline {
    /// Adds a line: at this time, somebody did something.
    pub(super) fn add(&mut self, now_us: u64, who: &str, what: impl FnOnce() -> String) {
        if self.kept {
            let (seconds, millis) = (now_us / 1_000_000, now_us / 1_000 % 1_000);
            self.lines
                .push(format!("{seconds:>4}.{millis:03} s  {who:<7} {}", what()));
        }
    }
}
