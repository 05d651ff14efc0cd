//! Cells as DEAs: messages of the cluster about them, and what their facades want.
//!
//! A state machine without clock and I/O. A cell gets a facade, and so a DEA with a new id, when it is first heard,
//! when it has another incarnation, and when it takes work again after it was emptied.

use std::collections::BTreeMap;

use placement::{Cell, CellChange, Counts};
use shared::{
    Incarnation, InstanceId,
    clock::millis,
    wire::{Stop, Work},
};
use uuid::Uuid;

use super::DeaOutConfig;
use crate::dea::{
    Facade, FacadeEvent, FacadeInput, FacadeOptions, FacadeOutput, FacadeRoom, Hidden,
};

/// The prefix of requests for instances that were started through a facade.
pub(super) const REQUEST_PREFIX: &str = "dea-out-";

/// An output of the cells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OutOutput {
    /// Publish to the estate.
    ToEstate {
        subject: String,
        body: Hidden<Vec<u8>>,
    },
    /// Pass messages on this subject to the facades from now on.
    Listen { subject: String },
    /// Stop listening to this subject: its DEA no longer exists.
    Unlisten { subject: String },
    /// Start an instance on a cell; the answer goes to [`OutCells::answered`].
    Start { cell: String, body: Hidden<Vec<u8>> },
    /// Stop instances on a cell.
    Stop { cell: String, stop: Box<Stop> },
}

/// One cell and its DEA.
#[derive(Debug)]
pub(super) struct OutCell {
    pub(super) incarnation: Incarnation,
    /// The cell as last advertised, without what runs on it.
    cell: Option<Cell>,
    /// The cell's clock, and our time at which it showed that.
    pub(super) clock: (u64, u64),
    /// When the cell's advertisement expires.
    expires_ms: u64,
    pub(super) facade: Option<Facade>,
    /// Whether the cell was to be emptied, even if it takes work again before it is empty: its DEA remains the emptied
    /// one.
    emptied: bool,
    /// The number of facades that it has had.
    lives: u64,
    /// The address of its instances; empty until an instance has reported it.
    pub(super) address: String,
    /// Ports of running instances that cannot be announced before the address is known.
    pub(super) waits_for_address: BTreeMap<String, Option<u16>>,
    /// Starts that have not been answered.
    pub(super) sent: BTreeMap<String, Sent>,
    /// Instances that the cell has accepted and that have not ended, with the time of acceptance.
    pub(super) accepted: BTreeMap<String, u64>,
}

/// A start that the cell has not answered.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) app: String,
    pub(super) work: Work,
    /// How many times it was sent.
    pub(super) times: u32,
    pub(super) due_ms: u64,
    /// Whether it is to be stopped, whatever the answer is.
    pub(super) stopped: bool,
}

/// Counters of starts, stops and staging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutCounters {
    pub(crate) started: u64,
    pub(crate) refused: u64,
    /// Starts that the cell never answered.
    pub(crate) unanswered: u64,
    /// Instances of an earlier run that were stopped.
    pub(crate) left_over: u64,
    pub(crate) malformed: u64,
    /// Starts beyond the limit of a facade.
    pub(crate) dropped: u64,
    /// Apps that were staged.
    pub(crate) staged: u64,
    /// Apps whose staging failed, was stopped, or found no room.
    pub(crate) not_staged: u64,
}

/// The cells as DEAs. Times are in ms since the Unix epoch.
#[derive(Debug)]
pub(crate) struct OutCells {
    pub(super) config: DeaOutConfig,
    /// New for each run; the ids of DEAs are derived from it.
    pub(super) run: Uuid,
    pub(super) cells: BTreeMap<String, OutCell>,
    pub(super) counters: OutCounters,
}

impl OutCounters {
    fn add(&mut self, facade: &Facade) {
        self.malformed += facade.malformed;
        self.dropped += facade.dropped;
        self.staged += facade.staged;
        self.not_staged += facade.not_staged;
    }
}

impl OutCell {
    fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            cell: None,
            clock: (0, 0),
            expires_ms: 0,
            facade: None,
            emptied: false,
            lives: 0,
            address: String::new(),
            waits_for_address: BTreeMap::new(),
            sent: BTreeMap::new(),
            accepted: BTreeMap::new(),
        }
    }
}

impl OutCells {
    pub(crate) fn new(config: DeaOutConfig, run: Uuid) -> Self {
        Self {
            config,
            run,
            cells: BTreeMap::new(),
            counters: OutCounters::default(),
        }
    }

    /// Returns the counters, including those of the facades.
    pub(crate) fn counters(&self) -> OutCounters {
        let facades = self.cells.values().filter_map(|cell| cell.facade.as_ref());
        let mut all = self.counters;
        facades.for_each(|facade| all.add(facade));
        all
    }

    /// Returns how many cells are DEAs now.
    pub(crate) fn deas(&self, now_ms: u64) -> usize {
        let there = |cell: &&OutCell| cell.facade.is_some() && now_ms < cell.expires_ms;
        self.cells.values().filter(there).count()
    }

    /// Returns when [`OutCells::tick`] is due next.
    pub(crate) fn next_ms(&self, now_ms: u64) -> u64 {
        let of_cell = |cell: &OutCell| {
            let facade = cell.facade.as_ref().filter(|_| now_ms < cell.expires_ms);
            let facade = facade.map_or(u64::MAX, Facade::next_ms);
            let sent = cell.sent.values().map(|sent| sent.due_ms).min();
            facade.min(sent.unwrap_or(u64::MAX))
        };
        self.cells.values().map(of_cell).min().unwrap_or(u64::MAX)
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, now_ms: u64) -> Vec<OutOutput> {
        let mut out = Vec::new();
        let names: Vec<String> = self.cells.keys().cloned().collect();
        for name in names {
            self.send_again(now_ms, &name, &mut out);
            let Some(cell) = self.cells.get_mut(&name) else {
                continue;
            };
            // whether a silent cell still exists is unknown, so its DEA does not speak either
            let is_there = now_ms < cell.expires_ms;
            let facade = cell.facade.as_mut().filter(|_| is_there);
            if let Some(facade) = facade.filter(|facade| facade.next_ms() <= now_ms) {
                let told = facade.handle(now_ms, FacadeInput::Tick);
                self.carry_out(now_ms, &name, told, &mut out);
            }
        }
        out
    }

    /// Handles an advertisement of what has changed of a cell; returns none if it is of no use.
    pub(crate) fn changed(
        &mut self,
        now_ms: u64,
        about: (Incarnation, u64, u64),
        name: &str,
        change: &CellChange,
    ) -> Option<Vec<OutOutput>> {
        let known = self
            .cells
            .get(name)
            .filter(|known| known.incarnation == about.0);
        let Some(mut cell) = known.and_then(|known| known.cell.clone()) else {
            // it soon advertises everything
            return Some(Vec::new());
        };
        change.check(&cell).ok()?;
        cell.apply(change);
        Some(self.advertised(now_ms, about, &cell))
    }

    /// Handles an advertisement of a cell; `ttl_ms` is 0 if it withdraws.
    pub(crate) fn advertised(
        &mut self,
        now_ms: u64,
        (incarnation, clock_ms, ttl_ms): (Incarnation, u64, u64),
        cell: &Cell,
    ) -> Vec<OutOutput> {
        let mut out = Vec::new();
        let name = cell.cell.clone();
        if !self.config.cells.contains(&name) {
            return out;
        }
        let known = self.cells.entry(name.clone());
        let known = known.or_insert_with(|| OutCell::new(incarnation));
        let is_restarted = known.incarnation != incarnation;
        let is_empty = known.accepted.is_empty() && known.sent.is_empty();
        let was_emptied = known.emptied && !cell.evacuating && is_empty;
        if is_restarted {
            self.restarted(now_ms, &name, incarnation, &mut out);
        } else if was_emptied {
            // it takes work again
            self.end_facade(&name, &mut out);
        }
        let Some(known) = self.cells.get_mut(&name) else {
            return out;
        };
        known.clock = (clock_ms, now_ms);
        // what runs on it is of no interest here
        known.cell = Some(Cell {
            counts: Counts::default(),
            ..cell.clone()
        });
        // a forged advertisement must not keep a cell for ever
        known.expires_ms = now_ms.saturating_add(ttl_ms.min(self.config.max_ttl_ms));
        let is_emptied = cell.evacuating && !cell.cordoned;
        known.emptied |= is_emptied;
        let room = room(cell);
        if known.facade.is_none() {
            if ttl_ms > 0 && cell.droplets && !cell.evacuating {
                self.begin(now_ms, cell, room, &mut out);
                self.stages(now_ms, cell, &mut out);
            }
            return out;
        }
        self.tell(now_ms, &name, FacadeInput::Room(room), &mut out);
        self.stages(now_ms, cell, &mut out);
        if is_emptied {
            self.tell(now_ms, &name, FacadeInput::Evacuate, &mut out);
        }
        out
    }

    /// Handles that a cell's rep was restarted: it has lost everything that the cell ran, like a restarted DEA.
    fn restarted(
        &mut self,
        now_ms: u64,
        name: &str,
        incarnation: Incarnation,
        out: &mut Vec<OutOutput>,
    ) {
        self.tell(now_ms, name, FacadeInput::Lost, out);
        self.end_facade(name, out);
        if let Some(cell) = self.cells.get_mut(name) {
            cell.incarnation = incarnation;
            cell.sent.clear();
            cell.accepted.clear();
            cell.waits_for_address.clear();
        }
    }

    /// Ends the DEA of a cell.
    fn end_facade(&mut self, name: &str, out: &mut Vec<OutOutput>) {
        let Some(cell) = self.cells.get_mut(name) else {
            return;
        };
        cell.emptied = false;
        if let Some(facade) = cell.facade.take() {
            self.counters.add(&facade);
            let [.., of_staging] = facade.staging_subjects();
            let of_staging = facade.stages().then_some(of_staging);
            let own = of_staging.into_iter().chain([facade.own_subject()]);
            out.extend(own.map(|subject| OutOutput::Unlisten { subject }));
        }
    }

    fn begin(&mut self, now_ms: u64, cell: &Cell, room: FacadeRoom, out: &mut Vec<OutOutput>) {
        let name = cell.cell.clone();
        let Some(known) = self.cells.get_mut(&name) else {
            return;
        };
        known.lives += 1;
        let text = format!("{name}/{}/{}", known.incarnation, known.lives);
        let drawn = Uuid::new_v5(&self.run, text.as_bytes());
        let id = format!("{}-{}", cell.index, drawn.simple());
        let seed = drawn.as_u64_pair().0;
        let mut options = FacadeOptions::new(&id, &known.address, cell.stacks.clone(), seed);
        options.zone.clone_from(&cell.zone);
        options.advertise_ms = self.config.advertise_ms;
        options.heartbeat_ms = self.config.heartbeat_ms;
        options.register_ms = self.config.register_ms;
        options.staging_mb = (self.config.staging_memory_mb, self.config.staging_disk_mb);
        options.staging_ms = self.config.staging_ms;
        if let Ok((facade, told)) = Facade::new(options, room, now_ms) {
            let listens = facade.subjects().into_iter();
            out.extend(listens.map(|subject| OutOutput::Listen { subject }));
            known.facade = Some(facade);
            known.emptied = false;
            self.carry_out(now_ms, &name, told, out);
        }
    }

    /// Handles a message of the estate, for all cells or for one.
    pub(crate) fn heard(
        &mut self,
        now_ms: u64,
        subject: &str,
        reply: Option<&str>,
        body: &[u8],
    ) -> Vec<OutOutput> {
        let mut out = Vec::new();
        let there = self.cells.iter();
        let there = there.filter(|(_, cell)| now_ms < cell.expires_ms);
        let names: Vec<String> = there.map(|(name, _)| name.clone()).collect();
        for name in names {
            let heard = FacadeInput::Heard {
                subject,
                reply,
                body,
            };
            self.tell(now_ms, &name, heard, &mut out);
        }
        out
    }

    pub(super) fn tell(
        &mut self,
        now_ms: u64,
        name: &str,
        input: FacadeInput<'_>,
        out: &mut Vec<OutOutput>,
    ) {
        let cell = self.cells.get_mut(name);
        if let Some(facade) = cell.and_then(|cell| cell.facade.as_mut()) {
            let told = facade.handle(now_ms, input);
            self.carry_out(now_ms, name, told, out);
        }
    }

    pub(super) fn happened(
        &mut self,
        now_ms: u64,
        name: &str,
        key: &str,
        event: FacadeEvent,
        out: &mut Vec<OutOutput>,
    ) {
        self.tell(now_ms, name, FacadeInput::Instance { key, event }, out);
    }

    fn carry_out(
        &mut self,
        now_ms: u64,
        name: &str,
        told: Vec<FacadeOutput>,
        out: &mut Vec<OutOutput>,
    ) {
        for output in told {
            match output {
                FacadeOutput::Publish { subject, body } => {
                    out.push(OutOutput::ToEstate { subject, body });
                }
                FacadeOutput::Start { key, start } => {
                    self.start(now_ms, name, &key, &start, out);
                }
                FacadeOutput::Stage { key, staging } => {
                    self.stage(now_ms, name, &key, &staging, out);
                }
                FacadeOutput::Stop { key } => self.stop(name, &key, out),
            }
        }
    }

    fn stop(&mut self, name: &str, key: &str, out: &mut Vec<OutOutput>) {
        let Some(cell) = self.cells.get_mut(name) else {
            return;
        };
        // an unanswered one may exist, which its answer will tell
        let sent = cell.sent.get_mut(key);
        let app = sent.map(|sent| {
            sent.stopped = true;
            sent.app.clone()
        });
        let app = app.or_else(|| cell.facade.as_ref()?.app_of(key).map(str::to_owned));
        if let (Some(app), Some(instance)) = (app, instance_of(key)) {
            out.push(stop_of(name, &app, instance));
        }
    }

    /// Shuts all DEAs down: they say so, and what was started through them is stopped.
    pub(crate) fn shut_down(&mut self, now_ms: u64) -> Vec<OutOutput> {
        let mut out = Vec::new();
        let names: Vec<String> = self.cells.keys().cloned().collect();
        for name in names {
            self.tell(now_ms, &name, FacadeInput::ShutDown, &mut out);
        }
        out
    }
}

/// Returns the resources of the cell in MB. A cell that takes no work has no room, but keeps what it runs.
fn room(cell: &Cell) -> FacadeRoom {
    let takes_work = !cell.evacuating;
    FacadeRoom {
        memory: cell.total.memory_mb,
        available_memory: if takes_work {
            cell.available.memory_mb
        } else {
            0
        },
        available_disk: if takes_work {
            cell.available.disk_mb
        } else {
            Some(0)
        },
    }
}

/// Returns the instance with this key of a facade.
pub(super) fn instance_of(key: &str) -> Option<InstanceId> {
    key.parse().ok()
}

/// Returns a facade's key for an instance.
pub(super) fn key_of(instance: InstanceId) -> String {
    instance.uuid().simple().to_string()
}

pub(super) fn stop_of(cell: &str, app: &str, instance: InstanceId) -> OutOutput {
    OutOutput::Stop {
        cell: cell.to_owned(),
        stop: Box::new(Stop {
            v: shared::VERSION,
            app: app.to_owned(),
            indices: Vec::new(),
            instances: vec![instance],
            claim: None,
        }),
    }
}

/// Returns the ttl of an advertisement in ms.
pub(crate) fn ttl_ms(ttl: Option<placement::Span>) -> u64 {
    ttl.map_or(0, |ttl| millis(ttl.0))
}
