//! Checks, using the process table, whether something was stopped that nobody asked to stop.
//!
//! The last process of a wanted index must not end, with these exceptions: the test killed it, its supervisor or its
//! rep; its cell drains or its rep was told to end; or another process of the same index ran shortly before, as a stop
//! that is sent while there are two may arrive as late as a fault lasts.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::table::Found;

/// How late a stop of one of two may arrive: longer than any fault lasts.
const LATE: Duration = Duration::from_secs(20);

/// The wanted indices, and what runs at them.
#[derive(Debug, Default)]
pub(crate) struct Stops {
    /// For each app, the number of indices that have been wanted continuously since that was last declared.
    wanted: BTreeMap<String, u32>,
    /// The cells whose processes may end.
    leaving: BTreeSet<String>,
    /// The processes that the test has killed, with their start times.
    killed: BTreeSet<(u32, u64)>,
    /// What was last seen at each index.
    seen: BTreeMap<(String, u32), Vec<Found>>,
    /// When an index was last seen with more than one instance.
    twice: BTreeMap<(String, u32), Instant>,
}

impl Stops {
    /// Declares that this many indices of the app are wanted and have been started.
    pub(crate) fn want(&mut self, app: &str, instances: u32) {
        self.wanted.insert(app.to_owned(), instances);
    }

    /// Declares that no more than this many are wanted from now on.
    pub(crate) fn ask_to_stop(&mut self, app: &str, down_to: u32) {
        if let Some(wanted) = self.wanted.get_mut(app) {
            *wanted = down_to.min(*wanted);
        }
    }

    /// Declares that processes on this cell may end, until [`Self::stays`].
    pub(crate) fn leaves(&mut self, cell: &str) {
        self.leaving.insert(cell.to_owned());
    }

    /// Declares that processes started on this cell from now on must not end.
    pub(crate) fn stays(&mut self, cell: &str) {
        self.leaving.remove(cell);
        // processes that run there now may have been told to end before
        let seen = self.seen.values().flatten();
        let there = seen.filter(|process| process.cell == cell);
        self.killed
            .extend(there.map(|process| (process.pid, process.started_ticks)));
    }

    /// Declares that this process is killed.
    pub(crate) fn kills(&mut self, process: &Found) {
        self.killed.insert((process.pid, process.started_ticks));
    }

    /// Takes a look at the process table. Returns what ended since the last one although it is wanted.
    pub(crate) fn saw(&mut self, now: Instant, found: &[Found]) -> Vec<Found> {
        let mut seen: BTreeMap<(String, u32), Vec<Found>> = BTreeMap::new();
        for process in found {
            let at = (process.app.clone(), process.index);
            seen.entry(at).or_default().push(process.clone());
        }
        for (at, processes) in &seen {
            let others = |process: &Found| process.instance != processes[0].instance;
            if processes.iter().any(others) {
                self.twice.insert(at.clone(), now);
            }
        }
        let before = std::mem::replace(&mut self.seen, seen);
        let ended = before
            .into_iter()
            .filter(|(at, _)| !self.seen.contains_key(at));
        let unasked = ended.filter(|(at, processes)| {
            let wanted = self.wanted.get(&at.0).is_some_and(|wanted| at.1 < *wanted);
            let twice = self.twice.get(at);
            let alone = twice.is_none_or(|twice| now.duration_since(*twice) > LATE);
            wanted && alone && !processes.iter().any(|process| self.may_end(process))
        });
        unasked
            .filter_map(|(_, mut processes)| processes.pop())
            .collect()
    }

    fn may_end(&self, process: &Found) -> bool {
        self.leaving.contains(&process.cell)
            || self.killed.contains(&(process.pid, process.started_ticks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, index: u32) -> Found {
        Found {
            pid,
            parent: 1,
            started_ticks: 100,
            app: "web".into(),
            index,
            version: 1,
            instance: format!("i{pid}"),
            cell: format!("c{pid}"),
            memory_mb: 16,
        }
    }

    fn stops(now: Instant) -> Stops {
        let mut stops = Stops::default();
        stops.want("web", 2);
        let both = [process(1, 0), process(2, 1), process(3, 2)];
        assert_eq!(stops.saw(now, &both), []);
        stops
    }

    #[test]
    fn the_last_of_a_wanted_index_must_not_end() {
        let now = Instant::now();
        let ended = stops(now).saw(now, &[process(1, 0)]);
        assert_eq!(ended, [process(2, 1)], "nobody wants index 2");
        let mut scaled = stops(now);
        scaled.ask_to_stop("web", 1);
        scaled.ask_to_stop("web", 2);
        assert_eq!(scaled.saw(now, &[process(1, 0)]), []);
    }

    #[test]
    fn what_was_killed_or_leaves_may_end() {
        let now = Instant::now();
        let mut killed = stops(now);
        killed.kills(&process(1, 0));
        killed.leaves("c2");
        assert_eq!(killed.saw(now, &[]), []);
        killed.saw(now, &[process(2, 1)]);
        killed.stays("c2");
        assert_eq!(killed.saw(now, &[]), [], "it was told to while it could be");
        killed.saw(now, &[process(4, 1)]);
        assert_eq!(killed.saw(now, &[]), [process(4, 1)]);
    }

    #[test]
    fn of_two_both_may_end_for_a_while() {
        let now = Instant::now();
        let mut twice = stops(now);
        twice.saw(now, &[process(1, 0), process(4, 0), process(2, 1)]);
        twice.saw(now, &[process(4, 0), process(2, 1)]);
        assert_eq!(twice.saw(now + LATE, &[process(2, 1)]), []);
        twice.saw(now + LATE, &[process(4, 0), process(2, 1)]);
        let late = now + LATE + Duration::from_millis(1);
        assert_eq!(twice.saw(late, &[process(2, 1)]), [process(4, 0)]);
    }
}
