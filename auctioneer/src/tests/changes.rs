//! Advertisements and bids that say only what has changed.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use advertiser::Cadence;
use placement::{Cell, DeviceSet, DeviceShare, DeviceShares, Job, Kind, Request, Resources, Span};
use proptest::prelude::*;
use rep::{
    CellBid, CellInput, CellMachine, CellOutput, CellSettings, Simulated, SimulatedConfig,
    ledger::Ledger,
};
use shared::{
    AuctionId, Incarnation, InstanceId, VERSION,
    clock::CellTime,
    wire::{Acceptance, CellStart, Change, Work, parse_change, to_bytes},
};

use super::{feed::Bench, world::TestCell};
use crate::{
    Counters,
    feed::{Debit, Feed, Received, ReportKind},
};

/// What happens to a cell and to what it says.
#[derive(Clone, Debug)]
enum Happens {
    /// These are started; its answer arrives or not.
    Start(Vec<u8>, bool),
    Stop(u8),
    Bid,
    Discover,
    Cordon(bool),
    Time(u64),
    /// The next advertisement is lost.
    Lose,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => (prop::collection::vec(any::<u8>(), 1..4), any::<bool>())
            .prop_map(|(ids, answered)| Happens::Start(ids, answered)),
        3 => any::<u8>().prop_map(Happens::Stop),
        4 => Just(Happens::Bid),
        1 => Just(Happens::Discover),
        1 => any::<bool>().prop_map(Happens::Cordon),
        8 => (1..400_u64).prop_map(Happens::Time),
        1 => Just(Happens::Lose),
    ]
}

/// Returns the work of an id; apps, kinds, owners, tags and sizes differ between ids.
fn work(id: u8) -> Work {
    let app = ["a", "b", "c", "d"][usize::from(id % 4)];
    let mut work = Work::new(InstanceId::from_u128(u128::from(id)), app, 2, 1);
    if id.is_multiple_of(5) {
        work.kind = Kind::Task;
    }
    work.cpu_millis = i64::from(id % 2);
    work.owner = id.is_multiple_of(3).then(|| format!("owner-{}", id % 2));
    work.tags = [("role".to_owned(), format!("{}", id % 3))].into();
    if id.is_multiple_of(7) {
        let (amount, numbers) = (10, vec![u32::from(id % 2)]);
        work.devices = [("card".to_owned(), DeviceShare { amount, numbers })].into();
    }
    work
}

fn job(work: &Work) -> (Job, Option<Box<DeviceShares>>) {
    let mut request = Request::new(work.app.clone(), work.memory_mb, work.disk_mb);
    request.kind = work.kind;
    request.cpu_millis = work.cpu_millis;
    request.owner.clone_from(&work.owner);
    request.tags.clone_from(&work.tags);
    let request = Arc::new(request);
    let devices = (!work.devices.is_empty()).then(|| Box::new(work.devices.clone()));
    (Job { request, index: 0 }, devices)
}

/// A cell, and two feeds: one hears what it says, the other its whole state each time.
struct Pair {
    machine: CellMachine,
    executor: Simulated,
    feeds: [Feed; 2],
    counters: Counters,
    now_ms: u64,
    loses: bool,
    /// Not started again: a whole report would list them as accepted.
    stopped: BTreeSet<u8>,
    changes: usize,
}

impl Pair {
    fn new() -> Self {
        let mut total = Resources::new(200, 1_000, 60);
        total.cpu_millis = 1_000;
        total.devices.insert("card".into(), DeviceSet::new(2, 100));
        let ledger = Ledger::new(Cell::new("c", total), Incarnation::from_u128(1), "");
        let settings = CellSettings {
            cadence: Cadence::default(),
            drain_deadline: Span::default(),
            seed: 1,
        };
        let mut pair = Self {
            machine: CellMachine::new(ledger, settings, 0),
            executor: Simulated::new(SimulatedConfig {
                start: Span(Duration::from_millis(30)),
                ..SimulatedConfig::default()
            }),
            feeds: [Feed::default(), Feed::default()],
            counters: Counters::default(),
            now_ms: 0,
            loses: false,
            stopped: BTreeSet::new(),
            changes: 0,
        };
        pair.pass(0);
        pair
    }

    fn take(&mut self, feed: usize, kind: ReportKind, body: &[u8]) -> Received {
        let (feed, counters) = (&mut self.feeds[feed], &mut self.counters);
        feed.evidence(self.now_ms);
        feed.receive(self.now_ms, kind, Some("c"), body, counters)
    }

    /// Tells both feeds; one that cannot use a change is told the whole state.
    fn tell(&mut self, kind: ReportKind, auction: Option<AuctionId>, body: &[u8]) {
        let is_change = parse_change(body).is_ok();
        self.changes += usize::from(is_change);
        let whole = if is_change {
            to_bytes(&self.machine.state(self.now_ms, auction))
        } else {
            body.to_vec().into()
        };
        let said = self.take(0, kind, body);
        let mut told = self.take(1, kind, &whole);
        if said.ask_state.is_some() {
            let state = to_bytes(&self.machine.state(self.now_ms, None));
            self.take(0, ReportKind::State, &state);
            self.take(1, ReportKind::State, &state);
        } else if said.from.is_some() {
            told.settled.sort_unstable();
            let mut settled = said.settled;
            settled.sort_unstable();
            assert_eq!(settled, told.settled);
        } else {
            // it asks once a second; the next whole advertisement helps
            let state = to_bytes(&self.machine.state(self.now_ms, None));
            self.take(0, ReportKind::State, &state);
        }
        let cells = [0, 1].map(|n| self.feeds[n].pool().get("c").unwrap());
        assert_eq!(cells[0], cells[1]);
        let known = [0, 1].map(|n| self.feeds[n].get("c").unwrap());
        let about = known.map(|k| (k.seq, k.clock_ms, k.ttl_ms, k.expires_at_ms, k.debits.len()));
        assert_eq!(about[0], about[1]);
    }

    fn settle(&mut self) {
        loop {
            for report in self.executor.due(self.now_ms) {
                self.machine.take(self.now_ms, CellInput::Report(report));
            }
            let outputs = self.machine.run(self.now_ms);
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                let body = match output {
                    CellOutput::Advertise(advert) => to_bytes(&*advert),
                    CellOutput::AdvertiseChange(change) => to_bytes(&*change),
                    CellOutput::Execute(order) => {
                        self.executor.execute(self.now_ms, &order);
                        continue;
                    }
                    _ => continue,
                };
                if !std::mem::take(&mut self.loses) || self.now_ms == 0 {
                    self.tell(ReportKind::Advert, None, &body);
                }
            }
        }
    }

    fn pass(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        loop {
            // what the executor reports now is in what is advertised now
            self.settle();
            self.machine.take(self.now_ms, CellInput::Tick);
            self.settle();
            let due = self
                .machine
                .next_ms()
                .into_iter()
                .chain(self.executor.next_ms());
            let next_ms = due.min().unwrap_or(u64::MAX);
            if next_ms > until_ms {
                break;
            }
            self.now_ms = next_ms.max(self.now_ms);
        }
        self.now_ms = until_ms;
    }

    fn start(&mut self, ids: &[u8], answered: bool) {
        let ids = ids.iter().copied();
        let ids = ids.filter(|id| !self.stopped.contains(id));
        let start = CellStart {
            v: VERSION,
            auction: AuctionId::from_u128(1),
            incarnation: Incarnation::from_u128(1),
            expires_ms: CellTime::from_ms(self.now_ms + 2_000),
            work: ids.map(work).collect(),
        };
        for work in &start.work {
            let (job, devices) = job(work);
            for feed in &mut self.feeds {
                feed.debit(
                    "c",
                    Debit {
                        instance: work.instance,
                        job: job.clone(),
                        devices: devices.clone(),
                        answered_seq: None,
                        expires_ms: start.expires_ms,
                    },
                );
            }
        }
        let answer: Acceptance = self.machine.start(self.now_ms, &to_bytes(&start)).unwrap();
        if answered {
            for feed in &mut self.feeds {
                feed.answered(&answer);
            }
        }
        self.settle();
    }

    fn happens(&mut self, happens: &Happens) {
        match happens {
            Happens::Start(ids, answered) => self.start(ids, *answered),
            Happens::Stop(id) => {
                self.stopped.insert(*id);
                let work = work(*id);
                let stop = serde_json::json!({"app": work.app, "instances": [work.instance]});
                let answer = self.machine.stop(self.now_ms, &to_bytes(&stop));
                assert_eq!(answer.unwrap().cell, "c");
                self.settle();
            }
            Happens::Bid => {
                let auction = AuctionId::from_u128(2);
                let body = match self.machine.bid(self.now_ms, auction).unwrap() {
                    CellBid::Unchanged(bid) => to_bytes(&bid),
                    CellBid::Change(change) => to_bytes(&*change),
                    CellBid::Full(advert) => to_bytes(&*advert),
                };
                self.tell(ReportKind::Bid, Some(auction), &body);
            }
            Happens::Discover => {
                self.machine.take(self.now_ms, CellInput::Discover);
                self.settle();
            }
            Happens::Cordon(cordon) => {
                let body = br#"{"v":1}"#;
                if *cordon {
                    self.machine.cordon(self.now_ms, body).unwrap();
                } else {
                    self.machine.uncordon(self.now_ms, body).unwrap();
                }
                self.settle();
            }
            Happens::Time(ms) => self.pass(*ms),
            Happens::Lose => self.loses = true,
        }
    }
}

proptest! {
    #[test]
    fn whoever_hears_changes_knows_as_much_as_whoever_hears_everything(
        all in prop::collection::vec(happens(), 0..120),
    ) {
        let mut pair = Pair::new();
        for one in &all {
            pair.happens(one);
        }
    }
}

#[test]
fn a_cell_at_work_says_changes_most_of_the_time() {
    let mut pair = Pair::new();
    for id in 0..60 {
        pair.happens(&Happens::Start(vec![id], true));
        pair.happens(&Happens::Bid);
        pair.happens(&Happens::Time(100));
    }
    assert!(pair.changes > 90, "{} changes", pair.changes);
    assert_eq!(pair.counters.missed_reports, 0);
}

fn change_of(cell: &TestCell, since: u64) -> Change {
    let advert = cell.advert(None);
    Change {
        v: VERSION,
        auction: None,
        incarnation: advert.incarnation,
        seq: advert.seq,
        since,
        clock_ms: advert.clock_ms,
        ttl: advert.ttl,
        recent: Vec::new(),
        leaving: false,
        cell: advert.cell.cell.clone(),
        change: placement::CellChange {
            available: advert.cell.available.clone(),
            starting: 0,
            apps: [("app".to_owned(), 3)].into(),
            tasks: 0,
            evacuating: false,
            cordoned: false,
            owners: Default::default(),
            tags: Default::default(),
            cpu_capped: 0,
            cpu_uncapped: 0,
        },
    }
}

#[test]
fn a_change_is_used_if_it_builds_on_what_is_known() {
    let mut cell = TestCell::new("c", 100);
    cell.seq = 10;
    // (what, since, seq, whether it is used, whether the cell is asked)
    for (what, since, seq, used, asked) in [
        ("the known version", 10, 11, true, false),
        ("an earlier one", 7, 12, true, false),
        ("a later one", 11, 12, false, true),
        ("an older change", 7, 9, false, false),
        ("the same version", 7, 10, false, false),
    ] {
        let mut bench = Bench::new();
        bench.receive(&cell);
        let mut later = cell.clone();
        (later.seq, later.cell.available.memory_mb) = (seq, 50);
        let body = to_bytes(&change_of(&later, since));
        let received = bench.receive_on("c", &body);
        assert_eq!(received.ask_state.is_some(), asked, "{what}");
        assert_eq!(bench.free() == 50, used, "{what}");
        let known = bench.feed.pool().get("c").unwrap();
        assert_eq!(known.count_of("app"), if used { 3 } else { 0 }, "{what}");
        // a second one is not asked about at once
        assert_eq!(bench.receive_on("c", &body).ask_state, None, "{what}");
        bench.pass(1_000);
        let again = bench.receive_on("c", &body).ask_state;
        assert_eq!(again.is_some(), asked, "{what}");
        assert_eq!(
            bench.counters.missed_reports,
            if asked { 3 } else { 0 },
            "{what}"
        );
    }
}

#[test]
fn a_change_of_an_unknown_cell_or_incarnation_is_left_alone() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    let body = to_bytes(&change_of(&cell, 1));
    assert_eq!(bench.receive_on("c", &body), Received::default());
    assert!(bench.feed.pool().is_empty());
    bench.receive(&cell);
    cell.incarnation = Incarnation::from_u128(77);
    (cell.seq, cell.clock_ms) = (9, CellTime::from_ms(1));
    let received = bench.receive_on("c", &to_bytes(&change_of(&cell, 1)));
    assert_eq!(received.from, None);
    assert!(received.ask_state.is_some());
    assert_eq!(bench.free(), 100);
}

#[test]
fn a_change_that_its_cell_cannot_have_is_dropped() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    bench.receive(&cell);
    cell.seq += 1;
    cell.cell.available.memory_mb = 101;
    let received = bench.receive_on("c", &to_bytes(&change_of(&cell, 1)));
    let error = received.error.unwrap().to_string();
    assert!(error.contains("at most total.memory_mb (100)"), "{error}");
    cell.cell.available.memory_mb = 100;
    let bad_name = String::from_utf8(to_bytes(&change_of(&cell, 1)).to_vec()).unwrap();
    let bad_name = bad_name.replace(r#""app":3"#, r#""a.b":3"#);
    let received = bench.receive_on("c", bad_name.as_bytes());
    assert!(received.error.unwrap().to_string().contains("apps"));
    assert_eq!(bench.counters.dropped_malformed, 2);
    assert_eq!(bench.free(), 100);
}

/// The cell advertises nothing but changes; its state is asked for.
#[test]
fn a_forged_version_is_not_believed_for_longer_where_a_cell_advertises_changes() {
    let mut bench = Bench::new();
    let mut cell = TestCell::new("c", 100);
    cell.clock_ms = CellTime::from_ms(1_000_000);
    bench.receive(&cell);
    let mut forged = cell.clone();
    (forged.seq, forged.cell.available.memory_mb) = (u64::MAX, 1);
    bench.receive(&forged);
    for seconds in 1..=16 {
        assert_eq!(bench.free(), 1, "{seconds}");
        bench.pass(1_000);
        cell.seq += 1;
        let clock_ms = cell.clock_ms.as_ms() + 1_000;
        cell.clock_ms = CellTime::from_ms(clock_ms);
        let change = to_bytes(&change_of(&cell, cell.seq - 1));
        if bench.receive_on("c", &change).ask_state.is_some() {
            let state = cell.report(None);
            let (feed, counters) = (&mut bench.feed, &mut bench.counters);
            feed.receive(bench.now_ms, ReportKind::State, Some("c"), &state, counters);
        }
    }
    assert_eq!(bench.free(), 100);
}
