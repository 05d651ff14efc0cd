//! The shell of a cell: parses messages, passes them to the cell machine, and carries out its outputs. Nothing here
//! blocks.

mod service;
mod set;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use bytes::Bytes;
use shared::{
    Incarnation, LogLimit, Subjects,
    clock::{Clock, millis},
    nats::is_no_responders,
    telemetry::Seldom,
    wire::{
        BidRequest, Envelope, Event, Logs, LogsAnswer, TaskResult, WireError, Work, parse,
        parse_strict, read_nothing, to_bytes,
    },
};
use uuid::Uuid;

use crate::{
    config::{ExecutorKind, IfZero, RepConfig},
    error::RepError,
    executor::Executor,
    ledger::{ExecutorReport, Ledger},
    machine::{CellBid, CellInput, CellMachine, CellOutput, CellSettings, NAMESAKE_QUESTIONS},
    mark::{Mark, MarkFile},
    operators::Operators,
    outbox::{Counters, Outbox, Question, Target},
    secrets::Secrets,
    subscriptions::Topic,
};

/// The part of max_payload that an answer reserves for its subject and headers.
const MARGIN: usize = 4_096;
/// Malformed messages logged per second.
const MALFORMED_LOGGED: u32 = 5;

/// The I/O around a cell machine.
pub(crate) struct Shell {
    subjects: Subjects,
    clock: Clock,
    grace_ms: u64,
    heartbeat_ms: u64,
    machine: CellMachine,
    operators: Operators,
    mark: MarkFile,
    /// None for a simulated cell, where secrets are never lacking.
    secrets: Option<Secrets>,
    executor: Executor,
    outbox: Outbox,
    counters: Arc<Counters>,
    /// Bounds the log lines about malformed messages.
    malformed: LogLimit,
    /// Limits the log lines about answers requested on a forbidden subject.
    forbidden: Seldom,
    heartbeat_at_ms: u64,
    /// The subject for answers to the question who has our name.
    inbox: String,
}

impl Shell {
    pub(crate) fn new(
        config: &RepConfig,
        subjects: Subjects,
        executor: Executor,
        outbox: Outbox,
        counters: Arc<Counters>,
        inbox: String,
    ) -> Result<Self, RepError> {
        let (_, cadence) = config.check()?;
        let operators = Operators::load(config)?;
        let cell = operators.cell()?;
        let clock = Clock::start();
        let incarnation = Incarnation::from(Uuid::new_v4());
        let mut ledger = Ledger::new(cell, incarnation, &config.address);
        ledger.needs_run(!executor.is_simulated());
        match &config.executor {
            ExecutorKind::Simulated(simulated) => adopt_apps(&mut ledger, simulated.apps),
            ExecutorKind::Process(process) => {
                let refuses = |if_zero| if_zero == IfZero::Refuse;
                let [memory, disk] = [process.memory_if_zero, process.disk_if_zero].map(refuses);
                ledger.needs_size(memory, disk);
            }
        }
        let secrets = match &config.executor {
            ExecutorKind::Process(process) => Some(Secrets::of(process.secrets.as_deref())),
            ExecutorKind::Simulated(_) => None,
        };
        if let Some(secrets) = &secrets {
            secrets.warn_if_open();
        }
        if let Some(warning) = config.ttl_warning() {
            tracing::warn!("{warning}");
        }
        let mark = MarkFile::of(config);
        match mark.read()? {
            Some(Mark::Drained) => {
                ledger.drain(0, 0, false);
            }
            Some(Mark::Cordoned) => {
                ledger.cordon();
            }
            None => {}
        }
        let settings = CellSettings {
            cadence,
            drain_deadline: config.drain_deadline,
            seed: config.seed,
        };
        let heartbeat_ms = millis(config.heartbeat.0);
        Ok(Self {
            subjects,
            machine: CellMachine::new(ledger, settings, clock.now_ms()),
            clock,
            grace_ms: millis(config.grace.0),
            heartbeat_ms,
            operators,
            mark,
            secrets,
            executor,
            outbox,
            counters,
            malformed: LogLimit::new(MALFORMED_LOGGED),
            forbidden: Seldom::new(),
            // so that cells that start together do not all send at the same moment
            heartbeat_at_ms: incarnation.uuid().as_u64_pair().1 % heartbeat_ms,
            inbox,
        })
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    pub(crate) fn instant(&self, now_ms: u64, at_ms: u64) -> tokio::time::Instant {
        // timers cannot be arbitrarily far in the future
        self.clock.instant(at_ms.min(now_ms + 3_600_000))
    }

    /// Returns when [`Shell::tick`] must be called next.
    pub(crate) fn next_ms(&self) -> u64 {
        [
            self.machine.next_ms(),
            self.executor.next_ms(),
            Some(self.heartbeat_at_ms),
        ]
        .into_iter()
        .flatten()
        .min()
        .unwrap_or(u64::MAX)
    }

    /// Returns whether all instances have ended and the rep should exit for that reason.
    pub(crate) fn may_exit(&self) -> bool {
        self.machine.ledger().may_exit()
    }

    /// Returns whether operators have taken the cell out of service.
    pub(crate) fn is_out_of_service(&self) -> bool {
        self.machine.ledger().cell().evacuating
    }

    /// Returns whether it runs nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.machine.ledger().instance_count() == 0
    }

    /// Returns the other cell of our name, if this one must end because of it.
    pub(crate) fn namesake(&self) -> Option<Incarnation> {
        self.machine.namesake()
    }

    /// Returns the executor's next report.
    pub(crate) async fn executor_reports(&mut self) -> ExecutorReport {
        self.executor.next_report().await
    }

    pub(crate) fn report(&mut self, report: ExecutorReport) {
        let now_ms = self.now_ms();
        self.machine.take(now_ms, CellInput::Report(report));
    }

    pub(crate) fn tick(&mut self) {
        let now_ms = self.now_ms();
        self.machine.take(now_ms, CellInput::Tick);
        if self.heartbeat_at_ms <= now_ms {
            self.heartbeat_at_ms = now_ms + self.heartbeat_ms;
            self.heartbeat(now_ms);
        }
    }

    /// Handles a reconnection: auctioneers may have removed the cell.
    pub(crate) fn reconnected(&mut self) {
        let now_ms = self.now_ms();
        self.machine.take(now_ms, CellInput::Reconnected);
    }

    /// Withdraws at once and ends all instances. Returns when the grace period ends.
    pub(crate) fn shut_down(&mut self) -> u64 {
        let now_ms = self.now_ms();
        self.machine.take(now_ms, CellInput::Leave);
        now_ms + self.grace_ms
    }

    /// Drains for at most the grace period, because the rep is to end. Returns when the grace period ends.
    pub(crate) fn leave_gently(&mut self) -> u64 {
        let now_ms = self.now_ms();
        let grace_ms = self.grace_ms;
        self.machine.take(now_ms, CellInput::LeaveGently(grace_ms));
        now_ms + grace_ms
    }

    /// Publishes the last events and the withdrawal, and sends what is waiting.
    pub(crate) async fn close(mut self) {
        let now_ms = self.now_ms();
        for output in self.machine.close(now_ms) {
            self.carry_out(now_ms, output);
        }
        self.executor.close().await;
        self.outbox.flush().await;
    }

    /// Carries out the machine's outputs until there are none.
    pub(crate) fn settle(&mut self) {
        let now_ms = self.now_ms();
        if let Some(blobs) = self.executor.cached_blobs() {
            self.machine.take(now_ms, CellInput::Cached(blobs));
        }
        loop {
            for report in self.executor.due(now_ms) {
                self.machine.take(now_ms, CellInput::Report(report));
            }
            let outputs = self.machine.run(now_ms);
            if outputs.is_empty() {
                return;
            }
            for output in outputs {
                self.carry_out(now_ms, output);
            }
        }
    }

    fn carry_out(&mut self, now_ms: u64, output: CellOutput) {
        match output {
            CellOutput::Advertise(advert) | CellOutput::Withdraw(advert) => {
                self.advertise(to_bytes(&advert));
            }
            CellOutput::AdvertiseChange(change) => self.advertise(to_bytes(&change)),
            CellOutput::Execute(order) => self.executor.execute(now_ms, &order),
            CellOutput::Event(event) => self.publish_event(*event),
            CellOutput::Result(result) => self.publish_result(*result),
            CellOutput::AskNamesake => {
                let subject = self.own_subject("state");
                for _ in 0..NAMESAKE_QUESTIONS {
                    self.outbox.ask(subject.clone(), self.inbox.clone());
                }
            }
        }
    }

    fn advertise(&mut self, body: Bytes) {
        let subject = self.own_subject("advert");
        if !self.outbox.publish_now(subject, body) {
            let now_ms = self.now_ms();
            self.machine.take(now_ms, CellInput::NotSent);
        }
    }

    fn publish_event(&self, mut event: Event) {
        event.stamp(self.cell_name());
        let subject = self.subjects.event(&event.kind, event.about(), &event.by);
        self.outbox.publish(subject, to_bytes(&event));
    }

    /// Publishes a task's result, without its output if there is no room for that.
    fn publish_result(&self, mut result: TaskResult) {
        if let Some(left) = self.executor.take_left(&result.instance) {
            (result.output, result.result) = (Some(left.output), left.result);
        }
        let mut body = to_bytes(&result);
        if body.len() > self.max_bytes() {
            result.output = None;
            body = to_bytes(&result);
        }
        self.outbox.publish(self.own_subject("result"), body);
    }

    fn own_subject(&self, what: &str) -> String {
        self.subjects.cell(self.cell_name(), what)
    }

    fn cell_name(&self) -> &str {
        &self.machine.ledger().cell().cell
    }

    fn heartbeat(&mut self, now_ms: u64) {
        for output in self.machine.before_heartbeat(now_ms) {
            self.carry_out(now_ms, output);
        }
        let ledger = self.machine.ledger();
        let instances = ledger.current_instances(now_ms);
        self.executor.measure(ledger.processes());
        for message in self.machine.split(instances, self.max_bytes()) {
            let subject = self.own_subject("heartbeat");
            self.outbox.publish_now(subject, to_bytes(&message));
        }
    }

    /// Handles one message; a malformed one is answered with an error and counted.
    pub(crate) fn handle(&mut self, topic: Topic, question: Question) {
        let now_ms = self.now_ms();
        let body = question.message().payload.clone();
        let answer = match topic {
            Topic::Discover => read_nothing(&body).map(|()| {
                self.machine.take(now_ms, CellInput::Discover);
                Vec::new()
            }),
            Topic::Namesake => self.namesake_says(now_ms, &body, CellInput::Advertised),
            Topic::NamesakeState if is_no_responders(question.message()) => Ok(Vec::new()),
            Topic::NamesakeState => self.namesake_says(now_ms, &body, CellInput::NamesakeAnswered),
            Topic::Bid => self.bid(now_ms, &body),
            Topic::State => {
                read_nothing(&body).map(|()| vec![to_bytes(&self.machine.state(now_ms, None))])
            }
            Topic::Start => self.start(now_ms, &body).map(|answer| vec![answer]),
            Topic::Stop => self.machine.stop(now_ms, &body).map(|a| vec![to_bytes(&a)]),
            Topic::Drain => self.drain(now_ms, &body).map(|answer| vec![answer]),
            Topic::Cordon => self.cordon(now_ms, &body).map(|answer| vec![answer]),
            Topic::Uncordon => self.uncordon(now_ms, &body).map(|answer| vec![answer]),
            Topic::Set => self.set(now_ms, &body).map(|answer| vec![answer]),
            Topic::Instances => self.instances(now_ms, &body),
            Topic::Logs => self.logs(&body).map(|answer| vec![answer]),
        };
        match answer {
            Ok(bodies) => self.answer(question, bodies),
            Err(error) => {
                self.counters.malformed.fetch_add(1, Ordering::Relaxed);
                let (logged, left_out) = self.malformed.next(Instant::now());
                if logged {
                    tracing::warn!(?topic, %error, left_out, "malformed message");
                }
                // a malformed broadcast would be answered by a thousand cells
                if !matches!(topic, Topic::Bid | Topic::Discover)
                    && let Some(to) = self.target(question)
                {
                    self.outbox.error(to, error);
                }
            }
        }
    }

    fn start(&mut self, now_ms: u64, body: &[u8]) -> Result<Bytes, WireError> {
        let secrets = self.secrets.as_ref();
        let lacks = |work: &Work| secrets?.lacks(work.run.as_deref());
        let answer = self.machine.start_unless(now_ms, body, &lacks)?;
        Ok(to_bytes(&answer))
    }

    fn namesake_says(
        &mut self,
        now_ms: u64,
        body: &[u8],
        input: fn(Envelope) -> CellInput,
    ) -> Result<Vec<Bytes>, WireError> {
        let envelope = Envelope::parse(body, Some(self.cell_name()))?;
        self.machine.take(now_ms, input(envelope));
        Ok(Vec::new())
    }

    fn answer(&self, question: Question, bodies: Vec<Bytes>) {
        let mut bodies = bodies.into_iter();
        let Some(first) = bodies.next() else {
            return;
        };
        let Some(to) = self.target(question) else {
            return;
        };
        let rest = if bodies.len() > 0 { to.subject() } else { None };
        self.outbox.answer(to, first);
        if let Some(subject) = rest {
            for body in bodies {
                self.outbox.publish_now(subject.clone(), body);
            }
        }
    }

    /// Returns where the answer goes, if one is wanted and may be sent there.
    fn target(&self, question: Question) -> Option<Target> {
        let to = Target::of(question, &self.subjects, self.cell_name());
        to.unwrap_or_else(|_| {
            self.counters.reply_subject.fetch_add(1, Ordering::Relaxed);
            if let Some(times) = self.forbidden.happened(std::time::Instant::now(), 1) {
                tracing::warn!(times, "not answered: the reply subject is no inbox");
            }
            None
        })
    }

    fn bid(&self, now_ms: u64, body: &[u8]) -> Result<Vec<Bytes>, WireError> {
        let request: BidRequest = parse(body, &mut Vec::new())?;
        let bid = self.machine.bid(now_ms, request.auction);
        let body = bid.map(|bid| match bid {
            CellBid::Unchanged(bid) => to_bytes(&bid),
            CellBid::Change(change) => to_bytes(&change),
            CellBid::Full(advert) => to_bytes(&advert),
        });
        Ok(body.into_iter().collect())
    }

    fn instances(&self, now_ms: u64, body: &[u8]) -> Result<Vec<Bytes>, WireError> {
        let messages = self.machine.instances(now_ms, body, self.max_bytes())?;
        Ok(messages.iter().map(to_bytes).collect())
    }

    fn logs(&self, body: &[u8]) -> Result<Bytes, WireError> {
        let logs: Logs = parse_strict(body, "app, index, instance, since or lines")?;
        placement::check_name("app", &logs.app)?;
        Ok(to_bytes(&LogsAnswer {
            v: shared::VERSION,
            cell: self.cell_name().to_owned(),
            lines: self.executor.log_lines(&logs, self.max_bytes()),
        }))
    }

    /// Returns the largest size of an answer.
    fn max_bytes(&self) -> usize {
        self.outbox.max_payload().saturating_sub(MARGIN)
    }
}

/// Reserves small instances that a simulated cell has from the start, so that its advertisements are as large as those
/// of a cell in use.
fn adopt_apps(ledger: &mut Ledger, apps: usize) {
    let work = |index| Work::new(Uuid::new_v4().into(), format!("held-{index}"), 1, 1);
    ledger.adopt((0..apps).map(work));
}
