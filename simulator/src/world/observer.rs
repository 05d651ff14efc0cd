//! The same figures for a real cluster: the messages on a real nats-server update a world whose own roles do not run.

use std::collections::{BTreeSet, HashMap};

use bytes::Bytes;
use placement::{Policy, Request, Run};
use rep::CellInput;
use shared::wire::{Acceptance, CellStart, Event, Stop, StopAnswer, Work, kind, to_bytes};
use shared::{AuctionId, Incarnation, InstanceId};

use super::{RunSettings, WARM_UP_US, World, traffic::Kind};
use crate::{
    demand::{Demand, DemandAction, largest_memory_mb},
    outcome::SimRun,
    scenario::Scenario,
};

/// Returns the request in the form that a real auctioneer takes: a start must say what to execute, which simulated
/// cells never do.
fn startable(request: &Request) -> Request {
    let mut request = request.clone();
    request.run.get_or_insert_with(|| Run {
        command: vec!["true".into()],
        ..Run::default()
    });
    request
}

/// Observes the messages of a real cluster.
pub struct Observer<'s> {
    world: World<'s>,
    prefix: String,
    /// Starts in flight.
    sent: HashMap<InstanceId, Work>,
    auctions: BTreeSet<AuctionId>,
    /// The instances on each cell before the first request.
    running: Vec<(String, Vec<Work>)>,
    next_demand: usize,
    sample_us: u64,
}

/// A client's message.
#[derive(Clone, Debug)]
pub struct ToSend {
    /// `start` or `stop`, below the prefix.
    pub subject: &'static str,
    /// Its body.
    pub body: Bytes,
}

impl<'s> Observer<'s> {
    /// Creates a cluster of the scenario's cells before the first request. `prefix` is the first part of its subjects.
    pub fn new(
        scenario: &'s Scenario,
        label: &'s str,
        policy: &'s Policy,
        demands: &'s [Demand],
        settings: RunSettings,
        prefix: &str,
    ) -> Self {
        let mut world = World::new(scenario, label, policy, demands, settings);
        let mut running = Vec::new();
        for c in 0..world.cells.len() {
            let name = world.cells[c].name.to_string();
            let jobs = scenario
                .base
                .running
                .get(&name)
                .cloned()
                .unwrap_or_default();
            let works = world.cells[c].begin(0, Incarnation::nil(), &jobs, &mut world.held);
            if !works.is_empty() {
                running.push((name, works));
            }
        }
        world.now_us = WARM_UP_US;
        world.measure_from_now(largest_memory_mb(demands));
        let sample_us = world.take_sample();
        Self {
            world,
            prefix: prefix.to_owned(),
            sent: HashMap::new(),
            auctions: BTreeSet::new(),
            running,
            next_demand: 0,
            sample_us,
        }
    }

    /// Returns the instances on each cell before the first request, to be started there.
    pub fn running(&self) -> &[(String, Vec<Work>)] {
        &self.running
    }

    /// Returns when the next demands are made, in microseconds; none after the last.
    pub fn next_demand_us(&self) -> Option<u64> {
        Some(self.world.demands.get(self.next_demand)?.at_ms * 1_000)
    }

    /// Returns the messages of the demands that are due now.
    pub fn demand(&mut self, at_us: u64) -> Vec<ToSend> {
        self.pass(at_us);
        let mut messages = Vec::new();
        let mut requests = Vec::new();
        let demands = self.world.demands;
        while let Some(demand) = demands
            .get(self.next_demand)
            .filter(|d| d.at_ms * 1_000 <= at_us)
        {
            self.next_demand += 1;
            match &demand.action {
                DemandAction::Start { request, .. } => {
                    self.world
                        .client
                        .note(self.world.now_us, request, None, false);
                    requests.push(startable(request));
                }
                DemandAction::Stop { app, indices } => {
                    let body = to_bytes(&Stop {
                        v: shared::VERSION,
                        app: app.clone(),
                        indices: indices.clone(),
                        instances: Vec::new(),
                        claim: None,
                    });
                    let subject = "stop";
                    messages.push(ToSend { subject, body });
                }
            }
        }
        for requests in requests.chunks(self.world.scenario.array) {
            let body = match requests {
                [one] => to_bytes(one),
                many => to_bytes(&many),
            };
            let subject = "start";
            messages.push(ToSend { subject, body });
        }
        self.world.client.demands_left = self.next_demand < demands.len();
        messages
    }

    /// Returns whether all demands were made and everything has its outcome.
    pub fn is_done(&self) -> bool {
        self.world.client.is_done()
    }

    /// Returns the progress so far.
    pub fn progress(&self) -> super::Progress {
        let end_us = self
            .world
            .scenario
            .duration_ms
            .map(|ms| WARM_UP_US + ms * 1_000);
        self.world.progress(end_us)
    }

    fn pass(&mut self, at_us: u64) {
        self.world.now_us = self.world.now_us.max(WARM_UP_US + at_us);
        while self.sample_us <= self.world.now_us {
            self.sample_us = self.world.take_sample();
        }
    }

    /// Records a message that was sent `at_us` microseconds after the first demand.
    pub fn message(&mut self, at_us: u64, subject: &str, body: &[u8]) {
        self.pass(at_us);
        let (cells, nodes) = (self.world.cells.len() as u64, self.world.nodes.len() as u64);
        let below = subject
            .strip_prefix(&self.prefix)
            .and_then(|rest| rest.strip_prefix('.'));
        let Some(below) = below else {
            return self.inbox(subject, body);
        };
        let tokens: Vec<&str> = below.split('.').collect();
        let (kind, receivers) = match tokens.as_slice() {
            ["cell", _, "advert"] => (Kind::Advertisement, nodes),
            ["cell", _, "heartbeat"] => (Kind::Heartbeat, 0),
            ["cell", _, "answer", _, token] => match token.split_once('-') {
                Some(("bid", _)) => (Kind::Bid, 1),
                Some(("stop", _)) => {
                    if let Ok(answer) = serde_json::from_slice(body) {
                        self.stopped(&answer);
                    }
                    (Kind::StopAnswer, 1)
                }
                Some(("found", _)) => (Kind::Instances, 1),
                Some(("state", _)) => (Kind::State, 1),
                Some(("start", _)) => {
                    if let Ok(answer) = serde_json::from_slice(body) {
                        self.answered(&answer);
                    }
                    (Kind::StartAnswer, 1)
                }
                _ => return,
            },
            ["cell", _, "state"] => (Kind::StateRequest, 1),
            ["cell", _, "start"] => {
                self.started(body);
                (Kind::Start, 1)
            }
            ["bid"] => (Kind::BidRequest, cells),
            ["start"] => (Kind::Request, 1),
            ["stop"] => (Kind::StopRequest, 1),
            ["cells", "stop"] => (Kind::Stop, cells),
            ["instances"] => (Kind::InstancesRequest, cells),
            ["discover"] => (Kind::Discover, cells),
            ["echo", _] => (Kind::Echo, 1),
            ["outcome", id] => {
                self.world.client.outcome(self.world.now_us, id, body);
                (Kind::Outcome, nodes)
            }
            ["event", event, _, _] => {
                self.event(event, body);
                (Kind::Event, if *event == kind::ASKED { nodes } else { 0 })
            }
            _ => return,
        };
        self.count(kind, receivers, body);
    }

    fn count(&mut self, kind: Kind, receivers: u64, body: &[u8]) {
        self.world.counts.sent(kind, 1);
        let bytes = receivers * body.len() as u64;
        self.world.counts.delivered(kind, receivers, bytes);
    }

    fn event(&mut self, event: &str, body: &[u8]) {
        if event == kind::UNPLACED
            && let Ok(event) = serde_json::from_slice::<Event>(body)
        {
            self.world.client.unplaced(&event);
        }
    }

    fn started(&mut self, body: &[u8]) {
        let Ok(start) = serde_json::from_slice::<CellStart>(body) else {
            return;
        };
        self.auctions.insert(start.auction);
        self.sent
            .extend(start.work.into_iter().map(|work| (work.instance, work)));
    }

    /// Records a message on an inbox, where auctioneers answer the demands.
    fn inbox(&mut self, subject: &str, body: &[u8]) {
        if subject.starts_with("_INBOX") && subject.rsplit('.').nth(1) == Some("reply") {
            self.count(Kind::Reply, 1, body);
        }
    }

    fn answered(&mut self, answer: &Acceptance) {
        let Some(c) = self.world.by_name.get(answer.cell.as_str()).copied() else {
            return;
        };
        let now_ms = self.world.now_ms();
        for instance in &answer.accepted {
            self.world.client.accepted(self.world.now_us, *instance);
            if let Some(work) = self.sent.remove(instance) {
                self.world.cells[c].adopt(work);
            }
        }
        for refusal in &answer.refused {
            self.world.client.refused_by_cell(refusal.instance);
        }
        self.world.cells[c].take(now_ms, true, CellInput::Tick);
        self.world.measure(c);
    }

    fn stopped(&mut self, answer: &StopAnswer) {
        let Some(c) = self.world.by_name.get(answer.cell.as_str()).copied() else {
            return;
        };
        let now_ms = self.world.now_ms();
        self.world.client.stopped(answer);
        let instances: Vec<InstanceId> = answer
            .stopped
            .iter()
            .map(|stopped| stopped.instance)
            .collect();
        self.world.cells[c].gone(now_ms, &instances);
        self.world.measure(c);
    }

    /// Returns the figures at the end.
    pub fn finish(mut self, at_us: u64) -> SimRun {
        self.pass(at_us);
        if let Some(first) = self.world.nodes.first_mut() {
            first.auctions = self.auctions.len() as u64;
        }
        self.world.figures(false)
    }
}
