//! The outputs of a ledger, and the executor's reports to it.

use std::sync::Arc;

use placement::{HealthCheck, Usage};
use shared::InstanceId;
use shared::wire::{EventInstance, TaskResult, Work};

/// An order for the executor.
#[derive(Clone, Debug, PartialEq)]
pub enum ExecutorOrder {
    /// Start the instance's process; reports about it carry this attempt's number.
    Launch {
        /// What to run.
        work: Arc<Work>,
        /// 0 for the first start here; one more for each restart.
        attempt: u32,
    },
    /// End the instance's process: SIGTERM, then SIGKILL.
    End {
        /// Which instance.
        instance: InstanceId,
        /// Which attempt.
        attempt: u32,
        /// Whether to send SIGKILL without SIGTERM first.
        at_once: bool,
    },
    /// Check an instance once, and report the result.
    Check {
        /// Which instance.
        instance: InstanceId,
        /// Which attempt.
        attempt: u32,
        /// What is checked.
        of: CheckOf,
        /// How to check it.
        check: Arc<HealthCheck>,
        /// The port to connect to; if the instance has none, the check fails.
        port: Option<u16>,
    },
}

/// What a check examines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckOf {
    /// Whether the instance is healthy.
    Health,
    /// Whether it is ready to be used.
    Ready,
}

/// An order for the executor, or something to publish.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// For the executor.
    Execute(ExecutorOrder),
    /// Publish an event.
    Event {
        /// One of [`shared::wire::kind`].
        kind: &'static str,
        /// The app.
        app: String,
        /// The instance.
        instance: EventInstance,
        /// Details besides how it ended.
        reason: Option<String>,
    },
    /// Tell managers how a task ended that one of them started.
    Result(Box<TaskResult>),
}

/// An executor's report about an instance.
#[derive(Clone, Debug, PartialEq)]
pub struct ExecutorReport {
    /// Which instance.
    pub instance: InstanceId,
    /// Which attempt.
    pub attempt: u32,
    /// What happened.
    pub change: InstanceChange,
}

/// What an [`ExecutorReport`] reports.
#[derive(Clone, Debug, PartialEq)]
pub enum InstanceChange {
    /// Its process exists.
    Running {
        /// Its process.
        pid: Option<u32>,
        /// The port it was given.
        port: Option<u16>,
    },
    /// A check was done.
    Checked {
        /// What was checked.
        of: CheckOf,
        /// Why it failed; none if it passed.
        failure: Option<String>,
    },
    /// What it uses was measured.
    Measured(Usage),
    /// It has ended, together with every process that it started.
    Ended(EndReason),
}

/// A running attempt of an instance, with its main process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunningProcess {
    pub(crate) instance: InstanceId,
    pub(crate) attempt: u32,
    pub(crate) pid: u32,
}

/// How an instance ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// By itself, with this exit code.
    Exit(i32),
    /// By a signal.
    Signal(i32),
    /// It was ended because it exceeded a limit.
    Over(Limit),
    /// It could not be started, or was lost; with the reason.
    Failed(String),
}

/// How the reason starts if it is not known whether the command ran.
pub(crate) const SUPERVISOR_LOST: &str = "its supervisor was lost";

impl EndReason {
    /// Returns whether the command may have run: false only if it certainly has not.
    pub fn may_have_run(&self) -> bool {
        match self {
            EndReason::Failed(why) => why.starts_with(SUPERVISOR_LOST),
            EndReason::Exit(_) | EndReason::Signal(_) | EndReason::Over(_) => true,
        }
    }
}

/// A limit; an instance that exceeds it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Of memory.
    Memory,
    /// Of disk space.
    Disk,
    /// Of the number of files, or the depth of directories.
    Files,
    /// Of the number of processes and threads.
    Processes,
}

impl Limit {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Memory, Self::Disk, Self::Files, Self::Processes];
}

impl std::fmt::Display for Limit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Limit::Memory => "memory limit",
            Limit::Disk => "disk limit",
            Limit::Files => "limit of files",
            Limit::Processes => "limit of processes",
        })
    }
}

impl std::fmt::Display for EndReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EndReason::Exit(code) => write!(f, "exit {code}"),
            EndReason::Signal(number) => write!(f, "signal {number}"),
            EndReason::Over(limit) => write!(f, "over its {limit}"),
            EndReason::Failed(why) => f.write_str(why),
        }
    }
}
