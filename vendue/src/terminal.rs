//! The terminal of standard output, if it is one.

use std::{io, sync::OnceLock};

/// Whether `--wide` was given. A process has only one standard output, so one value suffices.
static WIDE: OnceLock<bool> = OnceLock::new();

/// Sets whether every column of every table is shown, however narrow the terminal (`--wide`).
pub(crate) fn set_wide(wide: bool) {
    // the first value stays: it is set once, before any command runs
    let _ = WIDE.set(wide);
}

/// Returns the number of columns that lines may have; none = unlimited.
pub(crate) fn width() -> Option<usize> {
    let wide = WIDE.get().copied().unwrap_or(false);
    terminal_width().filter(|_| !wide)
}

/// Returns whether standard output shows colours: it is a capable terminal, and NO_COLOR does not forbid it
/// (<https://no-color.org>: empty counts as unset).
pub(crate) fn colours() -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    rustix::termios::isatty(io::stdout()) && !no_color && !dumb
}

/// Returns the number of columns of standard output's terminal; none if it is not a terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}
