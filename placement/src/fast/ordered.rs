//! The ordered engine: cells stay in order of their own part of the cost, and only the winner moves.
//!
//! **Why.** Under Diego's policies every job would otherwise walk over all cells, although almost nothing changes
//! between two jobs. With 5,000 cells this engine is more than 1,000 times as fast as the plain one, and 75 times as
//! fast as the columnar one: 1,230,000 decisions a second against 16,500.
//!
//! **Invariant.** For the cells of one class (same zone, same totals, alike to every filter) the cost of a job is
//! `base(cell) + part(class, job)`, plus what the app's own instances add. So the cheapest cell of a class is its first
//! one with room, whatever the job; only the few cells that already hold the app are evaluated one by one. Every cell
//! is in the bucket of its key, except the dirty ones, which are moved to their bucket before the order is read.
//!
//! The index only proposes candidates: sums of floats depend on their order, so the cost of every cell within [`near`]
//! of the best is computed again by the plain formula.

use super::{
    classes::Class,
    index::Index,
    members::{Members, RankedZones, Shapes},
    recipe::{Part, Recipe},
    rows::Row,
    session::Session,
};
use crate::{
    batch::{Batch, JobGroup},
    cell::Cell,
    context::Now,
    devices::DeviceShares,
    engine::{Choice, Engine},
    objective::Objective,
    policy::{Narrow, Policy},
    request::{Job, Kind, Request},
};

mod bucket;
mod order;
mod search;

use order::Order;
use search::Candidate;

/// The capacity for marked cells that is kept.
const MAX_SPARE: usize = 64;

/// Returns the distance from the best cost within which costs are computed exactly.
fn near(best: f64) -> f64 {
    1e-9 * (1.0 + best.abs())
}

/// Cells in order, for one policy.
#[derive(Clone, Debug)]
pub(crate) struct Ordered {
    policy: Policy,
    recipe: Recipe,
    members: Members,
    /// By slot: the cell's rank in its zone, or its raw index.
    places: Vec<u32>,
    /// For LRPs and for tasks.
    orders: [Order; 2],
}

impl Ordered {
    /// Creates an index; none if the policy's cost does not separate.
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
            keys: Vec::new(),
            positions: Vec::new(),
            dirty: Vec::new(),
            is_dirty: Vec::new(),
        };
        Some(Self {
            policy: policy.clone(),
            members: Members::new(recipe.filters.clone(), true),
            places: Vec::new(),
            orders: [order(Kind::Lrp), order(Kind::Task)],
            recipe,
        })
    }

    /// Returns whether a cell's cost depends on which other cells its zone has.
    fn uses_ranks(&self) -> bool {
        let places = |(part, weight, _): &(Part, f64, _)| *part == Part::Place && *weight != 0.0;
        !self.recipe.raw_index && self.recipe.terms.iter().any(places)
    }

    /// Takes the cell out of every order until it is marked dirty.
    fn take_out(&mut self, slot: u32) {
        if let Some(class) = self.members.class_of(slot) {
            for order in &mut self.orders {
                order.take_out(slot, class);
            }
        }
    }

    /// Marks a cell whose row changed; its new place is found when the order is next read.
    fn mark_dirty(&mut self, slot: u32) {
        for order in &mut self.orders {
            order.mark_dirty(slot);
        }
    }

    /// Moves every dirty cell to where its row puts it.
    fn apply_dirty(&mut self, order: usize, rows: &[Row], hashes: &[u64]) {
        let order = &mut self.orders[order];
        let mut dirty = std::mem::take(&mut order.dirty);
        for slot in dirty.drain(..) {
            let at = slot as usize;
            order.is_dirty[at] = false;
            if let Some(class_id) = self.members.class_of(slot) {
                let (class, place) = (self.members.classes.get(class_id), self.places[at]);
                order.move_cell((slot, hashes[at]), class_id, class, place, &rows[at]);
            }
        }
        // the next job will have about as few
        if dirty.capacity() <= MAX_SPARE {
            order.dirty = dirty;
        }
    }
}

impl Index for Ordered {
    fn policy(&self) -> &Policy {
        &self.policy
    }

    fn put(&mut self, slot: u32, cell: &Cell, _: Row, _: u64) {
        self.members.put(slot, cell);
        let at = slot as usize;
        if self.places.len() <= at {
            self.places.resize(at + 1, 0);
        }
        if self.recipe.raw_index {
            self.places[at] = cell.index;
        }
        // its bucket is found when the order is read: an advertisement alone costs no search
        self.mark_dirty(slot);
    }

    fn take(&mut self, slot: u32, _: &Cell, _: Row) {
        // in this order: the class tells which list it is in
        self.take_out(slot);
        self.members.take(slot);
    }

    fn change(&mut self, slot: u32, _: (&Cell, Row), _: (&Cell, Row)) {
        self.mark_dirty(slot);
    }

    fn debit(&mut self, slot: u32, _: Row, _: (&Cell, Row), _: &Request) {
        self.mark_dirty(slot);
    }

    fn depends_on_membership(&self) -> bool {
        self.uses_ranks()
    }

    fn set_ranks(&mut self, ranks: Vec<u32>) {
        self.places = ranks;
    }

    fn numbered(&self) -> usize {
        self.members.classes.len()
    }

    fn begin<'a>(&'a mut self, session: Session<'a>, batch: &'a Batch<'a>) -> Box<dyn Engine + 'a> {
        Box::new(OrderedPlan::new(self, session, &batch.shapes))
    }

    fn boxed_clone(&self) -> Box<dyn Index> {
        Box::new(self.clone())
    }
}

/// One plan over an [`Ordered`] index.
pub(crate) struct OrderedPlan<'a> {
    index: &'a mut Ordered,
    session: Session<'a>,
    shapes: &'a [&'a Request],
    /// Cells that do not exist for this auction, and their classes.
    absent: Vec<(u32, u32)>,
    /// The job's part of the cost in each class.
    job_costs: Shapes<f64>,
    zones: RankedZones,
    /// Reused from job to job: cost, class and tier.
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
            // out of the class as well, so that a mark from before the plan does not bring it back
            index.take_out(*slot);
            // remembered, so that the cell returns to its class without being classified again
            if let Some(class) = index.members.take(*slot) {
                absent.push((*slot, class));
            }
        }
        Self {
            index,
            session,
            absent,
            job_costs: Shapes::new(shapes.len()),
            shapes,
            zones: RankedZones::default(),
            cheapest: Vec::new(),
            candidates: Vec::new(),
        }
    }
}

impl Engine for OrderedPlan<'_> {
    fn choose(&mut self, job: &Job, group: JobGroup, _: Option<&Objective>) -> Choice {
        // the shape's request stands in for the job's, which is far away in memory
        let request = self.shapes[group.shape as usize];
        let order = usize::from(request.kind == Kind::Task);
        self.index
            .apply_dirty(order, self.session.parts.rows, self.session.parts.hashes);
        let index = &*self.index;
        let zones = index.members.classes.zones();
        self.session
            .meet(group, job, zones, |slot| index.members.zone_of(slot));
        // holders cost more than their bucket says, so they are skipped in buckets
        self.session.mark_holders(group);
        let need = || index.recipe.need(request);
        let about = (&index.members, request, Now::of(self.session.context));
        let job_cost = |class: &Class| index.orders[order].part(class, request);
        let need = self.job_costs.learn(group, need, about, job_cost);
        let by_instances = index.recipe.has(&Narrow::ZoneFewest, request.kind);
        let instances = &self.session.app(group).zones;
        self.zones.rank(instances, by_instances);
        let mut next = 0;
        while let Some(tied) = self.zones.tied_from(next) {
            next = tied.end;
            self.search(tied, order, request, group, &need);
            if self.candidates.is_empty() {
                continue;
            }
            // the narrowing keeps only these zones: the next ones are tried if nobody here has room
            let cost = self.keep_cheapest(order, request, group);
            if self.candidates.is_empty() {
                continue;
            }
            // naming them all takes a walk over the buckets, drawing one of them does not
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
                rating: Some(cost),
                finalists,
                trace: None,
            };
        }
        Choice::default()
    }

    fn debit(&mut self, slot: u32, _: &Job, group: JobGroup) -> Option<Box<DeviceShares>> {
        let zone = self.index.members.zone_of(slot);
        let request = self.shapes[group.shape as usize];
        self.session.debit(slot, zone, request, group);
        self.index.mark_dirty(slot);
        self.session.take_devices(slot, request)
    }
    fn starting(&self, slot: u32) -> u32 {
        self.session.row(slot).starting
    }

    fn finish(self: Box<Self>) {
        let Self {
            index,
            mut session,
            absent,
            ..
        } = *self;
        // only marked: the next plan may change the same cells before it reads them
        session.roll_back(|slot, _, _| index.mark_dirty(slot));
        for (slot, class) in absent {
            index.members.put_back(slot, class);
            index.mark_dirty(slot);
        }
    }
}
