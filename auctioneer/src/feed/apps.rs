//! Which apps run anywhere, as advertised a few seconds ago: cheap enough to look up for every request.

use placement::{FastSet, Kind, Pool};

/// The maximum age of the list in milliseconds: far less than the time for which outcomes are remembered.
const MAX_AGE_MS: u64 = 10_000;

/// The apps of all cells.
#[derive(Debug, Default)]
pub(super) struct RunningApps {
    apps: FastSet<String>,
    tasks: bool,
    /// When the list was made; none if it must be made again.
    made_ms: Option<u64>,
}

impl RunningApps {
    /// Discards the list: a cell has joined, and the list lacks what it runs.
    pub(super) fn outdated(&mut self) {
        self.made_ms = None;
    }

    /// Returns whether any of the app may run. For tasks it is only known whether any cell has some.
    pub(super) fn may_run(&mut self, now_ms: u64, pool: &Pool, app: &str, kind: Kind) -> bool {
        let old = |at_ms: u64| now_ms >= at_ms + MAX_AGE_MS;
        // rebuilt on lookup, not updated with every report: there are far more reports than lookups
        if self.made_ms.is_none_or(old) {
            self.made_ms = Some(now_ms);
            self.tasks = pool.cells().any(|cell| cell.counts.tasks > 0);
            self.apps.clear();
            for app in pool.cells().flat_map(|cell| cell.counts.apps.keys()) {
                // an app runs on many cells, but its name is copied once
                if !self.apps.contains(app) {
                    self.apps.insert(app.clone());
                }
            }
        }
        match kind {
            Kind::Lrp => self.apps.contains(app),
            Kind::Task => self.tasks,
        }
    }
}

#[cfg(test)]
mod tests {
    use placement::{Cell, Resources};

    use super::*;

    #[test]
    fn what_runs_is_looked_at_every_ten_seconds_and_when_a_cell_joins() {
        let mut pool = Pool::default();
        let mut running = RunningApps::default();
        assert!(!running.may_run(0, &pool, "web", Kind::Lrp));
        let mut cell = Cell::new("c1", Resources::new(100, 100, 10));
        cell.counts.apps.insert("web".to_owned(), 1);
        pool.put(cell.clone());
        assert!(
            !running.may_run(9_999, &pool, "web", Kind::Lrp),
            "it is in the list later"
        );
        assert!(running.may_run(10_000, &pool, "web", Kind::Lrp));
        assert!(!running.may_run(10_000, &pool, "web", Kind::Task));
        cell.counts.tasks = 1;
        pool.put(cell);
        assert!(!running.may_run(10_001, &pool, "job", Kind::Task));
        running.outdated();
        assert!(running.may_run(10_001, &pool, "job", Kind::Task));
        assert!(!running.may_run(10_001, &pool, "job", Kind::Lrp));
    }
}
