//! Those who ask: they send requests, ask again with the same id when no answer comes, and know of
//! each instance what became of it. What they know for the figures does not cross the network.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use auctioneer::{Input, door};
use bytes::Bytes;
use placement::Request;
use shared::wire::{
    CellStart, Outcome, StartReply, Stop, StopAnswer, instance_id, parse_indices, to_bytes,
};
use uuid::Uuid;

use super::{Event, World, messages::Message, traffic::Kind};
use crate::{demand::What, random::Random};

/// How long after its deadline an answer is missed.
const PATIENCE_US: u64 = 1_000_000;
/// The most indices that an answer tells.
const MAX_INDICES: usize = 100_000;
/// How long a stop may take.
const STOP_MS: u64 = 1_000;

/// What became of an instance so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Waiting,
    Placed,
    Refused,
}

#[derive(Debug)]
struct Instance {
    index: u32,
    fate: Fate,
    /// Starts that it was in.
    rounds: u32,
}

/// A request and what became of it.
#[derive(Debug)]
struct Record {
    request: Arc<Request>,
    asked_us: u64,
    lifetime_ms: Option<u64>,
    instances: Vec<Instance>,
}

/// A message to the door.
#[derive(Debug)]
struct Sent {
    body: Bytes,
    /// By number; none: a stop.
    records: Vec<usize>,
    stop: bool,
    deadline_ms: u64,
    answered: bool,
}

/// What a health manager asks for again.
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
    by_instance: HashMap<Uuid, (usize, usize)>,
    sent: Vec<Sent>,
    unanswered: usize,
    /// Requests that were answered while instances of theirs still wait, by app.
    queued: HashMap<String, Vec<usize>>,
    pub(super) demands_left: bool,
    pub(super) lost_again: BTreeMap<u64, Vec<Lost>>,
    next_again: u64,
    random: Random,
    pub(super) asked: u64,
    pub(super) placed: u64,
    pub(super) refused: u64,
    pub(super) lost: u64,
    pub(super) repeats: u64,
    pub(super) stopped: u64,
    pub(super) waits_ms: Vec<f64>,
    pub(super) rounds: Vec<f64>,
    pub(super) reasons: BTreeMap<String, u64>,
}

impl Client {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            records: Vec::new(),
            by_id: HashMap::new(),
            by_instance: HashMap::new(),
            sent: Vec::new(),
            unanswered: 0,
            queued: HashMap::new(),
            demands_left: true,
            lost_again: BTreeMap::new(),
            next_again: 0,
            random: Random::new(seed).fork("clients", 0),
            asked: 0,
            placed: 0,
            refused: 0,
            lost: 0,
            repeats: 0,
            stopped: 0,
            waits_ms: Vec::new(),
            rounds: Vec::new(),
            reasons: BTreeMap::new(),
        }
    }

    /// Instances without an outcome.
    pub(super) fn waiting(&self) -> u64 {
        self.asked - self.placed - self.refused
    }

    /// Whether there is nothing more to ask and everything has its outcome.
    pub(super) fn is_done(&self) -> bool {
        !self.demands_left
            && self.waiting() == 0
            && self.unanswered == 0
            && self.lost_again.is_empty()
    }

    /// Notes a request; returns its number.
    pub(super) fn note(
        &mut self,
        now_us: u64,
        request: &Arc<Request>,
        lifetime_ms: Option<u64>,
    ) -> usize {
        let record = self.records.len();
        let mut instances = Vec::new();
        for job in request.jobs() {
            let id = instance_id(&request.id, &request.app, request.kind, job.index);
            self.by_instance.insert(id, (record, instances.len()));
            instances.push(Instance {
                index: job.index,
                fate: Fate::Waiting,
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
        });
        record
    }

    /// A cell accepted an instance. Returns when it ends by itself, if it is new here and does.
    pub(super) fn accepted(&mut self, now_us: u64, instance: Uuid) -> Option<u64> {
        let (record, position) = *self.by_instance.get(&instance)?;
        let record = &mut self.records[record];
        let asked_us = record.asked_us;
        let instance = &mut record.instances[position];
        instance.rounds += 1;
        match instance.fate {
            Fate::Placed => return None,
            Fate::Refused => self.refused -= 1, // it was given up too early
            Fate::Waiting => {}
        }
        instance.fate = Fate::Placed;
        self.placed += 1;
        self.waits_ms.push((now_us - asked_us) as f64 / 1_000.0);
        self.rounds.push(f64::from(instance.rounds));
        record.lifetime_ms
    }

    /// A cell did not take it: that auction was for nothing.
    pub(super) fn refused_by_cell(&mut self, instance: Uuid) {
        if let Some(&(record, position)) = self.by_instance.get(&instance) {
            self.records[record].instances[position].rounds += 1;
        }
    }

    /// A start that reached nobody.
    pub(super) fn round(&mut self, start: &Bytes) {
        if let Ok(start) = serde_json::from_slice::<CellStart>(start) {
            for work in start.work {
                self.refused_by_cell(work.instance);
            }
        }
    }

    pub(super) fn stopped(&mut self, answer: &StopAnswer) {
        self.stopped += answer.stopped.len() as u64;
    }

    fn refuse(&mut self, record: usize, index: Option<u32>, reason: &str) {
        for instance in &mut self.records[record].instances {
            if index.is_none_or(|index| index == instance.index) && instance.fate == Fate::Waiting {
                instance.fate = Fate::Refused;
                self.refused += 1;
                *self.reasons.entry(reason.to_owned()).or_default() += 1;
            }
        }
    }

    /// What an auctioneer answers to a request, as soon as it says so.
    pub(super) fn outcome(&mut self, id: &str, body: &[u8]) {
        let Some(&record) = self.by_id.get(id) else {
            return;
        };
        let Ok(reply) = serde_json::from_slice::<StartReply>(body) else {
            return self.refuse(record, None, &error_text(body));
        };
        let mut waits = false;
        for told in reply.instances {
            waits |= told.outcome == Outcome::Queued;
            if !matches!(told.outcome, Outcome::Unplaced | Outcome::Unknown) {
                continue;
            }
            let reason = told.reason.unwrap_or_else(|| told.outcome.to_string());
            // an instance that another request shares has that one's outcome
            let indices = told
                .indices
                .and_then(|text| parse_indices(&text, MAX_INDICES));
            match (told.index, indices) {
                (Some(index), _) => self.refuse(record, Some(index), &reason),
                (None, Some(indices)) => {
                    for index in indices {
                        self.refuse(record, Some(index), &reason);
                    }
                }
                (None, None) => self.refuse(record, None, &reason),
            }
        }
        if waits {
            let app = self.records[record].request.app.clone();
            self.queued.entry(app).or_default().push(record);
        }
    }

    /// Instances were given up: those of requests that were answered already end by this event.
    pub(super) fn unplaced(&mut self, event: &shared::wire::Event) {
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
            if event.request.as_ref().is_some_and(|request| request != id) {
                continue;
            }
            for &index in indices.iter().flatten() {
                self.refuse(record, Some(index), &reason);
            }
        }
    }

    /// An instance was lost with its cell. Returns what to ask for again.
    pub(super) fn lost(&mut self, instance: Uuid) -> Option<(Arc<Request>, u32, Option<u64>)> {
        let (record, position) = *self.by_instance.get(&instance)?;
        let record = &self.records[record];
        let index = record.instances[position].index;
        Some((Arc::clone(&record.request), index, record.lifetime_ms))
    }

    /// Which kind the answer to this message is.
    pub(super) fn reply_kind(&self, message: usize) -> Kind {
        match self.sent.get(message) {
            Some(sent) if sent.stop => Kind::StopReply,
            _ => Kind::Reply,
        }
    }
}

fn error_text(body: &[u8]) -> String {
    let error = serde_json::from_slice::<shared::wire::ErrorBody>(body);
    error.map_or_else(
        |_| "an answer that cannot be read".into(),
        |body| body.error.message,
    )
}

impl World<'_> {
    /// Makes the demands from here that are made at this moment.
    pub(super) fn demand(&mut self, from: usize) {
        let demands = self.demands;
        let at_ms = demands[from].at_ms;
        let mut requests = Vec::new();
        let mut next = from;
        while let Some(demand) = demands.get(next).filter(|demand| demand.at_ms == at_ms) {
            next += 1;
            match &demand.what {
                What::Start {
                    request,
                    lifetime_ms,
                } => {
                    requests.push(self.client.note(self.now_us, request, *lifetime_ms));
                    if requests.len() == self.scenario.array {
                        self.ask(std::mem::take(&mut requests));
                    }
                }
                What::Stop { app, indices } => {
                    if !requests.is_empty() {
                        self.ask(std::mem::take(&mut requests));
                    }
                    self.ask_stop(app, indices);
                }
            }
        }
        if !requests.is_empty() {
            self.ask(requests);
        }
        self.client.demands_left = next < demands.len();
        if let Some(later) = demands.get(next) {
            self.at(super::WARM_UP_US + later.at_ms * 1_000, Event::Demand(next));
        }
    }

    fn ask(&mut self, records: Vec<usize>) {
        let requests = records.iter().map(|&r| &self.client.records[r].request);
        let deadline = |request: &Arc<Request>| {
            let deadline = request.deadline.map(Self::span_ms);
            deadline.unwrap_or(auctioneer::DEFAULT_DEADLINE_MS)
        };
        let deadline_ms = requests.clone().map(deadline).max().unwrap_or(0);
        let body = match records.as_slice() {
            [one] => to_bytes(&self.client.records[*one].request),
            _ => to_bytes(&requests.collect::<Vec<_>>()),
        };
        self.send(Sent {
            body,
            records,
            stop: false,
            deadline_ms,
            answered: false,
        });
    }

    fn ask_stop(&mut self, app: &str, indices: &[u32]) {
        for lost in self.client.lost_again.values_mut() {
            for lost in lost.iter_mut().filter(|lost| lost.request.app == app) {
                lost.indices
                    .retain(|i| !indices.is_empty() && !indices.contains(i));
            }
        }
        let stop = Stop {
            v: shared::VERSION,
            app: app.to_owned(),
            indices: indices.to_vec(),
            instances: Vec::new(),
        };
        self.send(Sent {
            body: to_bytes(&stop),
            records: Vec::new(),
            stop: true,
            deadline_ms: STOP_MS,
            answered: false,
        });
    }

    fn send(&mut self, sent: Sent) {
        let message = self.client.sent.len();
        self.client.sent.push(sent);
        self.client.unanswered += 1;
        self.send_again(message);
    }

    fn send_again(&mut self, message: usize) {
        let sent = &self.client.sent[message];
        let kind = if sent.stop {
            Kind::StopRequest
        } else {
            Kind::Request
        };
        let retry_us = self.now_us + sent.deadline_ms * 1_000 + PATIENCE_US;
        self.at(retry_us, Event::Retry(message));
        self.counts.sent(kind, 1);
        let network = self.scenario.network;
        if self.away > 0 || (network.loss > 0.0 && self.random.unit() < network.loss) {
            return;
        }
        let at_us = self.now_us + network.latency.sample_us(&mut self.random);
        self.fly(at_us, Message::Door(message));
    }

    /// The server hands a client's message to one of the auctioneers that take requests.
    pub(super) fn at_the_door(&mut self, message: usize) {
        let there = self
            .nodes
            .iter()
            .enumerate()
            .filter(|(_, n)| n.joined && n.is_up());
        let there: Vec<usize> = there.map(|(n, _)| n).collect();
        if there.is_empty() || self.away > 0 {
            return; // asked again later
        }
        let n = there[self.client.random.place(there.len())];
        let sent = &self.client.sent[message];
        let (body, reply) = (sent.body.clone(), Some(message as u64));
        let input = if sent.stop {
            self.counts
                .delivered(Kind::StopRequest, 1, body.len() as u64);
            door::read_stop(&body, reply, || super::uuid(&mut self.client.random))
        } else {
            self.counts.delivered(Kind::Request, 1, body.len() as u64);
            door::read_start(self.policy, &body, reply, || {
                super::uuid(&mut self.client.random)
            })
        };
        if let Input::Rejected { rejected, .. } = &input {
            let reason = rejected.error.message.clone();
            for record in self.client.sent[message].records.clone() {
                self.client.refuse(record, None, &reason);
            }
        }
        self.step(n, Some(input));
    }

    /// An answer has come.
    pub(super) fn answered(&mut self, message: usize, body: &Bytes, error: bool) {
        let Some(sent) = self.client.sent.get_mut(message) else {
            return;
        };
        if !std::mem::replace(&mut sent.answered, true) {
            self.client.unanswered -= 1;
            sent.body = Bytes::new();
        }
        let records = sent.records.clone();
        if error {
            let reason = error_text(body);
            for record in records {
                self.client.refuse(record, None, &reason);
            }
        } else if records.len() > 1 {
            self.refused_in(body, &records);
        }
    }

    /// Elements of an array's answer that are errors: those requests were turned away.
    fn refused_in(&mut self, body: &[u8], records: &[usize]) {
        const ERROR: &[u8] = b"{\"error\":";
        if !body.windows(ERROR.len()).any(|window| window == ERROR) {
            return;
        }
        let Ok(replies) = serde_json::from_slice::<shared::wire::StartReplies>(body) else {
            return;
        };
        for (reply, &record) in replies.requests.iter().zip(records) {
            if let Some(reason) = reply["error"]["message"].as_str() {
                self.client.refuse(record, None, reason);
            }
        }
    }

    /// Without an answer the same is asked again: the same id is the same request.
    pub(super) fn retry(&mut self, message: usize) {
        if !self.client.sent[message].answered {
            self.client.repeats += 1;
            self.send_again(message);
        }
    }

    /// Notes what was lost, to be asked for again after a while.
    pub(super) fn ask_again(&mut self, after_ms: u64, lost: Vec<Lost>) {
        let key = self.client.next_again;
        self.client.next_again += 1;
        self.client.lost_again.insert(key, lost);
        self.at(self.now_us + after_ms * 1_000, Event::Again(key));
    }

    /// The health manager asks again for what was lost and not stopped since.
    pub(super) fn again(&mut self, key: u64) {
        for (i, lost) in self
            .client
            .lost_again
            .remove(&key)
            .unwrap_or_default()
            .into_iter()
            .enumerate()
        {
            let Some(most) = lost.indices.iter().max() else {
                continue;
            };
            let mut request = (*lost.request).clone();
            request.id = format!("again-{key}-{i}");
            request.instances = request.instances.max(most + 1);
            request.indices = Some(lost.indices);
            let record = self
                .client
                .note(self.now_us, &Arc::new(request), lost.lifetime_ms);
            self.ask(vec![record]);
        }
    }
}
