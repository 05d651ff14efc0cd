//! The cells, the auctioneers and the messages between them, in virtual time.

mod messages;
mod state;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use placement::{Cell, Job, Request};

use messages::MessageKind;
use state::{Answering, Event, Instance, OpenAuction, Question, Slots, State};

use super::{
    AuctionFailure, AuctionPlacement, AuctionSettings, AuctionsResult, Order,
    auction::{Answer, Auction, QuestionKind, Step},
    cells::{Rep, may_be_asked},
    sizes,
};
use crate::{
    demand::{Demand, DemandAction},
    outcome::Traffic,
    queue::EventQueue,
    random::Random,
};

/// Number of events between two progress reports.
const EVENTS_PER_REPORT: u32 = 65_536;
/// The reason given if no cell may be asked, so that there was no round.
const NO_CELL: &str = "no cell has the requested stack and placement tags";
/// The error that the auctions of 2014 gave when the maximum of rounds was reached.
const NO_ROOM: &str = "insufficient resources for instance";
/// The reason given if the order to run was lost or reached a cell that had already released the reservation: a release
/// meant for an earlier request may arrive late.
const NEVER_RAN: &str = "the winner did not get the order to run";

pub(super) struct World<'a> {
    settings: &'a AuctionSettings,
    cells: &'a [Cell],
    demands: &'a [Demand],
    reps: Vec<Rep>,
    answer_bytes: Vec<sizes::Answers>,
    auctioneers: Vec<Slots>,
    instances: Vec<Instance>,
    open: BTreeMap<u32, OpenAuction>,
    /// Reservations, as instance and cell.
    held: BTreeSet<(u32, u32)>,
    app_numbers: BTreeMap<String, u32>,
    /// By app: all instances that have not ended, and some that have.
    instances_of: BTreeMap<u32, Vec<u32>>,
    class_numbers: BTreeMap<(Option<String>, Vec<String>), usize>,
    /// By class: cells that may be asked, in no particular order.
    classes: Vec<Vec<u32>>,
    events: EventQueue<Event>,
    now_us: u64,
    /// Draws the order, the auctioneer, the pool and ties.
    choice: Random,
    /// Draws latencies and losses.
    network: Random,
    /// By [`MessageKind`].
    messages: [Traffic; MessageKind::COUNT],
    placements: Vec<AuctionPlacement>,
    failures: Vec<AuctionFailure>,
    cancelled: u64,
    auctions: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(
        cells: &'a [Cell],
        demands: &'a [Demand],
        settings: &'a AuctionSettings,
    ) -> Self {
        let mut app_numbers = BTreeMap::new();
        let rep = |cell| Rep::new(cell, |app| number(&mut app_numbers, app));
        let reps = cells.iter().map(rep).collect();
        let random = Random::new(settings.seed);
        Self {
            settings,
            cells,
            demands,
            reps,
            answer_bytes: cells.iter().map(sizes::answers).collect(),
            auctioneers: (0..settings.rules.auctioneers.max(1))
                .map(|_| Slots::default())
                .collect(),
            instances: Vec::new(),
            open: BTreeMap::new(),
            held: BTreeSet::new(),
            app_numbers,
            instances_of: BTreeMap::new(),
            class_numbers: BTreeMap::new(),
            classes: Vec::new(),
            events: EventQueue::new(),
            now_us: 0,
            // these names determine the draws: changing them would change the figures in docs/AUCTIONS_2014.md
            choice: random.fork("era choice", 0),
            network: random.fork("era weather", 0),
            messages: [Traffic::default(); MessageKind::COUNT],
            placements: Vec::new(),
            failures: Vec::new(),
            cancelled: 0,
            auctions: 0,
        }
    }

    /// Runs to the end. `watch` is called with the virtual time now and then, and ends the run by returning false.
    pub(super) fn run(mut self, watch: &mut dyn FnMut(u64) -> bool) -> (AuctionsResult, bool) {
        let mut left = EVENTS_PER_REPORT;
        self.expect_demand(0);
        let until_us = self
            .settings
            .until_ms
            .map_or(u64::MAX, |ms| ms.saturating_mul(1000));
        while let Some((at_us, event)) = self.events.pop() {
            if at_us > until_us {
                break;
            }
            self.now_us = at_us;
            left -= 1;
            if left == 0 {
                left = EVENTS_PER_REPORT;
                if !watch(at_us / 1000) {
                    return (self.result(None), true);
                }
            }
            match event {
                Event::Demand(i) => self.demands_from(i),
                Event::Arrive(question) => self.arrive(question),
                Event::Continue { instance } => self.proceed(instance),
                Event::End { placement } => self.end(placement),
            }
        }
        let until_ms = self.settings.until_ms;
        (self.result(until_ms), false)
    }

    fn expect_demand(&mut self, i: usize) {
        if let Some(demand) = self.demands.get(i) {
            let at_us = demand.at_ms.saturating_mul(1000).max(self.now_us);
            self.events.add(at_us, Event::Demand(i));
        }
    }

    /// Carries out the demands of this moment, from this position on.
    fn demands_from(&mut self, from: usize) {
        let demands = self.demands;
        let at_ms = demands[from].at_ms;
        let mut next = from;
        let mut asked: Vec<(Job, Option<u64>)> = Vec::new();
        while let Some(demand) = demands.get(next).filter(|demand| demand.at_ms == at_ms) {
            next += 1;
            match &demand.action {
                DemandAction::Start {
                    request,
                    lifetime_ms,
                } => {
                    let lifetime_us = lifetime_ms.map(|ms| ms.saturating_mul(1000));
                    asked.extend(request.jobs().into_iter().map(|job| (job, lifetime_us)));
                }
                DemandAction::Stop { app, indices } => {
                    self.ask_for_all(std::mem::take(&mut asked));
                    let app = number(&mut self.app_numbers, app);
                    self.stop(app, indices);
                }
            }
        }
        self.ask_for_all(asked);
        self.expect_demand(next);
    }

    fn ask_for_all(&mut self, mut asked: Vec<(Job, Option<u64>)>) {
        if self.settings.rules.order == Order::Random {
            self.choice.shuffle(&mut asked);
        }
        for (job, lifetime_us) in asked {
            let app = number(&mut self.app_numbers, &job.request.app);
            let class = self.class(&job.request);
            self.ask_for(job, app, class, lifetime_us);
        }
    }

    #[allow(clippy::cast_possible_truncation)] // far below 2^32 instances
    fn ask_for(&mut self, job: Job, app: u32, class: usize, lifetime_us: Option<u64>) {
        let number = self.instances.len() as u32;
        self.instances.push(Instance {
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
        self.instances_of.entry(app).or_default().push(number);
        let auctioneer = self.choice.place(self.auctioneers.len());
        self.auctioneers[auctioneer].queue.push_back(number);
        self.begin_auctions(auctioneer);
    }

    /// Returns the class of a request: which cells may be asked depends only on stack and placement tags.
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

    /// Begins waiting auctions while the auctioneer has a free slot.
    fn begin_auctions(&mut self, auctioneer: usize) {
        while self.auctioneers[auctioneer].busy < self.settings.rules.at_once {
            let Some(number) = self.auctioneers[auctioneer].queue.pop_front() else {
                return;
            };
            let instance = &mut self.instances[number as usize];
            if instance.state != State::Waiting {
                continue;
            }
            instance.state = State::Auction;
            self.auctions += 1;
            if self.classes[instance.class].is_empty() {
                self.fail(number, NO_CELL);
                continue;
            }
            self.auctioneers[auctioneer].busy += 1;
            let mut open = OpenAuction {
                auction: Auction::new(),
                auctioneer,
                step: 0,
                ask: QuestionKind::Bid,
                asked: Vec::new(),
                answers: Vec::new(),
                void: false,
                info_bytes: sizes::info(&instance.request, instance.index),
                run_bytes: sizes::run(&instance.request, instance.index),
            };
            let cells = &mut self.classes[instance.class];
            let step = open
                .auction
                .next_round(&self.settings.rules, cells, &mut self.choice);
            self.take_step(number, open, Some(step));
        }
    }

    fn take_step(&mut self, number: u32, mut open: OpenAuction, step: Option<Step>) {
        self.instances[number as usize].rounds = open.auction.rounds;
        match step {
            Some(Step::Ask(ask, cells)) => {
                open.step += 1;
                open.ask = ask;
                let (until_us, lost) = self.send(number, &open, ask, &cells);
                open.void = lost;
                open.asked = cells;
                open.answers.clear();
                self.open.insert(number, open);
                self.events
                    .add(until_us, Event::Continue { instance: number });
                return;
            }
            Some(Step::GiveUp) => self.fail(number, NO_ROOM),
            None if open.void => self.fail(number, NEVER_RAN),
            None => {}
        }
        self.auctioneers[open.auctioneer].busy -= 1;
        self.begin_auctions(open.auctioneer);
    }

    fn arrive(&mut self, question: Question) {
        let Question {
            instance: number,
            cell,
            ask,
            ..
        } = question;
        let instance = &self.instances[number as usize];
        let rep = &mut self.reps[cell as usize];
        let sizes = self.answer_bytes[cell as usize];
        let bid = match ask {
            QuestionKind::Bid => rep.bid(&instance.request, instance.app),
            // one reservation per instance: a release of an earlier one is still in transit
            QuestionKind::Reserve if self.held.contains(&(number, cell)) => None,
            QuestionKind::Reserve => {
                let bid = rep.reserve(&instance.request, instance.app);
                if bid.is_some() {
                    self.held.insert((number, cell));
                }
                bid
            }
            QuestionKind::Release => {
                if self.held.remove(&(number, cell)) {
                    rep.release(&instance.request, instance.app);
                }
                None
            }
            QuestionKind::Run => {
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
            (QuestionKind::Release | QuestionKind::Run, _) => sizes.ok,
            (_, Some(_)) => sizes.bid,
            (_, None) => sizes.no_room,
        };
        self.count(
            MessageKind::answer(ask),
            bytes,
            question.answering != Answering::Lost,
        );
        if question.answering == Answering::InTime
            && let Some(open) = self.open.get_mut(&number)
            && open.step == question.step
        {
            open.answers.push(Answer { cell, bid });
        }
    }

    #[allow(clippy::cast_possible_truncation)] // no more placements than instances
    fn place(&mut self, number: u32, cell: u32, busy_us: u64) {
        let placement = self.placements.len() as u32;
        let instance = &mut self.instances[number as usize];
        instance.state = State::Placed(placement);
        let (stop, lifetime_us) = (instance.stop, instance.lifetime_us);
        self.placements.push(AuctionPlacement {
            request: Arc::clone(&instance.request),
            index: instance.index,
            cell,
            at_us: self.now_us,
            wait_us: self.now_us - instance.asked_us,
            rounds: instance.rounds,
            communications: instance.communications,
            ended_us: None,
        });
        if let Some(lifetime_us) = lifetime_us {
            let ends_us = (self.now_us + busy_us).saturating_add(lifetime_us);
            self.events.add(ends_us, Event::End { placement });
        }
        if stop {
            self.stop_placed(number, placement);
        }
    }

    /// Continues an auction whose answers have arrived or are too late.
    fn proceed(&mut self, number: u32) {
        let Some(mut open) = self.open.remove(&number) else {
            return;
        };
        if open.ask == QuestionKind::Reserve {
            self.release_unanswered(number, &open);
        }
        let cells = &mut self.classes[self.instances[number as usize].class];
        let rules = &self.settings.rules;
        let step = open
            .auction
            .answered(rules, &open.answers, cells, &mut self.choice);
        self.take_step(number, open, step);
    }

    fn fail(&mut self, number: u32, reason: &'static str) {
        let instance = &mut self.instances[number as usize];
        instance.state = State::Over;
        if instance.stop {
            self.cancelled += 1;
            return;
        }
        self.failures.push(AuctionFailure {
            request: Arc::clone(&instance.request),
            index: instance.index,
            at_us: self.now_us,
            rounds: instance.rounds,
            communications: instance.communications,
            reason,
        });
    }

    /// Stops instances of an app. Waiting instances get no auction; those in an auction are stopped after it.
    fn stop(&mut self, app: u32, indices: &[u32]) {
        let mut numbers = self.instances_of.remove(&app).unwrap_or_default();
        for number in &numbers {
            let instance = &mut self.instances[*number as usize];
            if !indices.is_empty() && !indices.contains(&instance.index) {
                continue;
            }
            match instance.state {
                State::Waiting => {
                    instance.state = State::Over;
                    self.cancelled += 1;
                }
                State::Auction => instance.stop = true,
                State::Placed(placement) => self.stop_placed(*number, placement),
                State::Over => {}
            }
        }
        numbers.retain(|number| self.instances[*number as usize].state != State::Over);
        self.instances_of.insert(app, numbers);
    }

    fn stop_placed(&mut self, number: u32, placement: u32) {
        let instance = &mut self.instances[number as usize];
        instance.state = State::Over;
        let bytes = sizes::stop(&instance.request, instance.index);
        let cell = self.placements[placement as usize].cell;
        let ok = self.answer_bytes[cell as usize].ok;
        let there_us = self.settings.network.latency.sample_us(&mut self.network);
        self.count(MessageKind::Stop, bytes, true);
        self.count(MessageKind::StopAnswer, ok, true);
        self.events
            .add(self.now_us + there_us, Event::End { placement });
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

    fn result(self, until_ms: Option<u64>) -> AuctionsResult {
        let undecided =
            |instance: &&Instance| matches!(instance.state, State::Waiting | State::Auction);
        let waiting = self.instances.iter().filter(undecided).count() as u64;
        let leaked = self
            .held
            .iter()
            .filter(|(instance, _)| !self.open.contains_key(instance));
        let leaked = leaked.count() as u64;
        let mut cells = self.cells.to_vec();
        for placement in self.placements.iter().filter(|p| p.ended_us.is_none()) {
            cells[placement.cell as usize].debit(&placement.request, None);
        }
        for ((cell, before), rep) in cells.iter_mut().zip(self.cells).zip(&self.reps) {
            cell.counts.starting = before.counts.starting;
            cell.available = rep.available().clone();
        }
        let named = MessageKind::NAMES
            .iter()
            .zip(self.messages)
            .filter(|(_, traffic)| traffic.sent > 0);
        AuctionsResult {
            placements: self.placements,
            failures: self.failures,
            cancelled: self.cancelled,
            waiting,
            auctions: self.auctions,
            leaked,
            messages: named
                .map(|(name, traffic)| ((*name).to_owned(), traffic))
                .collect(),
            cells,
            ended_ms: until_ms.unwrap_or(self.now_us.div_ceil(1000)),
        }
    }
}

/// Returns an app's number, which is assigned when it is first named.
fn number(numbers: &mut BTreeMap<String, u32>, app: &str) -> u32 {
    if let Some(number) = numbers.get(app) {
        return *number;
    }
    let number = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    numbers.insert(app.to_owned(), number);
    number
}
