//! A simulated executor: instances are reported as running after a configured time, and end when asked to. It has no
//! tasks or timers of its own, so that thousands of cells fit in one process.

use std::collections::{BTreeMap, HashMap};

use placement::Kind;
use shared::InstanceId;
use shared::{clock::millis, wire::Work};

use crate::{
    config::SimulatedConfig,
    ledger::{CheckOf, EndReason, ExecutorOrder, ExecutorReport, InstanceChange},
};

/// Simulated instances. A state machine over the cell's clock.
#[derive(Debug, Default)]
pub struct Simulated {
    start_ms: u64,
    task_ms: Option<u64>,
    lrp_ms: Option<u64>,
    healthy_ms: u64,
    /// Future reports by time; the number keeps reports of the same moment in order.
    coming: BTreeMap<(u64, u64), ExecutorReport>,
    count: u64,
    /// The running attempts, and from when they pass checks.
    alive: HashMap<InstanceId, (u32, u64)>,
}

impl Simulated {
    /// Creates an executor without instances.
    pub fn new(config: SimulatedConfig) -> Self {
        Self {
            start_ms: millis(config.start.0),
            task_ms: config.task.map(|span| millis(span.0)),
            lrp_ms: config.lrp.map(|span| millis(span.0)),
            healthy_ms: millis(config.healthy.0),
            ..Self::default()
        }
    }

    /// Carries out an order of the ledger.
    pub fn execute(&mut self, now_ms: u64, order: &ExecutorOrder) {
        match order {
            ExecutorOrder::Launch { work, attempt } => self.launch(now_ms, work, *attempt),
            ExecutorOrder::End {
                instance, attempt, ..
            } => self.end(now_ms, *instance, *attempt),
            ExecutorOrder::Check {
                instance,
                attempt,
                of,
                ..
            } => self.check(now_ms, *instance, *attempt, *of),
        }
    }

    /// Takes over an instance that ran before this executor existed: it can be ended like launched ones.
    pub fn adopt(&mut self, instance: InstanceId) {
        self.alive.insert(instance, (0, 0));
    }

    /// Launches an instance: it runs after the configured time, and ends by itself if a time is configured for its
    /// kind.
    fn launch(&mut self, now_ms: u64, work: &Work, attempt: u32) {
        let runs_ms = now_ms + self.start_ms;
        let alive = (attempt, runs_ms + self.healthy_ms);
        self.alive.insert(work.instance, alive);
        let runs = InstanceChange::Running {
            pid: None,
            port: None,
        };
        self.happens(runs_ms, work.instance, attempt, runs);
        let ends_ms = match work.kind {
            Kind::Task => self.task_ms,
            Kind::Lrp => self.lrp_ms,
        };
        if let Some(ends_ms) = ends_ms {
            self.exits(runs_ms + ends_ms, work.instance, attempt);
        }
    }

    /// Checks an instance: it passes every check once it has run for the configured time.
    fn check(&mut self, now_ms: u64, instance: InstanceId, attempt: u32, of: CheckOf) {
        let alive = self.alive.get(&instance);
        let passed = alive.is_some_and(|(_, from_ms)| *from_ms <= now_ms);
        let failure = (!passed).then(|| "simulated: too early".to_owned());
        let checked = InstanceChange::Checked { of, failure };
        self.happens(now_ms, instance, attempt, checked);
    }

    /// Ends an instance at once, by a signal.
    fn end(&mut self, now_ms: u64, instance: InstanceId, attempt: u32) {
        let ended = InstanceChange::Ended(EndReason::Signal(15));
        self.happens(now_ms, instance, attempt, ended);
    }

    /// Lets an instance exit with code 0 at `at_ms`.
    pub fn exits(&mut self, at_ms: u64, instance: InstanceId, attempt: u32) {
        self.happens(
            at_ms,
            instance,
            attempt,
            InstanceChange::Ended(EndReason::Exit(0)),
        );
    }

    /// Returns what has happened by now, in order.
    pub fn due(&mut self, now_ms: u64) -> Vec<ExecutorReport> {
        let mut due = Vec::new();
        while let Some(entry) = self.coming.first_entry()
            && entry.key().0 <= now_ms
        {
            let report = entry.remove();
            let alive = self.alive.get(&report.instance);
            if alive.map(|(attempt, _)| attempt) != Some(&report.attempt) {
                continue;
            }
            if matches!(report.change, InstanceChange::Ended(_)) {
                self.alive.remove(&report.instance);
            }
            due.push(report);
        }
        due
    }

    /// Returns when something happens next.
    pub fn next_ms(&self) -> Option<u64> {
        self.coming.first_key_value().map(|((at, _), _)| *at)
    }

    fn happens(&mut self, at_ms: u64, instance: InstanceId, attempt: u32, change: InstanceChange) {
        self.count += 1;
        let report = ExecutorReport {
            instance,
            attempt,
            change,
        };
        self.coming.insert((at_ms, self.count), report);
    }
}
