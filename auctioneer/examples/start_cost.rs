//! What a start costs an auctioneer: `start_cost POLICY [CELLS] [ARRAYS] [whole]`, for
//!
//! ```text
//! valgrind --tool=callgrind --toggle-collect='*measured*' start_cost dea
//! ```
//!
//! Cells with 50 apps each answer in their own bytes, and advertise once after each array of 1,000 requests: what has
//! changed or, with `whole`, everything. Counted is what the auctioneer does: its state machine, and what reads and writes its messages, without the NATS client.
#![allow(clippy::print_stdout, missing_docs)] // a program for people

use std::collections::BTreeMap;

use auctioneer::{
    Auctioneer, AuctioneerInput, AuctioneerOutput, Limits, ReplyKey, Settings, admission,
    feed::ReportKind,
};
use bytes::Bytes;
use placement::{Cell, Policy, Request, Resources, Run, Span};
use rep::{
    CellBid, CellInput, CellMachine, CellOutput, CellSettings, Simulated, SimulatedConfig,
    ledger::Ledger,
};
use shared::{
    AuctionId, Incarnation, InstanceId,
    wire::{Acceptance, Work, read, to_bytes},
};
use uuid::Uuid;

/// Requests in an array.
const ARRAY: usize = 1_000;
/// Apps that each cell has from the start.
const APPS: u128 = 50;
/// Arrays that are not counted: buffers grow, and caches fill.
const WARM_UP: usize = 2;
/// Between two arrays; cells advertise changes as often.
const PAUSE_MS: u64 = 100;

/// One simulated cell.
struct Node {
    machine: CellMachine,
    executor: Simulated,
    /// Whether it reports everything, not what has changed.
    whole: bool,
}

impl Node {
    fn new(number: usize, whole: bool) -> Self {
        let mut total = Resources::new(1 << 24, 1 << 24, 100_000);
        total.cpu_millis = 1 << 20;
        let mut cell = Cell::new(format!("cell-{number}"), total);
        cell.attributes_mut().zone = format!("z{}", number % 4 + 1);
        let mut ledger = Ledger::new(cell, Incarnation::from_u128(number as u128 + 1), "");
        let held = |n| Work::new(InstanceId::from_u128(n), format!("held-{n}"), 1, 1);
        let first = number as u128 * APPS;
        ledger.adopt((first..first + APPS).map(held));
        let settings = CellSettings {
            cadence: advertiser::Cadence::default(),
            drain_deadline: Span::default(),
            seed: number as u64,
        };
        Self {
            machine: CellMachine::new(ledger, settings, 0),
            executor: Simulated::new(SimulatedConfig::default()),
            whole,
        }
    }

    fn bid(&self, now_ms: u64, auction: AuctionId) -> Option<Bytes> {
        Some(match self.machine.bid(now_ms, auction)? {
            CellBid::Unchanged(bid) => to_bytes(&bid),
            CellBid::Change(change) if !self.whole => to_bytes(&*change),
            _ => to_bytes(&self.machine.state(now_ms, Some(auction))),
        })
    }

    /// Does what is due; returns its advertisements.
    fn settle(&mut self, now_ms: u64) -> Vec<Bytes> {
        let mut adverts = Vec::new();
        loop {
            for report in self.executor.due(now_ms) {
                self.machine.take(now_ms, CellInput::Report(report));
            }
            let outputs = self.machine.run(now_ms);
            if outputs.is_empty() {
                return adverts;
            }
            for output in outputs {
                match output {
                    CellOutput::Advertise(advert) => adverts.push(to_bytes(&*advert)),
                    CellOutput::AdvertiseChange(_) if self.whole => {
                        adverts.push(to_bytes(&self.machine.state(now_ms, None)));
                    }
                    CellOutput::AdvertiseChange(change) => adverts.push(to_bytes(&*change)),
                    CellOutput::Execute(order) => self.executor.execute(now_ms, &order),
                    _ => {}
                }
            }
        }
    }
}

/// The part that is counted.
#[inline(never)]
fn measured<T>(what: impl FnOnce() -> T) -> T {
    what()
}

/// The cluster, in which messages arrive at once.
struct Cluster {
    auctioneer: Auctioneer,
    policy: Policy,
    cells: BTreeMap<String, Node>,
    now_ms: u64,
    /// Whether what happens now is counted.
    counts: bool,
    ids: u128,
    placed: usize,
}

impl Cluster {
    fn count<T>(&mut self, what: impl FnOnce(&mut Self) -> T) -> T {
        if self.counts {
            measured(|| what(self))
        } else {
            what(self)
        }
    }

    fn take(&mut self, input: AuctioneerInput) {
        self.auctioneer.take(self.now_ms, input);
    }

    fn report(&mut self, kind: ReportKind, cell: &str, body: Bytes) {
        self.count(|cluster| {
            cluster.take(AuctioneerInput::CellReport {
                kind,
                subject_cell: Some(cell.to_owned()),
                body,
            });
        });
    }

    fn advertise(&mut self) {
        let mut cells = std::mem::take(&mut self.cells);
        for (name, node) in &mut cells {
            node.machine.take(self.now_ms, CellInput::Tick);
            for body in node.settle(self.now_ms) {
                self.report(ReportKind::Advert, name, body);
            }
        }
        self.cells = cells;
        self.run();
    }

    /// Sends an array of requests, and everything that follows from it.
    fn start(&mut self, array: &Bytes) {
        self.count(|cluster| {
            let mut next = cluster.ids;
            let id = || {
                next += 1;
                Uuid::from_u128(next)
            };
            let policy = &cluster.policy;
            let input = admission::read_start(policy, array, Some(ReplyKey::new(1)), id);
            cluster.ids = next;
            cluster.take(input);
        });
        self.run();
    }

    fn run(&mut self) {
        loop {
            let outputs = self.count(|cluster| cluster.auctioneer.run(cluster.now_ms));
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                self.carry_out(output);
            }
        }
    }

    fn carry_out(&mut self, output: AuctioneerOutput) {
        let now_ms = self.now_ms;
        match output {
            AuctioneerOutput::AskBids { auction } => {
                let cells = std::mem::take(&mut self.cells);
                for (name, node) in &cells {
                    if let Some(body) = node.bid(now_ms, auction) {
                        self.report(ReportKind::Bid, name, body);
                    }
                }
                self.cells = cells;
            }
            AuctioneerOutput::AskState { cell } => {
                let body = to_bytes(&self.cells[&*cell].machine.state(now_ms, None));
                self.report(ReportKind::State, &cell, body);
            }
            AuctioneerOutput::Start {
                dispatch,
                cell,
                body,
            } => {
                let Some(node) = self.cells.get_mut(&*cell) else {
                    return;
                };
                let answer = node.machine.start(now_ms, &body);
                let answer = to_bytes(&answer.expect("a valid start"));
                for advert in node.settle(now_ms) {
                    self.report(ReportKind::Advert, &cell, advert);
                }
                self.count(|cluster| {
                    let answer: Acceptance = read(&answer).expect("a valid answer");
                    let answer = Box::new(answer);
                    cluster.take(AuctioneerInput::StartAnswered { dispatch, answer });
                });
            }
            AuctioneerOutput::Event(mut event) => self.count(|_| {
                event.stamp_at("auctioneer", "2026-12-01T10:00:00.000Z");
                drop(to_bytes(&*event));
            }),
            AuctioneerOutput::AuctionHeld { placed, .. } => self.placed += placed,
            _ => {}
        }
    }
}

fn array(from: usize) -> Bytes {
    let request = |number| {
        let mut request = Request::new(format!("bench-{number}"), 8, 8);
        request.run = Some(Run {
            command: vec!["true".into()],
            ..Run::default()
        });
        request
    };
    let requests: Vec<Request> = (from..from + ARRAY).map(request).collect();
    to_bytes(&requests)
}

fn main() {
    let mut args = std::env::args().skip(1);
    let policy = args.next().unwrap_or_else(|| "diego".into());
    let mut number = |default| {
        args.next()
            .map_or(default, |n| n.parse().expect("a number"))
    };
    let (cells, arrays) = (number(1_000), number(5));
    let whole = args.next().is_some_and(|last| last == "whole");
    let policy = Policy::preset(&policy).expect("a policy");
    let settings = Settings {
        name: "auctioneer".into(),
        policy: policy.clone(),
        limits: Limits::default(),
        max_payload: 1 << 20,
        seed: 7,
        wall_start_ms: 0,
    };
    let node = |number| (format!("cell-{number}"), Node::new(number, whole));
    let nodes = (0..cells).map(node);
    let mut cluster = Cluster {
        auctioneer: Auctioneer::new(settings),
        policy,
        cells: nodes.collect(),
        now_ms: 1,
        counts: false,
        ids: 1 << 100,
        placed: 0,
    };
    cluster.advertise();
    cluster.auctioneer.warmed_up();
    for n in 0..WARM_UP + arrays {
        let array = array(n * ARRAY);
        if n == WARM_UP {
            (cluster.counts, cluster.placed) = (true, 0);
        }
        cluster.start(&array);
        cluster.now_ms += PAUSE_MS;
        cluster.advertise();
    }
    println!(
        "{} starts counted: divide what callgrind collected by that",
        cluster.placed
    );
    println!("{:?}", cluster.auctioneer.counters());
}
