//! What is done to the cluster and requested of it, and when: drawn from a seed before anything runs. Requests are
//! drawn in `requests` and `orders`, faults here.

use std::{collections::BTreeMap, time::Duration};

use placement::random::SplitMix64;

use super::{
    orders::{Order, Orders},
    requests::{Job, Requests},
};

/// Number of cells.
pub(crate) const CELLS: usize = 5;
/// Number of auctioneers.
pub(crate) const AUCTIONEERS: usize = 2;
/// Number of managers, if apps are kept running.
pub(crate) const MANAGERS: usize = 2;
/// Number of servers in that case.
pub(crate) const SERVERS: usize = 3;
/// Once in this many rounds, the cluster is left alone until it is quiet, and everything is compared.
const QUIET_ROUNDS: usize = 10;
/// How long a round takes.
pub(crate) const ROUND: Duration = Duration::from_secs(3);

/// One of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Program {
    /// The rep of a cell.
    Rep(usize),
    Auctioneer(usize),
    Manager(usize),
    Server(usize),
}

/// What is done to one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// SIGKILL.
    Kill,
    /// SIGKILL, and its supervisors with it.
    KillWithSupervisors,
    /// It is terminated by SIGTERM and waited for.
    Terminate,
    /// It is restarted.
    Start,
    /// SIGSTOP.
    Freeze,
    /// SIGCONT.
    Resume,
    /// No byte passes between it and the servers.
    Block,
    /// Bytes pass again, including delayed ones.
    Unblock,
    /// Its connection is closed.
    Cut,
    /// The cell is told to drain.
    Drain,
    /// It is told to take work again.
    Uncordon,
}

/// One step of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something is done to a program.
    Do(Program, Deed),
    /// The process of an instance is killed; the number says which one.
    KillInstance(usize),
    /// The supervisor of an instance is killed.
    KillSupervisor(usize),
    /// A request is sent, with this many copies at once; a request that was sent before is repeated.
    Send { job: usize, copies: usize },
    /// A job is stopped, and no longer requested.
    Stop(usize),
    /// An order is sent to a manager.
    Order(Order),
    /// A manager is to store a task, under this number.
    Store(usize),
    /// Nothing more is done until the cluster is quiet.
    Quiet,
}

/// All events of a run.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// The jobs, if apps are not kept running.
    pub(crate) jobs: Vec<Job>,
    /// Sorted by time, which counts from the beginning.
    pub(crate) steps: Vec<(Duration, Step)>,
    pub(crate) faults: usize,
}

/// What is requested of the cluster.
enum Asked {
    Requests(Requests),
    Orders(Orders),
}

pub(crate) struct Writer {
    random: SplitMix64,
    pub(crate) script: Script,
    managed: bool,
    /// Until when each program is affected by a fault.
    busy: BTreeMap<Program, Duration>,
}

impl Script {
    /// Draws a script with requests and one server; a seed always gives the same script.
    pub(crate) fn of_requests(seed: u64, rounds: usize) -> Self {
        Self::of(seed, rounds, Asked::Requests(Requests::default()))
    }

    /// Draws a script with apps that managers keep running, and three servers.
    pub(crate) fn of_orders(seed: u64, rounds: usize) -> Self {
        Self::of(seed, rounds, Asked::Orders(Orders::default()))
    }

    fn of(seed: u64, rounds: usize, mut asked: Asked) -> Self {
        let mut writer = Writer {
            random: SplitMix64::new(seed),
            script: Self::default(),
            managed: matches!(asked, Asked::Orders(_)),
            busy: BTreeMap::new(),
        };
        let mut now = Duration::ZERO;
        for round in 1..=rounds {
            match &mut asked {
                Asked::Requests(requests) => requests.round(&mut writer, now),
                Asked::Orders(orders) => orders.round(&mut writer, now),
            }
            for _ in 0..=writer.below(3) {
                let at = now + writer.millis(0, 3_000);
                writer.fault(at);
            }
            now += ROUND;
            if round % QUIET_ROUNDS == 0 || round == rounds {
                // after the last fault of the rounds before
                now = writer.busy.values().copied().fold(now, Duration::max);
                writer.add(now, Step::Quiet);
            }
        }
        let mut script = writer.script;
        script.steps.sort_by_key(|(at, _)| *at);
        script
    }
}

impl Writer {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random.draw() % bound as u64).expect("below a usize")
    }

    /// Draws a time in this range, in milliseconds.
    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.random.draw() % (to - from))
    }

    pub(crate) fn add(&mut self, at: Duration, step: Step) {
        self.script.steps.push((at, step));
    }

    /// Adds a fault and its end, unless that program is already affected by one.
    fn fault(&mut self, at: Duration) {
        let number = self.below(1 << 20);
        let rep = Program::Rep(number % CELLS);
        let auctioneer = Program::Auctioneer(number % AUCTIONEERS);
        let manager = Program::Manager(number % MANAGERS);
        let ends = [Deed::Kill, Deed::Terminate][number / 8 % 2];
        // faults of managers, and those for which managers are needed, come last
        match self.below(if self.managed { 18 } else { 12 }) {
            0 => self.once(at, Step::KillInstance(number)),
            1 => self.once(at, Step::KillSupervisor(number)),
            2 => self.for_a_time(at, rep, Deed::Kill),
            3 => self.for_a_time(at, rep, Deed::KillWithSupervisors),
            4 => self.for_a_time(at, rep, Deed::Terminate),
            5 => self.for_a_time(at, rep, Deed::Freeze),
            6 => self.for_a_time(at, rep, Deed::Block),
            7 => self.for_a_time(at, auctioneer, Deed::Freeze),
            8 => self.for_a_time(at, auctioneer, Deed::Block),
            9 => self.for_a_time(at, auctioneer, ends),
            10 => {
                let programs = if self.managed { 3 } else { 2 };
                let program = [rep, auctioneer, manager][number / 16 % programs];
                self.for_a_time(at, program, Deed::Cut);
            }
            11 => {
                let server = Program::Server(if self.managed { number % SERVERS } else { 0 });
                let deed = [Deed::Kill, Deed::Freeze][number / 8 % 2];
                self.for_a_time(at, server, deed);
            }
            12 => self.for_a_time(at, manager, Deed::Freeze),
            13 => self.for_a_time(at, manager, Deed::Block),
            14 | 15 => self.for_a_time(at, manager, ends),
            _ => self.for_a_time(at, rep, Deed::Drain),
        }
    }

    fn once(&mut self, at: Duration, step: Step) {
        self.add(at, step);
        self.script.faults += 1;
    }

    fn for_a_time(&mut self, at: Duration, program: Program, deed: Deed) {
        // of several servers, the others continue
        let key = match program {
            Program::Server(_) => Program::Server(0),
            other => other,
        };
        if self.busy.get(&key).is_some_and(|until| *until > at) {
            return;
        }
        let alone = matches!(program, Program::Server(_)) && !self.managed;
        let end = at + self.millis(300, if alone { 3_000 } else { 9_000 });
        self.once(at, Step::Do(program, deed));
        let undo = deed.undo();
        let over = if undo.is_some() { end } else { at };
        if let Some(undo) = undo {
            self.add(end, Step::Do(program, undo));
        }
        // leaves a moment in which the program is not disturbed
        self.busy.insert(key, over + Duration::from_millis(500));
    }
}

impl Deed {
    /// Returns the deed that ends this one.
    fn undo(self) -> Option<Self> {
        match self {
            Self::Kill | Self::KillWithSupervisors | Self::Terminate => Some(Self::Start),
            Self::Freeze => Some(Self::Resume),
            Self::Block => Some(Self::Unblock),
            Self::Drain => Some(Self::Uncordon),
            Self::Start | Self::Resume | Self::Unblock | Self::Cut | Self::Uncordon => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_one_script_and_every_fault_ends() {
        for of in [Script::of_requests, Script::of_orders] {
            let script = of(1, 200);
            assert_eq!(script.steps, of(1, 200).steps);
            assert_ne!(script.steps, of(2, 200).steps);
            assert!(script.faults > 200, "{}", script.faults);
            let done = |deeds: &[Deed]| {
                let is = |step: &Step| matches!(step, Step::Do(_, deed) if deeds.contains(deed));
                script.steps.iter().filter(|(_, step)| is(step)).count()
            };
            let killed = [Deed::Kill, Deed::KillWithSupervisors, Deed::Terminate];
            assert_eq!(done(&killed), done(&[Deed::Start]));
            assert_eq!(done(&[Deed::Freeze]), done(&[Deed::Resume]));
            assert_eq!(done(&[Deed::Block]), done(&[Deed::Unblock]));
            assert_eq!(done(&[Deed::Drain]), done(&[Deed::Uncordon]));
            assert!(done(&[Deed::Cut]) > 0);
        }
    }

    #[test]
    fn nothing_is_done_to_a_program_to_which_something_is_being_done() {
        for (seed, of) in
            (0..200).flat_map(|seed| [Script::of_requests, Script::of_orders].map(|of| (seed, of)))
        {
            // for each program, the deed that would end its present fault
            let mut busy = BTreeMap::new();
            for (at, step) in of(seed, 50).steps {
                let Step::Do(program, deed) = step else {
                    continue;
                };
                let ends = [Deed::Start, Deed::Resume, Deed::Unblock, Deed::Uncordon];
                let expected = busy.remove(&program);
                assert_eq!(
                    expected,
                    ends.contains(&deed).then_some(deed),
                    "seed {seed}, {at:?}: {step:?}"
                );
                busy.extend(deed.undo().map(|undo| (program, undo)));
                let servers = busy.keys().filter(|p| matches!(p, Program::Server(_)));
                assert!(
                    servers.count() <= 1,
                    "seed {seed}, {at:?}: a quorum is left"
                );
            }
            assert_eq!(busy, BTreeMap::new(), "seed {seed}");
        }
    }
}
