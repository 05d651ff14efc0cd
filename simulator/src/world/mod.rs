//! A cluster under virtual time: the auctioneers' and the cells' own state machines, a network that
//! delays and loses, clients, and what goes wrong.
//!
//! The clock counts microseconds; the machines get milliseconds. Deciding takes no virtual time.
//!
//! Three things are counted instead of made, because they change nothing. Bids that say "unchanged"
//! of a version that the auctioneer knows reach it as one input when the last of them would have
//! come (only where no message can be lost). Heartbeats, which no auctioneer hears. And in scenarios
//! of more than a day ("counted" mode) advertisements without news and echoes: leases are renewed
//! whenever an auctioneer has something to do, and pool time passes only around faults, where the
//! echoes are made, so the same cells are known and lost as if all had been said.

mod carry;
mod cell;
mod client;
mod faults;
mod figures;
mod idle;
mod messages;
mod mirror;
mod node;
mod sample;
mod traffic;

pub use self::mirror::{Mirror, ToSend};

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    sync::Arc,
};

use auctioneer::feed::Word;
use placement::Policy;
use shared::clock::millis;
use uuid::Uuid;

use self::{
    client::Client,
    messages::{Message, ToCell, written},
    sample::Samples,
    traffic::{Counts, Kind},
};
use crate::{demand::Demand, measure::Meter, outcome::Run, random::Random, scenario::Scenario};

/// How long the cluster is up before the first request.
const WARM_UP_US: u64 = 2_000_000;
/// How long a run without a duration goes on after the last outcome.
const SETTLE_US: u64 = 1_000_000;
/// And how much longer at most while messages are on their way.
const PATIENCE_US: u64 = 60_000_000;
/// Longer scenarios are run in counted mode.
const COUNTED_MS: u64 = 24 * 3_600_000;
/// How long after a fault time passes for leases in counted mode, beside twice a cell's ttl.
const ALERT_MS: u64 = 10_000;
/// How often whoever watches is told, in events.
const TELL: u64 = 4_096;

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Virtual milliseconds since the first request.
    pub virtual_ms: u64,
    /// Where it ends at the latest, as far as that is known.
    pub end_ms: u64,
    /// Instances placed.
    pub placed: u64,
    /// Instances asked for.
    pub asked: u64,
}

/// What happens at a moment.
#[derive(Debug)]
enum Event {
    /// The demands from here that are made at one moment.
    Demand(usize),
    /// A message arrives.
    Arrives(Box<Message>),
    /// An auctioneer's own time.
    Wake(usize),
    /// An auctioneer's echo to itself.
    Echo(usize, u32),
    /// A cell's own time.
    Tick(usize),
    /// A client looks whether its message was answered.
    Retry(usize),
    /// The health manager asks again for what was lost.
    Again(u64),
    /// A fault begins or ends.
    Fault(usize, bool),
    /// A look at the cells.
    Sample,
}

struct Entry {
    at_us: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at_us, self.number) == (other.at_us, other.number)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_us, self.number).cmp(&(other.at_us, other.number))
    }
}

/// How a run is made, beside the scenario.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Decides every draw.
    pub seed: u64,
    /// Every message is made and its body written and read again. Otherwise bids without news are
    /// counted, and cells' words are handed over as they are. It makes no difference but in time.
    pub verbatim: bool,
}

/// The cluster.
pub(crate) struct World<'s> {
    scenario: &'s Scenario,
    label: &'s str,
    policy: &'s Policy,
    settings: Settings,
    demands: &'s [Demand],
    now_us: u64,
    events: BinaryHeap<Reverse<Entry>>,
    number: u64,
    random: Random,
    /// By name.
    cells: Vec<cell::Node>,
    by_name: BTreeMap<Arc<str>, usize>,
    nodes: Vec<node::Node>,
    /// When the last message of each pair arrives: messages of one pair keep their order.
    to_cell_us: Vec<u64>,
    to_node_us: Vec<u64>,
    /// How many faults hold NATS away.
    away: u32,
    counts: Counts,
    client: Client,
    samples: Samples,
    meter: Meter,
    counted: bool,
    /// In counted mode: until then echoes are made.
    alert_ms: u64,
    /// Milliseconds that cells were down, in all, and since when those are that are down now.
    down_ms: u64,
    down_since: BTreeMap<usize, u64>,
    /// Messages on their way.
    in_flight: u64,
    /// For ids of what ran before.
    held: u64,
    /// When everything had its outcome.
    done_us: Option<u64>,
}

/// Plays a scenario under one policy. `watch` is told now and then, and ends the run by returning
/// false; then the second value is true.
pub(crate) fn run(
    scenario: &Scenario,
    label: &str,
    policy: &Policy,
    demands: &[Demand],
    settings: Settings,
    watch: &mut dyn FnMut(Progress) -> bool,
) -> (Run, bool) {
    let mut world = World::new(scenario, label, policy, demands, settings);
    world.begin();
    let interrupted = !world.play(watch);
    (world.figures(true), interrupted)
}

impl<'s> World<'s> {
    fn new(
        scenario: &'s Scenario,
        label: &'s str,
        policy: &'s Policy,
        demands: &'s [Demand],
        settings: Settings,
    ) -> Self {
        let seed = settings.seed;
        let mut cells: Vec<cell::Node> = scenario
            .base
            .cells
            .iter()
            .map(|cell| cell::Node::new(cell.clone(), scenario.cadence, scenario.start_takes, seed))
            .collect();
        cells.sort_by(|a, b| a.name.cmp(&b.name));
        let by_name = cells.iter().enumerate();
        let by_name = by_name
            .map(|(c, cell)| (Arc::clone(&cell.name), c))
            .collect();
        let nodes = (0..scenario.auctioneers as usize)
            .map(|_| node::Node::default())
            .collect();
        let links = cells.len() * scenario.auctioneers as usize;
        let last_ms = demands
            .last()
            .map_or(0, |d| d.at_ms)
            .max(scenario.duration_ms.unwrap_or(0));
        Self {
            scenario,
            label,
            policy,
            settings,
            demands,
            now_us: 0,
            events: BinaryHeap::new(),
            number: 0,
            random: Random::new(seed).fork("network", 0),
            cells,
            by_name,
            nodes,
            to_cell_us: vec![0; links],
            to_node_us: vec![0; links],
            away: 0,
            counts: Counts::default(),
            client: Client::new(seed),
            samples: Samples::new(last_ms, scenario.duration_ms.is_some()),
            meter: Meter::new(Vec::new(), 0),
            // where only the next advertisement tells a change, that one must be made
            counted: last_ms > COUNTED_MS && scenario.cadence.tells_changes(),
            alert_ms: 0,
            down_ms: 0,
            down_since: BTreeMap::new(),
            in_flight: 0,
            held: 0,
            done_us: None,
        }
    }

    fn now_ms(&self) -> u64 {
        self.now_us / 1_000
    }

    fn at(&mut self, at_us: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse(Entry {
            at_us,
            number: self.number,
            event,
        }));
    }

    /// Everybody starts; the demands, faults and looks come after the warm-up.
    fn begin(&mut self) {
        for c in 0..self.cells.len() {
            self.start_cell(c);
        }
        for n in 0..self.nodes.len() {
            self.start_auctioneer(n);
        }
        while self
            .events
            .peek()
            .is_some_and(|Reverse(next)| next.at_us < WARM_UP_US)
        {
            self.next();
        }
        self.now_us = WARM_UP_US;
        self.counts = Counts::default();
        for cell in &mut self.cells {
            cell.advertised_ms = WARM_UP_US / 1_000;
        }
        if let Some(first) = self.demands.first() {
            self.at(WARM_UP_US + first.at_ms * 1_000, Event::Demand(0));
        }
        for (f, fault) in self.scenario.faults.iter().enumerate() {
            let begins_us = WARM_UP_US + fault.at_ms * 1_000;
            self.at(begins_us, Event::Fault(f, true));
            if let Some(for_ms) = fault.for_ms {
                self.at(begins_us + for_ms * 1_000, Event::Fault(f, false));
            }
        }
        let largest = self.demands.iter().filter_map(Demand::memory_mb).max();
        self.measure_from_now(largest.unwrap_or(0));
        self.at(WARM_UP_US, Event::Sample);
    }

    fn start_cell(&mut self, c: usize) {
        let now_ms = self.now_ms();
        let name = Arc::clone(&self.cells[c].name);
        let nothing = Vec::new();
        // what runs before the first request is lost with the first life
        let running = match self.cells[c].life {
            0 => self.scenario.base.running.get(&*name).unwrap_or(&nothing),
            _ => &nothing,
        };
        let life = u64::from(self.cells[c].life);
        let root = Random::new(self.settings.seed);
        let mut random = root.fork("cell", ((c as u64) << 32) | life);
        let incarnation = uuid(&mut random);
        self.cells[c].begin(now_ms, incarnation, running, &mut self.held);
        self.settle(c, advertiser::Input::Tick);
    }

    /// Until the end, or until whoever watches has enough: then false.
    fn play(&mut self, watch: &mut dyn FnMut(Progress) -> bool) -> bool {
        let end_us = self.scenario.duration_ms.map(|ms| WARM_UP_US + ms * 1_000);
        let mut count: u64 = 0;
        while let Some(Reverse(next)) = self.events.peek() {
            let at_us = next.at_us;
            let over = match end_us {
                Some(end_us) => at_us > end_us,
                None => self.is_done(at_us),
            };
            if over {
                break;
            }
            self.next();
            count += 1;
            if count.is_multiple_of(TELL) && !watch(self.progress(end_us)) {
                return false;
            }
        }
        if let Some(end_us) = end_us {
            self.now_us = end_us.max(self.now_us);
        }
        true
    }

    fn progress(&self, end_us: Option<u64>) -> Progress {
        let last_ms = self.demands.last().map_or(0, |demand| demand.at_ms);
        Progress {
            virtual_ms: self.now_us.saturating_sub(WARM_UP_US) / 1_000,
            end_ms: end_us.map_or(last_ms, |end_us| (end_us - WARM_UP_US) / 1_000),
            placed: self.client.placed,
            asked: self.client.asked,
        }
    }

    /// Whether everything asked for has its outcome, and has had it for a while.
    fn is_done(&mut self, next_us: u64) -> bool {
        if !self.client.is_done() {
            self.done_us = None;
            return false;
        }
        let done_us = *self.done_us.get_or_insert(self.now_us);
        // many cells say something all the time: then some message is always on its way
        let settled_us = done_us + SETTLE_US;
        next_us > settled_us && (self.in_flight == 0 || next_us > settled_us + PATIENCE_US)
    }

    fn next(&mut self) {
        let Some(Reverse(entry)) = self.events.pop() else {
            return;
        };
        self.now_us = entry.at_us;
        match entry.event {
            Event::Demand(from) => self.demand(from),
            Event::Arrives(message) => {
                self.in_flight -= 1;
                self.arrives(*message);
            }
            Event::Wake(n) => self.wake(n),
            Event::Echo(n, life) => self.echo(n, life),
            Event::Tick(c) => {
                if self.cells[c].tick_us == entry.at_us {
                    self.cells[c].tick_us = u64::MAX;
                    self.settle(c, advertiser::Input::Tick);
                }
            }
            Event::Retry(message) => self.retry(message),
            Event::Again(key) => self.again(key),
            Event::Fault(fault, begins) => self.fault(fault, begins),
            Event::Sample => {
                let next_us = self.look();
                self.at(next_us, Event::Sample);
            }
        }
    }

    /// Lets a cell do what is due, and sends what it says.
    fn settle(&mut self, c: usize, input: advertiser::Input) {
        if self.cells[c].down > 0 {
            return;
        }
        let now_ms = self.now_ms();
        let mut said = Vec::new();
        let silent_ms = self.cells[c].advertised_ms;
        self.cells[c].settle(now_ms, self.counted, input, &mut said);
        for said in said {
            self.said(c, silent_ms, said);
        }
        self.measure(c);
        self.plan_tick(c);
    }

    fn plan_tick(&mut self, c: usize) {
        let next_ms = self.cells[c].next_ms(self.counted);
        if next_ms == u64::MAX {
            return;
        }
        let next_us = (next_ms * 1_000).max(self.now_us);
        if next_us < self.cells[c].tick_us {
            self.cells[c].tick_us = next_us;
            self.at(next_us, Event::Tick(c));
        }
    }

    fn said(&mut self, c: usize, silent_ms: u64, said: cell::Said) {
        let reachable = self.cells[c].is_there() && self.away == 0;
        match said {
            cell::Said::Event(event) => {
                // auctioneers hear of none of these
                if reachable {
                    let _ = event;
                    self.counts.sent(Kind::Event, 1);
                }
            }
            cell::Said::Advert(advert) => {
                let bytes = written(&*advert);
                self.count_silence(c, silent_ms);
                self.cells[c].advertised_ms = self.now_ms();
                self.cells[c].advert_bytes = bytes;
                if !reachable {
                    return;
                }
                self.counts.sent(Kind::Advertisement, 1);
                for n in 0..self.nodes.len() {
                    let input = self.word(Word::Advert, &advert);
                    self.send_node(c, n, Kind::Advertisement, (input, bytes));
                }
            }
        }
    }

    fn span_ms(span: placement::Span) -> u64 {
        millis(span.0)
    }
}

/// An id.
fn uuid(random: &mut Random) -> Uuid {
    let bits = (u128::from(random.next()) << 64) | u128::from(random.next());
    uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
}

impl Demand {
    fn memory_mb(&self) -> Option<i64> {
        match &self.what {
            crate::demand::What::Start { request, .. } => Some(request.memory_mb),
            crate::demand::What::Stop { .. } => None,
        }
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
            Self::Instances { .. } => Kind::InstancesRequest,
        }
    }
}
