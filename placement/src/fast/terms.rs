//! Score terms over columns: the same numbers as the plain ones, from values kept in order.

use super::{
    columns::{Columns, order_by},
    rows::{Row, UNLIMITED},
    vector::{self, Blocks, Inputs, Source},
};
use crate::{
    Job,
    batch::Ask,
    objective::{Facts, Id, JobFacts, List, Objective, OfCell},
    policy::{Mode, Score, Term},
    stages::score::{WEEK_MS, lowest_is_best, mean_places, min_max, places},
    tie,
};

/// What a term looks at.
pub(super) struct Around<'c, 'a> {
    pub(super) columns: &'c mut Columns<'a>,
    /// The survivors, by position.
    pub(super) alive: &'c [u32],
    pub(super) blocks: &'c mut Blocks,
    pub(super) scratch: &'c mut Scratch,
    pub(super) point: u64,
    pub(super) job: &'c Job,
    pub(super) ask: Ask,
}

/// Reused from job to job.
#[derive(Default)]
pub(super) struct Scratch {
    /// By position: its index among the survivors plus one; 0 = not alive.
    seats: Vec<u32>,
    noise: Vec<(u64, u32)>,
    buckets: Vec<usize>,
    counts: Vec<u32>,
}

/// Writes the term of each survivor, before its weight, into `out`.
pub(super) fn term(
    around: &mut Around<'_, '_>,
    score: &Score,
    objective: Option<&Objective>,
    out: &mut Vec<f64>,
) {
    let ascending = lowest_is_best(&score.term) == (score.weight >= 0.0);
    match (&score.term, score.mode) {
        (Term::Objective(own), _) => objective_term(around, objective.unwrap_or(own), out),
        (Term::Memory, Mode::Rank) => {
            let order = around.columns.by_memory.take();
            let order = order.unwrap_or_else(|| order_by(&around.columns.rows, |row| row.memory));
            kept_places(around, &order, |row| row.memory, ascending, out);
            around.columns.by_memory = Some(order);
        }
        (Term::Disk, Mode::Rank) => {
            let order = around.columns.by_disk.take();
            let order = order.unwrap_or_else(|| order_by(&around.columns.rows, |row| row.disk));
            kept_places(around, &order, |row| row.disk, ascending, out);
            around.columns.by_disk = Some(order);
        }
        (Term::Random, Mode::Rank) => noise_places(around, out),
        (Term::Platform, _) if around.alive.len() > 1 || score.mode == Mode::Ratio => {
            let stamps = around.columns.platforms();
            let values: Vec<_> = around.alive.iter().map(|p| stamps[*p as usize]).collect();
            out.extend(min_max(&values, score.weight, true));
        }
        (Term::Platform, _) => out.resize(around.alive.len(), 0.0),
        (Term::Reboot, Mode::Rank) => reboot_places(around, score.weight < 0.0, out),
        _ => simple(around, score, ascending, out),
    }
}

/// Terms that look at one cell at a time, and those that are rarely used.
fn simple(around: &mut Around<'_, '_>, score: &Score, ascending: bool, out: &mut Vec<f64>) {
    let job = around.job;
    match &score.term {
        Term::AppInstances => {
            let app = around.columns.app(around.ask, &job.request.app);
            let count = |p: &u32| {
                let found = app
                    .counts
                    .binary_search_by_key(p, |(position, _)| *position);
                found.map_or(0.0, |at| f64::from(app.counts[at].1))
            };
            out.extend(around.alive.iter().map(count));
        }
        Term::Owner => {
            let owner = job.request.owner.as_deref();
            let holders = owner.map_or(&[][..], |owner| around.columns.owner(owner));
            let count = |p: &u32| {
                let found = holders.binary_search_by_key(p, |(position, _)| *position);
                Some(found.map_or(0.0, |at| f64::from(holders[at].1)))
            };
            compared(
                &around.alive.iter().map(count).collect::<Vec<_>>(),
                score,
                ascending,
                out,
            );
        }
        Term::Hardware => {
            let columns = &around.columns;
            let value = |p: &u32| Some(columns.cell(*p).hardware_priority as f64);
            compared(
                &around.alive.iter().map(value).collect::<Vec<_>>(),
                score,
                ascending,
                out,
            );
        }
        term => {
            let columns = &around.columns;
            let of = |p: &u32| value(columns, term, score, *p, job, around.point);
            out.extend(around.alive.iter().map(of));
            if matches!((term, score.mode), (Term::Reboot, Mode::Ratio)) {
                let dates = around.columns.reboots();
                let values: Vec<_> = around
                    .alive
                    .iter()
                    .map(|p| Some(dates.at[*p as usize]))
                    .collect();
                out.clear();
                out.extend(crate::stages::score::reboot_ratios(&values, score.weight));
            }
        }
    }
}

fn compared(values: &[Option<f64>], score: &Score, ascending: bool, out: &mut Vec<f64>) {
    match score.mode {
        Mode::Raw => out.extend(values.iter().map(|v| v.unwrap_or(0.0))),
        Mode::Rank => out.extend(mean_places(values, ascending)),
        Mode::Ratio => {
            let sign = if lowest_is_best(&score.term) {
                -score.weight
            } else {
                score.weight
            };
            out.extend(min_max(values, sign, true));
        }
    }
}

/// One cell's value of a term that needs no other cell.
fn value(columns: &Columns<'_>, term: &Term, score: &Score, p: u32, job: &Job, point: u64) -> f64 {
    let at = p as usize;
    let row = &columns.rows[at];
    let ratio = |used: f64| {
        // as the plain engine: the share is cut to 0..1 first
        if score.weight < 0.0 { 1.0 - used } else { used }
    };
    match (term, score.mode) {
        (Term::Resources, _) => used_after(columns, p, job),
        (Term::Starting, _) => f64::from(row.starting),
        (Term::Tasks, _) => f64::from(row.tasks),
        (Term::Index { raw: true }, _) => f64::from(columns.cell(p).index),
        (Term::Index { raw: false }, _) => f64::from(columns.ranks[at]),
        (Term::Memory, Mode::Raw) => row.memory as f64,
        (Term::Disk, Mode::Raw) if row.disk == UNLIMITED => f64::MAX,
        (Term::Disk, Mode::Raw) => row.disk as f64,
        (Term::Memory, _) => {
            let total = columns.cell(p).total.memory_mb.max(1) as f64;
            ratio((1.0 - row.memory as f64 / total).clamp(0.0, 1.0))
        }
        (Term::Disk, _) => match columns.cell(p).total.disk_mb {
            Some(total) if row.disk != UNLIMITED => {
                ratio((1.0 - row.disk as f64 / total.max(1) as f64).clamp(0.0, 1.0))
            }
            _ => ratio(0.0),
        },
        (Term::Random, _) => tie::noise(columns.lots[at], point) as f64 / u64::MAX as f64,
        _ => 0.0,
    }
}

fn used_after(columns: &Columns<'_>, p: u32, job: &Job) -> f64 {
    let (row, total) = (&columns.rows[p as usize], &columns.cell(p).total);
    let used = |available: i64, wanted: i64, total: Option<i64>| match total {
        Some(total) if available != UNLIMITED => 1.0 - (available - wanted) as f64 / total as f64,
        _ => 0.0,
    };
    let memory = used(row.memory, job.request.memory_mb, Some(total.memory_mb));
    let disk = used(row.disk, job.request.disk_mb, total.disk_mb);
    let containers = used(row.containers, 1, total.containers);
    (memory + disk + containers) / 3.0
}

/// Says which survivor sits at a position, for walks over all positions in another order.
fn seat(scratch: &mut Scratch, alive: &[u32], positions: usize) {
    scratch.seats.clear();
    scratch.seats.resize(positions, 0);
    for (seat, position) in (1..).zip(alive) {
        scratch.seats[*position as usize] = seat;
    }
}

/// Shares by place, equal values sharing the mean of their places, from positions kept in order.
fn kept_places(
    around: &mut Around<'_, '_>,
    order: &[u32],
    value: impl Fn(&Row) -> i64,
    ascending: bool,
    out: &mut Vec<f64>,
) {
    let n = around.alive.len();
    out.resize(n, 1.0);
    if n <= 1 {
        return;
    }
    seat(around.scratch, around.alive, around.columns.len());
    let last = (n - 1) as f64;
    let rows = &around.columns.rows;
    let seats = &around.scratch.seats;
    let group = &mut around.scratch.counts;
    group.clear();
    let mut first = 0;
    let mut of_group = 0;
    let mut close = |group: &mut Vec<u32>| {
        if group.is_empty() {
            return;
        }
        let after = first + group.len();
        let mean = (first + after - 1) as f64 / 2.0;
        let place = if ascending { mean } else { last - mean };
        let share = (last - place) / last;
        for seat in group.drain(..) {
            out[seat as usize] = share;
        }
        first = after;
    };
    for position in order {
        let seat = seats[*position as usize];
        if seat == 0 {
            continue;
        }
        let value = value(&rows[*position as usize]);
        if value != of_group {
            close(group);
            of_group = value;
        }
        group.push(seat - 1);
    }
    close(group);
}

/// The share of each survivor in a random order of them: sorted by noise, which is spread so evenly
/// that as many buckets as cells leave next to nothing to sort.
#[allow(clippy::cast_possible_truncation)] // a bucket's number is below the number of cells
fn noise_places(around: &mut Around<'_, '_>, out: &mut Vec<f64>) {
    let n = around.alive.len();
    out.resize(n, 1.0);
    if n <= 1 {
        return;
    }
    let Scratch { noise, buckets, .. } = &mut *around.scratch;
    let lots = &around.columns.lots;
    let of = |position: u32| tie::noise(lots[position as usize], around.point);
    let bucket = |noise: u64| ((u128::from(noise) * n as u128) >> 64) as usize;
    buckets.clear();
    buckets.resize(n + 1, 0);
    for position in around.alive {
        buckets[bucket(of(*position)) + 1] += 1;
    }
    for i in 0..n {
        buckets[i + 1] += buckets[i];
    }
    noise.clear();
    noise.resize(n, (0, 0));
    for (seat, position) in (0..).zip(around.alive) {
        let value = of(*position);
        let place = &mut buckets[bucket(value)];
        noise[*place] = (value, seat);
        *place += 1;
    }
    // every cell is in its bucket: an insertion sort moves each a step or two
    for i in 1..n {
        let mut at = i;
        while at > 0 && noise[at - 1].0 > noise[at].0 {
            noise.swap(at - 1, at);
            at -= 1;
        }
    }
    let scale = (n as f64 - 1.0).max(1.0);
    let mut first = 0;
    for i in 0..n {
        if noise[i].0 != noise[first].0 {
            first = i;
        }
        out[noise[i].1 as usize] = (n as f64 - 1.0 - first as f64) / scale;
    }
}

/// The share of each survivor's bucket of planned reboots.
fn reboot_places(around: &mut Around<'_, '_>, reversed: bool, out: &mut Vec<f64>) {
    let n = around.alive.len();
    if n < 2 {
        out.resize(n, 0.0);
        return;
    }
    seat(around.scratch, around.alive, around.columns.len());
    let Scratch { seats, buckets, .. } = &mut *around.scratch;
    let reboots = around.columns.reboots();
    buckets.clear();
    buckets.resize(n, 0);
    let mut head: Option<f64> = None;
    let mut bucket = 0;
    for position in &reboots.latest_first {
        let seat = seats[*position as usize];
        if seat == 0 {
            continue;
        }
        let date = reboots.at[*position as usize];
        match head {
            None => head = Some(date),
            Some(latest) => {
                let fits =
                    date.is_infinite() || (latest.is_finite() && date > latest - WEEK_MS as f64);
                if !fits {
                    bucket += 1;
                    head = Some(date);
                }
            }
        }
        buckets[seat as usize - 1] = bucket;
    }
    out.extend(places(buckets, reversed));
}

/// The objective of each survivor; NaN where it is not finite.
fn objective_term(around: &mut Around<'_, '_>, objective: &Objective, out: &mut Vec<f64>) {
    let request = &*around.job.request;
    let facts = JobFacts::new(around.job, objective.azs(around.columns.zones_counted));
    // columns that are made on demand come first, so that the rest only reads
    if objective.counts_blobs() {
        let blob = request.source_blob.iter();
        for text in blob.chain(&request.stack).chain([&request.app]) {
            around.columns.blob(text);
        }
    }
    if let Some(stack) = &request.stack {
        around.columns.stack(stack);
    }
    let all = around.alive.len() == around.columns.len();
    let columns = &*around.columns;
    let of_cell = |attribute| match attribute {
        OfCell::AvailableMemory => Source::Column(&columns.memory),
        OfCell::AvailableDisk => Source::Column(&columns.disk),
        OfCell::TotalMemory => Source::Column(&columns.total_memory),
        OfCell::TotalDisk => Source::Column(&columns.total_disk),
        OfCell::Zone => Source::Column(&columns.zone_numbers),
        OfCell::Stack => match &request.stack {
            None => Source::Same(1.0),
            Some(stack) => Source::Column(&columns.stacks[stack]),
        },
    };
    let count = |id, list| {
        let text = match id {
            Id::App => Some(&request.app),
            Id::Blob => request.source_blob.as_ref(),
            Id::Stack => request.stack.as_ref(),
        };
        match (list, text) {
            (List::Blobs, Some(text)) => columns
                .blobs
                .get(text)
                .map_or(Source::Same(0.0), |c| Source::Column(c)),
            // apps are on few cells: 0 for all, and those few once more below
            _ => Source::Same(0.0),
        }
    };
    out.resize(around.alive.len(), 0.0);
    let inputs = Inputs {
        of_cell: &of_cell,
        count: &count,
    };
    let cells = (!all).then_some(around.alive);
    vector::evaluate(
        objective.program(),
        &facts,
        &inputs,
        cells,
        around.blocks,
        out,
    );
    if objective.counts_apps() {
        again_where_apps_run(around, objective, &facts, out);
    }
    for value in out {
        if !value.is_finite() {
            *value = f64::NAN;
        }
    }
}

/// Works out the cells that hold an app which the objective counts one by one.
fn again_where_apps_run(
    around: &mut Around<'_, '_>,
    objective: &Objective,
    facts: &JobFacts,
    out: &mut [f64],
) {
    let request = &*around.job.request;
    for text in objective.counted_apps(request) {
        let holders = around.columns.app_counts(text);
        for (position, _) in &holders {
            let Ok(at) = around.alive.binary_search(position) else {
                continue;
            };
            let cell = around.columns.as_it_is(*position, objective, request);
            let facts = Facts {
                job: facts,
                request,
                cell: &cell,
                zone: around.columns.zone_numbers[*position as usize],
            };
            out[at] = objective.value(&facts).unwrap_or(f64::NAN);
        }
    }
}
