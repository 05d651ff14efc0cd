//! Holding auctions: asking for bids, drawing up the batch, planning it, sending what won.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use placement::{Decision, Explain, Job, PlanContext, Run, Unplaced, Verdict};
use shared::{
    VERSION,
    wire::{CellStart, Event, Outcome, Work, format_indices, kind, to_bytes},
};

use crate::{
    DispatchId, HashMap, HashSet,
    auction::{
        Asking, Auctioneer, BID_WAIT_MS, Dispatch, GATHER_MS, MAX_BATCH, REQUEUE_MS,
        START_EXPIRES_MS, START_WAIT_MS,
    },
    feed::Debit,
    io::AuctioneerOutput,
    report::{Line, Lines},
    ring::{Past, PastDecision},
    ticket::{Done, Slot, State, because},
};
use shared::{AuctionId, InstanceId, RequestId};

/// The jobs of one auction.
struct Batch {
    auction: AuctionId,
    seed: u64,
    slots: Vec<Slot>,
    jobs: Vec<Job>,
    /// Where instances run that `near` and `far` name.
    located: BTreeMap<String, Arc<str>>,
}

/// The requests of one app that a batch begins: their ids, and all their instances' indices.
type Begun = (Vec<RequestId>, Vec<u32>);

impl Asking {
    fn answered_by(&self, cell: &Arc<str>) -> bool {
        let counted = self.all_but.as_ref();
        counted.is_some_and(|except| !except.contains(cell)) || self.answered.contains(cell)
    }
}

impl Auctioneer {
    /// Begins an auction when there is work, and ends it when the bids are in.
    pub(crate) fn hold_auction(&mut self, now_ms: u64) {
        if self.asking.is_none() && self.waiting_count > self.held_count && self.gathered(now_ms) {
            let auction = self.new_id();
            if !self.settings.policy.wants_bids() {
                return self.decide(now_ms, auction, Vec::new());
            }
            self.ask(now_ms, auction);
        }
        let over = self
            .asking
            .as_ref()
            .is_some_and(|asking| asking.missing.is_empty() || now_ms >= asking.until_ms);
        if let (true, Some(asking)) = (over, self.asking.take_if(|_| over)) {
            for cell in &asking.missing {
                self.feed.missed_bid(cell, &mut self.counters);
            }
            let mut no_bid = Vec::new();
            if asking.answered.len() < self.feed.pool().len() {
                let names = self.feed.cells().map(|(name, _)| name);
                let silent = names.filter(|name| !asking.answered_by(name));
                no_bid = silent.map(Arc::clone).collect();
            }
            self.decide(now_ms, asking.auction, no_bid);
        }
    }

    /// Whether the next auction may begin: it gathers work while starts are on their way.
    fn gathered(&mut self, now_ms: u64) -> bool {
        let enough = self.leaving || self.waiting_count - self.held_count >= MAX_BATCH;
        if !self.settings.policy.wants_bids() && !self.dispatches.is_empty() && !enough {
            let until_ms = *self.gather_until_ms.get_or_insert(now_ms + GATHER_MS);
            if now_ms < until_ms {
                return false;
            }
        }
        self.gather_until_ms = None;
        true
    }

    fn ask(&mut self, now_ms: u64, auction: AuctionId) {
        let present =
            |(_, known): &(&Arc<str>, &crate::feed::Known)| known.absent_until_ms <= now_ms;
        let live = self.feed.cells().filter(present);
        let mut missing: BTreeSet<Arc<str>> = live
            .filter(|(_, known)| !known.silent)
            .map(|(name, _)| Arc::clone(name))
            .collect();
        if missing.is_empty() {
            // when all were silent it may have been us: then everybody is waited for again
            let live = self.feed.cells().filter(present);
            missing = live.map(|(name, _)| Arc::clone(name)).collect();
        }
        if !missing.is_empty() {
            self.out.push(AuctioneerOutput::AskBids { auction });
        }
        self.asking = Some(Asking {
            auction,
            missing,
            answered: HashSet::default(),
            all_but: None,
            until_ms: now_ms + BID_WAIT_MS,
        });
    }

    /// Work that waits for room comes back when the pool has changed.
    pub(crate) fn requeue(&mut self, now_ms: u64) {
        if self.held_count == 0
            || self.feed.version() == self.held_version
            || now_ms < self.requeued_ms + REQUEUE_MS
        {
            return;
        }
        self.held_version = self.feed.version();
        self.requeued_ms = now_ms;
        for slot in std::mem::take(&mut self.held) {
            if matches!(self.state(slot), Some(State::Held(_))) {
                self.set_state(slot, State::Waiting);
                self.waiting.push_back(slot);
            }
        }
    }

    /// The batch is drawn up only now: what came while bids were awaited takes part.
    fn decide(&mut self, now_ms: u64, auction: AuctionId, no_bid: Vec<Arc<str>>) {
        let seed = self.draw();
        let mut batch = self.draw_up(auction, seed);
        if batch.jobs.is_empty() {
            return;
        }
        self.announce(&batch);
        let mut absent = self.feed.away(now_ms);
        absent.extend(no_bid);
        let cells = self.feed.pool().len() - absent.len();
        let wall_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        let draw = PlanContext {
            seed,
            auction: auction.as_u128(),
            now_ms: self.settings.wall_start_ms.saturating_add(wall_ms),
            absent,
            instances: std::mem::take(&mut batch.located),
            explain: Explain::Winner,
            ..PlanContext::default()
        };
        let plan = self
            .feed
            .pool_mut()
            .plan(&batch.jobs, &self.settings.policy, &draw);
        self.counters.auctions += 1;
        self.counters.jobs += batch.jobs.len() as u64;
        let [placed, queued, unplaced] = self.carry_out(now_ms, &batch, plan.decisions, cells);
        self.out.push(AuctioneerOutput::AuctionHeld {
            auction,
            seed,
            jobs: batch.jobs.len(),
            cells,
            placed,
            queued,
            unplaced,
        });
    }

    fn draw_up(&mut self, auction: AuctionId, seed: u64) -> Batch {
        let mut batch = Batch {
            auction,
            seed,
            slots: Vec::new(),
            jobs: Vec::new(),
            located: BTreeMap::new(),
        };
        while batch.jobs.len() < MAX_BATCH {
            let Some(slot) = self.waiting.pop_front() else {
                break;
            };
            let Some(ticket) = self.tickets.get_mut(&slot.ticket) else {
                continue;
            };
            let instance = &ticket.instances[slot.position];
            if matches!(instance.state, State::Waiting) {
                ticket.auction = Some(auction);
                batch
                    .located
                    .extend(ticket.located.iter().flatten().cloned());
                batch.slots.push(slot);
                batch.jobs.push(Job {
                    request: Arc::clone(&ticket.request),
                    index: instance.index,
                });
            }
        }
        batch
    }

    /// Says which requests are begun: one event for each app.
    fn announce(&mut self, batch: &Batch) {
        let mut apps: BTreeMap<Arc<str>, Begun> = BTreeMap::new();
        for slot in &batch.slots {
            let Some(ticket) = self.tickets.get_mut(&slot.ticket) else {
                continue;
            };
            if std::mem::replace(&mut ticket.announced, true) {
                continue;
            }
            let (id, indices) = (ticket.id.clone(), ticket.instances.iter().map(|i| i.index));
            let indices: Vec<u32> = indices.collect();
            let entry = apps.entry(Arc::clone(&ticket.app)).or_default();
            entry.0.push(id);
            entry.1.extend(indices);
        }
        let most = self.settings.max_payload / 2;
        for (app, (ids, indices)) in apps {
            let mut event = Event::app(kind::ASKED, app.as_ref());
            event.auction = Some(batch.auction);
            event.count = indices.len();
            event.indices = Some(format_indices(indices));
            if let [id] = ids.as_slice() {
                event.request = Some(id.clone());
            } else {
                let mut bytes = 0;
                let fits = ids.iter().take_while(|id| {
                    bytes += id.as_str().len() + 3;
                    bytes <= most
                });
                event.requests = fits.cloned().collect();
            }
            self.event(event);
        }
    }

    fn carry_out(
        &mut self,
        now_ms: u64,
        batch: &Batch,
        decisions: Vec<Decision>,
        cells: usize,
    ) -> [usize; 3] {
        let mut past = Vec::with_capacity(decisions.len());
        let mut winners: BTreeMap<Arc<str>, Vec<usize>> = BTreeMap::new();
        let mut unplaced: BTreeMap<(&'static str, Arc<str>), Lines> = BTreeMap::new();
        let (mut placed, mut queued, mut given_up) = (0, 0, 0);
        // first of all, while every request of the batch is still on its way
        for decision in &decisions {
            if let Verdict::Duplicate { of } = decision.verdict {
                self.share(batch.slots[decision.job], batch.slots[of]);
            }
        }
        for decision in decisions {
            let slot = batch.slots[decision.job];
            let job = &batch.jobs[decision.job];
            let mut record = PastDecision {
                job: job.clone(),
                cell: None,
                value: decision.value,
                why: None,
            };
            match decision.verdict {
                Verdict::Placed { cell } => {
                    placed += 1;
                    record.cell = Some(Arc::clone(&cell));
                    winners.entry(cell).or_default().push(decision.job);
                }
                Verdict::Unplaced(why) => {
                    let why: Arc<Unplaced> = Arc::from(why);
                    record.why = Some(Arc::clone(&why));
                    let app = self.app_of(slot);
                    if let (Some(app), Some((kind, line))) = (app, self.no_room(now_ms, slot, why))
                    {
                        unplaced.entry((kind, app)).or_default().add(line);
                    }
                    match self.state(slot) {
                        Some(State::Held(_)) => queued += 1,
                        _ => given_up += 1,
                    }
                }
                Verdict::Duplicate { .. } => continue,
            }
            past.push(record);
        }
        for ((kind, app), lines) in unplaced {
            self.event(lines.event(kind, &app, Some(batch.auction)));
        }
        self.ring.add(Past {
            auction: batch.auction,
            seed: batch.seed,
            at_ms: now_ms,
            cells,
            decisions: past,
            told: HashMap::default(),
        });
        for (cell, jobs) in winners {
            self.send(now_ms, batch, &cell, &jobs);
        }
        [placed, queued, given_up]
    }

    /// It fits nowhere: it waits if it may, and is told of once.
    fn no_room(
        &mut self,
        now_ms: u64,
        slot: Slot,
        why: Arc<Unplaced>,
    ) -> Option<(&'static str, Line)> {
        let ticket = self.tickets.get_mut(&slot.ticket)?;
        let instance = &mut ticket.instances[slot.position];
        let line = Line {
            request: ticket.id.clone(),
            index: instance.index,
            instance: instance.id,
            cell: None,
            why: Some(Arc::clone(&why)),
        };
        if ticket.queue_end_ms <= now_ms || self.leaving {
            self.finish(now_ms, slot, Done::unplaced(why));
            return Some((kind::UNPLACED, line));
        }
        let first = !std::mem::replace(&mut instance.queued, true);
        if self.held_count == 0 {
            self.held_version = self.feed.version();
        }
        self.set_state(slot, State::Held(why));
        self.held.push_back(slot);
        first.then_some((kind::QUEUED, line))
    }

    /// The same instance as another request's: it shares that one's outcome.
    fn share(&mut self, slot: Slot, first: Slot) {
        if let Some(ticket) = self.tickets.get_mut(&first.ticket) {
            ticket.instances[first.position].sharers.push(slot);
            self.set_state(slot, State::Shares);
        }
    }

    /// Sends a cell its share of the batch, in as few messages as max_payload allows.
    fn send(&mut self, now_ms: u64, batch: &Batch, cell: &Arc<str>, jobs: &[usize]) {
        let Some(known) = self.feed.get(cell) else {
            return; // planned over the pool, which holds the known cells alone
        };
        let start = CellStart {
            v: VERSION,
            auction: batch.auction,
            incarnation: known.incarnation,
            expires_ms: self
                .feed
                .expires_ms(cell, now_ms, Duration::from_millis(START_EXPIRES_MS)),
            work: Vec::new(),
        };
        let mut work = Vec::with_capacity(jobs.len());
        let mut sent = Vec::with_capacity(jobs.len());
        for &n in jobs {
            let (slot, job) = (batch.slots[n], &batch.jobs[n]);
            let Some(ticket) = self.tickets.get(&slot.ticket) else {
                continue;
            };
            let instance = &ticket.instances[slot.position];
            let (id, check) = (instance.id, instance.changed < 2);
            let run = ticket.run.clone();
            work.push(self.work(cell, job, id, check, run));
            sent.push((slot, id));
            let debit = Debit {
                instance: id,
                job: job.clone(),
                answered_seq: None,
                expires_ms: start.expires_ms,
            };
            self.feed.debit(cell, debit);
        }
        self.dispatch(now_ms, cell, start, work, sent);
    }

    fn work(
        &self,
        cell: &str,
        job: &Job,
        instance: InstanceId,
        check: bool,
        run: Option<Arc<Run>>,
    ) -> Work {
        let request = &job.request;
        let here = self.feed.pool().get(cell);
        let lrp = request.kind == placement::Kind::Lrp;
        let believed = here
            .filter(|_| lrp && check)
            .map(|cell| cell.count_of(&request.app));
        Work {
            instance,
            kind: request.kind,
            app: request.app.clone(),
            index: job.index,
            memory_mb: request.memory_mb,
            disk_mb: request.disk_mb,
            cpu_millis: request.cpu_millis,
            extra: request.extra.clone(),
            owner: request.owner.clone(),
            tags: request.tags.clone(),
            believed,
            run,
        }
    }

    /// One message, or two halves when it is too large.
    fn dispatch(
        &mut self,
        now_ms: u64,
        cell: &Arc<str>,
        mut start: CellStart,
        work: Vec<Work>,
        mut sent: Vec<(Slot, InstanceId)>,
    ) {
        start.work = work;
        let body = to_bytes(&start);
        if body.len() <= self.settings.max_payload {
            return self.dispatch_one(now_ms, cell, start.auction, body, sent);
        }
        let half = sent.len() / 2;
        if half == 0 {
            let id = sent[0].1;
            self.feed.undebit(cell, &[id]);
            let reason = format!(
                "its start has {} bytes; the server takes {}",
                body.len(),
                self.settings.max_payload
            );
            let why = because(reason);
            let told = (Outcome::Unplaced, Arc::clone(&why));
            self.ring.told(start.auction, id, told);
            return self.give_up(now_ms, sent[0].0, why);
        }
        let mut work = std::mem::take(&mut start.work);
        let (later_work, later) = (work.split_off(half), sent.split_off(half));
        self.dispatch(now_ms, cell, start.clone(), work, sent);
        self.dispatch(now_ms, cell, start, later_work, later);
    }

    fn dispatch_one(
        &mut self,
        now_ms: u64,
        cell: &Arc<str>,
        auction: AuctionId,
        body: Bytes,
        sent: Vec<(Slot, InstanceId)>,
    ) {
        let dispatch = DispatchId::new(self.key());
        for (slot, _) in &sent {
            self.set_state(*slot, State::Sent);
            if let Some(app) = self.app_of(*slot) {
                self.reports.sent(auction, app);
            }
        }
        self.counters.starts_sent += 1;
        self.dispatch_ends
            .push_back((now_ms + START_WAIT_MS, dispatch.number()));
        self.dispatches.insert(
            dispatch.number(),
            Dispatch {
                cell: Arc::clone(cell),
                auction,
                jobs: sent,
            },
        );
        self.out.push(AuctioneerOutput::Start {
            dispatch,
            cell: Arc::clone(cell),
            body,
        });
    }
}
