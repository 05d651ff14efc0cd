//! The figures that the service reports in its statistics.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::Shell;
use crate::manager::Manager;

/// What was dropped outside the state machine.
#[derive(Clone, Copy, Debug)]
pub(super) enum Counted {
    Malformed,
    WrongSubject,
    ReplySubject,
    Request,
    Unsent,
}

/// How often each was dropped.
#[derive(Debug, Default)]
pub(super) struct Drops {
    malformed: AtomicU64,
    wrong_subject: AtomicU64,
    reply_subject: AtomicU64,
    requests: AtomicU64,
    pub(super) unsent: AtomicU64,
    /// Number of writes that were not acknowledged.
    pub(super) failed_writes: AtomicU64,
}

impl Drops {
    pub(super) fn count(&self, what: Counted) {
        let counter = match what {
            Counted::Malformed => &self.malformed,
            Counted::WrongSubject => &self.wrong_subject,
            Counted::ReplySubject => &self.reply_subject,
            Counted::Request => &self.requests,
            Counted::Unsent => &self.unsent,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns all counters and the present figures.
pub(super) fn figures(shell: &Shell, machine: &Manager) -> Value {
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let drops = &shell.drops;
    let [tasks, open_tasks, waiting_tasks] = machine.task_counts();
    let (holder, grants) = machine.grants();
    let mut figures = serde_json::to_value(machine.counters()).unwrap_or_default();
    let own = json!({
        "acting": u8::from(machine.is_acting()),
        "apps": machine.count(),
        "instances": machine.instances(),
        "orphans": machine.orphans(),
        "tasks": tasks,
        "open_tasks": open_tasks,
        "open_task_bytes": machine.open_task_bytes(),
        "waiting_tasks": waiting_tasks,
        "granted": u8::from(holder.is_some()),
        "granted_to": holder,
        "grants": grants,
        "failed_writes": read(&drops.failed_writes),
        "dropped_malformed": read(&drops.malformed),
        "dropped_wrong_subject": read(&drops.wrong_subject),
        "dropped_reply_subject": read(&drops.reply_subject),
        "dropped_requests": read(&drops.requests),
        "dropped_unsent": read(&drops.unsent),
        "dropped_too_fast": read(&shell.bus.dropped),
        "dropped_not_permitted": shell.bus.violations.count(),
    });
    if let (Value::Object(all), Value::Object(own)) = (&mut figures, own) {
        all.extend(own);
    }
    figures
}
