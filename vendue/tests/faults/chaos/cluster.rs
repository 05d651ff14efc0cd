//! The programs that things are done to.

use std::{
    fs,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shared::{
    ask,
    proc::{self, Process},
};
use testkit::{Link, NatsServer};

use super::{
    script::{AUCTIONEERS, CELLS, Deed, Step},
    table::{self, Found},
    watch::{Rep, Watch},
};
use crate::parts::{Observer, Part};

/// What each cell has, MiB.
pub(crate) const MEMORY_MB: u64 = 400;
/// Between two looks.
const EVERY: Duration = Duration::from_millis(100);

/// One program and its link to the server.
struct Seat {
    name: String,
    link: Link,
    part: Option<Part>,
}

/// Cells and auctioneers on a server, each behind a link of its own.
pub(crate) struct Cluster {
    server: NatsServer,
    pub(crate) observer: Arc<Observer>,
    cells: Vec<Seat>,
    auctioneers: Vec<Seat>,
    policy: &'static str,
    /// Where the reps keep the directories of their instances.
    state: tempfile::TempDir,
    pub(crate) mark: String,
    pub(crate) watch: Arc<Mutex<Watch>>,
    /// Of the auctioneers, how many live.
    expected: Arc<Mutex<usize>>,
}

/// A lock that nobody poisons: whoever panics ends the test.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl Cluster {
    pub(crate) async fn start(seed: u64) -> Self {
        let server = NatsServer::start().await;
        let observer = Arc::new(Observer::of(&server).await);
        let mut cells = Vec::new();
        for nth in 0..CELLS {
            let name = format!("z{}-c{nth}", nth % 2);
            cells.push(Seat {
                name,
                link: Link::to(server.port()).await,
                part: None,
            });
        }
        let mut auctioneers = Vec::new();
        for nth in 0..AUCTIONEERS {
            let name = format!("auctioneer-{nth}");
            auctioneers.push(Seat {
                name,
                link: Link::to(server.port()).await,
                part: None,
            });
        }
        let state = tempfile::tempdir().unwrap();
        let mark = state
            .path()
            .file_name()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let mut cluster = Self {
            server,
            observer,
            cells,
            auctioneers,
            policy: ["diego", "dea"][usize::from(seed.is_multiple_of(2))],
            state,
            mark,
            watch: Arc::new(Mutex::new(Watch::new(MEMORY_MB))),
            expected: Arc::default(),
        };
        for nth in 0..CELLS {
            cluster.start_rep(nth);
        }
        for nth in 0..AUCTIONEERS {
            cluster.start_auctioneer(nth);
        }
        cluster
    }

    /// Looks at the process table and asks the programs until the runtime ends.
    pub(crate) fn observe(&self) {
        let (watch, mark) = (self.watch.clone(), self.mark.clone());
        tokio::task::spawn_blocking(move || {
            // the test's own handle and this one: when the test drops its own, it has ended
            while Arc::strong_count(&watch) > 1 {
                let found = table::look(&mark);
                lock(&watch).saw(Instant::now(), &found);
                std::thread::sleep(EVERY);
            }
        });
        for seat in &self.cells {
            let (watch, observer) = (Arc::downgrade(&self.watch), self.observer.clone());
            let name = seat.name.clone();
            tokio::spawn(async move {
                let subject = observer.subjects.cell(&name, "state");
                loop {
                    let asked = observer.client.request(subject.clone(), "".into());
                    let answer = tokio::time::timeout(EVERY * 2, asked).await;
                    let Some(watch) = watch.upgrade() else { return };
                    if let Ok(Ok(_)) = answer {
                        lock(&watch).cells.insert(name.clone(), Instant::now());
                    }
                    drop(watch);
                    tokio::time::sleep(EVERY).await;
                }
            });
        }
        let (watch, observer) = (Arc::downgrade(&self.watch), self.observer.clone());
        let expected = self.expected.clone();
        tokio::spawn(async move {
            loop {
                let serving = serving(&observer).await;
                let Some(watch) = watch.upgrade() else { return };
                if serving > 0 && serving == *lock(&expected) {
                    lock(&watch).auctioneers = Some(Instant::now());
                }
                drop(watch);
                tokio::time::sleep(EVERY).await;
            }
        });
    }

    /// Carries out a step that is about programs.
    pub(crate) async fn carry_out(&mut self, step: &Step) {
        let told = self.told(step);
        lock(&self.watch).tell(&told);
        match *step {
            Step::Rep(nth, deed) => self.do_to_rep(nth, deed).await,
            Step::Auctioneer(nth, deed) => self.do_to_auctioneer(nth, deed).await,
            Step::Server(Deed::Kill) => self.server.stop(),
            Step::Server(Deed::Start) => self.server.restart().await,
            Step::Server(Deed::Freeze) => self.server.pause(),
            Step::Server(Deed::Resume) => self.server.resume(),
            Step::KillInstance(number) => {
                if let Some(process) = self.one(number) {
                    kill(process.pid);
                }
            }
            Step::KillSupervisor(number) => {
                if let Some(process) = self.one(number) {
                    kill(process.parent);
                }
            }
            _ => unreachable!("{step:?} is not about programs"),
        }
    }

    /// The step, with the name of the program.
    fn told(&self, step: &Step) -> String {
        match step {
            Step::Rep(nth, deed) => format!("{} {deed:?}", self.cells[*nth].name),
            Step::Auctioneer(nth, deed) => format!("{} {deed:?}", self.auctioneers[*nth].name),
            other => format!("{other:?}"),
        }
    }

    /// One of the processes that run now.
    fn one(&self, number: usize) -> Option<Found> {
        let mut found = table::look(&self.mark);
        // a supervisor ends with its rep; what it left meanwhile has another parent
        found.retain(|process| process.parent > 1);
        let nth = number.checked_rem(found.len())?;
        Some(found.swap_remove(nth))
    }

    fn start_rep(&mut self, nth: usize) {
        let state = self.state.path().join(nth.to_string());
        fs::create_dir_all(&state).unwrap();
        let memory = MEMORY_MB.to_string();
        let more = ["--state-dir", state.to_str().unwrap(), "--memory", &memory];
        let seat = &mut self.cells[nth];
        let part = Part::rep(&seat.link.url(), &seat.name, &more);
        let process = Process::read(part.pid()).expect("the rep that was started");
        seat.part = Some(part);
        let rep = Rep {
            lives: true,
            since: Instant::now(),
            started_ticks: process.started_ticks,
            alone: false,
        };
        lock(&self.watch).reps.insert(seat.name.clone(), rep);
    }

    fn start_auctioneer(&mut self, nth: usize) {
        let seat = &mut self.auctioneers[nth];
        let arguments = ["auctioneer", "--policy", self.policy, "--name", &seat.name];
        seat.part = Some(Part::start(&seat.link.url(), &arguments));
        *lock(&self.expected) += 1;
    }

    async fn do_to_rep(&mut self, nth: usize, deed: Deed) {
        let watch = self.watch.clone();
        let seat = &mut self.cells[nth];
        let name = seat.name.clone();
        let dies = |alone| {
            let mut watch = lock(&watch);
            let rep = watch.reps.get_mut(&name).expect("a rep");
            (rep.lives, rep.since, rep.alone) = (false, Instant::now(), alone);
        };
        match deed {
            Deed::Start => self.start_rep(nth),
            Deed::KillWithSupervisors => {
                let part = seat.part.take().expect("a rep");
                // frozen, it starts no other meanwhile
                part.signal(Signal::STOP);
                proc::children(part.pid()).into_iter().for_each(kill);
                part.kill();
                dies(true);
            }
            deed => {
                seat.is_done(deed).await;
                if seat.part.is_none() {
                    dies(false);
                }
            }
        }
    }

    async fn do_to_auctioneer(&mut self, nth: usize, deed: Deed) {
        if deed == Deed::Start {
            return self.start_auctioneer(nth);
        }
        let seat = &mut self.auctioneers[nth];
        seat.is_done(deed).await;
        if seat.part.is_none() {
            *lock(&self.expected) -= 1;
        }
    }

    /// Whether every cell and auctioneer answers, and nothing runs twice.
    pub(crate) fn is_quiet(&self) -> bool {
        let watch = lock(&self.watch);
        let now = Instant::now();
        let all = self.cells.iter().all(|seat| watch.hears(&seat.name, now));
        all && *lock(&self.expected) == AUCTIONEERS
            && watch.hears_auctioneers(now)
            && watch.all_once()
    }

    /// What the cells say that runs, and what does: pairs of instance and cell.
    pub(crate) async fn said_and_true(&self) -> (Vec<(String, String)>, Vec<(String, String)>) {
        let said = self.observer.running(CELLS).await;
        let found = table::look(&self.mark);
        let mut runs: Vec<_> = found
            .into_iter()
            .map(|process| (process.instance, process.cell))
            .collect();
        runs.sort();
        runs.dedup();
        (said, runs)
    }

    /// Ends everything in order; what is left then is a violation.
    pub(crate) async fn end(&mut self) {
        for seat in self.auctioneers.iter_mut().chain(&mut self.cells) {
            seat.is_done(Deed::Terminate).await;
        }
        let mut watch = lock(&self.watch);
        let left = table::look(&self.mark);
        if !left.is_empty() {
            watch
                .violations
                .push(format!("processes are left: {left:?}"));
        }
        for nth in 0..CELLS {
            let folders = fs::read_dir(self.state.path().join(nth.to_string())).unwrap();
            let names = folders.map(|entry| entry.unwrap().file_name());
            let left: Vec<_> = names
                .filter(|name| name.to_string_lossy().len() == 36)
                .collect();
            if !left.is_empty() {
                watch
                    .violations
                    .push(format!("directories are left: {left:?}"));
            }
        }
    }
}

impl Seat {
    async fn is_done(&mut self, deed: Deed) {
        let part = self.part.as_mut().expect("it runs");
        match deed {
            Deed::Kill => self.part.take().expect("it runs").kill(),
            Deed::Terminate => {
                part.signal(Signal::TERM);
                part.ended().await;
                self.part = None;
            }
            Deed::Freeze => part.signal(Signal::STOP),
            Deed::Resume => part.signal(Signal::CONT),
            Deed::Block => self.link.block(),
            Deed::Unblock => self.link.unblock(),
            Deed::Cut => self.link.cut(),
            Deed::Start | Deed::KillWithSupervisors => unreachable!("{deed:?} is not done here"),
        }
    }
}

/// Kills a process; it may have ended already.
fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let _ = kill_process(pid.expect("a pid"), Signal::KILL);
}

/// How many auctioneers take requests.
async fn serving(observer: &Observer) -> usize {
    let mut count = 0;
    let subject = format!("$SRV.INFO.{}-auctioneer", observer.subjects.prefix());
    let heard = |message: async_nats::Message| {
        let info: Value = serde_json::from_slice(&message.payload).unwrap_or_default();
        let endpoints = info["endpoints"].as_array().map_or(0, Vec::len);
        count += usize::from(endpoints > 0);
        count == AUCTIONEERS
    };
    // while the server is away there is nobody to ask
    let _ = ask::gather(&observer.client, subject, "".into(), EVERY * 2, None, heard).await;
    count
}
