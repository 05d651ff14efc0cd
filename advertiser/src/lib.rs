//! How a cell is heard: when it advertises, how soon after a change, how it answers `discover`,
//! and how it takes its leave.

mod schedule;

pub use schedule::{Cadence, Input, Output, Schedule};
