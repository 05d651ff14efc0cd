//! The ordered engine: cells stay in order of their own part of the cost, and only the winner moves.
//!
//! **Why.** Under Diego's policies every job would otherwise walk over all cells, although next to
//! nothing changes between two jobs. With 5,000 cells this engine is 75 times as fast as the columnar
//! one: 1,230,000 decisions a second against 16,500.
//!
//! **Invariant.** For the cells of one class (same zone, same totals, alike to every filter) the cost
//! of a job is `base(cell) + part(class, job)`, plus what the app's own instances add. So the
//! cheapest cell of a class is its first one with room, whatever the job; only the few cells that
//! hold the app already are looked at one by one. Every cell stands in the bucket of its key, but for
//! the dirty ones, which find their bucket before their order is read.
//!
//! The index only proposes: sums of floats depend on their order, so every cell within [`near`] of the
//! best is costed again by the plain formula.

use super::{
    classes::Classes,
    index::Index,
    recipe::{Part, Recipe},
    rows::Row,
    session::Session,
};
use crate::{
    batch::{Batch, JobGroup},
    cell::Cell,
    engine::{Choice, Engine},
    objective::Objective,
    policy::{Narrow, Policy},
    request::{Job, Kind, Request},
};

mod bucket;
mod order;
mod search;

use order::{NO_POSITION, Order};
use search::Candidate;

/// No class: the slot is not in the index.
const OUT: u32 = u32::MAX;

/// Room for so many marked cells is kept.
const MAX_SPARE: usize = 64;

/// Costs this close to the best are worked out exactly.
fn near(best: f64) -> f64 {
    1e-9 * (1.0 + best.abs())
}

/// Cells in order, for one policy.
#[derive(Clone, Debug)]
pub(crate) struct Ordered {
    policy: Policy,
    recipe: Recipe,
    classes: Classes,
    class_of: Vec<u32>,
    /// By slot: the cell's rank in its zone, or its raw index.
    places: Vec<u32>,
    /// For LRPs and for tasks.
    orders: [Order; 2],
}

impl Ordered {
    /// None when the policy's cost does not separate.
    pub(crate) fn new(policy: &Policy) -> Option<Self> {
        let recipe = Recipe::of(policy)?;
        if !recipe.is_ordered(policy) {
            return None;
        }
        let order = |kind: Kind| Order {
            terms: recipe
                .terms
                .iter()
                .filter(|(.., only)| only.is_none_or(|only| only == kind))
                .map(|(part, weight, _)| (*part, *weight))
                .collect(),
            lists: Vec::new(),
            positions: Vec::new(),
            dirty: Vec::new(),
            dirty_at: Vec::new(),
        };
        Some(Self {
            policy: policy.clone(),
            classes: Classes::new(recipe.filters.clone(), true),
            class_of: Vec::new(),
            places: Vec::new(),
            orders: [order(Kind::Lrp), order(Kind::Task)],
            recipe,
        })
    }

    /// Whether a cell's cost depends on which other cells its zone has.
    fn uses_ranks(&self) -> bool {
        let places = |(part, weight, _): &(Part, f64, _)| *part == Part::Place && *weight != 0.0;
        !self.recipe.raw_index && self.recipe.terms.iter().any(places)
    }

    /// Takes the cell out of every order, until it is marked dirty.
    fn take_out(&mut self, slot: u32, row: Row) {
        let class_id = self.class_of.get(slot as usize).copied().unwrap_or(OUT);
        if class_id != OUT {
            let (class, place) = (self.classes.get(class_id), self.places[slot as usize]);
            for order in &mut self.orders {
                let row_in_order = order.row_in_order(slot, row);
                order.take_out(slot, class_id, class, place, row_in_order);
            }
        }
    }

    /// The cell's row changed from `before`: it finds its new place when somebody looks.
    fn mark_dirty(&mut self, slot: u32, before: Row) {
        for order in &mut self.orders {
            order.mark_dirty(slot, before);
        }
    }

    /// Moves every dirty cell to where its row puts it.
    fn apply_dirty(&mut self, order: usize, rows: &[Row], hashes: &[u64]) {
        let order = &mut self.orders[order];
        let mut dirty = std::mem::take(&mut order.dirty);
        for (slot, before) in dirty.drain(..) {
            let at = slot as usize;
            order.dirty_at[at] = NO_POSITION;
            let class_id = self.class_of.get(at).copied().unwrap_or(OUT);
            if class_id != OUT {
                let (class, place) = (self.classes.get(class_id), self.places[at]);
                order.move_cell(
                    (slot, hashes[at]),
                    class_id,
                    class,
                    place,
                    (before, rows[at]),
                );
            }
        }
        // the few of one job are few again at the next
        if dirty.capacity() <= MAX_SPARE {
            order.dirty = dirty;
        }
    }

    fn zone_of(&self, slot: u32) -> Option<u32> {
        let class = self.class_of.get(slot as usize).copied()?;
        (class != OUT).then(|| self.classes.get(class).zone)
    }
}

impl Index for Ordered {
    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn put(&mut self, slot: u32, cell: &Cell, _: Row, _: u64) {
        let class = self.classes.of(cell);
        let at = slot as usize;
        if self.class_of.len() <= at {
            self.class_of.resize(at + 1, OUT);
        }
        if self.places.len() <= at {
            self.places.resize(at + 1, 0);
        }
        if self.recipe.raw_index {
            self.places[at] = cell.index;
        }
        self.class_of[at] = class;
        // it stands in no bucket: what it had before does not matter
        self.mark_dirty(slot, Row::default());
    }

    fn take(&mut self, slot: u32, _: &Cell, row: Row) {
        self.take_out(slot, row);
        if let Some(class) = self.class_of.get_mut(slot as usize) {
            *class = OUT;
        }
    }

    fn change(&mut self, slot: u32, old: (&Cell, Row), _: (&Cell, Row)) {
        self.mark_dirty(slot, old.1);
    }

    fn debit(&mut self, slot: u32, old: Row, _: (&Cell, Row), _: &Request) {
        self.mark_dirty(slot, old);
    }

    fn depends_on_membership(&self) -> bool {
        self.uses_ranks()
    }

    fn set_ranks(&mut self, ranks: Vec<u32>) {
        self.places = ranks;
    }

    fn numbered(&self) -> usize {
        self.classes.len()
    }

    fn begin<'a>(&'a mut self, session: Session<'a>, batch: &'a Batch<'a>) -> Box<dyn Engine + 'a> {
        Box::new(OrderedPlan::new(self, session, &batch.shapes))
    }

    fn boxed_clone(&self) -> Box<dyn Index> {
        Box::new(self.clone())
    }
}

/// What a shape of jobs costs in each class, beside the cells' own part; none = not admitted.
type JobCosts = Vec<Option<f64>>;

/// One plan over an [`Ordered`] index.
pub(crate) struct OrderedPlan<'a> {
    index: &'a mut Ordered,
    session: Session<'a>,
    shapes: &'a [&'a Request],
    /// Cells that do not exist for this auction, and their classes.
    absent: Vec<(u32, u32)>,
    /// By shape.
    job_costs: Vec<Option<JobCosts>>,
    /// Reused from job to job.
    zones: Vec<(u32, u32)>,
    /// Cost, class and tier.
    cheapest: Vec<(f64, u32, usize)>,
    candidates: Vec<Candidate>,
}

impl<'a> OrderedPlan<'a> {
    pub(crate) fn new(
        index: &'a mut Ordered,
        session: Session<'a>,
        shapes: &'a [&'a Request],
    ) -> Self {
        let mut absent = Vec::new();
        for slot in &session.out {
            index.take_out(*slot, *session.row(*slot));
            if let Some(class) = index.class_of.get_mut(*slot as usize) {
                absent.push((*slot, std::mem::replace(class, OUT)));
            }
        }
        Self {
            index,
            session,
            absent,
            job_costs: vec![None; shapes.len()],
            shapes,
            zones: Vec::new(),
            cheapest: Vec::new(),
            candidates: Vec::new(),
        }
    }

    fn learn_job_costs(&mut self, group: JobGroup, order: usize, request: &Request) {
        if self.job_costs[group.shape as usize].is_some() {
            return;
        }
        let now = crate::context::Now::of(self.session.context);
        let job_cost = |class| {
            let admitted = self.index.classes.admits(class, request, now);
            admitted.then(|| self.index.orders[order].part(self.index.classes.get(class), request))
        };
        // as many classes as were counted in u32
        let classes = u32::try_from(self.index.classes.len()).unwrap_or(u32::MAX);
        self.job_costs[group.shape as usize] = Some((0..classes).map(job_cost).collect());
    }

    /// The zones, those with the fewest instances first; all alike where zones do not matter.
    fn rank_zones(&mut self, group: JobGroup, kind: Kind) {
        let by_count = self.index.recipe.has(Narrow::ZoneFewest, kind);
        let counts = &self.session.app(group).zones;
        self.zones.clear();
        for (zone, count) in (0..).zip(counts) {
            self.zones.push((if by_count { *count } else { 0 }, zone));
        }
        self.zones.sort_unstable();
    }
}

impl Engine for OrderedPlan<'_> {
    fn choose(&mut self, job: &Job, group: JobGroup, _: Option<&Objective>) -> Choice {
        // the shape's request stands for the job's, which is far away in memory
        let request = self.shapes[group.shape as usize];
        let order = usize::from(request.kind == Kind::Task);
        self.index
            .apply_dirty(order, self.session.parts.rows, self.session.parts.hashes);
        let zones = self.index.classes.zones();
        let index = &*self.index;
        self.session
            .meet(group, job, zones, |slot| index.zone_of(slot));
        self.session.mark_holders(group);
        self.learn_job_costs(group, order, request);
        self.rank_zones(group, request.kind);
        let need = self.index.recipe.need(request);
        let mut from = 0;
        while from < self.zones.len() {
            let count = self.zones[from].0;
            let tied = self.zones[from..]
                .iter()
                .take_while(|(c, _)| *c == count)
                .count();
            self.search(from..from + tied, order, request, group, &need);
            from += tied;
            if self.candidates.is_empty() {
                continue;
            }
            let cost = self.keep_cheapest(order, request, group);
            if self.candidates.is_empty() {
                continue;
            }
            let all = self.session.context.first
                || self.session.context.explain > crate::decision::Explain::Winner;
            let finalists = if all {
                self.finalists(order, request, &need)
            } else {
                Vec::new()
            };
            let winner = if self.session.context.first {
                finalists.first().copied()
            } else {
                self.nearest(order, job, group, &need)
            };
            return Choice {
                winner,
                value: Some(cost),
                finalists,
                trace: None,
            };
        }
        Choice::default()
    }

    fn debit(&mut self, slot: u32, _: &Job, group: JobGroup) {
        let zone = self.index.zone_of(slot);
        let before = self
            .session
            .debit(slot, zone, self.shapes[group.shape as usize], group);
        self.index.mark_dirty(slot, before);
    }

    fn finish(self: Box<Self>) {
        let Self {
            index,
            mut session,
            absent,
            ..
        } = *self;
        session.roll_back(|slot, now, _| index.mark_dirty(slot, now));
        for (slot, class) in absent {
            index.class_of[slot as usize] = class;
            index.mark_dirty(slot, Row::default());
        }
    }
}
