//! The rep: checks that its name is free, subscribes, and runs until it is shut down or drained.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::{
    StreamExt,
    stream::{self, Stream},
};
use shared::{
    Subjects,
    nats::{Bus, BusError, PermissionViolation, is_no_responders, new_inbox},
    permissions::{Permissions, Role},
    shutdown::Ending,
    wire::Envelope,
};
use tokio::{
    sync::watch,
    time::{sleep_until, timeout},
};

use crate::{
    config::{ExecutorKind, RepConfig},
    error::RepError,
    executor::{self, Executor},
    mark::MarkFile,
    operators::Operators,
    outbox::{Counters, Outbox},
    shell::Shell,
    subscriptions::{Input, Inputs, listen},
    supervisor::hide_from_own_user,
};

/// How long another cell of the same name has to answer.
const NAME_WAIT: Duration = Duration::from_millis(500);
/// How much longer than the grace period the last instances may take to end.
const END_MS: u64 = 5_000;

/// Why a rep ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepExit {
    /// It was drained, and all instances have ended.
    Drained,
    /// It was shut down.
    Shutdown,
}

impl RepExit {
    /// Returns the text for the log.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::Shutdown => "shut down",
        }
    }
}

/// Rejects settings that no cell can run with. [`run`] does so as well, before it connects.
pub fn validate(config: &RepConfig) -> Result<(), RepError> {
    config.check()?;
    Operators::load(config)?;
    MarkFile::of(config).read()?;
    Ok(executor::check(config)?)
}

/// Runs a cell until it is drained and told to exit, or until `ending` tells it to end. Its instances then end within
/// the grace period and 5 s. If told to end gently, it first waits, for a grace period at most, for tasks and for
/// instances that a manager replaces. Losing NATS ends nothing. Needs tokio's time and I/O; one thread is enough.
pub async fn run(
    config: RepConfig,
    bus: Bus,
    subjects: Subjects,
    ending: impl Into<Ending>,
) -> Result<RepExit, RepError> {
    let ending: Ending = ending.into();
    validate(&config)?;
    if let ExecutorKind::Process(_) = config.executor
        && let Err(error) = hide_from_own_user()
    {
        // credentials are in our memory and environment, and instances may run as the same user
        tracing::warn!(%error, "processes of the rep's user can read its memory");
    }
    tokio::select! {
        () = connected(&bus) => {}
        () = ending.now.cancelled() => return Ok(RepExit::Shutdown),
        () = ending.gently.cancelled() => return Ok(RepExit::Shutdown),
    }
    ask_for_the_name(&config, &bus, &subjects).await?;
    let counters = Arc::new(Counters {
        violations: bus.violations.clone(),
        ..Counters::default()
    });
    let permissions = Role::Cell.permissions(&subjects, &config.cell);
    let inbox = new_inbox(&bus.client);
    let client = &bus.client;
    let (mut inputs, service) =
        listen(&config, client, &subjects, Arc::clone(&counters), &inbox).await?;
    // the server must know the subscriptions before the first advertisement
    let _ = timeout(shared::nats::PUBLISH_TIMEOUT, bus.client.flush()).await;
    let outbox = Outbox::new(bus.client.clone(), Arc::clone(&counters));
    let executor = Executor::start(&config, &bus.client, &subjects, counters.clone())?;
    let mut shell = Shell::new(&config, subjects, executor, outbox, counters, inbox)?;
    tracing::info!(
        cell = config.cell,
        zone = config.zone,
        "ready: {}",
        if shell.is_out_of_service() {
            "accepting no work until it is uncordoned"
        } else {
            "accepting work"
        }
    );
    add_others(&mut inputs, bus, permissions, ending);
    let ended = live(&mut shell, inputs).await;
    if let Some(service) = service {
        let _ = service.stop().await;
    }
    let namesake = shell.namesake();
    shell.close().await;
    match namesake {
        None => ended.map_err(|violation| RepError::NotPermitted {
            cell: config.cell,
            violation,
        }),
        Some(incarnation) => Err(RepError::NameTaken {
            cell: config.cell,
            incarnation: incarnation.to_string(),
        }),
    }
}

async fn connected(bus: &Bus) {
    let mut connected = bus.connected.clone();
    // an error means that the client is gone, which the next request reports
    let _ = connected.wait_for(|connected| *connected).await;
}

/// Asks for the state of a cell with our name; nobody should answer.
async fn ask_for_the_name(
    config: &RepConfig,
    bus: &Bus,
    subjects: &Subjects,
) -> Result<(), RepError> {
    let inbox = new_inbox(&bus.client);
    let mut answers = bus
        .client
        .subscribe(inbox.clone())
        .await
        .map_err(BusError::subscribe)?;
    let subject = subjects.cell(&config.cell, "state");
    let asked = bus
        .client
        .publish_with_reply(subject, inbox, bytes::Bytes::new());
    shared::nats::in_time(asked).await?;
    match timeout(NAME_WAIT, answers.next()).await {
        Ok(Some(answer)) if !is_no_responders(&answer) => {
            let incarnation = Envelope::parse(&answer.payload, None).map_or_else(
                |_| String::from("unknown"),
                |envelope| envelope.incarnation.to_string(),
            );
            Err(RepError::NameTaken {
                cell: config.cell.clone(),
                incarnation,
            })
        }
        _ => Ok(()),
    }
}

/// Yields whether there is a connection, each time this changes from now on.
fn connections(mut connected: watch::Receiver<bool>) -> impl Stream<Item = bool> {
    connected.mark_unchanged();
    stream::unfold(connected, |mut connected| async move {
        connected.changed().await.ok()?;
        let now = *connected.borrow_and_update();
        Some((now, connected))
    })
}

/// The progress of a rep that was told to end.
#[derive(Default)]
struct End {
    /// Until when it waits for others to replace what it runs.
    gentle_until_ms: Option<u64>,
    /// The latest time of its exit; set once its instances are being ended.
    exit_at_ms: Option<u64>,
}

impl End {
    fn at_once(&mut self, shell: &mut Shell) {
        self.exit_at_ms = Some(shell.shut_down() + END_MS);
    }

    fn gently(&mut self, shell: &mut Shell) {
        self.gentle_until_ms = Some(shell.leave_gently());
    }

    fn is_told(&self) -> bool {
        self.exit_at_ms.or(self.gentle_until_ms).is_some()
    }

    /// Takes the next step if it is due. Returns why the rep exits, once it may.
    fn advance(&mut self, shell: &mut Shell, now_ms: u64) -> Option<RepExit> {
        let waited = self.gentle_until_ms.is_some_and(|at| at <= now_ms);
        if self.exit_at_ms.is_none() && (waited || shell.namesake().is_some()) {
            self.at_once(shell);
        }
        let is_over = shell.may_exit() || self.exit_at_ms.is_some_and(|at| at <= now_ms);
        is_over.then_some(if self.is_told() {
            RepExit::Shutdown
        } else {
            RepExit::Drained
        })
    }

    /// Returns when [`End::advance`] is due.
    fn next_ms(&self) -> u64 {
        self.exit_at_ms.or(self.gentle_until_ms).unwrap_or(u64::MAX)
    }
}

/// Adds the inputs that are not messages.
fn add_others(all: &mut Inputs, bus: Bus, permissions: Permissions, told: Ending) {
    let Ending { now, gently } = told;
    let at_once = async move {
        now.cancelled().await;
        Input::EndAtOnce
    };
    let gently = async move {
        gently.cancelled().await;
        Input::EndGently
    };
    let violations = bus.violations;
    let refused = async move {
        let needed = |violation: &PermissionViolation| permissions.needs(violation);
        Input::NotPermitted(violations.first(needed).await)
    };
    all.extend([
        stream::once(at_once).boxed(),
        stream::once(gently).boxed(),
        stream::once(refused).boxed(),
        connections(bus.connected).map(Input::Connected).boxed(),
    ]);
}

/// The main loop: handles each event as it arrives, without blocking.
async fn live(shell: &mut Shell, mut inputs: Inputs) -> Result<RepExit, PermissionViolation> {
    // reset before it is awaited
    let mut timer = pin!(sleep_until(shell.instant(0, 0)));
    let mut end = End::default();
    shell.settle();
    loop {
        let now_ms = shell.now_ms();
        if let Some(exit) = end.advance(shell, now_ms) {
            return Ok(exit);
        }
        let wake = shell.instant(now_ms, shell.next_ms().min(end.next_ms()));
        if timer.deadline() != wake {
            timer.as_mut().reset(wake);
        }
        tokio::select! {
            biased;
            report = shell.executor_reports() => shell.report(report),
            () = &mut timer => shell.tick(),
            Some(input) = inputs.next() => match input {
                Input::Message(topic, question) => shell.handle(topic, question),
                Input::EndAtOnce => {
                    if end.exit_at_ms.is_none() {
                        end.at_once(shell);
                    }
                }
                Input::EndGently => {
                    if !end.is_told() {
                        end.gently(shell);
                    }
                }
                // as without a connection, running instances continue: a mistake in the server's configuration must
                // not end the work of every cell
                Input::NotPermitted(violation) => {
                    if shell.is_empty() {
                        return Err(violation);
                    }
                }
                Input::Connected(true) => shell.reconnected(),
                Input::Connected(false) => {}
            },
        }
        shell.settle();
    }
}
