//! Opens requests: each is new, a repeat of another one, or rejected.

use std::{sync::Arc, time::Duration};

use placement::{Invalid, Span};
use shared::{
    AttemptId,
    clock::millis,
    wire::{Outcome, WireError, code, instance_id, to_bytes},
};

use super::Requests;
use crate::{
    ids::{GroupId, TicketId},
    io::{AdmittedRequest, Rejected, StartMessage},
    outcomes::{Seen, other_app},
    reply,
    ticket::{Answer, Instance, Place, Ticket},
    turn::Turn,
};

/// The most jobs that may wait for an auction or be queued.
pub const MAX_WAITING: usize = 200_000;
/// The default deadline of a reply.
pub const DEFAULT_DEADLINE_MS: u64 = 4_000;

/// A new request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Opened {
    pub(crate) ticket: TicketId,
    /// Whether it may run already: the cells are asked first.
    pub(crate) unsure: bool,
}

impl Requests {
    /// Opens a group for a message whose requests are opened one by one.
    pub(crate) fn open_group(&mut self, message: &StartMessage) -> GroupId {
        let count = message.requests.len();
        self.groups.open(count, message.array, message.reply)
    }

    /// Takes a request: opens it if it is new, gives it the answer of the one with the same id, or rejects it.
    pub(crate) fn take(
        &mut self,
        turn: &mut Turn,
        asked: AdmittedRequest,
        place: Place,
    ) -> Result<Option<Opened>, Rejected> {
        let id = asked.request.id.as_str();
        // before the outcomes: if a request is open here, a remembered outcome of it came from elsewhere
        if let Some(ticket) = self.by_id.get(id).copied() {
            self.repeat(turn, ticket, &asked, place)?;
            return Ok(None);
        }
        let seen = self.outcomes.get(id);
        if let Some(Seen::Ended(body) | Seen::Unsure(Some(body))) = &seen {
            let (body, most) = (body.clone(), turn.max_payload);
            let answer = Answer::remembered(&asked.id, &asked.request, body, most);
            let answer = answer.map_err(|error| rejected(&asked, error))?;
            // for an uncertain outcome, only the app is checked, above; then the cells are asked
            if matches!(seen, Some(Seen::Ended(_))) {
                turn.counters.repeats += 1;
                self.groups.fill(turn, place, answer);
                return Ok(None);
            }
        }
        let jobs = match &asked.request.indices {
            Some(indices) => indices.len(),
            None => asked.request.instances as usize,
        };
        let refuse = |code, message| rejected(&asked, WireError::new(code, message));
        if self.closing {
            let message = format!("{} is shutting down", self.auctioneer);
            return Err(refuse(code::SHUTTING_DOWN, message));
        }
        if !self.holds_auctions() {
            let message = format!(
                "{} does not hold the grant (--single), and begins nothing; try again",
                self.auctioneer
            );
            return Err(refuse(code::OVERLOADED, message));
        }
        if self.stood_still && AttemptId::parse(id).is_some() {
            // its manager may have given it up in the meantime
            let message = format!(
                "{} stood still, and does not begin what was sent before; try again",
                self.auctioneer
            );
            return Err(refuse(code::OVERLOADED, message));
        }
        // after the repeats: they add no waiting work, and must get their answer even when all is full
        let waiting = self.queue.count();
        if waiting + jobs > MAX_WAITING {
            turn.counters.overloaded += 1;
            let message = format!(
                "{waiting} jobs are waiting; {jobs} more would exceed the limit of {MAX_WAITING}"
            );
            return Err(refuse(code::OVERLOADED, message));
        }
        if let Some(message) = self.shares.refusal(&asked.request, jobs) {
            turn.counters.overloaded += 1;
            return Err(refuse(code::OVERLOADED, message));
        }
        if let Some(error) = self.too_long(&asked) {
            return Err(rejected(&asked, error));
        }
        turn.counters.repeats += u64::from(seen.is_some());
        // nobody else can have begun an id that was generated here
        let unsure = seen.is_some() || (asked.given && turn.now_ms < self.unsure_until_ms);
        Ok(Some(Opened {
            ticket: self.open(turn, asked, place),
            unsure,
        }))
    }

    /// Returns an error if the request would wait for longer than the operator allows.
    fn too_long(&self, asked: &AdmittedRequest) -> Option<WireError> {
        let wait = asked.request.queue_timeout?;
        let most = Span(Duration::from_millis(self.max_queue_ms));
        (wait.0 > most.0).then(|| {
            let expected =
                format!("at most {most}, which --max-queue-timeout of the auctioneer sets");
            Invalid::new("queue_timeout", wait.to_string(), expected).into()
        })
    }

    fn open(&mut self, turn: &mut Turn, asked: AdmittedRequest, place: Place) -> TicketId {
        turn.counters.requests += 1;
        self.next_ticket += 1;
        let key = TicketId::new(self.next_ticket);
        let (request, id, now_ms) = (asked.request, asked.id, turn.now_ms);
        let instance = |index| {
            Instance::new(
                index,
                instance_id(id.as_str(), &request.app, request.kind, index),
            )
        };
        let instances: Vec<Instance> = match &request.indices {
            Some(indices) => indices.iter().copied().map(instance).collect(),
            None => (0..request.instances).map(instance).collect(),
        };
        let span = |span: Option<Span>, default| span.map_or(default, |s| millis(s.0));
        let deadline_ms = now_ms + span(request.deadline, DEFAULT_DEADLINE_MS);
        let queue_end_ms = now_ms + span(request.queue_timeout, 0);
        self.shares.add(&request, instances.len());
        self.deadlines.insert((deadline_ms, key));
        if request.queue_timeout.is_some() {
            self.queue_ends.insert((queue_end_ms, key));
        }
        self.by_id.insert(id.clone(), key);
        let ticket = Ticket {
            id,
            app: request.app.as_str().into(),
            run: request.run.clone().map(Arc::new),
            located: None,
            warnings: asked.warnings,
            open: instances.len(),
            instances,
            places: vec![place],
            asked_ms: now_ms,
            deadline_ms,
            queue_end_ms,
            replied: false,
            given: asked.given,
            claim: None,
            yielded: false,
            contested: false,
            announced: false,
            theirs: None,
            auction: None,
            request,
        };
        self.tickets.insert(key, ticket);
        key
    }

    /// Handles a request that is already open: both senders get its answer.
    fn repeat(
        &mut self,
        turn: &mut Turn,
        key: TicketId,
        asked: &AdmittedRequest,
        place: Place,
    ) -> Result<(), Rejected> {
        let Some(ticket) = self.tickets.get_mut(&key) else {
            return Ok(());
        };
        // an id names one request: a client that mixes up two must not get the other's answer
        if ticket.app.as_ref() != asked.request.app {
            return Err(rejected(asked, other_app(&asked.request, &ticket.app)));
        }
        turn.counters.repeats += 1;
        if ticket.request != asked.request {
            let warning =
                "duplicate request id with a different body; the first body is used".to_owned();
            if !ticket.warnings.contains(&warning) {
                ticket.warnings.push(warning);
            }
        }
        // what is queued has been answered once: a repeat is told its current state
        if ticket.replied {
            let answer = reply::answer(ticket, turn.max_payload);
            self.groups.fill(turn, place, answer);
        } else {
            ticket.places.push(place);
        }
        Ok(())
    }

    /// Drops the group of a message whose requests were all rejected: it is answered with one error.
    pub(crate) fn reject_group(&mut self, group: GroupId) {
        self.groups.forget(group);
    }

    /// Records that one request of a message was rejected.
    pub(crate) fn reject(&mut self, turn: &mut Turn, place: Place, why: &Rejected) {
        let answer = Answer {
            id: why.id.clone(),
            app: why.app.as_deref().unwrap_or_default().into(),
            outcome: Outcome::Unplaced,
            body: to_bytes(&serde_json::json!({ "error": why.error })),
        };
        self.groups.fill(turn, place, answer);
    }
}

fn rejected(asked: &AdmittedRequest, error: WireError) -> Rejected {
    Rejected {
        id: asked.id.clone(),
        app: Some(asked.request.app.clone()),
        error,
    }
}
