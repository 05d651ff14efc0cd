//! The plain engine: walks all cells for every job. It is the definition; the fast engines must
//! decide the same.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    Job, Policy, Tally,
    objective::Objective,
    policy::{Combine, Filter, Pick, Stage, Step},
    scene::Scene,
    stages::{
        filter::{self, Why},
        narrow, score,
    },
    tie,
};

/// The most different reasons that one stage tells apart.
const MAX_REASONS: usize = 8;
/// The most notes on one decision.
const MAX_NOTES: usize = 16;

/// What one job got.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// The winner's slot; none when no cell is left.
    pub(crate) winner: Option<u32>,
    /// The slots the final draw was made from, by name.
    pub(crate) finalists: Vec<u32>,
    /// The winner's cost or score, where the policy has one.
    pub(crate) value: Option<f64>,
}

/// What happened on the way, stage by stage.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    pub(crate) stages: Vec<TracedStage>,
    pub(crate) notes: Vec<String>,
    /// Each term of each finalist.
    pub(crate) terms: Vec<FinalistScore>,
    /// Name the dropped cells.
    pub(crate) with_names: bool,
    /// What every cell that came to the last resource filters lacked, by name.
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
}

/// A finalist's slot, score and terms.
#[derive(Debug)]
pub(crate) struct FinalistScore {
    pub(crate) slot: u32,
    pub(crate) value: f64,
    pub(crate) terms: Vec<(String, f64)>,
}

/// One stage's doing.
#[derive(Debug)]
pub(crate) struct TracedStage {
    pub(crate) name: &'static str,
    pub(crate) survivors: usize,
    pub(crate) rejected: Vec<Tally>,
}

/// The stage that dropped the last cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Emptied {
    /// There was no cell to begin with.
    NoCells,
    Filter(Filter),
    /// No cell has a finite score.
    Score,
}

/// Runs one job through the policy.
pub(crate) fn choose(
    scene: &Scene<'_>,
    policy: &Policy,
    objective: Option<&Objective>,
    job: &Job,
    first: bool,
    mut trace: Option<&mut Trace>,
) -> Choice {
    let mut cells = scene.live().to_vec();
    if let Some(trace) = &mut trace {
        trace.begin(scene, &cells);
    }
    let stages: Vec<&Stage> = policy.stages_for(job.request.kind).collect();
    let mut totals: Option<Totals> = None;
    for (position, stage) in stages.iter().enumerate() {
        if cells.is_empty() {
            break;
        }
        match &stage.step {
            Step::Filter(filter) => {
                if let Some(trace) = &mut trace {
                    trace.resources(scene, job, &stages, position, &cells);
                }
                let keeps = |slot: &u32| {
                    filter::keeps(filter, scene.cell(*slot), &job.request, scene.now())
                };
                let (kept, dropped) = split(cells, keeps);
                if let Some(trace) = &mut trace {
                    trace.filtered(scene, job, filter, &kept, &dropped);
                }
                cells = kept;
            }
            Step::Narrow(step) => {
                let before = cells.clone();
                let mut notes = Vec::new();
                cells = narrow::narrow(*step, scene, job, cells, &mut |note| notes.push(note));
                if let Some(trace) = &mut trace {
                    trace.narrowed(scene, step.name(), &before, &cells, notes);
                }
            }
            Step::Score(step) => {
                let start = totals
                    .take()
                    .unwrap_or_else(|| Totals::new(policy.combine, &cells));
                let mut sums = start.follow(&cells);
                let mut term = score::term(step, objective, scene, job, &cells);
                score::combine(step, policy.combine, &mut term, &mut sums.values);
                sums.terms
                    .push((stage.name().to_owned(), cells.clone(), term));
                totals = Some(sums);
            }
        }
    }
    pick(scene, policy, job, &cells, totals, first, trace)
}

fn split(cells: Vec<u32>, keeps: impl Fn(&u32) -> bool) -> (Vec<u32>, Vec<u32>) {
    cells.into_iter().partition(keeps)
}

/// Scores so far. Narrowings may come after a score, so the cells are kept beside the values.
struct Totals {
    cells: Vec<u32>,
    values: Vec<f64>,
    terms: Vec<(String, Vec<u32>, Vec<f64>)>,
}

impl Totals {
    fn new(combine: Combine, cells: &[u32]) -> Self {
        let start = match combine {
            Combine::Sum => 0.0,
            Combine::Product => 1.0,
        };
        Self {
            cells: cells.to_vec(),
            values: vec![start; cells.len()],
            terms: Vec::new(),
        }
    }

    /// The totals of the cells that are left.
    fn follow(mut self, left: &[u32]) -> Self {
        if self.cells.len() != left.len() {
            let values: BTreeMap<u32, f64> = self.cells.iter().copied().zip(self.values).collect();
            self.values = left
                .iter()
                .map(|slot| values.get(slot).copied().unwrap_or(f64::NAN))
                .collect();
            self.cells = left.to_vec();
        }
        self
    }

    fn terms_of(&self, slot: u32) -> Vec<(String, f64)> {
        let of = |(name, cells, values): &(String, Vec<u32>, Vec<f64>)| {
            let at = cells.iter().position(|s| *s == slot)?;
            Some((name.clone(), values[at]))
        };
        self.terms.iter().filter_map(of).collect()
    }
}

/// The final draw.
fn pick(
    scene: &Scene<'_>,
    policy: &Policy,
    job: &Job,
    cells: &[u32],
    totals: Option<Totals>,
    first: bool,
    mut trace: Option<&mut Trace>,
) -> Choice {
    let totals = totals.map(|totals| totals.follow(cells));
    let mut scored: Vec<(u32, f64)> = match &totals {
        Some(totals) => cells
            .iter()
            .copied()
            .zip(totals.values.iter().copied())
            .collect(),
        None => cells.iter().map(|slot| (*slot, 0.0)).collect(),
    };
    let before = scored.len();
    scored.retain(|(_, value)| value.is_finite());
    if let Some(trace) = &mut trace
        && scored.len() < before
    {
        trace.unscored(scene, cells, &scored);
    }
    let finalists = finalists(scene, &policy.pick, job, &scored);
    let Some(winner) = winner(scene, &policy.pick, job, &finalists, first) else {
        return Choice::default();
    };
    let scores = policy.pick != Pick::Sample;
    let value_of = |slot: u32| scored.iter().find(|(s, _)| *s == slot).map(|(_, v)| *v);
    if let (Some(trace), Some(totals)) = (trace, &totals) {
        let report = |slot: &u32| FinalistScore {
            slot: *slot,
            value: value_of(*slot).unwrap_or(0.0),
            terms: totals.terms_of(*slot),
        };
        trace.terms = finalists.iter().map(report).collect();
    }
    Choice {
        winner: Some(winner),
        value: if scores { value_of(winner) } else { None },
        finalists,
    }
}

/// The cells that could win, by name.
fn finalists(scene: &Scene<'_>, pick: &Pick, job: &Job, scored: &[(u32, f64)]) -> Vec<u32> {
    let best = |highest: bool| -> Vec<u32> {
        let better = |a: f64, b: f64| if highest { a.max(b) } else { a.min(b) };
        let best = scored.iter().map(|(_, v)| *v).reduce(better);
        let tied = scored
            .iter()
            .filter(|(_, v)| best.is_some_and(|b| score::ties(*v, b)));
        tied.map(|(slot, _)| *slot).collect()
    };
    match pick {
        Pick::Sample => scored.iter().map(|(slot, _)| *slot).collect(),
        Pick::Lowest => best(false),
        Pick::Highest => best(true),
        Pick::FirstOf { fraction, highest } => {
            let k = first_k(*fraction, scored.len());
            if k < 1 {
                return best(*highest);
            }
            let point = scene.point(job);
            let mut sorted: Vec<(u32, f64, u64)> = scored
                .iter()
                .map(|(slot, v)| (*slot, *v, tie::distance(scene.lot(*slot), point)))
                .collect();
            sorted.sort_by(|a, b| {
                let order = if *highest {
                    b.1.total_cmp(&a.1)
                } else {
                    a.1.total_cmp(&b.1)
                };
                order
                    .then(a.2.cmp(&b.2))
                    .then_with(|| scene.name(a.0).cmp(scene.name(b.0)))
            });
            let mut chosen: Vec<u32> = sorted[..k].iter().map(|(slot, ..)| *slot).collect();
            chosen.sort_by(|a, b| scene.name(*a).cmp(scene.name(*b)));
            chosen
        }
    }
}

/// How many the final draw of `first-of` is made from.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 <= fraction <= 1
pub(crate) fn first_k(fraction: f64, n: usize) -> usize {
    (fraction * n as f64 + 1e-9).floor() as usize
}

fn winner(
    scene: &Scene<'_>,
    pick: &Pick,
    job: &Job,
    finalists: &[u32],
    first: bool,
) -> Option<u32> {
    if first {
        return finalists.first().copied();
    }
    let point = scene.point(job);
    let mut order: Vec<(u64, u32)> = finalists
        .iter()
        .map(|slot| (tie::distance(scene.lot(*slot), point), *slot))
        .collect();
    // finalists come by name, so a stable sort settles equal lots by name
    order.sort_by_key(|(distance, _)| *distance);
    let drawn = match pick {
        Pick::Lowest | Pick::Highest => 0,
        Pick::Sample | Pick::FirstOf { .. } => tie::draw(point, order.len()),
    };
    order.get(drawn).map(|(_, slot)| *slot)
}

/// The resources that each of the cells has too little of, each once, by name.
fn lacked_by_all(scene: &Scene<'_>, job: &Job, run: &[Filter], cells: &[u32]) -> Vec<Lack> {
    let Some((first, others)) = cells.split_first() else {
        return Vec::new();
    };
    let mut lacking: Vec<(&Filter, Lack)> = Vec::new();
    for filter in run {
        let short = filter::shortages(filter, scene.cell(*first), &job.request);
        lacking.extend(short.into_iter().map(|(resource, (needs, best))| {
            let stage = filter.name();
            let lack = Lack {
                stage,
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
        let cell = scene.cell(*slot);
        lacking.retain_mut(|(filter, lack)| {
            let short = filter::shortage(filter, &lack.resource, cell, &job.request);
            short.is_some_and(|(_, has)| {
                lack.best = lack.best.max(has);
                true
            })
        });
        if lacking.is_empty() {
            break;
        }
    }
    lacking.into_iter().map(|(_, lack)| lack).collect()
}

impl Trace {
    fn begin(&mut self, scene: &Scene<'_>, live: &[u32]) {
        for (name, gone) in scene.gone() {
            let reason = match *name {
                "expired" => "the advertisement expired",
                _ => "gave no bid",
            };
            let whys = gone.iter().map(|slot| (*slot, Why::text(reason))).collect();
            let rejected = group(scene, name, whys, self.with_names);
            self.stages.push(TracedStage {
                name,
                survivors: live.len(),
                rejected,
            });
        }
        if live.is_empty() {
            self.emptied_by = Some(Emptied::NoCells);
        }
    }

    fn filtered(
        &mut self,
        scene: &Scene<'_>,
        job: &Job,
        filter: &Filter,
        kept: &[u32],
        dropped: &[u32],
    ) {
        let why = |slot: &u32| {
            let why = filter::why(filter, scene.cell(*slot), &job.request, scene.now());
            (*slot, why)
        };
        let whys = dropped.iter().map(why).collect();
        self.stages.push(TracedStage {
            name: filter.name(),
            survivors: kept.len(),
            rejected: group(scene, filter.name(), whys, self.with_names),
        });
        if kept.is_empty() {
            self.emptied_by = Some(match filter {
                Filter::Evacuating => Emptied::NoCells,
                _ => Emptied::Filter(filter.clone()),
            });
        }
    }

    /// Before the first of a run of resource filters: what does every cell here lack?
    fn resources(
        &mut self,
        scene: &Scene<'_>,
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
        self.lacking = lacked_by_all(scene, job, &run, cells);
    }

    fn narrowed(
        &mut self,
        scene: &Scene<'_>,
        name: &'static str,
        before: &[u32],
        kept: &[u32],
        notes: Vec<String>,
    ) {
        let kept_set: BTreeSet<u32> = kept.iter().copied().collect();
        let dropped = before.iter().filter(|slot| !kept_set.contains(slot));
        let whys = dropped
            .map(|slot| (*slot, Why::text("narrowed away")))
            .collect();
        self.stages.push(TracedStage {
            name,
            survivors: kept.len(),
            rejected: group(scene, name, whys, self.with_names),
        });
        let room = MAX_NOTES.saturating_sub(self.notes.len());
        self.notes.extend(notes.into_iter().take(room));
    }

    fn unscored(&mut self, scene: &Scene<'_>, cells: &[u32], scored: &[(u32, f64)]) {
        let finite: BTreeSet<u32> = scored.iter().map(|(slot, _)| *slot).collect();
        let has = |slot: &&u32| !finite.contains(slot);
        let why = Why::text("the score is not a finite number");
        let whys = cells
            .iter()
            .filter(has)
            .map(|slot| (*slot, why.clone()))
            .collect();
        self.stages.push(TracedStage {
            name: "score",
            survivors: scored.len(),
            rejected: group(scene, "score", whys, self.with_names),
        });
        if scored.is_empty() {
            self.emptied_by = Some(Emptied::Score);
        }
    }
}

/// Rejections by reason: how many cells, what was needed, the best that any of them had.
fn group(scene: &Scene<'_>, stage: &str, whys: Vec<(u32, Why)>, with_names: bool) -> Vec<Tally> {
    let mut groups: BTreeMap<Option<String>, Tally> = BTreeMap::new();
    for (slot, why) in whys {
        let mut reason = why.reason;
        if groups.len() >= MAX_REASONS && !groups.contains_key(&reason) {
            reason = Some("other reasons".into());
        }
        let tally = groups.entry(reason.clone()).or_insert_with(|| Tally {
            stage: stage.to_owned(),
            cells: 0,
            needs: why.needs,
            best: why.has,
            reason,
            names: Vec::new(),
        });
        tally.cells += 1;
        if let (Some(best), Some(has)) = (tally.best, why.has) {
            tally.best = Some(best.max(has));
        }
        if with_names {
            tally.names.push(scene.name(slot).to_string());
        }
    }
    groups.into_values().collect()
}
