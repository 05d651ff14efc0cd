//! One cell: the ledger of what is promised and what runs, bids, starts, stops, drain, executors.
//!
//! [`run`] is the cell's program. [`ledger`] decides; it is a state machine without I/O. The shell
//! moves its messages and runs its instances.

mod attributes;
mod config;
pub mod events;
mod executor;
mod hearing;
mod history;
pub mod ledger;
mod operators;
mod outbox;
mod service;
mod shell;
pub mod speech;
pub mod supervisor;

pub use attributes::{Changes, MAX_CHANGED, attribute_value};
pub use config::{Config, ExecutorKind, MemoryLimit, ProcessConfig, SimulatedConfig};
pub use executor::Simulated;
pub use service::{Ended, RepError, run};
