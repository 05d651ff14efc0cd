//! One cell: the ledger of reservations, bids, starts, stops, drain, executors.
//!
//! [`run`] runs a cell. [`CellMachine`] makes the decisions; it is a state machine without I/O. The shell moves its
//! messages and runs its instances.

mod attributes;
mod config;
mod error;
mod events;
mod executor;
mod history;
pub mod ledger;
mod leftovers;
mod machine;
mod mark;
mod operators;
mod outbox;
mod secrets;
mod service;
mod shell;
pub mod sim;
mod sources;
mod subscriptions;
pub mod supervisor;
mod tree;

pub use attributes::{Changes, MAX_CHANGED, attribute_value};
pub use config::{ExecutorKind, IfZero, MemoryLimit, ProcessConfig, RepConfig, SimulatedConfig};
pub use error::RepError;
pub use executor::{ExecutorError, Simulated};
pub use machine::{CellBid, CellInput, CellMachine, CellOutput, CellSettings, NAMESAKE_QUESTIONS};
pub use service::{RepExit, run, validate};
