//! Errors that keep a cell from running.

use placement::Invalid;
use shared::nats::{BusError, PermissionViolation};

use crate::executor::ExecutorError;

/// Why a rep cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RepError {
    /// The configuration is not valid.
    #[error("invalid configuration")]
    Config(#[from] Invalid),
    /// Another cell has its name.
    #[error(
        "another cell named {cell:?} is running (incarnation {incarnation}); cell names must be unique"
    )]
    NameTaken {
        /// The name.
        cell: String,
        /// The other cell's incarnation, or its answer.
        incarnation: String,
    },
    /// The server's permissions do not allow what a cell must do.
    #[error("cell {cell:?}: {violation}; the credentials must be those of this cell")]
    NotPermitted {
        /// The cell.
        cell: String,
        /// What was refused.
        violation: PermissionViolation,
    },
    /// NATS cannot be used.
    #[error("cannot use NATS")]
    Bus(#[from] BusError),
    /// The executor cannot run instances on this machine.
    #[error("cannot run instances")]
    Executor(#[from] ExecutorError),
}
