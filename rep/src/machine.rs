//! One cell as a state machine: what it has reserved and runs (the ledger), when it advertises, and the events that it
//! collects. It has no clock, I/O or randomness: the rep drives it over NATS and with processes, the simulator in
//! virtual time.
//!
//! A driver passes inputs to [`CellMachine::take`], or calls one of the functions in `machine/replies.rs`, and then
//! carries out what [`CellMachine::run`] returns until it returns nothing. Executor reports of the same moment are
//! taken before the next run, so an instance that starts immediately is advertised once, as running.

mod namesakes;
mod replies;

use std::sync::Arc;

use advertiser::{Advertiser, Cadence, Due, StateVersion, Trigger};
use placement::{Cell, Span};
use shared::{
    Incarnation,
    clock::millis,
    wire::{Advert, Change, Envelope, Event, Instance, TaskResult},
};

use self::namesakes::Namesakes;
pub use self::replies::CellBid;
pub(crate) use self::replies::bounded;
use crate::{
    events::Events,
    ledger::{Action, ExecutorOrder, ExecutorReport, Ledger},
};

/// Number of questions sent for [`CellOutput::AskNamesake`]. Each reaches one random rep of the name; the chance that
/// all of them reach the asker itself is about one in a million.
pub const NAMESAKE_QUESTIONS: usize = 20;

/// One thing that happened to a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum CellInput {
    /// Time has passed.
    Tick,
    /// Somebody asked every cell to advertise.
    Discover,
    /// The connection is back: auctioneers may have removed the cell.
    Reconnected,
    /// The last advertisement could not be sent.
    NotSent,
    /// An executor's report about an instance.
    Report(ExecutorReport),
    /// The sources that the executor has now, by their SHA-256.
    Cached(Vec<String>),
    /// An advertisement under the cell's name, from itself or another rep.
    Advertised(Envelope),
    /// An answer to [`CellOutput::AskNamesake`], from itself or another rep.
    NamesakeAnswered(Envelope),
    /// Withdraw at once and end all instances.
    Leave,
    /// Drain for at most this many milliseconds, because the rep is to end.
    LeaveGently(u64),
}

/// What a driver is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum CellOutput {
    /// Publish an advertisement.
    Advertise(Arc<Advert>),
    /// Publish an advertisement of what has changed.
    AdvertiseChange(Box<Change>),
    /// Publish an advertisement with a ttl of 0, which is the last one.
    Withdraw(Arc<Advert>),
    /// Pass this to the executor.
    Execute(ExecutorOrder),
    /// Publish an event.
    Event(Box<Event>),
    /// Tell managers how a task ended, with the last of its output.
    Result(Box<TaskResult>),
    /// Ask for the state of the cell under its own name, [`NAMESAKE_QUESTIONS`] times, because another rep may have
    /// that name, too.
    AskNamesake,
}

/// Settings besides the cell itself.
#[derive(Clone, Copy, Debug)]
pub struct CellSettings {
    /// How often it advertises, and for how long advertisements are valid.
    pub cadence: Cadence,
    /// The deadline of a drain that does not give one.
    pub drain_deadline: Span,
    /// Mixed with the cell's name for the jitter of its advertisements.
    pub seed: u64,
}

/// The ledger, the advertiser and the events of one cell.
#[derive(Clone, Debug)]
pub struct CellMachine {
    pub(crate) ledger: Ledger,
    pub(crate) advertiser: Advertiser,
    pub(crate) events: Events,
    namesakes: Namesakes,
    born_ms: u64,
    drain_deadline: Span,
    out: Vec<CellOutput>,
}

impl CellMachine {
    /// Creates a cell that starts at `now_ms` with this ledger. Its first advertisement is due immediately.
    pub fn new(ledger: Ledger, settings: CellSettings, now_ms: u64) -> Self {
        let (cadence, seed) = (settings.cadence, settings.seed);
        let name = &ledger.cell().cell;
        Self {
            advertiser: Advertiser::new(cadence, name, seed, StateVersion(ledger.seq()), now_ms),
            // by then, two reps that started together have both advertised
            namesakes: Namesakes::new(
                ledger.incarnation(),
                2 * millis(cadence.interval().0),
                millis(cadence.ttl().0),
            ),
            born_ms: now_ms,
            ledger,
            events: Events::default(),
            drain_deadline: settings.drain_deadline,
            out: Vec::new(),
        }
    }

    /// Returns what is reserved and what runs.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns whether the last advertisement was sent and shows the cell as it is now.
    pub fn is_advertised(&self) -> bool {
        self.advertiser.is_advertised(self.version())
    }

    fn version(&self) -> StateVersion {
        StateVersion(self.ledger.seq())
    }

    /// Returns the other rep with the cell's name, if this one must end because of it.
    pub fn namesake(&self) -> Option<Incarnation> {
        self.namesakes.winner()
    }

    /// Takes one input.
    pub fn take(&mut self, now_ms: u64, input: CellInput) {
        match input {
            CellInput::Tick => {
                self.ledger.tick(now_ms);
                self.advertise(now_ms, Trigger::Tick);
            }
            CellInput::Discover => {
                self.ledger.tick(now_ms);
                self.advertise(now_ms, Trigger::Discover);
            }
            // not spread out like answers to `discover`: auctioneers may have removed the cell while work waits for it
            CellInput::Reconnected => {
                self.ledger.tick(now_ms);
                self.advertise(now_ms, Trigger::AtOnce);
            }
            // auctioneers may lack this version: until it is sent, a bid must not say `unchanged`
            CellInput::NotSent => self.advertiser.not_sent(),
            CellInput::Report(report) => self.ledger.report(now_ms, report),
            CellInput::Cached(blobs) => self.ledger.cached(blobs),
            CellInput::Advertised(advert) => {
                // ages instead of times: two reps have different clocks, and both ages begin at 0
                if self.namesakes.advertised(now_ms - self.born_ms, &advert) {
                    self.out.push(CellOutput::AskNamesake);
                }
            }
            CellInput::NamesakeAnswered(state) => self.namesakes.answered(&state),
            CellInput::Leave => {
                // first, so that no auctioneer sends anything to a cell that is ending its instances
                self.advertise(now_ms, Trigger::Leave);
                self.ledger.leave(now_ms, 0);
            }
            CellInput::LeaveGently(grace_ms) => {
                if self.ledger.leave(now_ms, grace_ms) {
                    self.tell_of_drain(now_ms);
                } else {
                    // it was draining before; managers must know that there is less time now
                    self.advertise(now_ms, Trigger::AtOnce);
                }
            }
        }
    }

    /// Takes over the attributes that operators set, and advertises a change at once.
    pub fn describe(&mut self, now_ms: u64, cell: &Cell) {
        // at once, because operators wait for it and changes are rare; an unchanged file changes nothing
        if self.ledger.describe(cell) {
            self.advertise(now_ms, Trigger::AtOnce);
        }
    }

    /// Returns what is to be done since the last run. Launches and ends come before what follows from them: the driver
    /// takes the executor's reports of this moment and runs again.
    pub fn run(&mut self, now_ms: u64) -> Vec<CellOutput> {
        self.carry_over_actions(now_ms);
        // only when nothing is left to execute, so that the advertisement includes what the executor reports
        // immediately
        if self.out.is_empty() {
            if self.events.due_ms().is_some_and(|due| due <= now_ms) {
                self.publish_events();
            }
            let due = self.advertiser.update(now_ms, self.version());
            self.publish(now_ms, due);
        }
        std::mem::take(&mut self.out)
    }

    /// Returns what must be carried out before the cell's instances are listed in a heartbeat: the events collected so
    /// far. Otherwise a list could lack an instance before the event says how it ended.
    pub fn before_heartbeat(&mut self, now_ms: u64) -> Vec<CellOutput> {
        self.carry_over_actions(now_ms);
        self.publish_events();
        std::mem::take(&mut self.out)
    }

    /// Returns the remaining events and the withdrawal, for shutdown.
    pub fn close(&mut self, now_ms: u64) -> Vec<CellOutput> {
        self.carry_over_actions(now_ms);
        // before the withdrawal, which is the last message that auctioneers hear of this incarnation
        self.publish_events();
        self.advertise(now_ms, Trigger::Leave);
        std::mem::take(&mut self.out)
    }

    /// Returns the latest time at which [`CellInput::Tick`] must be taken.
    pub fn next_ms(&self) -> Option<u64> {
        let own = [self.ledger.next_ms(), self.events.due_ms()];
        own.into_iter()
            .chain([self.advertiser.next_ms()])
            .flatten()
            .min()
    }

    /// Returns all instances that hold a reservation, for heartbeats.
    pub fn current_instances(&self, now_ms: u64) -> Vec<Instance> {
        self.ledger.current_instances(now_ms)
    }

    fn carry_over_actions(&mut self, now_ms: u64) {
        for action in self.ledger.take_actions() {
            match action {
                Action::Execute(order) => self.out.push(CellOutput::Execute(order)),
                Action::Event {
                    kind,
                    app,
                    instance,
                    reason,
                } => self.events.add(now_ms, (kind, app, reason), instance),
                Action::Result(result) => self.out.push(CellOutput::Result(result)),
            }
        }
    }

    fn publish_events(&mut self) {
        let events = self.events.take(&self.ledger.cell().cell);
        let events = events.into_iter().map(Box::new).map(CellOutput::Event);
        self.out.extend(events);
    }

    pub(crate) fn advertise(&mut self, now_ms: u64, trigger: Trigger) {
        let due = self.advertiser.handle(now_ms, self.version(), trigger);
        self.publish(now_ms, due);
    }

    fn publish(&mut self, now_ms: u64, due: Option<Due>) {
        let Some(due) = due else {
            return;
        };
        let change = match due {
            Due::Change(StateVersion(since)) => self.change(now_ms, None, since),
            Due::Advertisement | Due::Withdrawal => None,
        };
        let state = || Arc::new(self.state(now_ms, None));
        self.out.push(match (due, change) {
            (_, Some(change)) => CellOutput::AdvertiseChange(Box::new(change)),
            (Due::Withdrawal, None) => CellOutput::Withdraw(state()),
            (Due::Advertisement | Due::Change(_), None) => CellOutput::Advertise(state()),
        });
        // no bid builds on an earlier version
        if let Some(StateVersion(before)) = self.advertiser.advertised_before() {
            self.ledger.forget_changes(before);
        }
    }
}

#[cfg(test)]
mod tests;
