//! What is done to the cluster and asked of it, and when: drawn from a seed before anything runs.

use std::time::Duration;

use shared::random::SplitMix64;

/// How many cells there are.
pub(crate) const CELLS: usize = 5;
/// How many auctioneers.
pub(crate) const AUCTIONEERS: usize = 2;
/// Once in so many rounds the cluster is left alone until it is quiet, and everything is compared.
const QUIET_ROUNDS: usize = 10;
/// An app is stopped when it is this old, so that there is room for others.
const OLD: Duration = Duration::from_secs(20);

/// What is done to one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// SIGKILL.
    Kill,
    /// SIGKILL, and its supervisors with it.
    KillWithSupervisors,
    /// SIGTERM, and then it is waited for.
    Terminate,
    /// It is started again.
    Start,
    /// SIGSTOP.
    Freeze,
    /// SIGCONT.
    Resume,
    /// No byte passes between it and the server.
    Block,
    /// Bytes pass again, the delayed ones too.
    Unblock,
    /// Its connection is closed.
    Cut,
}

/// One step of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something is done to a cell's rep.
    Rep(usize, Deed),
    /// Something is done to an auctioneer.
    Auctioneer(usize, Deed),
    /// Something is done to the server.
    Server(Deed),
    /// The process of an instance is killed; which one, the number says.
    KillInstance(usize),
    /// The supervisor of an instance is killed.
    KillSupervisor(usize),
    /// A request is sent, this often at once; a request that was sent before is repeated.
    Send { job: usize, copies: usize },
    /// A job is stopped, and not asked for again.
    Stop(usize),
    /// Nothing more is done until the cluster is quiet.
    Quiet,
}

/// A request for instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) instances: u64,
    pub(crate) memory_mb: u64,
    /// How long what finds no place may wait.
    pub(crate) queue_seconds: u64,
}

/// Everything that will happen.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) jobs: Vec<Job>,
    /// In the order of time, which counts from the beginning.
    pub(crate) steps: Vec<(Duration, Step)>,
    pub(crate) faults: usize,
}

struct Writer {
    random: SplitMix64,
    script: Script,
    /// When each job was first sent; those that were stopped are gone from here.
    sent: Vec<(usize, Duration)>,
    /// Until when something is being done to each cell, each auctioneer and the server.
    busy: [Duration; CELLS + AUCTIONEERS + 1],
}

impl Script {
    /// The script of so many rounds, always the same one for a seed.
    pub(crate) fn of(seed: u64, rounds: usize) -> Self {
        let mut writer = Writer {
            random: SplitMix64::new(seed),
            script: Self::default(),
            sent: Vec::new(),
            busy: [Duration::ZERO; CELLS + AUCTIONEERS + 1],
        };
        let mut now = Duration::ZERO;
        for round in 1..=rounds {
            writer.round(now);
            now += Duration::from_secs(3);
            if round % QUIET_ROUNDS == 0 || round == rounds {
                // after the last fault of the rounds before
                now = writer.busy.iter().copied().fold(now, Duration::max);
                writer.add(now, Step::Quiet);
            }
        }
        let mut script = writer.script;
        script.steps.sort_by_key(|(at, _)| *at);
        script
    }
}

impl Writer {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.draw() % bound as u64).expect("below a usize")
    }

    /// A time between these, in milliseconds.
    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.random.draw() % (to - from))
    }

    fn add(&mut self, at: Duration, step: Step) {
        self.script.steps.push((at, step));
    }

    /// Three seconds: new requests, repeats, and faults.
    fn round(&mut self, begin: Duration) {
        for _ in 0..2 {
            let at = begin + self.millis(0, 3_000);
            let job = self.job();
            self.sent.push((job, at));
            let copies = 1 + self.below(2);
            self.add(at, Step::Send { job, copies });
        }
        for _ in 0..3 {
            let nth = self.below(self.sent.len());
            let (job, first) = self.sent[nth];
            let at = first.max(begin) + self.millis(10, 3_000);
            let copies = 1 + self.below(3);
            self.add(at, Step::Send { job, copies });
        }
        let old: Vec<_> = self
            .sent
            .extract_if(.., |(_, at)| *at + OLD < begin)
            .collect();
        for (job, _) in old {
            // after the last repeat that an earlier round may have put into this one
            self.add(begin + Duration::from_secs(3), Step::Stop(job));
        }
        for _ in 0..=self.below(3) {
            let at = begin + self.millis(0, 3_000);
            self.fault(at);
        }
    }

    fn job(&mut self) -> usize {
        let job = Job {
            instances: 1 + self.below(3) as u64,
            memory_mb: 16 * (1 + self.below(4) as u64),
            queue_seconds: [0, 0, 5][self.below(3)],
        };
        self.script.jobs.push(job);
        self.script.jobs.len() - 1
    }

    /// One fault and its end, unless something else is being done to that program.
    fn fault(&mut self, at: Duration) {
        let number = self.below(1 << 20);
        let pair = |deed, undo| (deed, Some(undo));
        let (which, (deed, undo)) = match self.below(12) {
            0 => return self.once(at, Step::KillInstance(number)),
            1 => return self.once(at, Step::KillSupervisor(number)),
            2 => (self.below(CELLS), pair(Deed::Kill, Deed::Start)),
            3 => (
                self.below(CELLS),
                pair(Deed::KillWithSupervisors, Deed::Start),
            ),
            4 => (self.below(CELLS), pair(Deed::Terminate, Deed::Start)),
            5 => (self.below(CELLS), pair(Deed::Freeze, Deed::Resume)),
            6 => (self.below(CELLS), pair(Deed::Block, Deed::Unblock)),
            7 => (
                CELLS + self.below(AUCTIONEERS),
                pair(Deed::Freeze, Deed::Resume),
            ),
            8 => (
                CELLS + self.below(AUCTIONEERS),
                pair(Deed::Block, Deed::Unblock),
            ),
            9 => {
                let deed = [Deed::Kill, Deed::Terminate][self.below(2)];
                (CELLS + self.below(AUCTIONEERS), pair(deed, Deed::Start))
            }
            10 => (self.below(CELLS + AUCTIONEERS), (Deed::Cut, None)),
            _ if self.below(2) == 0 => (CELLS + AUCTIONEERS, pair(Deed::Kill, Deed::Start)),
            _ => (CELLS + AUCTIONEERS, pair(Deed::Freeze, Deed::Resume)),
        };
        if self.busy[which] > at {
            return;
        }
        let end = at
            + self.millis(
                300,
                if which < CELLS + AUCTIONEERS {
                    9_000
                } else {
                    3_000
                },
            );
        self.once(at, Self::step(which, deed));
        let over = if undo.is_some() { end } else { at };
        if let Some(undo) = undo {
            self.add(end, Self::step(which, undo));
        }
        // a moment in between, in which it is itself
        self.busy[which] = over + Duration::from_millis(500);
    }

    fn once(&mut self, at: Duration, step: Step) {
        self.add(at, step);
        self.script.faults += 1;
    }

    fn step(which: usize, deed: Deed) -> Step {
        match which {
            _ if which < CELLS => Step::Rep(which, deed),
            _ if which < CELLS + AUCTIONEERS => Step::Auctioneer(which - CELLS, deed),
            _ => Step::Server(deed),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_seed_is_one_script_and_every_fault_ends() {
        let script = Script::of(1, 200);
        assert_eq!(script.steps, Script::of(1, 200).steps);
        assert_ne!(script.steps, Script::of(2, 200).steps);
        assert!(script.faults > 200, "{}", script.faults);
        let done = |deeds: &[Deed]| {
            let of = |step: &Step| match step {
                Step::Rep(_, deed) | Step::Auctioneer(_, deed) | Step::Server(deed) => Some(*deed),
                _ => None,
            };
            let all = script.steps.iter().filter_map(|(_, step)| of(step));
            all.filter(|deed| deeds.contains(deed)).count()
        };
        let killed = [Deed::Kill, Deed::KillWithSupervisors, Deed::Terminate];
        assert_eq!(done(&killed), done(&[Deed::Start]));
        assert_eq!(done(&[Deed::Freeze]), done(&[Deed::Resume]));
        assert_eq!(done(&[Deed::Block]), done(&[Deed::Unblock]));
        assert!(done(&[Deed::Cut]) > 0);
    }

    #[test]
    fn nothing_is_done_to_a_program_to_which_something_is_being_done() {
        for seed in 0..200 {
            // of each program, what would end what is being done to it
            let mut busy = BTreeMap::new();
            for (at, step) in Script::of(seed, 50).steps {
                let (which, deed) = match step {
                    Step::Rep(nth, deed) => (nth, deed),
                    Step::Auctioneer(nth, deed) => (CELLS + nth, deed),
                    Step::Server(deed) => (CELLS + AUCTIONEERS, deed),
                    _ => continue,
                };
                let undo = match deed {
                    Deed::Kill | Deed::KillWithSupervisors | Deed::Terminate => Some(Deed::Start),
                    Deed::Freeze => Some(Deed::Resume),
                    Deed::Block => Some(Deed::Unblock),
                    Deed::Start | Deed::Resume | Deed::Unblock | Deed::Cut => None,
                };
                let ends = [Deed::Start, Deed::Resume, Deed::Unblock].contains(&deed);
                let expected = busy.remove(&which);
                assert_eq!(
                    expected,
                    ends.then_some(deed),
                    "seed {seed}, {at:?}: {step:?}"
                );
                busy.extend(undo.map(|undo| (which, undo)));
            }
            assert_eq!(busy, BTreeMap::new(), "seed {seed}");
        }
    }
}
