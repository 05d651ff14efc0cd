//! The pick over columns.

use std::{cmp::Ordering, sync::Arc};

use super::{Columnar, Scratch};
use crate::{
    batch::JobGroup, decision::Explain, engine::Choice, plain::first_k, policy::Pick, request::Job,
    stages::score, tie,
};

/// In which order cells of equal value stand: by the distance of their lots, then by name.
struct Ranking<'a> {
    lots: &'a [tie::Lot],
    names: &'a [Arc<str>],
    point: tie::Point,
}

impl Ranking<'_> {
    fn distance(&self, slot: u32) -> u64 {
        tie::distance(self.lots[slot as usize], self.point)
    }

    fn by_name(&self, a: u32, b: u32) -> Ordering {
        self.names[a as usize].cmp(&self.names[b as usize])
    }

    fn compare(&self, a: u32, b: u32) -> Ordering {
        let distances = self.distance(a).cmp(&self.distance(b));
        // two names may have one hash, and then the slots' order must not decide: it is not the plain engine's
        distances.then_with(|| self.by_name(a, b))
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
        let ranking = Ranking {
            lots: &view.columns.lots,
            names: view.session.parts.names,
            point,
        };
        let context = view.session.context;
        let mut finalists = finalists(scratch, &policy.pick, &ranking);
        if finalists.is_empty() {
            return Choice::default();
        }
        // names are compared only where somebody sees them: it is a cold line of memory for each cell
        if context.first || context.explain > Explain::Winner {
            finalists.sort_unstable_by(|a, b| ranking.by_name(a.0, b.0));
        }
        let drawn = match policy.pick {
            _ if context.first => 0,
            // of tied cells the one whose lot comes first after the job's point
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

/// The cells that could win and their values.
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
            // a fraction of few cells may be less than one of them: the best takes its place
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
            // which cells these are counts, not their order: no full sort
            all.select_nth_unstable_by(k - 1, order);
            all.truncate(k);
            all
        }
    }
}

/// The `k`-th of the finalists by their lots.
fn nearest(finalists: &[(u32, f64)], ranking: &Ranking<'_>, k: usize) -> Option<(u32, f64)> {
    let order = |a: &(u32, f64), b: &(u32, f64)| ranking.compare(a.0, b.0);
    if k == 0 {
        return finalists.iter().copied().min_by(order);
    }
    let mut all = finalists.to_vec();
    let (_, found, _) = all.select_nth_unstable_by(k, order);
    Some(*found)
}
