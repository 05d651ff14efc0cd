//! DEAs as cells on the wire of a cluster: what a bridge says and answers there.
//!
//! A state machine without clock and I/O around [`Bridge`]. Nothing that it knows has to outlive it. A cell's incarnation
//! is made of its DEA's id, which is new at each start of the DEA, and its version and its clock go on with wall time, so
//! that to the cluster a restarted bridge is the same cells as before.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use placement::{Cell, Invalid, Span};
use shared::{
    AuctionId, Incarnation, InstanceId,
    clock::CellTime,
    wire::{
        Acceptance, Advert, Bid, Event, Instance, Instances, InstancesAnswer, InstanceState,
        Refusal, Stop, StopAnswer, Stopped, kind,
    },
};
use uuid::Uuid;

use super::held::{Held, instance_called};
use crate::dea::{
    Bridge, BridgeAnswer, BridgeInput, BridgeInstanceState, BridgeOptions, BridgeOutput, Hidden,
};

/// Cells of DEAs that do not advertise are advertised this often, …
const INTERVAL_MS: u64 = 5_000;
/// … and that is valid for this long. A DEA of which nothing is heard for 30 s is withdrawn.
const TTL_MS: u64 = 15_000;
/// What has changed is advertised after this.
const ON_CHANGE_MS: u64 = 100;
/// Between two heartbeats of a cell.
const HEARTBEAT_MS: u64 = 10_000;
/// Ended instances of a cell that are listed, …
const MAX_ENDED: usize = 100;
/// … and for how long.
const ENDED_MS: u64 = 600_000;
/// How long a start is refused whose instance was stopped before it arrived, …
const STOPPED_MS: u64 = 60_000;
/// … and the most such instances.
const MAX_STOPPED: usize = 10_000;
/// The most instances in an advertisement's list of the last that were accepted.
const MAX_RECENT: usize = 64;

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CellsOutput {
    /// Publish to the DEAs.
    ToDeas {
        subject: String,
        body: Hidden<Vec<u8>>,
    },
    /// Ask all DEAs; every reply is a [`BridgeInput::Found`].
    AskDeas { subject: &'static str, body: Vec<u8> },
    /// Advertise a cell.
    Advertise(Box<Advert>),
    /// Publish a heartbeat of a cell.
    Heartbeat(Box<InstancesAnswer>),
    /// Publish what a cell has to tell.
    Event { cell: String, event: Box<Event> },
    /// Answer a start.
    Answer {
        ticket: u64,
        answer: Box<Acceptance>,
    },
}

/// A cell's answer to a request for a bid.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DeaBid {
    Unchanged(Bid),
    Full(Box<Advert>),
}

/// What an operator has made of a cell; forgotten with the bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CellService {
    #[default]
    Open,
    Cordoned,
    /// What still runs at that time is stopped.
    Draining(u64),
}

/// One cell, beside what the bridge knows of it.
#[derive(Debug)]
pub(super) struct DeaCell {
    pub(super) incarnation: Incarnation,
    pub(super) seq: u64,
    recent: VecDeque<InstanceId>,
    pub(super) held: BTreeMap<InstanceId, Held>,
    /// Oldest first, with the time of the end.
    ended: VecDeque<(u64, Instance)>,
    pub(super) service: CellService,
    /// When it is advertised at the latest.
    due_ms: u64,
    /// Whether the last advertisement is still right.
    is_advertised: bool,
    heartbeat_ms: u64,
}

/// A start whose instances are not all decided.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) cell: String,
    pub(super) apps: BTreeSet<String>,
    /// By how they are called on the DEA.
    pub(super) open: BTreeMap<String, InstanceId>,
    pub(super) accepted: Vec<InstanceId>,
    pub(super) refused: Vec<Refusal>,
}

/// What was dropped, and how starts ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CellsCounters {
    pub(crate) placed: u64,
    pub(crate) refused: u64,
    pub(crate) unknown: u64,
    /// Instances of the cluster's on DEAs that are called as nothing is called.
    pub(crate) misnamed: u64,
}

/// The DEAs as cells.
#[derive(Debug)]
pub(crate) struct DeaCells {
    pub(super) bridge: Bridge,
    pub(super) cells: BTreeMap<String, DeaCell>,
    pub(super) waiting: BTreeMap<u64, Waiting>,
    /// Which starts wait for an instance.
    pub(super) tickets: BTreeMap<String, Vec<u64>>,
    /// Instances that were stopped and were not there, with the time until which that counts.
    pub(super) stopped: BTreeMap<InstanceId, u64>,
    pub(crate) counters: CellsCounters,
    leaving: bool,
}

impl DeaCells {
    /// Cells of which nothing was heard. `now_ms` is wall time, and never goes back from then on.
    pub(crate) fn new(options: BridgeOptions, now_ms: u64) -> Result<Self, Invalid> {
        Ok(Self {
            bridge: Bridge::new(options, now_ms)?,
            cells: BTreeMap::new(),
            waiting: BTreeMap::new(),
            tickets: BTreeMap::new(),
            stopped: BTreeMap::new(),
            counters: CellsCounters::default(),
            leaving: false,
        })
    }

    /// What is known of the DEAs.
    pub(crate) fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// The cells that there are.
    pub(crate) fn names(&self) -> impl Iterator<Item = &String> {
        self.cells.keys()
    }

    /// How many instances of the cluster's run or are on their way.
    pub(crate) fn instances_held(&self) -> usize {
        self.cells.values().map(|cell| cell.held.len()).sum()
    }

    /// When [`DeaCells::tick`] is due next.
    pub(crate) fn next_ms(&self) -> u64 {
        let of_cell = |cell: &DeaCell| {
            let drain_ms = match cell.service {
                CellService::Draining(at_ms) if !cell.held.is_empty() => at_ms,
                _ => u64::MAX,
            };
            cell.due_ms.min(cell.heartbeat_ms).min(drain_ms)
        };
        let first = self.cells.values().map(of_cell).min();
        first.unwrap_or(u64::MAX).min(self.bridge.next_ms())
    }

    /// Passes on what DEAs say, and that time has passed.
    pub(crate) fn hear(&mut self, now_ms: u64, input: BridgeInput<'_>) -> Vec<CellsOutput> {
        let told = self.bridge.handle(now_ms, input);
        let mut out = Vec::new();
        self.carry_out(now_ms, told, &mut out);
        out
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, now_ms: u64) -> Vec<CellsOutput> {
        let mut out = if self.bridge.next_ms() <= now_ms {
            self.hear(now_ms, BridgeInput::Tick)
        } else {
            Vec::new()
        };
        self.stopped.retain(|_, until_ms| *until_ms > now_ms);
        let names: Vec<String> = self.cells.keys().cloned().collect();
        for name in names {
            self.tick_cell(now_ms, &name, &mut out);
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
            let runs = all.filter(|held| held.shown.state != InstanceState::Stopping);
            ends.extend(runs.map(|held| held.shown.instance));
            // heartbeats of the DEA repeat what is not followed
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

    /// All cells advertise now: somebody asked for it, or the connection is back.
    pub(crate) fn advertise_all(&mut self, now_ms: u64) -> Vec<CellsOutput> {
        let names: Vec<String> = self.cells.keys().cloned().collect();
        let advertised = names.iter().map(|name| self.advertise(now_ms, name));
        advertised.flatten().collect()
    }

    /// The bridge ends: its cells take no more work, and what runs there stays known until the next one is there.
    pub(crate) fn leave(&mut self, now_ms: u64) -> Vec<CellsOutput> {
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

    /// A DEA that has just got a slot.
    fn meet(&mut self, now_ms: u64, name: &str) -> &mut DeaCell {
        let dea = self.bridge.dea_of(name).unwrap_or_default();
        let text = format!("{name}/{dea}");
        let incarnation = Incarnation::from(Uuid::new_v5(&NAMESPACE, text.as_bytes()));
        let cell = self.cells.entry(name.to_owned());
        cell.or_insert_with(|| DeaCell {
            incarnation,
            // above that of an earlier bridge, which counted from an earlier time, and slower than once a millisecond
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
            cell: gone,
        })));
    }

    /// Something has changed: it is advertised soon.
    pub(super) fn touch(&mut self, now_ms: u64, name: &str) {
        if let Some(cell) = self.cells.get_mut(name) {
            cell.seq += 1;
            cell.is_advertised = false;
            cell.due_ms = cell.due_ms.min(now_ms + ON_CHANGE_MS);
        }
    }

    fn advertise(&mut self, now_ms: u64, name: &str) -> Option<CellsOutput> {
        let shown = self.shown(now_ms, name);
        let cell = self.cells.get_mut(name)?;
        cell.due_ms = now_ms + INTERVAL_MS;
        // nothing is said of a DEA before it has said something
        shown.as_ref()?;
        cell.seq += 1;
        cell.is_advertised = true;
        let advert = self.state(now_ms, name, None)?;
        Some(CellsOutput::Advertise(Box::new(advert)))
    }

    /// The cell as its DEA last advertised it, less what was started since.
    pub(super) fn shown(&self, now_ms: u64, name: &str) -> Option<Cell> {
        let mut shown = self.bridge.cell(name, now_ms)?;
        let out_of_service = match self.cells.get(name)?.service {
            CellService::Open if self.leaving => Some(true),
            CellService::Open => None,
            CellService::Cordoned => Some(true),
            CellService::Draining(_) => Some(false),
        };
        if let Some(cordoned) = out_of_service {
            // a DEA that is being emptied is not less so because its cell is cordoned
            shown.cordoned = cordoned && (!shown.evacuating || shown.cordoned);
            shown.evacuating = true;
        }
        Some(shown)
    }

    /// A cell's full state: an advertisement, the answer to a question for its state or, with an auction, a bid.
    pub(crate) fn state(
        &self,
        now_ms: u64,
        name: &str,
        auction: Option<AuctionId>,
    ) -> Option<Advert> {
        let cell = self.cells.get(name)?;
        let shown = self.shown(now_ms, name)?;
        let dea = self.bridge.estate().dea(self.bridge.dea_of(name)?)?;
        let ttl_ms = if dea.is_live(now_ms) && !self.leaving {
            dea.expires_in_ms(now_ms)
        } else {
            TTL_MS
        };
        Some(Advert {
            v: shared::VERSION,
            auction,
            incarnation: cell.incarnation,
            seq: cell.seq,
            clock_ms: CellTime::from_ms(now_ms),
            ttl: Span(std::time::Duration::from_millis(ttl_ms)),
            recent: cell.recent.iter().copied().collect(),
            cell: shown,
        })
    }

    /// The answer to a request for a bid.
    pub(crate) fn bid(&self, now_ms: u64, name: &str, auction: AuctionId) -> Option<DeaBid> {
        let cell = self.cells.get(name)?;
        if !cell.is_advertised {
            let full = self.state(now_ms, name, Some(auction))?;
            return Some(DeaBid::Full(Box::new(full)));
        }
        Some(DeaBid::Unchanged(Bid {
            v: shared::VERSION,
            auction,
            cell: name.to_owned(),
            incarnation: cell.incarnation,
            seq: cell.seq,
            clock_ms: CellTime::from_ms(now_ms),
            unchanged: true,
        }))
    }

    fn heartbeat(&mut self, now_ms: u64, name: &str) -> Option<CellsOutput> {
        let cell = self.cells.get_mut(name)?;
        cell.heartbeat_ms = now_ms + HEARTBEAT_MS;
        let held = cell.held.values().map(|held| held.describe(now_ms));
        let held = held.collect();
        let list = self.list(now_ms, name, held)?;
        Some(CellsOutput::Heartbeat(Box::new(list)))
    }

    fn list(&self, now_ms: u64, name: &str, instances: Vec<Instance>) -> Option<InstancesAnswer> {
        let cell = self.cells.get(name)?;
        Some(InstancesAnswer {
            v: shared::VERSION,
            cell: name.to_owned(),
            zone: self.bridge.cell(name, now_ms)?.zone.clone(),
            incarnation: cell.incarnation,
            seq: cell.seq,
            part: 1,
            parts: 1,
            instances,
            more: false,
        })
    }

    /// Current and recently ended instances of a cell that match.
    pub(crate) fn instances(
        &self,
        now_ms: u64,
        name: &str,
        filter: &Instances,
    ) -> Option<InstancesAnswer> {
        let cell = self.cells.get(name)?;
        let wanted = |instance: &Instance| {
            let id = &instance.instance;
            filter.app.as_ref().is_none_or(|app| *app == instance.app)
                && (filter.ids.is_empty() || filter.ids.contains(id))
                && (filter.id_prefixes.is_empty() || filter.id_prefixes.match_id(id))
        };
        let held = cell.held.values().filter(|held| wanted(&held.shown));
        let held = held.map(|held| held.describe(now_ms));
        let ended = cell.ended.iter().filter(|(at_ms, instance)| {
            at_ms + ENDED_MS > now_ms && wanted(instance)
        });
        let ended = ended.map(|(at_ms, instance)| Instance {
            age_ms: now_ms.saturating_sub(*at_ms),
            ..instance.clone()
        });
        self.list(now_ms, name, held.chain(ended).collect())
    }

    /// Stops what matches on a cell.
    pub(crate) fn stop(
        &mut self,
        now_ms: u64,
        name: &str,
        stop: &Stop,
        out: &mut Vec<CellsOutput>,
    ) -> StopAnswer {
        let mut stopped = Vec::new();
        if let Some(cell) = self.cells.get(name) {
            let matches = |held: &&Held| {
                let shown = &held.shown;
                shown.app == stop.app
                    && (stop.indices.is_empty() || stop.indices.contains(&shown.index))
                    && (stop.instances.is_empty() || stop.instances.contains(&shown.instance))
                    && stop.claim.is_none_or(|claim| shown.claim == Some(claim))
            };
            let all = cell.held.values().filter(matches);
            stopped.extend(all.map(|held| Stopped {
                instance: held.shown.instance,
                index: held.shown.index,
                cell: None,
            }));
            // a stop may overtake its start
            let unknown = stop.instances.iter().filter(|id| !cell.held.contains_key(id));
            let room = MAX_STOPPED.saturating_sub(self.stopped.len());
            let until_ms = now_ms + STOPPED_MS;
            if stop.claim.is_none() {
                self.stopped
                    .extend(unknown.take(room).map(|id| (*id, until_ms)));
            }
        }
        for one in &stopped {
            self.stop_one(now_ms, name, one.instance, out);
        }
        StopAnswer {
            v: shared::VERSION,
            cell: name.to_owned(),
            stopped,
        }
    }

    fn stop_one(
        &mut self,
        now_ms: u64,
        name: &str,
        instance: InstanceId,
        out: &mut Vec<CellsOutput>,
    ) {
        let cell = self.cells.get_mut(name);
        let Some(held) = cell.and_then(|cell| cell.held.get_mut(&instance)) else {
            return;
        };
        held.enter(now_ms, InstanceState::Stopping);
        let id = held.id.clone();
        self.touch(now_ms, name);
        let told = self.bridge.handle(now_ms, BridgeInput::Stop { id: &id });
        self.carry_out(now_ms, told, out);
    }

    /// Has a cell take no new work, or take work again.
    pub(crate) fn serve(&mut self, now_ms: u64, name: &str, service: CellService) -> Vec<CellsOutput> {
        let Some(cell) = self.cells.get_mut(name) else {
            return Vec::new();
        };
        let before = std::mem::replace(&mut cell.service, service);
        let kind = match service {
            CellService::Open => kind::CELL_UNCORDONED,
            CellService::Cordoned => kind::CELL_CORDONED,
            CellService::Draining(_) => kind::CELL_DRAINING,
        };
        let mut out = Vec::new();
        if before != service {
            let event = Event {
                count: cell.held.len(),
                ..Event::cell(kind, name)
            };
            out.extend(self.advertise(now_ms, name));
            out.push(CellsOutput::Event {
                cell: name.to_owned(),
                event: Box::new(event),
            });
        }
        out
    }

    /// How many instances a cell holds.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.cells.get(name).map_or(0, |cell| cell.held.len())
    }

    /// What became of an instance that was sent.
    fn answered(
        &mut self,
        now_ms: u64,
        id: &str,
        answer: &BridgeAnswer,
        out: &mut Vec<CellsOutput>,
    ) {
        match answer {
            BridgeAnswer::Placed => self.counters.placed += 1,
            BridgeAnswer::Refused { .. } => self.counters.refused += 1,
            BridgeAnswer::Unknown => self.counters.unknown += 1,
        }
        for ticket in self.tickets.remove(id).unwrap_or_default() {
            let Some(waiting) = self.waiting.get_mut(&ticket) else {
                continue;
            };
            let Some(instance) = waiting.open.remove(id) else {
                continue;
            };
            let name = waiting.cell.clone();
            match answer {
                BridgeAnswer::Placed => waiting.accepted.push(instance),
                BridgeAnswer::Refused { reason } => waiting.refused.push(Refusal {
                    instance,
                    reason: reason.clone(),
                    needs: None,
                    has: None,
                }),
                // what is missing in the answer is unknown
                BridgeAnswer::Unknown => {}
            }
            if let Some(cell) = self.cells.get_mut(&name) {
                match answer {
                    BridgeAnswer::Placed => cell.accepted(instance),
                    BridgeAnswer::Refused { .. } => _ = cell.held.remove(&instance),
                    BridgeAnswer::Unknown => {}
                }
            }
            self.touch(now_ms, &name);
            self.finish(now_ms, ticket, out);
        }
    }

    /// Answers a start of which all instances are decided.
    pub(super) fn finish(&mut self, now_ms: u64, ticket: u64, out: &mut Vec<CellsOutput>) {
        if self.waiting.get(&ticket).is_none_or(|w| !w.open.is_empty()) {
            return;
        }
        let Some(waiting) = self.waiting.remove(&ticket) else {
            return;
        };
        let shown = self.shown(now_ms, &waiting.cell);
        let cell = self.cells.get(&waiting.cell);
        let count = |app: String| {
            let count = shown.as_ref().map_or(0, |shown| shown.count_of(&app));
            (app, count)
        };
        let apps = waiting.apps.into_iter().map(count).collect();
        let answer = Acceptance {
            v: shared::VERSION,
            cell: waiting.cell,
            incarnation: cell.map_or_else(|| Uuid::nil().into(), |cell| cell.incarnation),
            seq: cell.map_or(0, |cell| cell.seq),
            available: shown.as_ref().map(|c| c.available.clone()).unwrap_or_default(),
            apps,
            accepted: waiting.accepted,
            refused: waiting.refused,
        };
        out.push(CellsOutput::Answer {
            ticket,
            answer: Box::new(answer),
        });
    }

    /// The state of an instance has changed.
    fn changed(
        &mut self,
        now_ms: u64,
        name: &str,
        (id, app, index): (&str, &str, u32),
        state: &BridgeInstanceState,
        out: &mut Vec<CellsOutput>,
    ) {
        let Some((instance, request)) = instance_called(id, app, index) else {
            self.counters.misnamed += 1;
            return;
        };
        let cell = self.meet(now_ms, name);
        let has_ended = !matches!(
            state,
            BridgeInstanceState::Starting | BridgeInstanceState::Running
        );
        if has_ended && !cell.held.contains_key(&instance) {
            return; // it ended before this bridge was there
        }
        let held = cell.held.entry(instance).or_insert_with(|| {
            let mut held = Held::heard(now_ms, id, instance, (app, index));
            held.shown.request = request;
            held
        });
        let stopping = held.shown.state == InstanceState::Stopping;
        let kind = match state {
            BridgeInstanceState::Starting => None,
            BridgeInstanceState::Running if stopping => None,
            BridgeInstanceState::Running => {
                held.enter(now_ms, InstanceState::Running);
                Some(kind::RUNNING)
            }
            BridgeInstanceState::Stopped => Some(kind::STOPPED),
            _ => Some(kind::CRASHED),
        };
        if has_ended {
            held.end(now_ms, state);
        }
        if let Some(kind) = kind {
            out.push(CellsOutput::Event {
                cell: name.to_owned(),
                event: Box::new(held.event(now_ms, name, kind)),
            });
        }
        if has_ended && let Some(held) = cell.held.remove(&instance) {
            cell.has_ended(now_ms, held.shown);
        }
        self.touch(now_ms, name);
    }
}

/// What the ids of incarnations are made with.
const NAMESPACE: Uuid = Uuid::from_u128(0x1d7a_52c4_90be_4f63_8c1e_5b20_77da_e9f4);

impl DeaCell {
    fn accepted(&mut self, instance: InstanceId) {
        self.recent.retain(|known| *known != instance);
        self.recent.push_back(instance);
        if self.recent.len() > MAX_RECENT {
            self.recent.pop_front();
        }
    }

    fn has_ended(&mut self, now_ms: u64, instance: Instance) {
        self.ended.push_back((now_ms, instance));
        let old = |(at_ms, _): &(u64, Instance)| at_ms + ENDED_MS <= now_ms;
        while self.ended.len() > MAX_ENDED || self.ended.front().is_some_and(old) {
            self.ended.pop_front();
        }
    }

    /// How an instance of which nothing runs any more ended: whether it was stopped.
    pub(super) fn how_it_ended(&self, instance: &InstanceId) -> Option<bool> {
        let mut ended = self.ended.iter().rev();
        let found = ended.find(|(_, ended)| ended.instance == *instance)?;
        Some(found.1.state == InstanceState::Exited)
    }
}
