//! Sends the machine's outputs.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use async_nats::HeaderMap;
use bytes::Bytes;
use shared::{
    AnswerTo,
    nats::{self, BusError, in_time},
    wire::{Event, Instances, WireError, kind, time_now, to_bytes},
};

use super::{Counted, Shell, service::ReplyTo};
use crate::{ids::QuestionId, io::ManagerOutput};

/// Interval between two echoes: time passes for the machine only while messages arrive.
const ECHO: Duration = Duration::from_millis(100);

/// Sends a message to this manager itself ten times a second, as evidence that messages flow.
pub(super) async fn echo(shell: Shell) {
    let subject = shell.subjects.manager_echo(&shell.name);
    let token = Bytes::from(shell.token.to_string());
    nats::echo(shell.bus.client.clone(), subject, token, ECHO).await;
}

impl Shell {
    /// Sends the remaining outputs. If the client accepts no more, the rest is dropped and counted: a missing start or
    /// stop is sent again, while waiting here would hold up the lease.
    pub(super) async fn send_all(&self, outputs: Vec<ManagerOutput>) {
        if outputs.is_empty() {
            return;
        }
        let time = time_now();
        let mut outputs = outputs.into_iter();
        while let Some(output) = outputs.next() {
            match self.send(output, &time).await {
                Ok(()) => {}
                Err(BusError::Timeout) => {
                    let count = 1 + outputs.len() as u64;
                    self.drops.unsent.fetch_add(count, Ordering::Relaxed);
                    tracing::warn!(count, "dropped: the NATS client is not accepting messages");
                    return;
                }
                Err(error) => {
                    self.count(Counted::Unsent);
                    tracing::warn!(%error, "dropped: message not sent");
                }
            }
        }
    }

    async fn send(&self, output: ManagerOutput, time: &str) -> Result<(), BusError> {
        let (client, subjects) = (&self.bus.client, &self.subjects);
        match output {
            ManagerOutput::Start(request) => {
                let reply = format!("{}.start.{}", self.inbox, request.id);
                let body = to_bytes(&*request);
                let start = client.publish_with_reply(subjects.start(), reply, body);
                in_time(start).await
            }
            ManagerOutput::Stop { cell, stop } => {
                let subject = subjects.cell(&cell, "stop");
                in_time(client.publish(subject, to_bytes(&stop))).await
            }
            ManagerOutput::Ask { question } => {
                let body = to_bytes(&Instances::default());
                let headers = self.answer_to(question);
                let ask = client.publish_with_headers(subjects.instances(), headers, body);
                in_time(ask).await
            }
            ManagerOutput::Event(mut event) => {
                self.log_event(&event);
                event.stamp_at(&self.name, time);
                let subject = subjects.event(&event.kind, event.about(), &event.by);
                in_time(client.publish(subject, to_bytes(&*event))).await
            }
            // the owner of the machine handles these
            ManagerOutput::Write { .. }
            | ManagerOutput::Reply { .. }
            | ManagerOutput::Moved { .. }
            | ManagerOutput::Granted { .. }
            | ManagerOutput::Task(_) => Ok(()),
        }
    }

    /// Returns headers whose last token names the question and this run of the manager.
    fn answer_to(&self, question: QuestionId) -> HeaderMap {
        let token = format!("{}-{}", question.0, self.token);
        // the name was checked at startup
        AnswerTo::new(&self.name, &token).map_or_else(|_| HeaderMap::new(), |to| to.headers())
    }

    fn log_event(&self, event: &Event) {
        let (logged, left_out) = self.event_lines.next(Instant::now());
        if !logged {
            return;
        }
        let (kind, reason) = (&event.kind, event.reason.as_deref());
        let about = event.about();
        if [kind::ROLLOUT_DONE, kind::TASK_ENDED].contains(&kind.as_str()) {
            tracing::info!(about, reason, left_out, "{kind}");
        } else {
            tracing::warn!(about, reason, left_out, "{kind}");
        }
    }

    /// Answers a request. An error has the headers of NATS services in addition to its body.
    pub(super) async fn answer(&self, to: ReplyTo, answer: Result<Bytes, WireError>) {
        let Some(request) = to.into_request() else {
            return;
        };
        let (body, headers) = match &answer {
            Ok(body) => (body.clone(), HeaderMap::new()),
            Err(error) => (to_bytes(&error.body()), error.headers()),
        };
        let sent = in_time(request.respond_with_headers(Ok(body), headers)).await;
        if let Err(error) = sent {
            self.count(Counted::Unsent);
            tracing::warn!(%error, "dropped: message not sent");
        }
    }

    pub(super) async fn refuse(&self, to: ReplyTo, error: &WireError) {
        self.answer(to, Err(error.clone())).await;
    }
}
