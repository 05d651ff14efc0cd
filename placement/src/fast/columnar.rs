//! The columnar engine: serves every policy. It goes through the stages as the plain engine does, but
//! over columns: filters that debits cannot change are judged once for all requests alike, places by
//! memory and disk are kept in order from job to job, and the objective runs over blocks of cells.

use super::{
    Engine,
    columns::{Columns, NO_RACK, Source},
    rows::Need,
    terms,
    vector::Blocks,
};
use crate::{
    Draw, Job, Policy, Request,
    batch::{Ask, Batch},
    objective::Objective,
    plain::{Choice, first_k},
    policy::{Combine, Filter, Mode, Narrow, Pick, Stage, Step},
    stages::{filter, score},
    tie,
};

/// One plan over columns.
pub(crate) struct Columnar<'a> {
    columns: Columns<'a>,
    lots: tie::Lots,
    policy: &'a Policy,
    /// For each of the first requests that static filters were judged for: the stage, the request
    /// and the positions it keeps.
    judged: Vec<Judged<'a>>,
    shapes: Vec<&'a Request>,
    scratch: Scratch,
}

/// The cells that pass all static filters before the first stage of another kind.
struct Judged<'a> {
    request: &'a Request,
    positions: Vec<u32>,
}

/// Reused from job to job.
#[derive(Default)]
struct Scratch {
    alive: Vec<u32>,
    totals: Vec<f64>,
    term: Vec<f64>,
    blocks: Blocks,
    terms: terms::Scratch,
}

/// At most so many different kinds of request are remembered.
const MAX_JUDGED: usize = 256;

impl<'a> Columnar<'a> {
    pub(crate) fn new(
        source: Source<'a>,
        policy: &'a Policy,
        draw: &'a Draw,
        jobs: &'a [Job],
        batch: &Batch<'a>,
    ) -> Self {
        let mut columns = Columns::new(source, policy, draw, batch.apps.len());
        columns.learn(jobs, batch);
        Self {
            columns,
            lots: tie::Lots::new(draw.seed, draw.auction),
            policy,
            judged: Vec::new(),
            shapes: batch.shapes.clone(),
            scratch: Scratch::default(),
        }
    }

    /// Fills `alive` with the cells that pass the leading filters on amounts, and the static ones.
    fn start(&mut self, request: &'a Request, leading: &[&Stage]) {
        let known = self
            .judged
            .iter()
            .position(|judged| alike(judged.request, request));
        let at = known.unwrap_or_else(|| {
            if self.judged.len() >= MAX_JUDGED {
                self.judged.clear();
            }
            let columns = &self.columns;
            let now = columns.now();
            let keeps = |position: &u32| {
                let cell = columns.cell(*position);
                let total = &cell.total;
                leading.iter().all(|stage| match &stage.step {
                    Step::Filter(Filter::Memory) => total.memory_mb > 0,
                    Step::Filter(Filter::Disk) => total.disk_mb != Some(0),
                    Step::Filter(Filter::Containers) => total.containers != Some(0),
                    Step::Filter(filter) if !is_dynamic(filter) => {
                        filter::keeps(filter, cell, request, now)
                    }
                    _ => true,
                })
            };
            let positions = (0..).take(columns.len()).filter(keeps).collect();
            self.judged.push(Judged { request, positions });
            self.judged.len() - 1
        });
        let asks = |filter: &Filter| {
            leading
                .iter()
                .any(|stage| matches!(&stage.step, Step::Filter(f) if f == filter))
        };
        let least = |filter, amount| if asks(filter) { amount } else { i64::MIN };
        let capped = request.cpu_millis > 0;
        let need = Need {
            memory: least(&Filter::Memory, request.memory_mb),
            disk: least(&Filter::Disk, request.disk_mb),
            containers: least(&Filter::Containers, 1),
            cpu: if capped {
                least(&Filter::Cpu, request.cpu_millis)
            } else {
                i64::MIN
            },
            extra: asks(&Filter::Extra) && !request.extra.is_empty(),
        };
        let rows = &self.columns.rows;
        let fits = |position: &&u32| need.fits(&rows[**position as usize]);
        self.scratch.alive.clear();
        self.scratch
            .alive
            .extend(self.judged[at].positions.iter().filter(fits));
        if need.extra {
            let columns = &self.columns;
            self.scratch
                .alive
                .retain(|p| columns.has_extras(*p, request));
        }
    }

    /// Drops what a filter that debits can change would drop.
    fn filter(&mut self, filter: &Filter, request: &Request) {
        let (columns, alive) = (&self.columns, &mut self.scratch.alive);
        let row = |position: &u32| &columns.rows[*position as usize];
        let cell = |position: &u32| columns.cell(*position);
        match filter {
            Filter::Memory => alive.retain(|p| {
                row(p).memory >= request.memory_mb && columns.total_memory[*p as usize] > 0.0
            }),
            Filter::Disk => alive.retain(|p| {
                row(p).disk >= request.disk_mb && columns.total_disk[*p as usize] != 0.0
            }),
            Filter::Containers => {
                alive.retain(|p| row(p).containers >= 1 && cell(p).total.containers != Some(0));
            }
            Filter::Cpu if request.cpu_millis == 0 => {}
            Filter::Cpu => alive.retain(|p| row(p).cpu >= request.cpu_millis),
            Filter::Extra if request.extra.is_empty() => {}
            Filter::Extra => alive.retain(|p| columns.has_extras(*p, request)),
            Filter::ContainerCount { limit } => {
                alive.retain(|p| columns.instances[*p as usize] < u64::from(*limit));
            }
            Filter::Capness => {
                let capped = request.cpu_millis > 0;
                let other = if capped {
                    &columns.uncapped
                } else {
                    &columns.capped
                };
                alive.retain(|p| other[*p as usize] == 0);
            }
            Filter::Locality => self.strict_locality(request),
            _ => {
                let now = columns.now();
                alive.retain(|p| filter::keeps(filter, cell(p), request, now));
            }
        }
    }

    fn strict_locality(&mut self, request: &Request) {
        if !request.strict || (request.near.is_empty() && request.far.is_empty()) {
            return;
        }
        let far = self.columns.held(&request.far);
        let near = self.columns.held(&request.near);
        let wanted = u32::try_from(request.near.len()).unwrap_or(u32::MAX);
        let stays = |p: &u32| far[*p as usize] == 0 && near[*p as usize] == wanted;
        self.scratch.alive.retain(stays);
    }

    fn narrow(&mut self, narrow: Narrow, job: &Job, ask: Ask) {
        let app = &job.request.app;
        match narrow {
            Narrow::ZoneFewest => {
                let counts = self.columns.app(ask, app).zones.clone();
                let count = |p: &u32| counts[self.columns.zones[*p as usize] as usize];
                let fewest = self.scratch.alive.iter().map(count).min().unwrap_or(0);
                keep(&mut self.scratch, |p| count(p) == fewest);
            }
            Narrow::AppFewest => {
                let holders = self.columns.app(ask, app).counts.clone();
                let count = |p: &u32| {
                    let at = holders.binary_search_by_key(p, |(position, _)| *position);
                    at.map_or(0, |at| holders[at].1)
                };
                let fewest = self.scratch.alive.iter().map(count).min().unwrap_or(0);
                if fewest > 0 || !holders.is_empty() {
                    keep(&mut self.scratch, |p| count(p) == fewest);
                }
            }
            Narrow::UpperHalfMemory => {
                let memory = |p: &u32| self.columns.rows[*p as usize].memory;
                let mut sorted: Vec<i64> = self.scratch.alive.iter().map(memory).collect();
                if sorted.is_empty() {
                    return;
                }
                let middle = sorted.len() / 2;
                let threshold = *sorted.select_nth_unstable(middle).1;
                keep(&mut self.scratch, |p| memory(p) >= threshold);
            }
            Narrow::Locality => self.nearby(&job.request),
        }
    }

    fn nearby(&mut self, request: &Request) {
        let Self {
            columns, scratch, ..
        } = self;
        if request.near.is_empty() && request.far.is_empty() {
            if let Some(owner) = &request.owner {
                let holders = columns.owner(owner);
                let free = |p: &u32| holders.binary_search_by_key(p, |(at, _)| *at).is_err();
                softly(scratch, free);
            }
            return;
        }
        let in_rack = |racks: &[u32], p: u32, wanted: &[bool]| {
            let rack = racks[p as usize];
            rack != NO_RACK && wanted[rack as usize]
        };
        if !request.far.is_empty() {
            let held = columns.held(&request.far);
            softly(scratch, |p| held[*p as usize] == 0);
            let racks = columns.racks_of(&held);
            softly(scratch, |p| !in_rack(&columns.racks, *p, &racks));
        }
        if !request.near.is_empty() {
            let held = columns.held(&request.near);
            if !softly(scratch, |p| held[*p as usize] > 0) {
                let racks = columns.racks_of(&held);
                softly(scratch, |p| in_rack(&columns.racks, *p, &racks));
            }
        }
    }

    fn score(
        &mut self,
        step: &crate::policy::Score,
        objective: Option<&Objective>,
        job: &Job,
        ask: Ask,
    ) {
        let combine = self.policy.combine;
        let scratch = &mut self.scratch;
        if scratch.totals.is_empty() {
            let start = match combine {
                Combine::Sum => 0.0,
                Combine::Product => 1.0,
            };
            scratch.totals.resize(scratch.alive.len(), start);
        }
        if combine == Combine::Sum && step.weight == 0.0 && step.mode != Mode::Raw {
            // a share times 0 changes nothing
            return;
        }
        let mut term = std::mem::take(&mut scratch.term);
        term.clear();
        terms::term(
            &mut terms::Around {
                columns: &mut self.columns,
                alive: &scratch.alive,
                blocks: &mut scratch.blocks,
                scratch: &mut scratch.terms,
                point: self.lots.of_job(ask.app_hash, job.index),
                job,
                ask,
            },
            step,
            objective,
            &mut term,
        );
        score::combine(step, combine, &mut term, &mut scratch.totals);
        scratch.term = term;
    }

    fn pick(&mut self, job: &Job, ask: Ask) -> Choice {
        let point = self.lots.of_job(ask.app_hash, job.index);
        let Self {
            columns,
            scratch,
            policy,
            ..
        } = self;
        if scratch.totals.is_empty() {
            scratch.totals.resize(scratch.alive.len(), 0.0);
        }
        let distance = |p: u32| tie::distance(columns.lots[p as usize], point);
        let mut finalists = finalists(scratch, &policy.pick, distance);
        let drawn = match policy.pick {
            _ if columns.draw.first || finalists.is_empty() => 0,
            Pick::Lowest | Pick::Highest => nearest(&finalists, distance, 0),
            Pick::Sample | Pick::FirstOf { .. } => {
                let k = tie::draw(point, finalists.len());
                nearest(&finalists, distance, k)
            }
        };
        let Some((winner, value)) = finalists.get(drawn).copied() else {
            return Choice::default();
        };
        if columns.draw.explain == crate::Explain::Winner {
            finalists.clear();
        }
        Choice {
            winner: Some(columns.slots[winner as usize]),
            finalists: finalists
                .iter()
                .map(|(p, _)| columns.slots[*p as usize])
                .collect(),
            value: (policy.pick != Pick::Sample).then_some(value),
        }
    }
}

/// The cells that could win and their values, by position.
fn finalists(scratch: &Scratch, pick: &Pick, distance: impl Fn(u32) -> u64) -> Vec<(u32, f64)> {
    let finite = |(p, value): (&u32, &f64)| value.is_finite().then_some((*p, *value));
    let scored = || scratch.alive.iter().zip(&scratch.totals).filter_map(finite);
    let best = |highest: bool| {
        let mut tied: Vec<(u32, f64)> = Vec::new();
        let mut best = if highest {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        };
        for (position, value) in scored() {
            if if highest { value > best } else { value < best } {
                best = value;
                tied.clear();
            }
            if score::ties(value, best) {
                tied.push((position, value));
            }
        }
        tied
    };
    match pick {
        Pick::Sample => scored().collect(),
        Pick::Lowest => best(false),
        Pick::Highest => best(true),
        Pick::FirstOf { fraction, highest } => {
            let mut all: Vec<(u32, f64)> = scored().collect();
            let k = first_k(*fraction, all.len());
            if k < 1 {
                return best(*highest);
            }
            // equal values in the order of their lots, then of their names
            let order = |a: &(u32, f64), b: &(u32, f64)| {
                let values = if *highest {
                    b.1.total_cmp(&a.1)
                } else {
                    a.1.total_cmp(&b.1)
                };
                let lots = || distance(a.0).cmp(&distance(b.0));
                values.then_with(lots).then(a.0.cmp(&b.0))
            };
            all.select_nth_unstable_by(k - 1, order);
            all.truncate(k);
            all.sort_unstable_by_key(|(p, _)| *p);
            all
        }
    }
}

/// The index of the `k`-th finalist in the order of distances; equal ones by position.
fn nearest(finalists: &[(u32, f64)], distance: impl Fn(u32) -> u64, k: usize) -> usize {
    let keyed = finalists
        .iter()
        .enumerate()
        .map(|(i, (p, _))| (distance(*p), i));
    if k == 0 {
        return keyed.min().map_or(0, |(_, i)| i);
    }
    let mut keyed: Vec<(u64, usize)> = keyed.collect();
    let (_, found, _) = keyed.select_nth_unstable(k);
    found.1
}

/// Keeps what is wanted, of the totals too.
fn keep(scratch: &mut Scratch, wanted: impl Fn(&u32) -> bool) {
    if scratch.totals.is_empty() {
        scratch.alive.retain(|p| wanted(p));
        return;
    }
    let mut kept = 0;
    for i in 0..scratch.alive.len() {
        if wanted(&scratch.alive[i]) {
            scratch.alive[kept] = scratch.alive[i];
            scratch.totals[kept] = scratch.totals[i];
            kept += 1;
        }
    }
    scratch.alive.truncate(kept);
    scratch.totals.truncate(kept);
}

/// Keeps what is wanted, unless that is nothing; says whether there was any.
fn softly(scratch: &mut Scratch, wanted: impl Fn(&u32) -> bool) -> bool {
    let any = scratch.alive.iter().any(&wanted);
    if any {
        keep(scratch, wanted);
    }
    any
}

fn is_dynamic(filter: &Filter) -> bool {
    filter.is_resource() || super::classes::is_dynamic(filter)
}

/// Whether every static filter judges the two alike.
fn alike(a: &Request, b: &Request) -> bool {
    std::ptr::eq(a, b)
        || (a.kind == b.kind
            && a.stack == b.stack
            && a.placement_tags == b.placement_tags
            && a.volume_drivers == b.volume_drivers
            && a.networks == b.networks
            && a.traits == b.traits
            && a.min_platform == b.min_platform
            && a.max_platform == b.max_platform
            && a.volumes_from == b.volumes_from
            && a.overcommit == b.overcommit)
}

impl Engine for Columnar<'_> {
    fn choose(&mut self, job: &Job, ask: Ask, objective: Option<&Objective>) -> Choice {
        let request = &*job.request;
        let policy = self.policy;
        let stages: Vec<&Stage> = policy.stages_for(request.kind).collect();
        let leads = stages
            .iter()
            .take_while(|stage| matches!(stage.step, Step::Filter(_)));
        let leading = leads.count();
        let shape = self.shapes[ask.shape as usize];
        self.start(shape, &stages[..leading]);
        self.scratch.totals.clear();
        let mut scored = false;
        for (at, stage) in stages.iter().enumerate() {
            if self.scratch.alive.is_empty() {
                return Choice::default();
            }
            match &stage.step {
                // done by the start
                Step::Filter(filter) if at < leading && !super::classes::is_dynamic(filter) => {}
                Step::Filter(filter) => {
                    // a filter after a score is rare: start the totals' cells over
                    if scored {
                        self.filter_scored(filter, request);
                    } else {
                        self.filter(filter, request);
                    }
                }
                Step::Narrow(narrow) => self.narrow(*narrow, job, ask),
                Step::Score(step) => {
                    scored = true;
                    self.score(step, objective, job, ask);
                }
            }
        }
        if self.scratch.alive.is_empty() {
            return Choice::default();
        }
        self.pick(job, ask)
    }

    fn debit(&mut self, slot: u32, job: &Job, ask: Ask) {
        if let Some(position) = self.columns.position(slot) {
            self.columns.debit(position, job, ask);
        }
    }
}

impl Columnar<'_> {
    /// A filter after a score: the totals follow the cells.
    fn filter_scored(&mut self, filter: &Filter, request: &Request) {
        let before = self.scratch.alive.clone();
        self.filter(filter, request);
        let after = std::mem::take(&mut self.scratch.alive);
        let totals = std::mem::take(&mut self.scratch.totals);
        let mut left = after.iter().copied().peekable();
        for (position, total) in before.iter().zip(totals) {
            // both are in the order of positions
            if left.peek() == Some(position) {
                left.next();
                self.scratch.totals.push(total);
            }
        }
        self.scratch.alive = after;
    }
}
