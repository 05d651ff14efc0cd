//! Cells that are lost or withdraw: when what they ran counts as gone.

use super::Tasks;

/// A cell that withdrew is still ending what it ran; one that is not heard may be back soon.
pub(super) const LEAVING_MS: u64 = 15_000;

impl Tasks {
    /// A cell is lost.
    pub(crate) fn cell_lost(&mut self, now_ms: u64, cell: &str) {
        self.losses += 1;
        self.gone_with(now_ms, cell, 0);
    }

    /// A cell withdrew. Drained, it runs nothing; else it is still ending what it ran.
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
