//! The inputs and outputs of the auctioneer's state machine.

use std::sync::Arc;

use bytes::Bytes;
use placement::Request;
use shared::{
    AuctionId, RequestId,
    wire::{
        Acceptance, AddCells, Event, ExplainRequest, InstancesAnswer, Page, QueuedRequest, Stop,
        StopAnswer, WireError, kind,
    },
};

use crate::{
    feed::ReportKind,
    ids::{DispatchId, EchoToken, LookupId, ReplyKey, StopId},
    sim::SimulatedInput,
};

/// A start message after admission.
#[derive(Clone, Debug)]
pub struct StartMessage {
    /// Each request, in order, or why it was rejected.
    pub requests: Vec<Result<AdmittedRequest, Rejected>>,
    /// Whether the message was an array; its reply is one array, too.
    pub array: bool,
    /// Where the reply goes; none for a publisher without a reply subject.
    pub reply: Option<ReplyKey>,
}

/// A valid start request.
#[derive(Clone, Debug)]
pub struct AdmittedRequest {
    /// Its id, as sent or generated.
    pub id: RequestId,
    /// Its sender gave it its id, and may have sent it before.
    pub given: bool,
    /// The request, with the same id.
    pub request: Arc<Request>,
    /// Warnings for its sender.
    pub warnings: Vec<String>,
}

/// A rejected request, and what is known of it.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// Its id if that is valid, else a new one.
    pub id: RequestId,
    /// Its app if that is a valid name.
    pub app: Option<String>,
    /// Why.
    pub error: WireError,
}

/// A dry run: a decision that is only reported.
#[derive(Clone, Debug)]
pub struct DryRun {
    /// The requests.
    pub requests: Vec<AdmittedRequest>,
    /// Cells to leave out.
    pub without: Vec<String>,
    /// Cells to add.
    pub add_cells: Vec<AddCells>,
    /// How much to explain.
    pub explain: placement::Explain,
}

/// That an auctioneer has begun requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// With which auction.
    pub claim: AuctionId,
    /// Which requests.
    pub ids: Vec<RequestId>,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub enum AuctioneerInput {
    /// A start message.
    Start(StartMessage),
    /// A report of a cell.
    CellReport {
        /// What the message is.
        kind: ReportKind,
        /// The cell that its subject names.
        subject_cell: Option<String>,
        /// The message.
        body: Bytes,
    },
    /// A cell's answer to a start.
    StartAnswered {
        /// Which start.
        dispatch: DispatchId,
        /// The answer.
        answer: Box<Acceptance>,
    },
    /// There were no responders for a start.
    NoResponders {
        /// Which start.
        dispatch: DispatchId,
    },
    /// A message of another program that could not be read.
    Unreadable,
    /// A message whose body names another sender than its subject.
    WrongSubject,
    /// The outcome of a request, of this auctioneer or another one.
    Outcome {
        /// The request.
        id: RequestId,
        /// The whole reply.
        body: Bytes,
    },
    /// Requests that an auctioneer, this one or another, has begun.
    Announced(Announcement),
    /// A cell's answer to the question which instances run.
    InstancesReported {
        /// Which request.
        lookup: LookupId,
        /// The answer.
        answer: Box<InstancesAnswer>,
    },
    /// A stop.
    Stop {
        /// What to stop.
        stop: Stop,
        /// Where the reply goes.
        reply: Option<ReplyKey>,
    },
    /// A cell's answer to a stop.
    StopAnswered {
        /// Which stop.
        stop: StopId,
        /// The answer.
        answer: Box<StopAnswer>,
    },
    /// A dry run.
    DryRun {
        /// What to decide.
        dry_run: Box<DryRun>,
        /// Where the reply goes.
        reply: ReplyKey,
    },
    /// A request for the last decisions about an app.
    Explain {
        /// The request.
        explain: ExplainRequest,
        /// Where the reply goes.
        reply: ReplyKey,
    },
    /// A request for the cells in the pool.
    Pool {
        /// Which page.
        page: Page,
        /// Where the reply goes.
        reply: ReplyKey,
    },
    /// A request for the queued work.
    Queued {
        /// The filter and the limit.
        queued: QueuedRequest,
        /// Where the reply goes.
        reply: ReplyKey,
    },
    /// A request for capacity.
    Capacity {
        /// The size, as a request for one instance.
        size: Box<AdmittedRequest>,
        /// Where the reply goes.
        reply: ReplyKey,
    },
    /// A message that is invalid as a whole.
    Rejected {
        /// Why.
        rejected: Rejected,
        /// Where the reply goes.
        reply: Option<ReplyKey>,
    },
    /// The auctioneer's own echo arrived.
    Echo,
    /// An echo under its name with this token.
    EchoOf(EchoToken),
    /// The connection to NATS is up, or down.
    Connected(bool),
    /// Messages for this auctioneer were lost, although the connection is up.
    Missed,
    /// Accept no new requests, finish what is in flight.
    Shutdown,
    /// Many messages summarised by a driver of virtual time.
    Simulated(SimulatedInput),
}

/// One output.
#[derive(Clone, Debug)]
pub enum AuctioneerOutput {
    /// Ask every cell for a bid.
    AskBids {
        /// The auction.
        auction: AuctionId,
    },
    /// Ask one cell for its state.
    AskState {
        /// The cell.
        cell: Arc<str>,
    },
    /// Ask every cell for its instances.
    AskInstances {
        /// Which request.
        lookup: LookupId,
        /// The message.
        body: Bytes,
    },
    /// Tell a cell to kill what runs elsewhere for a lower claim.
    EndDuplicates {
        /// The cell.
        cell: Arc<str>,
        /// The message.
        body: Bytes,
    },
    /// Send a start to a cell.
    Start {
        /// Which start.
        dispatch: DispatchId,
        /// The cell.
        cell: Arc<str>,
        /// The message.
        body: Bytes,
    },
    /// Send a stop to every cell.
    StopCells {
        /// Which stop.
        stop: StopId,
        /// The message.
        body: Bytes,
    },
    /// Reply.
    Reply {
        /// To which message.
        to: ReplyKey,
        /// The reply.
        body: Bytes,
    },
    /// Reply with an error, in the body and in the headers.
    ReplyError {
        /// To which message.
        to: ReplyKey,
        /// The error.
        error: Box<WireError>,
    },
    /// Publish an event.
    Event(Box<Event>),
    /// Publish a request's outcome.
    Outcome {
        /// The request.
        id: RequestId,
        /// The whole reply.
        body: Bytes,
    },
    /// A cell's report could not be used; for the log.
    Dropped {
        /// The cell that its subject names; none for bids and states.
        cell: Option<String>,
        /// What is wrong with it.
        error: Box<WireError>,
    },
    /// An auction was held; for the log, so that it can be replayed.
    AuctionHeld {
        /// Its id.
        auction: AuctionId,
        /// Its seed.
        seed: u64,
        /// Jobs in it.
        jobs: usize,
        /// Cells in it.
        cells: usize,
        /// Jobs placed.
        placed: usize,
        /// Jobs queued.
        queued: usize,
        /// Jobs unplaced.
        unplaced: usize,
    },
}

impl AuctioneerOutput {
    /// Whether nobody waits for it but observers: it may be sent after everything else. Not so the
    /// announcement of a request, which must reach other auctioneers before its starts reach cells.
    pub fn is_for_observers(&self) -> bool {
        match self {
            Self::Event(event) => event.kind != kind::ASKED,
            other => matches!(other, Self::Outcome { .. }),
        }
    }
}
