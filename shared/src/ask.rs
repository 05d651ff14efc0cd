//! Scatter-gather: one request to many programs, with answers until there are enough or time is up.

use std::time::Duration;

use async_nats::{Client, Message, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use crate::{
    nats::{Bus, BusError},
    subjects::{AnswerTo, Subjects},
    telemetry::Seldom,
    wire::{Instances, InstancesAnswer, QueuedAnswer, QueuedRequest, to_bytes},
};

/// The longest wait for auctioneers' answers about queued work.
const QUEUED_DEADLINE: Duration = Duration::from_secs(1);
/// The number of auctioneers is unknown: once none has answered for this long, all have.
const QUEUED_QUIET: Duration = Duration::from_millis(150);

/// What ended a [`gather`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatherEnd {
    /// `enough` returned true.
    Enough,
    /// The deadline passed, or no answer arrived during the quiet time.
    TimeUp,
    /// The server reported that there are no responders.
    NoResponders,
    /// The connection was closed.
    Closed,
}

/// Publishes `payload` with a fresh inbox as reply subject and passes every answer to `enough`, until that returns
/// true, `deadline` has passed, or (if given) no answer has arrived for `quiet` after the first one.
pub async fn gather(
    client: &Client,
    subject: String,
    payload: Bytes,
    deadline: Duration,
    quiet: Option<Duration>,
    enough: impl FnMut(Message) -> bool,
) -> Result<GatherEnd, BusError> {
    let inbox = crate::nats::new_inbox(client);
    let answers = client
        .subscribe(inbox.clone())
        .await
        .map_err(BusError::subscribe)?;
    let sent = client.publish_with_reply(subject, inbox, payload);
    crate::nats::in_time(sent).await?;
    hear(answers, deadline, quiet, enough).await
}

async fn hear(
    mut answers: Subscriber,
    deadline: Duration,
    quiet: Option<Duration>,
    mut enough: impl FnMut(Message) -> bool,
) -> Result<GatherEnd, BusError> {
    let until = Instant::now() + deadline;
    let mut next = until;
    loop {
        match timeout_at(next, answers.next()).await {
            Err(_) => return Ok(GatherEnd::TimeUp),
            Ok(None) => return Ok(GatherEnd::Closed),
            Ok(Some(answer)) if crate::nats::is_no_responders(&answer) => {
                return Ok(GatherEnd::NoResponders);
            }
            Ok(Some(answer)) => {
                if enough(answer) {
                    return Ok(GatherEnd::Enough);
                }
                next = quiet.map_or(until, |q| until.min(Instant::now() + q));
            }
        }
    }
}

/// Who answers a broadcast: only these may publish below that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Cell,
    Auctioneer,
}

/// A broadcast whose answers arrive on subjects that name the sender.
struct Broadcast<'a> {
    bus: &'a Bus,
    subjects: &'a Subjects,
    role: Role,
    subject: String,
    payload: Bytes,
    deadline: Duration,
    quiet: Option<Duration>,
}

impl Broadcast<'_> {
    /// Asks. Passes each answer to `enough`; an answer that cannot be read is passed as an error. Answers whose body
    /// names another sender than their subject are dropped.
    async fn ask<T: DeserializeOwned>(
        self,
        sender: impl Fn(&T) -> &str,
        mut enough: impl FnMut(Result<T, serde_json::Error>) -> bool,
    ) -> Result<GatherEnd, BusError> {
        let (bus, subjects) = (self.bus, self.subjects);
        let token = uuid::Uuid::new_v4().simple().to_string();
        let to = AnswerTo::new(&bus.identity, &token);
        let to = to.map_err(|invalid| BusError::Refused(invalid.to_string()))?;
        // the server reports on the reply subject that there are no responders; nobody else answers there, because the
        // header says where to answer
        let (answers, reply) = match self.role {
            Role::Cell => (
                subjects.cell_answers(&bus.identity, &token),
                subjects.cell_answer(NOBODY, &to),
            ),
            Role::Auctioneer => (
                subjects.auctioneer_answers(&bus.identity, &token),
                subjects.auctioneer_answer(NOBODY, &to),
            ),
        };
        let subscribed = bus.client.subscribe(answers).await;
        let answers = subscribed.map_err(BusError::subscribe)?;
        let sent = bus.client.publish_with_reply_and_headers(
            self.subject,
            reply,
            to.headers(),
            self.payload,
        );
        crate::nats::in_time(sent).await?;
        let take = |message: Message| {
            let by = subjects.answer_of(&message.subject);
            match serde_json::from_slice::<T>(&message.payload) {
                Ok(answer) if by.is_some_and(|by| by.by == sender(&answer)) => enough(Ok(answer)),
                Ok(_) => {
                    wrong_sender(&message.subject);
                    false
                }
                Err(error) => enough(Err(error)),
            }
        };
        hear(answers, self.deadline, self.quiet, take).await
    }
}

/// Takes the place of the sender's name in a broadcast's reply subject.
const NOBODY: &str = "_";

fn wrong_sender(subject: &str) {
    static SELDOM: Seldom = Seldom::new();
    if let Some(times) = SELDOM.happened(std::time::Instant::now(), 1) {
        tracing::warn!(
            times,
            subject = %placement::cut(subject),
            "dropped: the body names another sender than the subject"
        );
    }
}

/// Asks every cell what runs, and passes every answer to `enough`, like [`gather`].
pub async fn instances(
    bus: &Bus,
    subjects: &Subjects,
    question: &Instances,
    (deadline, quiet): (Duration, Option<Duration>),
    enough: impl FnMut(Result<InstancesAnswer, serde_json::Error>) -> bool,
) -> Result<GatherEnd, BusError> {
    let broadcast = Broadcast {
        bus,
        subjects,
        role: Role::Cell,
        subject: subjects.instances(),
        payload: to_bytes(question),
        deadline,
        quiet,
    };
    broadcast.ask(|answer| answer.cell.as_str(), enough).await
}

/// Asks every auctioneer for its queued work. Returns one answer per auctioneer, in the order of their names; none if
/// no auctioneer runs. Answers that cannot be parsed are omitted.
pub async fn queued(
    bus: &Bus,
    subjects: &Subjects,
    request: &QueuedRequest,
) -> Result<Vec<QueuedAnswer>, BusError> {
    let mut answers: Vec<QueuedAnswer> = Vec::new();
    let broadcast = Broadcast {
        bus,
        subjects,
        role: Role::Auctioneer,
        subject: subjects.queued(),
        payload: to_bytes(request),
        deadline: QUEUED_DEADLINE,
        quiet: Some(QUEUED_QUIET),
    };
    let take = |answer: Result<QueuedAnswer, _>| {
        answers.extend(answer);
        false
    };
    broadcast
        .ask(|answer: &QueuedAnswer| answer.auctioneer.as_str(), take)
        .await?;
    answers.sort_by(|a, b| a.auctioneer.cmp(&b.auctioneer));
    Ok(answers)
}
