//! A bridge on the bus: the machine of `dea-in`, and what its shell does between it and the bus. The estate is on the
//! same bus.

use std::{any::Any, collections::BTreeMap};

use advertiser::{
    dea::{BridgeInput, BridgeOptions, Estate, EstateOptions, subjects},
    dea_in::{CellsOutput, DeaCells, OF_CELL, Question, Topic},
};
use shared::wire::to_bytes;

use crate::check::{
    bus::{Message, Subscription},
    node::{Node, Outbox},
};

const NAME: &str = "dea";
/// Maximum size of one message of an answer.
const MAX_BYTES: usize = 1 << 19;
/// The subject under which DEAs reply to questions.
const INBOX: &str = "inbox.dea";
const OF_ALL: [(&str, Topic); 4] = [
    ("discover", Topic::Discover),
    ("bid", Topic::Bid),
    ("instances", Topic::Instances),
    ("cells.stop", Topic::StopAll),
];

pub(super) struct BridgeNode {
    slots: usize,
    /// None while it is down.
    machine: Option<DeaCells>,
    /// The reply subjects of starts.
    asked: BTreeMap<u64, String>,
    ticket: u64,
}

impl BridgeNode {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            slots,
            machine: None,
            asked: BTreeMap::new(),
            ticket: 0,
        }
    }

    fn asked(&mut self, now_ms: u64, message: &Message, out: &mut Outbox) {
        let subject = message.subject.as_str();
        let of_all = OF_ALL.iter().find(|(known, _)| *known == subject);
        let cell = subject.split('.').nth(1).unwrap_or_default();
        let of_cell = OF_CELL
            .iter()
            .find(|(known, _)| *known == message.last_token());
        let (topic, cell) = match (of_all, of_cell) {
            (Some((_, topic)), _) => (*topic, None),
            (None, Some((_, topic))) => (*topic, Some(cell)),
            (None, None) => return,
        };
        self.ticket += 1;
        if topic == Topic::Start
            && let Some(reply) = &message.reply
        {
            self.asked.insert(self.ticket, reply.clone());
        }
        let question = Question {
            topic,
            cell,
            body: &message.body,
            ticket: self.ticket,
            max_bytes: MAX_BYTES,
        };
        let Some(machine) = &mut self.machine else {
            return;
        };
        let answered = machine.asked(now_ms, &question);
        for output in answered.unwrap_or_default() {
            match (output, &message.reply) {
                (CellsOutput::Reply { body, .. }, Some(reply)) => {
                    out.send(Message::new(reply.clone(), body));
                }
                (other, _) => self.carry_out(other, out),
            }
        }
    }

    fn hear(&mut self, now_ms: u64, input: BridgeInput<'_>, out: &mut Outbox) {
        let heard = self
            .machine
            .as_mut()
            .map(|machine| machine.hear(now_ms, input));
        for output in heard.into_iter().flatten() {
            self.carry_out(output, out);
        }
    }

    fn carry_out(&mut self, output: CellsOutput, out: &mut Outbox) {
        match output {
            CellsOutput::ToDeas { subject, body } => out.send(Message::new(subject, body.0)),
            CellsOutput::AskDeas { subject, body } => {
                out.send(Message::new(subject, body).with_reply(INBOX));
            }
            CellsOutput::Advertise(advert) => {
                let subject = format!("cell.{}.advert", advert.cell.cell);
                out.send(Message::new(subject, to_bytes(&*advert)));
            }
            CellsOutput::Heartbeat(list) => {
                let subject = format!("cell.{}.heartbeat", list.cell);
                for part in list.split(MAX_BYTES) {
                    out.send(Message::new(subject.clone(), to_bytes(&part)));
                }
            }
            CellsOutput::Event { cell, mut event } => {
                event.by = cell;
                out.send(Message::new("event", to_bytes(&*event)));
            }
            CellsOutput::Reply { .. } => {}
            CellsOutput::Answer { ticket, answer } => {
                if let Some(reply) = self.asked.remove(&ticket) {
                    for refused in &answer.refused {
                        out.note(|| format!("refuses {}: {}", refused.instance, refused.reason));
                    }
                    out.send(Message::new(reply, to_bytes(&*answer)));
                }
            }
        }
    }
}

impl Node for BridgeNode {
    fn label(&self) -> &'static str {
        "bridge"
    }

    fn subscriptions(&self) -> Vec<Subscription> {
        let mut all: Vec<Subscription> = Estate::SUBJECTS.map(Subscription::to).into();
        all.push(Subscription::to(INBOX));
        all.extend(OF_ALL.map(|(subject, _)| Subscription::to(subject)));
        for slot in 0..self.slots {
            for what in ["start", "stop", "state", "drain"] {
                let subject = format!("cell.{NAME}-{slot}.{what}");
                all.push(Subscription::of_group(subject, "q"));
            }
        }
        all
    }

    fn begin(&mut self, now_ms: u64, _life: u32, out: &mut Outbox) {
        let options = BridgeOptions {
            name: NAME.to_owned(),
            mark: "m".into(),
            slots: self.slots,
            estate: EstateOptions { expiry_s: 15 },
            settle_ms: 11_000,
        };
        self.machine = DeaCells::new(options, now_ms).ok();
        out.resubscribed = true;
        out.send(Message::new(subjects::LOCATE, ""));
        out.send(Message::new(subjects::HEALTH_MANAGER_START, ""));
    }

    fn die(&mut self) {
        self.machine = None;
        self.asked.clear();
    }

    fn connected(&mut self, now_ms: u64, up: bool, out: &mut Outbox) {
        let machine = self.machine.as_mut().filter(|_| up);
        let advertised = machine.map(|machine| machine.advertise_all(now_ms));
        for output in advertised.into_iter().flatten() {
            self.carry_out(output, out);
        }
    }

    fn missed(&mut self, _now_ms: u64, _out: &mut Outbox) {}

    fn receive(&mut self, now_ms: u64, message: &Message, out: &mut Outbox) {
        let (subject, body) = (message.subject.as_str(), &message.body[..]);
        if subject == INBOX {
            if !message.no_responders {
                self.hear(now_ms, BridgeInput::Found(body), out);
            }
        } else if Estate::SUBJECTS.contains(&subject) {
            self.hear(now_ms, BridgeInput::Heard { subject, body }, out);
        } else {
            self.asked(now_ms, message, out);
        }
    }

    fn wake(&mut self, now_ms: u64, out: &mut Outbox) {
        let due = self.machine.as_mut().map(|machine| machine.tick(now_ms));
        for output in due.into_iter().flatten() {
            self.carry_out(output, out);
        }
    }

    fn next_ms(&self) -> u64 {
        self.machine.as_ref().map_or(u64::MAX, DeaCells::next_ms)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
