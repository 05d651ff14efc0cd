//! The clients' view of their requests: the outcome of every instance, and what is still to be requested. What they
//! learn for the figures does not pass through the simulated network.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use placement::Request;
use shared::{
    InstanceId,
    wire::{CellStart, Event, Outcome, StartReply, StopAnswer, instance_id, parse_indices},
};

use super::traffic::Kind;
use crate::random::Random;

/// Maximum number of indices listed in one reply.
const MAX_INDICES: usize = 100_000;

/// The outcome of an instance so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InstanceStatus {
    Waiting,
    Placed,
    Unplaced,
}

#[derive(Debug)]
struct Asked {
    index: u32,
    status: InstanceStatus,
    /// Number of starts that were sent for it.
    rounds: u32,
}

/// A request and its instances.
#[derive(Debug)]
struct Record {
    request: Arc<Request>,
    asked_us: u64,
    lifetime_ms: Option<u64>,
    instances: Vec<Asked>,
    /// Whether it asks again for lost instances.
    again: bool,
}

/// A message to the auctioneers.
#[derive(Debug)]
pub(super) struct Sent {
    pub(super) body: Bytes,
    /// The numbers of its requests; none for a stop.
    pub(super) records: Vec<usize>,
    pub(super) stop: bool,
    pub(super) deadline_ms: u64,
    pub(super) answered: bool,
}

/// What a health manager requests again.
#[derive(Clone, Debug)]
pub(super) struct Lost {
    pub(super) request: Arc<Request>,
    pub(super) indices: Vec<u32>,
    pub(super) lifetime_ms: Option<u64>,
}

/// All clients.
#[derive(Debug)]
pub(super) struct Client {
    records: Vec<Record>,
    by_id: HashMap<String, usize>,
    /// By instance id: the record, and the position of the instance in it.
    by_instance: HashMap<InstanceId, (usize, usize)>,
    pub(super) sent: Vec<Sent>,
    pub(super) unanswered: usize,
    /// Answered requests with queued instances, by app.
    queued: HashMap<String, Vec<usize>>,
    pub(super) demands_left: bool,
    pub(super) lost_again: BTreeMap<u64, Vec<Lost>>,
    next_again: u64,
    pub(super) random: Random,
    pub(super) asked: u64,
    pub(super) placed: u64,
    pub(super) unplaced: u64,
    pub(super) lost: u64,
    pub(super) repeats: u64,
    /// Number of messages that arrived at an auctioneer.
    pub(super) admitted: u64,
    pub(super) stopped: u64,
    pub(super) waits_ms: Vec<f64>,
    pub(super) rounds: Vec<f64>,
    pub(super) reasons: BTreeMap<String, u64>,
}

impl Client {
    /// Creates the clients of a scenario.
    pub(super) fn new(seed: u64, demands_left: bool) -> Self {
        Self {
            records: Vec::new(),
            by_id: HashMap::new(),
            by_instance: HashMap::new(),
            sent: Vec::new(),
            unanswered: 0,
            queued: HashMap::new(),
            demands_left,
            lost_again: BTreeMap::new(),
            next_again: 0,
            random: Random::new(seed).fork("clients", 0),
            asked: 0,
            placed: 0,
            unplaced: 0,
            lost: 0,
            repeats: 0,
            admitted: 0,
            stopped: 0,
            waits_ms: Vec::new(),
            rounds: Vec::new(),
            reasons: BTreeMap::new(),
        }
    }

    /// Returns the number of instances without an outcome.
    pub(super) fn waiting(&self) -> u64 {
        self.asked - self.placed - self.unplaced
    }

    /// Returns whether demands, or requests after a loss, are still to come.
    pub(super) fn has_more_to_ask(&self) -> bool {
        self.demands_left || !self.lost_again.is_empty()
    }

    /// Returns whether nothing is left to be requested and everything has its outcome.
    pub(super) fn is_done(&self) -> bool {
        !self.has_more_to_ask() && self.waiting() == 0 && self.unanswered == 0
    }

    /// Returns a number that changes with every demand, admission, answer and outcome.
    pub(super) fn activity(&self) -> u64 {
        // an instance may change from unplaced to placed, so the two have different weights
        let outcomes = 2 * self.placed + self.unplaced;
        outcomes + self.asked + self.lost + self.stopped + self.admitted + self.unanswered as u64
    }

    /// Returns the request of a record.
    pub(super) fn request(&self, record: usize) -> &Arc<Request> {
        &self.records[record].request
    }

    /// Returns the requests of the scenario, without those that ask again for lost instances, each with the number of
    /// its instances that were placed.
    pub(super) fn placed_of_each(&self) -> impl Iterator<Item = (&Request, u64)> {
        let first = self.records.iter().filter(|record| !record.again);
        first.map(|record| {
            let instances = record.instances.iter();
            let placed = instances.filter(|asked| asked.status == InstanceStatus::Placed);
            (&*record.request, placed.count() as u64)
        })
    }

    /// Records a request, which may ask `again` for lost instances; returns its number.
    pub(super) fn note(
        &mut self,
        now_us: u64,
        request: &Arc<Request>,
        lifetime_ms: Option<u64>,
        again: bool,
    ) -> usize {
        let record = self.records.len();
        let mut instances = Vec::new();
        for job in request.jobs() {
            let id = instance_id(&request.id, &request.app, request.kind, job.index);
            self.by_instance.insert(id, (record, instances.len()));
            instances.push(Asked {
                index: job.index,
                status: InstanceStatus::Waiting,
                rounds: 0,
            });
        }
        self.asked += instances.len() as u64;
        self.by_id.insert(request.id.clone(), record);
        self.records.push(Record {
            request: Arc::clone(request),
            asked_us: now_us,
            lifetime_ms,
            instances,
            again,
        });
        record
    }

    /// Records that a cell accepted an instance. If it is new to the clients and has a lifetime, returns after how many
    /// milliseconds it ends by itself.
    pub(super) fn accepted(&mut self, now_us: u64, instance: InstanceId) -> Option<u64> {
        let (record, position) = *self.by_instance.get(&instance)?;
        let asked = &mut self.records[record].instances[position];
        asked.rounds += 1;
        if asked.status == InstanceStatus::Placed {
            return None;
        }
        let index = asked.index;
        self.place(now_us, record, position);
        if !self.queued.is_empty() {
            self.place_queued_twins(now_us, record, index);
        }
        self.records[record].lifetime_ms
    }

    fn place(&mut self, now_us: u64, record: usize, position: usize) {
        let record = &mut self.records[record];
        let asked = &mut record.instances[position];
        if asked.status == InstanceStatus::Unplaced {
            self.unplaced -= 1; // it was given up too early
        }
        asked.status = InstanceStatus::Placed;
        self.placed += 1;
        self.waits_ms
            .push((now_us - record.asked_us) as f64 / 1_000.0);
        self.rounds.push(f64::from(asked.rounds.max(1)));
    }

    /// Lets queued instances of other requests with the same app and index share the outcome.
    fn place_queued_twins(&mut self, now_us: u64, record: usize, index: u32) {
        let request = Arc::clone(&self.records[record].request);
        let Some(others) = self.queued.get(&request.app).cloned() else {
            return;
        };
        for other in others {
            if other != record && self.records[other].request.kind == request.kind {
                self.place_waiting(now_us, other, |i| i == index);
            }
        }
    }

    /// Places waiting instances of a record that a reply reports as placed: they share the outcome of an instance of
    /// another request, whose id the cell accepted instead of theirs.
    fn place_waiting(&mut self, now_us: u64, record: usize, is_meant: impl Fn(u32) -> bool) {
        for position in 0..self.records[record].instances.len() {
            let asked = &self.records[record].instances[position];
            if asked.status == InstanceStatus::Waiting && is_meant(asked.index) {
                self.place(now_us, record, position);
            }
        }
    }

    /// Records that a cell refused an instance, so that the auction did not place it.
    pub(super) fn refused_by_cell(&mut self, instance: InstanceId) {
        if let Some(&(record, position)) = self.by_instance.get(&instance) {
            self.records[record].instances[position].rounds += 1;
        }
    }

    /// Handles a start without responders.
    pub(super) fn undelivered(&mut self, start: &Bytes) {
        if let Ok(start) = serde_json::from_slice::<CellStart>(start) {
            for work in start.work {
                self.refused_by_cell(work.instance);
            }
        }
    }

    pub(super) fn stopped(&mut self, answer: &StopAnswer) {
        self.stopped += answer.stopped.len() as u64;
    }

    /// Gives up the waiting instances of a record that have this index, or all of them.
    pub(super) fn give_up(&mut self, record: usize, index: Option<u32>, reason: &str) {
        for instance in &mut self.records[record].instances {
            if index.is_none_or(|index| index == instance.index)
                && instance.status == InstanceStatus::Waiting
            {
                instance.status = InstanceStatus::Unplaced;
                self.unplaced += 1;
                *self.reasons.entry(reason.to_owned()).or_default() += 1;
            }
        }
    }

    /// Handles the outcome of a request as soon as its auctioneer publishes it.
    pub(super) fn outcome(&mut self, now_us: u64, id: &str, body: &[u8]) {
        let Some(&record) = self.by_id.get(id) else {
            return;
        };
        let Ok(reply) = serde_json::from_slice::<StartReply>(body) else {
            return self.give_up(record, None, &error_text(body));
        };
        // before the reply was sent, the cells accepted all instances that were placed under their own ids, so those
        // that still wait share the outcome of an instance of another request
        let shares = self.records[record]
            .instances
            .iter()
            .any(|asked| asked.status == InstanceStatus::Waiting);
        let mut queued = false;
        let mut placed = HashSet::new();
        for told in reply.instances {
            queued |= told.outcome == Outcome::Queued;
            if told.outcome == Outcome::Queued || (told.outcome == Outcome::Placed && !shares) {
                continue;
            }
            let indices = match (told.index, &told.indices) {
                (Some(index), _) => Some(vec![index]),
                (None, text) => text
                    .as_ref()
                    .and_then(|text| parse_indices(text, MAX_INDICES)),
            };
            if told.outcome == Outcome::Placed {
                placed.extend(indices.unwrap_or_default());
            } else {
                let reason = told.reason.unwrap_or_else(|| told.outcome.to_string());
                self.give_up_all(record, indices.as_deref(), &reason);
            }
        }
        if !placed.is_empty() {
            self.place_waiting(now_us, record, |index| placed.contains(&index));
        }
        if queued {
            let app = self.records[record].request.app.clone();
            self.queued.entry(app).or_default().push(record);
        }
    }

    fn give_up_all(&mut self, record: usize, indices: Option<&[u32]>, reason: &str) {
        match indices {
            None => self.give_up(record, None, reason),
            Some(indices) => {
                for index in indices {
                    self.give_up(record, Some(*index), reason);
                }
            }
        }
    }

    /// Gives up queued instances. Their requests were already answered, so this event has their outcome.
    pub(super) fn unplaced(&mut self, event: &Event) {
        let app = event.app.as_deref().unwrap_or_default();
        let Some(records) = self.queued.get(app).cloned() else {
            return;
        };
        let reason = event.reason.clone().unwrap_or_default();
        let indices = event
            .indices
            .as_deref()
            .and_then(|text| parse_indices(text, MAX_INDICES));
        for record in records {
            let id = &self.records[record].request.id;
            if event
                .request
                .as_ref()
                .is_some_and(|request| request != id.as_str())
            {
                continue;
            }
            self.give_up_all(
                record,
                Some(indices.as_deref().unwrap_or_default()),
                &reason,
            );
        }
    }

    /// Handles an instance that was lost with its cell. Returns what to request again.
    pub(super) fn lost(
        &mut self,
        instance: InstanceId,
    ) -> Option<(Arc<Request>, u32, Option<u64>)> {
        let (record, position) = *self.by_instance.get(&instance)?;
        let record = &self.records[record];
        let index = record.instances[position].index;
        Some((Arc::clone(&record.request), index, record.lifetime_ms))
    }

    /// Records what is to be requested again later; returns its key.
    pub(super) fn remember_lost(&mut self, lost: Vec<Lost>) -> u64 {
        let key = self.next_again;
        self.next_again += 1;
        self.lost_again.insert(key, lost);
        key
    }

    /// Returns the kind of the answer to this message.
    pub(super) fn reply_kind(&self, message: usize) -> Kind {
        match self.sent.get(message) {
            Some(sent) if sent.stop => Kind::StopReply,
            _ => Kind::Reply,
        }
    }
}

/// Returns the message in an error's body.
pub(super) fn error_text(body: &[u8]) -> String {
    let error = serde_json::from_slice::<shared::wire::ErrorBody>(body);
    error.map_or_else(|_| "unreadable reply".into(), |body| body.error.message)
}
