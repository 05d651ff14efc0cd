//! A cell on the bus: the rep's machine, the processes that it started, and what its shell does between it and the bus.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
};

use advertiser::Cadence;
use bytes::Bytes;
use manager::WaveId;
use placement::{Cell, DeviceSet, DeviceShares, Kind, Resources, Span};
use rep::{
    CellBid, CellInput, CellMachine, CellOutput, CellSettings, NAMESAKE_QUESTIONS,
    ledger::{EndReason, ExecutorOrder, ExecutorReport, InstanceChange, Ledger},
};
use shared::{
    AttemptId, Incarnation, InstanceId, RequestId,
    wire::{BidRequest, Envelope, Work, to_bytes},
};

use super::{
    bus::{Message, Subscription},
    node::{Node, Outbox},
};
use crate::random::Random;

/// The number of devices of each cell, and the amount of each.
pub(super) const CARDS: u32 = 2;
pub(super) const CARD: i64 = 100;
/// How long a process takes to report that it runs, and to end when it is asked to.
const STARTS_MS: u64 = 40;
const ENDS_MS: u64 = 700;
/// … and to end when it is killed.
const KILLED_MS: u64 = 10;
/// How long a repeatedly crashing process runs.
const CRASHES_MS: u64 = 300;
const HEARTBEAT_MS: u64 = 10_000;
/// How long another rep of the same name has to answer before this one starts.
const NAME_WAIT_MS: u64 = 500;
/// How long the instances have to end when a rep leaves.
const LEAVES_MS: u64 = 15_000;
/// Maximum size of one message of an answer.
const MAX_BYTES: usize = 1 << 19;

/// The cell; see the module.
pub(super) struct CellNode {
    name: String,
    label: String,
    memory_mb: i64,
    random: Random,
    /// None while it is down or asks whether its name is free.
    machine: Option<CellMachine>,
    /// Until when another rep of its name may answer.
    asks_until_ms: Option<u64>,
    /// Set when it leaves because of another rep of its name: the latest time for that.
    leaves_by_ms: Option<u64>,
    /// The inbox of this life, for the answers of a rep of its name.
    inbox: String,
    born_ms: u64,
    up: bool,
    /// What actually runs. It continues while the rep is suspended.
    pub(super) processes: BTreeMap<InstanceId, Process>,
    /// What the processes are going to do, and when.
    coming: BTreeSet<(u64, InstanceId, u32, bool)>,
    /// Everything that was ever started here.
    pub(super) launched: BTreeSet<InstanceId>,
    /// The instances of stored requests that were ever started here, by id and index, with one entry per start of a
    /// task.
    pub(super) stored: BTreeMap<(String, u32), Vec<InstanceId>>,
    /// Number of times that something began or ended to run.
    pub(super) changes: u64,
    /// Whether it publishes heartbeats and events, because managers listen.
    pub(super) tells: bool,
    next_heartbeat_ms: u64,
    /// How many times each of these is going to crash.
    crashes: BTreeMap<InstanceId, u32>,
    /// What an operator has set for it.
    pub(super) attributes: placement::Attributes,
}

/// A running process.
#[derive(Clone, Debug)]
pub(super) struct Process {
    attempt: u32,
    pub(super) app: String,
    pub(super) index: u32,
    /// The wave of a manager to which it belongs, and its index in it.
    pub(super) wave: Option<(WaveId, u32)>,
    pub(super) memory_mb: i64,
    pub(super) devices: DeviceShares,
    pub(super) since_ms: u64,
    /// For a task: when it ends by itself, and its exit code.
    exits: Option<(u64, i32)>,
}

impl CellNode {
    /// Creates a cell; `label` is what this rep is called in timelines.
    pub(super) fn new(name: String, label: String, memory_mb: i64, random: Random) -> Self {
        Self {
            name,
            label,
            memory_mb,
            random,
            machine: None,
            asks_until_ms: None,
            leaves_by_ms: None,
            inbox: String::new(),
            born_ms: 0,
            up: true,
            processes: BTreeMap::new(),
            coming: BTreeSet::new(),
            launched: BTreeSet::new(),
            stored: BTreeMap::new(),
            changes: 0,
            tells: false,
            next_heartbeat_ms: u64::MAX,
            crashes: BTreeMap::new(),
            attributes: placement::Attributes::default(),
        }
    }

    /// Returns the cell's name, which another rep may share.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn machine(&self) -> Option<&CellMachine> {
        self.machine.as_ref()
    }

    pub(super) fn memory_mb(&self) -> i64 {
        self.memory_mb
    }

    /// Starts, as nobody has its name.
    fn start(&mut self, now_ms: u64, out: &mut Outbox) {
        self.asks_until_ms = None;
        let mut total = Resources::new(self.memory_mb, 100_000, 100);
        let cards = DeviceSet::new(CARDS, CARD);
        total.devices.insert("card".into(), cards);
        let mut cell = Cell::new(self.name.as_str(), total);
        cell.attributes_mut().clone_from(&self.attributes);
        let incarnation = Incarnation::new(uuid::Uuid::from_u64_pair(
            self.random.next(),
            self.random.next(),
        ));
        let settings = CellSettings {
            cadence: Cadence::default(),
            drain_deadline: Span::default(),
            seed: self.random.next(),
        };
        let ledger = Ledger::new(cell, incarnation, "");
        self.machine = Some(CellMachine::new(ledger, settings, 0));
        self.born_ms = now_ms;
        if self.tells {
            self.next_heartbeat_ms = now_ms + self.random.below(HEARTBEAT_MS);
        }
        out.resubscribed = true;
    }

    /// Crashes an instance of a manager, `times` times if it is started here again.
    pub(super) fn crash(&mut self, now_ms: u64, nth: usize, times: u32, out: &mut Outbox) {
        let managed = self.processes.iter().filter(|(_, p)| p.wave.is_some());
        let managed: Vec<(InstanceId, u32)> = managed.map(|(id, p)| (*id, p.attempt)).collect();
        if managed.is_empty() {
            return;
        }
        let (instance, attempt) = managed[nth % managed.len()];
        out.note(|| format!("{instance} crashes, {times} times"));
        self.crashes.insert(instance, times.saturating_sub(1));
        self.coming.insert((now_ms, instance, attempt, true));
    }

    fn heartbeat(&mut self, now_ms: u64, out: &mut Outbox) {
        let Some(machine) = &self.machine else {
            return;
        };
        if now_ms < self.next_heartbeat_ms {
            return;
        }
        self.next_heartbeat_ms = now_ms + HEARTBEAT_MS;
        if self.up {
            let instances = machine.current_instances(now_ms - self.born_ms);
            for list in machine.split(instances, MAX_BYTES) {
                let subject = format!("cell.{}.heartbeat", self.name);
                out.send(Message::new(subject, to_bytes(&list)));
            }
        }
    }

    /// Settles, and leaves if another rep of its name stays.
    fn live(&mut self, now_ms: u64, out: &mut Outbox) {
        self.settle(now_ms, out);
        let own_ms = now_ms - self.born_ms;
        let Some(machine) = &mut self.machine else {
            return;
        };
        if machine.namesake().is_some() && self.leaves_by_ms.is_none() {
            out.note(|| "leaves: another rep has its name".to_owned());
            machine.take(own_ms, CellInput::Leave);
            self.leaves_by_ms = Some(now_ms + LEAVES_MS);
            self.settle(now_ms, out);
        }
        let drained = self
            .machine
            .as_ref()
            .is_some_and(|m| m.ledger().is_drained());
        if drained || self.leaves_by_ms.is_some_and(|by_ms| by_ms <= now_ms) {
            // an invariant looks for anything that it has not ended
            self.machine = None;
            out.exits = true;
        }
    }

    /// Handles the answer of a rep of its name, this one or another.
    fn namesake_answered(&mut self, now_ms: u64, message: &Message, out: &mut Outbox) {
        if self.asks_until_ms.is_some() {
            if message.no_responders {
                return self.start(now_ms, out);
            }
            out.note(|| "does not start: another rep has its name".to_owned());
            self.asks_until_ms = None;
            out.exits = true;
        } else if let (Some(machine), Ok(state)) = (
            &mut self.machine,
            Envelope::parse(&message.body, Some(&self.name)),
        ) {
            machine.take(now_ms - self.born_ms, CellInput::NamesakeAnswered(state));
        }
    }

    /// Lets processes report what they have done, then carries out the machine's outputs.
    fn settle(&mut self, now_ms: u64, out: &mut Outbox) {
        loop {
            self.report_due(now_ms, out);
            let own_ms = now_ms - self.born_ms;
            let Some(machine) = &mut self.machine else {
                return;
            };
            let outputs = machine.run(own_ms);
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                self.carry_out(now_ms, output, out);
            }
        }
    }

    fn report_due(&mut self, now_ms: u64, out: &mut Outbox) {
        while let Some((at_ms, instance, attempt, ends)) = self.coming.first().copied()
            && at_ms <= now_ms
        {
            self.coming.pop_first();
            if self
                .processes
                .get(&instance)
                .is_none_or(|p| p.attempt != attempt)
            {
                continue;
            }
            let change = if ends {
                let process = self.processes.remove(&instance);
                self.changes += 1;
                let of = process.as_ref().map(|ended| (&ended.app, ended.index));
                out.note(|| format!("{instance} {of:?} has ended"));
                let exits = process.and_then(|process| process.exits);
                InstanceChange::Ended(match exits.filter(|(exits_ms, _)| *exits_ms <= at_ms) {
                    Some((_, code)) => EndReason::Exit(code),
                    None => EndReason::Signal(15),
                })
            } else {
                InstanceChange::Running {
                    pid: None,
                    port: None,
                }
            };
            let report = ExecutorReport {
                instance,
                attempt,
                change,
            };
            if let Some(machine) = &mut self.machine {
                machine.take(now_ms - self.born_ms, CellInput::Report(report));
            }
        }
    }

    fn advertise(&mut self, now_ms: u64, body: Bytes, out: &mut Outbox) {
        if self.up {
            let subject = format!("cell.{}.advert", self.name);
            out.send(Message::new(subject, body));
        } else if let Some(machine) = &mut self.machine {
            machine.take(now_ms - self.born_ms, CellInput::NotSent);
        }
    }

    fn carry_out(&mut self, now_ms: u64, output: CellOutput, out: &mut Outbox) {
        match output {
            CellOutput::Advertise(advert) | CellOutput::Withdraw(advert) => {
                self.advertise(now_ms, to_bytes(&*advert), out);
            }
            CellOutput::AdvertiseChange(change) => {
                self.advertise(now_ms, to_bytes(&*change), out);
            }
            CellOutput::Execute(ExecutorOrder::Launch { work, attempt }) => {
                out.note(|| format!("starts {}/{} {}", work.app, work.index, work.instance));
                self.launch(now_ms, &work, attempt);
            }
            CellOutput::Result(result) => {
                if self.up && self.tells {
                    let subject = format!("cell.{}.result", self.name);
                    out.send(Message::new(subject, to_bytes(&*result)));
                }
            }
            // no instance here has a check
            CellOutput::Execute(ExecutorOrder::Check { .. }) => {}
            CellOutput::Execute(ExecutorOrder::End {
                instance,
                attempt,
                at_once,
            }) => {
                out.note(|| {
                    let how = if at_once { "kills" } else { "asks to end" };
                    format!("{how} {instance}")
                });
                let takes_ms = if at_once { KILLED_MS } else { ENDS_MS };
                self.coming
                    .insert((now_ms + takes_ms, instance, attempt, true));
            }
            CellOutput::AskNamesake => {
                for _ in 0..NAMESAKE_QUESTIONS {
                    out.send(self.ask_namesake());
                }
            }
            CellOutput::Event(mut event) => {
                if self.tells && self.up {
                    event.by.clone_from(&self.name);
                    out.send(Message::new("event", to_bytes(&*event)));
                }
            }
        }
    }

    fn launch(&mut self, now_ms: u64, work: &Work, attempt: u32) {
        let id = work.request.as_ref().map_or("", RequestId::as_str);
        let exits = exits(now_ms, work);
        let process = Process {
            attempt,
            app: work.app.clone(),
            index: work.index,
            wave: WaveId::parse(id).map(|wave| (wave, work.index)),
            memory_mb: work.memory_mb,
            devices: work.devices.clone(),
            since_ms: now_ms,
            exits,
        };
        self.processes.insert(work.instance, process);
        self.changes += 1;
        let new = self.launched.insert(work.instance);
        if let Some(stored) = AttemptId::parse(id)
            && (new || work.kind == Kind::Task)
        {
            let runs = self.stored.entry((stored.id, work.index)).or_default();
            runs.push(work.instance);
        }
        self.coming
            .insert((now_ms + STARTS_MS, work.instance, attempt, false));
        if let Some((exits_ms, _)) = exits {
            self.coming.insert((exits_ms, work.instance, attempt, true));
        }
        if let Some(left) = self.crashes.get_mut(&work.instance).filter(|n| **n > 0) {
            *left -= 1;
            let at_ms = now_ms + STARTS_MS + CRASHES_MS;
            self.coming.insert((at_ms, work.instance, attempt, true));
        }
    }

    fn ask_namesake(&self) -> Message {
        let question = Message::new(format!("cell.{}.state", self.name), "");
        question.with_reply(self.inbox.clone())
    }

    fn handle(&mut self, now_ms: u64, message: &Message, out: &mut Outbox) {
        let own_ms = now_ms - self.born_ms;
        let Some(machine) = &mut self.machine else {
            return;
        };
        let body = &message.body;
        let answers = match message.last_token() {
            "discover" => {
                machine.take(own_ms, CellInput::Discover);
                Vec::new()
            }
            "advert" => {
                if let Ok(advert) = Envelope::parse(body, Some(&self.name)) {
                    machine.take(own_ms, CellInput::Advertised(advert));
                }
                Vec::new()
            }
            "bid" => {
                let asked = serde_json::from_slice::<BidRequest>(body).ok();
                let bid = asked.and_then(|asked| machine.bid(own_ms, asked.auction));
                let bid = bid.map(|bid| match bid {
                    CellBid::Unchanged(bid) => to_bytes(&bid),
                    CellBid::Change(change) => to_bytes(&*change),
                    CellBid::Full(advert) => to_bytes(&*advert),
                });
                bid.into_iter().collect()
            }
            "state" => vec![to_bytes(&machine.state(own_ms, None))],
            "start" => {
                let answer = machine.start(own_ms, body).ok();
                if let Some(answer) = &answer {
                    for refusal in &answer.refused {
                        out.note(|| format!("refuses {}: {}", refusal.instance, refusal.reason));
                    }
                }
                answer.iter().map(to_bytes).collect()
            }
            "stop" => machine
                .stop(own_ms, body)
                .ok()
                .iter()
                .map(to_bytes)
                .collect(),
            "drain" => {
                let answer = machine.drain(own_ms, body).ok();
                answer.iter().map(to_bytes).collect()
            }
            "instances" => {
                let answers = machine.instances(own_ms, body, MAX_BYTES);
                answers.unwrap_or_default().iter().map(to_bytes).collect()
            }
            _ => Vec::new(),
        };
        if let Some(reply) = &message.reply {
            for answer in answers {
                out.send(Message::new(reply.clone(), answer));
            }
        }
    }
}

impl Node for CellNode {
    fn label(&self) -> &str {
        &self.label
    }

    fn subscriptions(&self) -> Vec<Subscription> {
        let mut all = vec![Subscription::to(self.inbox.clone())];
        if self.machine.is_none() {
            return all;
        }
        let own = |what: &str| format!("cell.{}.{what}", self.name);
        let broadcasts = ["discover", "bid", "instances", "cells.stop"];
        all.extend(broadcasts.into_iter().map(Subscription::to));
        all.push(Subscription::to(own("advert")));
        let one_of = |what| Subscription::of_group(own(what), "q");
        all.extend(["start", "stop", "state"].map(one_of));
        if self.tells {
            all.push(one_of("drain"));
        }
        all
    }

    fn begin(&mut self, now_ms: u64, life: u32, out: &mut Outbox) {
        self.inbox = format!("inbox.{}-{life}", self.label);
        (self.up, self.leaves_by_ms) = (true, None);
        self.asks_until_ms = Some(now_ms + NAME_WAIT_MS);
        out.resubscribed = true;
        out.send(self.ask_namesake());
    }

    /// Ends the rep and all that it runs.
    fn die(&mut self) {
        self.machine = None;
        self.asks_until_ms = None;
        self.processes.clear();
        self.changes += 1;
        self.coming.clear();
        self.crashes.clear();
    }

    fn connected(&mut self, now_ms: u64, up: bool, out: &mut Outbox) {
        self.up = up;
        if let (true, Some(machine)) = (up, &mut self.machine) {
            machine.take(now_ms - self.born_ms, CellInput::Reconnected);
        }
        self.live(now_ms, out);
    }

    fn missed(&mut self, _now_ms: u64, _out: &mut Outbox) {}

    fn receive(&mut self, now_ms: u64, message: &Message, out: &mut Outbox) {
        if message.subject == self.inbox {
            self.namesake_answered(now_ms, message, out);
        } else {
            self.handle(now_ms, message, out);
        }
        self.live(now_ms, out);
    }

    fn wake(&mut self, now_ms: u64, out: &mut Outbox) {
        if self
            .asks_until_ms
            .is_some_and(|until_ms| until_ms <= now_ms)
        {
            self.start(now_ms, out);
        }
        if let Some(machine) = &mut self.machine {
            machine.take(now_ms - self.born_ms, CellInput::Tick);
        }
        self.live(now_ms, out);
        self.heartbeat(now_ms, out);
    }

    fn next_ms(&self) -> u64 {
        let machine = self.machine.as_ref().and_then(CellMachine::next_ms);
        let machine = machine.map(|at_ms| at_ms + self.born_ms);
        let process = self.coming.first().map(|(at_ms, ..)| *at_ms);
        let heartbeat = self.machine.as_ref().map(|_| self.next_heartbeat_ms);
        let all = [
            machine,
            process,
            self.asks_until_ms,
            self.leaves_by_ms,
            heartbeat,
        ];
        all.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Returns when and how a task ends by itself, as its command says.
fn exits(now_ms: u64, work: &Work) -> Option<(u64, i32)> {
    let run = work.run.as_ref().filter(|_| work.kind == Kind::Task)?;
    let [_, takes_ms, code] = run.command.as_slice() else {
        return None;
    };
    let takes_ms: u64 = takes_ms.parse().ok()?;
    Some((now_ms + STARTS_MS + takes_ms, code.parse().ok()?))
}
