//! Sending. The cell passes messages to the client without waiting. While the client has no room, a separate task
//! waits, so that a slow or lost server never blocks the cell.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_nats::{
    Client, HeaderMap, Message, PublishError, Subject, connection::State, service::Request,
};
use bytes::Bytes;
use futures_util::FutureExt;
use shared::{
    AnswerTo, Subjects, may_answer,
    nats::{PermissionViolations, in_time},
    wire::{WireError, to_bytes},
};
use tokio::sync::{mpsc, oneshot};

/// The most messages that wait to be sent; further ones are dropped and counted.
const WAITING: usize = 4_096;
/// The longest time that sending the last messages may take.
const FLUSH: Duration = Duration::from_secs(2);

/// Counts of what a cell dropped, and of sources.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Messages not sent: no connection, too many waiting, or rejected by the client.
    pub(crate) unsent: AtomicU64,
    /// Malformed messages.
    pub(crate) malformed: AtomicU64,
    /// Answers not given: they were requested on a forbidden subject.
    pub(crate) reply_subject: AtomicU64,
    /// Lines of output not published because of the rate limit.
    pub(crate) lines: AtomicU64,
    /// Sources fetched for instances.
    pub(crate) sources_fetched: AtomicU64,
    /// Sources that the cell already had.
    pub(crate) sources_cached: AtomicU64,
    /// Sources that could not be provided to an instance.
    pub(crate) sources_failed: AtomicU64,
    /// Operations refused by the server's permissions.
    pub(crate) violations: PermissionViolations,
}

/// A request as it was received.
#[derive(Debug)]
pub(crate) enum Question {
    /// Through a plain subscription.
    Plain(Box<Message>),
    /// Through an endpoint of the service, which counts its answers.
    Endpoint(Box<Request>),
}

impl Question {
    pub(crate) fn message(&self) -> &Message {
        match self {
            Question::Plain(message) => message,
            Question::Endpoint(request) => &request.message,
        }
    }
}

/// Where an answer goes.
#[derive(Debug)]
pub(crate) enum Target {
    /// To a subject.
    Subject(Subject),
    /// To the client that asked an endpoint, which counts its answers.
    Endpoint(Box<Request>),
}

impl Target {
    /// Returns where the answer to this question goes: below the cell's own subject if it is a broadcast that asks for
    /// that, otherwise to its reply subject, which must be an inbox or below the cell's own subject. None if no answer
    /// is wanted; an error if it must not be sent there.
    pub(crate) fn of(
        question: Question,
        subjects: &Subjects,
        cell: &str,
    ) -> Result<Option<Self>, Forbidden> {
        let may = |reply: &str| may_answer(reply) || subjects.is_answer_of_cell(reply, cell);
        match question {
            Question::Plain(message) => {
                if let Some(to) = AnswerTo::of(&message).map_err(|_| Forbidden)? {
                    let subject = subjects.cell_answer(cell, &to);
                    return Ok(Some(Self::Subject(subject.into())));
                }
                match message.reply {
                    None => Ok(None),
                    Some(reply) if may(&reply) => Ok(Some(Self::Subject(reply))),
                    Some(_) => Err(Forbidden),
                }
            }
            Question::Endpoint(request) => match &request.message.reply {
                None => Ok(None),
                Some(reply) if may(reply) => Ok(Some(Self::Endpoint(request))),
                Some(_) => Err(Forbidden),
            },
        }
    }

    /// Returns the subject itself, for messages after a first answer.
    pub(crate) fn subject(&self) -> Option<Subject> {
        match self {
            Self::Subject(subject) => Some(subject.clone()),
            Self::Endpoint(request) => request.message.reply.clone(),
        }
    }
}

/// The answer to a question was requested on a forbidden subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Forbidden;

#[derive(Debug)]
enum Out {
    Publish(Subject, Bytes),
    /// An empty question, and the subject for its answer.
    Ask(Subject, Subject),
    Answer(Target, Bytes),
    Error(Target, WireError),
}

/// A job for the separate task.
#[derive(Debug)]
enum Waiting {
    Message(Out),
    /// Reports that everything before this has been passed to the client.
    Flushed(oneshot::Sender<()>),
}

/// The sending end of the queue.
#[derive(Debug)]
pub(crate) struct Outbox {
    client: Client,
    waiting: mpsc::Sender<Waiting>,
    /// How many messages the separate task has not yet passed to the client.
    behind: Arc<AtomicUsize>,
    counters: Arc<Counters>,
}

impl Outbox {
    pub(crate) fn new(client: Client, counters: Arc<Counters>) -> Self {
        let (waiting, messages) = mpsc::channel(WAITING);
        let behind = Arc::new(AtomicUsize::new(0));
        let task = send_waiting(
            client.clone(),
            messages,
            Arc::clone(&behind),
            Arc::clone(&counters),
        );
        tokio::spawn(task);
        Self {
            client,
            waiting,
            behind,
            counters,
        }
    }

    /// Returns whether there is a connection.
    pub(crate) fn connected(&self) -> bool {
        self.client.connection_state() == State::Connected
    }

    /// Returns the largest body that the server accepts.
    pub(crate) fn max_payload(&self) -> usize {
        match self.client.max_payload() {
            0 => 1 << 20, // not connected yet
            most => most,
        }
    }

    /// Publishes if there is a connection; for messages that would be useless later.
    pub(crate) fn publish_now(&self, subject: impl Into<Subject>, body: Bytes) -> bool {
        if !self.connected() {
            self.counters.unsent.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.hand_over(Out::Publish(subject.into(), body))
    }

    /// Publishes, after a reconnection if necessary, within the client's own limits.
    pub(crate) fn publish(&self, subject: String, body: Bytes) {
        self.hand_over(Out::Publish(subject.into(), body));
    }

    /// Asks a question with an empty body.
    pub(crate) fn ask(&self, subject: String, reply: String) {
        self.hand_over(Out::Ask(subject.into(), reply.into()));
    }

    /// Answers a question.
    pub(crate) fn answer(&self, to: Target, body: Bytes) {
        if body.len() > self.max_payload() {
            let message = format!("the answer has {} bytes: over max_payload", body.len());
            let error = WireError::new(shared::wire::code::INTERNAL, message);
            self.hand_over(Out::Error(to, error));
            return;
        }
        self.hand_over(Out::Answer(to, body));
    }

    /// Answers with an error: its body and the two headers of NATS services.
    pub(crate) fn error(&self, to: Target, error: WireError) {
        self.hand_over(Out::Error(to, error));
    }

    /// Sends what is waiting, within a short time limit.
    pub(crate) async fn flush(&self) {
        let rest = async {
            let (sent, all_sent) = oneshot::channel();
            if self.waiting.send(Waiting::Flushed(sent)).await.is_ok() {
                let _ = all_sent.await;
            }
            let _ = self.client.flush().await;
        };
        let _ = tokio::time::timeout(FLUSH, rest).await;
    }

    /// Hands over a message. Returns whether the client or the queue accepted it.
    fn hand_over(&self, out: Out) -> bool {
        // the client nearly always has room; waking a task for each message costs about a twentieth of a bid
        if self.behind.load(Ordering::Acquire) == 0
            && let Some(sent) = send(&self.client, &out).now_or_never()
        {
            self.counters.note(&sent);
            return sent.is_ok();
        }
        self.behind.fetch_add(1, Ordering::AcqRel);
        let taken = self.waiting.try_send(Waiting::Message(out)).is_ok();
        if !taken {
            self.behind.fetch_sub(1, Ordering::AcqRel);
            self.counters.unsent.fetch_add(1, Ordering::Relaxed);
        }
        taken
    }
}

/// Sends the messages that the client had no room for.
async fn send_waiting(
    client: Client,
    mut waiting: mpsc::Receiver<Waiting>,
    behind: Arc<AtomicUsize>,
    counters: Arc<Counters>,
) {
    while let Some(next) = waiting.recv().await {
        match next {
            Waiting::Message(out) => {
                counters.note(&in_time(send(&client, &out)).await);
                behind.fetch_sub(1, Ordering::AcqRel);
            }
            Waiting::Flushed(sent) => _ = sent.send(()),
        }
    }
}

async fn send(client: &Client, out: &Out) -> Result<(), PublishError> {
    match out {
        Out::Publish(subject, body) | Out::Answer(Target::Subject(subject), body) => {
            client.publish(subject.clone(), body.clone()).await
        }
        Out::Ask(subject, reply) => {
            let (subject, reply) = (subject.clone(), reply.clone());
            client
                .publish_with_reply(subject, reply, Bytes::new())
                .await
        }
        Out::Answer(Target::Endpoint(request), body) => request.respond(Ok(body.clone())).await,
        Out::Error(to, error) => answer_error(client, to, error).await,
    }
}

async fn answer_error(client: &Client, to: &Target, error: &WireError) -> Result<(), PublishError> {
    let Some(subject) = to.subject() else {
        return Ok(());
    };
    let headers: HeaderMap = error.headers();
    let body = to_bytes(&error.body());
    client.publish_with_headers(subject, headers, body).await
}

impl Counters {
    /// Counts and logs what was not sent.
    fn note<E: std::fmt::Display>(&self, sent: &Result<(), E>) {
        if let Err(error) = sent {
            self.unsent.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%error, "message not sent");
        }
    }

    /// Returns the counters for the service's statistics.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "dropped_unsent": self.unsent.load(Ordering::Relaxed),
            "dropped_malformed": self.malformed.load(Ordering::Relaxed),
            "dropped_not_permitted": self.violations.count(),
            "dropped_reply_subject": self.reply_subject.load(Ordering::Relaxed),
            "dropped_lines": self.lines.load(Ordering::Relaxed),
            "sources_fetched": self.sources_fetched.load(Ordering::Relaxed),
            "sources_cached": self.sources_cached.load(Ordering::Relaxed),
            "sources_failed": self.sources_failed.load(Ordering::Relaxed),
        })
    }
}
