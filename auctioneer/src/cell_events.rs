//! Limits events about cells that come and go: whoever may advertise can make up many cells.

/// The most events per second about joined cells, and the same number about lost cells, for cells that have never
/// answered a question. All other cells are always reported.
pub const MAX_CELL_EVENTS: u32 = 1_000;

const SECOND_MS: u64 = 1_000;

/// The limit for one kind of these events.
#[derive(Clone, Debug, Default)]
pub(crate) struct CellEvents {
    second_began_ms: u64,
    count: u32,
}

impl CellEvents {
    /// Returns whether the next event is published.
    pub(crate) fn admit(&mut self, now_ms: u64, has_answered: bool) -> bool {
        if has_answered {
            return true;
        }
        if now_ms >= self.second_began_ms + SECOND_MS {
            self.second_began_ms = now_ms;
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.count <= MAX_CELL_EVENTS
    }
}
