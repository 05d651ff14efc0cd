//! The programs under test.

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
    script::{AUCTIONEERS, CELLS, Deed, MANAGERS, Program, SERVERS, Step},
    table::{self, Found},
    watch::{Rep, Watch},
};
use crate::parts::{Observer, Part};

/// The memory of each cell, in MiB.
pub(crate) const MEMORY_MB: u64 = 400;
/// Interval between two looks.
const EVERY: Duration = Duration::from_millis(100);

/// One program and its links to the servers.
struct Seat {
    name: String,
    links: Vec<Link>,
    part: Option<Part>,
}

/// Cells, auctioneers and managers on one server or several, each behind links of its own.
pub(crate) struct Cluster {
    servers: Vec<NatsServer>,
    pub(crate) observer: Arc<Observer>,
    cells: Vec<Seat>,
    auctioneers: Vec<Seat>,
    managers: Vec<Seat>,
    policy: &'static str,
    /// The directories of the reps' instances and of the servers' streams.
    state: tempfile::TempDir,
    pub(crate) mark: String,
    pub(crate) watch: Arc<Mutex<Watch>>,
    /// Number of auctioneers that are expected to be alive.
    expected: Arc<Mutex<usize>>,
}

/// Locks a mutex that is never poisoned, as a panic ends the test.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl Cluster {
    /// Starts a cluster without managers, on one server.
    pub(crate) async fn start(seed: u64) -> Self {
        let state = tempfile::tempdir().unwrap();
        Self::on(vec![NatsServer::start().await], state, seed, 0).await
    }

    /// Starts a cluster with managers, on servers that replicate what they store.
    pub(crate) async fn with_managers(seed: u64) -> Self {
        let state = tempfile::tempdir().unwrap();
        let jetstream = "sync_interval: always";
        let servers = testkit::cluster(SERVERS, &state.path().join("js"), jetstream).await;
        Self::on(servers, state, seed, MANAGERS).await
    }

    async fn on(
        servers: Vec<NatsServer>,
        state: tempfile::TempDir,
        seed: u64,
        managers: usize,
    ) -> Self {
        let observer = Arc::new(Observer::of_all(&servers).await);
        let names = |count, name: fn(usize) -> String| (0..count).map(name).collect();
        let cells: Vec<String> = names(CELLS, |nth| format!("z{}-c{nth}", nth % 2));
        let auctioneers = names(AUCTIONEERS, |nth| format!("auctioneer-{nth}"));
        let managers = names(managers, |nth| format!("manager-{nth}"));
        let mark = state.path().file_name().unwrap();
        let mut cluster = Self {
            cells: seats(cells, &servers).await,
            auctioneers: seats(auctioneers, &servers).await,
            managers: seats(managers, &servers).await,
            servers,
            observer,
            policy: ["diego", "dea"][usize::from(seed.is_multiple_of(2))],
            mark: mark.to_string_lossy().into_owned(),
            state,
            watch: Arc::new(Mutex::new(Watch::new(MEMORY_MB))),
            expected: Arc::default(),
        };
        for nth in 0..CELLS {
            cluster.start_rep(nth);
        }
        for nth in 0..AUCTIONEERS {
            cluster.start_auctioneer(nth);
        }
        for nth in 0..cluster.managers.len() {
            cluster.start_manager(nth);
        }
        cluster
    }

    /// Looks at the process table and asks the programs until the runtime ends.
    pub(crate) fn observe(&self) {
        let (watch, mark) = (self.watch.clone(), self.mark.clone());
        tokio::task::spawn_blocking(move || {
            // the test's own handle and this one: when the test drops its handle, it has ended
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

    /// Carries out a step on programs.
    pub(crate) async fn carry_out(&mut self, step: &Step) {
        let told = self.told(step);
        lock(&self.watch).tell(&told);
        match *step {
            Step::Do(program, deed) => self.do_to(program, deed).await,
            Step::KillInstance(number) => {
                if let Some(process) = self.one(number) {
                    lock(&self.watch).stops.kills(&process);
                    kill(process.pid);
                }
            }
            Step::KillSupervisor(number) => {
                if let Some(process) = self.one(number) {
                    lock(&self.watch).stops.kills(&process);
                    kill(process.parent);
                }
            }
            _ => unreachable!("{step:?} is not about programs"),
        }
    }

    async fn do_to(&mut self, program: Program, deed: Deed) {
        match (program, deed) {
            (Program::Rep(nth), deed) => self.do_to_rep(nth, deed).await,
            (Program::Auctioneer(nth), deed) => self.do_to_auctioneer(nth, deed).await,
            (Program::Manager(nth), Deed::Start) => self.start_manager(nth),
            (Program::Manager(nth), deed) => self.managers[nth].is_done(deed).await,
            (Program::Server(nth), Deed::Kill) => self.servers[nth].stop(),
            (Program::Server(nth), Deed::Start) => self.servers[nth].restart().await,
            (Program::Server(nth), Deed::Freeze) => self.servers[nth].pause(),
            (Program::Server(nth), Deed::Resume) => self.servers[nth].resume(),
            (Program::Server(_), _) => unreachable!("{deed:?} is not done to servers"),
        }
    }

    /// Describes the step, with the name of the program.
    fn told(&self, step: &Step) -> String {
        match step {
            Step::Do(Program::Rep(nth), deed) => format!("{} {deed:?}", self.cell(*nth)),
            other => format!("{other:?}"),
        }
    }

    /// Returns the name of a cell.
    pub(crate) fn cell(&self, nth: usize) -> &str {
        &self.cells[nth].name
    }

    /// Returns one of the instances' processes that run now.
    fn one(&self, number: usize) -> Option<Found> {
        let mut found = table::look(&self.mark);
        // a supervisor ends with its rep, whose leftover processes then have another parent
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
        let part = Part::rep(&seat.urls(), &seat.name, &more);
        let process = Process::read(part.pid()).expect("the rep that was started");
        seat.part = Some(part);
        let rep = Rep {
            lives: true,
            since: Instant::now(),
            started_ticks: process.started_ticks,
            alone: false,
        };
        let mut watch = lock(&self.watch);
        watch.reps.insert(seat.name.clone(), rep);
        watch.stops.stays(&seat.name);
    }

    fn start_auctioneer(&mut self, nth: usize) {
        let seat = &mut self.auctioneers[nth];
        let arguments = ["auctioneer", "--policy", self.policy, "--name", &seat.name];
        seat.part = Some(Part::start(&seat.urls(), &arguments));
        *lock(&self.expected) += 1;
    }

    fn start_manager(&mut self, nth: usize) {
        let seat = &mut self.managers[nth];
        let replicas = self.servers.len().to_string();
        let arguments = ["manager", "--replicas", &replicas, "--name", &seat.name];
        seat.part = Some(Part::start(&seat.urls(), &arguments));
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
        if [Deed::Kill, Deed::KillWithSupervisors, Deed::Terminate].contains(&deed) {
            lock(&watch).stops.leaves(&name);
        }
        match deed {
            Deed::Start => self.start_rep(nth),
            Deed::KillWithSupervisors => {
                let part = seat.part.take().expect("a rep");
                // while frozen, it cannot start another one
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

    /// Returns whether every cell and auctioneer answers, and nothing runs twice.
    pub(crate) fn is_quiet(&self) -> bool {
        let watch = lock(&self.watch);
        let now = Instant::now();
        let all = self.cells.iter().all(|seat| watch.hears(&seat.name, now));
        all && *lock(&self.expected) == AUCTIONEERS
            && watch.hears_auctioneers(now)
            && watch.twice().is_empty()
    }

    /// Reports every program that has ended by itself.
    pub(crate) fn check_lives(&mut self) {
        let auctioneers = self.auctioneers.iter_mut().chain(&mut self.managers);
        for seat in auctioneers.chain(&mut self.cells) {
            if seat.part.as_mut().is_some_and(|part| !part.lives()) {
                lock(&self.watch).violated(&format!("{} has ended by itself", seat.name));
            }
        }
    }

    /// Describes what is not as it should be.
    pub(crate) fn described(&self, differences: &[String]) -> String {
        let watch = lock(&self.watch);
        let now = Instant::now();
        let silent = self.cells.iter().map(|seat| &seat.name);
        let silent: Vec<_> = silent.filter(|name| !watch.hears(name, now)).collect();
        let auctioneers = watch.hears_auctioneers(now);
        let (started, twice) = (*lock(&self.expected), watch.twice());
        let violations = watch.violations.join("\n");
        format!(
            "{differences:?}; silent: {silent:?}; {started} auctioneers were started, all are heard: {auctioneers}; twice: {twice:?}; violations: {violations}"
        )
    }

    /// Returns what the cells report as running, and what does run: pairs of instance and cell.
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

    /// Ends everything in order; anything left over is a violation.
    pub(crate) async fn end(&mut self) {
        let auctioneers = self.auctioneers.iter_mut().chain(&mut self.managers);
        for seat in auctioneers.chain(&mut self.cells) {
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

async fn seats(names: Vec<String>, servers: &[NatsServer]) -> Vec<Seat> {
    let mut seats = Vec::new();
    for name in names {
        let mut links = Vec::new();
        for server in servers {
            links.push(Link::to(server.port()).await);
        }
        seats.push(Seat {
            name,
            links,
            part: None,
        });
    }
    seats
}

impl Seat {
    /// Returns the addresses of all servers, each through a link.
    fn urls(&self) -> String {
        let urls: Vec<String> = self.links.iter().map(Link::url).collect();
        urls.join(",")
    }

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
            Deed::Block => self.links.iter().for_each(Link::block),
            Deed::Unblock => self.links.iter().for_each(Link::unblock),
            Deed::Cut => self.links.iter().for_each(Link::cut),
            other => unreachable!("{other:?} is not done here"),
        }
    }
}

/// Kills a process, which may already have ended.
fn kill(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let _ = kill_process(pid.expect("a pid"), Signal::KILL);
}

/// Returns the number of auctioneers that accept requests.
async fn serving(observer: &Observer) -> usize {
    let mut count = 0;
    let subject = format!("$SRV.INFO.{}-auctioneer", observer.subjects.prefix());
    let heard = |message: async_nats::Message| {
        let info: Value = serde_json::from_slice(&message.payload).unwrap_or_default();
        let endpoints = info["endpoints"].as_array().map_or(0, Vec::len);
        count += usize::from(endpoints > 0);
        count == AUCTIONEERS
    };
    // while the server is away, there is nobody to ask
    let _ = ask::gather(&observer.client, subject, "".into(), EVERY * 2, None, heard).await;
    count
}
