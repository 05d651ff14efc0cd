//! Narrowings: each keeps a subset of the remaining cells, which is never empty if there are any.

use std::collections::{BTreeMap, BTreeSet};

use super::locality;
use crate::{
    auction_view::AuctionView,
    grouping::{GroupCounts, Grouping},
    policy::Narrow,
    request::Job,
};

/// Returns the narrowing's subset; `notes` gets the hints that were ignored.
pub(crate) fn narrow(
    narrow: &Narrow,
    view: &AuctionView<'_>,
    job: &Job,
    cells: Vec<u32>,
    notes: &mut Vec<String>,
) -> Vec<u32> {
    match narrow {
        Narrow::ZoneFewest => zone_fewest(view, &job.request.app, cells, notes),
        Narrow::AppFewest => {
            let count = |slot: &u32| view.cell(*slot).count_of(&job.request.app);
            let fewest = cells.iter().map(count).min().unwrap_or(0);
            keep(cells, |slot| count(&slot) == fewest)
        }
        Narrow::Fewest(grouping) => {
            let app = &job.request.app;
            let counts = group_counts(grouping, view, app);
            let count = |slot: u32| counts.of(view.cell(slot), view.cell(slot).count_of(app));
            let fewest = cells.iter().map(|slot| count(*slot)).min().unwrap_or(0);
            keep(cells, |slot| count(slot) == fewest)
        }
        Narrow::UpperHalfMemory => {
            let memory = |slot: u32| view.cell(slot).available.memory_mb;
            let mut sorted: Vec<i64> = cells.iter().map(|slot| memory(*slot)).collect();
            sorted.sort_unstable();
            let threshold = sorted.get(sorted.len() / 2).copied().unwrap_or(0);
            keep(cells, |slot| memory(slot) >= threshold)
        }
        Narrow::Locality => nearby(view, job, cells, notes),
    }
}

/// Counts the instances of the app in each group, over all cells that count.
pub(crate) fn group_counts<'v>(
    grouping: &'v Grouping,
    view: &'v AuctionView<'_>,
    app: &str,
) -> GroupCounts<'v> {
    let cells = view.counted().iter().map(|slot| view.cell(*slot));
    let holders = cells.map(|cell| (cell, cell.count_of(app)));
    GroupCounts::new(grouping, holders.filter(|(_, count)| *count > 0))
}

fn keep(mut cells: Vec<u32>, wanted: impl Fn(u32) -> bool) -> Vec<u32> {
    cells.retain(|slot| wanted(*slot));
    cells
}

/// Keeps every zone that has the fewest instances of the app, counted over all its cells; the minimum is over the zones
/// that still have a candidate.
fn zone_fewest(
    view: &AuctionView<'_>,
    app: &str,
    cells: Vec<u32>,
    notes: &mut Vec<String>,
) -> Vec<u32> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for slot in view.counted() {
        let cell = view.cell(*slot);
        *counts.entry(&cell.zone).or_insert(0) += u64::from(cell.count_of(app));
    }
    let count = |slot: u32| {
        counts
            .get(view.cell(slot).zone.as_str())
            .copied()
            .unwrap_or(0)
    };
    let fewest = cells.iter().map(|slot| count(*slot)).min().unwrap_or(0);
    let emptier = counts.iter().filter(|(_, n)| **n < fewest);
    for (zone, n) in emptier.take(8) {
        notes.push(format!(
            "zone {zone:?} holds only {n} of {app}, but no cell there is left"
        ));
    }
    keep(cells, |slot| count(slot) == fewest)
}

/// Applies `far` first, then `near`; without either, keeps away from the owner's other instances.
fn nearby(
    view: &AuctionView<'_>,
    job: &Job,
    mut cells: Vec<u32>,
    notes: &mut Vec<String>,
) -> Vec<u32> {
    let request = &job.request;
    if request.near.is_empty() && request.far.is_empty() {
        let Some(owner) = &request.owner else {
            return cells;
        };
        let free = |slot: u32| {
            view.cell(slot)
                .counts
                .owners
                .get(owner)
                .is_none_or(|n| *n == 0)
        };
        return keep_if_any(cells, free, || {
            notes.push(format!("every cell has instances of {owner}"));
        });
    }
    let now = view.now();
    let racks = |items: &[String]| -> BTreeSet<&str> {
        let holders = view.counted().iter().map(|slot| view.cell(*slot));
        let holders = holders.filter(|cell| locality::holds_any(cell, items, now));
        holders.filter_map(|cell| cell.rack.as_deref()).collect()
    };
    let in_rack = |slot: u32, racks: &BTreeSet<&str>| {
        view.cell(slot)
            .rack
            .as_deref()
            .is_some_and(|rack| racks.contains(rack))
    };
    if !request.far.is_empty() {
        let away = |slot| !locality::holds_any(view.cell(slot), &request.far, now);
        cells = keep_if_any(cells, away, || {
            notes.push("far is ignored: every cell holds one".into());
        });
        let racks = racks(&request.far);
        cells = keep_if_any(cells, |slot| !in_rack(slot, &racks), || ());
    }
    if !request.near.is_empty() {
        let held = |slot| locality::holds_any(view.cell(slot), &request.near, now);
        let before = cells.len();
        let mut holds_none = false;
        cells = keep_if_any(cells, held, || holds_none = true);
        if holds_none && before > 0 {
            let racks = racks(&request.near);
            cells = keep_if_any(
                cells,
                |slot| in_rack(slot, &racks),
                || {
                    notes.push(
                        "near is ignored: no cell holds one, nor stands in the rack of one".into(),
                    );
                },
            );
        }
    }
    cells
}

/// Keeps the preferred cells, unless there are none.
fn keep_if_any(
    cells: Vec<u32>,
    wanted: impl Fn(u32) -> bool,
    mut ignored: impl FnMut(),
) -> Vec<u32> {
    let kept: Vec<u32> = cells.iter().copied().filter(|slot| wanted(*slot)).collect();
    if kept.is_empty() {
        if !cells.is_empty() {
            ignored();
        }
        return cells;
    }
    kept
}
