//! One task per subscription, which parses messages, passes them on, and waits for nothing else. Long lists are read
//! outside the task that owns the machine, so that they do not hold up a renewal of the lease.

use async_nats::{Message, Subscriber};
use futures_util::StreamExt;
use serde::Deserialize;
use shared::{
    AttemptId, WaveId,
    nats::{BusError, is_no_responders},
    wire::{
        Envelope, ErrorBody, Event, StartReply, TaskResult, WireError, check_version, code, kind,
        read,
    },
};
use tokio::{sync::mpsc, task::JoinSet};

use super::{Counted, Shell, lists::read_list};
use crate::{
    ids::QuestionId,
    io::{CellHeard, ManagerInput, TaskInput},
};

/// The fields of an advertisement besides its envelope.
#[derive(Deserialize)]
struct Drains {
    #[serde(default)]
    evacuating: bool,
    #[serde(default)]
    cordoned: bool,
    #[serde(default)]
    leaving: bool,
}

impl Drains {
    /// Returns whether the cell's instances are to be replaced; a cordoned cell keeps them.
    fn drains(&self) -> bool {
        self.evacuating && !self.cordoned
    }
}

impl Shell {
    /// Subscribes to messages of cells, to answers, and to the manager's own echo.
    pub(super) async fn listen(
        &self,
        inputs: &mpsc::Sender<ManagerInput>,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), BusError> {
        let subjects = self.subjects.clone();
        let echo = subjects.manager_echo(&self.name);
        self.hear(echo, Self::echo, inputs, tasks).await?;
        self.hear(subjects.adverts(), Self::advert, inputs, tasks)
            .await?;
        let heartbeats = subjects.cell("*", "heartbeat");
        self.hear(heartbeats, Self::heartbeat, inputs, tasks)
            .await?;
        for kind in kind::OF_CELLS {
            let events = subjects.event(kind, "*", "*");
            self.hear(events, Self::event, inputs, tasks).await?;
        }
        let results = subjects.cell("*", "result");
        self.hear(results, Self::result, inputs, tasks).await?;
        let answers = subjects.cell_answers(&self.name, "*");
        self.hear(answers, Self::listed, inputs, tasks).await?;
        let starts = format!("{}.start.*", self.inbox);
        self.hear(starts, Self::started, inputs, tasks).await
    }

    async fn hear(
        &self,
        subject: String,
        read: impl Fn(&Self, &Message) -> Option<ManagerInput> + Send + 'static,
        inputs: &mpsc::Sender<ManagerInput>,
        tasks: &mut JoinSet<()>,
    ) -> Result<(), BusError> {
        let subscribed = self.bus.client.subscribe(subject).await;
        let mut messages: Subscriber = subscribed.map_err(BusError::subscribe)?;
        let (shell, inputs) = (self.clone(), inputs.clone());
        tasks.spawn(async move {
            while let Some(message) = messages.next().await {
                if let Some(input) = read(&shell, &message)
                    && inputs.send(input).await.is_err()
                {
                    return;
                }
            }
        });
        Ok(())
    }

    /// Reads an echo. One of another manager of the same name has another token.
    fn echo(&self, message: &Message) -> Option<ManagerInput> {
        (*message.payload == *self.token.as_bytes()).then_some(ManagerInput::Echo)
    }

    fn advert(&self, message: &Message) -> Option<ManagerInput> {
        let cell = self.subjects.cell_of(&message.subject)?;
        let body = &message.payload;
        let heard = check_version(body)
            .and_then(|()| Envelope::parse(body, Some(cell)))
            .and_then(|envelope| Ok((envelope, read::<Drains>(body)?)));
        let (envelope, drains) = self.readable(message, heard)?;
        // without a ttl it is a bid
        let ttl = envelope.ttl?;
        Some(ManagerInput::Cell(CellHeard {
            cell: envelope.cell,
            incarnation: envelope.incarnation,
            seq: envelope.seq,
            ttl,
            draining: drains.drains(),
            leaving: drains.leaving,
            recent: envelope.recent,
        }))
    }

    fn heartbeat(&self, message: &Message) -> Option<ManagerInput> {
        let cell = self.subjects.cell_of(&message.subject)?;
        self.list(message, cell, None)
    }

    fn listed(&self, message: &Message) -> Option<ManagerInput> {
        let subject = self.subjects.answer_of(&message.subject)?;
        // answers to questions from before this run are of no use
        let question = subject.token.strip_suffix(&*self.token)?;
        let question = question.strip_suffix('-')?.parse().ok()?;
        self.list(message, subject.by, Some(QuestionId(question)))
    }

    fn list(
        &self,
        message: &Message,
        cell: &str,
        question: Option<QuestionId>,
    ) -> Option<ManagerInput> {
        let body = &message.payload;
        let list = check_version(body).and_then(|()| read_list(body));
        let list = self.readable(message, list)?;
        if list.cell != cell {
            self.count(Counted::WrongSubject);
            return None;
        }
        let list = Box::new(list);
        Some(ManagerInput::Listed { question, list })
    }

    fn event(&self, message: &Message) -> Option<ManagerInput> {
        let subject = self.subjects.event_of(&message.subject)?;
        let body = &message.payload;
        let event = check_version(body).and_then(|()| read::<Event>(body));
        let event = self.readable(message, event)?;
        if !event.agrees_with(subject) {
            self.count(Counted::WrongSubject);
            return None;
        }
        Some(ManagerInput::Event(Box::new(event)))
    }

    /// Reads a cell's message about how a task ended.
    fn result(&self, message: &Message) -> Option<ManagerInput> {
        let cell = self.subjects.cell_of(&message.subject)?;
        let body = &message.payload;
        let result = check_version(body).and_then(|()| read::<TaskResult>(body));
        let result = self.readable(message, result)?;
        if result.cell != cell {
            self.count(Counted::WrongSubject);
            return None;
        }
        Some(ManagerInput::Task(TaskInput::Ended(Box::new(result))))
    }

    /// Reads an auctioneer's answer to a start, which its subject names.
    fn started(&self, message: &Message) -> Option<ManagerInput> {
        let id = message.subject.rsplit('.').next()?;
        let answer = self.answer_to_start(message)?;
        if let Some(wave) = WaveId::parse(id) {
            return Some(ManagerInput::Outcome { wave, answer });
        }
        let attempt = AttemptId::parse(id)?;
        Some(ManagerInput::Task(TaskInput::Outcome { attempt, answer }))
    }

    fn answer_to_start(&self, message: &Message) -> Option<Result<Box<StartReply>, WireError>> {
        if is_no_responders(message) {
            let error = WireError::new(code::OVERLOADED, "no auctioneer answers");
            return Some(Err(error));
        }
        let body = &message.payload;
        let reply = check_version(body).and_then(|()| read::<StartReply>(body));
        match reply.map_err(|error| (error, read::<ErrorBody>(body))) {
            Ok(reply) => Some(Ok(Box::new(reply))),
            Err((_, Ok(refused))) => Some(Err(refused.error)),
            Err((error, Err(_))) => self.readable(message, Err(error)),
        }
    }

    /// Returns a message if it could be read; otherwise counts it and logs it now and then.
    fn readable<T>(&self, message: &Message, read: Result<T, WireError>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(error) => {
                self.count(Counted::Malformed);
                let (logged, left_out) = self.dropped_lines.next(std::time::Instant::now());
                if logged {
                    let from = placement::cut(&message.subject);
                    tracing::warn!(%from, %error, left_out, "dropped: malformed message");
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cordoned_cell_keeps_what_it_runs() {
        for (advert, drains) in [
            ("{}", false),
            (r#"{"evacuating":true}"#, true),
            (r#"{"evacuating":true,"cordoned":true}"#, false),
        ] {
            assert_eq!(read::<Drains>(advert.as_bytes()).unwrap().drains(), drains);
        }
    }
}
