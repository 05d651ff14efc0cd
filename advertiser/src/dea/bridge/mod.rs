//! DEAs as cells: the decisions of a bridge between an estate of DEAs and a vendue cluster.
//!
//! A state machine without clock and I/O: [`Bridge::handle`] takes messages of DEAs and starts and stops of the
//! cluster, and returns what is to be sent to either side. None of its knowledge has to survive it: the id of an
//! instance travels as the version of its droplet, together with the number of its slot, so heartbeats tell a new
//! bridge everything.
//!
//! A DEA has a new id at each start, while a cell's name must be known beforehand: each DEA gets the first free slot,
//! and keeps it until it is forgotten. A new bridge at first gives slots only to DEAs whose instances name the slot
//! that they had.

mod instances;
mod slot;
mod starts;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use placement::{Cell, Invalid, check_name};

use super::{DeaFound, DeaStart, Estate, EstateChange, EstateInput, EstateOptions, Hidden};
pub use instances::BridgeInstanceState;
use slot::Slot;
use starts::Asking;

/// The most slots.
pub const MAX_SLOTS: usize = 10_000;
/// The prefix of the droplet versions of the cluster's instances.
const VERSION_PREFIX: &str = "vendue-";
/// The longest mark: together with an id and a slot's number, a version must be a valid name.
const MAX_MARK: usize = 8;

/// Settings of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BridgeOptions {
    /// The bridge's name; its cells are `NAME-0`, `NAME-1` and so on.
    pub name: String,
    /// Distinguishes its droplets from those of other bridges to the same estate: 1 to 8 of `A-Za-z0-9`.
    pub mark: String,
    /// The maximum number of cells.
    pub slots: usize,
    /// How the estate is followed.
    pub estate: EstateOptions,
    /// For how long only heartbeats give slots, in ms: an earlier bridge may have given them already.
    pub settle_ms: u64,
}

/// An input of a bridge.
#[derive(Clone, Debug)]
pub enum BridgeInput<'a> {
    /// A message of a DEA, on a subject of [`Estate::SUBJECTS`].
    Heard {
        /// Its subject.
        subject: &'a str,
        /// Its body.
        body: &'a [u8],
    },
    /// A reply to a [`BridgeOutput::Ask`].
    Found(&'a [u8]),
    /// An instance is to be started on a cell.
    Start {
        /// The cell.
        cell: &'a str,
        /// The id of the instance, 1 to 100 of `A-Za-z0-9_-`.
        id: &'a str,
        /// What to run; its version is replaced.
        start: Box<DeaStart>,
    },
    /// An instance is to be stopped; ignored if the cell does not have it.
    Stop {
        /// The cell.
        cell: &'a str,
        /// Its id.
        id: &'a str,
    },
    /// The time that [`Bridge::next_ms`] gave has come.
    Tick,
}

/// An output of a bridge.
#[derive(Clone, Debug, PartialEq)]
pub enum BridgeOutput {
    /// Publish to the DEAs.
    Publish {
        /// The subject.
        subject: String,
        /// The body.
        body: Hidden<Vec<u8>>,
    },
    /// Ask all DEAs; every reply is a [`BridgeInput::Found`].
    Ask {
        /// The subject.
        subject: &'static str,
        /// The body.
        body: Vec<u8>,
    },
    /// Advertise the cell.
    Advertise(Box<Cell>),
    /// The cell's DEA is gone.
    Withdraw(String),
    /// Answer a start; each start gets exactly one answer.
    Answer {
        /// The instance's id.
        id: String,
        /// What became of it.
        answer: BridgeAnswer,
    },
    /// The state of an instance has changed.
    Instance {
        /// The cell.
        cell: String,
        /// The instance.
        id: String,
        /// Its app.
        app: String,
        /// Its index.
        index: u32,
        /// Its new state.
        state: BridgeInstanceState,
    },
}

/// What became of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BridgeAnswer {
    /// The DEA has it.
    Placed,
    /// It does not run, and may be started elsewhere.
    Refused {
        /// Why, in one line.
        reason: String,
    },
    /// It was sent and may run, which heartbeats will tell.
    Unknown,
}

/// The DEAs as cells.
#[derive(Debug)]
pub struct Bridge {
    options: BridgeOptions,
    estate: Estate,
    slots: Vec<Option<Slot>>,
    /// The slot of each DEA.
    by_dea: BTreeMap<String, usize>,
    /// The slot of each instance that is known.
    by_instance: BTreeMap<Arc<str>, usize>,
    /// Starts that have not been answered.
    asking: BTreeMap<String, Asking>,
    /// When their next step is due.
    due: BTreeSet<(u64, String)>,
    estate_due_ms: u64,
    /// When every DEA may get a slot; none if that has come.
    settles_ms: Option<u64>,
}

impl Bridge {
    /// Creates a bridge that has heard nothing. Rejects a bad name, and no slots or too many.
    pub fn new(options: BridgeOptions, now_ms: u64) -> Result<Self, Invalid> {
        check_name("name", &options.name)?;
        let is_plain = options.mark.bytes().all(|b| b.is_ascii_alphanumeric());
        if !(1..=MAX_MARK).contains(&options.mark.len()) || !is_plain {
            let expected = format!("1 to {MAX_MARK} of A-Z a-z 0-9");
            return Err(Invalid::new("mark", options.mark, expected));
        }
        if !(1..=MAX_SLOTS).contains(&options.slots) {
            let expected = format!("a number from 1 to {MAX_SLOTS}");
            return Err(Invalid::new("slots", options.slots, expected));
        }
        Ok(Self {
            settles_ms: (options.settle_ms > 0).then_some(now_ms.saturating_add(options.settle_ms)),
            estate: Estate::new(options.estate),
            slots: (0..options.slots).map(|_| None).collect(),
            options,
            by_dea: BTreeMap::new(),
            by_instance: BTreeMap::new(),
            asking: BTreeMap::new(),
            due: BTreeSet::new(),
            estate_due_ms: now_ms + 1_000,
        })
    }

    /// Returns what was heard of the DEAs.
    pub fn estate(&self) -> &Estate {
        &self.estate
    }

    /// Returns how many live DEAs have no slot.
    pub fn without_slot(&self, now_ms: u64) -> usize {
        let live = self.estate.live(now_ms);
        live.filter(|(ad, _)| !self.by_dea.contains_key(&ad.id))
            .count()
    }

    /// Returns the cell of this name as it is now: the last advertisement of its DEA, less what was started since.
    pub fn cell(&self, name: &str, now_ms: u64) -> Option<Cell> {
        self.cell_of(self.slot_named(name)?, now_ms)
    }

    /// Returns the DEA behind a cell.
    pub fn dea_of(&self, cell: &str) -> Option<&str> {
        let slot = self.slots.get(self.slot_named(cell)?)?.as_ref()?;
        Some(&slot.dea)
    }

    /// Returns when [`BridgeInput::Tick`] is due next.
    pub fn next_ms(&self) -> u64 {
        let first = self.due.first().map_or(u64::MAX, |(due_ms, _)| *due_ms);
        let settles_ms = self.settles_ms.unwrap_or(u64::MAX);
        first.min(self.estate_due_ms).min(settles_ms)
    }

    /// Takes an input, and returns what is to be done. `now_ms` never decreases.
    pub fn handle(&mut self, now_ms: u64, input: BridgeInput<'_>) -> Vec<BridgeOutput> {
        let mut out = Vec::new();
        match input {
            BridgeInput::Heard { subject, body } => {
                let heard = EstateInput::Heard { subject, body };
                for change in self.estate.handle(now_ms, heard) {
                    self.changed(now_ms, change, &mut out);
                }
            }
            BridgeInput::Found(body) => self.found(now_ms, body, &mut out),
            BridgeInput::Start { cell, id, start } => {
                self.start(now_ms, (cell, id), *start, &mut out);
            }
            BridgeInput::Stop { cell, id } => self.stop(cell, id, &mut out),
            BridgeInput::Tick => self.tick(now_ms, &mut out),
        }
        out
    }

    fn tick(&mut self, now_ms: u64, out: &mut Vec<BridgeOutput>) {
        if self.settles_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            self.settles_ms = None;
            let live = self.estate.live(now_ms);
            let without = live.filter(|(ad, _)| !self.by_dea.contains_key(&ad.id));
            let without: Vec<String> = without.map(|(ad, _)| ad.id.clone()).collect();
            for dea in without {
                self.advertised(now_ms, &dea, out);
            }
        }
        if now_ms >= self.estate_due_ms {
            self.estate_due_ms = now_ms + 1_000;
            for change in self.estate.handle(now_ms, EstateInput::Tick) {
                self.changed(now_ms, change, out);
            }
        }
        self.ask_again(now_ms, out);
    }

    fn changed(&mut self, now_ms: u64, change: EstateChange, out: &mut Vec<BridgeOutput>) {
        match change {
            EstateChange::Joined(dea) | EstateChange::Advertised(dea) => {
                self.advertised(now_ms, &dea, out);
            }
            EstateChange::Left(dea, _) => self.advertise(now_ms, &dea, out),
            EstateChange::Forgotten(dea) => self.forgotten(&dea, out),
            EstateChange::Heartbeat(beat) => self.heartbeat(now_ms, &beat, out),
            EstateChange::Exited(exited) => self.exited(&exited, out),
        }
    }

    /// Splits a droplet version of this bridge into the slot that the DEA had when the droplet was started, and the
    /// instance's id. There is one way to write the number, so these two are the whole version.
    fn parts<'v>(&self, version: &'v str) -> Option<(usize, &'v str)> {
        let rest = version.strip_prefix(VERSION_PREFIX)?;
        let rest = rest.strip_prefix(&self.options.mark)?.strip_prefix('-')?;
        let (slot, id) = rest.split_once('-')?;
        let is_plain = slot == "0" || slot.starts_with(|first| matches!(first, '1'..='9'));
        Some((slot.parse().ok().filter(|_| is_plain)?, id))
    }

    fn id_of<'v>(&self, version: &'v str) -> Option<&'v str> {
        self.parts(version).map(|(_, id)| id)
    }

    /// Returns the droplet version of one of the cluster's instances.
    fn version(&self, slot: usize, id: &str) -> String {
        format!("{VERSION_PREFIX}{}-{slot}-{id}", self.options.mark)
    }

    /// Returns the cell that has an instance which has not ended, as far as is known.
    pub fn holder(&self, id: &str) -> Option<String> {
        self.tracked(id).filter(|tracked| !tracked.has_ended())?;
        Some(self.cell_name(*self.by_instance.get(id)?))
    }

    /// Returns whether its DEA has shown an instance.
    pub fn has_shown(&self, id: &str) -> bool {
        self.tracked(id)
            .is_some_and(|tracked| tracked.state.is_some())
    }

    fn found(&mut self, now_ms: u64, body: &[u8], out: &mut Vec<BridgeOutput>) {
        // a malformed message is no answer
        let read = <DeaFound as super::DeaBody>::read(body);
        if let Ok(found) = read {
            let dea = found.body.dea;
            self.seen(now_ms, &dea, &found.body.instance, out);
        }
    }
}

/// Serialises a body of the dialect; this never fails.
fn bytes(body: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_default()
}
