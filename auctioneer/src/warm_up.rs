//! How long an auctioneer listens before it accepts requests.

/// Warm-up ends this long after the last new cell …
const QUIET_MS: u64 = 300;
/// … and this long after its beginning at the latest.
const WARM_UP_MS: u64 = 1_000;

/// Decides when an auctioneer knows enough cells to accept requests.
#[derive(Clone, Debug, Default)]
pub struct WarmUp {
    began_ms: Option<u64>,
    grew_ms: u64,
    cells: usize,
}

impl WarmUp {
    /// Whether it is over, with this many cells known now.
    pub fn is_over(&mut self, now_ms: u64, cells: usize) -> bool {
        let began_ms = *self.began_ms.get_or_insert(now_ms);
        if cells != self.cells || self.began_ms == Some(now_ms) {
            self.cells = cells;
            self.grew_ms = now_ms;
        }
        now_ms >= began_ms + WARM_UP_MS || (cells > 0 && now_ms >= self.grew_ms + QUIET_MS)
    }

    /// When to check again at the latest.
    pub fn next_ms(&self, now_ms: u64) -> u64 {
        let latest_ms = self.began_ms.unwrap_or(now_ms) + WARM_UP_MS;
        if self.cells == 0 {
            return latest_ms;
        }
        latest_ms.min(self.grew_ms + QUIET_MS)
    }
}
