//! What the world is made of: events, questions, instances, auctions under way.

use std::{collections::VecDeque, sync::Arc};

use placement::Request;

use super::super::auction::{Answer, Ask, Auction};

/// Something that happens. Ordered only because the heap wants it: the number before it decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// The next demand is due.
    Demand(usize),
    /// A question reaches a cell.
    Arrive(Question),
    /// All answers are there, or will not come any more.
    Continue { job: u32 },
    /// An instance ends.
    End { placement: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Question {
    pub(super) job: u32,
    pub(super) cell: u32,
    pub(super) ask: Ask,
    /// Of which step of the auction: the answer to another one is not waited for.
    pub(super) step: u32,
    pub(super) back: Back,
    /// How long the cell is busy with it, microseconds.
    pub(super) busy_us: u64,
}

/// What becomes of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Back {
    InTime,
    Late,
    Lost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// For an auctioneer.
    Waiting,
    Auction,
    Placed(u32),
    /// Failed, stopped or ended.
    Over,
}

/// An instance that was asked for.
pub(super) struct Job {
    pub(super) request: Arc<Request>,
    pub(super) index: u32,
    pub(super) app: u32,
    /// Which cells may be asked.
    pub(super) class: usize,
    pub(super) asked_us: u64,
    pub(super) lifetime_us: Option<u64>,
    pub(super) state: State,
    /// It is to be stopped as soon as it has a place.
    pub(super) stop: bool,
    pub(super) rounds: u32,
    pub(super) communications: u32,
}

/// An auction under way, and the question that is out.
pub(super) struct Open {
    pub(super) auction: Auction,
    pub(super) auctioneer: usize,
    pub(super) step: u32,
    pub(super) ask: Ask,
    pub(super) asked: Vec<u32>,
    pub(super) answers: Vec<Answer>,
    /// The last question never arrives, or in vain.
    pub(super) void: bool,
    pub(super) info_bytes: u64,
    pub(super) run_bytes: u64,
}

#[derive(Default)]
pub(super) struct Auctioneer {
    pub(super) busy: u32,
    pub(super) queue: VecDeque<u32>,
}
