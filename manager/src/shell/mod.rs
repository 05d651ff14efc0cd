//! The I/O around the state machine: messages, buckets and timers. One task owns the machine.

mod counters;
mod desk;
mod lists;
mod owner;
mod publish;
mod refused;
mod requests;
mod service;
mod store;
mod subscriptions;
mod task_page;
mod views;
mod watch;

use std::sync::{Arc, Mutex, atomic::AtomicBool};

use placement::{Invalid, check_name};
use shared::{
    LogLimit, Subjects,
    clock::Clock,
    nats::{Bus, BusError, PermissionViolation, PermissionViolations, new_inbox},
    shutdown::CancellationToken,
};
use tokio::{sync::mpsc, task::JoinSet};
use uuid::Uuid;

use crate::{manager::Manager, parts::ManagerSettings};
use counters::{Counted, Drops};
use owner::Owner;
use refused::TasksRefused;
use store::Store;

pub use store::BucketConfig;

/// Maximum number of inputs from cells that wait for the machine; beyond that, the subscriptions fill up.
const HEARD: usize = 4_096;
/// Maximum number of values of the buckets that wait for the machine.
const SHOWN: usize = 4_096;
/// Maximum number of requests that wait for the machine; further ones are refused.
const ASKED: usize = 1_024;
/// Dropped messages that are logged per second.
const DROPPED_LOGGED: u32 = 5;
/// Own events that are logged per second.
const EVENTS_LOGGED: u32 = 20;
/// Failed writes that are logged per second.
const WRITES_LOGGED: u32 = 5;

/// The settings of a manager.
#[derive(Clone, Debug)]
pub struct ManagerConfig {
    /// Its name: 1 to 128 of `A-Za-z0-9_-`; unique in the cluster.
    pub name: String,
    /// Where the apps are stored.
    pub bucket: BucketConfig,
}

/// Why a manager failed.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// A setting that cannot be used.
    #[error("the manager's configuration cannot be used")]
    Config(#[from] Invalid),
    /// NATS could not be used.
    #[error("the manager cannot use NATS")]
    Bus(#[from] BusError),
    /// The server is too old.
    #[error(
        "nats-server {0} is too old for a manager: expected 2.11.15 or newer of 2.11, or 2.12.6 or newer; \
         auctioneers and cells work with it"
    )]
    OldServer(String),
    /// There is no JetStream.
    #[error(
        "JetStream is not available ({0}): start nats-server with -js or a jetstream block, and enable it for the \
         manager's account; --state-nats and the other --state flags name another account or server for it"
    )]
    NoJetStream(String),
    /// The server's permissions do not allow what a manager must do.
    #[error("manager {name}: {violation}; the credentials must be those of this manager")]
    NotPermitted {
        /// The manager's name.
        name: String,
        /// What was refused.
        violation: PermissionViolation,
    },
    /// The server's permissions do not allow the use of the buckets.
    #[error(
        "manager {name}: {violation}; the stored state has credentials of its own, for the default bucket only: \
         --state-context or --state-nkey names them"
    )]
    StateNotPermitted {
        /// The manager's name.
        name: String,
        /// What was refused.
        violation: PermissionViolation,
    },
    /// The NATS service could not be started.
    #[error("starting the manager's NATS service")]
    Service(#[source] async_nats::Error),
    /// A subscription ended: the connection is closed for good.
    #[error("the manager's connection to NATS was closed")]
    Closed,
}

/// What the tasks around the machine share.
#[derive(Clone)]
struct Shell {
    /// The manager's name.
    name: Arc<str>,
    /// Identifies this run of the manager.
    token: Arc<str>,
    bus: Bus,
    subjects: Subjects,
    store: Store,
    /// Uses of the connection for the stored state that the server refused; it may be the connection of `bus`.
    state_violations: PermissionViolations,
    /// The subject under which answers to starts arrive.
    inbox: Arc<str>,
    drops: Arc<Drops>,
    /// Set when stored requests are not permitted.
    tasks_refused: Arc<TasksRefused>,
    /// Whether the machine has found a newer format.
    newer: Arc<AtomicBool>,
    /// The counters as the service reports them.
    figures: Arc<Mutex<serde_json::Value>>,
    dropped_lines: Arc<LogLimit>,
    event_lines: Arc<LogLimit>,
    write_lines: Arc<LogLimit>,
}

/// Runs a manager until `shutdown` is cancelled; then it accepts nothing new, gives the lease back and returns. `state`
/// is the connection to the account with JetStream, which may be the same as `bus`.
pub async fn run(
    config: ManagerConfig,
    bus: Bus,
    state: Bus,
    subjects: Subjects,
    shutdown: CancellationToken,
) -> Result<(), ManagerError> {
    check_name("name", &config.name)?;
    config.bucket.check()?;
    for bus in [&bus, &state] {
        let mut connected = bus.connected.clone();
        tokio::select! {
            _ = connected.wait_for(|up| *up) => {}
            () = shutdown.cancelled() => return Ok(()),
        }
    }
    store::check_server(&state.client.server_info().version)?;
    let store = Store::new(state.client.clone(), config.bucket);
    let token: Arc<str> = Uuid::new_v4().simple().to_string().into();
    let machine = Manager::new(ManagerSettings {
        holder: format!("{}-{token}", config.name),
        seed: Uuid::new_v4().as_u64_pair().0,
    });
    let shell = Shell {
        name: config.name.as_str().into(),
        token,
        inbox: new_inbox(&bus.client).into(),
        bus,
        subjects,
        store,
        state_violations: state.violations.clone(),
        drops: Arc::default(),
        tasks_refused: Arc::default(),
        newer: Arc::default(),
        figures: Arc::default(),
        dropped_lines: Arc::new(LogLimit::new(DROPPED_LOGGED)),
        event_lines: Arc::new(LogLimit::new(EVENTS_LOGGED)),
        write_lines: Arc::new(LogLimit::new(WRITES_LOGGED)),
    };
    tokio::select! {
        checked = shell.store.check_jetstream() => checked?,
        // a refused question is never answered
        error = shell.clone().refused() => return Err(error),
    }
    let mut tasks = JoinSet::new();
    let (heard_inputs, heard) = mpsc::channel(HEARD);
    let (shown_inputs, shown) = mpsc::channel(SHOWN);
    let (asked_inputs, asked) = mpsc::channel(ASKED);
    shell.listen(&heard_inputs, &mut tasks).await?;
    tasks.spawn(publish::echo(shell.clone()));
    tasks.spawn(shell.clone().tell_of_tasks());
    let (newer, refused) = (Arc::clone(&shell.newer), shell.tasks_refused.subscribe());
    let watch = watch::watch(shell.store.clone(), state, shown_inputs, newer, refused);
    tasks.spawn(watch);
    let owner = Owner::new(shell, machine, Clock::start(), heard, shown, asked);
    // a task of its own: the caller may be waiting on a thread that is not a worker's, and then every message would
    // have to wake that thread
    let mut owner_task = JoinSet::new();
    owner_task.spawn(owner.own(asked_inputs, tasks, shutdown));
    match owner_task.join_next().await {
        Some(Ok(ended)) => ended,
        _ => Err(ManagerError::Closed),
    }
}

impl Shell {
    fn max_payload(&self) -> usize {
        let of = |client: &async_nats::Client| client.server_info().max_payload;
        of(&self.bus.client).min(of(&self.store.context.client()))
    }

    fn count(&self, what: Counted) {
        self.drops.count(what);
    }
}
