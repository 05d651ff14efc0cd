//! An auctioneer on the bus: the machine, and what its shell does between it and the bus.

use std::{any::Any, collections::BTreeMap};

use auctioneer::{
    Auctioneer, AuctioneerInput, AuctioneerOutput, DispatchId, ECHO_MS, LookupId, ReplyKey,
    Settings, StopId, WarmUp, admission, feed::ReportKind,
};
use placement::Policy;
use shared::wire::{BidRequest, Event, kind, to_bytes};
use uuid::Uuid;

use super::{
    bus::{Message, Subscription},
    node::{Node, Outbox},
};
use crate::random::Random;

/// How long another auctioneer of the same name has to answer before this one starts, and the wait after any answer.
const NAME_WAIT_MS: u64 = 500;
const NAME_QUIET_MS: u64 = 100;
/// The server's `max_payload`.
const MAX_PAYLOAD: usize = 1 << 20;

/// The auctioneer; see the module.
pub(super) struct AuctioneerNode {
    name: String,
    label: String,
    policy: Policy,
    random: Random,
    /// None while it is down or asks whether its name is free.
    machine: Option<Auctioneer>,
    /// Until when another auctioneer of its name may answer.
    asks_until_ms: Option<u64>,
    born_ms: u64,
    /// The inbox of this life, for answers to its questions.
    inbox: String,
    warm_up: WarmUp,
    joined: bool,
    up: bool,
    next_echo_ms: u64,
    replies: BTreeMap<ReplyKey, String>,
    keys: u64,
}

impl AuctioneerNode {
    /// Creates an auctioneer; `label` is what it is called in timelines.
    pub(super) fn new(name: String, label: String, policy: Policy, random: Random) -> Self {
        Self {
            name,
            label,
            policy,
            random,
            machine: None,
            asks_until_ms: None,
            born_ms: 0,
            inbox: String::new(),
            warm_up: WarmUp::default(),
            joined: false,
            up: true,
            next_echo_ms: 0,
            replies: BTreeMap::new(),
            keys: 0,
        }
    }

    /// Returns its name, which another one may share.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn machine(&self) -> Option<&Auctioneer> {
        self.machine.as_ref()
    }

    /// Returns whether it accepts requests.
    pub(super) fn is_joined(&self) -> bool {
        self.joined
    }

    /// Starts, as nobody has its name.
    fn start(&mut self, now_ms: u64, out: &mut Outbox) {
        self.asks_until_ms = None;
        self.machine = Some(Auctioneer::new(Settings {
            name: self.name.clone(),
            policy: self.policy.clone(),
            limits: auctioneer::Limits::default(),
            max_payload: MAX_PAYLOAD,
            seed: self.random.next(),
            wall_start_ms: 0,
        }));
        (self.born_ms, self.joined) = (now_ms, false);
        self.warm_up = WarmUp::default();
        self.next_echo_ms = now_ms;
        self.replies.clear();
        out.resubscribed = true;
        out.send(Message::new("discover", "{}"));
    }

    /// Handles the answer of an auctioneer of its name while it asks for it.
    fn name_heard(&mut self, now_ms: u64, message: &Message, out: &mut Outbox) {
        if message.no_responders {
            self.start(now_ms, out);
        } else if message.body == self.name.as_bytes() {
            out.note(|| "does not start: another auctioneer has its name".to_owned());
            self.asks_until_ms = None;
            out.exits = true;
        } else {
            let until_ms = self.asks_until_ms.unwrap_or(now_ms);
            self.asks_until_ms = Some(until_ms.min(now_ms + NAME_QUIET_MS));
        }
    }

    /// Passes an input to the machine, does what is due, and sends the outputs.
    fn step(&mut self, now_ms: u64, input: Option<AuctioneerInput>, out: &mut Outbox) {
        let own_ms = now_ms - self.born_ms;
        let Some(machine) = &mut self.machine else {
            return;
        };
        if let Some(input) = input {
            machine.take(own_ms, input);
        }
        let mut outputs = machine.run(own_ms);
        let cells = machine.feed().pool().len();
        if !self.joined && self.warm_up.is_over(own_ms, cells) {
            self.joined = true;
            machine.warmed_up();
            out.resubscribed = true;
            out.note(|| format!("takes requests; it knows {cells} cells"));
        }
        outputs.sort_by_key(AuctioneerOutput::is_for_observers);
        let leaves = machine.has_namesake();
        for output in outputs {
            self.carry_out(output, out);
        }
        if leaves {
            out.note(|| "leaves: another auctioneer has its name".to_owned());
            self.die();
            out.exits = true;
        }
    }

    fn carry_out(&mut self, output: AuctioneerOutput, out: &mut Outbox) {
        let inbox = &self.inbox;
        match output {
            AuctioneerOutput::AskBids { auction } => {
                let body = to_bytes(&BidRequest {
                    v: shared::VERSION,
                    auction,
                });
                out.send(Message::new("bid", body).with_reply(format!("{inbox}.bid")));
            }
            AuctioneerOutput::AskState { cell } => {
                let question = Message::new(format!("cell.{cell}.state"), "");
                out.send(question.with_reply(format!("{inbox}.state")));
            }
            AuctioneerOutput::AskInstances { lookup, body } => {
                out.note(|| format!("asks the cells what runs: {}", text(&body)));
                let reply = format!("{inbox}.found.{lookup}");
                out.send(Message::new("instances", body).with_reply(reply));
            }
            AuctioneerOutput::Start {
                dispatch,
                cell,
                body,
            } => {
                out.note(|| format!("sends a start to {cell}: {}", started(&body)));
                let reply = format!("{inbox}.start.{dispatch}");
                out.send(Message::new(format!("cell.{cell}.start"), body).with_reply(reply));
            }
            AuctioneerOutput::EndDuplicates { cell, body } => {
                out.note(|| format!("ends on {cell} what runs twice: {}", text(&body)));
                let reply = format!("{inbox}.stop.{}", StopId::NOBODYS);
                out.send(Message::new(format!("cell.{cell}.stop"), body).with_reply(reply));
            }
            AuctioneerOutput::StopCells { stop, body } => {
                let reply = format!("{inbox}.stop.{stop}");
                out.send(Message::new("cells.stop", body).with_reply(reply));
            }
            AuctioneerOutput::Reply { to, body } => self.reply(to, body, out),
            AuctioneerOutput::ReplyError { to, error } => {
                self.reply(to, to_bytes(&error.body()), out);
            }
            AuctioneerOutput::Event(event) => Self::event(&event, out),
            AuctioneerOutput::Outcome { id, body } => {
                out.send(Message::new(format!("outcome.{id}"), body));
            }
            AuctioneerOutput::AuctionHeld { .. } | AuctioneerOutput::Dropped { .. } => {}
        }
    }

    fn reply(&mut self, to: ReplyKey, body: bytes::Bytes, out: &mut Outbox) {
        if let Some(subject) = self.replies.remove(&to) {
            out.send(Message::new(subject, body));
        }
    }

    fn event(event: &Event, out: &mut Outbox) {
        if event.kind == kind::CELL_LOST {
            let cell = event.cell.clone().unwrap_or_default();
            out.note(|| format!("has lost {cell}"));
            out.lost_cells.push(cell);
        }
        if event.kind == kind::ASKED {
            out.send(Message::new("asked", to_bytes(event)));
        }
    }

    fn read(&mut self, message: &Message) -> Option<AuctioneerInput> {
        let body = &message.body;
        let mut tokens = message.subject.split('.');
        let report = |kind, subject_cell| AuctioneerInput::CellReport {
            kind,
            subject_cell,
            body: body.clone(),
        };
        match tokens.next()? {
            "start" => {
                self.keys += 1;
                let key = ReplyKey::new(self.keys);
                let reply = message.reply.clone();
                let key = reply.map(|subject| {
                    self.replies.insert(key, subject);
                    key
                });
                let random = &mut self.random;
                let id = || Uuid::from_u64_pair(random.next(), random.next());
                Some(admission::read_start(&self.policy, body, key, id))
            }
            "cell" => Some(report(ReportKind::Advert, tokens.next().map(str::to_owned))),
            "outcome" => Some(AuctioneerInput::Outcome {
                id: message.last_token().parse().ok()?,
                body: body.clone(),
            }),
            "asked" => Some(auctioneer::read_announcement("", body)),
            "echo" => {
                let token = std::str::from_utf8(body).ok()?.parse().ok()?;
                Some(AuctioneerInput::EchoOf(token))
            }
            _ => self.answer(message, &report),
        }
    }

    fn answer(
        &self,
        message: &Message,
        report: &dyn Fn(ReportKind, Option<String>) -> AuctioneerInput,
    ) -> Option<AuctioneerInput> {
        let (body, nobody) = (&message.body, message.no_responders);
        let rest = message
            .subject
            .strip_prefix(&self.inbox)?
            .strip_prefix('.')?;
        let (what, number) = rest.split_once('.').unwrap_or((rest, "0"));
        let number = number.parse().ok()?;
        Some(match what {
            "start" if nobody => AuctioneerInput::NoResponders {
                dispatch: DispatchId::new(number),
            },
            _ if nobody => return None,
            "bid" => report(ReportKind::Bid, None),
            "state" => report(ReportKind::State, None),
            "start" => AuctioneerInput::StartAnswered {
                dispatch: DispatchId::new(number),
                answer: serde_json::from_slice(body).ok()?,
            },
            "stop" => AuctioneerInput::StopAnswered {
                stop: StopId::new(number),
                answer: serde_json::from_slice(body).ok()?,
            },
            _ => AuctioneerInput::InstancesReported {
                lookup: LookupId::new(number),
                answer: serde_json::from_slice(body).ok()?,
            },
        })
    }
}

impl Node for AuctioneerNode {
    fn label(&self) -> &str {
        &self.label
    }

    fn subscriptions(&self) -> Vec<Subscription> {
        let mut all = vec![
            Subscription::to(format!("{}.bid", self.inbox)),
            Subscription::to(format!("{}.state", self.inbox)),
            Subscription::to(format!("{}.*.*", self.inbox)),
        ];
        if self.machine.is_none() {
            return all;
        }
        let plain = ["cell.*.advert", "outcome.*", "asked", "info"];
        all.extend(plain.into_iter().map(Subscription::to));
        all.push(Subscription::to(format!("echo.{}", self.name)));
        if self.joined {
            all.push(Subscription::of_group("start", "auctioneers"));
        }
        all
    }

    fn begin(&mut self, now_ms: u64, life: u32, out: &mut Outbox) {
        self.inbox = format!("inbox.{}-{life}", self.label);
        self.up = true;
        self.asks_until_ms = Some(now_ms + NAME_WAIT_MS);
        out.resubscribed = true;
        out.send(Message::new("info", "").with_reply(format!("{}.name.0", self.inbox)));
    }

    fn die(&mut self) {
        self.machine = None;
        self.asks_until_ms = None;
        self.joined = false;
    }

    fn connected(&mut self, now_ms: u64, up: bool, out: &mut Outbox) {
        self.up = up;
        if up {
            out.send(Message::new("discover", "{}"));
        }
        self.step(now_ms, Some(AuctioneerInput::Connected(up)), out);
    }

    fn missed(&mut self, now_ms: u64, out: &mut Outbox) {
        out.send(Message::new("discover", "{}"));
        self.step(now_ms, Some(AuctioneerInput::Missed), out);
    }

    fn receive(&mut self, now_ms: u64, message: &Message, out: &mut Outbox) {
        if self.asks_until_ms.is_some() {
            self.name_heard(now_ms, message, out);
        } else if let ("info", Some(reply)) = (message.subject.as_str(), &message.reply) {
            out.send(Message::new(reply.clone(), self.name.clone()));
        } else if let Some(input) = self.read(message) {
            self.step(now_ms, Some(input), out);
        }
    }

    fn wake(&mut self, now_ms: u64, out: &mut Outbox) {
        if self
            .asks_until_ms
            .is_some_and(|until_ms| until_ms <= now_ms)
        {
            self.start(now_ms, out);
        }
        let Some(machine) = &self.machine else {
            return;
        };
        if now_ms >= self.next_echo_ms {
            self.next_echo_ms = now_ms + ECHO_MS;
            if self.up {
                let token = machine.token().to_string();
                out.send(Message::new(format!("echo.{}", self.name), token));
            }
        }
        self.step(now_ms, None, out);
    }

    fn next_ms(&self) -> u64 {
        let Some(machine) = &self.machine else {
            return self.asks_until_ms.unwrap_or(u64::MAX);
        };
        let mut next_ms = machine.next_wake_ms();
        if !self.joined {
            next_ms = next_ms.min(self.warm_up.next_ms(next_ms));
        }
        next_ms.saturating_add(self.born_ms).min(self.next_echo_ms)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().take(200).collect()
}

/// Describes which instances a start is for.
fn started(body: &[u8]) -> String {
    let start: Option<shared::wire::CellStart> = serde_json::from_slice(body).ok();
    let work = start.map(|start| start.work).unwrap_or_default();
    let names = work
        .iter()
        .map(|work| format!("{}/{} {}", work.app, work.index, work.instance));
    names.collect::<Vec<_>>().join(", ")
}
