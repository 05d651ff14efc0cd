//! Why a cell cannot run.

use placement::Invalid;
use shared::nats::BusError;

use crate::executor::ExecutorError;

/// Why a cell cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RepError {
    /// Its configuration says what no cell may.
    #[error("invalid configuration")]
    Config(#[from] Invalid),
    /// Another cell has its name.
    #[error(
        "another cell named {cell:?} is running (incarnation {incarnation}); cell names must be unique"
    )]
    NameTaken {
        /// The name.
        cell: String,
        /// The other cell's incarnation, or what it answered.
        incarnation: String,
    },
    /// NATS cannot be used.
    #[error("cannot use NATS")]
    Bus(#[from] BusError),
    /// Instances cannot be run here.
    #[error("cannot run instances")]
    Executor(#[from] ExecutorError),
}
