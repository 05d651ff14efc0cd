//! Checks of instances: when the next one is due, and what its result causes.

use std::sync::Arc;

use placement::{CheckKind, HealthCheck, cut};
use shared::{
    InstanceId,
    clock::millis,
    wire::{InstanceState, kind},
};

use super::{
    Ledger,
    actions::{Action, CheckOf, ExecutorOrder},
};

/// The longest interval between checks until one has passed.
const UNPASSED_PAUSE_MS: u64 = 2_000;

/// What is due for an instance with checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The next check of this kind.
    Check(CheckOf),
    /// The instance must be healthy by now.
    Start,
}

/// The checks of an instance's current attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct Checks {
    health: Option<Watch>,
    ready: Option<Watch>,
    start_due_ms: Option<u64>,
    /// Why it is being ended: the reason of the failed check.
    failed: Option<String>,
}

/// One check and its last results.
#[derive(Clone, Debug)]
struct Watch {
    check: Arc<HealthCheck>,
    passed: bool,
    /// Consecutive failures.
    failures: u32,
    /// When the next one is due; none while a check is running.
    due_ms: Option<u64>,
    last: String,
}

impl Checks {
    fn watch_mut(&mut self, of: CheckOf) -> Option<&mut Watch> {
        match of {
            CheckOf::Health => self.health.as_mut(),
            CheckOf::Ready => self.ready.as_mut(),
        }
    }

    /// Returns whether the last check of readiness has passed.
    pub(super) fn is_ready(&self) -> bool {
        self.ready.as_ref().is_some_and(|watch| watch.passed)
    }

    /// Returns whether its instance is being ended because it is unhealthy.
    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Clears the failure, because the instance is now being ended for another reason.
    pub(super) fn forgive(&mut self) {
        self.failed = None;
    }
}

impl Watch {
    fn new(check: &Arc<HealthCheck>) -> Self {
        Self {
            check: Arc::clone(check),
            passed: false,
            failures: 0,
            due_ms: None,
            last: "not checked yet".into(),
        }
    }

    /// Takes a result. Returns whether it changes the state: the first success, or one failure too many.
    fn take(&mut self, failure: Option<String>) -> bool {
        let Some(why) = failure else {
            self.failures = 0;
            return !std::mem::replace(&mut self.passed, true);
        };
        let what = match self.check.kind {
            CheckKind::Http => format!("GET {}", self.check.path),
            CheckKind::Port | CheckKind::Process => "its port".into(),
        };
        self.last = cut(&format!("{what}: {why}")).into_owned();
        self.failures += 1;
        self.passed && self.failures >= self.check.failures
    }

    fn pause_ms(&self) -> u64 {
        let interval_ms = millis(self.check.interval.0);
        if self.passed {
            interval_ms
        } else {
            interval_ms.min(UNPASSED_PAUSE_MS)
        }
    }
}

/// Returns the check if there is something to do for it.
fn to_do(check: Option<&Arc<HealthCheck>>) -> Option<&Arc<HealthCheck>> {
    check.filter(|check| check.kind != CheckKind::Process)
}

impl Ledger {
    /// Handles that a starting instance has a process: it runs, or first has to pass its health check.
    pub(super) fn process_exists(&mut self, now_ms: u64, id: InstanceId) {
        let Some(entry) = self.instances.get_mut(&id) else {
            return;
        };
        let Some(check) = to_do(entry.work.health.as_ref()) else {
            return self.runs(now_ms, id);
        };
        let by_ms = entry.since_ms + millis(check.start_timeout.0);
        let checks = entry.checks.insert(Box::default());
        checks.health = Some(Watch::new(check));
        checks.start_due_ms = Some(by_ms);
        self.timers.insert((by_ms, id, Timer::Start));
        self.schedule(now_ms, id, CheckOf::Health);
    }

    /// Starts checking a running instance for readiness.
    pub(super) fn check_readiness(&mut self, now_ms: u64, id: InstanceId) {
        let Some(entry) = self.instances.get_mut(&id) else {
            return;
        };
        if let Some(check) = to_do(entry.work.ready.as_ref()) {
            let checks = entry.checks.get_or_insert_default();
            checks.ready = Some(Watch::new(check));
            self.schedule(now_ms, id, CheckOf::Ready);
        } else if entry.work.ready.is_some() {
            let event = entry.event(kind::READY, None);
            self.actions.push(event);
        }
    }

    /// Takes the result of a check: none if it passed, else the reason why not.
    pub(super) fn checked(
        &mut self,
        now_ms: u64,
        id: InstanceId,
        of: CheckOf,
        failure: Option<String>,
    ) {
        let Some(entry) = self.instances.get_mut(&id) else {
            return;
        };
        let Some(checks) = entry.checks.as_mut() else {
            return;
        };
        let Some(watch) = checks.watch_mut(of) else {
            return;
        };
        // a check that was in progress when the instance was told to end
        if !matches!(
            entry.state,
            InstanceState::Starting | InstanceState::Running
        ) {
            return;
        }
        let failed = failure.is_some();
        let news = watch.take(failure);
        match (of, news) {
            (_, false) => {}
            (CheckOf::Health, true) if failed => {
                let why = format!("not healthy: {}", watch.last);
                return self.end_unhealthy(now_ms, id, why);
            }
            (CheckOf::Health, true) => {
                if let Some(at_ms) = checks.start_due_ms.take() {
                    self.timers.remove(&(at_ms, id, Timer::Start));
                }
                self.runs(now_ms, id);
            }
            (CheckOf::Ready, true) => {
                // what has failed too often has to pass again
                watch.passed = !failed;
                let event = if failed {
                    let why = watch.last.clone();
                    entry.event(kind::NOT_READY, Some(why))
                } else {
                    entry.event(kind::READY, None)
                };
                self.actions.push(event);
            }
        }
        let watch = self.watch(id, of);
        let pause_ms = watch.map_or(0, |watch| watch.pause_ms());
        self.schedule(now_ms + pause_ms, id, of);
    }

    fn watch(&mut self, id: InstanceId, of: CheckOf) -> Option<&mut Watch> {
        let entry = self.instances.get_mut(&id)?;
        entry.checks.as_mut()?.watch_mut(of)
    }

    fn schedule(&mut self, at_ms: u64, id: InstanceId, of: CheckOf) {
        if let Some(watch) = self.watch(id, of) {
            watch.due_ms = Some(at_ms);
            self.timers.insert((at_ms, id, Timer::Check(of)));
        }
    }

    /// Does what is due by now.
    pub(super) fn tick_checks(&mut self, now_ms: u64) {
        while let Some((at_ms, id, timer)) = self.timers.first().copied()
            && at_ms <= now_ms
        {
            self.timers.pop_first();
            match timer {
                Timer::Check(of) => self.order_check(id, of),
                Timer::Start => self.start_took_too_long(now_ms, id),
            }
        }
    }

    fn order_check(&mut self, instance: InstanceId, of: CheckOf) {
        let Some(entry) = self.instances.get_mut(&instance) else {
            return;
        };
        let (attempt, own_port) = (entry.attempt, entry.port);
        let checks = entry.checks.as_mut();
        let Some(watch) = checks.and_then(|checks| checks.watch_mut(of)) else {
            return;
        };
        watch.due_ms = None;
        let check = Arc::clone(&watch.check);
        self.actions.push(Action::Execute(ExecutorOrder::Check {
            instance,
            attempt,
            of,
            port: check.port.or(own_port),
            check,
        }));
    }

    fn start_took_too_long(&mut self, now_ms: u64, id: InstanceId) {
        let Some(watch) = self.watch(id, CheckOf::Health) else {
            return;
        };
        let limit = watch.check.start_timeout;
        let why = format!("not healthy within {limit}: {}", watch.last);
        self.end_unhealthy(now_ms, id, why);
    }

    /// Ends the processes of an unhealthy instance; once they have ended, it has failed.
    fn end_unhealthy(&mut self, now_ms: u64, id: InstanceId, why: String) {
        self.stop_checks(&id);
        let Some(entry) = self.instances.get_mut(&id) else {
            return;
        };
        let attempt = entry.attempt;
        entry.checks.get_or_insert_default().failed = Some(why);
        let before = std::mem::replace(&mut entry.state, InstanceState::Restarting);
        entry.since_ms = now_ms;
        // nobody may be sent there any more
        entry.port = None;
        self.actions.push(Action::Execute(ExecutorOrder::End {
            instance: id,
            attempt,
            at_once: false,
        }));
        if before == InstanceState::Starting {
            self.left_starting();
        }
    }

    /// Stops checking this instance.
    pub(super) fn stop_checks(&mut self, id: &InstanceId) {
        let Some(entry) = self.instances.get_mut(id) else {
            return;
        };
        let Some(checks) = entry.checks.as_mut() else {
            return;
        };
        if let Some(at_ms) = checks.start_due_ms.take() {
            self.timers.remove(&(at_ms, *id, Timer::Start));
        }
        for of in [CheckOf::Health, CheckOf::Ready] {
            let due_ms = checks.watch_mut(of).and_then(|watch| watch.due_ms.take());
            if let Some(at_ms) = due_ms {
                self.timers.remove(&(at_ms, *id, Timer::Check(of)));
            }
        }
    }

    /// Stops checking an instance whose processes have all ended. If it was ended because of a check, returns why.
    pub(super) fn close_checks(&mut self, id: &InstanceId) -> Option<String> {
        self.stop_checks(id);
        let checks = self.instances.get_mut(id)?.checks.take()?;
        checks.failed
    }
}
