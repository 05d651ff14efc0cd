//! Lost and withdrawn cells: when their runs count as gone.

use super::Tasks;

/// A cell that withdrew is still ending its instances; one that is not heard may soon be back.
pub(super) const LEAVING_MS: u64 = 15_000;

impl Tasks {
    /// Handles the loss of a cell.
    pub(crate) fn cell_lost(&mut self, now_ms: u64, cell: &str) {
        self.losses += 1;
        self.gone_with(now_ms, cell, 0);
    }

    /// Handles a withdrawal. A drained cell runs nothing; any other one is still ending its instances.
    pub(crate) fn cell_left(&mut self, now_ms: u64, cell: &str, drained: bool) {
        self.losses += u64::from(!drained);
        self.gone_with(now_ms, cell, LEAVING_MS);
    }

    pub(super) fn gone_with(&mut self, now_ms: u64, cell: &str, wait_ms: u64) {
        self.now_ms = now_ms;
        let Some(held) = self.by_cell.get(cell) else {
            return;
        };
        let at_ms = now_ms + wait_ms;
        for id in held.clone() {
            if let Some(entry) = self.entries.get_mut(&id) {
                entry.lost_ms = Some(entry.lost_ms.map_or(at_ms, |before| before.min(at_ms)));
                self.look_at(&id, at_ms);
            }
        }
    }
}
