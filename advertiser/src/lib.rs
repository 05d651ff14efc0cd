//! Advertisements of a cell: how often they are sent, how soon after a change, in answer to
//! `discover`; how long each is valid; and their withdrawal.
//!
//! Pure state machines over the cell's own clock. They know the version of what is advertised and
//! nothing else of it, and send nothing themselves.

mod advertiser;
mod cadence;
pub mod sim;

pub use advertiser::{Advertiser, Due, Trigger};
pub use cadence::Cadence;
