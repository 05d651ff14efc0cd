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
    grant::Standing,
    ids::{DispatchId, EchoToken, LookupId, ReplyKey, StopId},
    sim::SimulatedInput,
};

/// A start message after admission.
#[derive(Clone, Debug)]
pub struct StartMessage {
    /// The requests in order; for an invalid one, why it was rejected.
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
    /// Whether the sender chose the id, and may have sent the request before.
    pub given: bool,
    /// The request, with the same id.
    pub request: Arc<Request>,
    /// Warnings for its sender.
    pub warnings: Vec<String>,
}

/// A rejected request and what is known of it.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// Its id if valid, else a new one.
    pub id: RequestId,
    /// Its app if valid as a name.
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

/// An announcement that an auctioneer has begun requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The auction that it began them with.
    pub claim: AuctionId,
    /// The requests.
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
    /// An unreadable message of another program.
    Unreadable,
    /// A message whose body names another sender than its subject.
    WrongSubject,
    /// The outcome of a request, from this auctioneer or another one.
    Outcome {
        /// The request.
        id: RequestId,
        /// The whole reply.
        body: Bytes,
    },
    /// Requests that an auctioneer, this one or another, has begun.
    Announced(Announcement),
    /// A cell's answer to the question which instances it has.
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
    /// An echo under this auctioneer's name, with this token.
    EchoOf(EchoToken),
    /// The connection to NATS is up, or down.
    Connected(bool),
    /// Messages for this auctioneer were lost although the connection is up.
    Missed,
    /// Whether auctions may be held (`--single`); they may until this is said.
    Standing(Standing),
    /// Accept no new requests and finish what is in flight.
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
    /// Tell a cell to kill instances that run elsewhere under a lower claim.
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

impl AuctioneerInput {
    /// Whether it comes from this process: then it proves nothing about messages.
    pub(crate) fn is_own(&self) -> bool {
        matches!(
            self,
            Self::Connected(_) | Self::Standing(_) | Self::Shutdown
        )
    }
}

impl AuctioneerOutput {
    /// Returns whether only observers wait for it, so that it may be sent after everything else. The announcement of a
    /// request is different: it must reach other auctioneers before the starts reach cells.
    pub fn is_for_observers(&self) -> bool {
        match self {
            Self::Event(event) => event.kind != kind::ASKED,
            other => matches!(other, Self::Outcome { .. }),
        }
    }
}
