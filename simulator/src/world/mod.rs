//! A cluster in virtual time: the state machines of the auctioneers and the cells, a network that
//! delays and loses messages, clients, and faults.
//!
//! The clock counts microseconds; the machines get milliseconds. Deciding takes no virtual time.
//!
//! Three kinds of messages are aggregated instead of simulated one by one, because they change no decision:
//!
//! - "Unchanged" bids for a version that the auctioneer has. They arrive as one input at the time at which the last of
//!   them would arrive. This is only done if no message can be lost.
//! - Heartbeats, which no auctioneer reads.
//! - In scenarios of more than a day (aggregated mode), advertisements without news and echoes. Leases are renewed
//!   whenever an auctioneer has something to do, and pool time passes only around faults, where echoes are simulated,
//!   so that the same cells are known and lost.

mod carry;
mod cell;
mod client;
mod devices;
mod drains;
mod ending;
mod faults;
mod figures;
mod grants;
mod idle;
mod kept;
mod managers;
mod messages;
mod node;
mod observer;
mod packing;
mod rebalance;
mod requests;
mod sample;
mod stored;
mod traffic;

pub use self::observer::{Observer, ToSend};

use std::{collections::BTreeMap, sync::Arc};

use auctioneer::feed::ReportKind;
use manager::Grants;
use placement::Policy;
use rep::CellInput;
use shared::wire::{GrantAnswer, GrantRequest};
use uuid::Uuid;

use self::{
    cell::{Publication, SimCell},
    client::Client,
    ending::Ending,
    idle::is_aggregated,
    kept::Tally,
    managers::SimManager,
    messages::{Message, Waves},
    node::SimAuctioneer,
    packing::PackingSteps,
    rebalance::Operator,
    sample::Samples,
    stored::Asked,
    traffic::{Counts, Kind, written},
};
use crate::{
    bucket::Bucket,
    demand::Demand,
    measure::Meter,
    outcome::{SimRun, Traffic},
    queue::EventQueue,
    random::Random,
    scenario::Scenario,
};

/// The interval of a cell's heartbeats in milliseconds: the default of reps.
const HEARTBEAT_MS: u64 = 10_000;
/// How long the cluster runs before the first request, in microseconds.
const WARM_UP_US: u64 = 2_000_000;
/// Scenarios longer than this, in milliseconds, are run in aggregated mode.
const AGGREGATED_MS: u64 = 24 * 3_600_000;
/// How long pool time passes after a fault in aggregated mode, in addition to twice a cell's ttl.
const ALERT_MS: u64 = 10_000;
/// Number of events between two progress reports.
const EVENTS_PER_REPORT: u64 = 4_096;

/// The progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Virtual milliseconds since the first request.
    pub virtual_ms: u64,
    /// The latest time at which it ends, as far as that is known.
    pub end_ms: u64,
    /// Instances placed.
    pub placed: u64,
    /// Instances requested.
    pub asked: u64,
}

/// An event.
#[derive(Debug)]
enum Event {
    /// The demands of one moment are made, from this position on.
    Demand(usize),
    /// A message arrives.
    Arrives(Box<Message>),
    /// An auctioneer's timer.
    Wake(usize),
    /// An auctioneer's echo to itself, in one of its lives.
    Echo(usize, u32),
    /// A cell's timer.
    Tick(usize),
    /// A client checks whether its message was answered.
    Retry(usize),
    /// The health manager requests lost instances again.
    Again(u64),
    /// A fault begins (true) or ends.
    Fault(usize, bool),
    /// A manager's timer.
    ManagerWake(usize),
    /// A manager's echo to itself, in one of its lives.
    ManagerEcho(usize, u32),
    /// A cell, in one of its lives, sends a heartbeat.
    Heartbeat(usize, u32),
    /// A client sends a command, after this many tries.
    Command(usize, u32),
    /// An auctioneer's question for the grant reaches the manager.
    GrantAsked(Box<grants::Asked<GrantRequest>>),
    /// … and the answer the auctioneer.
    GrantAnswered(Box<grants::Asked<GrantAnswer>>),
    /// The operator who rebalances checks the moves.
    Rebalance,
    /// A sample of the cells is taken.
    Sample,
}

/// The settings of a run besides the scenario.
#[derive(Clone, Copy, Debug)]
pub struct RunSettings {
    /// Determines every random choice.
    pub seed: u64,
    /// Whether to simulate every message, and to serialise and parse every body. Otherwise bids without news are
    /// aggregated and cells' reports are passed in memory. The figures are the same.
    pub verbatim: bool,
}

/// The cluster.
pub(crate) struct World<'s> {
    scenario: &'s Scenario,
    label: &'s str,
    policy: &'s Policy,
    settings: RunSettings,
    demands: &'s [Demand],
    now_us: u64,
    events: EventQueue<Event>,
    random: Random,
    /// Sorted by name.
    cells: Vec<SimCell>,
    by_name: BTreeMap<Arc<str>, usize>,
    nodes: Vec<SimAuctioneer>,
    /// When the last message of each pair arrives, as messages between two roles keep their order.
    to_cell_us: Vec<u64>,
    to_node_us: Vec<u64>,
    /// Number of faults that keep NATS down.
    away: u32,
    counts: Counts,
    client: Client,
    samples: Samples,
    /// Present if the work is a trace that is drawn up to a demand.
    packing: Option<PackingSteps>,
    meter: Meter,
    aggregated: bool,
    /// In aggregated mode, echoes are simulated until this time.
    alert_ms: u64,
    /// The summed milliseconds for which cells were down, and since when the cells that are down now have been so.
    down_ms: u64,
    down_since: BTreeMap<usize, u64>,
    /// Number of messages in transit.
    in_flight: u64,
    /// Numbers the instances that run before the first request.
    held: u64,
    ending: Ending,
    managers: Vec<SimManager>,
    /// What the manager grants to auctioneers with `--single`.
    grants: Grants,
    to_manager_us: Vec<u64>,
    /// The bucket in which managers keep the desired state.
    bucket: Bucket,
    /// The states of the scenario's commands.
    commands: Vec<Asked>,
    command_notes: Vec<String>,
    refused_commands: u64,
    operator: Operator,
    waves: Waves,
    tally: Tally,
    managers_traffic: Traffic,
}

/// Simulates a scenario under one policy. `watch` is called with the progress now and then, and ends the run by
/// returning false; then the second value is true.
pub(crate) fn run(
    scenario: &Scenario,
    label: &str,
    policy: &Policy,
    demands: &[Demand],
    settings: RunSettings,
    watch: &mut dyn FnMut(Progress) -> bool,
) -> (SimRun, bool) {
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
        settings: RunSettings,
    ) -> Self {
        let seed = settings.seed;
        let mut cells: Vec<SimCell> = scenario
            .base
            .cells
            .iter()
            .map(|cell| SimCell::new(cell.clone(), scenario.cadence, scenario.start_takes, seed))
            .collect();
        cells.sort_by(|a, b| a.name.cmp(&b.name));
        let by_name = cells.iter().enumerate();
        let by_name = by_name
            .map(|(c, cell)| (Arc::clone(&cell.name), c))
            .collect();
        let nodes = (0..scenario.auctioneers as usize)
            .map(|_| SimAuctioneer::default())
            .collect();
        let manager = |_| SimManager::default();
        let managers: Vec<_> = (0..scenario.managers).map(manager).collect();
        let cells_count = cells.len();
        let links = cells_count * scenario.auctioneers as usize;
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
            events: EventQueue::new(),
            random: Random::new(seed).fork("network", 0),
            cells,
            by_name,
            nodes,
            to_cell_us: vec![0; links + cells_count * managers.len()],
            to_node_us: vec![0; links],
            away: 0,
            counts: Counts::default(),
            client: Client::new(seed, !demands.is_empty()),
            samples: Samples::new(last_ms, scenario.duration_ms.is_some()),
            packing: PackingSteps::of(scenario),
            meter: Meter::new(Vec::new(), 0),
            aggregated: is_aggregated(scenario, last_ms),
            alert_ms: 0,
            down_ms: 0,
            down_since: BTreeMap::new(),
            in_flight: 0,
            held: 0,
            ending: Ending::new(demands),
            managers,
            grants: Grants::default(),
            to_manager_us: vec![0; cells_count * scenario.managers as usize],
            bucket: Bucket::default(),
            commands: vec![Asked::default(); scenario.commands.len()],
            command_notes: Vec::new(),
            refused_commands: 0,
            operator: Operator::default(),
            waves: Waves::default(),
            tally: Tally::default(),
            managers_traffic: Traffic::default(),
        }
    }

    fn now_ms(&self) -> u64 {
        self.now_us / 1_000
    }

    fn at(&mut self, at_us: u64, event: Event) {
        self.events.add(at_us, event);
    }

    /// Starts all roles and lets the warm-up pass; then schedules the first demand, the faults and the samples.
    fn begin(&mut self) {
        for c in 0..self.cells.len() {
            self.start_cell(c);
        }
        for n in 0..self.nodes.len() {
            self.start_auctioneer(n);
        }
        for m in 0..self.managers.len() {
            self.start_manager(m);
        }
        while self.events.next_us().is_some_and(|at| at < WARM_UP_US) {
            self.next();
        }
        self.now_us = WARM_UP_US;
        self.counts = Counts::default();
        self.managers_traffic = Traffic::default();
        self.tally = Tally::new(self.cells.len(), WARM_UP_US);
        for cell in &mut self.cells {
            cell.advertised_ms = WARM_UP_US / 1_000;
        }
        if let Some(first) = self.demands.first() {
            self.at(WARM_UP_US + first.at_ms * 1_000, Event::Demand(0));
        }
        for (i, command) in self.scenario.commands.iter().enumerate() {
            self.at(WARM_UP_US + command.at_ms * 1_000, Event::Command(i, 0));
        }
        for (f, fault) in self.scenario.faults.iter().enumerate() {
            let begins_us = WARM_UP_US + fault.at_ms * 1_000;
            self.at(begins_us, Event::Fault(f, true));
            self.ending.faults_left += 1;
            if let Some(for_ms) = fault.for_ms {
                self.at(begins_us + for_ms * 1_000, Event::Fault(f, false));
                self.ending.faults_left += 1;
            }
        }
        self.measure_from_now(self.scenario.largest_memory_mb(self.demands));
        self.at(WARM_UP_US, Event::Sample);
        if self.scenario.rebalance.is_some() {
            self.at(WARM_UP_US, Event::Rebalance);
        }
    }

    fn start_cell(&mut self, c: usize) {
        let now_ms = self.now_ms();
        let name = Arc::clone(&self.cells[c].name);
        let nothing = Vec::new();
        // instances from before the first request are lost when the cell restarts
        let running = match self.cells[c].life {
            0 => self.scenario.base.running.get(&*name).unwrap_or(&nothing),
            _ => &nothing,
        };
        let life = u64::from(self.cells[c].life);
        let root = Random::new(self.settings.seed);
        let mut random = root.fork("cell", ((c as u64) << 32) | life);
        let incarnation = uuid(&mut random).into();
        self.cells[c].begin(now_ms, incarnation, running, &mut self.held);
        if !self.managers.is_empty() {
            let first_us = self.now_us + random.below(HEARTBEAT_MS * 1_000);
            let life = self.cells[c].life;
            self.at(first_us, Event::Heartbeat(c, life));
        }
        self.settle(c, CellInput::Tick);
    }

    /// Runs to the end. Returns false if `watch` ended it.
    fn play(&mut self, watch: &mut dyn FnMut(Progress) -> bool) -> bool {
        let end_us = self.scenario.duration_ms.map(|ms| WARM_UP_US + ms * 1_000);
        let mut count: u64 = 0;
        while let Some(at_us) = self.events.next_us() {
            let over = match end_us {
                Some(end_us) => at_us > end_us,
                None => self.is_done(at_us) || self.is_stalled(at_us),
            };
            if over {
                break;
            }
            self.next();
            count += 1;
            if count.is_multiple_of(EVENTS_PER_REPORT) && !watch(self.progress(end_us)) {
                return false;
            }
        }
        if let Some(end_us) = end_us {
            self.now_us = end_us.max(self.now_us);
        }
        true
    }

    fn next(&mut self) {
        let Some((at_us, event)) = self.events.pop() else {
            return;
        };
        self.now_us = at_us;
        match event {
            Event::Demand(from) => self.demand(from),
            Event::Arrives(message) => {
                self.in_flight -= 1;
                self.arrives(*message);
            }
            Event::Wake(n) => self.wake(n),
            Event::Echo(n, life) => self.echo(n, life),
            Event::Tick(c) => {
                if self.cells[c].tick_us == at_us {
                    self.cells[c].tick_us = u64::MAX;
                    self.settle(c, CellInput::Tick);
                }
            }
            Event::Retry(message) => self.retry(message),
            Event::Again(key) => self.again(key),
            Event::Fault(fault, begins) => {
                self.ending.faults_left -= 1;
                self.fault(fault, begins);
            }
            Event::ManagerWake(m) => self.manager_wakes(m),
            Event::ManagerEcho(m, life) => self.manager_echo(m, life),
            Event::Heartbeat(c, life) => self.heartbeat(c, life),
            Event::Command(command, tries) => self.command(command, tries),
            Event::GrantAsked(asked) => self.grant_asked(&asked),
            Event::GrantAnswered(answer) => self.grant_answered(&answer),
            Event::Rebalance => self.rebalance(),
            Event::Sample => {
                let next_us = self.take_sample();
                self.at(next_us, Event::Sample);
            }
        }
    }

    /// Does what is due on a cell, and sends what it publishes.
    fn settle(&mut self, c: usize, input: CellInput) {
        if self.cells[c].down > 0 {
            return;
        }
        self.count_what_a_drain_ends(c);
        let now_ms = self.now_ms();
        let silent_ms = self.cells[c].advertised_ms;
        let published = self.cells[c].take(now_ms, self.aggregated, input);
        for publication in published {
            self.publish(c, silent_ms, publication);
        }
        self.note_runs(c);
        self.measure(c);
        if self.leave_if_drained(c) {
            return;
        }
        self.plan_tick(c);
    }

    /// Records what has happened to the instances of managers on a cell.
    fn note_runs(&mut self, c: usize) {
        let changes = self.cells[c].take_changes();
        if !changes.is_empty() {
            self.tally.note(self.now_us, c, changes);
        }
    }

    fn plan_tick(&mut self, c: usize) {
        let next_ms = self.cells[c].next_ms(self.aggregated);
        if next_ms == u64::MAX {
            return;
        }
        let next_us = (next_ms * 1_000).max(self.now_us);
        if next_us < self.cells[c].tick_us {
            self.cells[c].tick_us = next_us;
            self.at(next_us, Event::Tick(c));
        }
    }

    fn publish(&mut self, c: usize, silent_ms: u64, publication: Publication) {
        let reachable = self.cells[c].is_there() && self.away == 0;
        match publication {
            // no auctioneer reads cells' events: without managers they are sent but not delivered
            Publication::Event(event) => {
                if reachable {
                    self.counts.sent(Kind::Event, 1);
                    self.managers_hear_event(c, event);
                }
            }
            Publication::Advert(advert, change) => {
                let whole_bytes = written(&*advert);
                let bytes = change.as_deref().map_or(whole_bytes, written);
                self.count_silence(c, silent_ms);
                self.cells[c].advertised_ms = self.now_ms();
                self.cells[c].advert_bytes = whole_bytes;
                if !reachable {
                    return;
                }
                self.counts.sent(Kind::Advertisement, 1);
                for n in 0..self.nodes.len() {
                    let input = self.report(ReportKind::Advert, &advert, change.as_deref());
                    self.send_node(c, n, Kind::Advertisement, (input, bytes));
                }
                self.managers_hear_advert(c, &advert, bytes);
            }
        }
    }
}

/// Draws an id.
fn uuid(random: &mut Random) -> Uuid {
    let bits = (u128::from(random.next()) << 64) | u128::from(random.next());
    uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid()
}
