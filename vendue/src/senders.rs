//! Checks senders: what a message says about its sender must match its subject.

use std::time::Instant;

use async_nats::Message;
use shared::{
    Subjects,
    telemetry::Seldom,
    wire::{Event, LogLine},
};

use crate::output::{counted, note};

/// Reads messages, and drops those that name another sender than their subject.
#[derive(Debug, Default)]
pub(crate) struct Senders(Seldom);

impl Senders {
    /// Reads an event; none if it is dropped.
    pub(crate) fn event(&self, subjects: &Subjects, message: &Message) -> Option<Event> {
        let event: Event = readable(message)?;
        let subject = subjects.event_of(&message.subject);
        self.agreed(message, event, |event| {
            subject.is_some_and(|subject| event.agrees_with(subject))
        })
    }

    /// Reads a line of output; none if it is dropped.
    pub(crate) fn line(&self, subjects: &Subjects, message: &Message) -> Option<LogLine> {
        let line: LogLine = readable(message)?;
        let subject = subjects.log_of(&message.subject);
        self.agreed(message, line, |line| {
            subject.is_some_and(|subject| line.agrees_with(subject))
        })
    }

    fn agreed<T>(&self, message: &Message, told: T, agrees: impl Fn(&T) -> bool) -> Option<T> {
        if agrees(&told) {
            return Some(told);
        }
        if let Some(times) = self.0.happened(Instant::now(), 1) {
            let messages = counted(usize::try_from(times).unwrap_or(usize::MAX), "message");
            note(format_args!(
                "{messages} dropped: the subject names another sender than the body; the last on {}",
                message.subject
            ));
        }
        None
    }
}

fn readable<T: serde::de::DeserializeOwned>(message: &Message) -> Option<T> {
    match serde_json::from_slice(&message.payload) {
        Ok(told) => Some(told),
        Err(e) => {
            note(format_args!("{}: cannot be read: {e}", message.subject));
            None
        }
    }
}
