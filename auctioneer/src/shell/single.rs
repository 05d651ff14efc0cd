//! `--single`: asks the managers for the grant to accept requests, and hears their answers.

use std::time::Duration;

use async_nats::{Message, connection::State};
use futures_util::StreamExt;
use shared::{
    clock::Clock,
    nats::{BusError, in_time, is_no_responders, new_inbox},
    wire::{GrantAnswer, GrantRequest, check_version, read, to_bytes},
};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};
use uuid::Uuid;

use super::{AuctioneerError, Shell};
use crate::grant::{Grant, Standing};

/// How long an auctioneer that starts asks where nobody listens.
const NO_MANAGER_MS: u64 = 10_000;
/// How long it asks where managers listen and none acts: another one acts 15 s after the last one was killed.
const NONE_ACTS_MS: u64 = 25_000;
/// Between two questions at the start.
const PAUSE: Duration = Duration::from_millis(500);
/// Between two lines of the log about that.
const PROGRESS_MS: u64 = 5_000;
/// Answers that wait to be read.
const ANSWERS: usize = 64;

/// What comes to a question.
#[derive(Debug)]
pub(super) enum Heard {
    /// A manager's answer to the question of this number.
    Answer(u64, GrantAnswer),
    /// Nobody listens to it.
    Nobody(u64),
}

/// The grant, and where its answers arrive.
pub(super) struct Single {
    pub(super) grant: Grant,
    answers: mpsc::Receiver<Heard>,
    inbox: String,
    /// What the machine was told last.
    standing: Standing,
    /// How often it was granted.
    grants: u64,
    warned: bool,
}

impl Single {
    /// Waits until a manager answers. Without one an auctioneer with `--single` does not start.
    pub(super) async fn open(
        shell: &Shell,
        clock: &Clock,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, AuctioneerError> {
        let (heard, answers) = mpsc::channel(ANSWERS);
        let inbox = format!("{}.grant", new_inbox(&shell.bus.client));
        let subscribed = shell.bus.client.subscribe(format!("{inbox}.*")).await;
        let mut messages = subscribed.map_err(BusError::subscribe)?;
        let reader = shell.clone();
        tasks.spawn(async move {
            while let Some(message) = messages.next().await {
                // the owner asks again: what it does not read in time is of no use
                if let Some(heard_now) = reader.grant_answer(&message)
                    && heard.try_send(heard_now).is_err_and(|e| is_closed(&e))
                {
                    return;
                }
            }
        });
        let mut single = Self {
            grant: Grant::new(Uuid::new_v4().simple().to_string()),
            answers,
            inbox,
            standing: Standing::Holds,
            grants: 0,
            warned: false,
        };
        tokio::select! {
            found = single.find_manager(shell, clock) => found?,
            // a question that is refused is not answered
            error = shell.clone().refused() => return Err(error),
        }
        Ok(single)
    }

    async fn find_manager(&mut self, shell: &Shell, clock: &Clock) -> Result<(), AuctioneerError> {
        let began_ms = clock.now_ms();
        let (mut nobody, mut next_line_ms) = (true, began_ms);
        loop {
            let now_ms = clock.now_ms();
            let waited_ms = now_ms - began_ms;
            let most_ms = if nobody { NO_MANAGER_MS } else { NONE_ACTS_MS };
            if waited_ms >= most_ms {
                return Err(AuctioneerError::NoManager {
                    subject: shell.subjects.grant(&shell.name),
                    seconds: waited_ms / 1_000,
                });
            }
            if now_ms >= next_line_ms + PROGRESS_MS {
                next_line_ms = now_ms;
                let seconds = waited_ms / 1_000;
                tracing::warn!(seconds, "--single: waiting for a manager that acts");
            }
            self.ask(shell, now_ms, false).await;
            match timeout(PAUSE, self.answers.recv()).await {
                Ok(Some(Heard::Answer(number, answer))) => {
                    self.grant.answered(number, &answer);
                    if self.grant.is_heard() {
                        let manager = answer.manager;
                        tracing::info!(
                            manager,
                            holder = answer.holder,
                            "--single: a manager answers"
                        );
                        return Ok(());
                    }
                }
                Ok(Some(Heard::Nobody(_))) => {
                    nobody = true;
                    sleep(PAUSE).await;
                }
                Ok(None) => return Err(AuctioneerError::Closed),
                Err(_) => nobody = false,
            }
        }
    }

    /// Asks, if that is due. What is not sent is asked again.
    pub(super) async fn ask(&mut self, shell: &Shell, now_ms: u64, ready: bool) {
        let asks = self.grant.ask(now_ms, ready);
        // it would be sent when the connection is back, and say what was true before
        let connected = shell.bus.client.connection_state() == State::Connected;
        if let Some((number, request)) = asks.filter(|_| connected) {
            let reply = format!("{}.{number}", self.inbox);
            if let Err(error) = shell.ask_for_grant(Some(reply), &request).await {
                tracing::debug!(%error, "--single: the grant was not asked for");
            }
        }
    }

    /// The next answer; it waits for ever if there are no questions.
    pub(super) async fn heard(single: &mut Option<Self>) -> Option<Heard> {
        match single {
            Some(single) => single.answers.recv().await,
            None => std::future::pending().await,
        }
    }

    /// Takes note of an answer.
    pub(super) fn take(&mut self, now_ms: u64, heard: Heard) {
        match heard {
            Heard::Answer(number, answer) => self.grant.answered(number, &answer),
            Heard::Nobody(number) => self.grant.no_manager(now_ms, number),
        }
    }

    /// What the machine is to be told, if that has changed.
    pub(super) fn news(&mut self, now_ms: u64) -> Option<Standing> {
        let standing = self.grant.standing(now_ms);
        let before = std::mem::replace(&mut self.standing, standing);
        if before == standing {
            return None;
        }
        self.log(before);
        self.grants += u64::from(standing == Standing::Holds);
        Some(standing)
    }

    fn log(&mut self, before: Standing) {
        let holder = self.grant.other();
        match (before, self.standing) {
            (_, Standing::Holds) => {
                self.warned = false;
                tracing::info!("--single: the grant is held");
            }
            // at the start
            (Standing::Holds, Standing::Waits) if self.grants == 0 => {}
            (_, Standing::Waits) if !std::mem::replace(&mut self.warned, true) => {
                tracing::warn!(
                    "--single: no manager grants the right to accept requests; none is accepted until one does"
                );
            }
            (_, Standing::Waits) => {}
            (_, Standing::Other) => {
                tracing::info!(holder, "--single: another auctioneer holds the grant");
            }
        }
    }

    /// How often it was granted, and whether it is held.
    pub(super) fn counts(&self) -> (u64, u8) {
        (self.grants, u8::from(self.standing == Standing::Holds))
    }

    /// Nothing more is begun: another auctioneer may have the grant.
    pub(super) async fn give_back(mut self, shell: &Shell) {
        let request = self.grant.give_back();
        if let Err(error) = shell.ask_for_grant(None, &request).await {
            tracing::debug!(%error, "--single: the grant was not given back; it ends by itself");
        }
    }
}

fn is_closed(error: &mpsc::error::TrySendError<Heard>) -> bool {
    matches!(error, mpsc::error::TrySendError::Closed(_))
}

impl Shell {
    async fn ask_for_grant(
        &self,
        reply: Option<String>,
        request: &GrantRequest,
    ) -> Result<(), BusError> {
        let (client, subject) = (&self.bus.client, self.subjects.grant(&self.name));
        let body = to_bytes(request);
        match reply {
            Some(reply) => in_time(client.publish_with_reply(subject, reply, body)).await,
            None => in_time(client.publish(subject, body)).await,
        }
    }

    fn grant_answer(&self, message: &Message) -> Option<Heard> {
        let number = message.subject.rsplit('.').next()?.parse().ok()?;
        if is_no_responders(message) {
            return Some(Heard::Nobody(number));
        }
        let body = &message.payload;
        match check_version(body).and_then(|()| read::<GrantAnswer>(body)) {
            Ok(answer) => Some(Heard::Answer(number, answer)),
            Err(error) => {
                self.log_dropped(&message.subject, &error);
                None
            }
        }
    }
}
