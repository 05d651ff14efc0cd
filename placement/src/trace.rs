//! The plain engine's record of one decision, stage by stage, from which explanations, reasons and tallies are made.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    auction_view::AuctionView,
    decision::{RatingReport, StageReport, Tally},
    devices::FreeDevices,
    policy::{Filter, Stage, Step},
    request::Job,
    stages::filter::{self, Why},
};

/// The most reasons that are listed separately in one stage.
const MAX_REASONS: usize = 8;
/// The most notes on one decision.
const MAX_NOTES: usize = 16;

/// The record, stage by stage.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) stages: Vec<StageReport>,
    /// Ignored hints and other notes.
    pub(crate) notes: Vec<String>,
    /// Each finalist's rating, term by term.
    pub(crate) ratings: Vec<RatingReport>,
    /// Whether to name the dropped cells.
    with_names: bool,
    /// The resources that every cell lacked at the last resource filters, by name.
    pub(crate) lacking: Vec<Lack>,
    /// The stage that left nothing.
    pub(crate) emptied_by: Option<Emptied>,
}

/// A resource that every cell lacks.
#[derive(Debug)]
pub(crate) struct Lack {
    /// The resource filter's name.
    pub(crate) stage: &'static str,
    /// The resource's name.
    pub(crate) resource: String,
    /// What the job needs.
    pub(crate) needs: i64,
    /// The most that any of the cells has.
    pub(crate) best: i64,
    /// For a set of devices: how close the cells come.
    pub(crate) devices: Option<FreeDevices>,
}

/// The stage that dropped the last cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Emptied {
    /// There was no cell to begin with.
    NoCells,
    /// The request excludes all cells.
    Excluded,
    Filter(Filter),
    /// No cell has a finite score.
    Score,
}

impl Trace {
    pub(crate) fn new(with_names: bool) -> Self {
        Self {
            with_names,
            ..Self::default()
        }
    }

    /// Records, before the first stage, the cells that are left out of this auction.
    pub(crate) fn begin(&mut self, view: &AuctionView<'_>, live: &[u32]) {
        for (name, left_out) in view.left_out() {
            let reason = match *name {
                "expired" => "the advertisement expired",
                _ => "gave no bid",
            };
            let whys = left_out
                .iter()
                .map(|slot| (*slot, Why::text(reason)))
                .collect();
            let rejected = group(view, name, whys, self.with_names);
            self.stages.push(StageReport {
                stage: (*name).to_owned(),
                survivors: live.len(),
                rejected,
            });
        }
        if live.is_empty() {
            self.emptied_by = Some(Emptied::NoCells);
        }
    }

    /// Records the cells that the request excludes.
    pub(crate) fn excluded(&mut self, view: &AuctionView<'_>, kept: &[u32], dropped: &[u32]) {
        let why = |slot: &u32| (*slot, Why::text("the request excludes it"));
        let whys = dropped.iter().map(why).collect();
        self.stages.push(StageReport {
            stage: "exclude-cells".to_owned(),
            survivors: kept.len(),
            rejected: group(view, "exclude-cells", whys, self.with_names),
        });
        if kept.is_empty() && !dropped.is_empty() {
            self.emptied_by = Some(Emptied::Excluded);
        }
    }

    pub(crate) fn filtered(
        &mut self,
        view: &AuctionView<'_>,
        job: &Job,
        filter: &Filter,
        kept: &[u32],
        dropped: &[u32],
    ) {
        // not a stage of the policy, so it is only reported if it matters
        if *filter == Filter::Droplets && dropped.is_empty() {
            return;
        }
        let why = |slot: &u32| {
            let why = filter::why(filter, view.cell(*slot), &job.request, view.now());
            (*slot, why)
        };
        let whys = dropped.iter().map(why).collect();
        self.stages.push(StageReport {
            stage: filter.name().to_owned(),
            survivors: kept.len(),
            rejected: group(view, filter.name(), whys, self.with_names),
        });
        if kept.is_empty() {
            self.emptied_by = Some(match filter {
                Filter::Evacuating => Emptied::NoCells,
                _ => Emptied::Filter(filter.clone()),
            });
        }
    }

    /// Records, before the first of consecutive resource filters, which resources every cell lacks.
    pub(crate) fn resources(
        &mut self,
        view: &AuctionView<'_>,
        job: &Job,
        stages: &[&Stage],
        position: usize,
        cells: &[u32],
    ) {
        let resource = |stage: &Stage| match &stage.step {
            Step::Filter(filter) if filter.is_resource() => Some(filter.clone()),
            _ => None,
        };
        let follows = position > 0 && resource(stages[position - 1]).is_some();
        if follows || resource(stages[position]).is_none() {
            return;
        }
        let run: Vec<Filter> = stages[position..]
            .iter()
            .map_while(|s| resource(s))
            .collect();
        self.lacking = lacked_by_all(view, job, &run, cells);
    }

    pub(crate) fn narrowed(
        &mut self,
        view: &AuctionView<'_>,
        name: &'static str,
        before: &[u32],
        kept: &[u32],
        notes: Vec<String>,
    ) {
        let kept_set: BTreeSet<u32> = kept.iter().copied().collect();
        let dropped = before.iter().filter(|slot| !kept_set.contains(slot));
        let whys = dropped
            .map(|slot| (*slot, Why::text("others are preferred")))
            .collect();
        self.stages.push(StageReport {
            stage: name.to_owned(),
            survivors: kept.len(),
            rejected: group(view, name, whys, self.with_names),
        });
        let room = MAX_NOTES.saturating_sub(self.notes.len());
        self.notes.extend(notes.into_iter().take(room));
    }

    pub(crate) fn unrated(&mut self, view: &AuctionView<'_>, cells: &[u32], rated: &[(u32, f64)]) {
        let finite: BTreeSet<u32> = rated.iter().map(|(slot, _)| *slot).collect();
        let has = |slot: &&u32| !finite.contains(slot);
        let why = Why::text("the score is not a finite number");
        let whys = cells
            .iter()
            .filter(has)
            .map(|slot| (*slot, why.clone()))
            .collect();
        self.stages.push(StageReport {
            stage: "score".to_owned(),
            survivors: rated.len(),
            rejected: group(view, "score", whys, self.with_names),
        });
        if rated.is_empty() {
            self.emptied_by = Some(Emptied::Score);
        }
    }
}

/// Groups rejections by reason: how many cells, what was needed, the best that any of them had.
fn group(
    view: &AuctionView<'_>,
    stage: &str,
    whys: Vec<(u32, Why)>,
    with_names: bool,
) -> Vec<Tally> {
    let mut groups: BTreeMap<Option<String>, Tally> = BTreeMap::new();
    for (slot, why) in whys {
        let mut reason = why.reason;
        let is_other = groups.len() >= MAX_REASONS && !groups.contains_key(&reason);
        if is_other {
            reason = Some("other reasons".into());
        }
        let tally = groups.entry(reason.clone()).or_insert_with(|| Tally {
            stage: stage.to_owned(),
            cells: 0,
            needs: why.needs,
            best: why.has,
            devices: None,
            reason,
            names: Vec::new(),
        });
        tally.cells += 1;
        if let (Some(best), Some(has)) = (tally.best, why.has) {
            tally.best = Some(best.max(has));
        }
        // the others may be about several sets of devices
        if !is_other {
            merge(&mut tally.devices, why.devices);
        }
        if with_names {
            tally.names.push(view.name(slot).to_string());
        }
    }
    groups.into_values().collect()
}

/// Merges what another cell has free of a set of devices.
fn merge(devices: &mut Option<FreeDevices>, other: Option<FreeDevices>) {
    match (devices.as_mut(), other) {
        (Some(devices), Some(other)) => devices.merge(other),
        (None, Some(other)) => *devices = Some(other),
        (_, None) => {}
    }
}

/// Returns the resources that all of the cells lack, each once, by name.
fn lacked_by_all(view: &AuctionView<'_>, job: &Job, run: &[Filter], cells: &[u32]) -> Vec<Lack> {
    let Some((first, others)) = cells.split_first() else {
        return Vec::new();
    };
    let mut lacking: Vec<(&Filter, Lack)> = Vec::new();
    for filter in run {
        let short = filter::shortages(filter, view.cell(*first), &job.request);
        lacking.extend(short.into_iter().map(|(resource, (needs, best))| {
            let lack = Lack {
                stage: filter.name(),
                devices: filter::free_devices(view.cell(*first), &resource, &job.request),
                resource,
                needs,
                best,
            };
            (filter, lack)
        }));
    }
    lacking.sort_by(|(_, a), (_, b)| a.resource.cmp(&b.resource));
    lacking.dedup_by(|(_, a), (_, b)| a.resource == b.resource);
    for slot in others {
        let cell = view.cell(*slot);
        lacking.retain_mut(|(filter, lack)| {
            let short = filter::shortage(filter, &lack.resource, cell, &job.request);
            short.is_some_and(|(_, has)| {
                lack.best = lack.best.max(has);
                let free = filter::free_devices(cell, &lack.resource, &job.request);
                merge(&mut lack.devices, free);
                true
            })
        });
        if lacking.is_empty() {
            break;
        }
    }
    lacking.into_iter().map(|(_, lack)| lack).collect()
}
