//! One cell: the rep's ledger, the advertiser's schedule and the executor that pretends, under
//! virtual time. What they say is composed by `rep::speech`, as in the rep itself.

use std::sync::Arc;

use advertiser::{Cadence, Input, Output, Schedule};
use placement::{Job, Span};
use rep::{
    Simulated, SimulatedConfig,
    events::Events,
    ledger::{Action, How, Ledger, Report, What},
    speech,
};
use shared::{
    AuctionId, Incarnation, InstanceId,
    wire::{Acceptance, Advert, Event, Work},
};

/// The number in the upper half of the ids of what ran before the first request.
const BEFORE: u128 = 0xbef0_0000_0000_4000_8000;

/// A cell.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: Arc<str>,
    /// As the scenario describes it, empty.
    empty: placement::Cell,
    pub(super) ledger: Ledger,
    cadence: Cadence,
    schedule: Schedule,
    executor: Simulated,
    start_takes: Span,
    seed: u64,
    events: Events,
    /// The version of its last advertisement that left the cell.
    advertised: Option<u64>,
    seen: u64,
    /// How many faults hold it down.
    pub(super) down: u32,
    /// How many faults cut it off.
    pub(super) cut: u32,
    /// Which life this is.
    pub(super) life: u32,
    /// When it is to be looked at next, as it stands in the heap; microseconds.
    pub(super) tick_us: u64,
    /// Messages on their way to it.
    pub(super) coming: u32,
    /// When it advertised last, and with how many bytes.
    pub(super) advertised_ms: u64,
    pub(super) advert_bytes: u64,
    /// Until when it held something.
    pub(super) busy_ms: u64,
}

/// What a cell wants said.
pub(super) enum Said {
    Advert(Arc<Advert>),
    Event(Box<Event>),
}

impl Node {
    pub(super) fn new(
        mut empty: placement::Cell,
        cadence: Cadence,
        start_takes: Span,
        seed: u64,
    ) -> Self {
        empty.available = empty.total.clone();
        empty.apps.clear();
        empty.owners.clear();
        empty.tags.clear();
        (
            empty.tasks,
            empty.starting,
            empty.cpu_capped,
            empty.cpu_uncapped,
        ) = (0, 0, 0, 0);
        let name: Arc<str> = empty.cell.as_str().into();
        Self {
            ledger: Ledger::new(empty.clone(), Incarnation::nil(), ""),
            cadence,
            schedule: Schedule::new(cadence, &name, seed, 0),
            executor: Simulated::default(),
            name,
            empty,
            start_takes,
            seed,
            events: Events::default(),
            advertised: None,
            seen: 0,
            down: 0,
            cut: 0,
            life: 0,
            tick_us: u64::MAX,
            coming: 0,
            advertised_ms: 0,
            advert_bytes: 0,
            busy_ms: 0,
        }
    }

    /// The cell's program starts, with these instances running already; returns those.
    pub(super) fn begin(
        &mut self,
        now_ms: u64,
        incarnation: Incarnation,
        running: &[Job],
        number: &mut u64,
    ) -> Vec<Work> {
        self.life += 1;
        self.ledger = Ledger::new(self.empty.clone(), incarnation, "");
        self.schedule = Schedule::new(self.cadence, &self.name, self.seed, now_ms);
        self.executor = Simulated::new(SimulatedConfig {
            start: self.start_takes,
            ..SimulatedConfig::default()
        });
        self.events = Events::default();
        let works: Vec<Work> = running.iter().map(|job| before(job, number)).collect();
        let ids: Vec<InstanceId> = works.iter().map(|work| work.instance).collect();
        self.ledger.hold(works.iter().cloned());
        self.ledger.take_actions();
        for instance in ids {
            let what = What::Running {
                pid: None,
                port: None,
            };
            let report = Report {
                instance,
                attempt: 0,
                what,
            };
            self.ledger.report(now_ms, report);
        }
        self.ledger.take_actions();
        self.seen = self.ledger.seq();
        self.advertised = None;
        works
    }

    /// The program ends, with all that it runs.
    pub(super) fn die(&mut self, now_ms: u64) {
        self.ledger = Ledger::new(self.empty.clone(), Incarnation::nil(), "");
        self.executor = Simulated::default();
        self.events = Events::default();
        self.advertised = None;
        self.tick_us = u64::MAX;
        if self.busy_ms == u64::MAX {
            self.busy_ms = now_ms;
        }
    }

    /// Whether it is there and messages reach it.
    pub(super) fn is_there(&self) -> bool {
        self.down == 0 && self.cut == 0
    }

    /// Whether its last advertisement still says how it is.
    pub(super) fn is_advertised(&self) -> bool {
        self.advertised == Some(self.ledger.seq())
    }

    /// Memory in use, MiB.
    pub(super) fn used_mb(&self) -> i64 {
        let cell = self.ledger.cell();
        cell.total.memory_mb - cell.available.memory_mb
    }

    /// When something is to be done next. Advertisements without news do not count where they are
    /// only `counted`.
    pub(super) fn next_ms(&self, counted: bool) -> u64 {
        let schedule = if counted {
            // the first one of a life is news
            let first = self.advertised.is_none();
            self.schedule
                .next_news_ms()
                .or(self.schedule.next_ms().filter(|_| first))
        } else {
            self.schedule.next_ms()
        };
        [
            schedule,
            self.ledger.next_ms(),
            self.events.due_ms(),
            self.executor.next_ms(),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(u64::MAX)
    }

    /// Lets time pass and carries out what the ledger wants, as the rep does.
    pub(super) fn settle(
        &mut self,
        now_ms: u64,
        counted: bool,
        input: Input,
        said: &mut Vec<Said>,
    ) {
        self.ledger.tick(now_ms);
        // where advertisements without news are counted, an interval that is over is no reason
        let news_ms = self.schedule.next_news_ms();
        let no_news = news_ms.is_none_or(|at_ms| at_ms > now_ms) && self.advertised.is_some();
        if !(counted && input == Input::Tick && no_news) {
            self.advertise_if(now_ms, input, said);
        }
        loop {
            for report in self.executor.due(now_ms) {
                self.ledger.report(now_ms, report);
            }
            let actions = self.ledger.take_actions();
            if actions.is_empty() {
                break;
            }
            for action in actions {
                self.act(now_ms, action);
            }
        }
        if self.events.due_ms().is_some_and(|due| due <= now_ms) {
            let told = self.events.take(&self.name);
            said.extend(told.into_iter().map(|event| Said::Event(Box::new(event))));
        }
        if self.ledger.seq() != self.seen {
            self.seen = self.ledger.seq();
            self.advertise_if(now_ms, Input::Changed, said);
        }
        if self.ledger.held() > 0 {
            self.busy_ms = u64::MAX;
        } else if self.busy_ms == u64::MAX {
            self.busy_ms = now_ms;
        }
    }

    fn act(&mut self, now_ms: u64, action: Action) {
        match action {
            Action::Launch { work, attempt } => self.executor.launch(now_ms, &work, attempt),
            Action::End { instance, attempt } => self.executor.end(now_ms, instance, attempt),
            Action::Tell {
                kind,
                app,
                instance,
                reason,
            } => self.events.add(now_ms, (kind, app, reason), instance),
        }
    }

    fn advertise_if(&mut self, now_ms: u64, input: Input, said: &mut Vec<Said>) {
        if self.schedule.handle(now_ms, input) != Some(Output::Advertise) {
            return;
        }
        // without a connection nothing is sent, and bids say everything until something is
        self.advertised = self.is_there().then(|| self.ledger.seq());
        said.push(Said::Advert(Arc::new(self.word(now_ms, None))));
    }

    /// Its whole word: an advertisement, its state, or a bid in this auction.
    pub(super) fn word(&self, now_ms: u64, auction: Option<AuctionId>) -> Advert {
        speech::state(&self.ledger, now_ms, self.cadence.ttl(), auction)
    }

    /// Takes or refuses what an auctioneer sent; none when it cannot be read.
    pub(super) fn start(&mut self, now_ms: u64, body: &[u8]) -> Option<Acceptance> {
        speech::start(&mut self.ledger, now_ms, body).ok()
    }

    /// An instance will have ended by itself at `at_ms`.
    pub(super) fn ends(&mut self, at_ms: u64, instance: InstanceId) {
        self.executor.exits(at_ms, instance, 0);
    }

    /// These instances ended, and their places are free.
    pub(super) fn gone(&mut self, now_ms: u64, instances: &[InstanceId]) {
        for instance in instances {
            let ended = Report {
                instance: *instance,
                attempt: 0,
                what: What::Ended(How::Exit(0)),
            };
            self.ledger.report(now_ms, ended);
        }
        self.settle(now_ms, true, Input::Tick, &mut Vec::new());
    }

    /// How many bytes its bid "unchanged" has; the same as of [`speech::unchanged`] written out.
    pub(super) fn unchanged_bytes(&self, now_ms: u64) -> u64 {
        const FIXED: usize =
            r#"{"v":1,"auction":"","cell":"","incarnation":"","seq":,"clock_ms":,"unchanged":true}"#
                .len() + 2 * 36;
        (FIXED + self.name.len()) as u64 + digits(self.ledger.seq()) + digits(now_ms)
    }
}

/// What ran before the first request.
pub(super) fn was_before(instance: InstanceId) -> bool {
    instance.as_u128() >> 48 == BEFORE
}

fn before(job: &Job, number: &mut u64) -> Work {
    *number += 1;
    let request = &job.request;
    Work {
        instance: InstanceId::from_u128((BEFORE << 48) | u128::from(*number)),
        kind: request.kind,
        app: request.app.clone(),
        index: job.index,
        memory_mb: request.memory_mb,
        disk_mb: request.disk_mb,
        cpu_millis: request.cpu_millis,
        extra: request.extra.clone(),
        owner: request.owner.clone(),
        tags: request.tags.clone(),
        believed: None,
        run: None,
    }
}

fn digits(number: u64) -> u64 {
    u64::from(number.checked_ilog10().unwrap_or(0)) + 1
}

#[cfg(test)]
mod tests {
    use shared::wire::to_bytes;

    use super::*;

    #[test]
    fn bids_that_are_counted_have_the_size_of_bids_that_are_made() {
        for (name, now_ms) in [("a", 9), ("z1-cell-12", 123_456), ("z", 99_999_999)] {
            let cell = placement::Cell::new(name, placement::Resources::new(100, 100, 100));
            let mut node = Node::new(cell, Cadence::default(), Span::default(), 1);
            node.begin(0, Incarnation::from_u128(77), &[], &mut 0);
            let bid = speech::unchanged(&node.ledger, now_ms, AuctionId::from_u128(5));
            assert_eq!(to_bytes(&bid).len() as u64, node.unchanged_bytes(now_ms));
        }
    }
}
