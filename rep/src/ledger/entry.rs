//! One instance in the ledger.

use std::{sync::Arc, time::Duration};

use placement::{CheckKind, Span, Usage};
use shared::wire::{EventInstance, Instance, InstanceState, TaskResult, Work};
use shared::{AuctionId, VERSION};

#[cfg(doc)]
use super::HEALTHY_MS;
use super::{actions::Action, checks::Checks};

/// One instance with a reservation.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) work: Arc<Work>,
    pub(super) state: InstanceState,
    pub(super) since_ms: u64,
    /// The number of this attempt, counted from 0.
    pub(super) attempt: u32,
    /// Since when this attempt has been running, or had been until it ended.
    pub(super) running_ms: Option<u64>,
    /// Crashes since it last ran for [`HEALTHY_MS`].
    pub(super) strikes: usize,
    pub(super) pid: Option<u32>,
    pub(super) port: Option<u16>,
    /// What this attempt was last measured to use.
    pub(super) usage: Option<Usage>,
    pub(super) ended: Option<String>,
    pub(super) exit_code: Option<i32>,
    pub(super) signal: Option<i32>,
    /// Until when a repeat of its start may arrive, on the cell's clock.
    pub(super) expires_ms: u64,
    /// The lowest claim with which it was sent here.
    pub(super) claim: AuctionId,
    /// The checks that it has passed or has yet to pass; none if it has no checks.
    pub(super) checks: Option<Box<Checks>>,
    /// Whether it runs elsewhere under a lower claim: it is ended and counts as never started.
    pub(super) duplicate: bool,
    /// Whether its command may have run.
    pub(super) began: bool,
}

impl Entry {
    /// Returns the instance as it is reported.
    pub(super) fn describe(&self, now_ms: u64, address: &str) -> Instance {
        Instance {
            instance: self.work.instance,
            app: self.work.app.clone(),
            index: self.work.index,
            kind: self.work.kind,
            request: self.work.request.clone(),
            owner: self.work.owner.clone(),
            version: self.work.version.clone(),
            state: self.state,
            age_ms: now_ms.saturating_sub(self.since_ms),
            memory_mb: self.work.memory_mb,
            disk_mb: self.work.disk_mb,
            devices: self.work.devices.clone(),
            address: self.port.map(|_| address.to_owned()),
            port: self.port,
            pid: self.pid,
            ready: self.is_ready(),
            usage: self.usage.filter(|_| self.state == InstanceState::Running),
            restarts: self.attempt,
            ended: self.ended.clone(),
            exit_code: self.exit_code,
            signal: self.signal,
            claim: Some(self.claim),
        }
    }

    /// Returns whether it has no process and is waiting to be restarted.
    pub(super) fn waits_for_restart(&self) -> bool {
        let failing = self.checks.as_ref().is_some_and(|c| c.has_failed());
        self.state == InstanceState::Restarting && !failing
    }

    /// Returns whether it is ready; none if it has no readiness check or has ended.
    fn is_ready(&self) -> Option<bool> {
        let check = self.work.ready.as_ref()?;
        match self.state {
            InstanceState::Exited | InstanceState::Crashed => None,
            InstanceState::Running if check.kind == CheckKind::Process => Some(true),
            InstanceState::Running => Some(self.checks.as_ref().is_some_and(|c| c.is_ready())),
            _ => Some(false),
        }
    }

    /// Returns what managers and facades are told about its end; none if it is no task of theirs.
    pub(super) fn result(&self, cell: &str, stopped: bool) -> Option<TaskResult> {
        let request = self.work.request.clone()?;
        if !self.work.has_result() {
            return None;
        }
        let ran_ms = |from| self.since_ms.saturating_sub(from);
        Some(TaskResult {
            v: VERSION,
            cell: cell.to_owned(),
            instance: self.work.instance,
            request,
            exit_code: self.exit_code,
            signal: self.signal,
            ended: self.ended.clone().unwrap_or_default(),
            stopped,
            began: self.began,
            ran_ms: self.running_ms.map(ran_ms),
            output: None,
            result: None,
        })
    }

    /// Returns an event about it. One about its end carries the time of the end.
    pub(super) fn event(&self, kind: &'static str, reason: Option<String>) -> Action {
        // whatever replaces instances acts only on the final event: a crash followed by a restart is not final
        let is_final = matches!(self.state, InstanceState::Exited | InstanceState::Crashed);
        let ended = is_final || self.state == InstanceState::Restarting;
        let ran_ms = self.running_ms.filter(|_| ended);
        let ran_ms = ran_ms.map(|from| self.since_ms.saturating_sub(from));
        Action::Event {
            kind,
            app: self.work.app.clone(),
            instance: EventInstance {
                index: self.work.index,
                instance: Some(self.work.instance),
                cell: None,
                port: self.port,
                restarts: (self.attempt > 0).then_some(self.attempt),
                ended: self.ended.clone(),
                is_final,
                ran: ran_ms.map(|ms| Span(Duration::from_millis(ms))),
                traceparent: self.work.traceparent.clone(),
            },
            reason,
        }
    }
}
