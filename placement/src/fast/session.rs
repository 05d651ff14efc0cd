//! What one plan knows besides an index: the batch's own debits, and how to revert them.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use super::rows::{Holders, Need, Row};
use crate::{
    batch::JobGroup,
    cell::Cell,
    context::PlanContext,
    devices::{DeviceSet, DeviceShares},
    expected::ExpectedWork,
    fast_map::FastMap,
    fit,
    free::Free,
    policy::Policy,
    request::{Job, Request},
    tie,
};

/// The pool's parts that a plan works on.
pub(crate) struct Parts<'a> {
    pub(crate) names: &'a [Arc<str>],
    pub(crate) cells: &'a [Cell],
    pub(crate) hashes: &'a [u64],
    pub(crate) holders: &'a Holders,
    pub(crate) rows: &'a mut Vec<Row>,
    /// The expected work, for scores that measure fragmentation, and its version, which changes with it.
    pub(crate) expected: (&'a ExpectedWork, u64),
}

/// One app's instances, including those placed in this batch.
#[derive(Debug, Default)]
pub(crate) struct AppState {
    known: bool,
    /// By slot; only cells that exist for this auction.
    pub(crate) holders: Vec<(u32, u32)>,
    /// By zone of the index.
    pub(crate) zones: Vec<u32>,
}

/// The state of one plan.
pub(crate) struct Session<'a> {
    pub(crate) parts: Parts<'a>,
    pub(crate) policy: &'a Policy,
    pub(crate) context: &'a PlanContext,
    pub(crate) lots: tie::Lots,
    ignores_evacuating: bool,
    /// Slots that do not exist for this auction, ascending.
    pub(crate) out: Vec<u32>,
    apps: Vec<AppState>,
    /// By slot: the number of the last job that marked it.
    marks: Vec<u32>,
    mark: u32,
    /// The original rows; each touched slot once.
    undo: Vec<(u32, Row)>,
    touched: Vec<bool>,
    /// Named resources taken in this batch.
    extras: FastMap<(u32, String), i64>,
    /// By slot: the current devices of cells from which some were taken in this batch.
    devices: FastMap<u32, BTreeMap<String, DeviceSet>>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        parts: Parts<'a>,
        policy: &'a Policy,
        context: &'a PlanContext,
        apps: usize,
        slot_of: impl Fn(&str) -> Option<u32>,
    ) -> Self {
        // duplicate or unknown names are no error: the pool may have lost the cell since
        let gone = context.absent.iter().chain(&context.expired);
        let mut out: Vec<u32> = gone.filter_map(|name| slot_of(name)).collect();
        out.sort_unstable();
        out.dedup();
        let slots = parts.cells.len();
        Self {
            policy,
            context,
            lots: tie::Lots::new(context.seed, context.auction),
            ignores_evacuating: policy.ignores_evacuating(),
            out,
            apps: std::iter::repeat_with(AppState::default)
                .take(apps)
                .collect(),
            marks: vec![0; slots],
            mark: 0,
            undo: Vec::new(),
            touched: vec![false; slots],
            extras: FastMap::default(),
            devices: FastMap::default(),
            parts,
        }
    }

    /// Returns whether the cell does not exist for this auction.
    fn is_out(&self, slot: u32) -> bool {
        !self.out.is_empty() && self.out.binary_search(&slot).is_ok()
    }

    /// Returns whether the instances of an existing cell count in its zone.
    fn counts(&self, slot: u32) -> bool {
        !(self.ignores_evacuating && self.parts.cells[slot as usize].evacuating)
    }

    /// Looks up the job's app when its first job comes. `zone_of` returns the zone of a slot.
    pub(crate) fn meet(
        &mut self,
        group: JobGroup,
        job: &Job,
        zones: usize,
        zone_of: impl Fn(u32) -> Option<u32>,
    ) {
        if self.apps[group.app as usize].known {
            return;
        }
        // a copy: the batch's own instances are added, while the pool's list stays as it is
        let known = self.parts.holders.of(&job.request.app).iter().copied();
        let holders: Vec<(u32, u32)> = known.filter(|(slot, _)| !self.is_out(*slot)).collect();
        let mut counts = vec![0; zones];
        for (slot, count) in &holders {
            if let Some(zone) = zone_of(*slot).filter(|_| self.counts(*slot)) {
                counts[zone as usize] += count;
            }
        }
        self.apps[group.app as usize] = AppState {
            known: true,
            holders,
            zones: counts,
        };
    }

    pub(crate) fn app(&self, group: JobGroup) -> &AppState {
        &self.apps[group.app as usize]
    }

    /// Returns an app of the batch, once it was looked up.
    pub(crate) fn known_app(&self, number: u32) -> Option<&AppState> {
        Some(&self.apps[number as usize]).filter(|app| app.known)
    }

    pub(crate) fn row(&self, slot: u32) -> &Row {
        &self.parts.rows[slot as usize]
    }

    /// Marks the app's holders, which are skipped until the next call.
    pub(crate) fn mark_holders(&mut self, group: JobGroup) {
        // a new number instead of clearing: marks of earlier jobs have lower numbers and no longer count
        self.mark += 1;
        for (slot, _) in &self.apps[group.app as usize].holders {
            self.marks[*slot as usize] = self.mark;
        }
    }

    /// Forgets all marks.
    pub(crate) fn clear_marks(&mut self) {
        self.mark += 1;
    }

    /// Marks one cell.
    pub(crate) fn mark(&mut self, slot: u32) {
        self.marks[slot as usize] = self.mark;
    }

    pub(crate) fn is_marked(&self, slot: u32) -> bool {
        self.marks[slot as usize] == self.mark
    }

    /// Returns whether the cell has all named resources and the devices.
    pub(crate) fn has_extras(&self, slot: u32, request: &Request) -> bool {
        let available = &self.parts.cells[slot as usize].available;
        let has_named = request.extra.iter().all(|(name, amount)| {
            // only requests with named resources get here, so a map is fast enough
            let taken = self.extras.get(&(slot, name.clone())).copied().unwrap_or(0);
            available.extra(name) - taken >= *amount
        });
        has_named && {
            let sets = self.devices.get(&slot).unwrap_or(&available.devices);
            fit::has_devices(sets, request)
        }
    }

    /// Returns what is free on the cell after the debits of this batch.
    pub(crate) fn free(&self, slot: u32) -> Free<'_> {
        let available = &self.parts.cells[slot as usize].available;
        let mut extra = Cow::Borrowed(&available.extra);
        // few policies need this, and few batches take named resources: a walk over all that were taken is fast enough
        for ((_, name), taken) in self.extras.iter().filter(|((at, _), _)| *at == slot) {
            *extra.to_mut().entry(name.clone()).or_insert(0) -= taken;
        }
        let devices = self.devices.get(&slot).unwrap_or(&available.devices);
        Free {
            amounts: self.row(slot).free,
            extra,
            devices: Cow::Borrowed(devices),
        }
    }

    /// Gives an instance of the request its devices on the cell, and returns them.
    #[inline]
    pub(crate) fn take_devices(
        &mut self,
        slot: u32,
        request: &Request,
    ) -> Option<Box<DeviceShares>> {
        if request.devices.is_empty() {
            return None;
        }
        let available = &self.parts.cells[slot as usize].available;
        let sets = self.devices.entry(slot);
        let sets = sets.or_insert_with(|| available.devices.clone());
        let given = fit::choose_devices(sets, request);
        fit::apply_devices(sets, given.as_deref(), -1);
        given
    }

    /// Returns whether the cell has enough of everything.
    pub(crate) fn fits(&self, slot: u32, need: &Need, request: &Request) -> bool {
        need.fits(self.row(slot)) && (!need.extra || self.has_extras(slot, request))
    }

    /// Debits the cell's row and the app's counts for any request of the job's shape; returns the row as it was. `zone`
    /// is none if the cell's instances do not count in a zone.
    pub(crate) fn debit(
        &mut self,
        slot: u32,
        zone: Option<u32>,
        request: &Request,
        group: JobGroup,
    ) -> Row {
        let row = &mut self.parts.rows[slot as usize];
        let old = *row;
        *row = row.debited(request);
        // only the first time, because rolling back restores the row from before the batch
        if !std::mem::replace(&mut self.touched[slot as usize], true) {
            self.undo.push((slot, old));
        }
        for (name, amount) in &request.extra {
            *self.extras.entry((slot, name.clone())).or_insert(0) += amount;
        }
        if request.kind == crate::request::Kind::Lrp {
            let app = &mut self.apps[group.app as usize];
            // few instances of an app share a cell, so new holders are the rule
            match app.holders.binary_search_by_key(&slot, |(s, _)| *s) {
                Ok(at) => app.holders[at].1 += 1,
                Err(at) => app.holders.insert(at, (slot, 1)),
            }
            if let Some(zone) = zone {
                app.zones[zone as usize] += 1;
            }
        }
        old
    }

    /// Reverts every debit. `moved` is called for each row with the slot, the current row and the original one.
    pub(crate) fn roll_back(&mut self, mut moved: impl FnMut(u32, Row, Row)) {
        // each slot is listed once, so the order does not matter
        for (slot, before) in std::mem::take(&mut self.undo) {
            let row = &mut self.parts.rows[slot as usize];
            let after = std::mem::replace(row, before);
            moved(slot, after, before);
        }
    }

    /// Returns the job's point on the circle of lots.
    pub(crate) fn point(&self, job: &Job, group: JobGroup) -> tie::Point {
        self.lots.of_job(group.app_hash, job.index)
    }

    /// Sorts the slots by name.
    pub(crate) fn by_name(&self, mut slots: Vec<u32>) -> Vec<u32> {
        let names = self.parts.names;
        slots.sort_unstable_by(|a, b| names[*a as usize].cmp(&names[*b as usize]));
        slots
    }
}
