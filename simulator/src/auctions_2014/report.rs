//! The result of the auctions in the form of every other run.

use std::collections::{BTreeMap, BTreeSet};

use placement::Cell;

use super::AuctionsResult;
use crate::{
    demand::{Demand, largest_memory_mb},
    measure::{LOAD_BOUNDS, Load, Meter, ROUNDS_BOUNDS, WAIT_BOUNDS_MS, memory_distribution},
    outcome::{Balance, CellEnd, Figures, Histogram, InstanceEnd, Sample, SimRun, Spread, Traffic},
};

/// Above this number of instances, a cell lists one entry per app.
const MAX_SINGLE: usize = 20_000;
/// Number of samples in the series.
const SAMPLES: u64 = 240;
/// Maximum number of reasons for unplaced instances that are listed.
const MAX_REASONS: usize = 20;

/// Returns the result as a run named `policy`; `before` and `demands` are what was simulated.
/// `price_per_cell_hour` prices the cells that were never needed.
///
/// Requests and replies between clients and auctioneers are not counted, as in 2014 they went through
/// a store rather than over NATS. `extra` has `communications` (requests to cells), `leaked
/// reservations` and `cancelled`.
pub fn outcome(
    policy: &str,
    before: &[Cell],
    demands: &[Demand],
    result: &AuctionsResult,
    price_per_cell_hour: Option<f64>,
) -> SimRun {
    let (mut figures, series) = follow(before, demands, result, price_per_cell_hour);
    let mut waits: Vec<f64> = result
        .placements
        .iter()
        .map(|p| p.wait_us as f64 / 1e3)
        .collect();
    let mut rounds: Vec<f64> = result
        .placements
        .iter()
        .map(|p| f64::from(p.rounds))
        .collect();
    figures.virtual_ms = result.ended_ms;
    figures.placed = result.placements.len() as u64;
    figures.unplaced = result.failures.len() as u64;
    figures.waiting = result.waiting;
    figures.asked = figures.placed + figures.unplaced + result.waiting + result.cancelled;
    figures.wait_ms = Spread::of(&mut waits);
    figures.rounds = Spread::of(&mut rounds);
    figures.auctions = result.auctions;
    figures.messages.clone_from(&result.messages);
    figures.traffic = total(&result.messages);
    figures.distribution = memory_distribution(&memory_of(&result.cells));
    figures.distribution_before = memory_distribution(&memory_of(before));
    figures.per_cell = Balance::of(&instances(&result.cells));
    let zones = by_zone(&result.cells);
    figures.per_zone = Balance::of(&zones.into_values().collect::<Vec<_>>());
    (figures.apps_sharing_cells, figures.apps_sharing_zones) = sharing(&result.cells);
    for (name, count) in [
        ("communications", communications(result)),
        ("leaked reservations", result.leaked),
        ("cancelled", result.cancelled),
    ] {
        figures.extra.insert(name.into(), count as f64);
    }
    let (cells, apps) = cell_ends(before, result);
    SimRun {
        policy: policy.into(),
        figures,
        cells,
        apps,
        wait_histogram: Histogram::of(&WAIT_BOUNDS_MS, waits),
        rounds_histogram: Histogram::of(&ROUNDS_BOUNDS, rounds),
        load_histogram: Histogram::of(&LOAD_BOUNDS, shares(&result.cells)),
        series,
        refusals: refusals(result),
        demand_of: String::new(),
        demand_steps: Vec::new(),
        notes: Vec::new(),
    }
}

fn used_mb(cell: &Cell) -> i64 {
    cell.total.memory_mb - cell.available.memory_mb
}

fn held(cell: &Cell) -> u64 {
    cell.counts
        .apps
        .values()
        .map(|count| u64::from(*count))
        .sum::<u64>()
        + u64::from(cell.counts.tasks)
}

/// Returns used and total memory of each cell, in MiB.
fn memory_of(cells: &[Cell]) -> Vec<(i64, i64)> {
    let pairs = cells
        .iter()
        .map(|cell| (used_mb(cell), cell.total.memory_mb));
    pairs.collect()
}

fn shares(cells: &[Cell]) -> Vec<f64> {
    let with_memory = cells.iter().filter(|cell| cell.total.memory_mb > 0);
    with_memory
        .map(|cell| used_mb(cell) as f64 / cell.total.memory_mb as f64)
        .collect()
}

fn instances(cells: &[Cell]) -> Vec<f64> {
    cells.iter().map(|cell| held(cell) as f64).collect()
}

fn by_zone(cells: &[Cell]) -> BTreeMap<&str, f64> {
    let mut zones = BTreeMap::new();
    for cell in cells {
        *zones.entry(cell.zone.as_str()).or_insert(0.0) += held(cell) as f64;
    }
    zones
}

/// Counts the apps that share a cell although there are enough cells, and the apps whose zones differ by more than one
/// instance.
fn sharing(cells: &[Cell]) -> (u64, u64) {
    let zones: BTreeSet<&str> = cells.iter().map(|cell| cell.zone.as_str()).collect();
    // by app: all instances, the most on one cell, and instances by zone
    let mut apps: BTreeMap<&str, (u64, u32, BTreeMap<&str, u64>)> = BTreeMap::new();
    for cell in cells {
        for (app, count) in &cell.counts.apps {
            let (all, most, by_zone) = apps.entry(app).or_default();
            *all += u64::from(*count);
            *most = (*most).max(*count);
            *by_zone.entry(&cell.zone).or_default() += u64::from(*count);
        }
    }
    let (mut on_cells, mut on_zones) = (0, 0);
    for (all, most, by_zone) in apps.values() {
        on_cells += u64::from(*most > 1 && *all <= cells.len() as u64);
        let low = if by_zone.len() < zones.len() {
            0
        } else {
            by_zone.values().copied().min().unwrap_or(0)
        };
        let high = by_zone.values().copied().max().unwrap_or(0);
        on_zones += u64::from(high - low > 1);
    }
    (on_cells, on_zones)
}

fn total(messages: &BTreeMap<String, Traffic>) -> Traffic {
    messages
        .values()
        .fold(Traffic::default(), |sum, traffic| Traffic {
            sent: sum.sent + traffic.sent,
            delivered: sum.delivered + traffic.delivered,
            bytes: sum.bytes + traffic.bytes,
        })
}

fn communications(result: &AuctionsResult) -> u64 {
    ["bid request", "reserve", "release", "run"]
        .iter()
        .filter_map(|kind| result.messages.get(*kind))
        .map(|traffic| traffic.sent)
        .sum()
}

fn refusals(result: &AuctionsResult) -> Vec<(String, u64)> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for failure in &result.failures {
        *counts.entry(failure.reason).or_default() += 1;
    }
    let mut counts: Vec<_> = counts
        .into_iter()
        .map(|(why, n)| (why.to_owned(), n))
        .collect();
    counts.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    counts.truncate(MAX_REASONS);
    counts
}

/// A change of the load: time (microseconds), placement, and whether it began.
type Change = (u64, usize, bool);

fn changes(result: &AuctionsResult) -> Vec<Change> {
    let mut changes = Vec::with_capacity(result.placements.len() * 2);
    for (i, placement) in result.placements.iter().enumerate() {
        changes.push((placement.at_us, i, true));
        changes.extend(placement.ended_us.map(|at| (at, i, false)));
    }
    changes.sort_by_key(|(at_us, i, began)| (*at_us, !began, *i));
    changes
}

fn loads(before: &[Cell], there: &[bool]) -> Vec<Load> {
    let load = |(cell, there): (&Cell, &bool)| Load {
        memory_mb: cell.total.memory_mb,
        used_mb: used_mb(cell),
        instances: held(cell),
        there: *there,
    };
    before.iter().zip(there).map(load).collect()
}

fn apply(meter: &mut Meter, result: &AuctionsResult, (_, i, began): Change) {
    let placement = &result.placements[i];
    meter.change(placement.cell as usize, |load| {
        if began {
            load.used_mb += placement.request.memory_mb;
            load.instances += 1;
        } else {
            load.used_mb -= placement.request.memory_mb;
            load.instances = load.instances.saturating_sub(1);
        }
    });
}

/// Computes the figures over time.
fn follow(
    before: &[Cell],
    demands: &[Demand],
    result: &AuctionsResult,
    price_per_cell_hour: Option<f64>,
) -> (Figures, Vec<Sample>) {
    let largest_mb = largest_memory_mb(demands);
    let all_there = vec![true; before.len()];
    let mut meter = Meter::new(loads(before, &all_there), largest_mb);
    let mut busy = vec![false; before.len()];
    let tenth_us = result.ended_ms * 1000 / 10;
    let waiting = Waiting::of(demands, result);
    let mut series = Vec::new();
    let changes = changes(result);
    let mut rest = changes.as_slice();
    for i in 0..SAMPLES {
        let at_ms = result.ended_ms * i / (SAMPLES - 1);
        if series.last().is_some_and(|s: &Sample| s.at_ms >= at_ms) && i > 0 {
            continue; // a run shorter than its samples
        }
        let due = rest.partition_point(|(at_us, _, _)| *at_us <= at_ms * 1000);
        for change in &rest[..due] {
            meter.advance(change.0 / 1000);
            apply(&mut meter, result, *change);
            if change.2 && change.0 > tenth_us {
                busy[result.placements[change.1].cell as usize] = true;
            }
        }
        rest = &rest[due..];
        meter.advance(at_ms);
        series.push(meter.sample(waiting.at(at_ms)));
    }
    let spare_cells = spare(before, result, &changes, (largest_mb, tenth_us), busy);
    let hours = result.ended_ms as f64 / 3_600_000.0;
    let figures = Figures {
        stranded_mb: meter.stranded_mb(),
        largest_fit_mb: meter.largest_fit_mb(),
        empty_cells: meter.empty_cells(),
        spare_cells,
        saved: price_per_cell_hour.map(|price| price * hours * spare_cells as f64),
        ..Figures::default()
    };
    (figures, series)
}

/// Counts the cells that were empty after the first tenth of the run; one less if the others could not hold the largest
/// size at some time. `busy` marks those that got work after the tenth.
fn spare(
    before: &[Cell],
    result: &AuctionsResult,
    changes: &[Change],
    (largest_mb, tenth_us): (i64, u64),
    mut busy: Vec<bool>,
) -> u64 {
    let early = changes.partition_point(|(at_us, _, _)| *at_us <= tenth_us);
    let mut meter = Meter::new(loads(before, &vec![true; before.len()]), largest_mb);
    for change in &changes[..early] {
        apply(&mut meter, result, *change);
    }
    for (busy, load) in busy.iter_mut().zip(meter.cells()) {
        *busy |= load.instances > 0;
    }
    let spare = busy.iter().filter(|busy| !**busy).count() as u64;
    let mut others = meter.cells().to_vec();
    for (load, busy) in others.iter_mut().zip(&busy) {
        load.there = *busy;
    }
    let mut meter = Meter::new(others, largest_mb);
    for change in &changes[early..] {
        meter.advance(change.0 / 1000);
        apply(&mut meter, result, *change);
    }
    let always_fits = meter.largest_fit_mb().min >= largest_mb as f64;
    if always_fits {
        spare
    } else {
        spare.saturating_sub(1)
    }
}

/// When instances were requested and when they got an outcome, in milliseconds; both lists are sorted.
struct Waiting {
    asked: Vec<u64>,
    decided: Vec<u64>,
}

impl Waiting {
    fn of(demands: &[Demand], result: &AuctionsResult) -> Self {
        let mut asked = Vec::new();
        for demand in demands {
            if let Some(request) = demand.request() {
                let count = request
                    .indices
                    .as_ref()
                    .map_or(request.instances as usize, Vec::len);
                asked.extend(std::iter::repeat_n(demand.at_ms, count));
            }
        }
        let placed = result.placements.iter().map(|p| p.at_us / 1000);
        let failed = result.failures.iter().map(|f| f.at_us / 1000);
        let mut decided: Vec<u64> = placed.chain(failed).collect();
        decided.sort_unstable();
        Self { asked, decided }
    }

    /// Returns how many are waiting at this time. Cancelled instances count as waiting.
    fn at(&self, at_ms: u64) -> u64 {
        let until = |times: &[u64]| times.partition_point(|t| *t <= at_ms) as u64;
        until(&self.asked).saturating_sub(until(&self.decided))
    }
}

/// Returns the cells at the end by zone and name, and the apps on them.
fn cell_ends(before: &[Cell], result: &AuctionsResult) -> (Vec<CellEnd>, Vec<String>) {
    let mut apps = Apps::default();
    let mut lists: Vec<Vec<InstanceEnd>> = before.iter().map(|cell| apps.before(cell)).collect();
    for placement in result.placements.iter().filter(|p| p.ended_us.is_none()) {
        let task = placement.request.kind == placement::Kind::Task;
        lists[placement.cell as usize].push(InstanceEnd {
            app: apps.number(&placement.request.app),
            index: placement.index,
            count: 1,
            memory_mb: placement.request.memory_mb,
            before: false,
            task,
        });
    }
    if lists
        .iter()
        .flatten()
        .map(|end| end.count as usize)
        .sum::<usize>()
        > MAX_SINGLE
    {
        for list in &mut lists {
            *list = by_app(std::mem::take(list));
        }
    }
    let end = |(cell, instances): (&Cell, Vec<InstanceEnd>)| CellEnd {
        cell: cell.cell.clone(),
        zone: cell.zone.clone(),
        memory_mb: cell.total.memory_mb,
        used_mb: used_mb(cell),
        gone: false,
        instances,
    };
    let mut ends: Vec<CellEnd> = result.cells.iter().zip(lists).map(end).collect();
    ends.sort_by(|a, b| (&a.zone, &a.cell).cmp(&(&b.zone, &b.cell)));
    (ends, apps.names)
}

fn by_app(list: Vec<InstanceEnd>) -> Vec<InstanceEnd> {
    let mut merged: BTreeMap<(bool, u32, bool), InstanceEnd> = BTreeMap::new();
    for end in list {
        let key = (!end.before, end.app, end.task);
        merged
            .entry(key)
            .and_modify(|sum| {
                sum.index = sum.index.min(end.index);
                sum.count += end.count;
                sum.memory_mb += end.memory_mb;
            })
            .or_insert(end);
    }
    merged.into_values().collect()
}

#[derive(Default)]
struct Apps {
    names: Vec<String>,
    numbers: BTreeMap<String, u32>,
}

impl Apps {
    fn number(&mut self, app: &str) -> u32 {
        if let Some(number) = self.numbers.get(app) {
            return *number;
        }
        let number = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(app.to_owned());
        self.numbers.insert(app.to_owned(), number);
        number
    }

    /// Returns the instances of a cell before the first request. As their sizes are unknown, the used memory is divided
    /// evenly, and the first instance gets the remainder.
    fn before(&mut self, cell: &Cell) -> Vec<InstanceEnd> {
        let count: u32 = cell.counts.apps.values().sum();
        let each_mb = used_mb(cell) / i64::from(count.max(1));
        let mut rest_mb = used_mb(cell) - each_mb * i64::from(count);
        let mut list = Vec::new();
        for (app, count) in &cell.counts.apps {
            let app = self.number(app);
            for index in 0..*count {
                list.push(InstanceEnd {
                    app,
                    index,
                    count: 1,
                    memory_mb: each_mb + std::mem::take(&mut rest_mb),
                    before: true,
                    task: false,
                });
            }
        }
        list
    }
}
