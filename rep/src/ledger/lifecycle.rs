//! The life of an instance after the cell has accepted it: it runs, ends, is restarted, and releases its reservation.

use std::sync::Arc;

use placement::Kind;
use shared::{
    InstanceId,
    wire::{InstanceState, kind},
};

use super::{
    Ledger,
    actions::{Action, EndReason, ExecutorOrder, ExecutorReport, InstanceChange},
    room::credit,
};

/// The delay before each restart; after the last one the instance is `crashed`. The first restart is immediate: most
/// failures do not repeat, and those that do are slowed down by the others.
pub const RESTART_DELAYS_MS: [u64; 4] = [0, 1_000, 2_000, 4_000];
/// How long an LRP must run to be healthy again: its restarts then count from zero.
pub const HEALTHY_MS: u64 = 300_000;
/// The longest text about how an instance ended, in characters.
pub(super) const MAX_ENDED_CHARS: usize = 200;

impl Ledger {
    /// Takes a report of the executor. Reports about earlier attempts are ignored.
    pub fn report(&mut self, now_ms: u64, report: ExecutorReport) {
        let Some(entry) = self.instances.get_mut(&report.instance) else {
            return;
        };
        // a late report may concern the last attempt while the next one is already running
        if entry.attempt != report.attempt || entry.waits_for_restart() {
            return;
        }
        match report.change {
            InstanceChange::Running { pid, port } => {
                (entry.pid, entry.port, entry.began) = (pid, port, true);
                entry.usage = None;
                // it may be stopping by now: a process that was told to end can still report that it started
                if entry.state == InstanceState::Starting {
                    self.process_exists(now_ms, report.instance);
                }
            }
            // no news for auctioneers: it is only shown in lists of instances
            InstanceChange::Measured(usage) => entry.usage = Some(usage),
            InstanceChange::Checked { of, failure } => {
                self.checked(now_ms, report.instance, of, failure);
            }
            InstanceChange::Ended(how) => self.ended(now_ms, report.instance, how),
        }
    }

    /// Makes a starting instance running: it is healthy as far as its request defines that.
    pub(super) fn runs(&mut self, now_ms: u64, id: InstanceId) {
        let Some(entry) = self.instances.get_mut(&id) else {
            return;
        };
        (entry.state, entry.since_ms) = (InstanceState::Running, now_ms);
        entry.running_ms = Some(now_ms);
        entry.ended = None;
        (entry.exit_code, entry.signal) = (None, None);
        let event = entry.event(kind::RUNNING, None);
        let has_ready = entry.work.ready.is_some();
        self.actions.push(event);
        self.left_starting();
        if has_ready {
            self.check_readiness(now_ms, id);
        }
    }

    /// Ends an instance: at once if it has no process, else when the executor reports its end. A `duplicate` is killed,
    /// and counts as never started.
    pub(super) fn end(&mut self, now_ms: u64, id: &InstanceId, duplicate: bool) {
        let Some(entry) = self.instances.get_mut(id) else {
            return;
        };
        let first = duplicate && !std::mem::replace(&mut entry.duplicate, true);
        match entry.state {
            // it was asked to end, and may take its time; a duplicate is killed, because it does another one's work
            InstanceState::Stopping if first => {
                self.actions.push(Action::Execute(ExecutorOrder::End {
                    instance: *id,
                    attempt: entry.attempt,
                    at_once: true,
                }));
            }
            InstanceState::Stopping => {}
            // it is already being ended, for another reason
            InstanceState::Restarting if !entry.waits_for_restart() => {
                (entry.state, entry.since_ms) = (InstanceState::Stopping, now_ms);
                if let Some(checks) = &mut entry.checks {
                    checks.forgive();
                }
                if duplicate {
                    self.actions.push(Action::Execute(ExecutorOrder::End {
                        instance: *id,
                        attempt: entry.attempt,
                        at_once: true,
                    }));
                }
            }
            InstanceState::Restarting => {
                entry.state = InstanceState::Stopping;
                entry.running_ms = None;
                // no process will report its end, so the reservation is released here
                self.restarts.retain(|(_, waiting)| waiting != id);
                self.release(now_ms, id, InstanceState::Exited, Some("stopped".into()));
            }
            state => {
                (entry.state, entry.since_ms) = (InstanceState::Stopping, now_ms);
                self.actions.push(Action::Execute(ExecutorOrder::End {
                    instance: *id,
                    attempt: entry.attempt,
                    at_once: duplicate,
                }));
                if state == InstanceState::Starting {
                    self.left_starting();
                }
                self.stop_checks(id);
            }
        }
    }

    fn ended(&mut self, now_ms: u64, id: InstanceId, how: EndReason) {
        // for an unhealthy instance it does not matter how it ended, even with exit code 0
        let how = self.close_checks(&id).map_or(how, EndReason::Failed);
        let Some(entry) = self.instances.get_mut(&id) else {
            return;
        };
        if entry.state == InstanceState::Starting {
            self.cell.counts.starting -= 1;
            self.seq += 1;
        }
        // an unhealthy instance counts as running until its end was begun
        let ran_until_ms = match entry.state {
            InstanceState::Restarting => entry.since_ms,
            _ => now_ms,
        };
        if entry
            .running_ms
            .is_some_and(|from| ran_until_ms.saturating_sub(from) >= HEALTHY_MS)
        {
            entry.strikes = 0;
        }
        entry.began |= how.may_have_run();
        // the reason of a failed start quotes the system, and goes into every list of instances
        let text: String = how.to_string().chars().take(MAX_ENDED_CHARS).collect();
        (entry.exit_code, entry.signal) = match &how {
            EndReason::Exit(code) => (Some(*code), None),
            EndReason::Signal(number) => (None, Some(*number)),
            EndReason::Over(_) | EndReason::Failed(_) => (None, None),
        };
        if entry.state == InstanceState::Stopping {
            self.release(now_ms, &id, InstanceState::Exited, Some("stopped".into()));
        } else if how == EndReason::Exit(0) {
            self.release(now_ms, &id, InstanceState::Exited, Some(text));
        // a task may have done half of its work: whoever sent it decides whether to repeat it
        } else if entry.work.kind == Kind::Task || entry.strikes == RESTART_DELAYS_MS.len() {
            self.release(now_ms, &id, InstanceState::Crashed, Some(text));
        } else {
            let wait_ms = RESTART_DELAYS_MS[entry.strikes];
            (entry.state, entry.since_ms) = (InstanceState::Restarting, now_ms);
            // while it waits, others may get the port, so nobody may be sent there
            (entry.pid, entry.port) = (None, None);
            entry.strikes += 1;
            entry.ended = Some(text);
            let why = match wait_ms {
                0 => "starts again at once".into(),
                _ => format!("starts again in {} s", wait_ms / 1_000),
            };
            let event = entry.event(kind::CRASHED, Some(why));
            self.actions.push(event);
            if wait_ms == 0 {
                self.restart(now_ms, &id);
            } else {
                self.restarts.insert((now_ms + wait_ms, id));
            }
        }
    }

    /// Releases an instance's reservation.
    fn release(
        &mut self,
        now_ms: u64,
        id: &InstanceId,
        state: InstanceState,
        ended: Option<String>,
    ) {
        let Some(mut entry) = self.instances.remove(id) else {
            return;
        };
        let stopped = entry.state == InstanceState::Stopping;
        (entry.state, entry.since_ms, entry.pid) = (state, now_ms, None);
        // the port may soon belong to another instance
        entry.port = None;
        entry.ended = ended;
        let (what, why) = match state {
            _ if stopped => (kind::STOPPED, None),
            InstanceState::Exited => (kind::EXITED, None),
            _ if entry.work.kind == Kind::Lrp => (kind::CRASHED, Some("not started again")),
            _ => (kind::CRASHED, None),
        };
        self.actions.push(entry.event(what, why.map(str::to_owned)));
        // a duplicate counts as never started: the instance that counts runs elsewhere
        if !entry.duplicate
            && let Some(result) = entry.result(&self.cell.cell, stopped)
        {
            self.actions.push(Action::Result(Box::new(result)));
        }
        // only now that every process has ended: until then its memory is in use
        credit(&mut self.cell, &entry.work);
        if entry.duplicate {
            self.history.killed(now_ms, *id, entry.expires_ms);
        } else {
            let shown = entry.describe(now_ms, &self.address);
            self.history.add(now_ms, shown, stopped, entry.expires_ms);
        }
        self.work_changed(entry.work);
    }

    pub(super) fn restart(&mut self, now_ms: u64, id: &InstanceId) {
        let Some(entry) = self.instances.get_mut(id) else {
            return;
        };
        entry.attempt += 1;
        entry.running_ms = None;
        (entry.state, entry.since_ms) = (InstanceState::Starting, now_ms);
        let launch = Action::Execute(ExecutorOrder::Launch {
            work: Arc::clone(&entry.work),
            attempt: entry.attempt,
        });
        let event = entry.event(kind::RESTARTED, None);
        self.actions.extend([launch, event]);
        self.cell.counts.starting += 1;
        self.seq += 1;
    }

    /// Counts one starting instance less. Auctioneers limit their starts by this count, so the change is news.
    pub(super) fn left_starting(&mut self) {
        self.cell.counts.starting -= 1;
        self.seq += 1;
    }
}
