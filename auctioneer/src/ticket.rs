//! Open requests: the state of each instance, and where the reply goes.

use std::sync::Arc;

use bytes::Bytes;
use placement::{Request, Run, Unplaced};
use shared::wire::Outcome;

use crate::ids::{GroupId, TicketId};
use shared::{AuctionId, InstanceId, RequestId};

/// Identifies an instance of an open request.
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

/// Where the answer to a request goes: its position in a message that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) group: GroupId,
    pub(crate) position: usize,
}

/// An open request.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) id: RequestId,
    /// Its app; cheap to clone.
    pub(crate) app: Arc<str>,
    pub(crate) request: Arc<Request>,
    /// What the cells execute.
    pub(crate) run: Option<Arc<Run>>,
    /// Where the instances named in `near` and `far` run, once the cells have been asked.
    pub(crate) located: Option<Vec<(String, Arc<str>)>>,
    pub(crate) warnings: Vec<String>,
    pub(crate) instances: Vec<Instance>,
    /// Instances without a final outcome.
    pub(crate) open: usize,
    /// Where the reply goes.
    pub(crate) places: Vec<Place>,
    pub(crate) asked_ms: u64,
    pub(crate) deadline_ms: u64,
    /// The end of its queue timeout; without one the end of the time for which it may be deferred, once it is.
    pub(crate) queue_end_ms: u64,
    pub(crate) replied: bool,
    /// Whether its sender chose the id, and may have sent the request elsewhere, too.
    pub(crate) given: bool,
    /// The auction with which it was begun; its `asked` event has been sent.
    pub(crate) claim: Option<AuctionId>,
    /// Whether another auctioneer's claim counts: nothing more of it is sent from here.
    pub(crate) yielded: bool,
    /// Whether another auctioneer has begun it, too: what runs may change after our answer.
    pub(crate) contested: bool,
    /// Whether that was announced, not only implied by an outcome.
    pub(crate) announced: bool,
    /// The answer of another auctioneer that has begun it, too, kept until the cells show what runs.
    pub(crate) theirs: Option<Bytes>,
    pub(crate) auction: Option<AuctionId>,
}

/// A request that this auctioneer began, and what may run for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) app: Arc<str>,
    pub(crate) instances: Vec<InstanceId>,
}

impl Ticket {
    /// Returns what may run for it.
    pub(crate) fn begun(&self) -> Begun {
        Begun {
            app: Arc::clone(&self.app),
            instances: self.instances.iter().map(|i| i.id).collect(),
        }
    }

    /// Returns the instances that the cells are being asked about, with their positions.
    pub(crate) fn checked(&self) -> impl Iterator<Item = (usize, &Instance)> {
        let instances = self.instances.iter().enumerate();
        instances.filter(|(_, instance)| matches!(instance.state, State::Checking))
    }

    /// Returns until when waiting work can still change: the reply or, after it, the end of the queue timeout.
    pub(crate) fn ends_ms(&self) -> u64 {
        if self.replied {
            self.queue_end_ms
        } else {
            self.deadline_ms
        }
    }

    /// Returns whether any of it waits for an auction or is queued.
    pub(crate) fn waits(&self) -> bool {
        let waits = |state: &State| {
            matches!(
                state,
                State::Waiting | State::Held(_) | State::Shares(Some(_))
            )
        };
        self.instances.iter().any(|instance| waits(&instance.state))
    }

    /// Returns whether any of it was sent to a cell.
    pub(crate) fn was_sent(&self) -> bool {
        self.instances.iter().any(|instance| instance.sent)
    }
}

/// One instance of a request.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) index: u32,
    pub(crate) id: InstanceId,
    pub(crate) state: State,
    /// How many auctions it was in without being accepted.
    pub(crate) failures: u8,
    /// How many of those were refusals because the cell had more of the app than expected.
    pub(crate) changed: u8,
    /// Whether its `queued` event was published.
    pub(crate) queued: bool,
    /// Whether it was sent to a cell.
    pub(crate) sent: bool,
    /// Instances of other requests that share its outcome.
    pub(crate) sharers: Vec<Slot>,
}

impl Instance {
    /// Creates an instance in state [`State::Checking`].
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

/// The state of an instance.
#[derive(Clone, Debug)]
pub(crate) enum State {
    /// Cells are being asked whether it runs already.
    Checking,
    /// Waits for the next auction.
    Waiting,
    /// Queued: fits nowhere now and waits for the pool to change.
    Held(Arc<Unplaced>),
    /// Sent to a cell.
    Sent,
    /// Shares the outcome of another request's identical instance; with the reason if that one was queued.
    Shares(Option<Arc<Unplaced>>),
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

/// Returns a reason without numbers.
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
