//! One cell's shell: it parses what is heard, hands it to the ledger, and carries out what the
//! ledger wants. Nothing here waits.

mod set;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use advertiser::{Cadence, Input, Output, Schedule};
use bytes::Bytes;
use placement::{Kind, Span};
use shared::{
    AuctionId, Incarnation, Subjects,
    clock::{Clock, millis},
    wire::{
        BidRequest, Drain, DrainAnswer, Envelope, Event, Logs, LogsAnswer, WireError, Work, kind,
        parse, to_bytes,
    },
};
use uuid::Uuid;

use crate::{
    Config, ExecutorKind, RepError,
    events::Events,
    executor::Executor,
    hearing::{Topic, namesake_time},
    ledger::{Action, Ledger, Report},
    operators::Operators,
    outbox::{Asked, Counters, Outbox},
    speech,
};

/// An answer's messages leave this much of max_payload for the subject and headers.
const MARGIN: usize = 4_096;

/// See the module.
pub(crate) struct Shell {
    subjects: Subjects,
    clock: Clock,
    cadence: Cadence,
    grace_ms: u64,
    drain_deadline: Span,
    heartbeat_ms: u64,
    ledger: Ledger,
    operators: Operators,
    schedule: Schedule,
    events: Events,
    executor: Executor,
    outbox: Outbox,
    counters: Arc<Counters>,
    /// The version that the last advertisement told, where there was a connection.
    advertised: Option<u64>,
    /// The version at the last look.
    seen: u64,
    heartbeat_at_ms: u64,
    /// Cells older than this do not look for others of their name any more.
    namesake_ms: u64,
    /// Another cell of our name, to which we give way.
    namesake: Option<Incarnation>,
    /// The last word has been said: bids would bring the cell back.
    left: bool,
}

impl Shell {
    pub(crate) fn new(
        config: &Config,
        subjects: Subjects,
        executor: Executor,
        outbox: Outbox,
        counters: Arc<Counters>,
    ) -> Result<Self, RepError> {
        let (_, cadence) = config.check()?;
        let operators = Operators::load(config)?;
        let cell = operators.cell()?;
        let clock = Clock::start();
        let incarnation = Incarnation::from(Uuid::new_v4());
        let mut ledger = Ledger::new(cell, incarnation, &config.address);
        ledger.needs_run(!executor.pretends());
        if let ExecutorKind::Simulated(simulated) = &config.executor {
            hold_apps(&mut ledger, simulated.apps);
        }
        let heartbeat_ms = millis(config.heartbeat.0);
        Ok(Self {
            subjects,
            schedule: Schedule::new(cadence, &config.cell, config.seed, clock.now_ms()),
            clock,
            cadence,
            grace_ms: millis(config.grace.0),
            drain_deadline: config.drain_deadline,
            heartbeat_ms,
            seen: ledger.seq(),
            ledger,
            operators,
            events: Events::default(),
            executor,
            outbox,
            counters,
            advertised: None,
            // cells that start together do not all speak together
            heartbeat_at_ms: incarnation.uuid().as_u64_pair().1 % heartbeat_ms,
            namesake_ms: millis(namesake_time(config)),
            namesake: None,
            left: false,
        })
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    pub(crate) fn instant(&self, at_ms: u64) -> tokio::time::Instant {
        // timers do not reach for ever
        self.clock.instant(at_ms.min(self.now_ms() + 3_600_000))
    }

    /// When [`Shell::tick`] has something to do next.
    pub(crate) fn next_ms(&self) -> u64 {
        [
            self.schedule.next_ms(),
            self.ledger.next_ms(),
            self.events.due_ms(),
            self.executor.next_ms(),
            Some(self.heartbeat_at_ms),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(u64::MAX)
    }

    /// Whether the cell has drained and nothing of it is left.
    pub(crate) fn done(&self) -> bool {
        self.ledger.drained()
    }

    /// The other cell of our name, when there is one and we are the one to go.
    pub(crate) fn namesake(&self) -> Option<Incarnation> {
        self.namesake
    }

    /// What the executor says next.
    pub(crate) async fn executor_reports(&mut self) -> Report {
        self.executor.next_report().await
    }

    pub(crate) fn report(&mut self, report: Report) {
        let now_ms = self.now_ms();
        self.ledger.report(now_ms, report);
    }

    pub(crate) fn tick(&mut self) {
        let now_ms = self.now_ms();
        self.ledger.tick(now_ms);
        self.advertise_if(now_ms, Input::Tick);
        if self.heartbeat_at_ms <= now_ms {
            self.heartbeat_at_ms = now_ms + self.heartbeat_ms;
            self.heartbeat(now_ms);
        }
    }

    /// The connection is back: everybody may have forgotten us.
    pub(crate) fn reconnected(&mut self) {
        let now_ms = self.now_ms();
        self.advertise_if(now_ms, Input::AtOnce);
    }

    /// Leaves at once and ends everything; returns when the grace period is over.
    pub(crate) fn shut_down(&mut self) -> u64 {
        let now_ms = self.now_ms();
        self.advertise_if(now_ms, Input::Leave);
        self.ledger.drain(now_ms, 0);
        now_ms + self.grace_ms
    }

    /// Says the last word and sends what waits.
    pub(crate) async fn close(mut self) {
        let now_ms = self.now_ms();
        self.tell_events();
        self.advertise_if(now_ms, Input::Leave);
        self.executor.close().await;
        self.outbox.flush().await;
    }

    /// Carries out what the ledger wants, until it wants nothing more.
    pub(crate) fn settle(&mut self) {
        let now_ms = self.now_ms();
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
            self.tell_events();
        }
        if self.ledger.seq() != self.seen {
            self.seen = self.ledger.seq();
            self.advertise_if(now_ms, Input::Changed);
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

    fn tell_events(&mut self) {
        let cell = self.ledger.cell().cell.clone();
        for event in self.events.take(&cell) {
            self.publish_event(&event);
        }
    }

    fn publish_event(&self, event: &Event) {
        let subject = self.subjects.event(&event.kind, event.about());
        self.outbox.publish(subject, to_bytes(event));
    }

    fn advertise_if(&mut self, now_ms: u64, input: Input) {
        match self.schedule.handle(now_ms, input) {
            None => return,
            Some(Output::Advertise) => {}
            Some(Output::Withdraw) => self.left = true,
        }
        let body = self.state(now_ms, None);
        let sent = self.outbox.publish_now(self.own_subject("advert"), body);
        self.advertised = sent.then(|| self.ledger.seq());
    }

    fn own_subject(&self, what: &str) -> String {
        self.subjects.cell(&self.ledger.cell().cell, what)
    }

    fn state(&self, now_ms: u64, auction: Option<AuctionId>) -> Bytes {
        let ttl = if self.left {
            Span::default()
        } else {
            self.cadence.ttl()
        };
        to_bytes(&speech::state(&self.ledger, now_ms, ttl, auction))
    }

    fn heartbeat(&self, now_ms: u64) {
        let held = self.ledger.all_held(now_ms);
        for part in speech::split(&self.ledger, held, self.most_bytes()) {
            let subject = self.own_subject("heartbeat");
            self.outbox.publish_now(subject, to_bytes(&part));
        }
    }

    /// Handles one message; what cannot be understood is answered with an error and counted.
    pub(crate) fn heard(&mut self, topic: Topic, asked: Asked) {
        let now_ms = self.now_ms();
        let body = asked.message().payload.clone();
        let answer = match topic {
            Topic::Discover => {
                self.advertise_if(now_ms, Input::Discover);
                return;
            }
            Topic::Namesake => {
                self.heard_namesake(&body);
                return;
            }
            Topic::Bid if self.left => return,
            Topic::Bid => self.bid(now_ms, &body).map(|bid| vec![bid]),
            Topic::State => Ok(vec![self.state(now_ms, None)]),
            Topic::Start => self.start(now_ms, &body).map(|answer| vec![answer]),
            Topic::Stop => self.stop(now_ms, &body).map(|answer| vec![answer]),
            Topic::Drain => self.drain(now_ms, &body).map(|answer| vec![answer]),
            Topic::Set => self.set(now_ms, &body).map(|answer| vec![answer]),
            Topic::Instances => self.instances(now_ms, &body),
            Topic::Logs => self.logs(&body).map(|answer| vec![answer]),
        };
        match answer {
            Ok(bodies) => self.answer(asked, bodies),
            Err(error) => {
                self.counters.garbage.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(?topic, %error, "a message that makes no sense");
                // a thousand cells do not all complain of one question
                if topic != Topic::Bid {
                    self.outbox.error(asked, error);
                }
            }
        }
    }

    /// Gives way to a cell that was there before us; of two that begin together, to the smaller
    /// incarnation, as the other one does not.
    fn heard_namesake(&mut self, body: &[u8]) {
        let Ok(other) = Envelope::parse(body, Some(&self.ledger.cell().cell)) else {
            self.counters.garbage.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let own = self.ledger.incarnation();
        let leaving = other.ttl.is_some_and(|ttl| ttl.0.is_zero());
        let was_first = other.clock_ms.as_ms() > self.namesake_ms || other.incarnation < own;
        if other.incarnation != own && !leaving && was_first {
            self.namesake = Some(other.incarnation);
        }
    }

    fn answer(&self, asked: Asked, bodies: Vec<Bytes>) {
        let reply = asked.message().reply.clone();
        let mut bodies = bodies.into_iter();
        if let Some(first) = bodies.next() {
            self.outbox.answer(asked, first);
        }
        if let Some(reply) = reply {
            for body in bodies {
                self.outbox.publish_now(reply.to_string(), body);
            }
        }
    }

    fn bid(&self, now_ms: u64, body: &[u8]) -> Result<Bytes, WireError> {
        let request: BidRequest = parse(body, &mut Vec::new())?;
        let (ledger, ttl) = (&self.ledger, self.cadence.ttl());
        Ok(speech::bid(
            ledger,
            now_ms,
            ttl,
            self.advertised,
            request.auction,
        ))
    }

    fn start(&mut self, now_ms: u64, body: &[u8]) -> Result<Bytes, WireError> {
        Ok(to_bytes(&speech::start(&mut self.ledger, now_ms, body)?))
    }

    fn stop(&mut self, now_ms: u64, body: &[u8]) -> Result<Bytes, WireError> {
        Ok(to_bytes(&speech::stop(&mut self.ledger, now_ms, body)?))
    }

    fn drain(&mut self, now_ms: u64, body: &[u8]) -> Result<Bytes, WireError> {
        let drain = Drain::read(body)?;
        let deadline = drain.deadline.unwrap_or(self.drain_deadline);
        let held = self.ledger.held();
        if self.ledger.drain(now_ms, millis(deadline.0)) {
            self.seen = self.ledger.seq();
            self.advertise_if(now_ms, Input::AtOnce);
            let event = Event::cell(kind::CELL_DRAINING, &self.ledger.cell().cell);
            self.publish_event(&Event {
                count: held,
                ..event
            });
        }
        Ok(to_bytes(&DrainAnswer {
            v: shared::VERSION,
            cell: self.ledger.cell().cell.clone(),
            instances: held,
            deadline,
        }))
    }

    fn instances(&self, now_ms: u64, body: &[u8]) -> Result<Vec<Bytes>, WireError> {
        let parts = speech::instances(&self.ledger, now_ms, body, self.most_bytes())?;
        Ok(parts.iter().map(to_bytes).collect())
    }

    fn logs(&self, body: &[u8]) -> Result<Bytes, WireError> {
        let logs: Logs = parse(body, &mut Vec::new())?;
        placement::check_name("app", &logs.app)?;
        let most = self.outbox.max_payload() - MARGIN;
        Ok(to_bytes(&LogsAnswer {
            v: shared::VERSION,
            cell: self.ledger.cell().cell.clone(),
            lines: self.executor.log_lines(&logs, most),
        }))
    }

    /// The size of an answer's message, at most.
    fn most_bytes(&self) -> usize {
        self.outbox.max_payload().saturating_sub(MARGIN)
    }
}

/// Small instances that a simulated cell holds from the start, so that it has as much to say as
/// one that is in use.
fn hold_apps(ledger: &mut Ledger, apps: usize) {
    let work = |index| Work {
        instance: Uuid::new_v4().into(),
        kind: Kind::Lrp,
        app: format!("held-{index}"),
        index: 0,
        memory_mb: 1,
        disk_mb: 1,
        cpu_millis: 0,
        extra: BTreeMap::new(),
        owner: None,
        tags: BTreeMap::new(),
        believed: None,
        run: None,
    };
    ledger.hold((0..apps).map(work));
}
