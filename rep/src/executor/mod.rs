//! Executors run instances: they launch and end them, and report what happened.

mod accounts;
mod droplets;
mod environment;
mod follow;
mod form_orders;
mod forms;
mod groups;
mod home;
mod jobs;
mod logs;
mod ports;
mod probe;
mod process;
mod simulated;
mod staging;
mod usage;
mod users;

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use async_nats::Client;
use shared::{
    InstanceId, Subjects,
    wire::{LogLine, Logs},
};

pub use self::simulated::Simulated;
use self::{forms::Scripts, logs::Left, process::Processes, users::Users};
use crate::{
    config::{ExecutorKind, RepConfig},
    ledger::{ExecutorOrder, ExecutorReport, RunningProcess},
    outbox::Counters,
    supervisor::check_authorities,
};

/// Reasons why instances cannot be run on this machine.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    /// The user that instances are to run as does not exist.
    #[error("run-as: no user {user:?} in /etc/passwd")]
    UnknownUser {
        /// The user.
        user: String,
    },
    /// Instances are to run as another user, but the rep is not root.
    #[error("run-as: {user:?}: only root can run instances as another user")]
    NotRoot {
        /// The user.
        user: String,
    },
    /// The users for instances do not exist where the rep runs.
    #[error(
        "users: {}-{} do not exist in this user namespace, whose map is {map:?}; expected a range \
         that it has, or one user for all instances (run-as)", .users.0, .users.1
    )]
    UsersNotMapped {
        /// The first and the last user.
        users: (u32, u32),
        /// What `/proc/self/uid_map` or `gid_map` says.
        map: String,
    },
    /// The users for instances are used by something else on this machine.
    #[error(
        "users: {}-{} are not for instances alone: {by}; expected a range that nothing else uses",
        .users.0, .users.1
    )]
    UsersInUse {
        /// The first and the last user.
        users: (u32, u32),
        /// What uses one of them.
        by: String,
    },
    /// The script that starts droplets or stages apps cannot be read.
    #[error("{setting}: {}", .file.display())]
    Script {
        /// The setting that names the file.
        setting: &'static str,
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The directory for the directories of instances cannot be created.
    #[error("cannot make the directory for instances or their users{}", named(.directory.as_deref()))]
    Directory {
        /// The directory that was configured.
        directory: Option<PathBuf>,
        /// Why.
        source: io::Error,
    },
    /// The certificate authorities for sources cannot be used.
    #[error("source-ca: {}: {why}; expected a file with certificates (PEM)", .file.display())]
    SourceCa {
        /// The file that was configured.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// The thread that starts supervisors cannot be started.
    #[error("cannot start the thread that starts supervisors")]
    Thread(#[source] io::Error),
}

fn named(directory: Option<&Path>) -> String {
    let named = directory.map(|path| format!(" {}", path.display()));
    named.unwrap_or_default()
}

/// The kinds of executors.
#[derive(Debug)]
pub(crate) enum Executor {
    Simulated(Simulated),
    Process(Box<Processes>),
}

/// Rejects settings that no executor can be started with.
pub(crate) fn check(config: &RepConfig) -> Result<(), ExecutorError> {
    match &config.executor {
        ExecutorKind::Process(process) => {
            if let Some(file) = &process.source_ca {
                check_authorities(file).map_err(|why| ExecutorError::SourceCa {
                    file: file.clone(),
                    why,
                })?;
            }
            Scripts::read(process)?;
            Users::choose(process, &config.cell).map(drop)
        }
        ExecutorKind::Simulated(_) => Ok(()),
    }
}

impl Executor {
    pub(crate) fn start(
        config: &RepConfig,
        client: &Client,
        subjects: &Subjects,
        counters: Arc<Counters>,
    ) -> Result<Self, ExecutorError> {
        match &config.executor {
            ExecutorKind::Simulated(simulated) => Ok(Self::Simulated(Simulated::new(*simulated))),
            ExecutorKind::Process(process) => {
                let scripts = Scripts::read(process)?;
                let of_cell = (process, scripts);
                let started = Processes::start(config, of_cell, client, subjects, counters)?;
                Ok(Self::Process(Box::new(started)))
            }
        }
    }

    /// Returns whether instances are only simulated.
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self, Self::Simulated(_))
    }

    pub(crate) fn execute(&mut self, now_ms: u64, order: &ExecutorOrder) {
        match (self, order) {
            (Self::Simulated(simulated), order) => simulated.execute(now_ms, order),
            (Self::Process(processes), ExecutorOrder::Launch { work, attempt }) => {
                processes.launch(work, *attempt);
            }
            (
                Self::Process(processes),
                ExecutorOrder::End {
                    instance,
                    attempt,
                    at_once,
                },
            ) => {
                processes.end(*instance, *attempt, *at_once);
            }
            (
                Self::Process(processes),
                ExecutorOrder::Check {
                    instance,
                    attempt,
                    of,
                    check,
                    port,
                },
            ) => processes.check((*instance, *attempt), *of, check, *port),
        }
    }

    /// Returns reports that are due by now and have no event of their own.
    pub(crate) fn due(&mut self, now_ms: u64) -> Vec<ExecutorReport> {
        match self {
            Self::Simulated(simulated) => simulated.due(now_ms),
            Self::Process(_) => Vec::new(),
        }
    }

    /// Returns when [`Executor::due`] has something to return.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        match self {
            Self::Simulated(simulated) => simulated.next_ms(),
            Self::Process(_) => None,
        }
    }

    /// Returns the next report; never completes if there is none to come. Cancel safe.
    pub(crate) async fn next_report(&mut self) -> ExecutorReport {
        match self {
            Self::Simulated(_) => std::future::pending().await,
            Self::Process(processes) => processes.next_report().await,
        }
    }

    /// Returns the last lines of an app's output, oldest first, in at most `most` bytes.
    pub(crate) fn log_lines(&self, logs: &Logs, most: usize) -> Vec<LogLine> {
        match self {
            Self::Simulated(_) => Vec::new(),
            Self::Process(processes) => processes.log_lines(logs, most),
        }
    }

    /// Removes and returns what a task has left whose result is reported.
    pub(crate) fn take_left(&self, instance: &InstanceId) -> Option<Left> {
        match self {
            Self::Simulated(_) => None,
            Self::Process(processes) => processes.take_left(instance),
        }
    }

    /// Returns the names of the cached sources, if they have changed since the last call.
    pub(crate) fn cached_blobs(&self) -> Option<Vec<String>> {
        match self {
            Self::Simulated(_) => None,
            Self::Process(processes) => processes.cached_blobs(),
        }
    }

    /// Starts measuring what these processes use; the result is reported later.
    pub(crate) fn measure(&self, all: Vec<RunningProcess>) {
        match self {
            Self::Simulated(_) => {}
            Self::Process(processes) => processes.measure(all),
        }
    }

    /// Removes everything that the executor created.
    pub(crate) async fn close(&mut self) {
        match self {
            Self::Simulated(_) => {}
            Self::Process(processes) => processes.close().await,
        }
    }
}
