//! Advertisements of a cell: how often they are sent, how soon after a change or a `discover`, how long they are valid,
//! and their withdrawal.
//!
//! These are pure state machines over the cell's own clock. They know only the version of the cell's state, and send
//! nothing themselves.
//!
//! [`dea`] is an older way for machines to advertise: the messages of Cloud Foundry's DEAs. [`dea_in`] and [`dea_out`]
//! are the programs between an estate of DEAs and a cluster.

mod advertiser;
mod cadence;
pub mod dea;
pub mod dea_in;
pub mod dea_out;
mod outbox;
mod shown;
pub mod sim;
mod simulated_estate;

pub use advertiser::{Advertiser, Due, StateVersion, Trigger};
pub use cadence::Cadence;
pub use simulated_estate::SimulatedEstate;
