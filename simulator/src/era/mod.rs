//! The auctions that Diego held over NATS in 2014, before it had one auctioneer that sees all
//! cells: for comparison, over the same cells and demands as every policy.
//!
//! Each instance has an auction of its own; every auctioneer holds many at a time. An auction asks
//! a random part of the cells (the bidding pool) for bids, in rounds, until a cell has reserved
//! room and is told to run the instance, or the rounds are used up. Reservations hold room while
//! the other auctions go on, so the auctions get in each other's way as they did.
//!
//! Everything happens in virtual time and comes from the seed: the same input gives the same
//! result.

mod auction;
mod cells;
mod report;
mod rules;
mod sizes;
mod world;

use std::{collections::BTreeMap, sync::Arc};

use placement::{Cell, Request};

pub use report::outcome;
pub use rules::{Algorithm, Rules};

use crate::{demand::Demand, outcome::Traffic, random::Distribution};

/// What messages go through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// For each message. Within a process it was `uniform:1ms..2ms` in 2014.
    pub latency: Distribution,
    /// The share of messages that are lost, each independently, 0 to 1.
    pub loss: f64,
}

/// What a run depends on besides cells and demands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// How the auctions go.
    pub rules: Rules,
    /// What their messages go through.
    pub network: Network,
    /// Decides every draw.
    pub seed: u64,
    /// Nothing happens after this; `None`: until all is settled.
    pub until_ms: Option<u64>,
}

/// What came of the demands.
#[derive(Clone, Debug, PartialEq)]
pub struct EraResult {
    /// Instances that got a place, by the time they got it.
    pub placements: Vec<Placement>,
    /// Instances that got none, by the time that was known.
    pub failures: Vec<Failure>,
    /// Instances that were stopped before they had a place.
    pub cancelled: u64,
    /// Instances without an outcome at the end.
    pub waiting: u64,
    /// Auctions begun.
    pub auctions: u64,
    /// Reservations that nobody will ever release or use: messages about them were lost.
    pub leaked: u64,
    /// Messages by kind: `bid request`, `bid`, `reserve`, `reserve answer`, `release`,
    /// `release answer`, `run`, `run answer`, `stop`, `stop answer`.
    pub messages: BTreeMap<String, Traffic>,
    /// The cells at the end, in the order given; what is reserved counts as used.
    pub cells: Vec<Cell>,
    /// When the last thing happened, on the virtual clock, rounded up; `until_ms` where it is given.
    pub ended_ms: u64,
}

/// An instance that got a place.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// Its request.
    pub request: Arc<Request>,
    /// Which instance.
    pub index: u32,
    /// Position in the list of cells.
    pub cell: u32,
    /// When the cell was told to run it, microseconds of virtual time.
    pub at_us: u64,
    /// From the demand until then, microseconds: the wait for a free auctioneer included, the
    /// duration of the start itself not.
    pub wait_us: u64,
    /// In how many rounds it was, from 1.
    pub rounds: u32,
    /// Requests to cells that its auction took, answers not counted.
    pub communications: u32,
    /// When it ended, microseconds; `None`: it ran on.
    pub ended_us: Option<u64>,
}

/// An instance that got no place.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Its request.
    pub request: Arc<Request>,
    /// Which instance.
    pub index: u32,
    /// When that was known, microseconds of virtual time.
    pub at_us: u64,
    /// Rounds that it took.
    pub rounds: u32,
    /// Requests to cells that its auction took, answers not counted.
    pub communications: u32,
    /// Why.
    pub reason: &'static str,
}

/// Holds an auction for every instance that is asked for. Demands are taken in their order, which
/// is by time. A task is auctioned like an app without other instances; stops go straight to the
/// cells (only to instances that were placed here) and are never lost.
pub fn run(cells: &[Cell], demands: &[Demand], setting: &Setting) -> EraResult {
    run_watched(cells, demands, setting, &mut |_| true).0
}

/// As [`run`]; `watch` is told the virtual time in milliseconds now and then. When it returns false
/// the result so far comes at once, and the second value is true.
pub fn run_watched(
    cells: &[Cell],
    demands: &[Demand],
    setting: &Setting,
    watch: &mut dyn FnMut(u64) -> bool,
) -> (EraResult, bool) {
    world::World::new(cells, demands, setting).run(watch)
}

#[cfg(test)]
mod tests;
