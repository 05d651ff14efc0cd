//! How runs end: results reported by cells, evidence in their lists, lost cells; what is repeated and what is over.

use std::sync::Arc;

use shared::{
    RequestId, VERSION,
    clock::millis,
    wire::{Event, Instance, InstanceState, Stop, TaskResult, TaskState, kind, last_of_output},
};

use super::{
    Tasks,
    entry::Step,
    losses::LEAVING_MS,
    record::{TaskEnd, TaskPhase},
};
use crate::io::ManagerOutput;

/// How often a run that failed before its command ran is tried again.
pub const MAX_FAILURES: u32 = 3;
/// How long a result is kept.
pub const KEPT_MS: u64 = 3_600_000;
/// Delay before a failed request is begun again.
const RETRY_MS: u64 = 1_000;
/// A stop that had no effect is sent again after this time.
const STOP_MS: u64 = 5_000;
/// A list may report the end of a task shortly before the message with its output arrives.
const OUTPUT_MS: u64 = 500;
/// How long a heartbeat may have been in flight.
const OLD_LIST_MS: u64 = 2_000;

/// How a stored request ends.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    state: TaskState,
    why: Option<String>,
    unplaced: bool,
    result: Option<Box<TaskResult>>,
}

impl Ending {
    fn new(state: TaskState, why: Option<&str>) -> Self {
        Self {
            state,
            why: why.map(|why| placement::cut(why).into_owned()),
            unplaced: false,
            result: None,
        }
    }

    pub(super) fn failed(why: &str) -> Self {
        Self::new(TaskState::Failed, Some(why))
    }

    /// Creates the ending of a request whose instances are placed. `shared` says which of them belong to other
    /// requests.
    pub(super) fn placed(shared: Option<&str>) -> Self {
        Self::new(TaskState::Placed, shared)
    }

    pub(super) fn cancelled() -> Self {
        Self::new(TaskState::Cancelled, None)
    }
}

impl Tasks {
    /// Looks at a stored request.
    pub(super) fn wake(&mut self, id: &Arc<str>) {
        let now_ms = self.now_ms;
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        let later_ms = entry.later_ms;
        if entry.unsaved && now_ms >= later_ms {
            self.unsaved.insert(Arc::clone(id));
        } else if entry.unsaved {
            self.look_at(id, later_ms);
        }
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        let (step, cancelled) = (entry.step, entry.record.cancelled);
        match step {
            Step::Waiting { .. } | Step::NoRoom if cancelled => self.cancel_now(id),
            Step::Waiting { .. } | Step::NoRoom if self.is_late(id) => {}
            Step::Waiting { due_ms } if now_ms < due_ms => self.look_at(id, due_ms),
            Step::Waiting { .. } => self.queue(id),
            Step::NoRoom | Step::Storing | Step::Over => {}
            Step::Sent { .. } | Step::Asking { .. } => self.look_for(id),
            Step::Accepted { .. } => self.look_at_run(id),
        }
    }

    /// Returns whether it was not started in time, and ends it if so. Otherwise schedules the next look for when its
    /// time is over.
    fn is_late(&mut self, id: &Arc<str>) -> bool {
        let Some(entry) = self.entries.get(id) else {
            return true;
        };
        let by_ms = entry.start_by_ms();
        if self.unix_ms() < by_ms {
            self.look_at(id, self.own_ms(by_ms));
            return false;
        }
        let why = entry.record.why.as_deref();
        let why = why.unwrap_or("it was not attempted");
        let mut ending = Ending::failed(&format!("not started in time: {why}"));
        ending.unplaced = entry.record.runs == 0 && entry.record.placed == 0;
        self.finish(id, ending);
        true
    }

    /// Looks at a request that a cell has accepted: whether it has ended, is to end, or has lost its cell.
    fn look_at_run(&mut self, id: &Arc<str>) {
        let (now_ms, unix_ms) = (self.now_ms, self.unix_ms());
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        if entry.heard.is_some() {
            let heard_ms = entry.heard_ms;
            if now_ms >= heard_ms {
                return self.take_result(id);
            }
            return self.look_at(id, heard_ms);
        }
        let cell = entry.record.cell.clone().unwrap_or_default();
        let lost_ms = entry.lost_ms;
        if lost_ms.is_some_and(|at_ms| now_ms >= at_ms) {
            return self.lost(id, &format!("its cell {cell} was lost"));
        }
        let mut next_ms = lost_ms.unwrap_or(u64::MAX);
        let record = &mut entry.record;
        if let (Some(timeout), Some(started_ms)) = (record.timeout, record.started_ms)
            && !record.timed_out
        {
            let until_ms = started_ms.saturating_add(millis(timeout.0));
            if unix_ms >= until_ms {
                record.timed_out = true;
                self.touch(id);
            } else {
                next_ms = next_ms.min(now_ms + (until_ms - unix_ms));
            }
        }
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        if entry.record.cancelled || entry.record.timed_out {
            if entry.stop_ms == 0 || now_ms >= entry.stop_ms + STOP_MS {
                entry.stop_ms = now_ms.max(1);
                let stop = Stop {
                    v: VERSION,
                    app: entry.record.request.app.clone(),
                    indices: Vec::new(),
                    instances: entry.instances.iter().map(|(_, id)| *id).collect(),
                    claim: None,
                };
                let cell = cell.into();
                self.out.push(ManagerOutput::Stop { cell, stop });
            }
            next_ms = next_ms.min(now_ms + STOP_MS);
        }
        if next_ms < u64::MAX {
            self.look_at(id, next_ms);
        }
    }

    /// Handles a cell's message about how a task ended. Every manager records it.
    pub(super) fn ended(&mut self, mut result: Box<TaskResult>) {
        let Some(id) = self.by_instance.get(&result.instance).cloned() else {
            return;
        };
        // a cell is not trusted to be brief
        result.output = result.output.map(last_of_output);
        result.result = None;
        result.ended = placement::cut(&result.ended).into_owned();
        self.room(self.now_ms);
        self.hear(&id, result, self.now_ms);
    }

    fn hear(&mut self, id: &Arc<str>, result: Box<TaskResult>, at_ms: u64) {
        let now_ms = self.now_ms;
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        if entry.step == Step::Over {
            return;
        }
        if entry.is_on_another(&result.cell) {
            // nobody speaks for another cell
            return;
        }
        if entry
            .heard
            .as_ref()
            .is_some_and(|heard| heard.output.is_some())
        {
            // a list says less
            return;
        }
        let cell = result.cell.clone();
        (entry.heard, entry.heard_ms) = (Some(result), at_ms);
        if !matches!(entry.step, Step::Accepted { .. }) {
            // the auctioneer's answer may come later or never
            self.accepted(id, &cell, false);
        }
        self.look_at(id, at_ms.max(now_ms));
    }

    /// Handles the end of its run.
    fn take_result(&mut self, id: &Arc<str>) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let Some(result) = entry.heard.take() else {
            return;
        };
        if !entry.instances.iter().any(|(_, id)| *id == result.instance) {
            // it belongs to an earlier attempt
            return self.look_at(id, self.now_ms);
        }
        let record = &mut entry.record;
        if let Some(ran_ms) = result.ran_ms {
            record.started_ms = record.started_ms.map(|at_ms| {
                let ended_ms = self.now_ms + self.unix_offset_ms;
                at_ms.min(ended_ms.saturating_sub(ran_ms))
            });
        }
        if !result.began && !result.stopped {
            record.failures += 1;
            let why = format!("it could not be started: {}", result.ended);
            if record.failures <= MAX_FAILURES {
                return self.repeat(id, &why);
            }
            return self.finish(id, Ending::failed(&why));
        }
        record.runs += 1;
        let ending = |state, why: Option<&str>| Ending {
            result: Some(result.clone()),
            ..Ending::new(state, why)
        };
        let (cancelled, timed_out) = (record.cancelled, record.timed_out);
        let again = record.runs <= record.retries;
        if result.exit_code == Some(0) && !result.stopped {
            self.finish(id, ending(TaskState::Succeeded, None));
        } else if result.stopped && cancelled {
            self.finish(id, ending(TaskState::Cancelled, None));
        } else if result.stopped && !timed_out {
            self.finish(id, ending(TaskState::Failed, Some("it was stopped")));
        } else if again && !cancelled {
            let why = if timed_out {
                "timed out"
            } else {
                &result.ended
            };
            self.repeat(id, why);
        } else {
            let why = if timed_out {
                "timed out"
            } else {
                &result.ended
            };
            self.finish(id, ending(TaskState::Failed, Some(why)));
        }
    }

    /// Handles that it may have run and that its end is unknown.
    pub(super) fn lost(&mut self, id: &Arc<str>, why: &str) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.record.runs += 1;
        let again = entry.record.runs <= entry.record.retries && !entry.record.cancelled;
        if again {
            self.repeat(id, why);
        } else {
            self.finish(id, Ending::failed(why));
        }
    }

    /// Begins it again, as an attempt with another number.
    fn repeat(&mut self, id: &Arc<str>, why: &str) {
        let unix_ms = self.unix_ms();
        self.off_cell(id);
        if let Some(entry) = self.entries.get_mut(id) {
            entry.record.waiting_ms = unix_ms;
            entry.record.timed_out = false;
        }
        self.wait_again(id, RETRY_MS, why);
    }

    /// Ends it without a run.
    pub(super) fn cancel_now(&mut self, id: &Arc<str>) {
        self.finish(id, Ending::cancelled());
    }

    /// Ends it.
    pub(super) fn finish(&mut self, id: &Arc<str>, ending: Ending) {
        let ended_ms = self.unix_ms();
        self.off_cell(id);
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let result = ending.result;
        let record = &mut entry.record;
        record.phase = TaskPhase::Over;
        record.why = ending.why;
        record.end = Some(TaskEnd {
            state: ending.state,
            ended_ms,
            exit_code: result.as_ref().and_then(|result| result.exit_code),
            signal: result.as_ref().and_then(|result| result.signal),
            output: result.and_then(|result| result.output),
            unplaced: ending.unplaced,
        });
        entry.heard = None;
        self.over.insert((ended_ms, Arc::clone(id)));
        self.name_instances(id);
        self.touch(id);
        self.set_step(id, Step::Over);
        self.room(self.now_ms);
    }

    /// Reports its end, which is now stored.
    pub(super) fn tell_end(&mut self, id: &Arc<str>) {
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        let (record, Some(end)) = (&entry.record, &entry.record.end) else {
            return;
        };
        let mut event = Event::app(kind::TASK_ENDED, record.request.app.as_str());
        event.request = RequestId::new(id).ok();
        event.reason = Some(match &record.why {
            Some(why) => format!("{}: {why}", end.state),
            None => end.state.to_string(),
        });
        self.out.push(ManagerOutput::Event(Box::new(event)));
    }

    /// Handles an instance in a cell's list; `list` is the number of the list.
    pub(crate) fn listed(&mut self, now_ms: u64, cell: &str, list: u32, instance: &Instance) {
        self.now_ms = now_ms;
        let Some(id) = self.by_instance.get(&instance.instance).cloned() else {
            return;
        };
        let unix_ms = self.unix_ms();
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        if !entry.is_task() {
            entry.found.insert(instance.index);
            return;
        }
        if entry.is_on_another(cell) {
            return;
        }
        entry.list = list;
        let ended = matches!(
            instance.state,
            InstanceState::Exited | InstanceState::Crashed
        );
        if ended {
            let result = of_list(cell, instance);
            return self.hear(&id, Box::new(result), now_ms + OUTPUT_MS);
        }
        let started_ms = unix_ms.saturating_sub(instance.age_ms);
        let known = matches!(entry.step, Step::Accepted { .. })
            && entry.record.cell.as_deref() == Some(cell)
            && !entry.record.doubtful;
        entry.lost_ms = None;
        if known || entry.step == Step::Over {
            return;
        }
        self.off_cell(&id);
        self.accepted(&id, cell, false);
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.record.started_ms = Some(started_ms);
        }
    }

    /// Handles the end of a cell's list: runs on the cell that are not in the list are gone.
    pub(crate) fn complete(&mut self, now_ms: u64, cell: &str, list: u32, asked_ms: Option<u64>) {
        self.now_ms = now_ms;
        let Some(held) = self.by_cell.get(cell) else {
            return;
        };
        let mut gone = Vec::new();
        for id in held {
            let Some(entry) = self.entries.get(id) else {
                continue;
            };
            let Step::Accepted { proof_ms } = entry.step else {
                continue;
            };
            if entry.list == list || entry.heard.is_some() {
                continue;
            }
            match asked_ms {
                Some(asked_ms) if asked_ms >= proof_ms => gone.push(Arc::clone(id)),
                // heartbeats list only running instances, and may be older than what is known
                None if now_ms >= proof_ms + OLD_LIST_MS => self.wants_lists = true,
                _ => {}
            }
        }
        if !self.office.acts {
            return;
        }
        for id in gone {
            self.not_there(&id);
        }
    }

    /// Handles that, according to its cell, it is not there.
    fn not_there(&mut self, id: &Arc<str>) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let cell = entry.record.cell.clone().unwrap_or_default();
        // runs that ended together with their rep are not listed either
        let ran = !entry.record.doubtful || entry.taken_up || entry.losses != self.losses;
        if ran {
            return self.lost(id, &format!("{cell} no longer knows how it ended"));
        }
        // its start never arrived
        entry.record.failures += 1;
        let failures = entry.record.failures;
        let why = format!("{cell} did not answer the start");
        if failures <= MAX_FAILURES {
            self.repeat(id, &why);
        } else {
            self.finish(id, Ending::failed(&why));
        }
    }

    /// Handles a new run of a cell's rep: what the one before ran is gone, and the new one's list says what that is. An
    /// instance that was accepted a moment ago may belong to the new run.
    pub(crate) fn cell_renewed(&mut self) {
        self.losses += 1;
        self.wants_lists = true;
    }

    /// Called when a ttl has passed since anything may have been missed: cells that are not here by now are lost,
    /// whether or not this manager has ever heard them.
    pub(crate) fn look_for_cells(&mut self, now_ms: u64, is_here: impl Fn(&str) -> bool) {
        let cells = self.by_cell.keys().filter(|cell| !is_here(cell));
        let silent: Vec<Arc<str>> = cells.cloned().collect();
        for cell in silent {
            self.gone_with(now_ms, &cell, LEAVING_MS);
        }
    }
}

/// Returns what a list says about a task that has ended.
fn of_list(cell: &str, instance: &Instance) -> TaskResult {
    let ended = placement::cut(instance.ended.as_deref().unwrap_or_default()).into_owned();
    TaskResult {
        v: VERSION,
        cell: cell.to_owned(),
        instance: instance.instance,
        request: instance
            .request
            .clone()
            .unwrap_or_else(|| instance.instance.uuid().into()),
        exit_code: instance.exit_code,
        signal: instance.signal,
        stopped: ended == "stopped",
        ended,
        // a list does not say this
        began: true,
        ran_ms: None,
        output: None,
        result: None,
    }
}
