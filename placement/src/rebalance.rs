//! Plans which instances to move so that zones and cells are even again, for example after a zone was away: the most
//! helpful moves first, and none that does not help.
//!
//! A move is a start by the policy while the old instance is still there, followed by the end of the old one; so the
//! new place is where an auctioneer would put it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::{
    cell::Cell,
    context::PlanContext,
    decision::Verdict,
    policy::Policy,
    pool::Pool,
    request::{Job, Request},
};

/// Zones are even if their numbers of instances of an app differ by no more than this.
const EVEN: u32 = 1;
/// A cell is too full if its load exceeds the average by this many percentage points.
const UNEVEN_LOAD: f64 = 10.0;
/// A move must make the fuller of its two cells emptier by at least this many percentage points.
const LEAST_GAIN: f64 = 1.0;

/// An instance that may be moved.
#[derive(Clone, Debug)]
pub struct Movable {
    /// The request that it is an instance of.
    pub request: Arc<Request>,
    /// Its index.
    pub index: u32,
    /// Where it runs.
    pub cell: Arc<str>,
    /// What it uses, if measured.
    pub usage: Option<Usage>,
}

/// The measured usage of an instance, or of all instances of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// MiB.
    pub memory_mb: i64,
    /// Thousandths of a core.
    pub cpu_millis: i64,
}

/// How the load of a cell is determined.
#[derive(Clone, Copy, Debug)]
pub enum LoadBy<'a> {
    /// By the memory that is reserved.
    Reserved,
    /// By what its instances use: memory or cpu, whichever is used to a larger part. For a cell that is not in the map,
    /// by what is reserved.
    Usage(&'a BTreeMap<Arc<str>, Usage>),
}

/// Why an instance is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MoveReason {
    /// Its zone has more instances of its app than another one.
    Zone,
    /// Its cell is fuller than others.
    Load,
}

/// One move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The app.
    pub app: String,
    /// The index.
    pub index: u32,
    /// Where it runs.
    pub from: Arc<str>,
    /// Where it would be started.
    pub to: Arc<str>,
    /// Why.
    pub why: MoveReason,
}

/// How even zones and cells are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evenness {
    /// How many instances would have to be in another zone so that no app has two more of them in one zone than in
    /// another.
    pub uneven: u32,
    /// Of the fullest cell: what is reserved or used, in percent of what it has.
    pub fullest: f64,
    /// The same for the emptiest cell.
    pub emptiest: f64,
    /// Free memory, in MiB, of cells that have no room for the largest of the instances although they could hold it
    /// when empty.
    pub stranded_mb: i64,
}

/// The planned moves, and what they change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rebalance {
    /// The most helpful first.
    pub moves: Vec<Move>,
    /// The evenness now.
    pub before: Evenness,
    /// The evenness after all moves.
    pub after: Evenness,
}

impl Pool {
    /// Plans at most `most` moves of these instances. Cells that take no new work count neither as part of a zone nor
    /// as a place.
    pub fn rebalance(
        &self,
        movable: Vec<Movable>,
        load_by: LoadBy<'_>,
        (policy, context): (&Policy, &PlanContext),
        most: usize,
    ) -> Rebalance {
        let mut mover = Mover {
            pool: self.clone(),
            used: self.used(load_by),
            by_usage: matches!(load_by, LoadBy::Usage(_)),
            movable,
            policy,
            context,
            most,
            moves: Vec::new(),
        };
        let before = mover.balance();
        mover.even_zones();
        mover.even_cells();
        Rebalance {
            before,
            after: mover.balance(),
            moves: mover.moves,
        }
    }

    /// Returns what counts as used on each cell.
    fn used(&self, load_by: LoadBy<'_>) -> BTreeMap<Arc<str>, Usage> {
        let used = |cell: &Cell| {
            let reserved = Usage {
                memory_mb: cell.total.memory_mb - cell.available.memory_mb,
                cpu_millis: 0,
            };
            match load_by {
                LoadBy::Reserved => reserved,
                LoadBy::Usage(all) => all.get(cell.cell.as_str()).copied().unwrap_or(reserved),
            }
        };
        let cells = self.cells();
        cells
            .map(|cell| (cell.cell.as_str().into(), used(cell)))
            .collect()
    }
}

struct Mover<'a> {
    pool: Pool,
    used: BTreeMap<Arc<str>, Usage>,
    by_usage: bool,
    movable: Vec<Movable>,
    policy: &'a Policy,
    context: &'a PlanContext,
    most: usize,
    moves: Vec<Move>,
}

/// How many instances of one app each zone has.
type Zones = BTreeMap<String, u32>;

impl Mover<'_> {
    /// Moves instances out of zones that have too many of their app, the most uneven app first.
    fn even_zones(&mut self) {
        let mut stuck: BTreeSet<String> = BTreeSet::new();
        while self.moves.len() < self.most {
            let apps = self.zones_of_apps().into_iter();
            let uneven = apps.filter(|(app, zones)| spread(zones) > EVEN && !stuck.contains(app));
            // if several are equal, the first by name
            let worst = uneven.min_by_key(|(_, zones)| std::cmp::Reverse(spread(zones)));
            let Some((app, zones)) = worst else {
                return;
            };
            if !self.move_out(&app, &zones) {
                stuck.insert(app);
            }
        }
    }

    /// Moves one instance of an app out of its fullest zone. Returns whether a move helps.
    fn move_out(&mut self, app: &str, zones: &Zones) -> bool {
        let most = zones.values().copied().max().unwrap_or(0);
        let in_fullest = |movable: &Movable| {
            let zone = self.zone_of(&movable.cell);
            movable.request.app == app && zone.and_then(|zone| zones.get(zone)) == Some(&most)
        };
        let mut candidates: Vec<usize> = (0..self.movable.len())
            .filter(|n| in_fullest(&self.movable[*n]))
            .collect();
        // from the fullest cell first; within a cell, the highest index
        candidates.sort_by(|a, b| {
            let load = |n: &usize| self.load_of(&self.movable[*n].cell);
            let by_load = load(b).total_cmp(&load(a));
            by_load.then(self.movable[*b].index.cmp(&self.movable[*a].index))
        });
        for n in candidates {
            let Some(to) = self.place(n) else {
                continue;
            };
            let count = self.zone_of(&to).and_then(|zone| zones.get(zone));
            if count.copied().unwrap_or(0) + EVEN < most {
                self.carry_out(n, &to, MoveReason::Zone);
                return true;
            }
        }
        false
    }

    /// Moves instances from the fullest cells to emptier ones, without making zones uneven.
    fn even_cells(&mut self) {
        let mut stuck: BTreeSet<Arc<str>> = BTreeSet::new();
        while self.moves.len() < self.most {
            let cells: Vec<(f64, Arc<str>)> = self
                .open_cells()
                .map(|cell| (self.load(cell), Arc::from(cell.cell.as_str())))
                .collect();
            let average = cells.iter().map(|(load, _)| load).sum::<f64>() / cells.len() as f64;
            let full = cells
                .into_iter()
                .filter(|(load, name)| *load >= average + UNEVEN_LOAD && !stuck.contains(name));
            let Some((_, fullest)) = full.max_by(|a, b| a.0.total_cmp(&b.0)) else {
                return;
            };
            if !self.relieve(&fullest) {
                stuck.insert(fullest);
            }
        }
    }

    /// Moves the instance of this cell whose move helps most. Returns whether there is one.
    fn relieve(&mut self, from: &Arc<str>) -> bool {
        let mut best: Option<(f64, usize, Arc<str>)> = None;
        let on_it = (0..self.movable.len()).filter(|n| self.movable[*n].cell == *from);
        for n in on_it.collect::<Vec<_>>() {
            let Some(to) = self.place(n).filter(|to| self.keeps_zones_even(n, to)) else {
                continue;
            };
            let gain = self.gain(n, &to);
            let better = best.as_ref().is_none_or(|(most, ..)| gain > *most);
            if gain >= LEAST_GAIN && better {
                best = Some((gain, n, to));
            }
        }
        let Some((_, n, to)) = best else {
            return false;
        };
        self.carry_out(n, &to, MoveReason::Load);
        true
    }

    /// Returns by how many percentage points the fuller of the two cells is less full afterwards.
    fn gain(&self, n: usize, to: &Arc<str>) -> f64 {
        let from = &self.movable[n].cell;
        let own = self.usage_of(n);
        let after = |name: &Arc<str>, sign: i64| {
            let used = self.used.get(name).copied().unwrap_or_default();
            let cell = self.pool.get(name);
            cell.map_or(0.0, |cell| share(cell, used.plus(own, sign)))
        };
        let after = after(from, -1).max(after(to, 1));
        self.load_of(from).max(self.load_of(to)) - after
    }

    /// Returns what an instance adds to the load of its cell.
    fn usage_of(&self, n: usize) -> Usage {
        let movable = &self.movable[n];
        let reserved = Usage {
            memory_mb: movable.request.memory_mb,
            cpu_millis: 0,
        };
        movable.usage.filter(|_| self.by_usage).unwrap_or(reserved)
    }

    fn keeps_zones_even(&self, n: usize, to: &str) -> bool {
        let Movable { request, cell, .. } = &self.movable[n];
        let (from_zone, to_zone) = (self.zone_of(cell), self.zone_of(to));
        let zones = self.zones_of(&request.app);
        let count = |zone: Option<&str>| zone.and_then(|z| zones.get(z)).copied().unwrap_or(0);
        from_zone == to_zone || count(to_zone) < count(from_zone)
    }

    /// Returns where the policy would start it while it still runs; none if on no other cell.
    fn place(&mut self, n: usize) -> Option<Arc<str>> {
        let movable = &self.movable[n];
        // which devices it has is not known here
        if !movable.request.devices.is_empty() {
            return None;
        }
        let (request, index) = (Arc::clone(&movable.request), movable.index);
        let own = Arc::clone(&movable.cell);
        let first = self.winner(Arc::clone(&request), index)?;
        if first != own {
            return Some(first);
        }
        // managers exclude its own cell; that is slower, so only where it matters
        let mut elsewhere = Request::clone(&request);
        elsewhere.exclude_cells.push(own.to_string());
        self.winner(elsewhere.into(), index)
    }

    fn winner(&mut self, request: Arc<Request>, index: u32) -> Option<Arc<str>> {
        let job = Job { request, index };
        let plan = self.pool.plan(&[job], self.policy, self.context);
        match plan.decisions.into_iter().next()?.verdict {
            Verdict::Placed { cell } => Some(cell),
            _ => None,
        }
    }

    fn carry_out(&mut self, n: usize, to: &Arc<str>, why: MoveReason) {
        let own = self.usage_of(n);
        let movable = &mut self.movable[n];
        let from = std::mem::replace(&mut movable.cell, Arc::clone(to));
        let request = Arc::clone(&movable.request);
        for (name, sign) in [(&from, -1), (to, 1)] {
            if let Some(used) = self.used.get_mut(name) {
                *used = used.plus(own, sign);
            }
        }
        if let Some(mut cell) = self.pool.get(&from).cloned() {
            cell.credit(&request, None);
            self.pool.put(cell);
        }
        if let Some(mut cell) = self.pool.get(to).cloned() {
            cell.debit(&request, None);
            // it is running before the next one is started
            cell.counts.starting = cell.counts.starting.saturating_sub(1);
            self.pool.put(cell);
        }
        self.moves.push(Move {
            app: request.app.clone(),
            index: self.movable[n].index,
            from,
            to: Arc::clone(to),
            why,
        });
    }

    fn balance(&self) -> Evenness {
        let zones = self.zones_of_apps();
        let loads = || self.open_cells().map(|cell| self.load(cell));
        let emptiest = loads().min_by(f64::total_cmp).unwrap_or(0.0);
        let largest = self.movable.iter().map(|movable| movable.request.memory_mb);
        let largest = largest.max().unwrap_or(0);
        let stranded = self
            .open_cells()
            .filter(|cell| cell.total.memory_mb >= largest && cell.available.memory_mb < largest);
        Evenness {
            uneven: zones.values().map(too_many).sum(),
            fullest: loads().fold(0.0, f64::max),
            emptiest,
            stranded_mb: stranded.map(|cell| cell.available.memory_mb.max(0)).sum(),
        }
    }

    /// Returns the cells that take new work.
    fn open_cells(&self) -> impl Iterator<Item = &Cell> {
        self.pool.cells().filter(|cell| !cell.evacuating)
    }

    fn zone_of(&self, cell: &str) -> Option<&str> {
        Some(self.pool.get(cell)?.zone.as_str())
    }

    fn load_of(&self, cell: &str) -> f64 {
        self.pool.get(cell).map_or(0.0, |cell| self.load(cell))
    }

    /// Returns how full a cell is, in percent.
    fn load(&self, cell: &Cell) -> f64 {
        let used = self.used.get(cell.cell.as_str()).copied();
        share(cell, used.unwrap_or_default())
    }

    /// Returns, for each app with an instance that may be moved, how many instances each zone has.
    fn zones_of_apps(&self) -> BTreeMap<String, Zones> {
        let apps = self
            .movable
            .iter()
            .map(|movable| movable.request.app.as_str());
        let apps: BTreeSet<&str> = apps.collect();
        let zones = |app: &str| (app.to_owned(), self.zones_of(app));
        apps.into_iter().map(zones).collect()
    }

    fn zones_of(&self, app: &str) -> Zones {
        let mut zones = Zones::new();
        for cell in self.open_cells() {
            *zones.entry(cell.zone.clone()).or_default() += cell.count_of(app);
        }
        zones
    }
}

fn spread(zones: &Zones) -> u32 {
    let most = zones.values().copied().max().unwrap_or(0);
    most - zones.values().copied().min().unwrap_or(0)
}

/// Returns how many instances are in zones beyond their share.
fn too_many(zones: &Zones) -> u32 {
    if spread(zones) <= EVEN {
        return 0;
    }
    let count = u32::try_from(zones.len()).unwrap_or(u32::MAX).max(1);
    let all: u32 = zones.values().sum();
    // this many zones have one more than the others
    let (share, more) = (all / count, all % count);
    let mut counts: Vec<u32> = zones.values().copied().collect();
    counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
    let wanted = (0..).map(|n| share + u32::from(n < more));
    counts
        .iter()
        .zip(wanted)
        .map(|(has, wanted)| has.saturating_sub(wanted))
        .sum()
}

impl Usage {
    /// Returns the sum, or the difference if the sign is -1.
    fn plus(self, other: Self, sign: i64) -> Self {
        Self {
            memory_mb: self.memory_mb + sign * other.memory_mb,
            cpu_millis: self.cpu_millis + sign * other.cpu_millis,
        }
    }
}

/// Returns the larger of the used parts of a cell's memory and cpu, in percent. A cell that offers no cpu has none in
/// use.
fn share(cell: &Cell, used: Usage) -> f64 {
    let memory = percent(used.memory_mb, cell.total.memory_mb);
    memory.max(percent(used.cpu_millis, cell.total.cpu_millis))
}

fn percent(part: i64, of: i64) -> f64 {
    if of <= 0 {
        return 0.0;
    }
    part as f64 / of as f64 * 100.0
}

#[cfg(test)]
mod tests;
