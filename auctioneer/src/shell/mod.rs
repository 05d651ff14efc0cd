//! The I/O around the state machine: messages, timers, subscriptions. One task owns the machine.

mod drop_notices;
mod publish;
mod service;
mod single;
mod subscriptions;
mod tokens;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use placement::{Invalid, Policy, check_name};
use shared::{
    LogLimit, Subjects,
    clock::{Clock, wall_ms},
    nats::{Bus, BusError, PermissionViolation},
    permissions::Role,
    shutdown::CancellationToken,
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep_until},
};
use uuid::Uuid;

use crate::{
    auctioneer::Auctioneer, counters::Counters, ids::ReplyKey, io::AuctioneerInput, limits::Limits,
    parts::Settings, warm_up::WarmUp,
};

use drop_notices::DropNotices;
use service::{RequestService, Waiting};
use single::Single;
use tokens::Tokens;

/// The most inputs that wait for the machine; beyond that, the subscriptions fill up.
const INPUTS: usize = 65_536;
/// The most inputs taken before an auction is held.
const AT_ONCE: usize = 4_096;
/// How long to wait on shutdown for what is in flight.
const LEAVE_MS: u64 = 5_000;

/// Auctions logged at level info per second; further ones are logged at level debug.
const AUCTIONS_LOGGED: u32 = 20;
/// Dropped messages logged per second.
const DROPPED_LOGGED: u32 = 5;
/// Joined cells logged per second, and lost cells likewise.
const CELLS_LOGGED: u32 = 50;

/// The settings of an auctioneer.
#[derive(Clone, Debug)]
pub struct AuctioneerConfig {
    /// Its name: 1 to 128 of `A-Za-z0-9_-`; unique in the cluster.
    pub name: String,
    /// Its policy.
    pub policy: Policy,
    /// Limits on what others may ask for.
    pub limits: Limits,
    /// It accepts requests only while a manager grants it that, which it does to one auctioneer at a time.
    pub single: bool,
}

/// Why an auctioneer failed.
#[derive(Debug, thiserror::Error)]
pub enum AuctioneerError {
    /// A setting cannot be used.
    #[error("the auctioneer's configuration cannot be used")]
    Config(#[from] Invalid),
    /// Another auctioneer has this name already.
    #[error("an auctioneer named {0} is running already; give this one another name")]
    NameTaken(String),
    /// NATS could not be used.
    #[error("the auctioneer cannot use NATS")]
    Bus(#[from] BusError),
    /// The server's permissions do not allow what an auctioneer must do.
    #[error("auctioneer {name}: {violation}; the credentials must be those of this auctioneer")]
    NotPermitted {
        /// Its name.
        name: String,
        /// What was refused.
        violation: PermissionViolation,
    },
    /// No manager that acts answers one with `--single`.
    #[error(
        "no manager answered on {subject} for {seconds} s; an auctioneer with --single needs one that acts: start \
         `vendue manager`, or leave out --single"
    )]
    NoManager {
        /// Where it asked.
        subject: String,
        /// For how long.
        seconds: u64,
    },
    /// The NATS service could not be started.
    #[error("starting the auctioneer's NATS service")]
    Service(#[source] async_nats::Error),
    /// A subscription ended: the connection is closed for good.
    #[error("the auctioneer's connection to NATS was closed")]
    Closed,
}

/// Shared by the tasks around the machine.
#[derive(Clone)]
struct Shell {
    /// Our name.
    name: Arc<str>,
    bus: Bus,
    subjects: Subjects,
    policy: Arc<Policy>,
    /// Requests that await their answers.
    pending: Arc<Mutex<HashMap<ReplyKey, Waiting>>>,
    counters: Arc<Mutex<Counters>>,
    /// Messages that the client did not accept in time.
    unsent: Arc<AtomicU64>,
    inputs: mpsc::Sender<AuctioneerInput>,
    /// Requests that asked for their answer on a forbidden subject.
    forbidden: Arc<AtomicU64>,
    /// Bounds the log lines about auctions.
    auctions: Arc<LogLimit>,
    /// Bounds the log lines about dropped messages.
    dropped: Arc<LogLimit>,
    /// Bounds the log lines about cells that join.
    joined: Arc<LogLimit>,
    /// Bounds the log lines about cells that are lost.
    lost: Arc<LogLimit>,
    /// Builds the subjects for cells' answers.
    tokens: Arc<Tokens>,
}

/// Runs an auctioneer until `shutdown` is cancelled; then it accepts nothing new, finishes what is in flight (for at
/// most 5 s) and returns.
pub async fn run(
    config: AuctioneerConfig,
    bus: Bus,
    subjects: Subjects,
    shutdown: CancellationToken,
) -> Result<(), AuctioneerError> {
    check_name("name", &config.name)?;
    let mut connected = bus.connected.clone();
    tokio::select! {
        _ = connected.wait_for(|up| *up) => {}
        () = shutdown.cancelled() => return Ok(()),
    }
    let clock = Clock::start();
    let machine = Auctioneer::new(Settings {
        name: config.name.clone(),
        policy: config.policy.clone(),
        limits: config.limits,
        max_payload: bus.client.server_info().max_payload,
        seed: Uuid::new_v4().as_u64_pair().0,
        wall_start_ms: wall_ms(),
    });
    let (inputs, input) = mpsc::channel(INPUTS);
    let shell = Shell {
        name: config.name.as_str().into(),
        tokens: Arc::new(Tokens::new(&config.name)?),
        forbidden: Arc::default(),
        bus,
        subjects,
        policy: Arc::new(config.policy.clone()),
        pending: Arc::default(),
        counters: Arc::default(),
        unsent: Arc::default(),
        auctions: Arc::new(LogLimit::new(AUCTIONS_LOGGED)),
        dropped: Arc::new(LogLimit::new(DROPPED_LOGGED)),
        joined: Arc::new(LogLimit::new(CELLS_LOGGED)),
        lost: Arc::new(LogLimit::new(CELLS_LOGGED)),
        inputs,
    };
    service::check_name_is_free(&shell, &config.name).await?;
    let mut tasks = JoinSet::new();
    let single = if config.single {
        let open = tokio::select! {
            open = Single::open(&shell, &clock, &mut tasks) => open,
            () = shutdown.cancelled() => return Ok(()),
        };
        Some(open?)
    } else {
        None
    };
    shell.listen(&mut tasks).await?;
    tasks.spawn(publish::echo(shell.clone(), machine.token()));
    let service = RequestService::open(&shell, &config).await?;
    tasks.spawn(service::compare_policies(shell.clone()));
    let owner = Owner {
        shell,
        machine,
        clock,
        input,
        single,
        warm_up: WarmUp::default(),
        dropped: 0,
        notices: DropNotices::default(),
    };
    // in a task of its own: the caller may wait on a thread outside the worker pool, and then every message would have
    // to wake that thread
    let mut owner_task = JoinSet::new();
    owner_task.spawn(owner.own(service, tasks, shutdown));
    match owner_task.join_next().await {
        Some(Ok(ended)) => ended,
        _ => Err(AuctioneerError::Closed),
    }
}

/// The task that owns the machine.
struct Owner {
    shell: Shell,
    machine: Auctioneer,
    clock: Clock,
    input: mpsc::Receiver<AuctioneerInput>,
    /// With `--single`.
    single: Option<Single>,
    warm_up: WarmUp,
    /// The number of messages that the client had dropped at the last step.
    dropped: u64,
    notices: DropNotices,
}

impl Owner {
    async fn own(
        mut self,
        mut service: RequestService,
        mut tasks: JoinSet<()>,
        shutdown: CancellationToken,
    ) -> Result<(), AuctioneerError> {
        let mut connected = self.shell.bus.connected.clone();
        let mut minute = tokio::time::interval(Duration::from_secs(60));
        let mut inputs = Vec::with_capacity(AT_ONCE);
        let mut leave_by_ms = None;
        let mut refused = Box::pin(self.shell.clone().refused());
        loop {
            let now_ms = self.clock.now_ms();
            let leaves = leave_by_ms.is_some();
            let wake_ms = self.take_part(now_ms, leaves, &mut service).await?;
            if leave_by_ms.is_some_and(|by_ms| now_ms >= by_ms || self.machine.is_idle()) {
                break;
            }
            let wake = self.clock.instant(wake_ms.min(now_ms + 1_000));
            tokio::select! {
                biased;
                () = shutdown.cancelled(), if leave_by_ms.is_none() => {
                    service.close().await;
                    leave_by_ms = Some(now_ms + LEAVE_MS);
                    inputs.push(AuctioneerInput::Shutdown);
                }
                // other auctioneers take the requests that this one no longer receives
                error = &mut refused => return Err(error),
                Some(heard) = Single::heard(&mut self.single) => {
                    if let Some(single) = &mut self.single {
                        single.take(now_ms, heard);
                    }
                }
                changed = connected.changed() => {
                    changed.map_err(|_| AuctioneerError::Closed)?;
                    let up = *connected.borrow_and_update();
                    self.connection(up, &mut inputs);
                }
                count = self.input.recv_many(&mut inputs, AT_ONCE) => {
                    if count == 0 {
                        return Err(AuctioneerError::Closed);
                    }
                }
                () = sleep_until(wake) => {}
                _ = minute.tick() => tracing::debug!(counters = ?self.machine.counters(), "counters"),
                Some(ended) = tasks.join_next() => {
                    tracing::debug!(?ended, "a task of the auctioneer ended");
                    return Err(AuctioneerError::Closed);
                }
            }
            self.step(&mut inputs).await;
            if self.machine.has_namesake() {
                return Err(AuctioneerError::NameTaken(self.shell.name.to_string()));
            }
        }
        self.finish(&mut tasks).await
    }

    /// Opens and closes the endpoints: after the warm-up, and with `--single` while the grant is held. Says when to look
    /// again.
    async fn take_part(
        &mut self,
        now_ms: u64,
        leaves: bool,
        service: &mut RequestService,
    ) -> Result<u64, AuctioneerError> {
        let mut wake_ms = self.machine.next_wake_ms();
        if !service.is_open() && !leaves {
            let cells = self.machine.feed().pool().len();
            if self.warm_up.is_over(now_ms, cells) {
                service.open_own(&self.shell).await?;
                self.machine.warmed_up();
            } else {
                wake_ms = wake_ms.min(self.warm_up.next_ms(now_ms));
            }
        }
        let warm = service.is_open();
        let takes = match &mut self.single {
            None => warm,
            Some(single) => {
                single.ask(&self.shell, now_ms, warm).await;
                wake_ms = wake_ms.min(single.grant.next_ms(now_ms));
                warm && single.grant.takes_requests(now_ms)
            }
        };
        match (takes, service.is_joined()) {
            (true, false) if !leaves => {
                let cells = self.machine.feed().pool().len();
                service.join(&self.shell, cells).await?;
            }
            (false, true) => service.part(),
            _ => {}
        }
        Ok(wake_ms)
    }

    fn connection(&mut self, up: bool, inputs: &mut Vec<AuctioneerInput>) {
        if up {
            let max_payload = self.shell.bus.client.server_info().max_payload;
            self.machine.set_max_payload(max_payload);
            let shell = self.shell.clone();
            tokio::spawn(async move { shell.discover().await });
        } else {
            tracing::warn!("NATS disconnected; cell expiry suspended");
        }
        inputs.push(AuctioneerInput::Connected(up));
    }

    async fn step(&mut self, inputs: &mut Vec<AuctioneerInput>) {
        let now_ms = self.clock.now_ms();
        let dropped = self.shell.bus.dropped.load(Ordering::Relaxed);
        if std::mem::replace(&mut self.dropped, dropped) < dropped {
            self.machine.take(now_ms, AuctioneerInput::Missed);
            // advertisements of cells that came back may be among the lost messages
            let shell = self.shell.clone();
            tokio::spawn(async move { shell.discover().await });
        }
        // before what was asked meanwhile: it may have stood still, and another one has the grant
        if let Some(standing) = self.single.as_mut().and_then(|single| single.news(now_ms)) {
            self.machine
                .take(now_ms, AuctioneerInput::Standing(standing));
        }
        for input in inputs.drain(..) {
            self.machine.take(now_ms, input);
        }
        self.machine.plan(now_ms);
        let outputs = self.machine.send(self.clock.now_ms());
        self.machine.sent(self.clock.now_ms());
        self.publish_counters();
        self.shell.send_all(outputs).await;
    }

    fn publish_counters(&mut self) {
        let mut counted = self.machine.counters();
        counted.dropped_reply_subject = self.shell.forbidden.load(Ordering::Relaxed);
        counted.dropped_not_permitted = self.shell.bus.violations.count();
        if let Some(single) = &self.single {
            (counted.grants, counted.granted) = single.counts();
        }
        self.notices.look(&counted);
        counted.dropped_unsent = self.shell.unsent.load(Ordering::Relaxed);
        counted.dropped_too_fast = self.shell.bus.dropped.load(Ordering::Relaxed);
        let counters = self.shell.counters.lock();
        *counters.unwrap_or_else(PoisonError::into_inner) = counted;
    }

    /// Sends the remaining messages.
    async fn finish(mut self, tasks: &mut JoinSet<()>) -> Result<(), AuctioneerError> {
        let rest = self.machine.run(self.clock.now_ms());
        self.shell.send_all(rest).await;
        if let Some(single) = self.single {
            single.give_back(&self.shell).await;
        }
        let flush = tokio::time::timeout(Duration::from_secs(2), self.shell.bus.client.flush());
        if flush.await.is_err() {
            tracing::warn!("the last messages may not have been sent");
        }
        tasks.abort_all();
        Ok(())
    }
}

impl Shell {
    /// Waits until the server refuses something that every auctioneer needs.
    async fn refused(self) -> AuctioneerError {
        let permissions = Role::Auctioneer.permissions(&self.subjects, &self.name);
        let violation = self.bus.violations.first(|r| permissions.needs(r)).await;
        AuctioneerError::NotPermitted {
            name: self.name.to_string(),
            violation,
        }
    }
}

/// Returns the instant that is this much later than now.
fn after(duration: Duration) -> Instant {
    Instant::now() + duration
}
