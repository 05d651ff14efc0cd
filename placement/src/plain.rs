//! The plain engine: the definition of what every engine decides.
//!
//! It takes one job at a time through the policy's stages, over all cells: a filter drops cells, a narrowing keeps the
//! preferred among those left, a score rates them, and the pick names the winner. The individual stages are in
//! [`crate::stages`]. It records every step, because it only runs if an explanation is needed, or for comparison with a
//! fast engine.

use crate::{
    auction_view::{AuctionView, PoolCells},
    batch::JobGroup,
    context::PlanContext,
    decision::{Explain, RatingReport},
    devices::DeviceShares,
    engine::{Choice, Engine},
    objective::Objective,
    policy::{Combine, Filter, Narrow, Pick, Policy, Score, Stage, Step},
    request::Job,
    stages::{filter, narrow, score},
    tie,
    trace::Trace,
};

/// The plain engine over the cells of one auction.
pub(crate) struct PlainEngine<'a> {
    view: AuctionView<'a>,
    policy: &'a Policy,
    context: &'a PlanContext,
}

impl<'a> PlainEngine<'a> {
    pub(crate) fn new(pool: PoolCells<'a>, policy: &'a Policy, context: &'a PlanContext) -> Self {
        Self {
            view: AuctionView::new(pool, policy, context),
            policy,
            context,
        }
    }

    /// Returns the cells as they are after the debits so far.
    pub(crate) fn view(&self) -> &AuctionView<'a> {
        &self.view
    }

    /// Debits one instance of the job's request from the cell, and returns the devices that it gets.
    pub(crate) fn take(&mut self, slot: u32, job: &Job) -> Option<Box<DeviceShares>> {
        self.view.debit(slot, job)
    }

    /// Takes one job through the stages of the policy for its kind, and picks the winner.
    pub(crate) fn decide(&self, job: &Job, objective: Option<&Objective>) -> Choice {
        let mut trace = Trace::new(self.context.explain >= Explain::Cells);
        let mut cells = self.view.live().to_vec();
        let mut ratings: Option<Ratings> = None;
        trace.begin(&self.view, &cells);
        if !job.request.exclude_cells.is_empty() {
            cells = self.not_excluded(job, cells, &mut trace);
        }
        let stages: Vec<&Stage> = self.policy.stages_for(job.request.kind).collect();
        for (at, stage) in stages.iter().enumerate() {
            if cells.is_empty() {
                break;
            }
            match &stage.step {
                Step::Filter(filter) => {
                    trace.resources(&self.view, job, &stages, at, &cells);
                    cells = self.filter(filter, job, cells, &mut trace);
                }
                Step::Narrow(narrow) => cells = self.narrow(narrow, job, cells, &mut trace),
                Step::Score(score) => {
                    let so_far = ratings.unwrap_or_else(|| Ratings::new(self.combine(), &cells));
                    ratings = Some(self.score(score, objective, job, so_far.only(&cells)));
                }
            }
        }
        self.pick(job, &cells, ratings, trace)
    }

    fn combine(&self) -> Combine {
        self.policy.combine
    }

    /// Drops the cells that the request excludes, before the stages of the policy.
    fn not_excluded(&self, job: &Job, cells: Vec<u32>, trace: &mut Trace) -> Vec<u32> {
        let excluded = |slot: &u32| job.request.excludes(self.view.name(*slot));
        let (dropped, kept): (Vec<u32>, Vec<u32>) = cells.into_iter().partition(excluded);
        trace.excluded(&self.view, &kept, &dropped);
        kept
    }

    fn filter(&self, filter: &Filter, job: &Job, cells: Vec<u32>, trace: &mut Trace) -> Vec<u32> {
        let now = self.view.now();
        let (kept, dropped): (Vec<u32>, Vec<u32>) = cells
            .into_iter()
            .partition(|slot| filter::keeps(filter, self.view.cell(*slot), &job.request, now));
        trace.filtered(&self.view, job, filter, &kept, &dropped);
        kept
    }

    fn narrow(&self, narrow: &Narrow, job: &Job, cells: Vec<u32>, trace: &mut Trace) -> Vec<u32> {
        let before = cells.clone();
        let mut notes = Vec::new();
        let kept = narrow::narrow(narrow, &self.view, job, cells, &mut notes);
        trace.narrowed(&self.view, narrow.name(), &before, &kept, notes);
        kept
    }

    fn score(
        &self,
        score: &Score,
        objective: Option<&Objective>,
        job: &Job,
        mut ratings: Ratings,
    ) -> Ratings {
        let mut term = score::term(score, objective, &self.view, job, &ratings.cells);
        score::combine(score, self.combine(), &mut term, &mut ratings.totals);
        ratings.terms.push((score.term.name(), term));
        ratings
    }

    /// Ends a policy: determines the finalists, and the winner among them.
    fn pick(&self, job: &Job, cells: &[u32], ratings: Option<Ratings>, mut trace: Trace) -> Choice {
        let ratings = ratings.map(|ratings| ratings.only(cells));
        let mut rated: Vec<(u32, f64)> = match &ratings {
            Some(ratings) => ratings.by_cell().collect(),
            None => cells.iter().map(|slot| (*slot, 0.0)).collect(),
        };
        // a rating that is not finite disqualifies the cell
        rated.retain(|(_, rating)| rating.is_finite());
        if rated.len() < cells.len() {
            trace.unrated(&self.view, cells, &rated);
        }
        let finalists = self.finalists(job, &rated);
        let winner = self.winner(job, &finalists);
        if let Some(ratings) = &ratings {
            trace.ratings = finalists
                .iter()
                .filter_map(|slot| ratings.report(*slot, &self.view, self.policy))
                .collect();
        }
        let rating_of = |slot: u32| rated.iter().find(|(s, _)| *s == slot).map(|(_, r)| *r);
        let rates = self.policy.pick != Pick::Sample;
        Choice {
            winner,
            rating: winner.filter(|_| rates).and_then(rating_of),
            finalists,
            trace: Some(Box::new(trace)),
        }
    }

    /// Returns the finalists, by name.
    fn finalists(&self, job: &Job, rated: &[(u32, f64)]) -> Vec<u32> {
        match &self.policy.pick {
            Pick::Sample => rated.iter().map(|(slot, _)| *slot).collect(),
            Pick::Lowest => best(rated, false),
            Pick::Highest => best(rated, true),
            Pick::FirstOf { fraction, highest } => {
                let k = first_k(*fraction, rated.len());
                if k < 1 {
                    return best(rated, *highest);
                }
                self.first(k, *highest, job, rated)
            }
        }
    }

    /// Returns the first `k` by rating, equal ones in the order of the draw, sorted by name.
    fn first(&self, k: usize, highest: bool, job: &Job, rated: &[(u32, f64)]) -> Vec<u32> {
        let point = self.view.point(job);
        let mut sorted: Vec<(u32, f64, u64)> = rated
            .iter()
            .map(|(slot, r)| (*slot, *r, tie::distance(self.view.lot(*slot), point)))
            .collect();
        sorted.sort_by(|a, b| {
            let by_rating = if highest {
                b.1.total_cmp(&a.1)
            } else {
                a.1.total_cmp(&b.1)
            };
            by_rating
                .then(a.2.cmp(&b.2))
                .then_with(|| self.view.name(a.0).cmp(self.view.name(b.0)))
        });
        let mut chosen: Vec<u32> = sorted[..k].iter().map(|(slot, ..)| *slot).collect();
        chosen.sort_by(|a, b| self.view.name(*a).cmp(self.view.name(*b)));
        chosen
    }

    /// Draws one of the finalists by the seed; see [`tie`].
    fn winner(&self, job: &Job, finalists: &[u32]) -> Option<u32> {
        if self.context.first {
            return finalists.first().copied();
        }
        let point = self.view.point(job);
        let mut order = finalists.to_vec();
        // finalists are sorted by name, so a stable sort breaks ties of distance by name
        order.sort_by_key(|slot| tie::distance(self.view.lot(*slot), point));
        let drawn = match self.policy.pick {
            Pick::Lowest | Pick::Highest => 0,
            Pick::Sample | Pick::FirstOf { .. } => tie::draw(point, order.len()),
        };
        order.get(drawn).copied()
    }
}

impl Engine for PlainEngine<'_> {
    fn choose(&mut self, job: &Job, _: JobGroup, objective: Option<&Objective>) -> Choice {
        self.decide(job, objective)
    }

    fn debit(&mut self, slot: u32, job: &Job, _: JobGroup) -> Option<Box<DeviceShares>> {
        self.take(slot, job)
    }

    fn starting(&self, slot: u32) -> u32 {
        self.view.cell(slot).counts.starting
    }

    /// The debits are only in the view, which is dropped with the engine.
    fn finish(self: Box<Self>) {}
}

/// Returns the cells with the best rating.
fn best(rated: &[(u32, f64)], highest: bool) -> Vec<u32> {
    let better = |a: f64, b: f64| if highest { a.max(b) } else { a.min(b) };
    let best = rated.iter().map(|(_, r)| *r).reduce(better);
    rated
        .iter()
        .filter(|(_, r)| best.is_some_and(|best| score::ties(*r, best)))
        .map(|(slot, _)| *slot)
        .collect()
}

/// Returns how many cells the pick `first-of` draws from.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 <= fraction <= 1
pub(crate) fn first_k(fraction: f64, n: usize) -> usize {
    // 0.07 × 100 is 7, despite rounding
    (fraction * n as f64 + 1e-9).floor() as usize
}

/// The totals of the score stages so far.
struct Ratings {
    /// In order of cell names; the lists below are in the same order.
    cells: Vec<u32>,
    totals: Vec<f64>,
    terms: Vec<(&'static str, Vec<f64>)>,
}

impl Ratings {
    fn new(combine: Combine, cells: &[u32]) -> Self {
        let start = match combine {
            Combine::Sum => 0.0,
            Combine::Product => 1.0,
        };
        Self {
            cells: cells.to_vec(),
            totals: vec![start; cells.len()],
            terms: Vec::new(),
        }
    }

    /// Restricts the ratings to the cells that are left: filters and narrowings may come after a score.
    fn only(mut self, left: &[u32]) -> Self {
        if self.cells.len() == left.len() {
            return self;
        }
        // stages keep the order, so one walk over both lists finds which are left
        let mut next = left.iter().peekable();
        let stays: Vec<bool> = self
            .cells
            .iter()
            .map(|slot| next.next_if_eq(&slot).is_some())
            .collect();
        let keep = |values: &mut Vec<f64>| {
            let mut stays = stays.iter();
            values.retain(|_| stays.next().is_some_and(|stays| *stays));
        };
        keep(&mut self.totals);
        self.terms.iter_mut().for_each(|(_, values)| keep(values));
        self.cells = left.to_vec();
        self
    }

    fn by_cell(&self) -> impl Iterator<Item = (u32, f64)> {
        self.cells.iter().copied().zip(self.totals.iter().copied())
    }

    fn report(&self, slot: u32, view: &AuctionView<'_>, policy: &Policy) -> Option<RatingReport> {
        let at = self.cells.iter().position(|cell| *cell == slot)?;
        let terms = self.terms.iter();
        Some(RatingReport {
            cell: view.name(slot).clone(),
            rating: policy.rating(self.totals[at])?,
            terms: terms
                .map(|(name, values)| ((*name).to_owned(), values[at]))
                .collect(),
        })
    }
}
