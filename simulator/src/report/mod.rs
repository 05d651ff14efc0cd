//! Reports of a [`SimOutcome`]: one HTML file, and text for a terminal.
//!
//! Both show the same: the figures with policies as columns, the instances on each cell at the end, quantities over
//! time, the distributions of waits, rounds and loads, why instances are unplaced, and the command. Both are pure
//! functions of the outcome: the same outcome gives the same bytes.

mod charted;
mod demand;
mod html;
mod markup;
mod number;
mod palette;
mod table;
mod text;

use crate::outcome::SimOutcome;

/// Renders one self-contained HTML file.
///
/// It needs no network, and its content security policy forbids any. It can be read without a script: the script only
/// adds what is under the pointer and draws maps of more than 4,000 blocks. It stays below 5 MiB up to 20,000 rows
/// (cells times policies): if blocks and the names of their apps would take more, only the largest blocks of each cell
/// are shown individually. All text of the scenario is escaped. Exact figures are in the `data-value` attributes of the
/// table, each with its JSON pointer within [`Figures`](crate::outcome::Figures) in `data-figure` and the position of
/// its run in `data-run`.
#[must_use]
pub fn html(outcome: &SimOutcome) -> String {
    html::page(outcome)
}

/// Renders the same as text, at most `width` columns wide (but at least 40), with terminal colours if `colour` is set.
///
/// Policies that do not fit side by side are shown below each other; more than 60 cells are shown as one line per zone.
/// Control characters in the scenario's text are replaced, so that no name controls the terminal.
#[must_use]
pub fn text(outcome: &SimOutcome, width: usize, colour: bool) -> String {
    text::page(outcome, width, colour)
}
