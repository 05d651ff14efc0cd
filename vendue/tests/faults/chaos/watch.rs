//! Invariants that must hold at every moment, checked against the process table.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use super::{
    stops::Stops,
    table::{self, Found},
};

/// How long an instance may run twice while messages flow.
pub(crate) const LONGEST_DOUBLE_RUN: Duration = Duration::from_secs(2);
/// Part of the message about two instances of which one should have ended.
pub(crate) const WHILE: &str = "while messages flow";
/// How long after its last answer a program counts as heard. Programs are asked every 100 ms.
const HEARD: Duration = Duration::from_millis(500);
/// How long a process may outlive its rep, and how long a new rep may take to end what an earlier one left.
const LONGEST_ORPHAN: Duration = Duration::from_secs(5);

/// The rep of a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rep {
    pub(crate) lives: bool,
    pub(crate) since: Instant,
    /// When it was started, in clock ticks since the machine booted.
    pub(crate) started_ticks: u64,
    /// Whether its supervisors were killed with it, so that only its successor can end what is left.
    pub(crate) alone: bool,
}

/// An instance that runs on more than one cell.
#[derive(Clone, Debug)]
struct Double {
    /// Since when messages have flowed without a break between everything that can end it.
    flows_since: Option<Instant>,
    longest: Duration,
}

/// What was seen, including violations.
#[derive(Debug)]
pub(crate) struct Watch {
    memory_mb: u64,
    /// When each cell last answered.
    pub(crate) cells: BTreeMap<String, Instant>,
    /// When all live auctioneers last answered.
    pub(crate) auctioneers: Option<Instant>,
    pub(crate) reps: BTreeMap<String, Rep>,
    doubles: BTreeMap<String, Double>,
    orphans: BTreeSet<u32>,
    over: BTreeSet<String>,
    pub(crate) figures: Figures,
    pub(crate) violations: Vec<String>,
    /// What must not be stopped.
    pub(crate) stops: Stops,
    began: Instant,
    /// What was done and seen, for readers who look for a cause.
    timeline: Vec<String>,
    /// Whether it is also printed, to be read next to the programs' logs (`LOGS`).
    loud: bool,
}

/// The counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) looks: usize,
    pub(crate) processes: BTreeSet<(u32, u64)>,
    pub(crate) double_runs: usize,
    pub(crate) longest_double_run: Duration,
    pub(crate) most_memory_mb: u64,
    pub(crate) orphans: usize,
    pub(crate) over_commitments: usize,
    pub(crate) unasked_stops: usize,
}

impl Watch {
    pub(crate) fn new(memory_mb: u64) -> Self {
        let now = Instant::now();
        Self {
            memory_mb,
            cells: BTreeMap::new(),
            auctioneers: None,
            reps: BTreeMap::new(),
            doubles: BTreeMap::new(),
            orphans: BTreeSet::new(),
            over: BTreeSet::new(),
            figures: Figures::default(),
            violations: Vec::new(),
            stops: Stops::default(),
            began: now,
            timeline: Vec::new(),
            loud: std::env::var_os("LOGS").is_some(),
        }
    }

    /// Adds a line to the timeline.
    pub(crate) fn tell(&mut self, what: &str) {
        let at = self.began.elapsed().as_secs_f64();
        let line = format!("{at:8.2}  {what}");
        if self.loud {
            eprintln!("{line}");
        }
        self.timeline.push(line);
    }

    pub(crate) fn violated(&mut self, what: &str) {
        self.tell(&format!("VIOLATED: {what}"));
        let last = self.timeline.len().saturating_sub(60);
        let timeline = self.timeline[last..].join("\n");
        self.violations.push(format!("{what}\n{timeline}"));
    }

    /// Returns whether the cell answered recently.
    pub(crate) fn hears(&self, cell: &str, now: Instant) -> bool {
        self.cells
            .get(cell)
            .is_some_and(|heard| now.duration_since(*heard) < HEARD)
    }

    /// Returns whether all live auctioneers answered recently.
    pub(crate) fn hears_auctioneers(&self, now: Instant) -> bool {
        self.auctioneers
            .is_some_and(|heard| now.duration_since(heard) < HEARD)
    }

    /// Takes a look at the process table.
    pub(crate) fn saw(&mut self, now: Instant, found: &[Found]) {
        self.figures.looks += 1;
        let processes = found
            .iter()
            .map(|process| (process.pid, process.started_ticks));
        self.figures.processes.extend(processes);
        self.doubles(now, found);
        self.orphans(now, found);
        self.commitments(found);
        for process in self.stops.saw(now, found) {
            self.figures.unasked_stops += 1;
            self.violated(&format!("nobody asked to stop {process:?}"));
        }
    }

    fn doubles(&mut self, now: Instant, found: &[Found]) {
        let mut cells = table::cells_by_instance(found);
        cells.retain(|_, cells| cells.len() > 1);
        let before = std::mem::take(&mut self.doubles);
        let (last, ended): (BTreeMap<_, _>, BTreeMap<_, _>) = before
            .into_iter()
            .partition(|(instance, _)| cells.contains_key(&**instance));
        self.doubles = last;
        for (instance, double) in ended {
            let longest = double.longest;
            self.tell(&format!(
                "{instance} runs once again, after {longest:?} of messages"
            ));
        }
        for (instance, cells) in cells {
            let flows =
                self.hears_auctioneers(now) && cells.iter().all(|cell| self.hears(cell, now));
            if !self.doubles.contains_key(instance) {
                self.figures.double_runs += 1;
                self.tell(&format!("{instance} runs on {cells:?}"));
            }
            let double = self.doubles.entry(instance.to_owned()).or_insert(Double {
                flows_since: None,
                longest: Duration::ZERO,
            });
            double.flows_since = flows.then(|| double.flows_since.unwrap_or(now));
            let lasts = double
                .flows_since
                .map_or(Duration::ZERO, |since| now - since);
            let too_long = lasts > LONGEST_DOUBLE_RUN && double.longest <= LONGEST_DOUBLE_RUN;
            double.longest = double.longest.max(lasts);
            self.figures.longest_double_run = self.figures.longest_double_run.max(lasts);
            if too_long {
                self.violated(&format!("{instance} runs on {cells:?} {WHILE}"));
            }
        }
    }

    fn orphans(&mut self, now: Instant, found: &[Found]) {
        let orphans = found.iter().filter(|process| {
            self.reps.get(&process.cell).is_none_or(|rep| {
                let long = now.duration_since(rep.since) > LONGEST_ORPHAN;
                let earlier = process.started_ticks < rep.started_ticks;
                long && if rep.lives { earlier } else { !rep.alone }
            })
        });
        let orphans: Vec<_> = orphans
            .filter(|process| !self.orphans.contains(&process.pid))
            .collect();
        for process in orphans {
            self.orphans.insert(process.pid);
            self.figures.orphans += 1;
            self.violated(&format!("no rep has {process:?}"));
        }
    }

    fn commitments(&mut self, found: &[Found]) {
        let memory = table::memory_by_cell(found);
        let most = memory.values().copied().max().unwrap_or(0);
        self.figures.most_memory_mb = self.figures.most_memory_mb.max(most);
        let limit = self.memory_mb;
        let over: BTreeSet<String> = memory
            .iter()
            .filter(|(_, mb)| **mb > limit)
            .map(|(cell, _)| (*cell).to_owned())
            .collect();
        for cell in over.difference(&self.over.clone()) {
            self.figures.over_commitments += 1;
            let runs: Vec<_> = found
                .iter()
                .filter(|process| process.cell == *cell)
                .collect();
            self.violated(&format!(
                "{cell} has {limit} MiB and runs {} MiB: {runs:?}",
                memory[&**cell]
            ));
        }
        self.over = over;
    }

    /// Returns what runs twice now.
    pub(crate) fn twice(&self) -> Vec<&str> {
        self.doubles.keys().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, cell: &str) -> Found {
        Found {
            pid,
            parent: 1,
            started_ticks: 100,
            app: "web".into(),
            index: 0,
            version: 0,
            instance: "i".into(),
            cell: cell.into(),
            memory_mb: 60,
        }
    }

    fn watch(now: Instant) -> Watch {
        let mut watch = Watch::new(100);
        let rep = Rep {
            lives: true,
            since: now,
            started_ticks: 50,
            alone: false,
        };
        watch.reps = ["a", "b"].map(|cell| (cell.to_owned(), rep)).into();
        watch
    }

    fn heard(watch: &mut Watch, now: Instant) {
        watch.cells = ["a", "b"].map(|cell| (cell.to_owned(), now)).into();
        watch.auctioneers = Some(now);
    }

    #[test]
    fn only_time_in_which_messages_flow_counts_as_a_double_run() {
        let begin = Instant::now();
        let mut watch = watch(begin);
        let both = [process(1, "a"), process(2, "b")];
        let look = |watch: &mut Watch, tenths: u32, flows: bool| {
            let now = begin + Duration::from_millis(100) * tenths;
            if flows {
                heard(watch, now);
            }
            watch.saw(now, &both);
        };
        for tenths in 0..40 {
            look(&mut watch, tenths, tenths < 15);
        }
        assert_eq!(watch.violations, [""; 0]);
        for tenths in 40..61 {
            look(&mut watch, tenths, true);
        }
        assert_eq!(watch.violations, [""; 0]);
        look(&mut watch, 61, true);
        look(&mut watch, 62, true);
        assert_eq!(watch.violations.len(), 1);
        assert!(!watch.twice().is_empty());
        watch.saw(begin + Duration::from_secs(7), &both[..1]);
        assert!(watch.twice().is_empty());
        assert_eq!(
            (watch.figures.double_runs, watch.figures.processes.len()),
            (1, 2)
        );
    }

    #[test]
    fn what_outlives_its_rep_is_an_orphan() {
        let begin = Instant::now();
        let mut watch = watch(begin);
        let one = [process(1, "a")];
        let late = begin + LONGEST_ORPHAN + Duration::from_millis(1);
        watch.saw(late, &one);
        assert_eq!(watch.figures.orphans, 0);
        let rep = watch.reps.get_mut("a").unwrap();
        (rep.lives, rep.alone) = (false, true);
        watch.saw(late, &one);
        assert_eq!(watch.figures.orphans, 0, "nobody is left who could end it");
        watch.reps.get_mut("a").unwrap().alone = false;
        watch.saw(late, &one);
        watch.saw(late, &one);
        assert_eq!(watch.figures.orphans, 1, "once for each");
        let rep = watch.reps.get_mut("a").unwrap();
        (rep.lives, rep.started_ticks) = (true, 101);
        watch.saw(late, &[process(2, "a")]);
        assert_eq!(watch.figures.orphans, 2, "of an earlier life");
    }

    #[test]
    fn instances_with_more_memory_than_their_cell_are_told_once() {
        let begin = Instant::now();
        let mut watch = watch(begin);
        let mut other = process(2, "a");
        other.instance = "j".into();
        // two processes of one instance count once
        watch.saw(begin, &[process(1, "a"), process(3, "a")]);
        assert_eq!(
            (watch.figures.over_commitments, watch.figures.most_memory_mb),
            (0, 60)
        );
        let both = [process(1, "a"), other];
        watch.saw(begin, &both);
        watch.saw(begin, &both);
        assert_eq!(
            (watch.figures.over_commitments, watch.figures.most_memory_mb),
            (1, 120)
        );
    }
}
