//! Debits: work that was sent to cells and that their reports do not show yet.

use std::sync::Arc;

use placement::{FastSet, Kind};
use shared::wire::{Acceptance, Envelope};

use shared::InstanceId;

use super::{Debit, Feed, Known};

impl Feed {
    /// Debits an instance that is being sent to a cell. Returns how many instances of its app the cell had before; none
    /// for a task, and if the cell is not known.
    pub fn debit(&mut self, cell: &str, debit: Debit) -> Option<u32> {
        let known = self.cells.get_mut(cell)?;
        let count = self.pool.debit(cell, &debit.job, debit.devices.as_deref());
        known.debits.push(debit);
        count.map(|count| count - 1)
    }

    /// Processes a cell's answer to a start: what it accepted will be in its next report, what it refused is credited,
    /// and the amounts available are taken from the answer.
    pub fn answered(&mut self, answer: &Acceptance) {
        let Some((name, known)) = self.cells.named_mut(&answer.cell) else {
            return;
        };
        // what an earlier incarnation accepted ended with it, and its amounts are not those of the present one
        if known.incarnation != answer.incarnation {
            return;
        }
        let accepted: FastSet<&InstanceId> = answer.accepted.iter().collect();
        for debit in &mut known.debits {
            if debit.answered_seq.is_none() && accepted.contains(&debit.instance) {
                debit.answered_seq = Some(answer.seq);
            }
        }
        if known.seq >= answer.seq {
            // a report that shows these arrived before the answer
            let seq = known.seq;
            let shown: Vec<Debit> = known.take(|d| d.answered_seq.is_some_and(|s| s <= seq));
            self.return_all(&name, &shown);
        }
        if !answer.refused.is_empty() {
            self.correct(&name, answer);
        }
    }

    /// Takes over the amounts of the answer, less what was sent and is not in them.
    fn correct(&mut self, name: &Arc<str>, answer: &Acceptance) {
        let refused: Vec<InstanceId> = answer.refused.iter().map(|r| r.instance).collect();
        self.undebit(name, &refused);
        let (Some(known), Some(cell)) = (self.cells.get_mut(name), self.pool.get(name)) else {
            return;
        };
        // a later report already has these amounts or newer ones
        if answer.seq < known.seq {
            return;
        }
        (known.corrected, known.ask_state_ms) = (true, 0);
        let mut cell = cell.clone();
        cell.available = answer.available.clone();
        for (app, count) in &answer.apps {
            if *count == 0 {
                cell.counts.apps.remove(app); // the pool lists only apps that are there
            } else {
                cell.counts.apps.insert(app.clone(), *count);
            }
        }
        let later = known.debits.iter();
        for debit in later.filter(|d| d.answered_seq.is_none_or(|seq| seq > answer.seq)) {
            let request = &debit.job.request;
            cell.available.debit(request, debit.devices.as_deref());
            if let Some(count) = answer.apps.get(&request.app)
                && request.kind == Kind::Lrp
            {
                let sent = cell
                    .counts
                    .apps
                    .entry(request.app.clone())
                    .or_insert(*count);
                *sent += 1;
            }
        }
        self.pool.put(cell);
    }

    /// Credits instances that the cell did not accept.
    pub fn undebit(&mut self, cell: &str, instances: &[InstanceId]) {
        let Some((name, known)) = self.cells.named_mut(cell) else {
            return;
        };
        let removed = known.take(|d| instances.contains(&d.instance));
        self.return_all(&name, &removed);
    }

    pub(super) fn return_all(&mut self, name: &str, removed: &[Debit]) {
        if removed.is_empty() {
            return;
        }
        if let Some(cell) = self.pool.get(name) {
            let mut cell = cell.clone();
            for debit in removed {
                cell.credit(&debit.job.request, debit.devices.as_deref());
            }
            self.pool.put(cell);
        }
    }
}

impl Known {
    /// Removes the debits that the report already shows: answered before it, listed in it as recent, or expired on the
    /// cell's clock (then either the report shows them or the cell will never accept them). Returns them, and which of
    /// them were unanswered and are listed.
    pub(super) fn drop_shown(
        &mut self,
        seq: Option<u64>,
        envelope: &Envelope,
    ) -> (Vec<Debit>, Vec<InstanceId>) {
        if self.debits.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let listed = |d: &Debit| envelope.recent.contains(&d.instance);
        let removed = self.take(|d| match d.answered_seq {
            Some(answered) => seq.is_some_and(|seq| answered <= seq),
            // on the cell's clock, which the cell compares as well: neither clock need be right
            None => listed(d) || envelope.clock_ms > d.expires_ms,
        });
        let unanswered = removed
            .iter()
            .filter(|d| d.answered_seq.is_none() && listed(d));
        let settled = unanswered.map(|d| d.instance).collect();
        (removed, settled)
    }

    fn take(&mut self, which: impl Fn(&Debit) -> bool) -> Vec<Debit> {
        let (removed, kept) = std::mem::take(&mut self.debits)
            .into_iter()
            .partition(which);
        self.debits = kept;
        removed
    }
}
