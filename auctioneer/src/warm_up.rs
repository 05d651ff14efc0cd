//! How long an auctioneer listens before it accepts requests.

/// Warm-up ends this long after the last new cell.
const QUIET_MS: u64 = 300;
/// Warm-up ends this long after it began, at the latest.
const WARM_UP_MS: u64 = 1_000;

/// Decides when an auctioneer knows enough cells to accept requests.
#[derive(Clone, Debug, Default)]
pub struct WarmUp {
    began_ms: Option<u64>,
    grew_ms: u64,
    cells: usize,
}

impl WarmUp {
    /// Returns whether warm-up is over, given how many cells are known now.
    pub fn is_over(&mut self, now_ms: u64, cells: usize) -> bool {
        let began_ms = *self.began_ms.get_or_insert(now_ms);
        if cells != self.cells || self.began_ms == Some(now_ms) {
            self.cells = cells;
            self.grew_ms = now_ms;
        }
        // without any cell, silence proves nothing: the first answers may be slow
        now_ms >= began_ms + WARM_UP_MS || (cells > 0 && now_ms >= self.grew_ms + QUIET_MS)
    }

    /// Returns the latest time at which to check again.
    pub fn next_ms(&self, now_ms: u64) -> u64 {
        let latest_ms = self.began_ms.unwrap_or(now_ms) + WARM_UP_MS;
        if self.cells == 0 {
            return latest_ms;
        }
        latest_ms.min(self.grew_ms + QUIET_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns when warm-up is over if this many cells are known from each of these times on. It is checked when it
    /// wants to be, when cells come or go, and every `poll_ms`.
    fn over_ms(began_ms: u64, cells_from: &[(u64, usize)], poll_ms: u64) -> u64 {
        let mut warm_up = WarmUp::default();
        let mut now_ms = began_ms;
        loop {
            let known = cells_from.iter().rev().find(|(at, _)| *at <= now_ms);
            if warm_up.is_over(now_ms, known.map_or(0, |(_, cells)| *cells)) {
                return now_ms;
            }
            let next_ms = warm_up.next_ms(now_ms);
            assert!(next_ms > now_ms, "it would be asked again and again");
            let news = cells_from.iter().map(|(at, _)| *at);
            let news = news.filter(|at| *at > now_ms).min().unwrap_or(u64::MAX);
            now_ms = news.min(next_ms).min(now_ms + poll_ms);
        }
    }

    #[test]
    fn it_ends_when_no_cell_was_new_for_300_ms_and_after_a_second_at_the_latest() {
        let growing = (0..50_usize).map(|n| (n as u64 * 100, n + 1));
        for (what, cells_from, over) in [
            ("nobody is there", vec![], 1_000),
            ("all at once", vec![(0, 5)], 300),
            ("all soon", vec![(50, 5)], 350),
            ("one by one", vec![(50, 1), (200, 2), (499, 3)], 799),
            ("one leaves", vec![(50, 2), (200, 1)], 500),
            ("one is late", vec![(50, 1), (350, 2)], 650),
            ("one is too late", vec![(50, 1), (351, 2)], 350),
            ("just before the end", vec![(900, 1)], 1_000),
            ("always another one", growing.collect(), 1_000),
        ] {
            for (began_ms, poll_ms) in [(0, 10_000), (7_000, 10_000), (7_000, 10)] {
                let shift = |(at, cells): &(u64, usize)| (at + began_ms, *cells);
                let cells_from: Vec<_> = cells_from.iter().map(shift).collect();
                let ended_ms = over_ms(began_ms, &cells_from, poll_ms);
                assert_eq!(
                    ended_ms,
                    began_ms + over,
                    "{what}, asked every {poll_ms} ms"
                );
            }
        }
    }
}
