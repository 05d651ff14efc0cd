//! Simulated cells, and a machine that receives their messages.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use placement::{Cell, Policy, Request, Resources, Span};
use serde_json::Value;
use shared::wire::{Acceptance, Advert, Bid, CellStart, Event, Refusal, StartReply, to_bytes};
use std::time::Duration;

use crate::{
    AdmittedRequest, Auctioneer, AuctioneerInput, AuctioneerOutput, DispatchId, ReplyKey, Settings,
    StartMessage, feed::ReportKind,
};
use shared::clock::CellTime;
use shared::{AuctionId, Incarnation, InstanceId};

/// A cell with the state that its rep would keep.
#[derive(Clone, Debug)]
pub(super) struct TestCell {
    pub(super) cell: Cell,
    pub(super) incarnation: Incarnation,
    pub(super) seq: u64,
    pub(super) clock_ms: CellTime,
    pub(super) ttl_ms: u64,
    pub(super) recent: BTreeSet<InstanceId>,
}

impl TestCell {
    pub(super) fn new(name: &str, memory_mb: i64) -> Self {
        Self {
            cell: Cell::new(name, Resources::new(memory_mb, 100_000, 250)),
            incarnation: Incarnation::from_u128(
                u128::from(name.as_bytes()[name.len() - 1]) << 8 | 1,
            ),
            seq: 1,
            clock_ms: CellTime::from_ms(1_000),
            ttl_ms: 15_000,
            recent: BTreeSet::new(),
        }
    }

    pub(super) fn report(&self, auction: Option<AuctionId>) -> Bytes {
        to_bytes(&self.advert(auction))
    }

    pub(super) fn advert(&self, auction: Option<AuctionId>) -> Advert {
        Advert {
            v: shared::VERSION,
            auction,
            incarnation: self.incarnation,
            seq: self.seq,
            clock_ms: self.clock_ms,
            ttl: Span(Duration::from_millis(self.ttl_ms)),
            recent: self.recent.iter().copied().collect(),
            leaving: false,
            cell: self.cell.clone(),
        }
    }

    pub(super) fn unchanged(&self, auction: AuctionId) -> Bytes {
        to_bytes(&Bid {
            v: shared::VERSION,
            auction,
            cell: self.cell.cell.clone(),
            incarnation: self.incarnation,
            seq: self.seq,
            clock_ms: self.clock_ms,
            unchanged: true,
        })
    }

    /// Accepts what fits, as a rep does.
    pub(super) fn answer(&mut self, start: &CellStart) -> Acceptance {
        let mut accepted = Vec::new();
        let mut refused = Vec::new();
        for work in &start.work {
            let request = Request::new(&work.app, work.memory_mb, work.disk_mb);
            let here = self.cell.count_of(&work.app);
            let refusal = if self.recent.contains(&work.instance) {
                None
            } else if start.incarnation != self.incarnation {
                Some("restarted".to_owned())
            } else if work.believed.is_some_and(|believed| here > believed) {
                Some("changed".to_owned())
            } else if self.cell.available.fits(&request) {
                self.cell.debit(&request, None);
                self.recent.insert(work.instance);
                self.seq += 1;
                None
            } else {
                Some("insufficient resources: memory".to_owned())
            };
            match refusal {
                None => accepted.push(work.instance),
                Some(reason) => refused.push(Refusal {
                    instance: work.instance,
                    reason,
                    needs: None,
                    has: None,
                }),
            }
        }
        let apps = start
            .work
            .iter()
            .map(|w| (w.app.clone(), self.cell.count_of(&w.app)));
        Acceptance {
            v: shared::VERSION,
            cell: self.cell.cell.clone(),
            incarnation: self.incarnation,
            seq: self.seq,
            available: self.cell.available.clone(),
            apps: apps.collect(),
            accepted,
            refused,
        }
    }
}

/// A start in flight.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) dispatch: DispatchId,
    pub(super) cell: String,
    pub(super) start: CellStart,
}

/// The machine, its clock, and all its outputs.
pub(super) struct World {
    pub(super) machine: Auctioneer,
    pub(super) now_ms: u64,
    pub(super) out: Vec<AuctioneerOutput>,
    pub(super) cells: BTreeMap<String, TestCell>,
    keys: u64,
}

impl World {
    pub(super) fn new(policy: &str) -> Self {
        Self::with(policy, 1 << 20)
    }

    pub(super) fn with(policy: &str, max_payload: usize) -> Self {
        let mut world = Self::made(policy, max_payload);
        world.machine.trust_ids();
        world
    }

    /// Creates a world whose auctioneer does not know what was requested before.
    pub(super) fn unsure(policy: &str) -> Self {
        Self::made(policy, 1 << 20)
    }

    /// Adds a cell of 1,000 MiB, which advertises.
    pub(super) fn add(&mut self, name: &str) {
        let cell = TestCell::new(name, 1_000);
        self.cells.insert(name.to_owned(), cell);
        self.advertise(name);
    }

    fn made(policy: &str, max_payload: usize) -> Self {
        let mut machine = Auctioneer::new(Settings {
            name: "a1".into(),
            policy: Policy::preset(policy).unwrap_or_else(|_| Policy::parse(policy).unwrap()),
            limits: crate::Limits::default(),
            max_payload,
            seed: 1,
            wall_start_ms: 0,
        });
        machine.warmed_up();
        Self {
            machine,
            now_ms: 1_000,
            out: Vec::new(),
            cells: BTreeMap::new(),
            keys: 0,
        }
    }

    /// Creates a world with cells of 1,000 MiB each that have advertised.
    pub(super) fn with_cells(policy: &str, names: &[&str]) -> Self {
        let mut world = Self::new(policy);
        for name in names {
            world.add(name);
        }
        world.out.clear();
        world
    }

    /// Creates a world on this day of 1970, with cells that will be rebooted on 20 January and the ninth and last on 1
    /// June.
    pub(super) fn with_reboots(day: u64) -> Self {
        let mut world = Self::new("dapi");
        // the clock of these tests starts at the epoch
        world.now_ms = day * 24 * 3_600 * 1_000;
        for n in 1..=9 {
            let name = format!("c{n}");
            let mut cell = TestCell::new(&name, 1_000);
            let reboot = if n == 9 { "1970-06-01" } else { "1970-01-20" };
            cell.cell.attributes_mut().next_reboot = Some(reboot.parse().unwrap());
            world.cells.insert(name.clone(), cell);
            world.advertise(&name);
        }
        world
    }

    pub(super) fn cell(&mut self, name: &str) -> &mut TestCell {
        self.cells.get_mut(name).unwrap()
    }

    pub(super) fn input(&mut self, input: AuctioneerInput) {
        let outputs = self.machine.handle(self.now_ms, input);
        self.out.extend(outputs);
    }

    pub(super) fn receive(&mut self, kind: ReportKind, subject_cell: Option<&str>, body: Bytes) {
        self.input(AuctioneerInput::CellReport {
            kind,
            subject_cell: subject_cell.map(str::to_owned),
            body,
        });
    }

    /// Publishes the cell's clock and state as an advertisement.
    pub(super) fn advertise(&mut self, name: &str) {
        let now_ms = self.now_ms;
        let cell = self.cell(name);
        cell.clock_ms = CellTime::from_ms(now_ms + 7_000_000);
        let report = cell.report(None);
        self.receive(ReportKind::Advert, Some(name), report);
    }

    /// Lets time pass, with an echo every 500 ms as evidence that messages arrive.
    pub(super) fn pass(&mut self, ms: u64) {
        let end_ms = self.now_ms + ms;
        while self.now_ms < end_ms {
            self.now_ms = (self.now_ms + 500).min(end_ms);
            self.input(AuctioneerInput::Echo);
        }
    }

    /// Lets time pass without any message.
    pub(super) fn silence(&mut self, ms: u64) {
        self.now_ms += ms;
        let outputs = self.machine.run(self.now_ms);
        self.out.extend(outputs);
    }

    /// Sends these requests, and returns the key of the answer.
    pub(super) fn ask(&mut self, requests: Vec<Request>) -> ReplyKey {
        self.keys += 1;
        let key = ReplyKey::new(self.keys);
        self.input(asked(requests, Some(key)));
        key
    }

    /// Sends one request with this id.
    pub(super) fn ask_one(
        &mut self,
        id: &str,
        app: &str,
        memory_mb: i64,
        instances: u32,
    ) -> ReplyKey {
        self.ask(vec![request(id, app, memory_mb, instances)])
    }

    /// Removes and returns the starts sent since the last call.
    pub(super) fn sent(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        self.out.retain(|output| match output {
            AuctioneerOutput::Start {
                dispatch,
                cell,
                body,
            } => {
                sent.push(Sent {
                    dispatch: *dispatch,
                    cell: cell.to_string(),
                    start: serde_json::from_slice(body).unwrap(),
                });
                false
            }
            _ => true,
        });
        sent
    }

    /// Delivers a start: the cell accepts what fits, and its answer arrives.
    pub(super) fn deliver(&mut self, sent: &Sent) {
        let answer = self.cell(&sent.cell).answer(&sent.start);
        self.answered(sent, answer);
    }

    pub(super) fn answered(&mut self, sent: &Sent, answer: Acceptance) {
        self.input(AuctioneerInput::StartAnswered {
            dispatch: sent.dispatch,
            answer: Box::new(answer),
        });
    }

    /// Delivers every start until there are none left. Returns how many there were.
    pub(super) fn deliver_all(&mut self) -> usize {
        let mut count = 0;
        loop {
            let sent = self.sent();
            if sent.is_empty() {
                return count;
            }
            count += sent.len();
            for sent in sent {
                self.deliver(&sent);
            }
        }
    }

    /// Returns the auction for which bids were last asked.
    pub(super) fn asked_bids(&self) -> Option<AuctionId> {
        self.out.iter().rev().find_map(|o| match o {
            AuctioneerOutput::AskBids { auction } => Some(*auction),
            _ => None,
        })
    }

    /// Has the cell bid "unchanged".
    pub(super) fn bid(&mut self, name: &str) {
        let auction = self.asked_bids().expect("bids were asked for");
        let bid = self.cells[name].unchanged(auction);
        self.receive(ReportKind::Bid, None, bid);
    }

    /// Has every cell bid "unchanged".
    pub(super) fn bid_all(&mut self) {
        let auction = self.asked_bids().expect("bids were asked for");
        let bids: Vec<Bytes> = self.cells.values().map(|c| c.unchanged(auction)).collect();
        for bid in bids {
            self.receive(ReportKind::Bid, None, bid);
        }
    }

    /// Returns the answer under this key, if there is one; an error as its body.
    pub(super) fn reply(&self, key: ReplyKey) -> Option<Value> {
        let mut replies = self.out.iter().filter_map(|o| match o {
            AuctioneerOutput::Reply { to, body } if *to == key => {
                Some(serde_json::from_slice(body).unwrap())
            }
            AuctioneerOutput::ReplyError { to, error } if *to == key => {
                Some(serde_json::to_value(error.body()).unwrap())
            }
            _ => None,
        });
        let reply = replies.next();
        assert_eq!(replies.next(), None, "a message is answered once");
        reply
    }

    pub(super) fn start_reply(&self, key: ReplyKey) -> StartReply {
        let reply = self
            .reply(key)
            .unwrap_or_else(|| panic!("no answer; {:#?}", self.out));
        serde_json::from_value(reply).unwrap()
    }

    pub(super) fn events(&self, kind: &str) -> Vec<Event> {
        let events = self.out.iter().filter_map(|o| match o {
            AuctioneerOutput::Event(event) if event.kind == kind => Some((**event).clone()),
            _ => None,
        });
        events.collect()
    }

    pub(super) fn outcomes(&self, id: &str) -> Vec<Value> {
        let outcomes = self.out.iter().filter_map(|o| match o {
            AuctioneerOutput::Outcome { id: of, body } if *of == id => {
                Some(serde_json::from_slice(body).unwrap())
            }
            _ => None,
        });
        outcomes.collect()
    }

    /// Returns the memory, in MiB, that the pool still shows for a cell.
    pub(super) fn free(&self, cell: &str) -> i64 {
        self.machine
            .feed()
            .pool()
            .get(cell)
            .unwrap()
            .available
            .memory_mb
    }
}

pub(super) fn request(id: &str, app: &str, memory_mb: i64, instances: u32) -> Request {
    let mut request = Request::new(app, memory_mb, 10);
    request.id = id.to_owned();
    request.instances = instances;
    request
}

pub(super) fn asked(requests: Vec<Request>, reply: Option<ReplyKey>) -> AuctioneerInput {
    let array = requests.len() != 1;
    let admit = |request: Request| {
        Ok(AdmittedRequest {
            id: request.id.parse().unwrap(),
            given: true,
            request: Arc::new(request),
            warnings: Vec::new(),
        })
    };
    AuctioneerInput::Start(StartMessage {
        requests: requests.into_iter().map(admit).collect(),
        array,
        reply,
    })
}
