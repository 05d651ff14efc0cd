//! Attempts: an attempt is stored before its start is sent. An attempt that nobody answers is sent again once the cells
//! have said that they do not have it.

use std::sync::Arc;

use placement::Request;
use shared::{
    AttemptId,
    wire::{InstanceOutcome, Outcome, StartReply, WireError, code},
};

use super::{
    Tasks,
    answered::{self, Answered},
    ends::Ending,
    entry::{Entry, Step, shape},
    record::TaskPhase,
};
use crate::{ids::Revision, io::ManagerOutput};

/// How long an auctioneer and the cells that it asks have: its deadline is 4 s, and a start that it has sent is
/// accepted for 5 s at most. After that nothing of an attempt is in flight.
pub const TASK_REPLY_MS: u64 = 10_000;
/// Delay before the acceptance of a task is stored, if it has not ended by then. Until then another manager would find
/// it on the cell.
const LATER_MS: u64 = 1_000;
/// A start that a cell has not answered can reach it for less than this.
const ON_ITS_WAY_MS: u64 = 6_000;
/// Maximum number of attempts that are being stored or are with auctioneers.
const MAX_IN_FLIGHT: usize = 512;
/// The wait after an error of an auctioneer, and the longest one: for an attempt that was sent again it doubles each
/// time.
const RETRY_ERROR_MS: u64 = 2_000;
const LONGEST_RETRY_MS: u64 = 60_000;
/// How often an attempt is sent before the request ends with an unknown fate.
pub(super) const MAX_SENDS: u32 = 32;
/// Pause between two checks whether the cells have answered, and between two questions.
const LOOK_MS: u64 = 1_000;
/// After this time an attempt that nobody has answered will not be begun any more: an auctioneer begins none that it
/// reads after 9 s, decides within 4 s, and what it sends to a cell is accepted for 5 s. Includes a margin.
const OVER_MS: u64 = 30_000;
/// How long to wait for cells that do not answer.
const MAX_ASKING_MS: u64 = 180_000;
/// An auctioneer remembers an outcome for two minutes. An attempt sent longer ago by a manager that is gone may have
/// run on a cell that nobody remembers.
const MAX_AGE_MS: u64 = 100_000;

impl Tasks {
    /// Begins waiting requests, up to the limit of attempts in flight.
    pub(super) fn begin_ready(&mut self) {
        while self.in_flight < MAX_IN_FLIGHT
            && let Some((_, id)) = self.ready.pop_first()
        {
            self.begin(&id);
        }
    }

    /// Returns whether a new request's first attempt is stored together with it because it may be sent at once.
    pub(super) fn begins_at_once(&self, request: &Request) -> bool {
        let on_their_way = self.in_flight + self.creations.len();
        let others = |shape: &Arc<str>| self.no_room.get(shape).is_some_and(|s| s.len() > 0);
        self.office.acts
            && self.ready.is_empty()
            && on_their_way < MAX_IN_FLIGHT
            && (self.no_room.is_empty() || !others(&shape(request)))
    }

    /// Handles that a new request is stored together with its first attempt.
    pub(super) fn begun(&mut self, id: &Arc<str>, revision: Revision) {
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        // the watch may already have shown it
        let unsent = matches!(entry.step, Step::Sent { .. }) && entry.sends == 0;
        if unsent && entry.revision == revision {
            let attempt = entry.record.attempt;
            self.set_step(id, Step::Storing);
            self.stored.push((Arc::clone(id), attempt));
        }
    }

    /// Begins the next attempt by storing it.
    fn begin(&mut self, id: &Arc<str>) {
        let (unix_ms, bucket) = (self.unix_ms(), self.office.bucket);
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        if !matches!(entry.step, Step::Waiting { .. }) || bucket.is_none() {
            return;
        }
        let record = &mut entry.record;
        record.attempt += 1;
        (record.phase, record.bucket, record.sent_ms) = (TaskPhase::Sent, bucket, unix_ms);
        (record.cell, record.started_ms, record.doubtful) = (None, None, false);
        (entry.heard, entry.lost_ms, entry.stop_ms) = (None, None, 0);
        self.name_instances(id);
        self.set_step(id, Step::Storing);
        self.touch(id);
    }

    /// Sends the stored attempts. Whether this manager acts is known now, unlike when it heard that they are stored.
    pub(super) fn send_stored(&mut self) {
        for (id, attempt) in std::mem::take(&mut self.stored) {
            self.attempt_stored(&id, attempt);
        }
    }

    /// Handles that the record which begins this attempt is stored.
    fn attempt_stored(&mut self, id: &Arc<str>, attempt: u32) {
        let losses = self.losses;
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        if entry.step != Step::Storing || entry.record.attempt != attempt {
            return;
        }
        if entry.record.cancelled {
            // nothing of it was sent
            return self.cancel_now(id);
        }
        (entry.losses, entry.taken_up, entry.sends) = (losses, false, 0);
        if self.office.acts {
            self.send(id);
        } else {
            // the manager that acts now finds the attempt in the bucket and asks the cells
            entry.taken_up = true;
            let ask_ms = self.now_ms;
            self.set_step(id, Step::Sent { ask_ms });
        }
    }

    fn send(&mut self, id: &Arc<str>) {
        let ask_ms = self.now_ms + TASK_REPLY_MS;
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.sends_now(self.now_ms);
        let start = entry.start();
        self.set_step(id, Step::Sent { ask_ms });
        self.out.extend(start.map(ManagerOutput::Start));
    }

    /// Checks an attempt about which the cells are to be asked, or have been.
    pub(super) fn look_for(&mut self, id: &Arc<str>) {
        let now_ms = self.now_ms;
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        match entry.step {
            Step::Sent { ask_ms } if now_ms < ask_ms => self.look_at(id, ask_ms),
            Step::Sent { .. } => {
                self.wants_lists = true;
                self.set_step(id, Step::Asking { asked_ms: now_ms });
                self.look_at(id, now_ms + LOOK_MS);
            }
            Step::Asking { asked_ms } if now_ms < asked_ms => self.look_at(id, asked_ms),
            Step::Asking { asked_ms } => {
                if self.office.settled && self.office.answered_ms >= asked_ms {
                    return self.nowhere(id);
                }
                if now_ms >= asked_ms + MAX_ASKING_MS {
                    return self.not_known(id, "not every cell has answered whether it runs");
                }
                self.wants_lists = true;
                self.look_at(id, now_ms + LOOK_MS);
            }
            _ => {}
        }
    }

    /// Handles that no cell has it.
    fn nowhere(&mut self, id: &Arc<str>) {
        let unix_ms = self.unix_ms();
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        let record = &entry.record;
        if entry.losses != self.losses {
            return self.not_known(id, "a cell was lost while it was being started");
        }
        if entry.taken_up && unix_ms.saturating_sub(record.sent_ms) > MAX_AGE_MS {
            return self.not_known(id, "no manager was running when it was being started");
        }
        if record.cancelled {
            return self.cancel_now(id);
        }
        if !entry.is_task() && entry.found.len() == entry.instances.len() {
            let placed = u32::try_from(entry.found.len()).unwrap_or(u32::MAX);
            return self.all_placed(id, placed, 0);
        }
        if entry.refused && self.now_ms >= entry.unanswered_ms + OVER_MS {
            return self.not_begun(id);
        }
        if entry.sends >= MAX_SENDS {
            let why = format!("no auctioneer has said what became of it, {MAX_SENDS} times");
            return self.not_known(id, &why);
        }
        self.send(id);
    }

    /// Handles that nothing of it is in flight any more and the cells have said what of it was begun: the next attempt
    /// is for the rest.
    fn not_begun(&mut self, id: &Arc<str>) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let found = std::mem::take(&mut entry.found);
        let record = &mut entry.record;
        record.left.retain(|index| !found.contains(index));
        record.placed += u32::try_from(found.len()).unwrap_or(u32::MAX);
        let why = record.why.clone().unwrap_or_default();
        self.wait_again(id, RETRY_ERROR_MS, &why);
    }

    /// Asks the cells again: that nothing was begun this time says nothing about earlier sends of the same attempt.
    fn ask_again(&mut self, id: &Arc<str>, why: &str) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.refused = true;
        entry.record.why = Some(placement::cut(why).into_owned());
        let doubled = entry.sends.saturating_sub(1).min(u64::BITS - 1);
        let wait_ms = RETRY_ERROR_MS.saturating_mul(1 << doubled);
        let asked_ms = self.now_ms + wait_ms.min(LONGEST_RETRY_MS);
        self.set_step(id, Step::Asking { asked_ms });
    }

    /// Handles that it may have been started but nobody knows.
    fn not_known(&mut self, id: &Arc<str>, why: &str) {
        let Some(entry) = self.entries.get(id) else {
            return;
        };
        if entry.is_task() {
            return self.lost(id, &format!("{why}: it may have run"));
        }
        let found = u32::try_from(entry.found.len()).unwrap_or(u32::MAX);
        let all = u32::try_from(entry.instances.len()).unwrap_or(u32::MAX);
        self.all_placed(id, found, all - found);
    }

    /// Handles an auctioneer's answer.
    pub(super) fn outcome(
        &mut self,
        attempt: &AttemptId,
        answer: Result<Box<StartReply>, WireError>,
    ) {
        let Some(entry) = self.entries.get(attempt.id.as_str()) else {
            return;
        };
        let is_this = entry.attempt_id().as_ref() == Some(attempt);
        if !is_this || !matches!(entry.step, Step::Sent { .. } | Step::Asking { .. }) {
            return;
        }
        let id: Arc<str> = attempt.id.as_str().into();
        match answer {
            Ok(reply) if entry.is_task() => {
                if let Some(outcome) = reply.instances.first() {
                    self.task_outcome(&id, outcome);
                }
            }
            Ok(reply) => self.instances_outcome(&id, &reply.instances),
            // it may have been begun: the cells are asked
            Err(error) if error.code == code::INTERNAL => {}
            Err(error) if error.code == code::INVALID_REQUEST => {
                self.finish(&id, Ending::failed(&error.message));
            }
            Err(error) if entry.is_resent() => self.ask_again(&id, &error.message),
            Err(error) => self.wait_again(&id, RETRY_ERROR_MS, &error.message),
        }
    }

    fn task_outcome(&mut self, id: &Arc<str>, outcome: &InstanceOutcome) {
        let cell = outcome.cell.as_deref();
        match (outcome.outcome, cell) {
            (Outcome::Placed, Some(cell)) => self.accepted(id, cell, false),
            (Outcome::Unknown, Some(cell)) => self.accepted(id, cell, true),
            // without a cell, the cells are asked; a queued one is answered later, or asked for
            (Outcome::Placed | Outcome::Unknown | Outcome::Queued, _) => {}
            (Outcome::Unplaced, _) => {
                let reason = outcome.reason.as_deref().unwrap_or("unplaced");
                if self.entries.get(id).is_some_and(Entry::is_resent) {
                    return self.ask_again(id, reason);
                }
                self.no_room_for(id, reason);
            }
        }
    }

    /// Handles that a cell has it, or may have it.
    pub(super) fn accepted(&mut self, id: &Arc<str>, cell: &str, doubtful: bool) {
        let (now_ms, unix_ms) = (self.now_ms, self.unix_ms());
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let record = &mut entry.record;
        record.phase = TaskPhase::Accepted;
        (record.cell, record.doubtful) = (Some(cell.to_owned()), doubtful);
        record.started_ms = Some(unix_ms);
        record.why = None;
        let wait_ms = if doubtful { ON_ITS_WAY_MS } else { 0 };
        if doubtful {
            self.unsaved.insert(Arc::clone(id));
            (entry.unsaved, entry.later_ms) = (true, 0);
        } else if !entry.unsaved {
            (entry.unsaved, entry.later_ms) = (true, now_ms + LATER_MS);
        }
        let shape = Arc::clone(&entry.shape);
        let proof_ms = now_ms + wait_ms;
        self.set_step(id, Step::Accepted { proof_ms });
        self.fits(&shape);
    }

    /// Handles the outcomes of a request that is not a task.
    fn instances_outcome(&mut self, id: &Arc<str>, outcomes: &[InstanceOutcome]) {
        let Some(answered) = Answered::read(outcomes) else {
            return;
        };
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        let reason = answered.reason.as_deref().unwrap_or("unplaced");
        if !answered.left.is_empty() && entry.is_resent() {
            return self.ask_again(id, reason);
        }
        let record = &mut entry.record;
        for (request, indices) in answered.shared {
            record.shared.entry(request).or_default().extend(indices);
        }
        if answered.left.is_empty() {
            return self.all_placed(id, answered.placed, answered.unknown);
        }
        record.left = answered.left;
        record.placed += answered.placed;
        record.unknown += answered.unknown;
        let shape = Arc::clone(&entry.shape);
        self.no_room_for(id, reason);
        if answered.placed > 0 {
            self.fits(&shape);
        }
    }

    /// Handles that nothing is left to place.
    fn all_placed(&mut self, id: &Arc<str>, placed: u32, unknown: u32) {
        let Some(entry) = self.entries.get_mut(id) else {
            return;
        };
        entry.record.placed += placed;
        entry.record.unknown += unknown;
        let unknown = entry.record.unknown;
        let shape = Arc::clone(&entry.shape);
        if unknown == 0 {
            let shared = answered::told(&entry.record.shared);
            self.finish(id, Ending::placed(shared.as_deref()));
        } else {
            let why = format!("{unknown} may run: their cells did not answer");
            self.finish(id, Ending::failed(&why));
        }
        self.fits(&shape);
    }
}
