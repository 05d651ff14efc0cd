//! The clients' messages: requests and stops are sent when they are due, repeated with the same id if no answer comes,
//! and answered.

use std::sync::Arc;

use auctioneer::{AuctioneerInput, ReplyKey, admission};
use bytes::Bytes;
use placement::Request;
use shared::{
    clock::millis,
    wire::{Stop, to_bytes},
};

use super::{
    Event, World,
    client::{Lost, Sent, error_text},
    messages::Message,
    traffic::Kind,
};
use crate::demand::DemandAction;

/// How long after its deadline an answer counts as missing, in microseconds.
const PATIENCE_US: u64 = 1_000_000;
/// How long a stop may take, in milliseconds.
const STOP_MS: u64 = 1_000;

impl World<'_> {
    /// Makes the demands of this moment, from this position on.
    pub(super) fn demand(&mut self, from: usize) {
        let demands = self.demands;
        let at_ms = demands[from].at_ms;
        let mut requests = Vec::new();
        let mut next = from;
        while let Some(demand) = demands.get(next).filter(|demand| demand.at_ms == at_ms) {
            self.note_demand(next);
            next += 1;
            match &demand.action {
                DemandAction::Start {
                    request,
                    lifetime_ms,
                } => {
                    requests.push(self.client.note(self.now_us, request, *lifetime_ms, false));
                    if requests.len() == self.scenario.array {
                        self.ask(std::mem::take(&mut requests));
                    }
                }
                DemandAction::Stop { app, indices } => {
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
        let requests: Vec<&Arc<Request>> =
            records.iter().map(|r| self.client.request(*r)).collect();
        let deadlines = requests.iter().map(|request| {
            let deadline = request.deadline.map(|span| millis(span.0));
            deadline.unwrap_or(auctioneer::DEFAULT_DEADLINE_MS)
        });
        let deadline_ms = deadlines.max().unwrap_or(0);
        let body = match requests.as_slice() {
            [request] => to_bytes(request),
            requests => to_bytes(&requests),
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
            claim: None,
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
        self.fly(at_us, Message::ToService(message));
    }

    /// Returns the auctioneers that accept requests.
    pub(super) fn ready_auctioneers(&self) -> Vec<usize> {
        let (nodes, now_ms) = (self.nodes.iter().enumerate(), self.now_ms());
        let ready = nodes.filter(|(_, node)| node.takes_requests(now_ms));
        ready.map(|(n, _)| n).collect()
    }

    /// Delivers a client's message to one of the auctioneers that accept requests.
    pub(super) fn admit(&mut self, message: usize) {
        let ready = self.ready_auctioneers();
        if ready.is_empty() || self.away > 0 {
            return; // the client repeats it later
        }
        let n = ready[self.client.random.place(ready.len())];
        self.client.admitted += 1;
        let sent = &self.client.sent[message];
        let (body, reply) = (sent.body.clone(), Some(ReplyKey::new(message as u64)));
        let input = if sent.stop {
            self.counts
                .delivered(Kind::StopRequest, 1, body.len() as u64);
            admission::read_stop(&body, reply, || super::uuid(&mut self.client.random))
        } else {
            self.counts.delivered(Kind::Request, 1, body.len() as u64);
            admission::read_simulated_start(self.policy, &body, reply, || {
                super::uuid(&mut self.client.random)
            })
        };
        if let AuctioneerInput::Rejected { rejected, .. } = &input {
            let reason = rejected.error.message.clone();
            for record in self.client.sent[message].records.clone() {
                self.client.give_up(record, None, &reason);
            }
        }
        self.step(n, Some(input));
    }

    /// Handles an answer that has arrived.
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
                self.client.give_up(record, None, &reason);
            }
        } else if records.len() > 1 {
            self.give_up_errors(body, &records);
        }
    }

    /// Gives up the requests that were rejected by errors in an array's answer.
    fn give_up_errors(&mut self, body: &[u8], records: &[usize]) {
        const ERROR: &[u8] = b"{\"error\":";
        if !body.windows(ERROR.len()).any(|window| window == ERROR) {
            return;
        }
        let Ok(replies) = serde_json::from_slice::<shared::wire::StartReplies>(body) else {
            return;
        };
        for (reply, &record) in replies.requests.iter().zip(records) {
            if let Some(reason) = reply["error"]["message"].as_str() {
                self.client.give_up(record, None, reason);
            }
        }
    }

    /// Repeats an unanswered message: the same id means the same request.
    pub(super) fn retry(&mut self, message: usize) {
        if !self.client.sent[message].answered {
            self.client.repeats += 1;
            self.send_again(message);
        }
    }

    /// Records lost instances, to be requested again after a while.
    pub(super) fn ask_again(&mut self, after_ms: u64, lost: Vec<Lost>) {
        let key = self.client.remember_lost(lost);
        self.at(self.now_us + after_ms * 1_000, Event::Again(key));
    }

    /// Has the health manager request again what was lost and has not been stopped since.
    pub(super) fn again(&mut self, key: u64) {
        let lost = self.client.lost_again.remove(&key).unwrap_or_default();
        for (i, lost) in lost.into_iter().enumerate() {
            let Some(most) = lost.indices.iter().max() else {
                continue;
            };
            let mut request = (*lost.request).clone();
            request.id = format!("again-{key}-{i}");
            request.instances = request.instances.max(most + 1);
            request.indices = Some(lost.indices);
            let record = self
                .client
                .note(self.now_us, &Arc::new(request), lost.lifetime_ms, true);
            self.ask(vec![record]);
        }
    }
}
