//! An [`Outcome`](crate::outcome::Outcome) for people: one HTML file, and text for a terminal.

use crate::outcome::Outcome;

/// One self-contained HTML file.
#[must_use]
pub fn html(outcome: &Outcome) -> String {
    outcome.name.clone()
}

/// The same as text, at most `width` columns wide; with terminal colours when `colour`.
#[must_use]
pub fn text(outcome: &Outcome, width: usize, colour: bool) -> String {
    let _ = (width, colour);
    outcome.name.clone()
}
