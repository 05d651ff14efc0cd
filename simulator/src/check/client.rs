//! Clients: they send requests with ids of their own, repeat them, and keep every answer.

use std::{any::Any, collections::BTreeMap};

use shared::wire::StartReply;

use super::{
    bus::{Message, Subscription},
    manager::DONE,
    node::{Node, Outbox},
};

/// A client that sends all requests.
#[derive(Debug, Default)]
pub(super) struct Client {
    sent: u64,
    /// The answer to each message.
    pub(super) answers: BTreeMap<u64, ClientAnswer>,
}

/// An answer, or an error.
#[derive(Clone, Debug)]
pub(super) enum ClientAnswer {
    Reply(Box<StartReply>),
    Error(String),
    /// A command was carried out.
    Done,
}

impl Client {
    /// Sends a request and returns its number.
    pub(super) fn ask(&mut self, subject: &str, body: &str, out: &mut Outbox) -> u64 {
        self.sent += 1;
        let reply = format!("inbox.client.{}", self.sent);
        out.send(Message::new(subject, body.to_owned()).with_reply(reply));
        self.sent
    }
}

impl Node for Client {
    fn label(&self) -> &'static str {
        "client"
    }

    fn subscriptions(&self) -> Vec<Subscription> {
        vec![Subscription::to("inbox.client.*")]
    }

    fn begin(&mut self, _now_ms: u64, _life: u32, out: &mut Outbox) {
        out.resubscribed = true;
    }

    fn die(&mut self) {}

    fn connected(&mut self, _now_ms: u64, _up: bool, _out: &mut Outbox) {}

    fn missed(&mut self, _now_ms: u64, _out: &mut Outbox) {}

    fn receive(&mut self, _now_ms: u64, message: &Message, out: &mut Outbox) {
        let Ok(number) = message.last_token().parse() else {
            return;
        };
        let answer = if message.no_responders {
            ClientAnswer::Error("no responders".to_owned())
        } else if message.body == DONE {
            ClientAnswer::Done
        } else {
            match serde_json::from_slice::<StartReply>(&message.body) {
                Ok(reply) => ClientAnswer::Reply(Box::new(reply)),
                Err(_) => ClientAnswer::Error(String::from_utf8_lossy(&message.body).into_owned()),
            }
        };
        out.note(|| format!("is answered #{number}: {}", answer.text()));
        self.answers.insert(number, answer);
    }

    fn wake(&mut self, _now_ms: u64, _out: &mut Outbox) {}

    fn next_ms(&self) -> u64 {
        u64::MAX
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl ClientAnswer {
    fn text(&self) -> String {
        match self {
            Self::Error(error) => error.clone(),
            Self::Done => DONE.to_owned(),
            Self::Reply(reply) => {
                let instances = reply.instances.iter().map(|i| {
                    let indices = i.indices.clone();
                    let which = indices
                        .or(i.index.map(|n| n.to_string()))
                        .unwrap_or_default();
                    let cell = i.cell.as_ref().map(|c| format!(" {c}")).unwrap_or_default();
                    let why = i
                        .reason
                        .as_ref()
                        .map(|r| format!(" ({r})"))
                        .unwrap_or_default();
                    format!("{which} {}{cell}{why}", i.outcome)
                });
                format!("{} {}", reply.id, instances.collect::<Vec<_>>().join(", "))
            }
        }
    }
}
