//! A manager on the bus and over the bucket: what its shell does between [`ManagerDriver`] and these.

use std::{any::Any, collections::BTreeMap};

use manager::{
    AppCommand, AppDefinition, CellHeard, CommandKey, Manager, ManagerInput, ManagerSettings,
    MoveOrder, QuestionId, Submitted, TaskCommand, TaskDefinition, TaskInput, WaveId, WriteResult,
};
use shared::wire::{
    Envelope, ErrorBody, Event, InstancesAnswer, StartReply, WireError, code, to_bytes,
};

use super::{
    bus::{Message, Subscription},
    node::{Node, Outbox},
};
use crate::{
    bucket::{StateAnswer, StateRequest, StateWrite},
    manager_driver::{ECHO_MS, ManagerDriver, ManagerSends},
    random::Random,
};

/// The answer to a command that was carried out.
pub(super) const DONE: &str = "done";

/// The manager; see the module.
pub(super) struct ManagerNode {
    name: String,
    random: Random,
    /// None while it is down.
    driver: Option<ManagerDriver>,
    inbox: String,
    up: bool,
    next_echo_ms: u64,
    /// The reply subjects of commands.
    pub(super) commands: BTreeMap<CommandKey, String>,
    keys: u64,
}

impl ManagerNode {
    pub(super) fn new(name: String, random: Random) -> Self {
        Self {
            name,
            random,
            driver: None,
            inbox: String::new(),
            up: true,
            next_echo_ms: 0,
            commands: BTreeMap::new(),
            keys: 0,
        }
    }

    pub(super) fn machine(&self) -> Option<&Manager> {
        self.driver.as_ref().map(ManagerDriver::machine)
    }

    /// Lets the manager act and sends its messages.
    fn act(&mut self, act: impl FnOnce(&mut ManagerDriver) -> Vec<ManagerSends>, out: &mut Outbox) {
        let Some(driver) = &mut self.driver else {
            return;
        };
        let acted = driver.machine().is_acting();
        let sends = act(driver);
        let acts = driver.machine().is_acting();
        if acted != acts {
            out.note(|| if acts { "acts" } else { "does not act" }.to_owned());
        }
        for send in sends {
            self.carry_out(send, out);
        }
    }

    fn step(&mut self, now_ms: u64, input: ManagerInput, out: &mut Outbox) {
        self.act(|driver| driver.step(now_ms, Some(input)), out);
    }

    fn carry_out(&mut self, sends: ManagerSends, out: &mut Outbox) {
        match sends {
            ManagerSends::State(request) => {
                if let StateRequest::Write(write) = &request {
                    note_write(write, out);
                }
                out.state.push(request);
            }
            ManagerSends::Start { number, request } => {
                out.note(|| format!("asks for {} {:?}", request.id, request.indices));
                let reply = format!("{}.wave.{number}", self.inbox);
                out.send(Message::new("start", to_bytes(&*request)).with_reply(reply));
                let wave = WaveId::parse(&request.id);
                let of = wave.map_or_else(|| request.id.clone(), |wave| wave.uid.to_string());
                out.worked.push(of);
                out.starts.push(request);
            }
            ManagerSends::Stop { cell, stop } => {
                out.note(|| format!("stops on {cell}: {:?}", stop.instances));
                out.send(Message::new(format!("cell.{cell}.stop"), to_bytes(&stop)));
                out.worked.push(stop.app);
                out.stops.push((cell, stop.instances));
            }
            ManagerSends::Ask(question) => {
                let reply = format!("{}.found.{}", self.inbox, question.0);
                out.send(Message::new("instances", "").with_reply(reply));
            }
            ManagerSends::Event(event) => {
                let why = event.reason.unwrap_or_default();
                out.note(|| format!("tells {}: {why}", event.kind));
            }
            ManagerSends::Moved { answer, .. } => out.note(|| match answer {
                Ok(answer) => format!("of a move: {:?} {:?}", answer.state, answer.reason),
                Err(error) => format!("refuses a move: {}", error.message),
            }),
            ManagerSends::Reply { to, answer } => self.reply(to, answer, out),
        }
    }

    /// Handles a move order of an operator; nobody asks for its state.
    pub(super) fn move_instance(
        &mut self,
        now_ms: u64,
        app: &str,
        order: MoveOrder,
        out: &mut Outbox,
    ) {
        self.keys += 1;
        let input = ManagerInput::Move {
            to: CommandKey(self.keys),
            app: app.to_owned(),
            order,
        };
        self.step(now_ms, input, out);
    }

    fn reply(&mut self, to: CommandKey, answer: Result<(), WireError>, out: &mut Outbox) {
        if let Some(subject) = self.commands.remove(&to) {
            let body = match answer {
                Ok(()) => DONE.to_owned(),
                Err(error) => format!("{}: {}", error.code, error.message),
            };
            out.send(Message::new(subject, body));
        }
    }

    fn read(&mut self, message: &Message) -> Option<ManagerInput> {
        let body = &message.body;
        let mut tokens = message.subject.split('.');
        match (tokens.next()?, message.last_token()) {
            ("cell", "advert") => {
                let advert = Envelope::parse(body, None).ok()?;
                Some(ManagerInput::Cell(CellHeard {
                    draining: drains(body),
                    leaving: false,
                    cell: advert.cell,
                    incarnation: advert.incarnation,
                    seq: advert.seq,
                    ttl: advert.ttl?,
                    recent: advert.recent,
                }))
            }
            ("cell", "result") => {
                let result = serde_json::from_slice(body).ok()?;
                Some(ManagerInput::Task(TaskInput::Ended(Box::new(result))))
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
            ("task", id) => {
                let command = read_task_command(id, body)?;
                self.keys += 1;
                let to = CommandKey(self.keys);
                self.commands.insert(to, message.reply.clone()?);
                let id = id.to_owned();
                let command = TaskInput::Command { to, id, command };
                Some(ManagerInput::Task(command))
            }
            _ => self.answer(message),
        }
    }

    /// Reads the answer to a question or to a start request.
    fn answer(&mut self, message: &Message) -> Option<ManagerInput> {
        let rest = message.subject.strip_prefix(&self.inbox)?;
        let (what, number) = rest.strip_prefix('.')?.split_once('.')?;
        let number: u64 = number.parse().ok()?;
        if what == "found" {
            return listed(Some(QuestionId(number)), &message.body);
        }
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
        self.driver.as_mut()?.started(number, answer)
    }
}

impl Node for ManagerNode {
    fn label(&self) -> &str {
        &self.name
    }

    fn subscriptions(&self) -> Vec<Subscription> {
        let plain = [
            "cell.*.advert",
            "cell.*.heartbeat",
            "cell.*.result",
            "event",
        ];
        let mut all: Vec<Subscription> = plain.into_iter().map(Subscription::to).collect();
        all.push(Subscription::to(format!("echo.{}", self.inbox)));
        all.push(Subscription::to(format!("{}.*.*", self.inbox)));
        all.push(Subscription::of_group("app.*", "managers"));
        all.push(Subscription::of_group("task.*", "managers"));
        all
    }

    fn begin(&mut self, now_ms: u64, life: u32, out: &mut Outbox) {
        let holder = format!("{}-{life}", self.name);
        self.inbox = format!("inbox.{holder}");
        let seed = self.random.next();
        self.driver = Some(ManagerDriver::new(now_ms, ManagerSettings { holder, seed }));
        (self.up, self.next_echo_ms) = (true, now_ms);
        out.resubscribed = true;
        out.send(Message::new("discover", "{}"));
        self.act(|driver| vec![driver.watch(now_ms)], out);
    }

    fn die(&mut self) {
        self.driver = None;
        self.commands.clear();
    }

    fn connected(&mut self, now_ms: u64, up: bool, out: &mut Outbox) {
        self.up = up;
        if up {
            out.send(Message::new("discover", "{}"));
        }
        self.step(now_ms, ManagerInput::Interrupted, out);
    }

    fn missed(&mut self, now_ms: u64, out: &mut Outbox) {
        out.send(Message::new("discover", "{}"));
        self.step(now_ms, ManagerInput::Interrupted, out);
    }

    fn receive(&mut self, now_ms: u64, message: &Message, out: &mut Outbox) {
        if let Some(input) = self.read(message) {
            self.step(now_ms, input, out);
        }
    }

    fn state_says(&mut self, now_ms: u64, answer: StateAnswer, out: &mut Outbox) {
        match &answer {
            StateAnswer::Ended { result, .. } if *result == WriteResult::Conflict => {
                out.note(|| "is refused: another write came first".to_owned());
            }
            StateAnswer::Broken { .. } => {
                out.note(|| "is not shown the bucket any more".to_owned());
            }
            _ => {}
        }
        self.act(|driver| driver.state_says(now_ms, answer), out);
    }

    fn wake(&mut self, now_ms: u64, out: &mut Outbox) {
        if self.driver.is_none() {
            return;
        }
        if now_ms >= self.next_echo_ms {
            self.next_echo_ms = now_ms + ECHO_MS;
            if self.up {
                out.send(Message::new(format!("echo.{}", self.inbox), ""));
            }
        }
        self.act(|driver| driver.due(now_ms), out);
    }

    fn next_ms(&self) -> u64 {
        let driver = self.driver.as_ref();
        driver.map_or(u64::MAX, |driver| driver.next_ms().min(self.next_echo_ms))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Returns whether an advertisement, of everything or of a change, says that its cell is being emptied.
fn drains(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Drains {
        #[serde(default)]
        evacuating: bool,
        #[serde(default)]
        cordoned: bool,
    }
    let drains: Option<Drains> = serde_json::from_slice(body).ok();
    // a cordoned cell keeps its instances
    drains.is_some_and(|drains| drains.evacuating && !drains.cordoned)
}

fn listed(question: Option<QuestionId>, body: &[u8]) -> Option<ManagerInput> {
    let list: InstancesAnswer = serde_json::from_slice(body).ok()?;
    let list = Box::new(list);
    Some(ManagerInput::Listed { question, list })
}

/// Reads a definition to submit; an empty body cancels.
fn read_task_command(id: &str, body: &[u8]) -> Option<TaskCommand> {
    if body.is_empty() {
        return Some(TaskCommand::Cancel);
    }
    let definition = TaskDefinition::read(body, Submitted::Any).ok()?;
    let is_of_id = definition.request.id == id;
    is_of_id.then(|| TaskCommand::Submit(Box::new(definition)))
}

/// Reads `put DEFINITION`, `scale N`, `restart` and so on.
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

/// Notes a write, except for those of the lease, which are too frequent to be worth a line.
fn note_write(write: &StateWrite, out: &mut Outbox) {
    if write.key == "lease" {
        return;
    }
    out.note(|| {
        let (key, expected) = (&write.key, write.expected);
        format!(
            "stores {key} over {expected:?}: {}",
            text(write.value.as_ref())
        )
    });
    // an app's own value is stored because a client has asked, even if it does not change
    if !write.key.starts_with("app.") {
        // state.UID and the like belong to an app; the key of a stored request has no dot
        let of = write.key.split('.').nth(1).unwrap_or(&write.key);
        out.worked.push(of.to_owned());
    }
}

fn text(value: Option<&bytes::Bytes>) -> String {
    let Some(value) = value else {
        return "nothing".to_owned();
    };
    String::from_utf8_lossy(value).chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_change_says_that_its_cell_is_being_emptied() {
        let change = |rest: &str| format!(r#"{{"cell":"c1","since":1,"available":{{}}{rest}}}"#);
        for (rest, drains) in [
            ("", false),
            (r#","evacuating":true"#, true),
            (r#","evacuating":true,"cordoned":true"#, false),
        ] {
            assert_eq!(super::drains(change(rest).as_bytes()), drains, "{rest}");
        }
    }
}
