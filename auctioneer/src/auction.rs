//! One auction: assembles its batch, decides it, and sends the placed instances to their cells.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use placement::{
    Decision, DeviceNeed, DeviceShare, DeviceShares, FastMap, Job, PlanContext, Request, Unplaced,
    Verdict,
};
use shared::{
    VERSION,
    clock::millis,
    wire::{CellStart, Event, Outcome, Work, format_indices, kind, to_bytes},
};

use crate::{
    dispatches::Dispatch,
    feed::Debit,
    io::AuctioneerOutput,
    parts::Parts,
    past_auctions::{PastAuction, PastDecision},
    report::{Line, Lines},
    requests::MAX_BATCH,
    ticket::{Done, Slot, because},
};
use shared::{AuctionId, InstanceId, RequestId};

/// How long a cell still accepts a start after it was sent.
pub const START_EXPIRES_MS: u64 = 5_000;
/// After this many refusals because the cell ran more of the app than expected, the next start carries no `believed`:
/// otherwise the instance might never be placed.
const MAX_CHANGED: u8 = 2;

/// The jobs of one auction.
struct Batch {
    auction: AuctionId,
    seed: u64,
    slots: Vec<Slot>,
    jobs: Vec<Job>,
    /// Where the instances named in `near` and `far` run.
    located: BTreeMap<String, Arc<str>>,
}

/// The outcomes of an auction's jobs.
#[derive(Default)]
struct Counts {
    placed: usize,
    queued: usize,
    unplaced: usize,
}

/// A batch that has been decided but not sent yet.
pub(crate) struct Planned {
    batch: Batch,
    decisions: Vec<Decision>,
    /// How many cells took part.
    cells: usize,
}

impl std::fmt::Debug for Planned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Planned({} jobs)", self.batch.jobs.len())
    }
}

/// A job of the batch that a cell won, and the devices that it gets there.
type Won = (usize, Option<Box<DeviceShares>>);

/// The requests of one app that enter their first auction: their ids, and the indices of all their instances.
type NewRequests = (Vec<RequestId>, Vec<u32>);

/// Decides an auction without the cells that did not bid. The batch is assembled only now, so that work that arrived
/// during the wait for bids takes part.
pub(crate) fn decide(
    parts: &mut Parts,
    auction: AuctionId,
    no_bid: Vec<Arc<str>>,
) -> Option<Planned> {
    let seed = parts.random.draw();
    let mut batch = draw_up(parts, auction, seed);
    if batch.jobs.is_empty() {
        return None;
    }
    // before anything is decided or sent: if two auctioneers have the same request, one must give way in time
    announce(parts, &batch);
    let mut absent: BTreeSet<Arc<str>> = parts.feed.unreachable(parts.turn.now_ms);
    // cells that did not bid stay in the pool; only this auction leaves them out
    absent.extend(no_bid);
    let cells = parts.feed.pool().len() - absent.len();
    let context = PlanContext {
        seed,
        auction: auction.as_u128(),
        now_ms: parts.wall_ms(),
        absent,
        instances: std::mem::take(&mut batch.located),
        ..PlanContext::default()
    };
    let pool = parts.feed.pool_mut();
    let plan = pool.plan(&batch.jobs, &parts.settings.policy, &context);
    parts.turn.counters.auctions += 1;
    parts.turn.counters.jobs += batch.jobs.len() as u64;
    Some(Planned {
        batch,
        decisions: plan.decisions,
        cells,
    })
}

/// Sends what was decided. Starts expire relative to now, because deciding may have taken long.
pub(crate) fn send_planned(parts: &mut Parts, planned: Planned) {
    let Planned {
        batch,
        decisions,
        cells,
    } = planned;
    let counts = carry_out(parts, &batch, decisions, cells);
    parts.turn.out.push(AuctioneerOutput::AuctionHeld {
        auction: batch.auction,
        seed: batch.seed,
        jobs: batch.jobs.len(),
        cells,
        placed: counts.placed,
        queued: counts.queued,
        unplaced: counts.unplaced,
    });
}

fn draw_up(parts: &mut Parts, auction: AuctionId, seed: u64) -> Batch {
    let mut batch = Batch {
        auction,
        seed,
        slots: Vec::new(),
        jobs: Vec::new(),
        located: BTreeMap::new(),
    };
    // deciding a batch blocks, while answers and leases wait: the rest goes into the next batch
    while batch.jobs.len() < MAX_BATCH {
        let Some((slot, ticket)) = parts.requests.next_for(auction) else {
            break;
        };
        let located = ticket.located.iter().flatten();
        batch.located.extend(located.cloned());
        batch.slots.push(slot);
        batch.jobs.push(Job {
            request: Arc::clone(&ticket.request),
            index: ticket.instances[slot.position].index,
        });
    }
    batch
}

/// Announces new requests to the other auctioneers, so that they do not start them: one event per app.
fn announce(parts: &mut Parts, batch: &Batch) {
    let learns = parts.settings.policy.learns();
    // in the order of each app's first request
    let mut apps: Vec<(Arc<str>, NewRequests)> = Vec::new();
    let mut positions: FastMap<Arc<str>, usize> = FastMap::default();
    for slot in &batch.slots {
        let Some(ticket) = parts.requests.get_mut(slot.ticket) else {
            continue;
        };
        // announced by its first auction; in later auctions its work carries that claim
        if ticket.claim.is_some() {
            continue;
        }
        // whole requests are claimed, even if only some of their instances are in this batch
        ticket.claim = Some(batch.auction);
        if learns {
            // once per request, whatever becomes of it
            parts.feed.pool_mut().learn(&ticket.request);
        }
        let position = *positions.entry(Arc::clone(&ticket.app)).or_insert_with(|| {
            apps.push((Arc::clone(&ticket.app), NewRequests::default()));
            apps.len() - 1
        });
        let (ids, indices) = &mut apps[position].1;
        ids.push(ticket.id.clone());
        indices.extend(ticket.instances.iter().map(|i| i.index));
    }
    // half, because the indices and the rest of the event need room as well
    let max_bytes = parts.turn.max_payload / 2;
    for (app, (ids, indices)) in apps {
        let mut event = Event::app(kind::ASKED, app.as_ref());
        event.auction = Some(batch.auction);
        event.count = indices.len();
        event.indices = Some(format_indices(indices));
        if let [id] = ids.as_slice() {
            event.request = Some(id.clone());
        } else {
            let mut bytes = 0;
            // ids that do not fit are not announced: if two auctioneers begin one of them, their outcomes show it
            let fits = ids.into_iter().take_while(|id| {
                bytes += id.as_str().len() + 3;
                bytes <= max_bytes
            });
            event.requests = fits.collect();
        }
        parts.turn.event(event);
    }
}

fn carry_out(parts: &mut Parts, batch: &Batch, decisions: Vec<Decision>, cells: usize) -> Counts {
    let mut past = Vec::with_capacity(decisions.len());
    let mut winners: FastMap<Arc<str>, Vec<Won>> = FastMap::default();
    let mut unplaced: BTreeMap<(&'static str, Arc<str>), Lines> = BTreeMap::new();
    let mut counts = Counts::default();
    // first of all, while every request of the batch is still open
    for decision in &decisions {
        if let Verdict::Duplicate { of } = decision.verdict {
            let (slot, first) = (batch.slots[decision.job], batch.slots[of]);
            parts.requests.share(slot, first);
        }
    }
    for decision in decisions {
        let slot = batch.slots[decision.job];
        let mut record = PastDecision {
            job: batch.jobs[decision.job].clone(),
            cell: None,
            devices: None,
            rating: decision.rating,
            why: None,
        };
        match decision.verdict {
            Verdict::Placed { cell } => {
                counts.placed += 1;
                record.cell = Some(Arc::clone(&cell));
                record.devices.clone_from(&decision.devices);
                let won = (decision.job, decision.devices);
                winners.entry(cell).or_default().push(won);
            }
            Verdict::Unplaced(why) => {
                let why: Arc<Unplaced> = Arc::from(why);
                record.why = Some(Arc::clone(&why));
                let app = parts.requests.app_of(slot);
                let event = no_room(parts, slot, why, decision.deferred, &mut counts);
                if let (Some(app), Some((kind, line))) = (app, event) {
                    unplaced.entry((kind, app)).or_default().add(line);
                }
            }
            // it gets the outcome of the first, which is recorded
            Verdict::Duplicate { .. } => continue,
        }
        past.push(record);
    }
    for ((kind, app), lines) in unplaced {
        let event = lines.event(kind, &app, Some(batch.auction));
        parts.turn.event(event);
    }
    parts.past_auctions.add(PastAuction {
        auction: batch.auction,
        seed: batch.seed,
        at_ms: parts.turn.now_ms,
        cells,
        decisions: past,
        outcomes: FastMap::default(),
    });
    // sorted by cell name, so that the same seed sends in the same order
    let mut winners: Vec<(Arc<str>, Vec<Won>)> = winners.into_iter().collect();
    winners.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    for (cell, jobs) in winners {
        send(parts, batch, &cell, jobs);
    }
    counts
}

/// Handles a job that fits nowhere: queues it if its request allows that, and reports this once. Deferred work always
/// waits: until its queue timeout or its deadline, or without a queue timeout for as long as the policy says.
fn no_room(
    parts: &mut Parts,
    slot: Slot,
    why: Arc<Unplaced>,
    deferred: bool,
    counts: &mut Counts,
) -> Option<(&'static str, Line)> {
    let mut line = parts.requests.line(slot)?;
    line.why = Some(Arc::clone(&why));
    let ticket = parts.requests.get(slot.ticket)?;
    let queues = ticket.request.queue_timeout.is_some();
    if deferred && !queues {
        let most_ms = millis(parts.settings.policy.max_deferral().0);
        parts.requests.wait_for(slot.ticket, most_ms);
    }
    let ticket = parts.requests.get(slot.ticket)?;
    let waits_until_ms = match (deferred, queues) {
        (true, _) => ticket.queue_end_ms.max(ticket.deadline_ms),
        (false, true) => ticket.queue_end_ms,
        // it has at most a time for what was deferred
        (false, false) => 0,
    };
    // an auctioneer that is shutting down holds no further auction in which the job might fit
    if waits_until_ms <= parts.turn.now_ms || parts.requests.is_closing() {
        counts.unplaced += 1;
        let done = Done::unplaced(why);
        parts.requests.finish(&mut parts.turn, slot, done);
        return Some((kind::UNPLACED, line));
    }
    counts.queued += 1;
    let first = parts.requests.hold(slot, why, parts.feed.version());
    first.then_some((kind::QUEUED, line))
}

/// Sends a cell its part of the batch in as few messages as `max_payload` allows.
fn send(parts: &mut Parts, batch: &Batch, cell: &Arc<str>, jobs: Vec<Won>) {
    let now_ms = parts.turn.now_ms;
    let Some(known) = parts.feed.get(cell) else {
        return; // cannot happen: plans only use cells in the pool
    };
    let expires = Duration::from_millis(START_EXPIRES_MS);
    let start = CellStart {
        v: VERSION,
        auction: batch.auction,
        // a rep that has restarted since then refuses it: the plan was made for the earlier incarnation
        incarnation: known.incarnation,
        expires_ms: parts.feed.expires_ms(cell, now_ms, expires),
        work: Vec::new(),
    };
    let mut work = Vec::with_capacity(jobs.len());
    let mut sent = Vec::with_capacity(jobs.len());
    for (n, devices) in jobs {
        let (slot, job) = (batch.slots[n], &batch.jobs[n]);
        let Some((mut item, changed)) = work_of(parts, batch.auction, slot, job) else {
            continue;
        };
        item.devices = shares(&job.request, devices.as_deref());
        sent.push((slot, item.instance));
        let debit = Debit {
            instance: item.instance,
            job: job.clone(),
            devices,
            answered_seq: None,
            expires_ms: start.expires_ms,
        };
        let before = parts.feed.debit(cell, debit);
        item.believed = before.filter(|_| changed < MAX_CHANGED);
        work.push(item);
    }
    dispatch(parts, cell, start, work, sent);
}

/// Returns the devices that an instance was given. A device that it was not given (under a policy that ignores devices)
/// gets no numbers, so the cell refuses the instance.
fn shares(request: &Request, given: Option<&DeviceShares>) -> DeviceShares {
    let share = |(name, need): (&String, &DeviceNeed)| {
        let none = || DeviceShare {
            amount: need.amount.unwrap_or(1),
            numbers: Vec::new(),
        };
        let share = given.and_then(|given| given.get(name)).cloned();
        (name.clone(), share.unwrap_or_else(none))
    };
    request.devices.iter().map(share).collect()
}

/// Returns what the cell is sent of an instance, and how often a cell has refused that because it ran more of the app.
fn work_of(parts: &Parts, auction: AuctionId, slot: Slot, job: &Job) -> Option<(Work, u8)> {
    let ticket = parts.requests.get(slot.ticket)?;
    let instance = &ticket.instances[slot.position];
    let request = &job.request;
    let work = Work {
        instance: instance.id,
        kind: request.kind,
        app: request.app.clone(),
        index: job.index,
        memory_mb: request.memory_mb,
        disk_mb: request.disk_mb,
        cpu_millis: request.cpu_millis,
        extra: request.extra.clone(),
        devices: DeviceShares::new(),
        owner: request.owner.clone(),
        request: Some(ticket.id.clone()),
        version: request.version.clone(),
        traceparent: request.traceparent.clone(),
        tags: request.tags.clone(),
        // once the cell is debited, which tells how many it had before
        believed: None,
        run: ticket.run.clone(),
        health: request.health.clone(),
        ready: request.ready.clone(),
        // if absent, the claim is this auction, which the start names: most messages carry no claim
        claim: ticket.claim.filter(|claim| *claim != auction),
    };
    Some((work, instance.changed))
}

/// Sends one message, or splits it in two if it is too large.
fn dispatch(
    parts: &mut Parts,
    cell: &Arc<str>,
    mut start: CellStart,
    work: Vec<Work>,
    mut sent: Vec<(Slot, InstanceId)>,
) {
    start.work = work;
    let body = to_bytes(&start);
    let max_bytes = parts.turn.max_payload;
    if body.len() <= max_bytes {
        for (slot, _) in &sent {
            parts.requests.sent(*slot);
            if let Some(app) = parts.requests.app_of(*slot) {
                parts.reports.sent(start.auction, app);
            }
        }
        parts.turn.counters.starts_sent += 1;
        let (cell, auction) = (Arc::clone(cell), start.auction);
        let sent = Dispatch {
            cell: Arc::clone(&cell),
            auction,
            jobs: sent,
        };
        let dispatch = parts.dispatches.add(parts.turn.now_ms, sent);
        let start = AuctioneerOutput::Start {
            dispatch,
            cell,
            body,
        };
        return parts.turn.out.push(start);
    }
    let half = sent.len() / 2;
    if half == 0 {
        let (slot, instance) = sent[0];
        // debited when the message was assembled, but never sent
        parts.feed.undebit(cell, &[instance]);
        let bytes = body.len();
        let why = because(format!(
            "its start message has {bytes} bytes; the server accepts {max_bytes}"
        ));
        let outcome = (Outcome::Unplaced, Arc::clone(&why));
        parts
            .past_auctions
            .record_outcome(start.auction, instance, outcome);
        return parts.requests.give_up(&mut parts.turn, slot, why);
    }
    let mut work = std::mem::take(&mut start.work);
    let (later_work, later) = (work.split_off(half), sent.split_off(half));
    dispatch(parts, cell, start.clone(), work, sent);
    dispatch(parts, cell, start, later_work, later);
}
