//! Bounds the events about cells that come and go, because who may advertise can make up many.

/// The most events in a second about cells that joined, and so many about cells that were lost, of those that
/// have never answered a question. Of the others every one is reported.
pub const MAX_CELL_EVENTS: u32 = 1_000;

const SECOND_MS: u64 = 1_000;

/// One kind of these events.
#[derive(Clone, Debug, Default)]
pub(crate) struct CellEvents {
    second_began_ms: u64,
    count: u32,
}

impl CellEvents {
    /// Whether the next one is published.
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
