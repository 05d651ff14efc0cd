//! Narrowings over columns.

use super::{Columnar, keep, keep_if_any};
use crate::{
    batch::JobGroup,
    fast::{columns::NO_RACK, view::count_at},
    policy::Narrow,
    request::{Job, Request},
    resources::Resource,
};

impl Columnar<'_> {
    pub(super) fn strict_locality(&mut self, request: &Request) {
        // without `strict` they are preferences, which the narrowing of the same name handles
        if !request.strict || (request.near.is_empty() && request.far.is_empty()) {
            return;
        }
        let far = self.view.held(&request.far);
        let near = self.view.held(&request.near);
        let wanted = u32::try_from(request.near.len()).unwrap_or(u32::MAX);
        let stays = |p: &u32| far[*p as usize] == 0 && near[*p as usize] == wanted;
        self.scratch.alive.retain(stays);
    }

    pub(super) fn narrow(&mut self, narrow: &Narrow, job: &Job, group: JobGroup) {
        let Self { view, scratch, .. } = self;
        match narrow {
            Narrow::ZoneFewest => {
                let counts = &view.session.app(group).zones;
                let columns = &view.columns;
                // the app may have run in zones that no remaining cell is in, so the minimum is taken over the
                // remaining ones
                let count = |p: &u32| columns.zone(*p).map_or(0, |zone| counts[zone as usize]);
                let fewest = scratch.alive.iter().map(count).min().unwrap_or(0);
                keep(scratch, |p| count(p) == fewest);
            }
            Narrow::AppFewest => {
                let holders = &view.session.app(group).holders;
                // every count is 0, so all cells would be kept
                if holders.is_empty() {
                    return;
                }
                let count = |p: &u32| count_at(holders, *p);
                let fewest = scratch.alive.iter().map(count).min().unwrap_or(0);
                keep(scratch, |p| count(p) == fewest);
            }
            Narrow::Fewest(grouping) => {
                let holders = &view.session.app(group).holders;
                let counts = view.group_counts(grouping, holders);
                let count = |p: &u32| counts.of(view.cell(*p), count_at(holders, *p));
                let fewest = scratch.alive.iter().map(count).min().unwrap_or(0);
                keep(scratch, |p| count(p) == fewest);
            }
            Narrow::UpperHalfMemory => {
                let memory = |p: &u32| view.session.row(*p).free[Resource::Memory];
                let mut sorted: Vec<i64> = scratch.alive.iter().map(memory).collect();
                let middle = sorted.len() / 2;
                // the middle one and its equals stay, as in the plain engine: never less than half
                let threshold = *sorted.select_nth_unstable(middle).1;
                keep(scratch, |p| memory(p) >= threshold);
            }
            Narrow::Locality => self.nearby(&job.request),
        }
    }

    fn nearby(&mut self, request: &Request) {
        let Self { view, scratch, .. } = self;
        if request.near.is_empty() && request.far.is_empty() {
            // a job with neither `near` nor `far` is kept apart from its owner's other work
            if let Some(owner) = &request.owner {
                let holders = view.owner(owner);
                if !holders.is_empty() {
                    keep_if_any(scratch, |p| count_at(holders, *p) == 0);
                }
            }
            return;
        }
        let in_rack = |p: u32, wanted: &[bool]| {
            let rack = view.columns.racks[p as usize];
            // two cells without a rack are not in the same one
            rack != NO_RACK && wanted[rack as usize]
        };
        if !request.far.is_empty() {
            let held = view.held(&request.far);
            // first away from the cells, then from their racks: the second preference must not undo the first
            keep_if_any(scratch, |p| held[*p as usize] == 0);
            let racks = view.racks_of(&held);
            keep_if_any(scratch, |p| !in_rack(*p, &racks));
        }
        if !request.near.is_empty() {
            let held = view.held(&request.near);
            // the same cell is nearer than the same rack
            if !keep_if_any(scratch, |p| held[*p as usize] > 0) {
                let racks = view.racks_of(&held);
                keep_if_any(scratch, |p| in_rack(*p, &racks));
            }
        }
    }
}
