//! What a ledger says and is told.

use std::sync::Arc;

use shared::InstanceId;
use shared::wire::{EventInstance, Work};

/// What the executor is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum ExecutorOrder {
    /// Start the instance's process; reports about it carry this attempt's number.
    Launch {
        /// What to run.
        work: Arc<Work>,
        /// 0 for the first start here, one more for each restart.
        attempt: u32,
    },
    /// End the instance's process: ask it, then make it.
    End {
        /// Which instance.
        instance: InstanceId,
        /// Which of its starts.
        attempt: u32,
    },
}

/// What is to be done, and what is to be told.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Something for the executor.
    Execute(ExecutorOrder),
    /// Something that observers want to know.
    Event {
        /// One of [`shared::wire::kind`].
        kind: &'static str,
        /// The app.
        app: String,
        /// The instance.
        instance: EventInstance,
        /// Why, where there is more to say than how it ended.
        reason: Option<String>,
    },
}

/// What an executor says of an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutorReport {
    /// Which instance.
    pub instance: InstanceId,
    /// Which of its starts.
    pub attempt: u32,
    /// What became of it.
    pub change: InstanceChange,
}

/// See [`ExecutorReport`].
#[derive(Clone, Debug, PartialEq)]
pub enum InstanceChange {
    /// It runs.
    Running {
        /// Its process.
        pid: Option<u32>,
        /// The port it was given.
        port: Option<u16>,
    },
    /// It is gone, with every process it made.
    Ended(EndReason),
}

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// By itself, with this exit code.
    Exit(i32),
    /// By a signal.
    Signal(i32),
    /// It took more memory than it was given.
    OverMemory,
    /// It could not be started, or was lost; in words.
    Failed(String),
}

impl std::fmt::Display for EndReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EndReason::Exit(code) => write!(f, "exit {code}"),
            EndReason::Signal(number) => write!(f, "signal {number}"),
            EndReason::OverMemory => f.write_str("over its memory limit"),
            EndReason::Failed(why) => f.write_str(why),
        }
    }
}
