//! Open requests: the state of each instance, and where the reply goes.

use std::sync::Arc;

use bytes::Bytes;
use placement::{Request, Run, Unplaced};
use shared::wire::Outcome;

use crate::ids::{GroupId, TicketId};
use shared::{AuctionId, InstanceId, RequestId};

/// An instance of an open request.
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

/// Where the answer to a request goes: to a message that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) group: GroupId,
    pub(crate) position: usize,
}

/// An open request.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(crate) id: RequestId,
    /// Its id; cheap to clone.
    pub(crate) app: Arc<str>,
    pub(crate) request: Arc<Request>,
    /// What the cells execute.
    pub(crate) run: Option<Arc<Run>>,
    /// Where the instances named in `near` and `far` run, once the cells were asked.
    pub(crate) located: Option<Vec<(String, Arc<str>)>>,
    pub(crate) warnings: Vec<String>,
    pub(crate) instances: Vec<Instance>,
    /// Instances without a final outcome.
    pub(crate) open: usize,
    /// Where the reply goes.
    pub(crate) places: Vec<Place>,
    pub(crate) asked_ms: u64,
    pub(crate) deadline_ms: u64,
    /// The end of its queue timeout.
    pub(crate) queue_end_ms: u64,
    pub(crate) replied: bool,
    /// Its sender gave it its id, and may have sent it elsewhere, too.
    pub(crate) given: bool,
    /// The auction with which it was begun; its `asked` event is out.
    pub(crate) claim: Option<AuctionId>,
    /// Another auctioneer's claim counts: nothing more of it is sent from here.
    pub(crate) yielded: bool,
    /// Another auctioneer has begun it, too: what runs may change after our answer.
    pub(crate) contested: bool,
    /// That was announced, not only shown by an outcome.
    pub(crate) announced: bool,
    /// The answer of the auctioneer whose claim counts, where some of it was sent from here, too.
    pub(crate) theirs: Option<Bytes>,
    pub(crate) auction: Option<AuctionId>,
}

/// A request that this auctioneer began: what may run for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) app: Arc<str>,
    pub(crate) instances: Vec<InstanceId>,
}

impl Ticket {
    /// What may run for it.
    pub(crate) fn begun(&self) -> Begun {
        Begun {
            app: Arc::clone(&self.app),
            instances: self.instances.iter().map(|i| i.id).collect(),
        }
    }

    /// Its instances of which the cells are asked whether they run already, with their positions.
    pub(crate) fn checked(&self) -> impl Iterator<Item = (usize, &Instance)> {
        let instances = self.instances.iter().enumerate();
        instances.filter(|(_, instance)| matches!(instance.state, State::Checking))
    }

    /// Until when something can become of what waits: the reply, and after it the end of the queue timeout.
    pub(crate) fn ends_ms(&self) -> u64 {
        if self.replied {
            self.queue_end_ms
        } else {
            self.deadline_ms
        }
    }

    /// Whether some of it waits for an auction or is queued.
    pub(crate) fn waits(&self) -> bool {
        let waits = |state: &State| {
            matches!(
                state,
                State::Waiting | State::Held(_) | State::Shares(Some(_))
            )
        };
        self.instances.iter().any(|instance| waits(&instance.state))
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
    /// How many auctions it was in without being accepted.
    pub(crate) failures: u8,
    /// Of these, refusals because the cell had more of the app than expected.
    pub(crate) changed: u8,
    /// Its `queued` event was published.
    pub(crate) queued: bool,
    /// A cell was sent it.
    pub(crate) sent: bool,
    /// Instances of other requests that share its outcome.
    pub(crate) sharers: Vec<Slot>,
}

impl Instance {
    /// A new instance.
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
    /// Queued: fits nowhere now, and waits for the pool to change.
    Held(Arc<Unplaced>),
    /// Sent to a cell.
    Sent,
    /// The same as another request's instance, whose outcome it shares; why that was queued, if it was.
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
