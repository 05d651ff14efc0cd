//! The batch auction around an engine: order, duplicates, the in-flight limit, reasons.

use std::{collections::HashMap, sync::Arc};

use crate::{
    auction_view::PoolCells,
    batch::{Batch, JobGroup},
    context::PlanContext,
    decision::{Decision, Explain, Explanation, Plan, Tally, Unplaced, Verdict},
    devices::DeviceShares,
    engine::{Choice, Engine},
    objective::Objective,
    plain::PlainEngine,
    policy::{Combine, Policy, Step},
    reasons,
    request::Job,
    trace::{Emptied, Trace},
};

/// The input of an auction, whatever the engine.
#[derive(Clone, Copy)]
pub(crate) struct Auction<'a> {
    pub(crate) pool: PoolCells<'a>,
    pub(crate) jobs: &'a [Job],
    pub(crate) batch: &'a Batch<'a>,
    pub(crate) policy: &'a Policy,
    pub(crate) context: &'a PlanContext,
}

/// Runs the auction with an engine.
pub(crate) fn plan(auction: Auction<'_>, mut engine: Box<dyn Engine + '_>) -> Plan {
    let Auction {
        jobs,
        batch,
        policy,
        ..
    } = auction;
    let mut explainer = Explainer::new(auction);
    let mut limit = InFlight::new(policy, &mut explainer);
    let mut failures = Failures::new(auction);
    let mut objectives = Objectives::default();
    let mut decisions = Vec::with_capacity(jobs.len());
    for position in &batch.order {
        let job = &jobs[*position as usize];
        let group = batch.group(*position);
        if limit.reached() {
            decisions.push(limit.refuse(*position));
            continue;
        }
        if let Some(why) = failures.again(job, group, &mut explainer) {
            decisions.push(unplaced(*position, why));
            continue;
        }
        let objective = match objectives.of(job, policy) {
            Ok(objective) => objective,
            Err(refused) => {
                decisions.push(unplaced(*position, refused));
                continue;
            }
        };
        let mut choice = engine.choose(job, group, objective);
        if group.excludes {
            // rare, so fast engines do not know of it; they have met the job's app by now, as they must before a debit
            choice = explainer.plain().decide(job, objective);
        }
        let Some(winner) = choice.winner else {
            let trace = match choice.trace {
                Some(trace) => *trace,
                None => explainer.trace(job, objective),
            };
            let emptied = trace.emptied_by.clone();
            let explanation = explainer.explanation(&trace);
            let why = reasons::unplaced(job, trace);
            failures.learn(group, &why, emptied.as_ref(), explainer.log.len());
            decisions.push(Decision {
                explanation,
                ..unplaced(*position, why)
            });
            continue;
        };
        if let Some(deferred) = defer(&auction, engine.as_ref(), winner) {
            decisions.push(Decision {
                deferred: true,
                ..unplaced(*position, deferred)
            });
            continue;
        }
        let given = engine.debit(winner, job, group);
        decisions.push(explainer.placed(*position, choice, given));
        explainer.log.push((winner, *position));
        limit.placed();
    }
    engine.finish();
    explainer.name_cells(&mut decisions);
    let duplicates = batch.duplicates.iter();
    decisions.extend(duplicates.map(|(job, of)| duplicate(*job, *of)));
    Plan { decisions }
}

/// Describes choices. If the engine keeps no record, a failed job is decided again by the plain engine, which is
/// brought up to date only then: a batch that fits costs no explanation.
struct Explainer<'a> {
    auction: Auction<'a>,
    plain: Option<PlainEngine<'a>>,
    /// Placements so far: slot and job; the first `seen` of them are debited in the plain engine.
    log: Vec<(u32, u32)>,
    seen: usize,
    /// A placeholder in decisions until [`Explainer::name_cells`].
    nobody: Arc<str>,
}

impl<'a> Explainer<'a> {
    fn new(auction: Auction<'a>) -> Self {
        Self {
            auction,
            plain: None,
            log: Vec::new(),
            seen: 0,
            nobody: "".into(),
        }
    }

    fn plain(&mut self) -> &PlainEngine<'a> {
        let Auction {
            pool,
            jobs,
            policy,
            context,
            ..
        } = self.auction;
        let plain = self
            .plain
            .get_or_insert_with(|| PlainEngine::new(pool, policy, context));
        for (slot, position) in &self.log[self.seen..] {
            plain.take(*slot, &jobs[*position as usize]);
        }
        self.seen = self.log.len();
        plain
    }

    fn trace(&mut self, job: &Job, objective: Option<&Objective>) -> Trace {
        let choice = self.plain().decide(job, objective);
        choice.trace.map(|trace| *trace).unwrap_or_default()
    }

    fn placed(&self, position: u32, choice: Choice, given: Option<Box<DeviceShares>>) -> Decision {
        let Auction { pool, context, .. } = self.auction;
        let finalists = match context.explain {
            Explain::Winner => Vec::new(),
            _ => choice
                .finalists
                .iter()
                .map(|slot| Arc::clone(&pool.names[*slot as usize]))
                .collect(),
        };
        Decision {
            job: position as usize,
            verdict: Verdict::Placed {
                cell: Arc::clone(&self.nobody),
            },
            finalists,
            deferred: false,
            devices: given,
            rating: choice.rating.and_then(|r| self.auction.policy.rating(r)),
            explanation: choice.trace.and_then(|trace| self.explanation(&trace)),
        }
    }

    /// Fills in the names of the cells. Each is a cold cache line: in a separate loop the processor fetches many at a
    /// time.
    fn name_cells(&self, decisions: &mut [Decision]) {
        let placed = decisions.iter_mut().filter_map(|d| match &mut d.verdict {
            Verdict::Placed { cell } => Some(cell),
            _ => None,
        });
        for (cell, (slot, _)) in placed.zip(&self.log) {
            *cell = Arc::clone(&self.auction.pool.names[*slot as usize]);
        }
    }

    /// Returns stages and score terms, if requested.
    fn explanation(&self, trace: &Trace) -> Option<Box<Explanation>> {
        let Auction {
            policy, context, ..
        } = self.auction;
        (context.explain >= Explain::Stages).then(|| {
            Box::new(Explanation {
                stages: trace.stages.clone(),
                ratings: trace.ratings.clone(),
                product: !trace.ratings.is_empty() && policy.combine == Combine::Product,
                notes: trace.notes.clone(),
            })
        })
    }
}

/// Failures that later jobs of the same shape share. Debits only reduce what is available, so what fits nowhere fits
/// nowhere for the rest of the batch, unless a stage depends on other jobs. Only the text may change, because less is
/// available by then: it is rebuilt if anything was placed since.
struct Failures {
    shareable: bool,
    /// The last text of each shape, and how many jobs had been placed by then.
    by_shape: HashMap<u32, (Unplaced, usize)>,
    /// By shape: whether `near` makes it depend on jobs that were placed since.
    near: Vec<bool>,
    /// How many more cells may be visited to rebuild texts.
    looks_left: usize,
}

/// The most cells that one plan visits to rebuild the texts of failures; after that, a job gets the text of the
/// previous failure of its shape. Without this bound, a batch in which every second job fails would cost a walk over
/// all cells for each. A visit takes some 0.2 µs, so 0.1 s in total.
const MAX_LOOKS: usize = 500_000;

impl Failures {
    fn new(auction: Auction<'_>) -> Self {
        let is_filter = |step: &Step| matches!(step, Step::Filter(_));
        let mut steps = auction.policy.stages.iter().map(|stage| &stage.step);
        // a filter after a narrowing gets different cells for each job
        let filters_first = steps
            .by_ref()
            .skip_while(|step| is_filter(step))
            .all(|step| !is_filter(step));
        let shapes = auction.batch.shapes.iter();
        Self {
            // if stages are requested, each job has its own
            shareable: filters_first && auction.context.explain < Explain::Stages,
            by_shape: HashMap::new(),
            near: shapes.map(|request| !request.near.is_empty()).collect(),
            looks_left: MAX_LOOKS,
        }
    }

    /// Returns why another job of a failed shape fails; none if its shape has not failed.
    fn again(
        &mut self,
        job: &Job,
        group: JobGroup,
        explainer: &mut Explainer<'_>,
    ) -> Option<Unplaced> {
        let (known, then) = self.by_shape.get_mut(&group.shape)?;
        let (placed, cells) = (explainer.log.len(), explainer.auction.pool.by_name.len());
        if *then != placed && cells <= self.looks_left {
            self.looks_left -= cells;
            // it fails in a filter, before any score, so its objective does not matter
            *known = reasons::unplaced(job, explainer.trace(job, None));
            *then = placed;
        }
        Some(known.clone())
    }

    fn learn(&mut self, group: JobGroup, why: &Unplaced, emptied: Option<&Emptied>, placed: usize) {
        let by_filter = matches!(emptied, Some(Emptied::Filter(_) | Emptied::NoCells));
        if self.shareable && by_filter && !self.near[group.shape as usize] {
            self.by_shape.insert(group.shape, (why.clone(), placed));
        }
    }
}

fn unplaced(job: u32, unplaced: Unplaced) -> Decision {
    Decision {
        job: job as usize,
        verdict: Verdict::Unplaced(Box::new(unplaced)),
        deferred: false,
        devices: None,
        finalists: Vec::new(),
        rating: None,
        explanation: None,
    }
}

fn duplicate(job: u32, of: u32) -> Decision {
    Decision {
        job: job as usize,
        verdict: Verdict::Duplicate { of: of as usize },
        deferred: false,
        devices: None,
        finalists: Vec::new(),
        rating: None,
        explanation: None,
    }
}

/// Returns why the winner must not start another instance now; none if it may. The job does not go to the next best
/// cell: the winner is worth waiting for, and if the other cells are much worse, a large batch would all go to them.
fn defer(auction: &Auction<'_>, engine: &dyn Engine, winner: u32) -> Option<Unplaced> {
    let limit = auction.policy.max_starting_per_cell;
    let starting = engine.starting(winner);
    if limit == 0 || starting < limit {
        return None;
    }
    let tally = Tally {
        stage: "starting".into(),
        cells: 1,
        needs: None,
        best: None,
        reason: Some(format!("{starting} of {limit} instances are starting")),
        devices: None,
        names: vec![auction.pool.names[winner as usize].to_string()],
    };
    Some(Unplaced {
        reason: reasons::CELL_STARTING.into(),
        tally: vec![tally],
    })
}

/// The number of starts in flight against the policy's limit.
struct InFlight {
    /// 0 = no limit.
    limit: u64,
    now: u64,
    cells: usize,
}

impl InFlight {
    fn new(policy: &Policy, explainer: &mut Explainer<'_>) -> Self {
        let mut in_flight = Self {
            limit: u64::from(policy.max_in_flight),
            now: 0,
            cells: 0,
        };
        if in_flight.limit > 0 {
            let view = explainer.plain().view();
            let starting = |slot: &u32| u64::from(view.cell(*slot).counts.starting);
            in_flight.now = view.counted().iter().map(starting).sum();
            in_flight.cells = view.counted().len();
        }
        in_flight
    }

    fn reached(&self) -> bool {
        self.limit > 0 && self.now >= self.limit
    }

    fn placed(&mut self) {
        self.now += 1;
    }

    fn refuse(&self, job: u32) -> Decision {
        let tally = Tally {
            stage: "in-flight".into(),
            cells: self.cells,
            needs: None,
            best: None,
            reason: Some(format!(
                "{} of {} starts are in flight",
                self.now, self.limit
            )),
            devices: None,
            names: Vec::new(),
        };
        unplaced(
            job,
            Unplaced {
                reason: reasons::IN_FLIGHT.into(),
                tally: vec![tally],
            },
        )
    }
}

/// The requests' own objectives; each distinct text is compiled once.
#[derive(Default)]
struct Objectives {
    compiled: HashMap<String, Result<Arc<Objective>, Unplaced>>,
}

impl Objectives {
    /// Returns the request's own objective, if the policy has one to replace. An invalid one is rejected at admission;
    /// if one gets here nevertheless, the job is not placed.
    fn of(&mut self, job: &Job, policy: &Policy) -> Result<Option<&Objective>, Unplaced> {
        // usually there is none, and the request is a cold cache line
        let Some(base) = policy.objective() else {
            return Ok(None);
        };
        let Some(text) = job.request.objective.as_deref() else {
            return Ok(None);
        };
        if !self.compiled.contains_key(text) {
            let parsed = Objective::parse(text, base.constants());
            let compiled = parsed.map(Arc::new).map_err(|e| Unplaced {
                reason: format!("objective: {e}"),
                tally: Vec::new(),
            });
            self.compiled.insert(text.to_owned(), compiled);
        }
        match self.compiled.get(text) {
            Some(Ok(objective)) => Ok(Some(objective)),
            Some(Err(refused)) => Err(refused.clone()),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests;
