//! A progress bar on the last line of a terminal.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use simulator::Progress;

/// Interval between two updates.
const PAUSE: Duration = Duration::from_millis(200);
/// The width of the bar, in columns.
const COLUMNS: u64 = 30;

/// A bar on standard error, if that is a terminal.
pub(super) struct Bar {
    label: String,
    next: Option<Instant>,
}

impl Bar {
    pub(super) fn new(label: &str) -> Self {
        Self {
            label: label.to_owned(),
            next: io::stderr().is_terminal().then(|| Instant::now() + PAUSE),
        }
    }

    pub(super) fn show(&mut self, progress: Progress) {
        let now = Instant::now();
        let Some(next) = self.next.filter(|next| now >= *next) else {
            return;
        };
        self.next = Some(next.max(now) + PAUSE);
        let done = (COLUMNS * progress.virtual_ms / progress.end_ms.max(1)).min(COLUMNS);
        let bar: String = (0..COLUMNS)
            .map(|i| if i < done { '█' } else { '░' })
            .collect();
        let (placed, asked) = (progress.placed, progress.asked);
        let age = crate::output::age(progress.virtual_ms);
        // progress is dispensable if the terminal cannot be written to
        let _ = write!(
            io::stderr(),
            "\r{} {bar} {age}, {placed} of {asked} placed\x1b[K",
            self.label
        );
    }

    pub(super) fn clear(self) {
        if self.next.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
