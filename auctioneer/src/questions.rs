//! Questions that change nothing: dry runs, past decisions, the pool.

use std::{collections::BTreeSet, sync::Arc};

use placement::{DecisionReport, Invalid, Job, PlanContext, Pool, Report};
use shared::{
    VERSION,
    wire::{
        ExplainAnswer, ExplainRequest, Page, PlaceAnswer, PoolAnswer, PoolCell, QueuedRequest,
        WireError, code, to_bytes,
    },
};

use crate::ids::ReplyKey;
use crate::{
    auction::{Auctioneer, MAX_BATCH},
    io::{AuctioneerOutput, DryRun},
    queued,
};

/// Cells on one page of the pool, at most and unless asked for less.
const PAGE: usize = 500;
/// Jobs that an explanation judges again.
const JUDGED_AGAIN: usize = 10;
/// Cells that a dry run may add.
const MAX_ADDED: usize = 10_000;

impl Auctioneer {
    fn answer_with(&mut self, to: ReplyKey, answer: Result<bytes::Bytes, WireError>) {
        self.out.push(match answer {
            Ok(body) => AuctioneerOutput::Reply { to, body },
            Err(error) => AuctioneerOutput::ReplyError {
                to,
                error: Box::new(error),
            },
        });
    }

    /// A dry run over the pool as it is now: nothing is debited, nothing is sent.
    pub(crate) fn place(&mut self, now_ms: u64, place: &DryRun, reply: ReplyKey) {
        let answer = self.dry_run(now_ms, place);
        self.answer_with(reply, answer);
    }

    fn dry_run(&mut self, now_ms: u64, place: &DryRun) -> Result<bytes::Bytes, WireError> {
        let jobs: Vec<Job> = place
            .requests
            .iter()
            .flat_map(|r| r.request.jobs())
            .collect();
        if jobs.len() > MAX_BATCH {
            let message = format!("{} instances; a dry run takes {MAX_BATCH}", jobs.len());
            return Err(invalid("instances", message));
        }
        let mut draw = self.draw_now(now_ms, place.explain);
        let mut other = self.what_if(place)?;
        let policy = &self.settings.policy;
        let pool = other.as_ref().unwrap_or(self.feed.pool());
        draw.absent.retain(|name| pool.get(name).is_some());
        let cells = pool.len();
        let max_payload = self.settings.max_payload;
        loop {
            let pool = other.as_mut().unwrap_or(self.feed.pool_mut());
            let plan = pool.plan(&jobs, policy, &draw);
            let warnings = place.requests.iter().flat_map(|r| r.warnings.clone());
            let body = to_bytes(&PlaceAnswer {
                v: VERSION,
                auctioneer: self.settings.name.clone(),
                policy: policy.name().to_owned(),
                cells,
                decisions: Report::new(&jobs, policy, plan).decisions,
                warnings: warnings.collect(),
            });
            if body.len() <= max_payload {
                return Ok(body);
            }
            if draw.explain == placement::Explain::Winner {
                let message = format!(
                    "the answer has {} bytes; ask for less at a time",
                    body.len()
                );
                return Err(WireError::new(code::OVERLOADED, message));
            }
            // an answer that does not fit explains less
            draw.explain = match draw.explain {
                placement::Explain::Cells => placement::Explain::Stages,
                placement::Explain::Stages => placement::Explain::Finalists,
                _ => placement::Explain::Winner,
            };
        }
    }

    /// What a decision made only for the asker depends on.
    pub(crate) fn draw_now(&mut self, now_ms: u64, explain: placement::Explain) -> PlanContext {
        let wall_ms = i64::try_from(now_ms).unwrap_or(i64::MAX);
        PlanContext {
            seed: self.draw(),
            auction: self.new_id().as_u128(),
            now_ms: self.settings.wall_start_ms.saturating_add(wall_ms),
            absent: self.absent(now_ms),
            explain,
            ..PlanContext::default()
        }
    }

    /// The cells that an auction would do without: nobody listened there, or they are silent. When
    /// all are, an auction waits for everybody again.
    fn absent(&mut self, now_ms: u64) -> BTreeSet<Arc<str>> {
        let mut absent = self.feed.away(now_ms);
        let mut cells = self.feed.cells();
        if cells.any(|(name, known)| !known.silent && !absent.contains(name)) {
            let silent = self.feed.cells().filter(|(_, known)| known.silent);
            absent.extend(silent.map(|(name, _)| Arc::clone(name)));
        }
        absent
    }

    /// The app's last jobs, judged again over the pool as it is now, with everything explained.
    fn judged_again(&mut self, now_ms: u64, app: &str) -> Vec<DecisionReport> {
        let jobs = self.ring.last_jobs(app, JUDGED_AGAIN);
        let draw = self.draw_now(now_ms, placement::Explain::Cells);
        let policy = &self.settings.policy;
        let plan = self.feed.pool().plan_plainly(&jobs, policy, &draw);
        Report::new(&jobs, policy, plan).decisions
    }

    /// The pool with the cells that the dry run adds and without those that it leaves out; none when
    /// it does neither.
    fn what_if(&self, place: &DryRun) -> Result<Option<Pool>, WireError> {
        let count: usize = place
            .add_cells
            .iter()
            .map(|a| a.count.min(MAX_ADDED + 1))
            .sum();
        if count > MAX_ADDED {
            let message = format!("add_cells: {count} cells; at most {MAX_ADDED}");
            return Err(invalid("add_cells", message));
        }
        if place.add_cells.is_empty() && place.without.is_empty() {
            return Ok(None);
        }
        let mut pool = self.feed.pool().clone();
        for add in &place.add_cells {
            // at most as many as were counted above
            let count = u32::try_from(add.count).unwrap_or(u32::MAX);
            pool.add_like(&add.like, count)
                .map_err(|e| invalid("add_cells.like", format!("add_cells: {e}")))?;
        }
        for name in &place.without {
            if pool.get(name).is_none() {
                let expected = "cells that this auctioneer knows, each once";
                return Err(Invalid::new("without", format!("{name:.140?}"), expected).into());
            }
            pool.remove(name);
        }
        Ok(Some(pool))
    }

    pub(crate) fn explain(&mut self, now_ms: u64, explain: &ExplainRequest, reply: ReplyKey) {
        let mut answer = ExplainAnswer {
            v: VERSION,
            app: explain.app.clone(),
            auctioneer: self.settings.name.clone(),
            auctions: self
                .ring
                .of_app(now_ms, self.settings.policy.name(), &explain.app),
            now: Vec::new(),
        };
        if explain.cells {
            answer.now = self.judged_again(now_ms, &explain.app);
        }
        let mut body = to_bytes(&answer);
        if body.len() > self.settings.max_payload {
            answer.now.truncate(1);
            body = to_bytes(&answer);
        }
        if body.len() > self.settings.max_payload {
            answer.now.clear();
            body = to_bytes(&answer);
        }
        while body.len() > self.settings.max_payload && !answer.auctions.is_empty() {
            // the oldest go first, then the last one's decisions
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
        self.out.push(AuctioneerOutput::Reply { to: reply, body });
    }

    /// What waits here, for `wait` and everybody else who looks for instances that no cell has yet.
    pub(crate) fn tell_queued(&mut self, now_ms: u64, asked: &QueuedRequest, reply: ReplyKey) {
        let tickets = self.tickets.values();
        let answer = queued::answer(
            &self.settings.name,
            tickets,
            asked,
            now_ms,
            self.settings.max_payload,
        );
        self.answer_with(reply, Ok(to_bytes(&answer)));
    }

    pub(crate) fn pool_page(&mut self, now_ms: u64, page: &Page, reply: ReplyKey) {
        let limit = page.limit.unwrap_or(PAGE).clamp(1, PAGE);
        let mut cells = Vec::new();
        let mut bytes = 0;
        for (name, known) in self.feed.cells().skip(page.offset).take(limit) {
            let Some(cell) = self.feed.pool().get(name) else {
                continue;
            };
            let cell = PoolCell {
                cell: cell.clone(),
                incarnation: known.incarnation,
                seq: known.seq,
                age_ms: now_ms.saturating_sub(known.heard_at_ms),
                left_ms: self.feed.left_ms(known),
                debits: known.debits.len(),
                silent: known.silent,
            };
            bytes += to_bytes(&cell).len() + 1;
            if bytes + 512 > self.settings.max_payload && !cells.is_empty() {
                break;
            }
            cells.push(cell);
        }
        let total = self.feed.pool().len();
        let end = page.offset.saturating_add(cells.len());
        let answer = PoolAnswer {
            v: VERSION,
            auctioneer: self.settings.name.clone(),
            policy: self.settings.policy.name().to_owned(),
            total,
            next: (end < total && !cells.is_empty()).then_some(end),
            cells,
        };
        self.answer_with(reply, Ok(to_bytes(&answer)));
    }
}

fn invalid(field: &str, message: String) -> WireError {
    WireError {
        field: Some(field.to_owned()),
        ..WireError::new(code::INVALID_REQUEST, message)
    }
}
