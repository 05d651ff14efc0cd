//! The ordered engine: cells stay in order of their own part of the cost, and only the winner moves.
//!
//! For the cells of one class (same zone, same totals, alike to every filter) the cost of a job is
//! `base(cell) + part(class, job)`, plus what the app's own instances add. So the cheapest cell of a
//! class is its first one with room, whatever the job; only the few cells that hold the app already
//! are looked at one by one. The index proposes; every cell within [`near`] of the best is costed
//! again by the plain formula.

use super::{
    Engine,
    classes::Classes,
    recipe::{Part, Recipe},
    rows::Row,
    session::Session,
};
use crate::{
    Cell, Job, Kind, Policy, Request, batch::Ask, objective::Objective, plain::Choice,
    policy::Narrow,
};

mod bucket;
mod order;
mod search;

use order::Order;
use search::Hit;

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
            seats: Vec::new(),
            dirty: Vec::new(),
            is_dirty: Vec::new(),
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

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    pub(crate) fn classes(&self) -> usize {
        self.classes.len()
    }

    /// Whether a cell's cost depends on which other cells its zone has.
    pub(crate) fn uses_ranks(&self) -> bool {
        let places = |(part, weight, _): &(Part, f64, _)| *part == Part::Place && *weight != 0.0;
        !self.recipe.raw_index && self.recipe.terms.iter().any(places)
    }

    /// Sets the places by slot, before the cells come.
    pub(crate) fn set_places(&mut self, places: Vec<u32>) {
        self.places = places;
    }

    pub(crate) fn put(&mut self, slot: u32, cell: &Cell) {
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
        // it has no seat: what it had before does not matter
        self.touch(slot, Row::default());
    }

    pub(crate) fn take(&mut self, slot: u32, row: Row) {
        self.unseat(slot, row);
        if let Some(class) = self.class_of.get_mut(slot as usize) {
            *class = OUT;
        }
    }

    /// Takes the cell out of every order, until it is touched.
    fn unseat(&mut self, slot: u32, row: Row) {
        let class = self.class_of.get(slot as usize).copied().unwrap_or(OUT);
        if class != OUT {
            let (kind, place) = (self.classes.get(class), self.places[slot as usize]);
            for order in &mut self.orders {
                let seated_by = order.seated_by(slot, row);
                order.unseat(slot, class, kind, place, seated_by);
            }
        }
    }

    /// The cell's row changed from `before`: it finds its new place when somebody looks.
    pub(crate) fn touch(&mut self, slot: u32, before: Row) {
        for order in &mut self.orders {
            order.touch(slot, before);
        }
    }

    /// Seats every touched cell by its row.
    fn settle_in(&mut self, order: usize, rows: &[Row], hashes: &[u64]) {
        let order = &mut self.orders[order];
        let mut dirty = std::mem::take(&mut order.dirty);
        for (slot, before) in dirty.drain(..) {
            let at = slot as usize;
            order.is_dirty[at] = false;
            let class = self.class_of.get(at).copied().unwrap_or(OUT);
            if class != OUT {
                let (kind, place) = (self.classes.get(class), self.places[at]);
                order.reseat((slot, hashes[at]), class, kind, place, (before, rows[at]));
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

/// What a shape of jobs costs in each class, beside the cells' own part; none = not admitted.
type Fares = Vec<Option<f64>>;

/// One plan over an [`Ordered`] index.
pub(crate) struct OrderedPlan<'a> {
    index: &'a mut Ordered,
    session: Session<'a>,
    shapes: &'a [&'a Request],
    /// Cells that do not exist for this auction, and their classes.
    absent: Vec<(u32, u32)>,
    /// By shape.
    fares: Vec<Option<Fares>>,
    /// Reused from job to job.
    zones: Vec<(u32, u32)>,
    /// Cost, class and tier.
    heads: Vec<(f64, u32, usize)>,
    hits: Vec<Hit>,
}

impl<'a> OrderedPlan<'a> {
    pub(crate) fn new(
        index: &'a mut Ordered,
        session: Session<'a>,
        shapes: &'a [&'a Request],
    ) -> Self {
        let mut absent = Vec::new();
        for slot in &session.out {
            index.unseat(*slot, *session.row(*slot));
            if let Some(class) = index.class_of.get_mut(*slot as usize) {
                absent.push((*slot, std::mem::replace(class, OUT)));
            }
        }
        Self {
            index,
            session,
            absent,
            fares: vec![None; shapes.len()],
            shapes,
            zones: Vec::new(),
            heads: Vec::new(),
            hits: Vec::new(),
        }
    }

    /// Leaves the index as it was before the plan, but for places to be found again.
    pub(crate) fn finish(mut self) {
        let index = self.index;
        self.session
            .roll_back(|slot, now, _| index.touch(slot, now));
        for (slot, class) in self.absent {
            index.class_of[slot as usize] = class;
            index.touch(slot, Row::default());
        }
    }

    fn learn_fares(&mut self, ask: Ask, order: usize, request: &Request) {
        if self.fares[ask.shape as usize].is_some() {
            return;
        }
        let now = crate::stages::filter::Now {
            ms: self.session.draw.now_ms,
            instances: &self.session.draw.instances,
        };
        let fare = |class| {
            let admitted = self.index.classes.admits(class, request, now);
            admitted.then(|| self.index.orders[order].part(self.index.classes.get(class), request))
        };
        // as many classes as were counted in u32
        let classes = u32::try_from(self.index.classes.len()).unwrap_or(u32::MAX);
        self.fares[ask.shape as usize] = Some((0..classes).map(fare).collect());
    }

    /// The zones, those with the fewest instances first; all alike where zones do not matter.
    fn rank_zones(&mut self, ask: Ask, kind: Kind) {
        let by_count = self.index.recipe.has(Narrow::ZoneFewest, kind);
        let counts = &self.session.app(ask).zones;
        self.zones.clear();
        for (zone, count) in (0..).zip(counts) {
            self.zones.push((if by_count { *count } else { 0 }, zone));
        }
        self.zones.sort_unstable();
    }
}

impl Engine for OrderedPlan<'_> {
    fn choose(&mut self, job: &Job, ask: Ask, _: Option<&Objective>) -> Choice {
        // the shape's request stands for the job's, which is far away in memory
        let request = self.shapes[ask.shape as usize];
        let order = usize::from(request.kind == Kind::Task);
        self.index
            .settle_in(order, self.session.parts.rows, self.session.parts.hashes);
        let zones = self.index.classes.zones();
        let index = &*self.index;
        self.session
            .meet(ask, job, zones, |slot| index.zone_of(slot));
        self.session.mark_holders(ask);
        self.learn_fares(ask, order, request);
        self.rank_zones(ask, request.kind);
        let need = self.index.recipe.need(request);
        let mut from = 0;
        while from < self.zones.len() {
            let count = self.zones[from].0;
            let group = self.zones[from..]
                .iter()
                .take_while(|(c, _)| *c == count)
                .count();
            self.search(from..from + group, order, request, ask, &need);
            from += group;
            if self.hits.is_empty() {
                continue;
            }
            let cost = self.settle(order, request, ask);
            if self.hits.is_empty() {
                continue;
            }
            let all = self.session.draw.first || self.session.draw.explain > crate::Explain::Winner;
            let finalists = if all {
                self.finalists(order, request, &need)
            } else {
                Vec::new()
            };
            let winner = if self.session.draw.first {
                finalists.first().copied()
            } else {
                self.nearest(order, job, ask, &need)
            };
            return Choice {
                winner,
                value: Some(cost),
                finalists,
            };
        }
        Choice::default()
    }

    fn debit(&mut self, slot: u32, _: &Job, ask: Ask) {
        let zone = self.index.zone_of(slot);
        let before = self
            .session
            .debit(slot, zone, self.shapes[ask.shape as usize], ask);
        self.index.touch(slot, before);
    }
}
