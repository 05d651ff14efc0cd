//! Queries that change nothing: dry runs, past decisions, the pool, queued work, capacity.

use std::{collections::BTreeSet, sync::Arc};

use placement::{DecisionReport, Explain, Invalid, Job, PlanContext, Pool, Report};
use shared::{
    VERSION,
    wire::{
        CapacityAnswer, Expected, ExplainAnswer, ExplainRequest, Page, PlaceAnswer, PoolAnswer,
        PoolCell, QueuedRequest, WireError, code, to_bytes,
    },
};

use crate::{
    feed::Feed,
    ids::ReplyKey,
    io::{AdmittedRequest, DryRun},
    parts::Parts,
    queued,
    requests::MAX_BATCH,
};

/// Cells on one page of the pool: the default and the maximum.
const PAGE: usize = 500;
/// The most jobs that an explanation decides again.
const MAX_EXPLAINED_JOBS: usize = 10;
/// Bytes reserved in an answer for everything besides its list.
const ENVELOPE_BYTES: usize = 512;
/// The most cells that a dry run may add.
const MAX_ADDED: usize = 10_000;

/// Answers a dry run over the current pool: nothing is debited, nothing is sent.
pub(crate) fn dry_run(parts: &mut Parts, dry_run: &DryRun, reply: ReplyKey) {
    let answer = decide(parts, dry_run);
    parts.turn.reply(Some(reply), answer);
}

fn decide(parts: &mut Parts, dry_run: &DryRun) -> Result<bytes::Bytes, WireError> {
    let jobs = dry_run.requests.iter().flat_map(|r| r.request.jobs());
    let jobs: Vec<Job> = jobs.collect();
    if jobs.len() > MAX_BATCH {
        let message = format!(
            "{} instances; a dry run accepts at most {MAX_BATCH}",
            jobs.len()
        );
        return Err(invalid("instances", message));
    }
    let mut context = plan_context(parts, dry_run.explain);
    // copied only if cells are added or left out: a pool may have 50,000 cells
    let mut other = other_pool(&parts.feed, dry_run)?;
    let policy = &parts.settings.policy;
    // decided over the pool itself, whose indices are already built; a plan does not change it
    let pool = other.as_mut().unwrap_or(parts.feed.pool_mut());
    // the dry run may leave out a cell that is silent
    context.absent.retain(|name| pool.get(name).is_some());
    loop {
        let plan = pool.plan(&jobs, policy, &context);
        let warnings = dry_run.requests.iter().flat_map(|r| r.warnings.clone());
        let body = to_bytes(&PlaceAnswer {
            v: VERSION,
            auctioneer: parts.settings.name.clone(),
            policy: policy.name().to_owned(),
            cells: pool.len(),
            decisions: Report::new(&jobs, plan).decisions,
            warnings: warnings.collect(),
        });
        if body.len() <= parts.turn.max_payload {
            return Ok(body);
        }
        // if the answer does not fit, its explanation is shortened
        context.explain = match context.explain {
            Explain::Cells => Explain::Stages,
            Explain::Stages => Explain::Finalists,
            Explain::Finalists => Explain::Winner,
            Explain::Winner => {
                let bytes = body.len();
                let message = format!("the answer has {bytes} bytes; ask for less at a time");
                return Err(WireError::new(code::OVERLOADED, message));
            }
        };
    }
}

/// Returns the context that a decision for a query depends on.
fn plan_context(parts: &mut Parts, explain: Explain) -> PlanContext {
    PlanContext {
        seed: parts.random.draw(),
        now_ms: parts.wall_ms(),
        absent: absent(&mut parts.feed, parts.turn.now_ms),
        explain,
        ..PlanContext::default()
    }
}

/// Returns the cells that an auction would leave out: unreachable or silent ones. If all are, an auction waits for all
/// again.
fn absent(feed: &mut Feed, now_ms: u64) -> BTreeSet<Arc<str>> {
    let mut absent = feed.unreachable(now_ms);
    let mut cells = feed.cells();
    if cells.any(|(name, known)| !known.silent && !absent.contains(name)) {
        let silent = feed.cells().filter(|(_, known)| known.silent);
        absent.extend(silent.map(|(name, _)| Arc::clone(name)));
    }
    absent
}

/// Returns the pool with the cells that the dry run adds and without those that it leaves out; none if it does neither.
fn other_pool(feed: &Feed, dry_run: &DryRun) -> Result<Option<Pool>, WireError> {
    // each count is capped before adding: the sum cannot overflow
    let counts = dry_run.add_cells.iter().map(|a| a.count.min(MAX_ADDED + 1));
    let count: usize = counts.sum();
    if count > MAX_ADDED {
        let message = format!("add_cells: {count} cells; at most {MAX_ADDED}");
        return Err(invalid("add_cells", message));
    }
    if dry_run.add_cells.is_empty() && dry_run.without.is_empty() {
        return Ok(None);
    }
    let mut pool = feed.pool().clone();
    for add in &dry_run.add_cells {
        // at most what was counted above
        let count = u32::try_from(add.count).unwrap_or(u32::MAX);
        pool.add_like(&add.like, count)
            .map_err(|e| invalid("add_cells.like", format!("add_cells.{e}")))?;
    }
    for name in &dry_run.without {
        if pool.get(name).is_none() {
            let expected = "cells that this auctioneer knows, each once";
            return Err(Invalid::new("without", format!("{name:.140?}"), expected).into());
        }
        pool.remove(name);
    }
    Ok(Some(pool))
}

/// Answers a query for the last decisions about an app.
pub(crate) fn explain(parts: &mut Parts, explain: &ExplainRequest, reply: ReplyKey) {
    let now_ms = parts.turn.now_ms;
    let policy = &parts.settings.policy;
    let mut answer = ExplainAnswer {
        v: VERSION,
        app: explain.app.clone(),
        auctioneer: parts.settings.name.clone(),
        auctions: parts.past_auctions.of_app(now_ms, policy, &explain.app),
        now: Vec::new(),
    };
    if explain.cells {
        answer.now = decide_again(parts, &explain.app);
    }
    let mut body = to_bytes(&answer);
    let fits = |body: &bytes::Bytes| body.len() <= parts.turn.max_payload;
    if !fits(&body) {
        // the new decisions name every cell and are the largest part: they are cut first
        answer.now.truncate(1);
        body = to_bytes(&answer);
    }
    if !fits(&body) {
        answer.now.clear();
        body = to_bytes(&answer);
    }
    while !fits(&body) && !answer.auctions.is_empty() {
        // the oldest auctions are dropped first, then decisions of the last one
        if answer.auctions.len() > 1 {
            answer.auctions.pop();
        } else if let Some(last) = answer.auctions.first_mut() {
            let half = last.decisions.len() / 2;
            last.decisions.truncate(half);
            if half == 0 {
                answer.auctions.clear();
            }
        }
        body = to_bytes(&answer);
    }
    parts.turn.reply(Some(reply), Ok(body));
}

/// Decides the app's last jobs again over the current pool, with full explanations.
fn decide_again(parts: &mut Parts, app: &str) -> Vec<DecisionReport> {
    let jobs = parts.past_auctions.last_jobs(app, MAX_EXPLAINED_JOBS);
    let context = plan_context(parts, Explain::Cells);
    let policy = &parts.settings.policy;
    // with the plain engine, which gives every cell's reason; the fast engines skip that
    let plan = parts.feed.pool().plan_plainly(&jobs, policy, &context);
    Report::new(&jobs, plan).decisions
}

/// Answers a query for the work queued here.
pub(crate) fn queued(parts: &mut Parts, asked: &QueuedRequest, reply: ReplyKey) {
    let name = &parts.settings.name;
    let (now_ms, max_bytes) = (parts.turn.now_ms, parts.turn.max_payload);
    let answer = queued::answer(name, parts.requests.tickets(), asked, now_ms, max_bytes);
    parts.turn.reply(Some(reply), Ok(to_bytes(&answer)));
}

/// Answers how many more instances of a size fit into the current pool: nothing is debited, nothing is sent.
pub(crate) fn capacity(parts: &mut Parts, asked: &AdmittedRequest, reply: ReplyKey) {
    let context = plan_context(parts, Explain::Winner);
    let (pool, policy) = (parts.feed.pool(), &parts.settings.policy);
    let (work, requests) = pool.expected(policy);
    let expects = policy.expects();
    let body = to_bytes(&CapacityAnswer {
        v: VERSION,
        auctioneer: parts.settings.name.clone(),
        policy: policy.name().to_owned(),
        cells: pool.len() - context.absent.len(),
        capacity: pool.capacity(&asked.request, policy, &context),
        expected: expects.then(|| Expected {
            requests,
            sizes: work.sizes().to_vec(),
        }),
        warnings: asked.warnings.clone(),
    });
    parts.turn.reply(Some(reply), Ok(body));
}

/// Answers a query for a page of the pool, sorted by name.
pub(crate) fn pool(parts: &mut Parts, page: &Page, reply: ReplyKey) {
    let (feed, now_ms) = (&parts.feed, parts.turn.now_ms);
    let limit = page.limit.unwrap_or(PAGE).clamp(1, PAGE);
    let mut cells = Vec::new();
    let mut bytes = ENVELOPE_BYTES;
    for (name, known) in feed.cells().skip(page.offset).take(limit) {
        let Some(cell) = feed.pool().get(name) else {
            continue;
        };
        let cell = PoolCell {
            cell: cell.clone(),
            incarnation: known.incarnation,
            seq: known.seq,
            age_ms: now_ms.saturating_sub(known.reported_at_ms),
            left_ms: feed.left_ms(known),
            debits: known.debits.len(),
            silent: known.silent,
        };
        bytes += to_bytes(&cell).len() + 1;
        // at least one cell: an empty page would mean that there are no more
        if bytes > parts.turn.max_payload && !cells.is_empty() {
            break;
        }
        cells.push(cell);
    }
    let total = feed.pool().len();
    let end = page.offset.saturating_add(cells.len());
    let answer = PoolAnswer {
        v: VERSION,
        auctioneer: parts.settings.name.clone(),
        policy: parts.settings.policy.name().to_owned(),
        total,
        next: (end < total && !cells.is_empty()).then_some(end),
        cells,
    };
    parts.turn.reply(Some(reply), Ok(to_bytes(&answer)));
}

fn invalid(field: &str, message: String) -> WireError {
    WireError {
        field: Some(field.to_owned()),
        ..WireError::new(code::INVALID_REQUEST, message)
    }
}
