//! The search for the cheapest: what the index proposes, computed again by the plain formula.

use std::ops::Range;

use super::{
    OrderedPlan,
    bucket::Bucket,
    near,
    order::{Key, from_ordered_bits, tier},
};
use crate::{
    batch::JobGroup,
    fast::{rows::Need, session::Session},
    request::{Job, Request},
    resources::{Amounts, Resource},
    stages::score,
    tie,
};

/// A bucket, or a single cell that already holds the app, that may be the cheapest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    class: u32,
    at: CandidateCells,
    cost: f64,
}

#[derive(Clone, Copy, Debug)]
enum CandidateCells {
    Bucket(Key),
    Cell(u32),
}

impl OrderedPlan<'_> {
    /// Fills `candidates` with what may be the cheapest in these zones.
    pub(super) fn search(
        &mut self,
        zones: Range<usize>,
        order: usize,
        request: &Request,
        group: JobGroup,
        need: &Need,
    ) {
        let Self {
            index,
            session,
            job_costs,
            zones: ranked,
            cheapest,
            candidates,
            ..
        } = self;
        candidates.clear();
        cheapest.clear();
        let job_costs = job_costs.by_class(group);
        let free = Free::new(session, need, request, group);
        let lists = &index.orders[order].lists;
        // lower tiers have no cell with room; this one may have some cells without
        let least = tier(need.amounts[Resource::Memory]);
        for zone in ranked.numbers(zones.clone()) {
            for class in &index.members.classes.of_zone[zone as usize] {
                if let (Some(job_cost), Some(list)) =
                    (job_costs[*class as usize], lists.get(*class as usize))
                {
                    for (at, tier) in list.tiers.iter().enumerate().skip(least) {
                        if tier.lowest < f64::INFINITY {
                            cheapest.push((tier.lowest + job_cost, *class, at));
                        }
                    }
                }
            }
        }
        let mut best = f64::INFINITY;
        // usually one or two lists are searched, so the rest need not be sorted
        while let Some(next) =
            (0..cheapest.len()).min_by(|a, b| cheapest[*a].0.total_cmp(&cheapest[*b].0))
        {
            let (lowest, class, at) = cheapest.swap_remove(next);
            // `min`, because `best` is infinite until the first is found, and infinity cannot be added to
            if lowest > best + near(best.min(f64::MAX)) {
                break;
            }
            let job_cost = job_costs[class as usize].unwrap_or(f64::INFINITY);
            for (key, bucket) in &lists[class as usize].tiers[at].buckets {
                let cost = from_ordered_bits(key.base) + job_cost;
                if cost > best + near(best.min(f64::MAX)) {
                    break;
                }
                // what the key does not tell is checked cell by cell, but only in buckets that would win
                if need.fits(&key.row()) && (free.is_any() || bucket.any(&|slot| free.is(slot))) {
                    best = best.min(cost);
                    candidates.push(Candidate {
                        class,
                        at: CandidateCells::Bucket(*key),
                        cost,
                    });
                }
            }
        }
        // those found before the best one may be too far from it
        candidates.retain(|candidate| candidate.cost <= best + near(best.min(f64::MAX)));
        self.add_holders(zones, request, group, need);
    }

    /// Adds the cells of these zones that already hold the app one by one, because each has its own cost.
    fn add_holders(
        &mut self,
        zones: Range<usize>,
        request: &Request,
        group: JobGroup,
        need: &Need,
    ) {
        let (index, job_costs) = (&*self.index, self.job_costs.by_class(group));
        for (slot, _) in &self.session.app(group).holders {
            let Some(class) = index.members.class_of(*slot) else {
                continue;
            };
            let zone = index.members.classes.get(class).zone;
            let inside = job_costs[class as usize].is_some()
                && self.zones.numbers(zones.clone()).any(|z| z == zone);
            // with any cost: there are few, and the exact cost is computed next
            if inside && self.session.fits(*slot, need, request) {
                self.candidates.push(Candidate {
                    class,
                    at: CandidateCells::Cell(*slot),
                    cost: 0.0,
                });
            }
        }
    }

    /// Computes the candidates' exact costs and keeps the cheapest; returns their cost.
    pub(super) fn keep_cheapest(
        &mut self,
        order: usize,
        request: &Request,
        group: JobGroup,
    ) -> f64 {
        let (index, session) = (&*self.index, &self.session);
        let count_of = |slot: u32| {
            let holders = &session.app(group).holders;
            let at = holders.binary_search_by_key(&slot, |(s, _)| *s);
            at.map_or(0, |at| holders[at].1)
        };
        let wanted = request.amounts();
        let mut best = f64::INFINITY;
        for candidate in &mut self.candidates {
            let (row, place, count) = match candidate.at {
                CandidateCells::Bucket(key) => (key.row(), key.place, 0),
                CandidateCells::Cell(slot) => (
                    *session.row(slot),
                    index.places[slot as usize],
                    count_of(slot),
                ),
            };
            let class = index.members.classes.get(candidate.class);
            candidate.cost = index.orders[order].cost(class, &row, place, count, &wanted);
            // a total of 0 gives infinity, which must not become the best
            if candidate.cost.is_finite() {
                best = best.min(candidate.cost);
            }
        }
        self.candidates
            .retain(|candidate| score::ties(candidate.cost, best));
        best
    }

    /// Returns all cells of the remaining candidates.
    pub(super) fn finalists(&self, order: usize, request: &Request, need: &Need) -> Vec<u32> {
        let mut slots = Vec::new();
        for candidate in &self.candidates {
            match candidate.at {
                CandidateCells::Cell(slot) => slots.push(slot),
                CandidateCells::Bucket(key) => {
                    let list = &self.index.orders[order].lists[candidate.class as usize];
                    let members = list.bucket(&key).into_iter().flat_map(Bucket::slots);
                    let session = &self.session;
                    slots.extend(members.filter(|slot| {
                        !session.is_marked(*slot) && session.fits(*slot, need, request)
                    }));
                }
            }
        }
        self.session.by_name(slots)
    }

    /// Returns the cell of the remaining candidates whose lot comes first.
    pub(super) fn nearest(
        &mut self,
        order: usize,
        job: &Job,
        group: JobGroup,
        need: &Need,
    ) -> Option<u32> {
        let Self {
            index,
            session,
            candidates,
            ..
        } = self;
        let point = session.point(job, group);
        let lots = session.lots;
        let (session, hashes) = (&*session, session.parts.hashes);
        let free = Free::new(session, need, self.shapes[group.shape as usize], group);
        let mut best: Option<(u64, u32)> = None;
        for candidate in candidates.iter() {
            let found = match candidate.at {
                CandidateCells::Cell(slot) => {
                    let lot = lots.of_cell(hashes[slot as usize]);
                    Some((tie::distance(lot, point), slot))
                }
                CandidateCells::Bucket(key) => {
                    let list = &mut index.orders[order].lists[candidate.class as usize];
                    list.bucket_mut(&key)
                        .and_then(|bucket| bucket.nearest(lots, point, &|slot| free.is(slot)))
                }
            };
            let Some(found) = found else { continue };
            // two names may have the same hash; the plain engine then takes the first by name
            let closer = best.is_none_or(|best| {
                let by_name =
                    || session.parts.names[found.1 as usize] < session.parts.names[best.1 as usize];
                found.0 < best.0 || (found.0 == best.0 && by_name())
            });
            if closer {
                best = Some(found);
            }
        }
        best.map(|(_, slot)| slot)
    }
}

/// Determines which cells of a bucket whose key fits a job may get it.
struct Free<'s, 'a> {
    session: &'s Session<'a>,
    need: &'s Need,
    request: &'s Request,
    /// Whether to skip marked cells, which hold the app and are evaluated one by one.
    but_marked: bool,
    /// Whether the key does not tell everything.
    by_row: bool,
}

impl<'s, 'a> Free<'s, 'a> {
    fn new(
        session: &'s Session<'a>,
        need: &'s Need,
        request: &'s Request,
        group: JobGroup,
    ) -> Self {
        Self {
            session,
            need,
            request,
            but_marked: !session.app(group).holders.is_empty(),
            by_row: need.extra || need.amounts[Resource::Cpu] != Amounts::NO_NEED,
        }
    }

    /// Returns whether every cell may get it.
    fn is_any(&self) -> bool {
        !self.but_marked && !self.by_row
    }

    fn is(&self, slot: u32) -> bool {
        !(self.but_marked && self.session.is_marked(slot))
            && (!self.by_row || self.session.fits(slot, self.need, self.request))
    }
}
