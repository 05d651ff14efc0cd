//! Decisions from kept ratings: what a job costs is the cells that changed since the last of its kind.
//!
//! **Why.** Where each score looks at one cell alone (`objective`, `vendue`), a debit changes the rating of one
//! cell. So jobs of one shape share a rating for each cell, and the best is found over blocks of 64 cells: 8 to
//! 16 times as fast as the stages over 5,000 cells.
//!
//! **Invariant.** A kept rating is what the stages say of the cell now, for any job of the key, as if nobody had
//! instances of its app: the stages themselves work it out, on the cells that changed. Cells that have an
//! app which the job counts are rated for this job, and leave the kept ratings for as long.

use std::ops::Range;

use super::{Apps, Columnar, Form, is_dynamic, key, pick::Found};
use crate::{
    batch::JobGroup,
    engine::Choice,
    objective::Objective,
    policy::{Pick, Step, Term},
    request::Job,
    stages::score,
    tie,
};

impl<'a> Columnar<'a> {
    /// The decision, if ratings are kept for such jobs.
    pub(super) fn serve(
        &mut self,
        form: &Form<'a>,
        job: &Job,
        group: JobGroup,
        objective: Option<&Objective>,
    ) -> Option<Choice> {
        let request = &*job.request;
        // one job has nothing to share; strict ones depend on where other work is
        if !form.keeps || self.is_single || !(request.near.is_empty() && request.far.is_empty()) {
            return None;
        }
        let apart = self.apart(form, job, group, objective);
        if 4 * apart.len() > self.view.columns.len() {
            return None;
        }
        let number = self.number(form, job, group, objective)?;
        let sign = self.sign();
        let news = self.kept.news(number);
        if news.as_ref().is_none_or(|news| !news.is_empty()) {
            self.rate(form, job, group, objective, news.as_deref(), Apps::Ignored);
            let (alive, totals) = (&self.scratch.alive, &self.scratch.totals);
            let asked = news.as_deref();
            self.kept.write(number, asked, alive, totals, sign);
        }
        let mut own = Vec::new();
        if !apart.is_empty() {
            self.rate(form, job, group, objective, Some(&apart), Apps::Counted);
            let (alive, totals) = (&self.scratch.alive, &self.scratch.totals);
            let rated = alive.iter().copied().zip(totals);
            own.extend(rated.map(|(slot, total)| (slot, sign * total)));
        }
        let blocks = self.blocks(form, group, number);
        let point = self.view.session.point(job, group);
        let finalists = self.best(number, &blocks, &apart, &own, point);
        Some(self.draw(point, finalists))
    }

    /// The number of the kept ratings for the job.
    fn number(
        &mut self,
        form: &Form<'a>,
        job: &Job,
        group: JobGroup,
        objective: Option<&Objective>,
    ) -> Option<usize> {
        let mut key = std::mem::take(&mut self.kept.key);
        key.shape = group.shape;
        key.objective.clear();
        let names = &mut self.kept.names;
        key::objective(
            form,
            &mut self.view,
            names,
            job,
            objective,
            &mut key.objective,
        );
        let number = self.kept.find(&key, self.view.columns);
        self.kept.key = key;
        number
    }

    /// What ratings are multiplied with, so that the highest is the best.
    fn sign(&self) -> f64 {
        if self.policy.pick == Pick::Highest {
            1.0
        } else {
            -1.0
        }
    }

    /// The cells that have instances of an app which the job counts, ascending.
    fn apart(
        &self,
        form: &Form<'_>,
        job: &Job,
        group: JobGroup,
        objective: Option<&Objective>,
    ) -> Vec<u32> {
        let mut slots: Vec<u32> = Vec::new();
        for score in form.scores() {
            match &score.term {
                Term::AppInstances => {
                    let holders = &self.view.session.app(group).holders;
                    slots.extend(holders.iter().map(|(slot, _)| *slot));
                }
                Term::Objective(own) => {
                    let objective = objective.unwrap_or(own);
                    for app in objective.counted_apps(&job.request) {
                        slots.extend(self.view.app(app).iter().map(|(slot, _)| *slot));
                    }
                }
                _ => {}
            }
        }
        slots.sort_unstable();
        slots.dedup();
        slots
    }

    /// Leaves in `alive` and `totals` what the filters and scores say of the cells `asked`; none = of all.
    fn rate(
        &mut self,
        form: &Form<'a>,
        job: &Job,
        group: JobGroup,
        objective: Option<&Objective>,
        asked: Option<&[u32]>,
        apps: Apps,
    ) {
        self.start(self.shapes[group.shape as usize], form, asked);
        self.scratch.totals.clear();
        for filter in form.leading.iter().filter(|filter| is_dynamic(filter)) {
            self.filter(filter, &job.request);
        }
        if self.scratch.alive.is_empty() {
            return;
        }
        self.scratch.totals.resize(self.scratch.alive.len(), 0.0);
        for stage in &form.stages {
            if let Step::Score(step) = &stage.step {
                self.score(step, objective, job, group, apps);
            }
        }
    }

    /// The blocks of the cells that take part, by zone: all, or those of the zones with the fewest instances of
    /// the app among those with cells that are left.
    fn blocks(&self, form: &Form<'_>, group: JobGroup, number: usize) -> Vec<Range<usize>> {
        let (layout, ratings) = (&self.kept.layout, &self.kept.boards[number]);
        if !form.by_zone {
            return std::iter::once(0..layout.blocks.len()).collect();
        }
        let counts = &self.view.session.app(group).zones;
        let zones = layout.zones.iter().zip(&ratings.alive_in).zip(counts);
        let left = zones.filter(|((_, alive), _)| **alive > 0);
        let fewest = left.clone().map(|(_, count)| *count).min();
        left.filter(|(_, count)| Some(**count) == fewest)
            .map(|((blocks, _), _)| blocks.clone())
            .collect()
    }

    /// The cells with the best rating in these blocks, or the first of them after the point if nobody asks for the
    /// others. Those `apart` have their `own` ratings.
    fn best(
        &mut self,
        number: usize,
        blocks: &[Range<usize>],
        apart: &[u32],
        own: &[(u32, f64)],
        point: tie::Point,
    ) -> Vec<(u32, f64)> {
        let sign = self.sign();
        let (layout, ratings) = (&self.kept.layout, &mut self.kept.boards[number]);
        let seats = apart
            .iter()
            .filter_map(|slot| Some((layout.seat(*slot)?, *slot)));
        let seats: Vec<(usize, usize)> = seats
            .map(|(seat, slot)| (seat, layout.block(slot)))
            .collect();
        let leave =
            |(seat, block): &(usize, usize)| ratings.set(layout, *seat, *block, f64::NEG_INFINITY);
        let shared: Vec<f64> = seats.iter().map(leave).collect();
        let takes_part = |slot: &u32| {
            let block = layout.block(*slot);
            layout.seat(*slot).is_some() && blocks.iter().any(|blocks| blocks.contains(&block))
        };
        let own = own.iter().copied();
        let own = own.filter(|(slot, rating)| rating.is_finite() && takes_part(slot));
        let highest = own.clone().map(|(_, rating)| rating);
        let best = highest.fold(ratings.best_of(blocks), f64::max);
        let mut found = Found::new(&self.view, point);
        if best.is_finite() {
            ratings.tied(layout, blocks, best, |slot, rating| {
                found.add(slot, sign * rating);
            });
            for (slot, rating) in own.filter(|(_, rating)| score::ties(*rating, best)) {
                found.add(slot, sign * rating);
            }
        }
        for ((seat, block), rating) in seats.iter().zip(shared) {
            ratings.set(layout, *seat, *block, rating);
        }
        found.cells
    }
}
