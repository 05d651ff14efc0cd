//! The auctions that Diego held over NATS in 2014, before one auctioneer saw all cells: for comparison, run over the
//! same cells and demands as every policy.
//!
//! Each instance has its own auction; every auctioneer holds many at a time. An auction asks a
//! random part of the cells (the bidding pool) for bids, in rounds, until a cell has reserved and
//! is told to run the instance, or the maximum of rounds is reached. Reservations count while other
//! auctions go on, so concurrent auctions interfere.
//!
//! The algorithms and the formula of a bid are those of cloudfoundry/auction and cloudfoundry/rep
//! between May and October 2014. Everything happens in virtual time and follows from the seed.
//!
//! Read `auction` first (one auction as a state machine), then `world` (messages and cells).

mod auction;
mod cells;
mod report;
mod rules;
mod sizes;
mod world;

use std::{collections::BTreeMap, sync::Arc};

use placement::{Cell, Request};

pub use report::outcome;
pub use rules::{Algorithm, Order, Rules};

use crate::{demand::Demand, network::Network, outcome::Traffic};

/// What a run depends on besides cells and demands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AuctionSettings {
    /// The rules of the auctions.
    pub rules: Rules,
    /// How messages travel: a request takes one latency and its answer another.
    pub network: Network,
    /// Determines every random choice.
    pub seed: u64,
    /// When the run ends; `None`: when everything has its outcome.
    pub until_ms: Option<u64>,
}

/// The outcome of the demands.
#[derive(Clone, Debug, PartialEq)]
pub struct AuctionsResult {
    /// Instances that were placed, by time.
    pub placements: Vec<AuctionPlacement>,
    /// Instances that were not placed, by time.
    pub failures: Vec<AuctionFailure>,
    /// Instances that were stopped before they were placed.
    pub cancelled: u64,
    /// Instances without an outcome at the end.
    pub waiting: u64,
    /// Auctions begun.
    pub auctions: u64,
    /// Reservations that are never released or used because messages about them were lost.
    pub leaked: u64,
    /// Messages by kind: `bid request`, `bid`, `reserve`, `reserve answer`, `release`,
    /// `release answer`, `run`, `run answer`, `stop`, `stop answer`.
    pub messages: BTreeMap<String, Traffic>,
    /// The cells at the end, in the given order; reservations count as used.
    pub cells: Vec<Cell>,
    /// When the last event happened, milliseconds of virtual time, rounded up; `until_ms` where that is
    /// given.
    pub ended_ms: u64,
}

/// An instance that was placed.
#[derive(Clone, Debug, PartialEq)]
pub struct AuctionPlacement {
    /// Its request.
    pub request: Arc<Request>,
    /// The index of the instance.
    pub index: u32,
    /// Position in the list of cells.
    pub cell: u32,
    /// When the order to run reached the cell, microseconds of virtual time.
    pub at_us: u64,
    /// From the demand until then, in microseconds, including the wait for a free auctioneer but not the start itself.
    pub wait_us: u64,
    /// Rounds of its auction.
    pub rounds: u32,
    /// Requests that its auction sent to cells.
    pub communications: u32,
    /// When it ended, microseconds; `None`: it ran to the end.
    pub ended_us: Option<u64>,
}

/// An instance that was not placed.
#[derive(Clone, Debug, PartialEq)]
pub struct AuctionFailure {
    /// Its request.
    pub request: Arc<Request>,
    /// The index of the instance.
    pub index: u32,
    /// When its auction failed, microseconds of virtual time.
    pub at_us: u64,
    /// Rounds of its auction.
    pub rounds: u32,
    /// Requests that its auction sent to cells.
    pub communications: u32,
    /// Why.
    pub reason: &'static str,
}

/// Holds an auction for every requested instance. `demands` are sorted by time. A task is auctioned
/// like an app without other instances; stops go straight to the cells (only to instances that were
/// placed in the run) and are never lost.
pub fn run(cells: &[Cell], demands: &[Demand], settings: &AuctionSettings) -> AuctionsResult {
    run_watched(cells, demands, settings, &mut |_| true).0
}

/// Like [`run`], but calls `watch` with the virtual time in milliseconds now and then. If it returns false the run
/// ends, and the second value is true.
pub fn run_watched(
    cells: &[Cell],
    demands: &[Demand],
    settings: &AuctionSettings,
    watch: &mut dyn FnMut(u64) -> bool,
) -> (AuctionsResult, bool) {
    world::World::new(cells, demands, settings).run(watch)
}

#[cfg(test)]
mod tests;
