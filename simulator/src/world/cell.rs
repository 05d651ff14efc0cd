//! One cell: the rep's own machine with a simulated executor, in virtual time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use advertiser::Cadence;
use placement::{Job, Resources, Span};
use rep::{
    CellInput, CellMachine, CellOutput, CellSettings, Simulated, SimulatedConfig,
    ledger::{EndReason, ExecutorOrder, ExecutorReport, InstanceChange, Ledger},
};
use shared::{
    Incarnation, InstanceId, WaveId,
    wire::{Acceptance, Advert, Change, Drain, Event, InstancesAnswer, StopAnswer, Work, to_bytes},
};

use super::{messages::MAX_PAYLOAD, traffic::written};

/// The upper half of the ids of instances that ran before the first request.
const BEFORE: u128 = 0xbef0_0000_0000_4000_8000;

/// A cell.
#[derive(Debug)]
pub(super) struct SimCell {
    pub(super) name: Arc<str>,
    /// As described in the scenario, without instances.
    empty: placement::Cell,
    machine: CellMachine,
    executor: Simulated,
    settings: CellSettings,
    start_takes: Span,
    /// Number of faults that keep it down.
    pub(super) down: u32,
    /// The state of a drain.
    pub(super) drain: DrainState,
    /// Number of faults that cut it off.
    pub(super) cut: u32,
    /// Increases with every restart.
    pub(super) life: u32,
    /// The time of its next timer in the event queue, in microseconds.
    pub(super) tick_us: u64,
    /// Number of messages in transit to it.
    pub(super) coming: u32,
    /// When it last advertised, and the size of that advertisement in bytes.
    pub(super) advertised_ms: u64,
    pub(super) advert_bytes: u64,
    /// What the size of its last full bid follows from, and that size in bytes.
    bid_bytes: (BidLength, u64),
    /// The last time at which it had instances.
    pub(super) busy_ms: u64,
    /// The instances of managers that were launched and have not ended, each with its index.
    managed: BTreeMap<InstanceId, (WaveId, u32)>,
    /// What has happened to these since the last query.
    changes: Vec<InstanceRuns>,
}

/// An instance of a manager begins or ceases to run.
#[derive(Clone, Copy, Debug)]
pub(super) enum InstanceRuns {
    Began(InstanceId, WaveId, u32),
    Ended(InstanceId),
}

/// What the length of a full bid follows from: bids that agree in this have the same length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct BidLength {
    life: u32,
    seq: u64,
    recent: usize,
    clock_digits: u32,
}

/// The state of a drain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DrainState {
    /// The cell is not drained.
    #[default]
    None,
    /// Its instances continue until this time, in milliseconds.
    Until(u64),
    /// They are being ended.
    Ending,
    /// It has withdrawn and is down.
    Left,
}

impl DrainState {
    /// Returns whether the rep is up and drains.
    pub(super) fn is_going_on(self) -> bool {
        matches!(self, Self::Until(_) | Self::Ending)
    }
}

/// What a cell publishes.
#[derive(Debug)]
pub(super) enum Publication {
    /// The whole state, and what of it is sent if that is only a change.
    Advert(Arc<Advert>, Option<Box<Change>>),
    Event(Box<Event>),
}

impl SimCell {
    pub(super) fn new(
        mut empty: placement::Cell,
        cadence: Cadence,
        start_takes: Span,
        seed: u64,
    ) -> Self {
        empty.available = empty.total.clone();
        empty.counts = placement::Counts::default();
        let settings = CellSettings {
            cadence,
            drain_deadline: Span::default(),
            seed,
        };
        let ledger = Ledger::new(empty.clone(), Incarnation::nil(), "");
        Self {
            name: empty.cell.as_str().into(),
            machine: CellMachine::new(ledger, settings, 0),
            executor: Simulated::default(),
            empty,
            settings,
            start_takes,
            down: 0,
            drain: DrainState::None,
            cut: 0,
            life: 0,
            tick_us: u64::MAX,
            coming: 0,
            advertised_ms: 0,
            advert_bytes: 0,
            bid_bytes: (BidLength::default(), 0),
            busy_ms: 0,
            managed: BTreeMap::new(),
            changes: Vec::new(),
        }
    }

    /// Starts the rep with these instances already running, and returns them.
    pub(super) fn begin(
        &mut self,
        now_ms: u64,
        incarnation: Incarnation,
        running: &[Job],
        number: &mut u64,
    ) -> Vec<Work> {
        self.life += 1;
        self.executor = Simulated::new(SimulatedConfig {
            start: self.start_takes,
            ..SimulatedConfig::default()
        });
        let mut available = self.empty.available.clone();
        let work = |job: &Job| before(job, number, &mut available);
        let works: Vec<Work> = running.iter().map(work).collect();
        let mut ledger = Ledger::new(self.empty.clone(), incarnation, "");
        ledger.adopt(works.iter().cloned());
        for work in &works {
            let running = InstanceChange::Running {
                pid: None,
                port: None,
            };
            ledger.report(now_ms, report(work.instance, running));
            self.executor.adopt(work.instance);
        }
        // they run already: nothing must be launched, and no event published
        ledger.take_actions();
        self.machine = CellMachine::new(ledger, self.settings, now_ms);
        works
    }

    /// Ends the rep together with all instances.
    pub(super) fn die(&mut self, now_ms: u64) {
        if self.drain.is_going_on() {
            self.drain = DrainState::None; // the next rep knows nothing of it
        }
        let ledger = Ledger::new(self.empty.clone(), Incarnation::nil(), "");
        self.machine = CellMachine::new(ledger, self.settings, now_ms);
        self.executor = Simulated::default();
        let ended = std::mem::take(&mut self.managed).into_keys();
        self.changes.extend(ended.map(InstanceRuns::Ended));
        self.tick_us = u64::MAX;
        if self.busy_ms == u64::MAX {
            self.busy_ms = now_ms;
        }
    }

    /// Tells its machine to drain.
    pub(super) fn begin_drain(&mut self, now_ms: u64, deadline_ms: u64) {
        let drain = Drain {
            v: shared::VERSION,
            deadline: Some(Span(Duration::from_millis(deadline_ms))),
            exit: true,
        };
        // a drain with a deadline is well-formed
        let _ = self.machine.drain(now_ms, &to_bytes(&drain));
    }

    /// Ends the rep after a drain; returns its last events and its withdrawal.
    pub(super) fn leave(&mut self, now_ms: u64) -> Vec<Publication> {
        let mut published = Vec::new();
        for output in self.machine.close(now_ms) {
            self.carry_out(now_ms, output, &mut published);
        }
        self.die(now_ms);
        self.drain = DrainState::Left;
        published
    }

    /// Returns the size of its full bid in bytes. Many auctions see a cell in the same state, and serialising a bid
    /// with its list of recent instances takes longer than everything else that is done with it.
    pub(super) fn bid_bytes(&mut self, bid: &Advert) -> u64 {
        let length = BidLength {
            life: self.life,
            seq: bid.seq,
            recent: bid.recent.len(),
            clock_digits: bid.clock_ms.as_ms().checked_ilog10().unwrap_or(0),
        };
        if self.bid_bytes.0 != length {
            self.bid_bytes = (length, written(bid));
        }
        self.bid_bytes.1
    }

    /// Returns the rep's machine.
    pub(super) fn machine(&self) -> &CellMachine {
        &self.machine
    }

    /// Returns the ledger of the rep's machine.
    pub(super) fn ledger(&self) -> &Ledger {
        self.machine.ledger()
    }

    /// Returns whether it is up and connected.
    pub(super) fn is_there(&self) -> bool {
        self.down == 0 && self.cut == 0
    }

    /// Returns the memory in use, in MiB.
    pub(super) fn used_mb(&self) -> i64 {
        let cell = self.ledger().cell();
        cell.total.memory_mb - cell.available.memory_mb
    }

    /// Returns when something is next to be done. If advertisements without news are `aggregated`, they do not count.
    pub(super) fn next_ms(&self, aggregated: bool) -> u64 {
        let machine_ms = if aggregated {
            self.machine.next_news_ms()
        } else {
            self.machine.next_ms()
        };
        let executor_ms = self.executor.next_ms();
        let next_ms = machine_ms.into_iter().chain(executor_ms).min();
        next_ms.unwrap_or(u64::MAX)
    }

    /// Takes one input and returns what the cell publishes. If advertisements without news are `aggregated`, the end of
    /// an interval causes no advertisement.
    pub(super) fn take(
        &mut self,
        now_ms: u64,
        aggregated: bool,
        input: CellInput,
    ) -> Vec<Publication> {
        if aggregated && input == CellInput::Tick {
            self.machine.tick_without_renewal(now_ms);
        } else {
            self.machine.take(now_ms, input);
        }
        self.settle(now_ms)
    }

    /// Carries out the machine's outputs until there are none.
    fn settle(&mut self, now_ms: u64) -> Vec<Publication> {
        let mut published = Vec::new();
        loop {
            for report in self.executor.due(now_ms) {
                self.note(&report);
                self.machine.take(now_ms, CellInput::Report(report));
            }
            let outputs = self.machine.run(now_ms);
            if outputs.is_empty() {
                break;
            }
            for output in outputs {
                self.carry_out(now_ms, output, &mut published);
            }
        }
        if self.ledger().instance_count() > 0 {
            self.busy_ms = u64::MAX;
        } else if self.busy_ms == u64::MAX {
            self.busy_ms = now_ms;
        }
        published
    }

    fn carry_out(&mut self, now_ms: u64, output: CellOutput, published: &mut Vec<Publication>) {
        match output {
            CellOutput::Advertise(advert) | CellOutput::Withdraw(advert) => {
                self.advertise(now_ms);
                published.push(Publication::Advert(advert, None));
            }
            CellOutput::AdvertiseChange(change) => {
                self.advertise(now_ms);
                let state = Arc::new(self.machine.state(now_ms, None));
                published.push(Publication::Advert(state, Some(change)));
            }
            CellOutput::Execute(order) => {
                if let ExecutorOrder::Launch { work, .. } = &order
                    && let Some(wave) = wave_of(work)
                {
                    self.managed.insert(work.instance, (wave, work.index));
                }
                self.executor.execute(now_ms, &order);
            }
            CellOutput::Event(event) => published.push(Publication::Event(event)),
            // names are unique here, and no task is stored
            CellOutput::AskNamesake | CellOutput::Result(_) => {}
        }
    }

    fn advertise(&mut self, now_ms: u64) {
        if !self.is_there() {
            self.machine.take(now_ms, CellInput::NotSent);
        }
    }

    /// Records what a report says about an instance of a manager.
    fn note(&mut self, report: &ExecutorReport) {
        let instance = report.instance;
        let Some((wave, index)) = self.managed.get(&instance).copied() else {
            return;
        };
        match report.change {
            InstanceChange::Running { .. } => {
                self.changes
                    .push(InstanceRuns::Began(instance, wave, index));
            }
            InstanceChange::Ended(_) => {
                self.managed.remove(&instance);
                self.changes.push(InstanceRuns::Ended(instance));
            }
            InstanceChange::Checked { .. } | InstanceChange::Measured(_) => {}
        }
    }

    /// Returns what has happened to the instances of managers since the last call.
    pub(super) fn take_changes(&mut self) -> Vec<InstanceRuns> {
        std::mem::take(&mut self.changes)
    }

    /// Lists all its instances, as in a heartbeat.
    pub(super) fn heartbeat(&self, now_ms: u64) -> Vec<InstancesAnswer> {
        let held = self.machine.current_instances(now_ms);
        self.machine.split(held, MAX_PAYLOAD)
    }

    /// Accepts or refuses a dispatch of an auctioneer; none if it is malformed.
    pub(super) fn start(&mut self, now_ms: u64, body: &[u8]) -> Option<Acceptance> {
        self.machine.start(now_ms, body).ok()
    }

    /// Stops what matches; none if the message is malformed.
    pub(super) fn stop(&mut self, now_ms: u64, body: &[u8]) -> Option<StopAnswer> {
        self.machine.stop(now_ms, body).ok()
    }

    /// Lets an instance end by itself at `at_ms`.
    pub(super) fn ends(&mut self, at_ms: u64, instance: InstanceId) {
        self.executor.exits(at_ms, instance, 0);
    }

    /// Adds a running instance, regardless of what the machine would have answered to its start.
    pub(super) fn adopt(&mut self, work: Work) {
        self.machine.adopt(std::iter::once(work));
    }

    /// Ends these instances and their reservations.
    pub(super) fn gone(&mut self, now_ms: u64, instances: &[InstanceId]) {
        for instance in instances {
            let ended = report(*instance, InstanceChange::Ended(EndReason::Exit(0)));
            self.machine.take(now_ms, CellInput::Report(ended));
        }
        self.take(now_ms, true, CellInput::Tick);
    }

    /// Returns the size of its "unchanged" bid in bytes, equal to that of a serialised [`CellMachine::unchanged`].
    pub(super) fn unchanged_bytes(&self, now_ms: u64) -> u64 {
        const FIXED: usize =
            r#"{"v":1,"auction":"","cell":"","incarnation":"","seq":,"clock_ms":,"unchanged":true}"#
                .len() + 2 * 36;
        (FIXED + self.name.len()) as u64 + digits(self.ledger().seq()) + digits(now_ms)
    }
}

/// Returns the wave of an instance that a manager asked for.
fn wave_of(work: &Work) -> Option<WaveId> {
    WaveId::parse(work.request.as_ref()?.as_str())
}

fn report(instance: InstanceId, change: InstanceChange) -> ExecutorReport {
    ExecutorReport {
        instance,
        attempt: 0,
        change,
    }
}

/// Returns whether an instance ran before the first request.
pub(super) fn was_before(instance: InstanceId) -> bool {
    instance.as_u128() >> 48 == BEFORE
}

fn before(job: &Job, number: &mut u64, available: &mut Resources) -> Work {
    *number += 1;
    let request = &job.request;
    let given = available.choose_devices(request);
    available.debit(request, given.as_deref());
    Work {
        instance: InstanceId::from_u128((BEFORE << 48) | u128::from(*number)),
        kind: request.kind,
        app: request.app.clone(),
        index: job.index,
        memory_mb: request.memory_mb,
        disk_mb: request.disk_mb,
        cpu_millis: request.cpu_millis,
        extra: request.extra.clone(),
        devices: given.map(|given| *given).unwrap_or_default(),
        owner: request.owner.clone(),
        request: None,
        version: None,
        traceparent: None,
        tags: request.tags.clone(),
        believed: None,
        run: None,
        health: None,
        ready: None,
        claim: None,
    }
}

fn digits(number: u64) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0)) + 1
}

#[cfg(test)]
mod tests;
