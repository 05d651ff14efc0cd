//! How many more instances of one size fit, optionally with additional cells.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    cell::{Cell, Counts},
    context::{Now, PlanContext},
    decision::{Unplaced, Verdict},
    invalid::Invalid,
    policy::{Filter, Policy, Step},
    pool::Pool,
    request::{Job, MAX_INSTANCES, Request},
    stages::filter,
};

/// How many more instances of a request fit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// On all cells together.
    pub fits: u64,
    /// In each zone, by name, including zones without room.
    pub zones: BTreeMap<String, ZoneCapacity>,
    /// Why none fits, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why none fits, in numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tally: Vec<crate::decision::Tally>,
}

/// How many more instances fit into one zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ZoneCapacity {
    /// On all its cells together.
    pub fits: u64,
    /// How many of its cells have room for at least one.
    pub cells: u64,
    /// How many fit on the cell with the most room.
    pub most_on_a_cell: u64,
}

impl Pool {
    /// Returns how many more instances of the request fit under the policy's filters, with each cell filled on its own.
    /// Narrowings and scores choose between cells and exclude none, so they do not matter; neither does the limit of
    /// starts in flight, which is temporary. At most [`MAX_INSTANCES`] are counted per cell.
    pub fn capacity(&self, request: &Request, policy: &Policy, context: &PlanContext) -> Capacity {
        let now = Now::of(context);
        let mut capacity = Capacity::default();
        let left_out = |cell: &Cell| {
            let name = cell.cell.as_str();
            context.absent.contains(name) || context.expired.contains(name)
        };
        for cell in self.cells().filter(|cell| !left_out(cell)) {
            let fits = if request.excludes(&cell.cell) {
                0
            } else {
                room(cell, request, policy, now)
            };
            let zone = capacity.zones.entry(cell.zone.clone()).or_default();
            zone.fits += fits;
            zone.cells += u64::from(fits > 0);
            zone.most_on_a_cell = zone.most_on_a_cell.max(fits);
            capacity.fits += fits;
        }
        if capacity.fits == 0 {
            let why = self.why_not(request, policy, context);
            capacity.reason = Some(why.reason);
            capacity.tally = why.tally;
        }
        capacity
    }

    fn why_not(&self, request: &Request, policy: &Policy, context: &PlanContext) -> Unplaced {
        let job = Job {
            request: request.clone().into(),
            index: 0,
        };
        // otherwise these limits would be reported before any filter
        let policy = Policy {
            max_in_flight: 0,
            max_starting_per_cell: 0,
            ..policy.clone()
        };
        let plan = self.plan_plainly(&[job], &policy, context);
        match plan
            .decisions
            .into_iter()
            .next()
            .map(|decision| decision.verdict)
        {
            Some(Verdict::Unplaced(why)) => *why,
            // for example, an objective of the request that gives no finite number
            _ => Unplaced {
                reason: "no cell passes the filters".into(),
                tally: Vec::new(),
            },
        }
    }

    /// Adds `count` empty cells like an existing one, for what-if questions. They have no instances, are not
    /// evacuating, and come last by index in their zone. Returns their names, `LIKE-new-1` and so on; a long name is
    /// shortened.
    pub fn add_like(&mut self, like: &str, count: u32) -> Result<Vec<String>, Invalid> {
        let model = self
            .get(like)
            .ok_or_else(|| Invalid::new("like", format!("{like:?}"), "the name of a known cell"))?;
        let model = emptied(model);
        let last = self
            .cells()
            .filter(|cell| cell.zone == model.zone)
            .map(|cell| cell.index)
            .max();
        let stem: String = like.chars().take(MAX_STEM).collect();
        let free = |n: &u32| self.get(&format!("{stem}-new-{n}")).is_none();
        let numbers: Vec<u32> = (1..).filter(free).take(count as usize).collect();
        let mut names = Vec::new();
        for (next, number) in (1..).zip(numbers) {
            let cell = Cell {
                cell: format!("{stem}-new-{number}"),
                index: last.unwrap_or(0).saturating_add(next),
                ..model.clone()
            };
            cell.check()?;
            names.push(cell.cell.clone());
            self.put(cell);
        }
        Ok(names)
    }
}

/// How many characters of a cell's name are used in the names of copies.
const MAX_STEM: usize = 100;

/// Returns the cell without anything that depends on its work.
fn emptied(cell: &Cell) -> Cell {
    let mut empty = Cell {
        available: cell.total.clone(),
        counts: Counts::default(),
        recent_starts: Vec::new(),
        evacuating: false,
        ..cell.clone()
    };
    empty.attributes_mut().volumes.clear();
    empty.attributes_mut().cached_blobs.clear();
    empty
}

/// Returns how many instances fit on one cell.
fn room(cell: &Cell, request: &Request, policy: &Policy, now: Now<'_>) -> u64 {
    let filters: Vec<&Filter> = policy
        .stages_for(request.kind)
        .filter_map(|stage| match &stage.step {
            Step::Filter(filter) => Some(filter),
            _ => None,
        })
        .collect();
    let passes = |cell: &Cell| filters.iter().all(|f| filter::keeps(f, cell, request, now));
    if !passes(cell) {
        return 0;
    }
    let bounds = filters
        .iter()
        .filter_map(|filter| bound(filter, cell, request));
    let room = bounds
        .min()
        .unwrap_or(i64::MAX)
        .clamp(0, i64::from(MAX_INSTANCES));
    // the first instance may exclude others, such as `far` from itself with `strict`
    let mut after = cell.clone();
    after.debit(request, None);
    after.available.clone_from(&cell.available);
    if passes(&after) {
        room.unsigned_abs()
    } else {
        room.min(1).unsigned_abs()
    }
}

/// Returns how many instances the filter admits to the cell; none if any number.
fn bound(filter: &Filter, cell: &Cell, request: &Request) -> Option<i64> {
    let times = |has: i64, each: i64| (each > 0).then(|| has / each);
    match filter {
        Filter::Amount(resource) => {
            let each = request.amounts()[*resource];
            cell.available
                .get(*resource)
                .and_then(|has| times(has, each))
        }
        Filter::Extra => {
            let each = request.extra.iter();
            let extras =
                each.filter_map(|(name, amount)| times(cell.available.extra(name), *amount));
            let sets = request.devices.iter();
            let devices = sets.map(|(name, need)| {
                let set = cell.available.devices.get(name);
                set.map_or(0, |set| set.room(need, MAX_INSTANCES.into()))
            });
            extras.chain(devices).min()
        }
        Filter::ContainerCount { limit } => {
            let has = i64::try_from(filter::containers(cell)).unwrap_or(i64::MAX);
            Some(i64::from(*limit).saturating_sub(has))
        }
        _ => None,
    }
}

impl std::fmt::Display for Capacity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} more fit", self.fits)?;
        for (zone, room) in &self.zones {
            let ZoneCapacity {
                fits,
                cells,
                most_on_a_cell,
            } = room;
            let on = if *cells == 1 { "cell" } else { "cells" };
            writeln!(
                f,
                "  {zone}: {fits} on {cells} {on}, at most {most_on_a_cell} on one"
            )?;
        }
        if let Some(reason) = &self.reason {
            writeln!(f, "  {reason}")?;
        }
        for tally in &self.tally {
            writeln!(f, "    {}", tally.in_words())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
