//! Checks that the promises of the protocol hold when much goes wrong: the machines of auctioneers and cells, with
//! clients that repeat their requests, run over a model of NATS in virtual time, with faults drawn from a seed. After
//! every step the `invariants` are checked.
//!
//! - `script`: what is requested and what fails when; drawn from the seed, and plain data, so that a failing script can
//!   be made smaller (`shrink`).
//! - `bus`: the model of NATS. `world` plays a script over it.
//! - `bucket`: the model of JetStream's key-value store, for managers.
//! - `node`: what a machine on the bus is. `auctioneer`, `cell`, `manager` and `client` are the kinds.
//! - `deas`: an estate of DEAs with the bridge to it, and the course of events that `vendue sim estate` plays.
//! - `timeline`: what happened, for people.
//!
//! To add a machine, implement `node::Node` and put it into `world::World::new`. To add an invariant,
//! write a function in `invariants`.

mod auctioneer;
mod bus;
mod cell;
mod client;
mod deas;
mod invariants;
mod manager;
mod node;
mod script;
mod shrink;
mod timeline;
mod world;

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

pub use self::deas::{EstateLook, EstateRun, move_from_deas};
use self::script::Script;

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: &'static str,
    /// When, in milliseconds of virtual time.
    pub at_ms: u64,
    /// What was wrong.
    pub what: String,
}

/// A seed that broke a promise, with its script made as small as possible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// What was broken.
    pub violation: Violation,
    /// Number of requests and faults before and after the script was made smaller.
    pub steps: (usize, usize),
    /// What happened, one line each.
    pub timeline: Vec<String>,
}

/// The results of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Number of seeds played.
    pub seeds: u64,
    /// Number of events in them.
    pub events: u64,
    /// Number of requested starts, including all repeats.
    pub asked: u64,
    /// Number of commands to managers.
    pub commands: u64,
    /// Number of tasks and durable requests sent to managers, including all repeats.
    pub tasks: u64,
    /// Number of seeds in which managers ran.
    pub managed: u64,
    /// Faults, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Number of instances that ran twice for a moment, within what is promised.
    pub short_doubles: u64,
    /// The longest of these moments, in milliseconds.
    pub longest_double_ms: u64,
    /// Number of seeds that broke a promise, by invariant.
    pub violations: BTreeMap<&'static str, u64>,
    /// The first failing seed of each invariant.
    pub failures: Vec<Failure>,
}

/// Plays one seed. Returns the broken promise, if any, with a small script and its timeline.
pub fn check_seed(seed: u64) -> (CheckReport, Option<Failure>) {
    let script = Script::draw(seed);
    let mut report = CheckReport {
        seeds: 1,
        ..CheckReport::default()
    };
    let violation = invariants::play(&script, false, &mut report).0;
    let failure = violation.map(|violation| shrink::shrink(&script, violation));
    (report, failure)
}

/// Returns what happened in one seed, whether it broke a promise or not.
pub fn replay(seed: u64) -> (Vec<String>, Option<Violation>) {
    let (violation, timeline) =
        invariants::play(&Script::draw(seed), true, &mut CheckReport::default());
    (timeline, violation)
}

/// Plays these seeds on `threads` threads. `watch` gets the number of seeds played and failed now and then, and ends
/// the check by returning false.
pub fn check_seeds(
    seeds: std::ops::Range<u64>,
    threads: usize,
    watch: &(dyn Fn(u64, u64) -> bool + Sync),
) -> CheckReport {
    let next = AtomicU64::new(seeds.start);
    let end = AtomicBool::new(false);
    let total = Mutex::new(CheckReport::default());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !end.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let script = Script::draw(seed);
                    let mut one = CheckReport {
                        seeds: 1,
                        ..CheckReport::default()
                    };
                    let violation = invariants::play(&script, false, &mut one).0;
                    let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                    total.add(&one);
                    if let Some(violation) = violation {
                        total.failed(&script, violation);
                    }
                    let failed = total.violations.values().sum();
                    if !watch(total.seeds, failed) {
                        end.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    total.failures.sort_by_key(|failure| failure.seed);
    total
}

impl CheckReport {
    fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.events += other.events;
        self.asked += other.asked;
        self.commands += other.commands;
        self.tasks += other.tasks;
        self.managed += other.managed;
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        self.short_doubles += other.short_doubles;
        self.longest_double_ms = self.longest_double_ms.max(other.longest_double_ms);
    }

    /// Counts a failed seed. The first one of each invariant is made small and kept.
    fn failed(&mut self, script: &Script, violation: Violation) {
        let count = self.violations.entry(violation.invariant).or_default();
        *count += 1;
        if *count == 1 {
            self.failures.push(shrink::shrink(script, violation));
        }
    }
}

#[cfg(test)]
mod tests;
