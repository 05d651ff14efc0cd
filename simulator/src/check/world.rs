//! Plays a script: the nodes, the bus between them, the faults, and the invariants after every step.

mod faults;
mod open_starts;
mod place;
mod route;
mod state;
mod steps;

use std::{collections::BTreeMap, sync::Arc};

use manager::TaskEnd;
use placement::{Policy, Request};
use shared::InstanceId;

pub(super) use self::state::Wanted;
use self::{
    place::Place,
    state::{State, StateLink},
};

use super::{
    CheckReport, Violation,
    auctioneer::AuctioneerNode,
    bus::Message,
    cell::CellNode,
    client::Client,
    manager::ManagerNode,
    node::{Node, Outbox},
    script::Script,
    timeline::Timeline,
};
use crate::{
    bucket::{Bucket, StateAnswer, StateRequest},
    queue::EventQueue,
    random::Random,
};
use open_starts::OpenStarts;

/// At rest, every request is repeated once, and after this time everything must be right.
const LAST_ANSWERS_MS: u64 = 6_000;

/// Maximum number of timers of a program in a millisecond, to catch one that keeps asking for a time in the past.
const MOST_WAKES: u32 = 500;

/// An event.
enum Happening {
    /// A message reaches the server.
    Sent(Message),
    /// Something reaches a node in one of its lives.
    Arrives(Box<Arrival>),
    /// A node's timer fires.
    Wake(usize),
    /// A step of the script begins (true) or ends.
    Step(usize, bool),
    /// The end of a connection is noticed.
    Noticed(usize),
    /// A request of a manager, in one of its lives, reaches the bucket.
    AsksState(usize, u32, Box<StateRequest>),
    /// A fault is over and what it held up has arrived: for this node or, without one, for the bucket.
    CaughtUp(Option<usize>),
    /// Every request is repeated once.
    LastQuestions,
}

/// Changes a message, or loses it (false). Tests use it to switch off a rule of the protocol.
pub(super) type Meddle = fn(now_ms: u64, message: &mut Message) -> bool;

/// Loses an answer of the bucket (false), for the same purpose.
pub(super) type MeddleState = fn(answer: &StateAnswer) -> bool;

#[derive(Clone)]
struct Arrival {
    to: usize,
    life: u32,
    what: Arrived,
}

#[derive(Clone)]
enum Arrived {
    /// A message, on one of the node's subscriptions.
    Message(usize, Message),
    /// An answer of the bucket.
    State(StateAnswer),
}

/// Start requests, and stops by cell.
type ManagedSent = (Vec<Arc<Request>>, Vec<(Arc<str>, Vec<InstanceId>)>);

/// The world; see the module.
pub(super) struct World<'s> {
    script: &'s Script,
    now_us: u64,
    end_us: u64,
    queue: EventQueue<Happening>,
    places: Vec<Place>,
    random: Random,
    timeline: Timeline,
    meddle: Option<Meddle>,
    meddle_state: Option<MeddleState>,
    /// Number of faults in progress.
    faults: u32,
    /// Total time in which nothing failed, in microseconds.
    flow_us: u64,
    /// When something last failed.
    failed_us: u64,
    /// Cells that counted as gone for at least one auctioneer, and when.
    lost: Vec<(String, u64)>,
    /// Start requests that reached an auctioneer and have not been answered.
    pub(super) open_starts: OpenStarts,
    /// The message numbers of the last questions.
    pub(super) last_questions: Vec<u64>,
    /// The numbers of the messages that submitted stored requests, and which requests.
    pub(super) submitted: Vec<(u64, usize)>,
    /// … and of the last commands.
    pub(super) last_commands: Vec<u64>,
    pub(super) resting: bool,
    /// A program that does not pause between its timers.
    pub(super) busy: Option<String>,
    state: State,
    /// What managers have sent since the last look.
    pub(super) sent: Vec<Sent>,
    /// When a manager last started, stopped or stored something, by what it belonged to.
    pub(super) worked: BTreeMap<String, u64>,
}

/// A message of a manager that changes what runs.
pub(super) enum Sent {
    /// A start request.
    Start { node: usize, request: Arc<Request> },
    /// A stop for instances on a cell.
    Stop {
        cell: Arc<str>,
        instances: Vec<InstanceId>,
    },
}

impl<'s> World<'s> {
    /// Creates the script's world, before anything has happened.
    pub(super) fn begun(script: &'s Script, keep: bool) -> Self {
        let mut world = Self::new(script, keep);
        world.begin();
        let rest_us = (script.quiet_ms() + script.rest_ms()) * 1_000;
        world.queue.add(rest_us, Happening::LastQuestions);
        world
    }

    /// Passes every message that is sent from now on through this function.
    #[cfg(test)]
    pub(super) fn meddle(&mut self, meddle: Meddle) {
        self.meddle = Some(meddle);
    }

    /// … and every answer of the bucket through this one.
    #[cfg(test)]
    pub(super) fn meddle_state(&mut self, meddle: MeddleState) {
        self.meddle_state = Some(meddle);
    }

    /// Lets the next event happen. Returns false when the script has been played to its end.
    pub(super) fn goes_on(&mut self, report: &mut CheckReport) -> bool {
        let end_us = self.end_us;
        let Some((at_us, happening)) = self.queue.pop().filter(|(at_us, _)| *at_us <= end_us)
        else {
            self.now_us = end_us;
            return false;
        };
        if self.faults == 0 {
            self.flow_us += at_us - self.now_us;
        } else {
            self.failed_us = at_us;
        }
        self.now_us = at_us;
        self.happens(happening, report);
        report.events += 1;
        true
    }

    /// Adds a node and starts it.
    pub(super) fn add(&mut self, node: Box<dyn Node>) {
        self.places.push(Place::new(node));
        self.revive(self.places.len() - 1);
    }

    /// Applies a change to the node of this number.
    pub(super) fn with<N: 'static>(&mut self, n: usize, change: impl FnOnce(&mut N)) {
        self.act(n, |node, _, _| {
            if let Some(node) = node.as_any_mut().downcast_mut() {
                change(node);
            }
        });
    }

    /// Returns what happened, if it was to be kept, ending with the broken promise.
    pub(super) fn told(mut self, violation: Option<&Violation>) -> Vec<String> {
        if let Some(violation) = violation {
            let what = || format!("{}: {}", violation.invariant, violation.what);
            self.timeline.add(self.now_us, "BROKEN", what);
        }
        self.timeline.lines
    }

    fn new(script: &'s Script, keep: bool) -> Self {
        let root = Random::new(script.seed);
        let policy = Policy::preset(script.policy).expect("scripts name presets");
        let node = |n: usize, nth: &str| -> Box<dyn Node> {
            if n < script.auctioneers {
                let (name, random) = (
                    format!("a{n}"),
                    root.fork(&format!("auctioneer{nth}"), n as u64),
                );
                let label = format!("{name}{nth}");
                return Box::new(AuctioneerNode::new(name, label, policy.clone(), random));
            }
            let n = n - script.auctioneers;
            if let Some(n) = n.checked_sub(script.cells.len()) {
                let random = root.fork("manager", n as u64);
                return Box::new(ManagerNode::new(format!("m{n}"), random));
            }
            let (name, random) = (format!("c{n}"), root.fork(&format!("cell{nth}"), n as u64));
            let label = format!("{name}{nth}");
            let mut cell = CellNode::new(name, label, script.cells[n], random);
            cell.tells = script.managers > 0;
            Box::new(cell)
        };
        let mut nodes: Vec<Box<dyn Node>> = (0..script.machines()).map(|n| node(n, "")).collect();
        nodes.push(Box::new(Client::default()));
        for (n, of) in script.namesakes().enumerate() {
            nodes.push(node(of, &format!("-{}", n + 2)));
        }
        Self {
            script,
            now_us: 0,
            end_us: (script.quiet_ms() + script.rest_ms() + LAST_ANSWERS_MS) * 1_000,
            queue: EventQueue::new(),
            places: nodes.into_iter().map(Place::new).collect(),
            random: root.fork("bus", 0),
            timeline: Timeline {
                kept: keep,
                lines: Vec::new(),
            },
            meddle: None,
            meddle_state: None,
            faults: 0,
            flow_us: 0,
            failed_us: 0,
            lost: Vec::new(),
            open_starts: OpenStarts::default(),
            last_questions: Vec::new(),
            submitted: Vec::new(),
            last_commands: Vec::new(),
            resting: false,
            busy: None,
            state: State::default(),
            sent: Vec::new(),
            worked: BTreeMap::new(),
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.now_us / 1_000
    }

    /// Returns whether a second program of a name starts in this run.
    pub(super) fn has_namesakes(&self) -> bool {
        self.places.len() > self.script.machines() + 1
    }

    /// Returns the milliseconds in which nothing failed.
    pub(super) fn flow_ms(&self) -> u64 {
        self.flow_us / 1_000
    }

    /// Returns since when nothing has failed, in milliseconds.
    pub(super) fn flows_since_ms(&self) -> u64 {
        self.failed_us / 1_000
    }

    pub(super) fn script(&self) -> &Script {
        self.script
    }

    /// Returns the nodes of a kind.
    pub(super) fn all<N: 'static>(&self) -> impl Iterator<Item = &N> {
        self.places
            .iter()
            .filter_map(|place| place.node.as_any().downcast_ref::<N>())
    }

    /// Returns whether the cell counted as gone for at least one auctioneer at this time or later.
    pub(super) fn lost_since(&self, cell: &str, since_ms: u64) -> bool {
        self.lost
            .iter()
            .any(|(lost, at_ms)| lost == cell && *at_ms >= since_ms)
    }

    /// Returns the bucket in which managers keep their state.
    pub(super) fn bucket(&self) -> &Bucket {
        &self.state.bucket
    }

    /// Returns how stored requests ended, as first stored.
    pub(super) fn ends(&self) -> &BTreeMap<String, TaskEnd> {
        &self.state.ends
    }

    /// Returns the desired states in the course of time.
    pub(super) fn wanted(&self) -> &[Wanted] {
        &self.state.wanted
    }

    /// Returns the node of a number if it is of this kind.
    pub(super) fn node<N: 'static>(&self, n: usize) -> Option<&N> {
        self.places[n].node.as_any().downcast_ref()
    }

    /// Returns since when nothing has failed at a node, in milliseconds; none while something does.
    pub(super) fn well_since_ms(&self, n: usize) -> Option<u64> {
        let place = &self.places[n];
        (place.failing == 0 && place.alive).then_some(place.mended_ms)
    }

    /// Returns the number of nodes.
    pub(super) fn nodes(&self) -> usize {
        self.places.len()
    }

    fn begin(&mut self) {
        let script = self.script;
        self.timeline.add(0, "bus", || {
            format!(
                "{} auctioneers ({}), cells of {:?} MiB",
                script.auctioneers, script.policy, script.cells
            )
        });
        for n in 0..=script.machines() {
            self.revive(n);
        }
        for (n, step) in script.steps.iter().enumerate() {
            self.queue.add(step.at_ms * 1_000, Happening::Step(n, true));
        }
    }

    fn happens(&mut self, happening: Happening, report: &mut CheckReport) {
        match happening {
            Happening::Sent(message) => self.route(&message),
            Happening::Arrives(arrival) => self.arrives(*arrival),
            Happening::Wake(n) => {
                let place = &mut self.places[n];
                if place.wake_us == self.now_us && place.alive {
                    place.wake_us = u64::MAX;
                    let now_ms = self.now_us / 1_000;
                    let count = if place.wakes.0 == now_ms {
                        place.wakes.1 + 1
                    } else {
                        1
                    };
                    place.wakes = (now_ms, count);
                    if count > MOST_WAKES {
                        self.busy = Some(place.node.label().to_owned());
                    }
                    if place.frozen == 0 {
                        self.act(n, |node, now_ms, out| node.wake(now_ms, out));
                    }
                }
            }
            Happening::Step(n, begins) => self.step(n, begins, report),
            Happening::Noticed(n) => self.notice(n, true),
            Happening::AsksState(n, life, request) => self.state_asked(n, life, *request),
            Happening::CaughtUp(of) => {
                self.faults -= 1;
                if let Some(n) = of {
                    self.places[n].failing -= 1;
                    self.places[n].mended_ms = self.now_ms();
                }
            }
            Happening::LastQuestions => {
                self.resting = true;
                for request in 0..self.script.requests.len() {
                    let number = self.ask(request);
                    self.last_questions.push(number);
                }
                self.last_commands();
            }
        }
    }

    /// Lets a node act, sends its messages, and sets its timer.
    fn act(&mut self, n: usize, act: impl FnOnce(&mut dyn Node, u64, &mut Outbox)) {
        let now_ms = self.now_ms();
        let mut out = Outbox {
            noted: self.timeline.kept,
            ..Outbox::default()
        };
        let place = &mut self.places[n];
        act(&mut *place.node, now_ms, &mut out);
        if out.resubscribed {
            place.resubscribe();
            self.see_unknown_cells(n);
        }
        for cell in out.lost_cells {
            self.lost.push((cell, now_ms));
        }
        for note in out.notes {
            self.timeline
                .add(self.now_us, self.places[n].node.label(), || note);
        }
        for message in out.messages {
            self.send(n, message);
        }
        for request in out.state {
            self.ask_state(n, request);
        }
        self.note_managed(n, (out.starts, out.stops), out.worked);
        if out.exits {
            self.open_starts.fails(n);
            return self.places[n].ends();
        }
        let place = &mut self.places[n];
        let next_us = place.node.next_ms().saturating_mul(1_000);
        let next_us = next_us.max(self.now_us + 1);
        if next_us < place.wake_us && next_us < u64::MAX / 2 {
            place.wake_us = next_us;
            self.queue.add(next_us, Happening::Wake(n));
        }
    }

    /// Keeps what a manager has sent, for the invariants.
    fn note_managed(&mut self, node: usize, (starts, stops): ManagedSent, worked: Vec<String>) {
        let now_ms = self.now_ms();
        self.worked
            .extend(worked.into_iter().map(|what| (what, now_ms)));
        let start = |request| Sent::Start { node, request };
        self.sent.extend(starts.into_iter().map(start));
        let stop = |(cell, instances)| Sent::Stop { cell, instances };
        self.sent.extend(stops.into_iter().map(stop));
    }

    /// Scales every app to its present size, which must be answered.
    fn last_commands(&mut self) {
        if self.script.managers == 0 {
            return;
        }
        // an app that was left alone until now is managed again: it needs as long as after the last fault
        if !self.apps_that(|status| status.went_back).is_empty() {
            self.end_us += self.script.rest_ms() * 1_000;
        }
        for app in &self.script.apps {
            let wanted = self.state.bucket.apps();
            let wanted = wanted.iter().find(|record| record.definition.app() == app);
            let count = wanted.map_or(1, |record| record.definition.instances);
            let number = self.say(&format!("app.{app}"), &format!("scale {count}"));
            self.last_commands.push(number);
        }
        // what is stored stays the same, whether it has ended or not
        let stored: Vec<String> = self.state.bucket.tasks().map(|(id, _)| id.into()).collect();
        for n in 0..self.script.tasks.len() {
            if stored.contains(&self.script.tasks[n].id) {
                let number = self.submit(n);
                self.last_commands.push(number);
            }
        }
    }

    /// Marks cells that are silent while an auctioneer starts as gone, as it does not know them.
    fn see_unknown_cells(&mut self, n: usize) {
        let now_ms = self.now_ms();
        let node = self.places[n]
            .node
            .as_any()
            .downcast_ref::<AuctioneerNode>();
        let Some(machine) = node
            .filter(|a| a.is_joined())
            .and_then(AuctioneerNode::machine)
        else {
            return;
        };
        let all = self.all::<CellNode>().map(|cell| cell.name().to_owned());
        let unknown: Vec<String> = all.filter(|c| machine.feed().get(c).is_none()).collect();
        self.lost
            .extend(unknown.into_iter().map(|cell| (cell, now_ms)));
    }
}
