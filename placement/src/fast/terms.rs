//! Score terms over columns: the same numbers as the plain terms, from values kept in order.

use super::{
    columns::Columns,
    vector::{self, Blocks, Inputs, Source},
    view::{Listed, View, count_at},
};
use crate::{
    batch::JobGroup,
    fragmentation,
    objective::{AmountOf, Facts, Id, JobFacts, List, Objective, OfCell},
    policy::{Mode, Score, Term},
    request::Job,
    resources::{Amounts, Resource, used_after},
    stages::score::{self, WEEK_MS, lowest_is_best, mean_places, min_max, places},
    tie,
};

mod named;

/// What a term depends on.
pub(super) struct Around<'c, 'a> {
    pub(super) view: &'c mut View<'a>,
    /// The survivors' slots.
    pub(super) alive: &'c [u32],
    pub(super) blocks: &'c mut Blocks,
    pub(super) scratch: &'c mut Scratch,
    pub(super) job: &'c Job,
    pub(super) group: JobGroup,
    pub(super) apps: Apps,
}

/// Whether a term counts the instances of apps. Ratings that jobs of many apps share are worked out as if there were
/// none; each job adds its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Apps {
    Counted,
    Ignored,
}

/// Buffers reused from job to job.
#[derive(Default)]
pub(super) struct Scratch {
    /// By slot: its index among the survivors plus one; 0 if it does not survive.
    positions: Vec<u32>,
    are_seated: bool,
    /// By slot.
    all: Vec<f64>,
    buckets: Vec<u32>,
}

impl Scratch {
    /// Records that the survivors have changed.
    pub(super) fn forget_seats(&mut self) {
        self.are_seated = false;
    }

    /// Records which survivor is in each slot, for walks over all slots in another order.
    fn position(&mut self, alive: &[u32], slots: usize) {
        // several terms of one job use these; a filter or narrowing in between discards them
        if std::mem::replace(&mut self.are_seated, true) {
            return;
        }
        self.positions.clear();
        self.positions.resize(slots, 0);
        for (position, slot) in (1..).zip(alive) {
            self.positions[*slot as usize] = position;
        }
    }
}

/// Writes the term of each survivor, before its weight, to `out`.
pub(super) fn term(
    around: &mut Around<'_, '_>,
    score: &Score,
    objective: Option<&Objective>,
    out: &mut Vec<f64>,
) {
    let ascending = lowest_is_best(&score.term) == (score.weight >= 0.0);
    let n = around.alive.len();
    match (&score.term, score.mode) {
        (Term::Objective(own), _) => objective_term(around, objective.unwrap_or(own), out),
        (Term::Memory, Mode::Rank) => {
            let rows = &around.view.session.parts.rows;
            around.view.columns.settle_by_memory(rows);
            kept_places(around, ascending, |columns| columns.by_memory.order(), out);
        }
        (Term::Disk, Mode::Rank) => {
            let rows = &around.view.session.parts.rows;
            let unlimited =
                |slot: &u32| rows[*slot as usize].free[Resource::Disk] == Amounts::UNLIMITED;
            // all share one place, so there is no need to order them by it
            if around.alive.iter().all(unlimited) {
                out.resize(n, 1.0);
                return;
            }
            around.view.columns.settle_by_disk(rows);
            kept_places(around, ascending, |columns| columns.by_disk.order(), out);
        }
        (Term::Random, Mode::Rank) => random_places(around, out),
        (Term::Platform, Mode::Rank) if n < 2 => out.resize(n, 0.0),
        (Term::Platform, _) => {
            let stamps = &around.view.columns.platforms;
            let values = around.alive.iter().map(|p| stamps[*p as usize]);
            out.extend(min_max(values, score.weight));
        }
        (Term::Reboot, Mode::Rank) => reboot_places(around, score.weight < 0.0, out),
        (Term::Reboot, Mode::Ratio) => {
            let (reboots, now_ms) = (&around.view.columns.reboots, around.view.now().ms);
            let date = |p: &u32| {
                let planned = reboots[*p as usize].filter(|at| *at >= now_ms);
                planned.map_or(f64::INFINITY, |at| at as f64)
            };
            let dates = around.alive.iter().map(date);
            out.extend(score::reboot_ratios(dates, score.weight));
        }
        (
            Term::Fragmentation {
                fragments,
                steps,
                scarce_below,
            },
            _,
        ) => {
            named::gradients(around, fragments, out);
            let scarcity = named::scarcity(around, &fragments.of, *scarce_below);
            for gradient in out {
                *gradient = scarcity * fragmentation::score(*gradient, *steps);
            }
        }
        (Term::Used { of, squared }, _) => named::used(around, of, *squared, out),
        _ => simple(around, score, ascending, out),
    }
}

/// Computes terms that look at one cell at a time, and rarely used ones.
fn simple(around: &mut Around<'_, '_>, score: &Score, ascending: bool, out: &mut Vec<f64>) {
    let (job, view) = (around.job, &*around.view);
    match &score.term {
        Term::AppInstances => {
            let holders = match around.apps {
                Apps::Counted => view.session.app(around.group).holders.as_slice(),
                Apps::Ignored => &[],
            };
            let count = |p: &u32| f64::from(count_at(holders, *p));
            out.extend(around.alive.iter().map(count));
        }
        Term::GroupInstances(grouping) => {
            let holders = &view.session.app(around.group).holders;
            let counts = view.group_counts(grouping, holders);
            let count = |p: &u32| counts.of(view.cell(*p), count_at(holders, *p)) as f64;
            out.extend(around.alive.iter().map(count));
        }
        Term::Preferred => {
            let met = |p: &u32| score::preferred(&job.request.prefer, view.cell(*p));
            out.extend(around.alive.iter().map(met));
        }
        Term::Owner => {
            let owner = job.request.owner.as_deref();
            let holders = owner.map_or(&[][..], |owner| view.owner(owner));
            let count = |p: &u32| f64::from(count_at(holders, *p));
            compared(around.alive.iter().map(count), score, ascending, out);
        }
        Term::Hardware => {
            let value = |p: &u32| view.cell(*p).hardware_priority as f64;
            compared(around.alive.iter().map(value), score, ascending, out);
        }
        _ => each(around, score, out),
    }
}

fn compared(
    values: impl Iterator<Item = f64> + Clone,
    score: &Score,
    ascending: bool,
    out: &mut Vec<f64>,
) {
    match score.mode {
        Mode::Raw => out.extend(values),
        Mode::Rank => out.extend(mean_places(&values.collect::<Vec<f64>>(), ascending)),
        Mode::Ratio => {
            let sign = if lowest_is_best(&score.term) {
                -score.weight
            } else {
                score.weight
            };
            out.extend(min_max(values, sign));
        }
    }
}

/// Computes terms that need no other cell, with one loop each.
fn each(around: &Around<'_, '_>, score: &Score, out: &mut Vec<f64>) {
    let (job, view) = (around.job, &*around.view);
    let columns = &*view.columns;
    let slots = around.alive.iter().map(|p| *p as usize);
    let rows = &view.session.parts.rows;
    let (free, total) = (&columns.memory, &columns.total_memory);
    let (free_disk, total_disk) = (&columns.disk, &columns.total_disk);
    // like the plain engine: the share is clamped to 0..1 before it is reversed
    let (sign, offset) = if score.weight < 0.0 {
        (-1.0, 1.0)
    } else {
        (1.0, 0.0)
    };
    let turned = |share: f64| offset + sign * share;
    let used = |free: f64, total: f64| turned((1.0 - free / total.max(1.0)).clamp(0.0, 1.0));
    match (&score.term, score.mode) {
        (Term::Resources, _) => {
            let (wanted, cells) = (job.request.amounts(), view.session.parts.cells);
            let used = |at: usize| used_after(&rows[at].free, &wanted, &cells[at].total.amounts());
            out.extend(slots.map(used));
        }
        (Term::Starting, _) => out.extend(slots.map(|at| f64::from(rows[at].starting))),
        (Term::Tasks, _) => out.extend(slots.map(|at| f64::from(rows[at].tasks))),
        (Term::Index { raw: true }, _) => {
            let cells = view.session.parts.cells;
            out.extend(slots.map(|at| f64::from(cells[at].index)));
        }
        (Term::Index { raw: false }, _) => {
            out.extend(slots.map(|at| f64::from(view.ranks[at])));
        }
        (Term::Memory, Mode::Raw) => out.extend(slots.map(|at| free[at])),
        (Term::Memory, _) => out.extend(slots.map(|at| used(free[at], total[at]))),
        (Term::Disk, Mode::Raw) => {
            out.extend(slots.map(|at| match rows[at].free[Resource::Disk] {
                Amounts::UNLIMITED => f64::MAX,
                disk => disk as f64,
            }));
        }
        (Term::Disk, _) if !slots.clone().any(|at| columns.disk_is_limited[at]) => {
            out.extend(slots.map(|_| 1.0));
        }
        (Term::Disk, _) => out.extend(slots.map(|at| {
            if columns.disk_is_limited[at] {
                used(free_disk[at], total_disk[at])
            } else {
                turned(0.0)
            }
        })),
        (Term::Random, _) => {
            let point = view.session.point(job, around.group);
            let noise = |at: usize| tie::noise(columns.lots[at], point) as f64 / u64::MAX as f64;
            out.extend(slots.map(noise));
        }
        _ => out.extend(slots.map(|_| 0.0)),
    }
}

/// Computes shares by place from slots kept in order; equal values share the mean of their places.
fn kept_places(
    around: &mut Around<'_, '_>,
    ascending: bool,
    order: impl Fn(&Columns) -> &[(i64, u32)],
    out: &mut Vec<f64>,
) {
    let n = around.alive.len();
    out.resize(n, 1.0);
    if n <= 1 {
        return;
    }
    let columns = &*around.view.columns;
    around.scratch.position(around.alive, columns.len());
    let positions = &around.scratch.positions;
    let last = place(n) - 1.0;
    let mut rest = order(columns);
    let mut first = 0;
    while let Some((value, _)) = rest.first() {
        let equal = rest.iter().take_while(|(other, _)| other == value);
        let (group, after) = rest.split_at(equal.count());
        rest = after;
        let positions = group.iter().map(|(_, slot)| positions[*slot as usize]);
        // the order contains all cells of the pool; only those still in the auction take a place
        let taken = positions.clone().filter(|position| *position > 0).count();
        // the mean of the first and the last place of the group
        let mean = (place(first) + place(first + taken) - 1.0) / 2.0;
        let from_best = if ascending { mean } else { last - mean };
        let share = (last - from_best) / last;
        for position in positions.filter(|position| *position > 0) {
            out[position as usize - 1] = share;
        }
        first += taken;
    }
}

/// Returns a place as a number; there are fewer than 2^32 slots.
#[allow(clippy::cast_possible_truncation)] // a conversion of 32 bits is one instruction
fn place(n: usize) -> f64 {
    f64::from(n as u32)
}

/// Computes the share of each survivor in the job's random order.
fn random_places(around: &mut Around<'_, '_>, out: &mut Vec<f64>) {
    let n = around.alive.len();
    out.resize(n, 0.0);
    let shuffle = tie::Shuffle::new(around.view.session.point(around.job, around.group), n);
    around
        .view
        .columns
        .settle_by_name(around.view.session.parts.names);
    let columns = &*around.view.columns;
    around.scratch.position(around.alive, columns.len());
    let positions = &around.scratch.positions;
    let in_order = columns
        .by_name
        .slots
        .iter()
        .map(|slot| positions[*slot as usize]);
    let alive = in_order.filter(|position| *position > 0);
    for (at, position) in (0..).zip(alive) {
        out[position as usize - 1] = shuffle.share(at);
    }
}

/// Computes the share of each survivor's bucket of planned reboots: first those that never reboot, then the latest
/// dates, with one week per bucket.
fn reboot_places(around: &mut Around<'_, '_>, reversed: bool, out: &mut Vec<f64>) {
    let n = around.alive.len();
    if n < 2 {
        out.resize(n, 0.0);
        return;
    }
    let now_ms = around.view.now().ms;
    around.view.columns.settle_by_reboot();
    let columns = &*around.view.columns;
    around.scratch.position(around.alive, columns.len());
    let Scratch {
        positions, buckets, ..
    } = &mut *around.scratch;
    buckets.clear();
    buckets.resize(n, 0);
    let never = |p: &u32| columns.reboots[*p as usize].is_none_or(|at| at < now_ms);
    let mut bucket = 0;
    let mut next = u32::from(around.alive.iter().any(never));
    let mut head = i64::MAX;
    for (date, slot) in columns.by_reboot.order().iter().rev() {
        let position = positions[*slot as usize];
        if *date < now_ms {
            // the rest is past
            break;
        }
        if position == 0 {
            continue;
        }
        // a bucket begins at its latest date, so which week a date falls into depends on the survivors
        if *date <= head - WEEK_MS {
            head = *date;
            bucket = next;
            next += 1;
        }
        buckets[position as usize - 1] = bucket;
    }
    let shares = places(&(0..=bucket as usize).collect::<Vec<_>>(), reversed);
    out.extend(buckets.iter().map(|bucket| shares[*bucket as usize]));
}

/// Computes the objective of each survivor; NaN if it is not finite.
fn objective_term(around: &mut Around<'_, '_>, objective: &Objective, out: &mut Vec<f64>) {
    let request = &*around.job.request;
    let facts = JobFacts::new(around.job, objective.azs(around.view.zones_counted));
    // columns made on demand come first, so that the rest only reads
    let (blob, stack) = (request.blob(), request.stack.as_ref());
    if objective.counts_blobs() {
        let names = blob.into_iter().chain(stack).chain([&request.app]);
        around.view.count(Listed::Blob, names);
    }
    around.view.count(Listed::Stack, stack);
    let view = &*around.view;
    let columns = &*view.columns;
    let listed = |listed, name: Option<&String>| {
        let column = name.and_then(|name| view.counted(listed, name));
        column.map_or(Source::Same(0.0), Source::Column)
    };
    let of_cell = |attribute| match attribute {
        OfCell::AvailableMemory => Source::Column(&columns.memory),
        OfCell::AvailableDisk => Source::Column(&columns.disk),
        OfCell::TotalMemory => Source::Column(&columns.total_memory),
        OfCell::TotalDisk => Source::Column(&columns.total_disk),
        OfCell::Zone => Source::Column(&columns.zone_numbers),
        OfCell::Stack if stack.is_none() => Source::Same(1.0),
        OfCell::Stack => listed(Listed::Stack, stack),
    };
    let count = |id, list| match (list, id) {
        // apps are on few cells: 0 for all, and those few are evaluated again below
        (List::Apps, _) => Source::Same(0.0),
        (List::Blobs, Id::App) => view
            .counted(Listed::Blob, &request.app)
            .map_or(Source::Same(0.0), Source::Column),
        (List::Blobs, Id::Blob) => listed(Listed::Blob, blob),
        (List::Blobs, Id::Stack) => listed(Listed::Blob, stack),
    };
    let program = objective.program();
    let amounts = named::amount_columns(around, program);
    let amount = |of: AmountOf, resource: usize| {
        let column = amounts
            .iter()
            .find(|(known, at, _)| (*known, *at) == (of, resource));
        column.map_or(Source::Same(0.0), |(_, _, column)| Source::Column(column))
    };
    let inputs = Inputs {
        of_cell: &of_cell,
        amount: &amount,
        count: &count,
    };
    let (alive, blocks) = (around.alive, &mut *around.blocks);
    // if most survive, it is faster to compute all values together and select those
    if 2 * alive.len() > columns.len() {
        let all = &mut around.scratch.all;
        all.resize(columns.len(), 0.0);
        vector::evaluate(program, &facts, &inputs, None, blocks, all);
        out.extend(alive.iter().map(|slot| all[*slot as usize]));
    } else {
        out.resize(alive.len(), 0.0);
        vector::evaluate(program, &facts, &inputs, Some(alive), blocks, out);
    }
    if objective.counts_apps() && around.apps == Apps::Counted {
        again_where_apps_run(around, objective, &facts, out);
    }
    for value in out {
        if !value.is_finite() {
            *value = f64::NAN;
        }
    }
}

/// Evaluates again the cells that hold an app which the objective counts.
fn again_where_apps_run(
    around: &Around<'_, '_>,
    objective: &Objective,
    facts: &JobFacts,
    out: &mut [f64],
) {
    let request = &*around.job.request;
    for text in objective.counted_apps(request) {
        for (slot, _) in around.view.app(text) {
            let Ok(at) = around.alive.binary_search(slot) else {
                continue;
            };
            let cell = around.view.as_it_is(*slot, objective, request);
            let facts = Facts {
                job: facts,
                request,
                cell: &cell,
                zone: around.view.columns.zone_numbers[*slot as usize],
            };
            out[at] = objective.value(&facts).unwrap_or(f64::NAN);
        }
    }
}
