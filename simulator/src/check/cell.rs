//! A cell on the bus: the rep's machine, the processes that it started, and between it and the bus
//! what its shell does.

use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
};

use advertiser::Cadence;
use placement::{Cell, Resources, Span};
use rep::{
    CellBid, CellInput, CellMachine, CellOutput, CellSettings,
    ledger::{EndReason, ExecutorOrder, ExecutorReport, InstanceChange, Ledger},
};
use shared::{
    Incarnation, InstanceId,
    wire::{BidRequest, to_bytes},
};

use super::{
    bus::{Message, Subscription},
    node::{Node, Outbox},
};
use crate::random::Random;

/// How long a process takes to say that it runs, and to end when it is asked to.
const STARTS_MS: u64 = 40;
const ENDS_MS: u64 = 700;
/// … and when it is killed.
const KILLED_MS: u64 = 10;
/// What a message of an answer may hold.
const MAX_BYTES: usize = 1 << 19;

/// See the module.
pub(super) struct CellNode {
    name: String,
    memory_mb: i64,
    random: Random,
    machine: Option<CellMachine>,
    born_ms: u64,
    up: bool,
    /// What runs: the truth. It goes on while the rep stands still.
    pub(super) processes: BTreeMap<InstanceId, Process>,
    /// What the processes will have done, and when.
    coming: BTreeSet<(u64, InstanceId, u32, bool)>,
    /// Everything that was ever started here.
    pub(super) launched: BTreeSet<InstanceId>,
}

/// A process that runs.
#[derive(Clone, Debug)]
pub(super) struct Process {
    attempt: u32,
    pub(super) memory_mb: i64,
    pub(super) since_ms: u64,
}

impl CellNode {
    pub(super) fn new(name: String, memory_mb: i64, random: Random) -> Self {
        Self {
            name,
            memory_mb,
            random,
            machine: None,
            born_ms: 0,
            up: true,
            processes: BTreeMap::new(),
            coming: BTreeSet::new(),
            launched: BTreeSet::new(),
        }
    }

    pub(super) fn machine(&self) -> Option<&CellMachine> {
        self.machine.as_ref()
    }

    pub(super) fn memory_mb(&self) -> i64 {
        self.memory_mb
    }

    /// Processes report what they did by now; then what the machine wants is carried out.
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
                self.processes.remove(&instance);
                out.note(|| format!("{instance} has ended"));
                InstanceChange::Ended(EndReason::Signal(15))
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

    fn carry_out(&mut self, now_ms: u64, output: CellOutput, out: &mut Outbox) {
        match output {
            CellOutput::Advertise(advert) | CellOutput::Withdraw(advert) => {
                if self.up {
                    let subject = format!("cell.{}.advert", self.name);
                    out.send(Message::new(subject, to_bytes(&*advert)));
                } else if let Some(machine) = &mut self.machine {
                    machine.take(now_ms - self.born_ms, CellInput::NotSent);
                }
            }
            CellOutput::Execute(ExecutorOrder::Launch { work, attempt }) => {
                out.note(|| format!("starts {}/{} {}", work.app, work.index, work.instance));
                let process = Process {
                    attempt,
                    memory_mb: work.memory_mb,
                    since_ms: now_ms,
                };
                self.processes.insert(work.instance, process);
                self.launched.insert(work.instance);
                self.coming
                    .insert((now_ms + STARTS_MS, work.instance, attempt, false));
            }
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
                let question = Message::new(format!("cell.{}.state", self.name), "");
                out.send(question.with_reply(format!("inbox.{}", self.name)));
            }
            CellOutput::Event(_) => {}
        }
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
            "bid" => {
                let asked = serde_json::from_slice::<BidRequest>(body).ok();
                let bid = asked.and_then(|asked| machine.bid(own_ms, asked.auction));
                let bid = bid.map(|bid| match bid {
                    CellBid::Unchanged(bid) => to_bytes(&bid),
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
    fn name(&self) -> &str {
        &self.name
    }

    fn subscriptions(&self) -> Vec<Subscription> {
        let own = |what: &str| Subscription::to(format!("cell.{}.{what}", self.name));
        let mut all: Vec<Subscription> = ["discover", "bid", "instances", "cells.stop"]
            .into_iter()
            .map(Subscription::to)
            .collect();
        all.extend(["start", "stop", "state"].map(own));
        all
    }

    fn begin(&mut self, now_ms: u64, _life: u32, out: &mut Outbox) {
        let cell = Cell::new(
            self.name.as_str(),
            Resources::new(self.memory_mb, 100_000, 100),
        );
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
        (self.born_ms, self.up) = (now_ms, true);
        out.resubscribed = true;
    }

    /// What it runs ends with it.
    fn die(&mut self) {
        self.machine = None;
        self.processes.clear();
        self.coming.clear();
    }

    fn connected(&mut self, now_ms: u64, up: bool, out: &mut Outbox) {
        self.up = up;
        if let (true, Some(machine)) = (up, &mut self.machine) {
            machine.take(now_ms - self.born_ms, CellInput::Reconnected);
        }
        self.settle(now_ms, out);
    }

    fn missed(&mut self, _now_ms: u64, _out: &mut Outbox) {}

    fn receive(&mut self, now_ms: u64, message: &Message, out: &mut Outbox) {
        self.handle(now_ms, message, out);
        self.settle(now_ms, out);
    }

    fn wake(&mut self, now_ms: u64, out: &mut Outbox) {
        if let Some(machine) = &mut self.machine {
            machine.take(now_ms - self.born_ms, CellInput::Tick);
        }
        self.settle(now_ms, out);
    }

    fn next_ms(&self) -> u64 {
        let machine = self.machine.as_ref().and_then(CellMachine::next_ms);
        let machine = machine.map(|at_ms| at_ms + self.born_ms);
        let process = self.coming.first().map(|(at_ms, ..)| *at_ms);
        machine.into_iter().chain(process).min().unwrap_or(u64::MAX)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}
