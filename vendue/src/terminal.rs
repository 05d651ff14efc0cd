//! The terminal that standard output is, if it is one.

use std::{io, sync::OnceLock};

/// Whether `--wide` was given: the process has one standard output, so this is one for the process.
static WIDE: OnceLock<bool> = OnceLock::new();

/// `--wide`: every column of every table, however narrow the terminal.
pub(crate) fn set_wide(wide: bool) {
    // the first one stays: it is set once, before any command runs
    let _ = WIDE.set(wide);
}

/// The columns that lines may have; none = as many as they need.
pub(crate) fn width() -> Option<usize> {
    let wide = WIDE.get().copied().unwrap_or(false);
    terminal_width().filter(|_| !wide)
}

/// Whether standard output shows colours: it is a terminal that can, and NO_COLOR does not forbid it
/// (<https://no-color.org>: empty is as if it were not set).
pub(crate) fn colours() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    rustix::termios::isatty(io::stdout()) && !no_color && !dumb
}

/// The columns of the terminal that standard output is; none when it is no terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
