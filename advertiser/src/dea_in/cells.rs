//! DEAs as cells of a cluster: what a bridge says and answers there.
//!
//! A state machine without clock and I/O around [`Bridge`]. None of its knowledge has to survive it. A cell's
//! incarnation is derived from its DEA's id, which is new at each start of the DEA, and its version and clock continue
//! with wall time, so that to the cluster the cells of a restarted bridge are the same as before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use placement::{Cell, Invalid, Span};
use shared::{
    Incarnation, InstanceId,
    clock::CellTime,
    wire::{Acceptance, Advert, Event, Instance, InstanceState, InstancesAnswer, Refusal},
};
use uuid::Uuid;

use super::held::Held;
use crate::dea::{Bridge, BridgeInput, BridgeOptions, BridgeOutput, Hidden};

/// How often cells of DEAs that do not advertise are advertised.
const INTERVAL_MS: u64 = 5_000;
/// How long such an advertisement is valid. A DEA that has not been heard for 30 s is withdrawn.
pub(super) const TTL_MS: u64 = 15_000;
/// How soon after a change it is advertised.
const CHANGED_MS: u64 = 100;
/// The interval between heartbeats of a cell.
pub(super) const HEARTBEAT_MS: u64 = 10_000;
/// The most ended instances of a cell that are listed.
const MAX_ENDED: usize = 100;
/// How long ended instances are listed.
pub(super) const ENDED_MS: u64 = 600_000;
/// How long a start is refused if its instance was stopped before it arrived.
pub(super) const STOPPED_MS: u64 = 60_000;
/// The most such instances.
pub(super) const MAX_STOPPED: usize = 10_000;
/// The most instances in an advertisement's list of recently accepted ones.
const MAX_RECENT: usize = 64;

/// An output of the cells.
#[derive(Clone, Debug, PartialEq)]
pub enum CellsOutput {
    /// Publish to the DEAs.
    ToDeas {
        /// The subject.
        subject: String,
        /// The body.
        body: Hidden<Vec<u8>>,
    },
    /// Ask all DEAs; every reply is a [`BridgeInput::Found`].
    AskDeas {
        /// The subject.
        subject: &'static str,
        /// The body.
        body: Vec<u8>,
    },
    /// Advertise a cell.
    Advertise(Box<Advert>),
    /// Publish a heartbeat of a cell.
    Heartbeat(Box<InstancesAnswer>),
    /// Publish an event of a cell.
    Event {
        /// The cell.
        cell: String,
        /// The event, without its sender.
        event: Box<Event>,
    },
    /// Answer the current question on behalf of a cell.
    Reply {
        /// The cell.
        cell: String,
        /// The answer.
        body: Bytes,
    },
    /// Answer a start.
    Answer {
        /// The number that came with the start.
        ticket: u64,
        /// The answer.
        answer: Box<Acceptance>,
    },
}

/// A cell's service state as set by an operator; lost when the bridge ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CellService {
    #[default]
    Open,
    Cordoned,
    /// Whatever still runs at this time is stopped.
    Draining(u64),
}

/// One cell, besides what the bridge knows of it.
#[derive(Debug)]
pub(super) struct DeaCell {
    pub(super) incarnation: Incarnation,
    pub(super) seq: u64,
    pub(super) recent: VecDeque<InstanceId>,
    pub(super) held: BTreeMap<InstanceId, Held>,
    /// Oldest first, with the time at which each ended.
    pub(super) ended: VecDeque<(u64, Instance)>,
    pub(super) service: CellService,
    /// When it is advertised at the latest.
    pub(super) due_ms: u64,
    /// Whether the last advertisement is still accurate.
    pub(super) is_advertised: bool,
    pub(super) heartbeat_ms: u64,
}

/// A start that waits for decisions on some of its instances.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) cell: String,
    pub(super) apps: BTreeSet<String>,
    /// By the ids used on the DEA.
    pub(super) open: BTreeMap<String, InstanceId>,
    pub(super) accepted: Vec<InstanceId>,
    pub(super) refused: Vec<Refusal>,
}

/// Counters of what was dropped and how starts ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CellsCounters {
    pub(crate) placed: u64,
    pub(crate) refused: u64,
    pub(crate) unknown: u64,
    /// Instances of the cluster on DEAs whose ids are invalid.
    pub(crate) misnamed: u64,
}

/// The DEAs as cells.
#[derive(Debug)]
pub struct DeaCells {
    pub(super) bridge: Bridge,
    pub(super) cells: BTreeMap<String, DeaCell>,
    pub(super) waiting: BTreeMap<u64, Waiting>,
    /// The starts that wait for each instance.
    pub(super) tickets: BTreeMap<String, Vec<u64>>,
    /// Instances that were stopped but were not there, with the time until which that counts.
    pub(super) stopped: BTreeMap<InstanceId, u64>,
    pub(crate) counters: CellsCounters,
    pub(super) leaving: bool,
    /// Nothing is due for any cell before this.
    pub(super) due_ms: u64,
}

impl DeaCells {
    /// Creates cells of which nothing was heard. `now_ms` is wall time, and never decreases from then on.
    pub fn new(options: BridgeOptions, now_ms: u64) -> Result<Self, Invalid> {
        Ok(Self {
            bridge: Bridge::new(options, now_ms)?,
            cells: BTreeMap::new(),
            waiting: BTreeMap::new(),
            tickets: BTreeMap::new(),
            stopped: BTreeMap::new(),
            counters: CellsCounters::default(),
            leaving: false,
            due_ms: u64::MAX,
        })
    }

    /// Returns what is known of the DEAs.
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// Returns the names of the cells.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.cells.keys()
    }

    /// Returns how many of the cluster's instances run or are on their way.
    pub fn instances_held(&self) -> usize {
        self.cells.values().map(|cell| cell.held.len()).sum()
    }

    /// Returns when [`DeaCells::tick`] is due next.
    pub fn next_ms(&self) -> u64 {
        self.due_ms.min(self.bridge.next_ms())
    }

    /// Passes messages of DEAs and ticks on to the bridge.
    pub fn hear(&mut self, now_ms: u64, input: BridgeInput<'_>) -> Vec<CellsOutput> {
        let told = self.bridge.handle(now_ms, input);
        let mut out = Vec::new();
        self.carry_out(now_ms, told, &mut out);
        out
    }

    /// Does what is due.
    pub fn tick(&mut self, now_ms: u64) -> Vec<CellsOutput> {
        let mut out = if self.bridge.next_ms() <= now_ms {
            self.hear(now_ms, BridgeInput::Tick)
        } else {
            Vec::new()
        };
        if self.due_ms <= now_ms {
            self.stopped.retain(|_, until_ms| *until_ms > now_ms);
            let due = self.cells.iter();
            let due = due.filter(|(_, cell)| cell.next_ms() <= now_ms);
            let due: Vec<String> = due.map(|(name, _)| name.clone()).collect();
            for name in due {
                self.tick_cell(now_ms, &name, &mut out);
            }
            let next_ms = self.cells.values().map(DeaCell::next_ms).min();
            self.due_ms = next_ms.unwrap_or(u64::MAX);
        }
        out
    }

    fn tick_cell(&mut self, now_ms: u64, name: &str, out: &mut Vec<CellsOutput>) {
        let Some(cell) = self.cells.get_mut(name) else {
            return;
        };
        let mut ends = Vec::new();
        if let CellService::Draining(at_ms) = cell.service
            && at_ms <= now_ms
        {
            let all = cell.held.values();
            let runs = all.filter(|held| held.state != InstanceState::Stopping);
            ends.extend(runs.map(|held| held.instance));
            // repeated with the DEA's heartbeats, for stops that were not followed
            cell.service = CellService::Draining(now_ms + HEARTBEAT_MS);
        }
        let advertises = cell.due_ms <= now_ms;
        let beats = cell.heartbeat_ms <= now_ms;
        for instance in ends {
            self.stop_one(now_ms, name, instance, out);
        }
        if advertises {
            out.extend(self.advertise(now_ms, name));
        }
        if beats {
            out.extend(self.heartbeat(now_ms, name));
        }
    }

    /// Advertises all cells now, because of a request or a reconnection.
    pub fn advertise_all(&mut self, now_ms: u64) -> Vec<CellsOutput> {
        let names: Vec<String> = self.cells.keys().cloned().collect();
        let advertised = names.iter().map(|name| self.advertise(now_ms, name));
        advertised.flatten().collect()
    }

    /// Ends the bridge: its cells take no more work, and what runs there remains known until the next bridge takes
    /// over.
    pub fn leave(&mut self, now_ms: u64) -> Vec<CellsOutput> {
        self.leaving = true;
        for cell in self.cells.values_mut() {
            cell.seq += 1;
        }
        self.advertise_all(now_ms)
    }

    pub(super) fn carry_out(
        &mut self,
        now_ms: u64,
        told: Vec<BridgeOutput>,
        out: &mut Vec<CellsOutput>,
    ) {
        for output in told {
            match output {
                BridgeOutput::Publish { subject, body } => {
                    out.push(CellsOutput::ToDeas { subject, body });
                }
                BridgeOutput::Ask { subject, body } => {
                    out.push(CellsOutput::AskDeas { subject, body });
                }
                BridgeOutput::Advertise(cell) => {
                    self.meet(now_ms, &cell.cell);
                    out.extend(self.advertise(now_ms, &cell.cell));
                }
                BridgeOutput::Withdraw(name) => self.withdraw(now_ms, &name, out),
                BridgeOutput::Answer { id, answer } => self.answered(now_ms, &id, &answer, out),
                BridgeOutput::Instance {
                    cell,
                    id,
                    app,
                    index,
                    state,
                } => self.changed(now_ms, &cell, (&id, &app, index), &state, out),
            }
        }
    }

    /// Returns the cell of a DEA that has just been given a slot.
    pub(super) fn meet(&mut self, now_ms: u64, name: &str) -> &mut DeaCell {
        let dea = self.bridge.dea_of(name).unwrap_or_default();
        let text = format!("{name}/{dea}");
        let incarnation = Incarnation::from(Uuid::new_v5(&NAMESPACE, text.as_bytes()));
        if !self.cells.contains_key(name) {
            self.due_ms = now_ms;
        }
        let cell = self.cells.entry(name.to_owned());
        cell.or_insert_with(|| DeaCell {
            incarnation,
            // higher than that of an earlier bridge, which started counting at an earlier time and counted at most once
            // a millisecond
            seq: now_ms,
            recent: VecDeque::new(),
            held: BTreeMap::new(),
            ended: VecDeque::new(),
            service: CellService::default(),
            due_ms: now_ms,
            is_advertised: false,
            heartbeat_ms: now_ms,
        })
    }

    fn withdraw(&mut self, now_ms: u64, name: &str, out: &mut Vec<CellsOutput>) {
        let Some(cell) = self.cells.remove(name) else {
            return;
        };
        let gone = Cell::new(name, placement::Resources::default());
        out.push(CellsOutput::Advertise(Box::new(Advert {
            v: shared::VERSION,
            auction: None,
            incarnation: cell.incarnation,
            seq: cell.seq + 1,
            clock_ms: CellTime::from_ms(now_ms),
            ttl: Span(std::time::Duration::ZERO),
            recent: Vec::new(),
            leaving: false,
            cell: gone,
        })));
    }

    /// Records a change, which is advertised soon.
    pub(super) fn touch(&mut self, now_ms: u64, name: &str) {
        if let Some(cell) = self.cells.get_mut(name) {
            cell.seq += 1;
            cell.is_advertised = false;
            cell.due_ms = cell.due_ms.min(now_ms + CHANGED_MS);
            self.due_ms = self.due_ms.min(cell.next_ms());
        }
    }

    pub(super) fn advertise(&mut self, now_ms: u64, name: &str) -> Option<CellsOutput> {
        let shown = self.shown(now_ms, name);
        let cell = self.cells.get_mut(name)?;
        cell.due_ms = now_ms + INTERVAL_MS;
        self.due_ms = self.due_ms.min(cell.due_ms);
        // nothing is said about a DEA before it has said something itself
        let shown = shown?;
        cell.seq += 1;
        cell.is_advertised = true;
        let advert = self.report(now_ms, None, shown)?;
        Some(CellsOutput::Advertise(Box::new(advert)))
    }
}

/// The namespace for the ids of incarnations.
const NAMESPACE: Uuid = Uuid::from_u128(0x1d7a_52c4_90be_4f63_8c1e_5b20_77da_e9f4);

impl DeaCell {
    /// Returns when something is due.
    pub(super) fn next_ms(&self) -> u64 {
        let drain_ms = match self.service {
            CellService::Draining(at_ms) if !self.held.is_empty() => at_ms,
            _ => u64::MAX,
        };
        self.due_ms.min(self.heartbeat_ms).min(drain_ms)
    }

    pub(super) fn accepted(&mut self, instance: InstanceId) {
        self.recent.retain(|known| *known != instance);
        self.recent.push_back(instance);
        if self.recent.len() > MAX_RECENT {
            self.recent.pop_front();
        }
    }

    pub(super) fn has_ended(&mut self, now_ms: u64, instance: Instance) {
        self.ended.push_back((now_ms, instance));
        let old = |(at_ms, _): &(u64, Instance)| at_ms + ENDED_MS <= now_ms;
        while self.ended.len() > MAX_ENDED || self.ended.front().is_some_and(old) {
            self.ended.pop_front();
        }
    }

    /// Returns whether an instance that has ended was stopped; none if it is not known.
    pub(super) fn how_it_ended(&self, instance: &InstanceId) -> Option<bool> {
        let mut ended = self.ended.iter().rev();
        let found = ended.find(|(_, ended)| ended.instance == *instance)?;
        Some(found.1.state == InstanceState::Exited)
    }
}
