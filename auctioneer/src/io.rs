//! What goes into the auctioneer's state machine and what comes out of it.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use placement::Request;
use shared::wire::{
    Acceptance, AddCells, Advert, Event, Explain, InstancesAnswer, Page, Stop, StopAnswer,
    WireError,
};
use uuid::Uuid;

use crate::feed::Word;

/// Names a message that awaits its answer; the shell knows whose it is.
pub type ReplyKey = u64;

/// A start message as it came through the door.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Each request, in order, or why it was turned away.
    pub requests: Vec<Result<AskedRequest, Rejected>>,
    /// Whether it was an array: then the answer is one, too.
    pub array: bool,
    /// Where the answer goes; none for a publisher without a reply subject.
    pub reply: Option<ReplyKey>,
}

/// A valid request; its id is set.
#[derive(Clone, Debug)]
pub struct AskedRequest {
    /// With its id.
    pub request: Arc<Request>,
    /// What its sender should know.
    pub warnings: Vec<String>,
}

/// A request that was turned away, and what is known of it.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// Its id, when it can stand in a subject; else a new one.
    pub id: String,
    /// Its app, when it can stand in a subject.
    pub app: Option<String>,
    /// Why.
    pub error: WireError,
}

/// A dry run.
#[derive(Clone, Debug)]
pub struct Place {
    /// What would be asked for.
    pub requests: Vec<AskedRequest>,
    /// As if these cells were not there.
    pub without: Vec<String>,
    /// As if there were more.
    pub add_cells: Vec<AddCells>,
    /// How much to explain.
    pub explain: placement::Explain,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// A start message.
    Start(Asked),
    /// A cell's word.
    Heard {
        /// What it was.
        word: Word,
        /// The cell that its subject names.
        subject_cell: Option<String>,
        /// As it came.
        body: Bytes,
    },
    /// A cell's word that was never written out: what a driver in the same process hands over.
    Said {
        /// What it was.
        word: Word,
        /// The word.
        said: Arc<Advert>,
    },
    /// Every known cell but these said that its last word holds: what a driver of virtual time
    /// puts in the place of as many bids or advertisements. It answers for it that each is known in
    /// its present version.
    Unchanged {
        /// The auction that they bid in; none: they advertised.
        auction: Option<Uuid>,
        /// Those that said nothing, or something else.
        except: BTreeSet<Arc<str>>,
    },
    /// A cell's answer to a start.
    Answered {
        /// Which start.
        dispatch: u64,
        /// The answer.
        answer: Box<Acceptance>,
    },
    /// The server says that nobody listens for a start.
    NobodyListens {
        /// Which start.
        dispatch: u64,
    },
    /// An answer that cannot be read.
    Garbled,
    /// The outcome of a request, ours or another auctioneer's.
    Outcome {
        /// The request.
        id: String,
        /// The whole answer.
        body: Bytes,
    },
    /// Requests that an auctioneer, maybe another one, has begun.
    Begun(Vec<String>),
    /// A cell's answer to the question what runs.
    Found {
        /// Which question.
        query: u64,
        /// The answer.
        answer: Box<InstancesAnswer>,
    },
    /// A stop.
    Stop {
        /// What to stop.
        stop: Stop,
        /// Where the answer goes.
        reply: Option<ReplyKey>,
    },
    /// A cell's answer to a stop.
    Stopped {
        /// Which stop.
        query: u64,
        /// The answer.
        answer: Box<StopAnswer>,
    },
    /// A dry run.
    Place {
        /// What.
        place: Box<Place>,
        /// Where the answer goes.
        reply: ReplyKey,
    },
    /// "Why did it go where it went?"
    Explain {
        /// The question.
        explain: Explain,
        /// Where the answer goes.
        reply: ReplyKey,
    },
    /// "Which cells do you see?"
    Pool {
        /// Which part.
        page: Page,
        /// Where the answer goes.
        reply: ReplyKey,
    },
    /// "How many more of this size fit?"
    Capacity {
        /// The size, as a request for one.
        asked: Box<AskedRequest>,
        /// Where the answer goes.
        reply: ReplyKey,
    },
    /// A message to the door that cannot be used at all.
    Rejected {
        /// Why.
        rejected: Rejected,
        /// Where the answer goes.
        reply: Option<ReplyKey>,
    },
    /// Our own echo.
    Echo,
    /// The connection came or went.
    Connected(bool),
    /// Take nothing new, finish what is in flight.
    Leave,
}

/// One thing to do.
#[derive(Clone, Debug)]
pub enum Output {
    /// Ask every cell for a bid.
    AskBids {
        /// The auction.
        auction: Uuid,
    },
    /// Ask one cell for its state.
    AskState {
        /// The cell.
        cell: Arc<str>,
    },
    /// Ask every cell what runs.
    AskInstances {
        /// The question's number.
        query: u64,
        /// Its body.
        body: Bytes,
    },
    /// Send a start to a cell.
    Start {
        /// The start's number.
        dispatch: u64,
        /// The cell.
        cell: Arc<str>,
        /// Its body.
        body: Bytes,
    },
    /// Tell every cell to stop something.
    StopCells {
        /// The question's number.
        query: u64,
        /// Its body.
        body: Bytes,
    },
    /// Answer.
    Reply {
        /// Whom.
        to: ReplyKey,
        /// The body.
        body: Bytes,
    },
    /// Answer with an error: its body and the two headers.
    ReplyError {
        /// Whom.
        to: ReplyKey,
        /// The error.
        error: Box<WireError>,
    },
    /// Publish an event.
    Event(Box<Event>),
    /// Publish a request's outcome.
    Outcome {
        /// The request.
        id: Arc<str>,
        /// The whole answer.
        body: Bytes,
    },
    /// An auction was held: for the log, so that it can be replayed.
    Held {
        /// Its id.
        auction: Uuid,
        /// Its seed.
        seed: u64,
        /// Jobs in it.
        jobs: usize,
        /// Cells in it.
        cells: usize,
        /// Jobs placed.
        placed: usize,
    },
}
