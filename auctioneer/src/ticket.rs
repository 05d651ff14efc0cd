//! Requests on their way: what became of each instance, and who is to be told.

use std::sync::Arc;

use bytes::Bytes;
use placement::{Request, Run, Unplaced};
use shared::wire::Outcome;

use crate::{
    ids::{GroupId, TicketId},
    outcomes::Begun,
};
use shared::{AuctionId, InstanceId, RequestId};

/// An instance of a request on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot {
    pub(crate) ticket: TicketId,
    pub(crate) position: usize,
}

impl Slot {
    pub(crate) fn new(ticket: TicketId, position: usize) -> Self {
        Self { ticket, position }
    }
}

/// Where the answer to a request goes: one of those that a message awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) group: GroupId,
    pub(crate) position: usize,
}

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) id: RequestId,
    /// Shared by all that is kept of it.
    pub(crate) app: Arc<str>,
    pub(crate) request: Arc<Request>,
    /// What the cells execute.
    pub(crate) run: Option<Arc<Run>>,
    /// Where the instances run that its `near` and `far` name, once the cells were asked.
    pub(crate) located: Option<Vec<(String, Arc<str>)>>,
    pub(crate) warnings: Vec<String>,
    pub(crate) instances: Vec<Instance>,
    /// Instances without a final outcome.
    pub(crate) open: usize,
    /// Who is told.
    pub(crate) places: Vec<Place>,
    pub(crate) asked_ms: u64,
    pub(crate) deadline_ms: u64,
    /// Until then what fits nowhere waits.
    pub(crate) queue_end_ms: u64,
    pub(crate) replied: bool,
    /// Its sender gave it its id, and may have sent it elsewhere, too.
    pub(crate) given: bool,
    /// The auction with which it was begun; its `asked` event is out.
    pub(crate) claim: Option<AuctionId>,
    /// Another auctioneer's claim counts: nothing more of it is sent from here.
    pub(crate) yielded: bool,
    pub(crate) auction: Option<AuctionId>,
}

impl Ticket {
    /// What may run for it.
    pub(crate) fn begun(&self) -> Begun {
        Begun {
            app: Arc::clone(&self.app),
            instances: self.instances.iter().map(|i| i.id).collect(),
        }
    }

    /// Whether a cell was sent some of it.
    pub(crate) fn was_sent(&self) -> bool {
        self.instances.iter().any(|instance| instance.sent)
    }
}

/// One instance of it.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) index: u32,
    pub(crate) id: InstanceId,
    pub(crate) state: State,
    /// Auctions after which a cell did not take it.
    pub(crate) failures: u8,
    /// Of these, refusals because the cell held more of the app than believed.
    pub(crate) changed: u8,
    /// Its `queued` event is out.
    pub(crate) queued: bool,
    /// A cell was sent it.
    pub(crate) sent: bool,
    /// Instances of other requests that share its outcome.
    pub(crate) sharers: Vec<Slot>,
}

impl Instance {
    /// An instance of which nothing is known yet.
    pub(crate) fn new(index: u32, id: InstanceId) -> Self {
        Self {
            index,
            id,
            state: State::Checking,
            failures: 0,
            changed: 0,
            queued: false,
            sent: false,
            sharers: Vec::new(),
        }
    }
}

/// How far an instance is.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// Cells are asked whether it runs already.
    Checking,
    /// For the next auction.
    Waiting,
    /// Fits nowhere now; waits for the pool to change.
    Held(Arc<Unplaced>),
    /// Sent to a cell.
    Sent,
    /// Another request's instance is the same one.
    Shares,
    /// Final.
    Done(Done),
}

/// A final outcome.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) outcome: Outcome,
    pub(crate) cell: Option<Arc<str>>,
    pub(crate) why: Option<Arc<Unplaced>>,
    pub(crate) duplicate_of: Option<RequestId>,
}

impl Done {
    pub(crate) fn placed(cell: Arc<str>) -> Self {
        Self {
            outcome: Outcome::Placed,
            cell: Some(cell),
            why: None,
            duplicate_of: None,
        }
    }

    pub(crate) fn unplaced(why: Arc<Unplaced>) -> Self {
        Self {
            outcome: Outcome::Unplaced,
            cell: None,
            why: Some(why),
            duplicate_of: None,
        }
    }

    pub(crate) fn unknown(cell: Option<Arc<str>>, reason: &str) -> Self {
        Self {
            outcome: Outcome::Unknown,
            cell,
            why: Some(because(reason)),
            duplicate_of: None,
        }
    }
}

/// A reason without numbers.
pub(crate) fn because(reason: impl Into<String>) -> Arc<Unplaced> {
    Arc::new(Unplaced {
        reason: reason.into(),
        tally: Vec::new(),
    })
}

/// The answer to one request of a message.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) id: RequestId,
    pub(crate) app: Arc<str>,
    pub(crate) outcome: Outcome,
    pub(crate) body: Bytes,
}
