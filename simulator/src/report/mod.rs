//! An [`Outcome`] for people: one HTML file, and text for a terminal.
//!
//! Both show the same: the figures with policies as columns, what each cell holds at the end, how it
//! went over time, how waits, rounds and loads are spread, why instances were refused, and how to make
//! it again. Both are pure functions of the outcome: the same outcome gives the same bytes.

mod charted;
mod html;
mod markup;
mod number;
mod palette;
mod table;
mod text;

use crate::outcome::Outcome;

/// One self-contained HTML file.
///
/// It needs no network, and its content security policy forbids any; it can be read without a
/// script, which only adds what is under the pointer and draws maps of more than 4,000 blocks.
/// It stays below 5 MiB up to 20,000 rows (cells under policies): where blocks and the names of their
/// apps would take more, only the largest blocks of each cell are shown by themselves. Whatever the scenario names is escaped. Exact figures are in the
/// `data-value` attributes of the table, each with its JSON pointer within
/// [`Figures`](crate::outcome::Figures) in `data-figure` and the position of its run in `data-run`.
#[must_use]
pub fn html(outcome: &Outcome) -> String {
    html::page(outcome)
}

/// The same as text, at most `width` columns wide (40 where it is less); with terminal colours when
/// `colour`.
///
/// Many policies are shown below each other, and more than 60 cells in one line for each zone. Control
/// characters in what the scenario names are replaced, so that no name steers the terminal.
#[must_use]
pub fn text(outcome: &Outcome, width: usize, colour: bool) -> String {
    text::page(outcome, width, colour)
}
