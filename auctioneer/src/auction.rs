//! The auctioneer's state machine: requests, auctions, what was sent to cells and what they said.
//!
//! Pure: it is told the time, draws from the seed it was given, and returns what is to be done.
//! The parts: `batch` holds auctions, `answers` hears cells, `settle` ends requests, `stops` stops,
//! `questions` answers what changes nothing.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use placement::{Policy, Span};
use shared::wire::{Event, kind};

use crate::{
    Counters, HashMap, HashSet,
    feed::{Feed, Heard, LostCell, ReportKind},
    io::{AuctioneerInput, AuctioneerOutput},
    memory::Memory,
    report::Reports,
    ring::Ring,
    sim::SimulatedInput,
    stops::Stopping,
    ticket::{Group, Slot, Ticket, Timed},
};
use shared::{AuctionId, InstanceId, RequestId};

/// How long an auction waits for bids, milliseconds.
pub const BID_WAIT_MS: u64 = 300;
/// How long a start waits for its answer.
pub const START_WAIT_MS: u64 = 1_000;
/// How long after it was sent a cell still takes a start.
pub const START_EXPIRES_MS: u64 = 5_000;
/// The most auctions that refused or undelivered work enters.
pub const MAX_AUCTIONS: u8 = 3;
/// The most jobs of one auction.
pub const MAX_BATCH: usize = 10_000;
/// The most jobs that wait for an auction or for room.
pub const MAX_WAITING: usize = 100_000;
/// A policy that asks nobody would hold an auction for every message under load, each with a start
/// for hardly more than one instance a cell. So while starts of an earlier auction are on their way,
/// work gathers for so long. A start on an idle cluster never waits.
pub const GATHER_MS: u64 = 20;
/// Between two auctions of work that waits for room.
pub const REQUEUE_MS: u64 = 100;
/// When a reply goes out at the latest, unless the request says otherwise.
pub const DEFAULT_DEADLINE_MS: u64 = 4_000;
/// How often leases are looked at.
const EXPIRE_MS: u64 = 100;
/// The most unknown instances whose late answers are awaited.
pub(crate) const MAX_UNSETTLED: usize = 100_000;

/// What a machine is made with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its name, as answers tell it.
    pub name: String,
    /// How it decides.
    pub policy: Policy,
    /// The largest message the server takes, bytes.
    pub max_payload: usize,
    /// Every seed and id is drawn from this.
    pub seed: u64,
    /// Milliseconds since the Unix epoch at time 0.
    pub wall_start_ms: i64,
}

/// A start on its way to a cell.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) cell: Arc<str>,
    pub(crate) auction: AuctionId,
    pub(crate) jobs: Vec<(Slot, InstanceId)>,
}

/// An auction that waits for bids.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) auction: AuctionId,
    pub(crate) missing: BTreeSet<Arc<str>>,
    pub(crate) answered: HashSet<Arc<str>>,
    /// Beside those, all but these, see [`AuctioneerInput::Unchanged`].
    pub(crate) all_but: Option<BTreeSet<Arc<str>>>,
    pub(crate) until_ms: u64,
}

/// An instance whose request was told "unknown".
#[derive(Clone, Debug)]
pub(crate) struct Unsettled {
    pub(crate) request: RequestId,
    pub(crate) app: Arc<str>,
    pub(crate) index: u32,
    pub(crate) cell: Arc<str>,
    pub(crate) auction: AuctionId,
}

/// The machine.
#[derive(Debug)]
pub struct Auctioneer {
    pub(crate) settings: Settings,
    pub(crate) feed: Feed,
    pub(crate) counters: Counters,
    pub(crate) tickets: HashMap<u64, Ticket>,
    pub(crate) by_id: HashMap<RequestId, u64>,
    pub(crate) groups: HashMap<u64, Group>,
    pub(crate) waiting: VecDeque<Slot>,
    pub(crate) held: VecDeque<Slot>,
    /// Instances in the states `Waiting` and `Held`.
    pub(crate) waiting_count: usize,
    pub(crate) held_count: usize,
    pub(crate) held_version: u64,
    pub(crate) requeued_ms: u64,
    pub(crate) asking: Option<Asking>,
    pub(crate) dispatches: HashMap<u64, Dispatch>,
    pub(crate) dispatch_ends: Timed<u64>,
    pub(crate) deadlines: BTreeSet<(u64, u64)>,
    pub(crate) queue_ends: BTreeSet<(u64, u64)>,
    pub(crate) unsettled: HashMap<InstanceId, Unsettled>,
    pub(crate) unsettled_order: VecDeque<InstanceId>,
    pub(crate) checks: HashMap<u64, crate::repeats::Check>,
    pub(crate) stops: HashMap<u64, Stopping>,
    pub(crate) reports: Reports,
    pub(crate) memory: Memory,
    pub(crate) ring: Ring,
    pub(crate) warm: bool,
    pub(crate) leaving: bool,
    pub(crate) out: Vec<AuctioneerOutput>,
    /// Until when work gathers for the next auction, see [`GATHER_MS`].
    pub(crate) gather_until_ms: Option<u64>,
    next_expire_ms: u64,
    next_key: u64,
    random: u64,
}

impl Auctioneer {
    /// A machine that knows nobody yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            random: settings.seed,
            settings,
            feed: Feed::default(),
            counters: Counters::default(),
            tickets: HashMap::default(),
            by_id: HashMap::default(),
            groups: HashMap::default(),
            waiting: VecDeque::new(),
            held: VecDeque::new(),
            waiting_count: 0,
            held_count: 0,
            held_version: 0,
            requeued_ms: 0,
            asking: None,
            dispatches: HashMap::default(),
            dispatch_ends: VecDeque::new(),
            deadlines: BTreeSet::new(),
            queue_ends: BTreeSet::new(),
            unsettled: HashMap::default(),
            unsettled_order: VecDeque::new(),
            checks: HashMap::default(),
            stops: HashMap::default(),
            reports: Reports::default(),
            memory: Memory::default(),
            ring: Ring::default(),
            warm: false,
            leaving: false,
            out: Vec::new(),
            gather_until_ms: None,
            next_expire_ms: 0,
            next_key: 0,
        }
    }

    /// One thing happened, and what follows at once: [`Auctioneer::take`], then [`Auctioneer::run`].
    pub fn handle(&mut self, now_ms: u64, input: AuctioneerInput) -> Vec<AuctioneerOutput> {
        self.take(now_ms, input);
        self.run(now_ms)
    }

    /// One thing happened. Several may be taken before the next [`Auctioneer::run`]: then they share
    /// an auction.
    pub fn take(&mut self, now_ms: u64, input: AuctioneerInput) {
        match input {
            AuctioneerInput::Connected(false) => return self.feed.interrupted(),
            AuctioneerInput::Connected(true) => return,
            AuctioneerInput::Shutdown => return self.leave(now_ms),
            _ => self.feed.evidence(now_ms),
        }
        match input {
            AuctioneerInput::Start(asked) => self.start(now_ms, asked),
            AuctioneerInput::CellReport {
                kind: word,
                subject_cell,
                body,
            } => {
                let (feed, counters) = (&mut self.feed, &mut self.counters);
                let heard = feed.hear(now_ms, word, subject_cell.as_deref(), &body, counters);
                self.heard(now_ms, word, heard);
            }
            AuctioneerInput::Simulated(SimulatedInput::Report {
                kind: word,
                report: said,
            }) => {
                let heard = self.feed.hear_said(now_ms, word, said, &mut self.counters);
                self.heard(now_ms, word, heard);
            }
            AuctioneerInput::Simulated(SimulatedInput::Unchanged { auction, except }) => {
                self.unchanged(now_ms, auction, except);
            }
            AuctioneerInput::StartAnswered { dispatch, answer } => {
                self.answered(now_ms, dispatch.number(), &answer);
            }
            AuctioneerInput::NoResponders { dispatch } => {
                self.nobody_listens(now_ms, dispatch.number());
            }
            AuctioneerInput::Unreadable => self.counters.stray_answers += 1,
            AuctioneerInput::Outcome { id, body } => self.heard_outcome(now_ms, &id, body),
            AuctioneerInput::Announced(ids) => self.heard_begun(now_ms, &ids),
            AuctioneerInput::InstancesReported { lookup, answer } => {
                self.found(now_ms, lookup.number(), &answer);
            }
            AuctioneerInput::Stop { stop, reply } => self.stop(now_ms, stop, reply),
            AuctioneerInput::StopAnswered { stop, answer } => self.stopped(stop.number(), *answer),
            AuctioneerInput::DryRun { dry_run, reply } => self.place(now_ms, &dry_run, reply),
            AuctioneerInput::Explain { explain, reply } => self.explain(now_ms, &explain, reply),
            AuctioneerInput::Pool { page, reply } => self.pool_page(now_ms, &page, reply),
            AuctioneerInput::Queued { queued, reply } => self.tell_queued(now_ms, &queued, reply),
            AuctioneerInput::Capacity { size, reply } => self.capacity(now_ms, &size, reply),
            AuctioneerInput::Rejected { rejected, reply } => self.rejected(&rejected, reply),
            AuctioneerInput::Echo | AuctioneerInput::Connected(_) | AuctioneerInput::Shutdown => {}
        }
    }

    /// Does what is due: deadlines, leases, the next auction. Returns everything to be done since
    /// the last run.
    pub fn run(&mut self, now_ms: u64) -> Vec<AuctioneerOutput> {
        self.unanswered(now_ms);
        self.due(now_ms);
        self.end_checks(now_ms);
        self.end_stops(now_ms);
        if now_ms >= self.next_expire_ms {
            self.expire(now_ms);
        }
        self.requeue(now_ms);
        self.hold_auction(now_ms);
        std::mem::take(&mut self.out)
    }

    /// When [`Auctioneer::run`] must be called at the latest.
    pub fn next_wake_ms(&self) -> u64 {
        self.next_work_ms().min(self.next_expire_ms)
    }

    /// The same but for the look at leases ten times a second. For a driver of virtual time that
    /// leaps over hours in which no lease can end.
    pub fn next_work_ms(&self) -> u64 {
        let requeue = (self.held_count > 0 && self.feed.version() != self.held_version)
            .then_some(self.requeued_ms + REQUEUE_MS);
        let auction = match &self.asking {
            Some(asking) => Some(asking.until_ms),
            None => {
                (self.waiting_count > self.held_count).then_some(self.gather_until_ms.unwrap_or(0))
            }
        };
        [
            requeue,
            auction,
            self.dispatch_ends.front().map(|(at_ms, _)| *at_ms),
            self.deadlines.first().map(|(at_ms, _)| *at_ms),
            self.queue_ends.first().map(|(at_ms, _)| *at_ms),
            self.checks.values().map(|c| c.until_ms).min(),
            self.stops.values().map(|s| s.until_ms).min(),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(u64::MAX)
    }

    /// From now on a cell that is heard for the first time has joined: before that it was there
    /// and this auctioneer was not.
    pub fn warmed_up(&mut self) {
        self.warm = true;
    }

    /// The largest message that the server takes now, bytes.
    pub fn set_max_payload(&mut self, max_payload: usize) {
        self.settings.max_payload = max_payload;
    }

    /// The counters.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters.clone();
        counters.forgotten = self.memory.dropped;
        counters
    }

    /// The cells as they are known.
    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// Whether no request is on its way.
    pub fn is_idle(&self) -> bool {
        self.tickets.is_empty() && self.stops.is_empty()
    }

    /// How many jobs wait for an auction or for room.
    pub fn waiting(&self) -> usize {
        self.waiting_count
    }

    fn heard(&mut self, now_ms: u64, word: ReportKind, heard: Heard) {
        if let Some(cell) = heard.ask_state {
            self.out.push(AuctioneerOutput::AskState { cell });
        }
        for instance in heard.settled {
            self.settle_late(now_ms, instance, None);
        }
        if let Some(lost) = heard.left {
            return self.lost(lost, "cell withdrew".to_owned());
        }
        let Some((cell, auction)) = heard.from else {
            return;
        };
        if heard.joined && self.warm {
            self.event(Event::cell(kind::CELL_JOINED, cell.as_ref()));
        }
        if let Some(asking) = &mut self.asking {
            // a state was asked for because the bid said "unchanged" of a word we missed
            let bid = auction == Some(asking.auction) || word == ReportKind::State;
            if bid && asking.answered.insert(Arc::clone(&cell)) {
                asking.missing.remove(&cell);
                self.feed.bid_in_time(&cell);
            }
        }
    }

    /// Every known cell but these says that its last word holds.
    fn unchanged(&mut self, now_ms: u64, auction: Option<AuctionId>, except: BTreeSet<Arc<str>>) {
        self.feed.renew_all(now_ms, auction.is_none(), &except);
        let asking = self.asking.as_mut();
        if let Some(asking) = asking.filter(|asking| auction == Some(asking.auction)) {
            if except.is_empty() {
                asking.missing.clear();
            }
            asking.missing.retain(|cell| except.contains(cell));
            asking.all_but = Some(except);
        }
    }

    fn expire(&mut self, now_ms: u64) {
        self.next_expire_ms = now_ms + EXPIRE_MS;
        self.memory.prune(now_ms);
        for lost in self.feed.expire(now_ms, &mut self.counters) {
            let ttl = Span(Duration::from_millis(lost.ttl_ms));
            let why = format!("advertisement expired (no message for {ttl})");
            self.lost(lost, why);
        }
    }

    fn lost(&mut self, lost: LostCell, why: String) {
        if let Some(asking) = &mut self.asking {
            asking.missing.remove(&lost.name);
            asking.answered.remove(&lost.name);
        }
        self.cell_gone(&lost.name);
        let event = lost_event(lost, why, self.settings.max_payload / 2);
        self.event(event);
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.out.push(AuctioneerOutput::Event(Box::new(event)));
    }

    pub(crate) fn key(&mut self) -> u64 {
        self.next_key += 1;
        self.next_key
    }

    /// The next draw of the seeded generator (splitmix64).
    pub(crate) fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn new_id(&mut self) -> AuctionId {
        let (high, low) = (self.draw(), self.draw());
        let bytes = ((u128::from(high) << 64) | u128::from(low)).to_be_bytes();
        uuid::Builder::from_random_bytes(bytes).into_uuid().into()
    }
}

/// Says what a lost cell had: whoever replaces instances must know which are gone. As many apps as fit into
/// `max_bytes`.
fn lost_event(lost: LostCell, why: String, max_bytes: usize) -> Event {
    let mut event = Event::cell(kind::CELL_LOST, lost.name.as_ref());
    event.reason = Some(why);
    let lrps: u64 = lost.apps.values().map(|count| u64::from(*count)).sum();
    event.count = usize::try_from(lrps + u64::from(lost.tasks)).unwrap_or(usize::MAX);
    event.tasks = lost.tasks;
    let (mut bytes, all) = (0, lost.apps.len());
    let fits = lost.apps.into_iter().take_while(|(app, _)| {
        bytes += app.len() + 16;
        bytes <= max_bytes
    });
    event.apps = fits.collect();
    event.more = event.apps.len() < all;
    event
}
