//! The state of the simulation: events, requests, instances, and auctions in progress.

use std::{collections::VecDeque, sync::Arc};

use placement::Request;

use super::super::auction::{Answer, Auction, QuestionKind};

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The demands of one moment are made, from this position on.
    Demand(usize),
    /// A request reaches a cell.
    Arrive(Question),
    /// All answers have arrived, or are too late.
    Continue { instance: u32 },
    /// An instance ends.
    End { placement: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Question {
    pub(super) instance: u32,
    pub(super) cell: u32,
    pub(super) ask: QuestionKind,
    /// The step of the auction to which it belongs; answers to earlier steps are dropped.
    pub(super) step: u32,
    pub(super) answering: Answering,
    /// How long the cell is busy with it, microseconds.
    pub(super) busy_us: u64,
}

/// What happens to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answering {
    InTime,
    Late,
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waits for a free slot of its auctioneer.
    Waiting,
    /// Its auction is in progress.
    Auction,
    /// The position of its placement.
    Placed(u32),
    /// Failed, stopped or ended.
    Over,
}

/// A requested instance.
pub(super) struct Instance {
    pub(super) request: Arc<Request>,
    pub(super) index: u32,
    pub(super) app: u32,
    /// The class of cells that may be asked.
    pub(super) class: usize,
    pub(super) asked_us: u64,
    pub(super) lifetime_us: Option<u64>,
    pub(super) state: State,
    /// Whether it is to be stopped as soon as it is placed.
    pub(super) stop: bool,
    pub(super) rounds: u32,
    pub(super) communications: u32,
}

/// An auction in progress, and the request that it waits for.
pub(super) struct OpenAuction {
    pub(super) auction: Auction,
    pub(super) auctioneer: usize,
    pub(super) step: u32,
    pub(super) ask: QuestionKind,
    pub(super) asked: Vec<u32>,
    pub(super) answers: Vec<Answer>,
    /// Whether the last request reaches no cell, or a cell that cannot serve it.
    pub(super) void: bool,
    pub(super) info_bytes: u64,
    pub(super) run_bytes: u64,
}

/// An auctioneer: how many auctions it holds and which instances wait for it.
#[derive(Default)]
pub(super) struct Slots {
    pub(super) busy: u32,
    pub(super) queue: VecDeque<u32>,
}
