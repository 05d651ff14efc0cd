//! The cells, the auctioneers and the messages between them, in virtual time.

mod messages;
mod state;

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    sync::Arc,
};

use placement::{Cell, Request};

use messages::{SORTS, STOP, Sort};
use state::{Auctioneer, Back, Event, Job, Open, Question, State};

use super::{
    EraResult, Failure, Placement, Setting,
    auction::{Answer, Ask, Auction, Step},
    cells::{Rep, may_be_asked},
    sizes,
};
use crate::{
    demand::{Demand, What},
    outcome::Traffic,
    random::Random,
};

/// Events between two looks of who watches.
const WATCH_EVERY: u32 = 65_536;
/// No cell may be asked: nothing was, so there was no round.
const NO_CELL: &str = "no cell offers what is asked for";
/// What the auctions of 2014 said when the rounds were used up.
const NO_ROOM: &str = "insufficient resources for instance";
/// The order to run was lost, or came to a cell that had released its room by then: a release that
/// was meant for an earlier question may come late.
const NEVER_RAN: &str = "the winner was not reached";

pub(super) struct World<'a> {
    setting: &'a Setting,
    cells: &'a [Cell],
    demands: &'a [Demand],
    reps: Vec<Rep>,
    answer_bytes: Vec<sizes::Answers>,
    auctioneers: Vec<Auctioneer>,
    jobs: Vec<Job>,
    open: BTreeMap<u32, Open>,
    /// Reservations: job and cell.
    held: BTreeSet<(u32, u32)>,
    app_numbers: BTreeMap<String, u32>,
    /// By app: jobs that are not over, and some that are.
    jobs_of: BTreeMap<u32, Vec<u32>>,
    class_numbers: BTreeMap<(Option<String>, Vec<String>), usize>,
    /// By class: cells that may be asked, in an order of no meaning.
    classes: Vec<Vec<u32>>,
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pushed: u64,
    now_us: u64,
    /// Which cells, ties, and which auctioneer.
    choice: Random,
    /// Latency and loss.
    weather: Random,
    /// In the order of [`SORTS`].
    messages: [Traffic; SORTS.len()],
    placements: Vec<Placement>,
    failures: Vec<Failure>,
    cancelled: u64,
    auctions: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(cells: &'a [Cell], demands: &'a [Demand], setting: &'a Setting) -> Self {
        let mut app_numbers = BTreeMap::new();
        let rep = |cell| Rep::new(cell, |app| number(&mut app_numbers, app));
        let reps = cells.iter().map(rep).collect();
        let random = Random::new(setting.seed);
        Self {
            setting,
            cells,
            demands,
            reps,
            answer_bytes: cells.iter().map(sizes::answers).collect(),
            auctioneers: (0..setting.rules.auctioneers.max(1))
                .map(|_| Auctioneer::default())
                .collect(),
            jobs: Vec::new(),
            open: BTreeMap::new(),
            held: BTreeSet::new(),
            app_numbers,
            jobs_of: BTreeMap::new(),
            class_numbers: BTreeMap::new(),
            classes: Vec::new(),
            heap: BinaryHeap::new(),
            pushed: 0,
            now_us: 0,
            choice: random.fork("era choice", 0),
            weather: random.fork("era weather", 0),
            messages: [Traffic::default(); SORTS.len()],
            placements: Vec::new(),
            failures: Vec::new(),
            cancelled: 0,
            auctions: 0,
        }
    }

    /// Plays it all; `watch` is told the virtual time now and then, and ends it by `false`.
    pub(super) fn run(mut self, watch: &mut dyn FnMut(u64) -> bool) -> (EraResult, bool) {
        let mut left = WATCH_EVERY;
        self.expect_demand(0);
        let until_us = self
            .setting
            .until_ms
            .map_or(u64::MAX, |ms| ms.saturating_mul(1000));
        while let Some(Reverse((at_us, _, event))) = self.heap.pop() {
            if at_us > until_us {
                break;
            }
            self.now_us = at_us;
            left -= 1;
            if left == 0 {
                left = WATCH_EVERY;
                if !watch(at_us / 1000) {
                    return (self.result(None), true);
                }
            }
            match event {
                Event::Demand(i) => {
                    self.demand(&self.demands[i]);
                    self.expect_demand(i + 1);
                }
                Event::Arrive(question) => self.arrive(question),
                Event::Continue { job } => self.proceed(job),
                Event::End { placement } => self.end(placement),
            }
        }
        let until_ms = self.setting.until_ms;
        (self.result(until_ms), false)
    }

    fn expect_demand(&mut self, i: usize) {
        if let Some(demand) = self.demands.get(i) {
            let at_us = demand.at_ms.saturating_mul(1000).max(self.now_us);
            self.push(at_us, Event::Demand(i));
        }
    }

    fn push(&mut self, at_us: u64, event: Event) {
        self.pushed += 1;
        self.heap.push(Reverse((at_us, self.pushed, event)));
    }

    fn demand(&mut self, demand: &Demand) {
        match &demand.what {
            What::Start {
                request,
                lifetime_ms,
            } => {
                let app = number(&mut self.app_numbers, &request.app);
                let class = self.class(request);
                for job in request.jobs() {
                    self.ask_for(
                        job,
                        app,
                        class,
                        lifetime_ms.map(|ms| ms.saturating_mul(1000)),
                    );
                }
            }
            What::Stop { app, indices } => {
                let app = number(&mut self.app_numbers, app);
                self.stop(app, indices);
            }
        }
    }

    #[allow(clippy::cast_possible_truncation)] // far below 2^32 jobs
    fn ask_for(&mut self, job: placement::Job, app: u32, class: usize, lifetime_us: Option<u64>) {
        let number = self.jobs.len() as u32;
        self.jobs.push(Job {
            request: job.request,
            index: job.index,
            app,
            class,
            asked_us: self.now_us,
            lifetime_us,
            state: State::Waiting,
            stop: false,
            rounds: 0,
            communications: 0,
        });
        self.jobs_of.entry(app).or_default().push(number);
        let auctioneer = self.choice.place(self.auctioneers.len());
        self.auctioneers[auctioneer].queue.push_back(number);
        self.take_on(auctioneer);
    }

    /// The cells that may be asked depend on stack and placement tags only.
    fn class(&mut self, request: &Request) -> usize {
        let key = (request.stack.clone(), request.placement_tags.clone());
        let (cells, classes) = (self.cells, &mut self.classes);
        *self.class_numbers.entry(key).or_insert_with(|| {
            let may = (0_u32..)
                .zip(cells)
                .filter(|(_, cell)| may_be_asked(cell, request));
            classes.push(may.map(|(i, _)| i).collect());
            classes.len() - 1
        })
    }

    /// The auctioneer begins waiting auctions while it has a hand free.
    fn take_on(&mut self, auctioneer: usize) {
        while self.auctioneers[auctioneer].busy < self.setting.rules.at_once {
            let Some(number) = self.auctioneers[auctioneer].queue.pop_front() else {
                return;
            };
            let job = &mut self.jobs[number as usize];
            if job.state != State::Waiting {
                continue;
            }
            job.state = State::Auction;
            self.auctions += 1;
            if self.classes[job.class].is_empty() {
                self.fail(number, NO_CELL);
                continue;
            }
            self.auctioneers[auctioneer].busy += 1;
            let mut open = Open {
                auction: Auction::new(),
                auctioneer,
                step: 0,
                ask: Ask::Bid,
                asked: Vec::new(),
                answers: Vec::new(),
                void: false,
                info_bytes: sizes::info(&job.request, job.index),
                run_bytes: sizes::run(&job.request, job.index),
            };
            let cells = &mut self.classes[job.class];
            let step = open
                .auction
                .next_round(&self.setting.rules, cells, &mut self.choice);
            self.take_step(number, open, Some(step));
        }
    }

    fn take_step(&mut self, number: u32, mut open: Open, step: Option<Step>) {
        self.jobs[number as usize].rounds = open.auction.rounds;
        match step {
            Some(Step::Ask(ask, cells)) => {
                open.step += 1;
                open.ask = ask;
                let (until_us, lost) = self.send(number, &open, ask, &cells);
                open.void = lost;
                open.asked = cells;
                open.answers.clear();
                self.open.insert(number, open);
                self.push(until_us, Event::Continue { job: number });
                return;
            }
            Some(Step::GiveUp) => self.fail(number, NO_ROOM),
            None if open.void => self.fail(number, NEVER_RAN),
            None => {}
        }
        self.auctioneers[open.auctioneer].busy -= 1;
        self.take_on(open.auctioneer);
    }

    fn arrive(&mut self, question: Question) {
        let Question {
            job: number,
            cell,
            ask,
            ..
        } = question;
        let job = &self.jobs[number as usize];
        let rep = &mut self.reps[cell as usize];
        let sizes = self.answer_bytes[cell as usize];
        let bid = match ask {
            Ask::Bid => rep.bid(&job.request, job.app),
            // one reservation for each instance: a release for an earlier one is still under way
            Ask::Reserve if self.held.contains(&(number, cell)) => None,
            Ask::Reserve => {
                let bid = rep.reserve(&job.request, job.app);
                if bid.is_some() {
                    self.held.insert((number, cell));
                }
                bid
            }
            Ask::Release => {
                if self.held.remove(&(number, cell)) {
                    rep.release(&job.request, job.app);
                }
                None
            }
            Ask::Run => {
                if self.held.remove(&(number, cell)) {
                    self.place(number, cell, question.busy_us);
                } else if let Some(open) = self.open.get_mut(&number) {
                    open.void = true;
                } else {
                    self.fail(number, NEVER_RAN);
                }
                None
            }
        };
        let bytes = match (ask, bid) {
            (Ask::Release | Ask::Run, _) => sizes.ok,
            (_, Some(_)) => sizes.bid,
            (_, None) => sizes.no_room,
        };
        self.count(Sort::answer(ask), bytes, question.back != Back::Lost);
        if question.back == Back::InTime
            && let Some(open) = self.open.get_mut(&number)
            && open.step == question.step
        {
            open.answers.push(Answer { cell, bid });
        }
    }

    #[allow(clippy::cast_possible_truncation)] // no more placements than jobs
    fn place(&mut self, number: u32, cell: u32, busy_us: u64) {
        let placement = self.placements.len() as u32;
        let job = &mut self.jobs[number as usize];
        job.state = State::Placed(placement);
        let (stop, lifetime_us) = (job.stop, job.lifetime_us);
        self.placements.push(Placement {
            request: Arc::clone(&job.request),
            index: job.index,
            cell,
            at_us: self.now_us,
            wait_us: self.now_us - job.asked_us,
            rounds: job.rounds,
            communications: job.communications,
            ended_us: None,
        });
        if let Some(lifetime_us) = lifetime_us {
            let ends_us = (self.now_us + busy_us).saturating_add(lifetime_us);
            self.push(ends_us, Event::End { placement });
        }
        if stop {
            self.stop_placed(number, placement);
        }
    }

    /// The answers are in: the auction goes on.
    fn proceed(&mut self, number: u32) {
        let Some(mut open) = self.open.remove(&number) else {
            return;
        };
        if open.ask == Ask::Reserve {
            self.release_unheard(number, &open);
        }
        let cells = &mut self.classes[self.jobs[number as usize].class];
        let rules = &self.setting.rules;
        let step = open
            .auction
            .answered(rules, &open.answers, cells, &mut self.choice);
        self.take_step(number, open, step);
    }

    fn fail(&mut self, number: u32, reason: &'static str) {
        let job = &mut self.jobs[number as usize];
        job.state = State::Over;
        if job.stop {
            self.cancelled += 1;
            return;
        }
        self.failures.push(Failure {
            request: Arc::clone(&job.request),
            index: job.index,
            at_us: self.now_us,
            rounds: job.rounds,
            communications: job.communications,
            reason,
        });
    }

    /// Stops instances of an app: those that wait have no auction, those in an auction are stopped
    /// after it.
    fn stop(&mut self, app: u32, indices: &[u32]) {
        let mut numbers = self.jobs_of.remove(&app).unwrap_or_default();
        for number in &numbers {
            let job = &mut self.jobs[*number as usize];
            if !indices.is_empty() && !indices.contains(&job.index) {
                continue;
            }
            match job.state {
                State::Waiting => {
                    job.state = State::Over;
                    self.cancelled += 1;
                }
                State::Auction => job.stop = true,
                State::Placed(placement) => self.stop_placed(*number, placement),
                State::Over => {}
            }
        }
        numbers.retain(|number| self.jobs[*number as usize].state != State::Over);
        self.jobs_of.insert(app, numbers);
    }

    fn stop_placed(&mut self, number: u32, placement: u32) {
        let job = &mut self.jobs[number as usize];
        job.state = State::Over;
        let bytes = sizes::stop(&job.request, job.index);
        let cell = self.placements[placement as usize].cell;
        let ok = self.answer_bytes[cell as usize].ok;
        let there_us = self.setting.network.latency.sample_us(&mut self.weather);
        self.count(STOP, bytes, true);
        self.count(STOP.answered(), ok, true);
        self.push(self.now_us + there_us, Event::End { placement });
    }

    fn end(&mut self, placement: u32) {
        let placement = &mut self.placements[placement as usize];
        if placement.ended_us.is_some() {
            return;
        }
        placement.ended_us = Some(self.now_us);
        let app = number(&mut self.app_numbers, &placement.request.app);
        self.reps[placement.cell as usize].release(&placement.request, app);
    }

    fn result(self, until_ms: Option<u64>) -> EraResult {
        let undecided = |job: &&Job| matches!(job.state, State::Waiting | State::Auction);
        let waiting = self.jobs.iter().filter(undecided).count() as u64;
        let leaked = self
            .held
            .iter()
            .filter(|(job, _)| !self.open.contains_key(job));
        let leaked = leaked.count() as u64;
        let mut cells = self.cells.to_vec();
        for placement in self.placements.iter().filter(|p| p.ended_us.is_none()) {
            cells[placement.cell as usize].debit(&placement.request);
        }
        for ((cell, before), rep) in cells.iter_mut().zip(self.cells).zip(&self.reps) {
            cell.starting = before.starting;
            cell.available = rep.available().clone();
        }
        let named = SORTS
            .iter()
            .zip(self.messages)
            .filter(|(_, traffic)| traffic.sent > 0);
        EraResult {
            placements: self.placements,
            failures: self.failures,
            cancelled: self.cancelled,
            waiting,
            auctions: self.auctions,
            leaked,
            messages: named
                .map(|(sort, traffic)| ((*sort).to_owned(), traffic))
                .collect(),
            cells,
            ended_ms: until_ms.unwrap_or(self.now_us.div_ceil(1000)),
        }
    }
}

/// An app's number, given when it is first named.
fn number(numbers: &mut BTreeMap<String, u32>, app: &str) -> u32 {
    if let Some(number) = numbers.get(app) {
        return *number;
    }
    let number = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    numbers.insert(app.to_owned(), number);
    number
}
