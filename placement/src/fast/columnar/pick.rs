//! The pick over columns.

use std::{cmp::Ordering, sync::Arc};

use super::{Columnar, Scratch, View};
use crate::{
    batch::JobGroup, decision::Explain, engine::Choice, plain::first_k, policy::Pick, request::Job,
    stages::score, tie,
};

/// The order of cells with equal values: by the distance of their lots, then by name.
struct Ranking<'a> {
    lots: &'a [tie::Lot],
    names: &'a [Arc<str>],
    point: tie::Point,
}

impl<'a> Ranking<'a> {
    fn of(view: &'a View<'_>, point: tie::Point) -> Self {
        Self {
            lots: &view.columns.lots,
            names: view.session.parts.names,
            point,
        }
    }

    fn distance(&self, slot: u32) -> u64 {
        tie::distance(self.lots[slot as usize], self.point)
    }

    fn by_name(&self, a: u32, b: u32) -> Ordering {
        self.names[a as usize].cmp(&self.names[b as usize])
    }

    fn compare(&self, a: u32, b: u32) -> Ordering {
        let distances = self.distance(a).cmp(&self.distance(b));
        // if two names have the same hash, the order of slots must not decide, because it is not the plain engine's
        distances.then_with(|| self.by_name(a, b))
    }
}

/// Cells of the best rating: all of them, or the first after the job's point if nobody asks for the others.
pub(super) struct Found<'a> {
    ranking: Ranking<'a>,
    only_winner: bool,
    nearest: u64,
    pub(super) cells: Vec<(u32, f64)>,
}

impl<'a> Found<'a> {
    pub(super) fn new(view: &'a View<'_>, point: tie::Point) -> Self {
        let context = view.session.context;
        Self {
            ranking: Ranking::of(view, point),
            only_winner: context.explain == Explain::Winner && !context.first,
            nearest: u64::MAX,
            cells: Vec::new(),
        }
    }

    pub(super) fn clear(&mut self) {
        self.cells.clear();
        self.nearest = u64::MAX;
    }

    pub(super) fn add(&mut self, slot: u32, rating: f64) {
        if self.only_winner {
            let distance = self.ranking.distance(slot);
            // equal ones stay, and are drawn by name
            if distance > self.nearest {
                return;
            }
            if distance < self.nearest {
                self.cells.clear();
            }
            self.nearest = distance;
        }
        self.cells.push((slot, rating));
    }
}

impl Columnar<'_> {
    pub(super) fn pick(&mut self, job: &Job, group: JobGroup) -> Choice {
        let Self {
            view,
            scratch,
            policy,
            ..
        } = self;
        // a policy without scores rates all cells alike
        if scratch.totals.is_empty() {
            scratch.totals.resize(scratch.alive.len(), 0.0);
        }
        let point = view.session.point(job, group);
        let ranking = Ranking::of(view, point);
        let finalists = finalists(scratch, &policy.pick, &ranking);
        self.draw(point, finalists)
    }

    /// The winner among the finalists.
    pub(super) fn draw(&self, point: tie::Point, mut finalists: Vec<(u32, f64)>) -> Choice {
        let Self { view, policy, .. } = self;
        if finalists.is_empty() {
            return Choice::default();
        }
        let ranking = Ranking::of(view, point);
        let context = view.session.context;
        // names are compared only if somebody sees them: each is a cold cache line
        if context.first || context.explain > Explain::Winner {
            finalists.sort_unstable_by(|a, b| ranking.by_name(a.0, b.0));
        }
        let drawn = match policy.pick {
            _ if context.first => 0,
            // among tied cells, the one whose lot comes first after the job's point
            Pick::Lowest | Pick::Highest => 0,
            Pick::Sample | Pick::FirstOf { .. } => tie::draw(point, finalists.len()),
        };
        let found = if context.first {
            finalists.first().copied()
        } else {
            nearest(&finalists, &ranking, drawn)
        };
        let Some((winner, rating)) = found else {
            return Choice::default();
        };
        if context.explain == Explain::Winner {
            // the caller wants none; the plain engine's are dropped later, in the planner
            finalists.clear();
        }
        Choice {
            winner: Some(winner),
            finalists: finalists.iter().map(|(slot, _)| *slot).collect(),
            rating: (policy.pick != Pick::Sample).then_some(rating),
            trace: None,
        }
    }
}

/// Returns the cells that could win, with their values.
fn finalists(scratch: &Scratch, pick: &Pick, ranking: &Ranking<'_>) -> Vec<(u32, f64)> {
    let finite = |(p, rating): (&u32, &f64)| rating.is_finite().then_some((*p, *rating));
    let scored = || scratch.alive.iter().zip(&scratch.totals).filter_map(finite);
    let best = |highest: bool| {
        let best = score::best(&scratch.totals, highest);
        let tied = scored().filter(|(_, rating)| score::ties(*rating, best));
        tied.collect()
    };
    match pick {
        Pick::Sample => scored().collect(),
        Pick::Lowest => best(false),
        Pick::Highest => best(true),
        Pick::FirstOf { fraction, highest } => {
            let mut all: Vec<(u32, f64)> = scored().collect();
            let k = first_k(*fraction, all.len());
            // a fraction of few cells may be less than one cell: the best takes its place
            if k < 1 {
                return best(*highest);
            }
            let order = |a: &(u32, f64), b: &(u32, f64)| {
                let values = if *highest {
                    b.1.total_cmp(&a.1)
                } else {
                    a.1.total_cmp(&b.1)
                };
                values.then_with(|| ranking.compare(a.0, b.0))
            };
            // only which cells these are matters, not their order: no full sort
            all.select_nth_unstable_by(k - 1, order);
            all.truncate(k);
            all
        }
    }
}

/// Returns the `k`-th of the finalists by their lots.
fn nearest(finalists: &[(u32, f64)], ranking: &Ranking<'_>, k: usize) -> Option<(u32, f64)> {
    let order = |a: &(u32, f64), b: &(u32, f64)| ranking.compare(a.0, b.0);
    if k == 0 {
        return finalists.iter().copied().min_by(order);
    }
    let mut all = finalists.to_vec();
    let (_, found, _) = all.select_nth_unstable_by(k, order);
    Some(*found)
}
