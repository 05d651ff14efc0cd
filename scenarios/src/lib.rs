//! Cells and work without a cluster: scenario files for offline auctions, and synthetic load for
//! measurements. Pure functions: the caller reads the files.

mod file;
mod synthetic;

pub use file::{OfflineAuction, ScenarioError};
pub use synthetic::SyntheticLoad;
