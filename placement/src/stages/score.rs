//! Score terms. Each gives every remaining cell a number.

use crate::{
    auction_view::AuctionView,
    cell::Cell,
    fragmentation::{self, Fragments},
    free::Free,
    objective::{Facts, JobFacts, Objective},
    policy::{Combine, Mode, Score, Term},
    preference::Preferences,
    request::Job,
    resource_name::{ResourceName, mean_used},
    resources::used_after,
    stages::narrow,
    tie,
    traits::Trait,
};

/// The width of a bucket of planned reboots, in ms.
pub(crate) const WEEK_MS: i64 = 7 * 86_400_000;

/// Returns the term for each remaining cell, before its weight. NaN disqualifies the cell. A negative weight reverses
/// ranks and ratios, so these must be multiplied by [`factor`].
pub(crate) fn term(
    score: &Score,
    objective: Option<&Objective>,
    view: &AuctionView<'_>,
    job: &Job,
    cells: &[u32],
) -> Vec<f64> {
    let each = |value: &dyn Fn(u32, &Cell) -> f64| -> Vec<f64> {
        let value = |slot: &u32| value(*slot, view.cell(*slot));
        cells.iter().map(value).collect()
    };
    match &score.term {
        Term::Resources => each(&|_, cell| {
            let (available, total) = (cell.available.amounts(), cell.total.amounts());
            used_after(&available, &job.request.amounts(), &total)
        }),
        Term::Used { of, squared } => {
            each(&|_, cell| mean_used(of, *squared, &Free::of(cell), &job.request, &cell.total))
        }
        Term::Fragmentation {
            fragments,
            steps,
            scarce_below,
        } => {
            let scarcity = scarcity(&fragments.of, *scarce_below, view);
            each(&|_, cell| {
                let gradient = gradient(fragments, &Free::of(cell), view, job);
                scarcity * fragmentation::score(gradient, *steps)
            })
        }
        Term::Starting => each(&|_, cell| f64::from(cell.counts.starting)),
        Term::AppInstances => each(&|_, cell| f64::from(cell.count_of(&job.request.app))),
        Term::GroupInstances(grouping) => {
            let app = &job.request.app;
            let counts = narrow::group_counts(grouping, view, app);
            each(&|_, cell| counts.of(cell, cell.count_of(app)) as f64)
        }
        Term::Preferred => each(&|_, cell| preferred(&job.request.prefer, cell)),
        Term::Tasks => each(&|_, cell| f64::from(cell.counts.tasks)),
        Term::Index { raw: true } => each(&|_, cell| f64::from(cell.index)),
        Term::Index { raw: false } => each(&|slot, _| f64::from(view.rank(slot))),
        Term::Objective(own) => {
            let objective = objective.unwrap_or(own);
            let facts = JobFacts::new(job, objective.azs(view.zones()));
            each(&|slot, cell| {
                let facts = Facts {
                    job: &facts,
                    request: &job.request,
                    cell,
                    zone: view.zone_number(slot),
                };
                objective.value(&facts).unwrap_or(f64::NAN)
            })
        }
        _ => {
            let values = values(&score.term, view, job, cells);
            match score.mode {
                Mode::Raw => values
                    .iter()
                    .map(|v| if v.is_nan() { 0.0 } else { *v })
                    .collect(),
                Mode::Rank => ranked(&score.term, view, job, cells, &values, score.weight),
                Mode::Ratio => ratios(&score.term, view, cells, &values, score.weight),
            }
        }
    }
}

/// Returns what the score of gradients is multiplied by.
fn scarcity(of: &ResourceName, scarce_below: Option<f64>, view: &AuctionView<'_>) -> f64 {
    let scarcity = |below| view.mean_free(of).scarcity(of, view.expected, below);
    scarce_below.map_or(1.0, scarcity)
}

fn gradient(fragments: &Fragments, free: &Free<'_>, view: &AuctionView<'_>, job: &Job) -> f64 {
    let before = fragments.on(free, view.expected);
    fragmentation::gradient(fragments, before, free, &job.request, view.expected)
}

/// Returns the share of the preferences that the cell meets, in 0..1; 0 if there are none.
pub(crate) fn preferred(prefer: &Preferences, cell: &Cell) -> f64 {
    let asked = prefer.placement_tags.len() + prefer.traits.len();
    if asked == 0 {
        return 0.0;
    }
    let has_tag = |tag: &&String| {
        cell.placement_tags.contains(tag) || cell.optional_placement_tags.contains(tag)
    };
    let has_trait = |(name, wanted): &(&String, &Trait)| {
        let has = cell.traits.get(*name);
        has.is_some_and(|has| has.matches(wanted))
    };
    let tags = prefer.placement_tags.iter().filter(has_tag).count();
    let traits = prefer.traits.iter().filter(has_trait).count();
    (tags + traits) as f64 / asked as f64
}

/// Returns what a term is multiplied by, or raised to.
pub(crate) fn factor(score: &Score) -> f64 {
    match score.mode {
        Mode::Raw => score.weight,
        Mode::Rank | Mode::Ratio => score.weight.abs(),
    }
}

/// Combines another term with the totals. Returns what the term added, or was multiplied with.
pub(crate) fn combine(score: &Score, how: Combine, term: &mut [f64], totals: &mut [f64]) {
    let factor = factor(score);
    match how {
        Combine::Sum => {
            for (term, total) in term.iter_mut().zip(totals.iter_mut()) {
                *term *= factor;
                *total += *term;
            }
        }
        Combine::Product => {
            raise(term, factor);
            for (term, total) in term.iter().zip(totals.iter_mut()) {
                *total *= *term;
            }
            let best = best(totals, true);
            // if nothing has changed since the last scaling, it is already scaled
            if best > 0.0 && !ties(best, 1.0) {
                for total in totals {
                    *total /= best;
                }
            }
        }
    }
}

/// Returns the highest or lowest of the finite values; infinite if there is none. Processes several values at a time,
/// because one by one each step would wait for the last.
pub(crate) fn best(values: &[f64], highest: bool) -> f64 {
    // the lowest is the highest with reversed sign
    let sign = if highest { 1.0 } else { -1.0 };
    let better = |best: f64, value: f64| {
        let signed = if value.is_finite() {
            sign * value
        } else {
            f64::NEG_INFINITY
        };
        if signed > best { signed } else { best }
    };
    let mut lanes = [f64::NEG_INFINITY; 8];
    let chunks = values.chunks_exact(lanes.len());
    let rest = chunks.remainder();
    for chunk in chunks {
        for (best, value) in lanes.iter_mut().zip(chunk) {
            *best = better(*best, *value);
        }
    }
    let of_rest = rest
        .iter()
        .fold(f64::NEG_INFINITY, |best, value| better(best, *value));
    sign * lanes.into_iter().fold(of_rest, f64::max)
}

/// Raises each to a power, with an exact operation if there is one.
pub(crate) fn raise(values: &mut [f64], power: f64) {
    let is = |weight: f64| ties(power, weight);
    if is(0.0) {
        values.fill(1.0);
    } else if is(2.0) {
        each(values, |value| value * value);
    } else if is(0.5) {
        each(values, f64::sqrt);
    } else if !is(1.0) {
        each(values, |value| value.powf(power));
    }
}

fn each(values: &mut [f64], change: impl Fn(f64) -> f64) {
    for value in values {
        *value = change(*value);
    }
}

/// Returns what a term compares: more is better. NaN means unreadable, which is the worst.
fn values(term: &Term, view: &AuctionView<'_>, job: &Job, cells: &[u32]) -> Vec<f64> {
    let point = view.point(job);
    let value = |slot: &u32| {
        let cell = view.cell(*slot);
        match term {
            Term::Memory => cell.available.memory_mb as f64,
            Term::Disk => cell.available.disk_mb.map_or(f64::MAX, |mb| mb as f64),
            Term::Owner => {
                let owner = job.request.owner.as_ref();
                let count = owner.and_then(|owner| cell.counts.owners.get(owner));
                f64::from(count.copied().unwrap_or(0))
            }
            Term::Hardware => cell.hardware_priority as f64,
            Term::Random => tie::noise(view.lot(*slot), point) as f64,
            Term::Platform => {
                let platform = cell.platform.as_ref();
                let stamp = platform.and_then(|p| p.stamp.ms());
                stamp.map_or(f64::NAN, |ms| ms as f64)
            }
            Term::Reboot => cell
                .planned_reboot_ms(view.now().ms)
                .map_or(f64::INFINITY, |ms| ms as f64),
            _ => 0.0,
        }
    };
    cells.iter().map(value).collect()
}

/// Returns whether the lowest value is the best: the fullest cell, the fewest instances of the owner.
pub(crate) fn lowest_is_best(term: &Term) -> bool {
    matches!(term, Term::Memory | Term::Disk | Term::Owner)
}

/// Returns the rank in 0..1 by place; a negative weight reverses the order.
fn ranked(
    term: &Term,
    view: &AuctionView<'_>,
    job: &Job,
    cells: &[u32],
    values: &[f64],
    weight: f64,
) -> Vec<f64> {
    match term {
        Term::Disk if all_unlimited(values) => vec![1.0; cells.len()],
        Term::Platform if cells.len() < 2 => vec![0.0; cells.len()],
        Term::Platform => min_max(values.iter().copied(), weight).collect(),
        Term::Reboot if cells.len() < 2 => vec![0.0; cells.len()],
        Term::Reboot => places(&buckets(values), weight < 0.0),
        Term::Random => {
            // the cells are in the order of their names
            let shuffle = tie::Shuffle::new(view.point(job), cells.len());
            let each = (0..).zip(cells).map(|(at, _)| shuffle.share(at));
            each.collect()
        }
        _ => mean_places(values, lowest_is_best(term) == (weight >= 0.0)),
    }
}

/// Returns whether no cell limits its disk: then the term makes no difference and is left out.
fn all_unlimited(free_disk: &[f64]) -> bool {
    free_disk.iter().all(|free| ties(*free, f64::MAX))
}

/// Returns the rank by place; equal values share the mean of their places. No value is NaN.
pub(crate) fn mean_places(values: &[f64], ascending: bool) -> Vec<f64> {
    let n = values.len();
    if n == 1 {
        return vec![1.0];
    }
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let share = |value: &f64| {
        let first = sorted.partition_point(|v| v < value);
        let after = sorted.partition_point(|v| v <= value);
        let mean = (first + after - 1) as f64 / 2.0;
        let place = if ascending {
            mean
        } else {
            (n - 1) as f64 - mean
        };
        ((n - 1) as f64 - place) / (n - 1) as f64
    };
    values.iter().map(share).collect()
}

/// Returns the bucket of each value: 0 for no reboot, then the latest dates first, one week per bucket.
fn buckets(values: &[f64]) -> Vec<usize> {
    let mut dates = values.to_vec();
    dates.sort_unstable_by(|a, b| b.total_cmp(a));
    // the latest date of each bucket
    let mut heads: Vec<f64> = Vec::new();
    for date in dates {
        let fits = heads.last().is_some_and(|head| {
            date.is_infinite() || (head.is_finite() && date > head - WEEK_MS as f64)
        });
        if !fits {
            heads.push(date);
        }
    }
    let bucket = |value: &f64| {
        heads
            .partition_point(|head| head >= value)
            .saturating_sub(1)
    };
    values.iter().map(bucket).collect()
}

/// Returns the rank of each bucket: 1 for the first, 0 for the last; 1 for a single one.
pub(crate) fn places(buckets: &[usize], reversed: bool) -> Vec<f64> {
    let last = buckets.iter().copied().max().unwrap_or(0);
    let share = |bucket: &usize| place_share(*bucket, last, reversed);
    buckets.iter().map(share).collect()
}

/// The rank of a bucket of which there are `last` more.
pub(crate) fn place_share(bucket: usize, last: usize, reversed: bool) -> f64 {
    let place = if reversed { last - bucket } else { bucket };
    if last == 0 {
        1.0
    } else {
        (last - place) as f64 / last as f64
    }
}

/// Returns (value - min) / (max - min); 1 if all are equal or all are unreadable (NaN); 0 for an unreadable value among
/// readable ones.
pub(crate) fn min_max(
    values: impl Iterator<Item = f64> + Clone,
    weight: f64,
) -> impl Iterator<Item = f64> {
    let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
    for value in values.clone() {
        // comparisons with NaN are false
        min = if value < min { value } else { min };
        max = if value > max { value } else { max };
    }
    // if all are equal, each gets the best value
    let (zero, span, alike) = (min, max - min, min >= max);
    // if all are unreadable: a term without information must not lower all scores
    let unreadable = if max == f64::NEG_INFINITY { 1.0 } else { 0.0 };
    let (from, sign) = if weight < 0.0 {
        (max, -1.0)
    } else {
        (zero, 1.0)
    };
    values.map(move |value| {
        let share = if alike {
            1.0
        } else {
            sign * (value - from) / span
        };
        if value.is_nan() { unreadable } else { share }
    })
}

/// Returns ratios in 0..1: the used share for memory and disk, min-max for the rest.
fn ratios(
    term: &Term,
    view: &AuctionView<'_>,
    cells: &[u32],
    values: &[f64],
    weight: f64,
) -> Vec<f64> {
    let turned = |share: f64| if weight < 0.0 { 1.0 - share } else { share };
    let used = |available: i64, total: i64| {
        let share = 1.0 - available as f64 / total.max(1) as f64;
        turned(share.clamp(0.0, 1.0))
    };
    match term {
        Term::Memory => {
            let resources = |slot: &u32| (&view.cell(*slot).available, &view.cell(*slot).total);
            let share = |slot| {
                let (available, total) = resources(slot);
                used(available.memory_mb, total.memory_mb)
            };
            cells.iter().map(share).collect()
        }
        Term::Disk => {
            let pair = |slot: &u32| {
                let cell = view.cell(*slot);
                cell.available.disk_mb.zip(cell.total.disk_mb)
            };
            if cells.iter().all(|slot| pair(slot).is_none()) {
                // as for ranks: no cell has a limit, so the term is left out
                return vec![1.0; cells.len()];
            }
            let share = |slot: &u32| {
                pair(slot).map_or(turned(0.0), |(available, total)| used(available, total))
            };
            cells.iter().map(share).collect()
        }
        Term::Random => values.iter().map(|value| value / u64::MAX as f64).collect(),
        Term::Reboot => reboot_ratios(values.iter().copied(), weight).collect(),
        _ => {
            let sign = if lowest_is_best(term) {
                -weight
            } else {
                weight
            };
            min_max(values.iter().copied(), sign).collect()
        }
    }
}

/// Returns ratios for reboots: the later the better; no planned reboot (infinite) counts as the latest.
pub(crate) fn reboot_ratios(
    dates: impl Iterator<Item = f64> + Clone,
    weight: f64,
) -> impl Iterator<Item = f64> {
    let finite = dates.clone().filter(|date| date.is_finite());
    // if no cell reboots, all are equal, whatever number stands for never
    let latest = finite.reduce(f64::max).unwrap_or(0.0);
    min_max(dates.map(move |date| date.min(latest)), weight)
}

/// Returns whether two finite scores tie.
pub(crate) fn ties(a: f64, b: f64) -> bool {
    a.partial_cmp(&b).is_some_and(std::cmp::Ordering::is_eq)
}

#[cfg(test)]
mod tests;
