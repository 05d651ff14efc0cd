//! A manager on the bus and over the bucket: the machine, and between it and these what its shell does.

use std::{any::Any, collections::BTreeMap};

use manager::{
    AppAnswer, AppCommand, AppDefinition, CellHeard, CommandKey, Manager, ManagerInput,
    ManagerOutput, ManagerSettings, QuestionId, WaveId, WriteId, WriteResult,
};
use shared::wire::{
    Envelope, ErrorBody, Event, InstancesAnswer, StartReply, WireError, code, to_bytes,
};

use super::{
    bucket::{StateAnswer, StateRequest, StateWrite},
    bus::{Message, Subscription},
    node::{Node, Outbox},
};
use crate::random::Random;

/// How often it hears itself. Its clocks pass while the pause is shorter than 2.5 s.
const ECHO_MS: u64 = 500;
/// A write without an answer has failed after this.
const WRITE_MS: u64 = 5_000;
/// A watch that has not shown everything by then is begun again.
const WATCH_MS: u64 = 5_000;
/// Between the end of a watch and the next one.
const PAUSE_MS: u64 = 200;
/// The answer to a command that was carried out.
pub(super) const DONE: &str = "done";

/// See the module.
pub(super) struct ManagerNode {
    name: String,
    random: Random,
    /// None while it is down.
    machine: Option<Manager>,
    born_ms: u64,
    inbox: String,
    up: bool,
    next_echo_ms: u64,
    /// The present watch, and when it is begun if it has not shown everything.
    watch: u64,
    watch_due_ms: Option<u64>,
    /// When each write without an answer has failed.
    writes: BTreeMap<WriteId, u64>,
    /// The waves of the start requests that it sent.
    waves: BTreeMap<u64, WaveId>,
    /// Where the answer to each command goes.
    pub(super) commands: BTreeMap<CommandKey, String>,
    keys: u64,
}

impl ManagerNode {
    pub(super) fn new(name: String, random: Random) -> Self {
        Self {
            name,
            random,
            machine: None,
            born_ms: 0,
            inbox: String::new(),
            up: true,
            next_echo_ms: 0,
            watch: 0,
            watch_due_ms: None,
            writes: BTreeMap::new(),
            waves: BTreeMap::new(),
            commands: BTreeMap::new(),
            keys: 0,
        }
    }

    pub(super) fn machine(&self) -> Option<&Manager> {
        self.machine.as_ref()
    }

    /// The machine takes this, does what is due, and what it wants is sent.
    fn step(&mut self, now_ms: u64, input: Option<ManagerInput>, out: &mut Outbox) {
        let own_ms = now_ms - self.born_ms;
        let Some(machine) = &mut self.machine else {
            return;
        };
        let acted = machine.is_acting();
        if let Some(input) = input {
            machine.take(own_ms, input);
        }
        let outputs = machine.run(own_ms);
        let acts = machine.is_acting();
        if acted != acts {
            out.note(|| if acts { "acts" } else { "does not act" }.to_owned());
        }
        for output in outputs {
            self.carry_out(now_ms, output, out);
        }
    }

    fn carry_out(&mut self, now_ms: u64, output: ManagerOutput, out: &mut Outbox) {
        match output {
            ManagerOutput::Write {
                write,
                key,
                value,
                expected,
            } => {
                let key = key.to_string();
                if key != "lease" {
                    out.note(|| {
                        format!("stores {key} over {expected:?}: {}", text(value.as_ref()))
                    });
                    // an app's own value is stored because a client has asked, also where nothing changes
                    out.wrote |= !key.starts_with("app.");
                }
                self.writes.insert(write, now_ms + WRITE_MS);
                out.state.push(StateRequest::Write(StateWrite {
                    write,
                    key,
                    value,
                    expected,
                }));
            }
            ManagerOutput::Start(request) => {
                self.keys += 1;
                if let Some(wave) = WaveId::parse(&request.id) {
                    self.waves.insert(self.keys, wave);
                }
                out.note(|| format!("asks for {} {:?}", request.id, request.indices));
                let reply = format!("{}.wave.{}", self.inbox, self.keys);
                out.send(Message::new("start", to_bytes(&*request)).with_reply(reply));
                out.starts.push(request);
            }
            ManagerOutput::Stop { cell, stop } => {
                out.note(|| format!("stops on {cell}: {:?}", stop.instances));
                out.send(Message::new(format!("cell.{cell}.stop"), to_bytes(&stop)));
                out.stops.push((cell, stop.instances));
            }
            ManagerOutput::Ask { question } => {
                let reply = format!("{}.found.{}", self.inbox, question.0);
                out.send(Message::new("instances", "").with_reply(reply));
            }
            ManagerOutput::Event(event) => {
                let why = event.reason.unwrap_or_default();
                out.note(|| format!("tells {}: {why}", event.kind));
            }
            ManagerOutput::Reply { to, answer } => self.reply(to, answer, out),
        }
    }

    fn reply(&mut self, to: CommandKey, answer: Result<AppAnswer, WireError>, out: &mut Outbox) {
        if let Some(subject) = self.commands.remove(&to) {
            let body = match answer {
                Ok(_) => DONE.to_owned(),
                Err(error) => format!("{}: {}", error.code, error.message),
            };
            out.send(Message::new(subject, body));
        }
    }

    /// All is to be shown, again or for the first time.
    fn watch(&mut self, now_ms: u64, out: &mut Outbox) {
        self.watch += 1;
        self.watch_due_ms = Some(now_ms + WATCH_MS);
        out.state.push(StateRequest::Watch(self.watch));
    }

    fn read(&mut self, message: &Message) -> Option<ManagerInput> {
        let body = &message.body;
        let mut tokens = message.subject.split('.');
        match (tokens.next()?, message.last_token()) {
            ("cell", "advert") => {
                let advert = Envelope::parse(body, None).ok()?;
                Some(ManagerInput::Cell(CellHeard {
                    draining: drains(body),
                    cell: advert.cell,
                    incarnation: advert.incarnation,
                    seq: advert.seq,
                    ttl: advert.ttl?,
                    recent: advert.recent,
                }))
            }
            ("cell", _) => listed(None, body),
            ("event", _) => {
                let event: Event = serde_json::from_slice(body).ok()?;
                Some(ManagerInput::Event(Box::new(event)))
            }
            ("echo", _) => Some(ManagerInput::Echo),
            ("app", app) => {
                let command = read_command(std::str::from_utf8(body).ok()?)?;
                self.keys += 1;
                let to = CommandKey(self.keys);
                self.commands.insert(to, message.reply.clone()?);
                let app = app.to_owned();
                Some(ManagerInput::Command { to, app, command })
            }
            _ => self.answer(message),
        }
    }

    /// The answer to a question or to a start request.
    fn answer(&mut self, message: &Message) -> Option<ManagerInput> {
        let rest = message.subject.strip_prefix(&self.inbox)?;
        let (what, number) = rest.strip_prefix('.')?.split_once('.')?;
        let number: u64 = number.parse().ok()?;
        if what == "found" {
            return listed(Some(QuestionId(number)), &message.body);
        }
        let wave = self.waves.remove(&number)?;
        let answer = if message.no_responders {
            Err(WireError::new(code::OVERLOADED, "no auctioneer"))
        } else {
            match serde_json::from_slice::<StartReply>(&message.body) {
                Ok(reply) => Ok(Box::new(reply)),
                Err(_) => Err(serde_json::from_slice::<ErrorBody>(&message.body)
                    .ok()?
                    .error),
            }
        };
        Some(ManagerInput::Outcome { wave, answer })
    }
}

impl Node for ManagerNode {
    fn label(&self) -> &str {
        &self.name
    }

    fn subscriptions(&self) -> Vec<Subscription> {
        let plain = ["cell.*.advert", "cell.*.heartbeat", "event"];
        let mut all: Vec<Subscription> = plain.into_iter().map(Subscription::to).collect();
        all.push(Subscription::to(format!("echo.{}", self.inbox)));
        all.push(Subscription::to(format!("{}.*.*", self.inbox)));
        all.push(Subscription::of_group("app.*", "managers"));
        all
    }

    fn begin(&mut self, now_ms: u64, life: u32, out: &mut Outbox) {
        let holder = format!("{}-{life}", self.name);
        self.inbox = format!("inbox.{holder}");
        let seed = self.random.next();
        self.machine = Some(Manager::new(ManagerSettings { holder, seed }));
        (self.born_ms, self.up, self.next_echo_ms) = (now_ms, true, now_ms);
        out.resubscribed = true;
        out.send(Message::new("discover", "{}"));
        self.watch(now_ms, out);
    }

    fn die(&mut self) {
        self.machine = None;
        self.writes.clear();
        self.waves.clear();
        self.commands.clear();
        self.watch_due_ms = None;
    }

    fn connected(&mut self, now_ms: u64, up: bool, out: &mut Outbox) {
        self.up = up;
        if up {
            out.send(Message::new("discover", "{}"));
        }
        self.step(now_ms, Some(ManagerInput::Interrupted), out);
    }

    fn missed(&mut self, now_ms: u64, out: &mut Outbox) {
        out.send(Message::new("discover", "{}"));
        self.step(now_ms, Some(ManagerInput::Interrupted), out);
    }

    fn receive(&mut self, now_ms: u64, message: &Message, out: &mut Outbox) {
        if let Some(input) = self.read(message) {
            self.step(now_ms, Some(input), out);
        }
    }

    fn state_says(&mut self, now_ms: u64, answer: StateAnswer, out: &mut Outbox) {
        let of_watch = answer.watch();
        if of_watch.is_some_and(|watch| watch != self.watch) {
            return;
        }
        let input = match answer {
            StateAnswer::Ended { write, result } => {
                if self.writes.remove(&write).is_none() {
                    return;
                }
                if result == WriteResult::Conflict {
                    out.note(|| "is refused: another write came first".to_owned());
                }
                ManagerInput::WriteEnded { write, result }
            }
            StateAnswer::Shown {
                key,
                revision,
                value,
                ..
            } => ManagerInput::Kv {
                key,
                revision,
                value,
            },
            StateAnswer::Ready { revision, .. } => {
                self.watch_due_ms = None;
                ManagerInput::KvReady { revision }
            }
            StateAnswer::Broken { .. } => {
                out.note(|| "is not shown the bucket any more".to_owned());
                self.watch_due_ms = Some(now_ms + PAUSE_MS);
                self.watch += 1;
                ManagerInput::KvInterrupted
            }
        };
        self.step(now_ms, Some(input), out);
    }

    fn wake(&mut self, now_ms: u64, out: &mut Outbox) {
        if self.machine.is_none() {
            return;
        }
        if now_ms >= self.next_echo_ms {
            self.next_echo_ms = now_ms + ECHO_MS;
            if self.up {
                out.send(Message::new(format!("echo.{}", self.inbox), ""));
            }
        }
        let late = self.writes.iter().filter(|(_, due_ms)| **due_ms <= now_ms);
        let late: Vec<WriteId> = late.map(|(write, _)| *write).collect();
        for write in late {
            self.writes.remove(&write);
            let result = WriteResult::Failed;
            self.step(
                now_ms,
                Some(ManagerInput::WriteEnded { write, result }),
                out,
            );
        }
        if self.watch_due_ms.is_some_and(|due_ms| due_ms <= now_ms) {
            self.step(now_ms, Some(ManagerInput::KvInterrupted), out);
            self.watch(now_ms, out);
        }
        self.step(now_ms, Some(ManagerInput::Tick), out);
    }

    fn next_ms(&self) -> u64 {
        let Some(machine) = &self.machine else {
            return u64::MAX;
        };
        let own = machine.next_ms().saturating_add(self.born_ms);
        let write = self.writes.values().min().copied();
        [write, self.watch_due_ms, Some(self.next_echo_ms)]
            .into_iter()
            .flatten()
            .fold(own, u64::min)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Whether an advertisement says that its cell accepts no work.
fn drains(body: &[u8]) -> bool {
    let cell: Option<placement::Cell> = serde_json::from_slice(body).ok();
    cell.is_some_and(|cell| cell.evacuating)
}

fn listed(question: Option<QuestionId>, body: &[u8]) -> Option<ManagerInput> {
    let list: InstancesAnswer = serde_json::from_slice(body).ok()?;
    let list = Box::new(list);
    Some(ManagerInput::Listed { question, list })
}

/// `put DEFINITION`, `scale N`, `restart` and so on.
fn read_command(text: &str) -> Option<AppCommand> {
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    Some(match verb {
        "put" => AppCommand::Put(Box::new(AppDefinition::read(rest.as_bytes()).ok()?)),
        "scale" => AppCommand::Scale(rest.parse().ok()?),
        "stop" => AppCommand::Stop,
        "start" => AppCommand::Start,
        "restart" => AppCommand::Restart {
            max_in_flight: rest.parse().ok(),
        },
        "delete" => AppCommand::Delete,
        "undo" => AppCommand::Undo,
        "pause" => AppCommand::Pause,
        "resume" => AppCommand::Resume,
        _ => return None,
    })
}

fn text(value: Option<&bytes::Bytes>) -> String {
    let Some(value) = value else {
        return "nothing".to_owned();
    };
    String::from_utf8_lossy(value).chars().take(200).collect()
}
