//! Cells and work that are given instead of heard: scenario files, decided without any cluster, and
//! made-up load for measurements. Pure functions: the caller reads the files.

mod file;
mod synthetic;
mod text;

pub use file::{OfflineAuction, ScenarioError};
pub use synthetic::SyntheticLoad;
pub use text::render;
