//! Messages between the roles. Each delivery takes time and may be lost, and its receiver may be down. Messages between
//! two roles keep their order.

use std::{collections::BTreeMap, sync::Arc};

use auctioneer::{
    AuctioneerInput, DispatchId, LookupId, ReplyKey, StopId, feed::ReportKind, sim::SimulatedInput,
};
use bytes::Bytes;
use manager::{ManagerInput, QuestionId};
use rep::{CellBid, CellInput};
use shared::{
    AuctionId,
    clock::millis,
    wire::{Advert, Change, InstancesAnswer, StartReply, Stop, WireError, to_bytes},
};

use super::{
    Event, World,
    traffic::{Kind, written},
};
use crate::bucket::{StateAnswer, StateRequest};

/// The largest message in bytes: the default of nats-server.
pub(super) const MAX_PAYLOAD: usize = 1 << 20;

/// A message in transit.
#[derive(Debug)]
pub(super) enum Message {
    /// From an auctioneer, in one of its lives, to a cell.
    Cell {
        cell: usize,
        node: usize,
        life: u32,
        bytes: u64,
        what: ToCell,
    },
    /// To an auctioneer in one of its lives.
    Node {
        node: usize,
        life: u32,
        kind: Kind,
        count: u64,
        bytes: u64,
        what: Box<ToNode>,
    },
    /// A client's message, to one of the auctioneers that accept requests.
    ToService(usize),
    /// The answer to a client's message; true if it is an error.
    Client(usize, Bytes, bool),
    /// To a manager in one of its lives.
    Manager {
        manager: usize,
        life: u32,
        kind: Kind,
        bytes: u64,
        what: Box<ToManager>,
    },
    /// A manager's start request, to one of the auctioneers that accept requests.
    Wave(Wave, Bytes),
    /// A request to the bucket from a manager in one of its lives.
    Bucket(usize, u32, Box<StateRequest>),
    /// A client's command, to one of the managers that accept requests.
    Command(usize),
    /// The answer to a command.
    CommandReply(usize, Result<(), WireError>),
}

/// A message to a manager.
#[derive(Debug)]
pub(super) enum ToManager {
    Input(Box<ManagerInput>),
    /// A cell's heartbeat, or its answers to a question.
    Lists(Option<QuestionId>, Vec<InstancesAnswer>),
    /// The answer to the start request of this number.
    Started(u64, Result<Box<StartReply>, WireError>),
    /// From the bucket.
    State(StateAnswer),
}

/// An unanswered start request of a manager: the manager, its life, and the request's number.
pub(super) type Wave = (usize, u32, u64);

/// The unanswered start requests of managers, by the number of the reply.
#[derive(Debug, Default)]
pub(super) struct Waves {
    added: u64,
    open: BTreeMap<u64, Wave>,
}

/// Replies to managers are numbered from here on; those to clients have lower numbers.
const WAVES: u64 = 1 << 62;

impl Waves {
    /// Adds a start request and returns where its reply goes.
    pub(super) fn add(&mut self, wave: Wave) -> ReplyKey {
        self.added += 1;
        self.open.insert(WAVES + self.added, wave);
        ReplyKey::new(WAVES + self.added)
    }

    /// Returns the start request that this replies to; none if it replies to a client.
    pub(super) fn take(&mut self, reply: ReplyKey) -> Option<Wave> {
        self.open.remove(&reply.number())
    }
}

/// A message to a cell.
#[derive(Debug)]
pub(super) enum ToCell {
    Discover,
    Bid {
        auction: AuctionId,
    },
    State,
    Start {
        dispatch: DispatchId,
        body: Bytes,
    },
    Stop {
        stop: StopId,
        body: Bytes,
    },
    Instances {
        lookup: LookupId,
        body: Bytes,
    },
    /// A manager's stop.
    ManagerStop(Box<Stop>),
    /// A manager's question for all instances.
    List(QuestionId),
}

/// A message to an auctioneer.
#[derive(Debug)]
pub(super) enum ToNode {
    Input(AuctioneerInput),
    /// A cell's answers to a request for its instances.
    Found(LookupId, Vec<InstancesAnswer>),
}

impl World<'_> {
    /// Returns the time at which a delivery arrives; none if it is lost.
    pub(super) fn travel(&mut self) -> Option<u64> {
        let network = self.scenario.network;
        if network.loss > 0.0 && self.random.unit() < network.loss {
            return None;
        }
        Some(self.now_us + network.latency.sample_us(&mut self.random))
    }

    pub(super) fn fly(&mut self, at_us: u64, message: Message) {
        self.in_flight += 1;
        self.at(at_us, Event::Arrives(Box::new(message)));
    }

    /// Sends a message to one cell, from an auctioneer or from a manager (numbered after the auctioneers).
    pub(super) fn send_cell(&mut self, n: usize, c: usize, bytes: u64, what: ToCell) {
        if self.away > 0 {
            return;
        }
        let Some(at_us) = self.travel() else {
            return;
        };
        let senders = self.nodes.len() + self.managers.len();
        let last_us = &mut self.to_cell_us[c * senders + n];
        *last_us = at_us.max(*last_us);
        let at_us = *last_us;
        self.cells[c].coming += 1;
        let life = match n.checked_sub(self.nodes.len()) {
            None => self.nodes[n].life,
            Some(m) => self.managers[m].life,
        };
        self.fly(
            at_us,
            Message::Cell {
                cell: c,
                node: n,
                life,
                bytes,
                what,
            },
        );
    }

    /// Sends a cell's message to one auctioneer.
    pub(super) fn send_node(
        &mut self,
        c: usize,
        n: usize,
        kind: Kind,
        (input, bytes): (AuctioneerInput, u64),
    ) {
        self.node_message(c, n, kind, bytes, ToNode::Input(input));
    }

    fn node_message(&mut self, c: usize, n: usize, kind: Kind, bytes: u64, what: ToNode) {
        if self.away > 0 {
            return;
        }
        let Some(at_us) = self.travel() else {
            return;
        };
        let last_us = &mut self.to_node_us[c * self.nodes.len() + n];
        *last_us = at_us.max(*last_us);
        let at_us = *last_us;
        self.fly_to_node(at_us, n, kind, 1, bytes, what);
    }

    pub(super) fn fly_to_node(
        &mut self,
        at_us: u64,
        n: usize,
        kind: Kind,
        count: u64,
        bytes: u64,
        what: ToNode,
    ) {
        let message = Message::Node {
            node: n,
            life: self.nodes[n].life,
            kind,
            count,
            bytes,
            what: Box::new(what),
        };
        self.fly(at_us, message);
    }

    /// Sends a message from one auctioneer to all of them.
    pub(super) fn send_all_nodes(&mut self, kind: Kind, bytes: u64, input: &AuctioneerInput) {
        if self.away > 0 {
            return;
        }
        for n in 0..self.nodes.len() {
            if let Some(at_us) = self.travel() {
                self.fly_to_node(at_us, n, kind, 1, bytes, ToNode::Input(input.clone()));
            }
        }
    }

    pub(super) fn arrives(&mut self, message: Message) {
        match message {
            Message::Cell {
                cell,
                node,
                life,
                bytes,
                what,
            } => {
                self.cells[cell].coming -= 1;
                self.arrives_at_cell(cell, (node, life), bytes, what);
            }
            Message::Node {
                node,
                life,
                kind,
                count,
                bytes,
                what,
            } => {
                if self.away > 0 || self.nodes[node].life != life || !self.nodes[node].is_up() {
                    return;
                }
                self.counts.delivered(kind, count, bytes);
                match *what {
                    ToNode::Input(input) => self.step(node, Some(input)),
                    ToNode::Found(lookup, answers) => {
                        for answer in answers {
                            let answer = Box::new(answer);
                            self.step(
                                node,
                                Some(AuctioneerInput::InstancesReported { lookup, answer }),
                            );
                        }
                    }
                }
            }
            Message::ToService(message) => self.admit(message),
            Message::Client(message, body, error) => {
                if self.away == 0 {
                    self.answered(message, &body, error);
                }
            }
            Message::Manager {
                manager,
                life,
                kind,
                bytes,
                what,
            } => self.manager_hears((manager, life), kind, bytes, *what),
            Message::Wave(wave, body) => self.admit_wave(wave, &body),
            Message::Bucket(m, life, request) => self.bucket_asked(m, life, *request),
            Message::Command(command) => self.command_arrives(command),
            Message::CommandReply(command, answer) => self.command_answered(command, answer),
        }
    }

    fn arrives_at_cell(&mut self, c: usize, from: (usize, u32), bytes: u64, what: ToCell) {
        let cell = &self.cells[c];
        if cell.down > 0 && self.away == 0 {
            // the server reports that there are no responders
            if let ToCell::Start { dispatch, body } = &what {
                let (dispatch, rounds) = (*dispatch, body.clone());
                self.client.undelivered(&rounds);
                if let Some(at_us) = self.travel() {
                    let input = ToNode::Input(AuctioneerInput::NoResponders { dispatch });
                    self.fly_to_node(at_us, from.0, Kind::StartAnswer, 0, 0, input);
                }
            }
            return;
        }
        if !cell.is_there() || self.away > 0 {
            if let ToCell::Start { body, .. } = &what {
                self.client.undelivered(body);
            }
            return;
        }
        self.counts.delivered(what.kind(), 1, bytes);
        let now_ms = self.now_ms();
        match what {
            ToCell::Discover => self.settle(c, CellInput::Discover),
            ToCell::Bid { auction } => {
                if let Some(bid) = self.bid(c, auction) {
                    self.answer(c, from, Kind::Bid, bid);
                }
            }
            ToCell::State => {
                let state = Arc::new(self.cells[c].machine().state(now_ms, None));
                let input = self.report(ReportKind::State, &state, None);
                self.answer(c, from, Kind::State, (input, written(&*state)));
            }
            ToCell::Start { dispatch, body } => self.cell_starts(c, from, dispatch, &body),
            ToCell::Stop { stop, body } => {
                if let Some(answer) = self.cells[c].stop(now_ms, &body) {
                    self.client.stopped(&answer);
                    let bytes = to_bytes(&answer).len() as u64;
                    let answer = Box::new(answer);
                    self.answer(
                        c,
                        from,
                        Kind::StopAnswer,
                        (AuctioneerInput::StopAnswered { stop, answer }, bytes),
                    );
                    self.settle(c, CellInput::Tick);
                }
            }
            ToCell::ManagerStop(stop) => {
                self.tally.stopped(&stop.instances);
                self.cells[c].stop(now_ms, &to_bytes(&*stop));
                self.settle(c, CellInput::Tick);
            }
            ToCell::List(question) => self.list_for_manager(c, from, question),
            ToCell::Instances { lookup, body } => {
                let machine = self.cells[c].machine();
                if let Ok(answers) = machine.instances(now_ms, &body, MAX_PAYLOAD) {
                    self.counts.sent(Kind::Instances, answers.len() as u64);
                    let bytes = answers.iter().map(|a| to_bytes(a).len() as u64).sum();
                    if self.nodes[from.0].life == from.1 {
                        let what = ToNode::Found(lookup, answers);
                        self.node_message(c, from.0, Kind::Instances, bytes, what);
                    }
                }
            }
        }
    }

    /// Returns a cell's bid and its size; none from a cell that has left.
    fn bid(&mut self, c: usize, auction: AuctionId) -> Option<(AuctioneerInput, u64)> {
        let now_ms = self.now_ms();
        match self.cells[c].machine().bid(now_ms, auction)? {
            CellBid::Unchanged(bid) => {
                let body = to_bytes(&bid);
                let bytes = body.len() as u64;
                Some((cell_report(ReportKind::Bid, None, body), bytes))
            }
            CellBid::Change(change) => {
                let state = Arc::new(self.cells[c].machine().state(now_ms, Some(auction)));
                let bytes = written(&*change);
                let input = self.report(ReportKind::Bid, &state, Some(&change));
                Some((input, bytes))
            }
            CellBid::Full(bid) => {
                let bytes = self.cells[c].bid_bytes(&bid);
                Some((self.report(ReportKind::Bid, &Arc::from(bid), None), bytes))
            }
        }
    }

    /// Returns a cell's report in the form in which an auctioneer gets it: the whole state, or the change that is sent
    /// in its place.
    pub(super) fn report(
        &self,
        kind: ReportKind,
        report: &Arc<Advert>,
        change: Option<&Change>,
    ) -> AuctioneerInput {
        if self.settings.verbatim {
            let subject_cell = (kind == ReportKind::Advert).then(|| report.cell.cell.clone());
            let body = change.map_or_else(|| to_bytes(&**report), to_bytes);
            return cell_report(kind, subject_cell, body);
        }
        AuctioneerInput::Simulated(SimulatedInput::Report {
            kind,
            report: Arc::clone(report),
            since: change.map(|change| change.since),
        })
    }

    /// Sends a cell's answer to an auctioneer, unless that was restarted meanwhile.
    fn answer(
        &mut self,
        c: usize,
        (n, life): (usize, u32),
        kind: Kind,
        answer: (AuctioneerInput, u64),
    ) {
        self.counts.sent(kind, 1);
        if self.nodes[n].life == life {
            self.send_node(c, n, kind, answer);
        }
    }

    fn cell_starts(&mut self, c: usize, from: (usize, u32), dispatch: DispatchId, body: &Bytes) {
        let now_ms = self.now_ms();
        let Some(answer) = self.cells[c].start(now_ms, body) else {
            return;
        };
        self.settle(c, CellInput::Tick);
        let starts_ms = millis(self.scenario.start_takes.0);
        for instance in &answer.accepted {
            let lifetime = self.client.accepted(self.now_us, *instance);
            if let Some(lifetime_ms) = lifetime {
                self.cells[c].ends(now_ms + starts_ms + lifetime_ms, *instance);
            }
        }
        for refusal in &answer.refused {
            self.client.refused_by_cell(refusal.instance);
        }
        self.plan_tick(c);
        let bytes = to_bytes(&answer).len() as u64;
        let answer = Box::new(answer);
        self.answer(
            c,
            from,
            Kind::StartAnswer,
            (AuctioneerInput::StartAnswered { dispatch, answer }, bytes),
        );
    }
}

fn cell_report(kind: ReportKind, subject_cell: Option<String>, body: Bytes) -> AuctioneerInput {
    AuctioneerInput::CellReport {
        kind,
        subject_cell,
        body,
    }
}

impl ToCell {
    fn kind(&self) -> Kind {
        match self {
            Self::Discover => Kind::Discover,
            Self::Bid { .. } => Kind::BidRequest,
            Self::State => Kind::StateRequest,
            Self::Start { .. } => Kind::Start,
            Self::Stop { .. } => Kind::Stop,
            Self::Instances { .. } | Self::List(_) => Kind::InstancesRequest,
            Self::ManagerStop(_) => Kind::ManagerStop,
        }
    }
}
