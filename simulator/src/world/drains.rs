//! Drains: a cell takes no more work, ends its instances at the deadline, and leaves.

use rep::CellInput;

use super::{World, cell::DrainState};

impl World<'_> {
    /// Drains a cell at an operator's request. An unreachable cell does not hear of it.
    pub(super) fn drain_begins(&mut self, c: usize, deadline_ms: u64) {
        if !self.cells[c].is_there() || self.away > 0 {
            return;
        }
        let now_ms = self.now_ms();
        self.cells[c].drain = DrainState::Until(now_ms + deadline_ms);
        // with a deadline of 0, the instances end as soon as the machine hears of it
        self.count_what_a_drain_ends(c);
        self.cells[c].begin_drain(now_ms, deadline_ms);
        self.settle(c, CellInput::Tick);
    }

    /// Counts the instances that a drain ends. Must be called before a cell does what is due: once it has ended its
    /// instances, nobody knows which they were.
    pub(super) fn count_what_a_drain_ends(&mut self, c: usize) {
        let now_ms = self.now_ms();
        if matches!(self.cells[c].drain, DrainState::Until(at_ms) if at_ms <= now_ms) {
            self.cells[c].drain = DrainState::Ending;
            self.lose_instances(c);
        }
    }

    /// Lets a drained cell withdraw and ends its rep. Returns whether it has left.
    pub(super) fn leave_if_drained(&mut self, c: usize) -> bool {
        let cell = &mut self.cells[c];
        if !cell.drain.is_going_on() || !cell.ledger().is_drained() {
            return false;
        }
        let now_ms = self.now_us / 1_000;
        let silent_ms = cell.advertised_ms;
        for publication in cell.leave(now_ms) {
            self.publish(c, silent_ms, publication);
        }
        self.note_runs(c);
        self.cells[c].down += 1;
        self.down_since.insert(c, now_ms);
        self.measure(c);
        true
    }

    /// Lets the cell return, empty. If it was lost meanwhile, that fault brings it back; if it could not finish its
    /// drain, it is restarted.
    pub(super) fn drain_is_over(&mut self, c: usize) {
        match std::mem::take(&mut self.cells[c].drain) {
            DrainState::None => {}
            DrainState::Until(_) | DrainState::Ending => {
                self.cell_lost(c);
                self.cell_returns(c);
            }
            DrainState::Left => self.cell_returns(c),
        }
    }
}
