//! The known cells, and the batch auction over them.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    auction_view::PoolCells,
    batch::Batch,
    cell::{AttributeInterner, Cell, CellChange, Debited},
    context::PlanContext,
    decision::{Explain, Plan},
    devices::DeviceShares,
    expected::{Arrivals, ExpectedWork},
    fast::{
        self,
        classes::same_class_inputs,
        index::Index,
        rows::{Holders, Row},
        session::{Parts, Session},
    },
    fast_map::FastMap,
    plain::PlainEngine,
    planner::{self, Auction},
    policy::{Order, Policy},
    random,
    request::{Job, Request},
    resources::Resources,
    totals::Totals,
};

/// The known cells, by name.
///
/// It also keeps what the fast engines need: each cell's amounts in compact form, which cells have which app, and the
/// cells in the order of the last policy that planned.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    by_name: BTreeMap<Arc<str>, u32>,
    /// The same, for finding one: every report and every debit does.
    slots: FastMap<Arc<str>, u32>,
    /// By slot; the name of a free slot is empty.
    names: Vec<Arc<str>>,
    cells: Vec<Cell>,
    rows: Vec<Row>,
    hashes: Vec<u64>,
    free: Vec<u32>,
    holders: Holders,
    interner: AttributeInterner,
    arrivals: Arrivals,
    index: Option<Box<dyn Index>>,
}

impl Pool {
    /// Inserts a cell, or replaces the one with its name.
    pub fn put(&mut self, cell: Cell) {
        match self.slots.get(cell.cell.as_str()).copied() {
            Some(slot) => {
                let old = &self.cells[slot as usize].counts.apps;
                self.holders
                    .change(slot, Some(old), Some(&cell.counts.apps));
                self.replace(slot, cell);
            }
            None => self.insert(cell),
        }
    }

    /// Like [`Pool::put`], for a cell whose apps are passed separately, sorted by name without repetition. Under load a
    /// cell reports frequently, and few of its many apps change: only those are written.
    pub fn put_with_apps(&mut self, mut cell: Cell, apps: &[(&str, u32)]) {
        let Some(slot) = self.slots.get(cell.cell.as_str()).copied() else {
            let owned = apps
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count));
            cell.counts.apps = owned.collect();
            return self.insert(cell);
        };
        // taken from the old cell, where no index reads them
        let mut known = std::mem::take(&mut self.cells[slot as usize].counts.apps);
        self.holders.update(slot, &mut known, apps);
        cell.counts.apps = known;
        self.replace(slot, cell);
    }

    /// Takes over what a cell reports as changed, if the cell is known. In the pool it has the debits of `shown`, which
    /// the report includes, and of `hidden`, which it does not and which remain. Costs nothing for the cell's other
    /// apps, unlike [`Pool::put`].
    pub fn change<'d, D>(&mut self, cell: &str, change: &CellChange, shown: D, hidden: D)
    where
        D: Iterator<Item = Debited<'d>> + Clone,
    {
        let Some(slot) = self.slots.get(cell).copied() else {
            return;
        };
        let known = &mut self.cells[slot as usize];
        // no index reads an old cell's apps
        let apps = std::mem::take(&mut known.counts.apps);
        let old = known.clone();
        known.counts.apps = apps;
        let changed = |app: &str, count| self.holders.set(app, slot, count);
        known.take_over(change, shown, hidden, changed);
        self.index_change(slot, &old);
    }

    /// Replaces the cell of this slot; its apps are recorded already.
    fn replace(&mut self, slot: u32, mut cell: Cell) {
        let known = &mut self.cells[slot as usize];
        self.interner.share(&mut cell, Some(known));
        let old = std::mem::replace(known, cell);
        self.index_change(slot, &old);
    }

    /// Records that the cell of this slot was this one before.
    fn index_change(&mut self, slot: u32, old: &Cell) {
        let at = slot as usize;
        let cell = &self.cells[at];
        let row = Row::of(cell);
        let old_row = std::mem::replace(&mut self.rows[at], row);
        let same = same_class_inputs(old, cell);
        if let Some(index) = &mut self.index {
            if same {
                index.change(slot, (old, old_row), (cell, row));
            } else {
                index.replace(slot, (old, old_row), (cell, row), self.hashes[at]);
            }
        }
        if !same {
            self.drop_stale_index();
        }
    }

    fn insert(&mut self, mut cell: Cell) {
        let row = Row::of(&cell);
        self.interner.share(&mut cell, None);
        let name: Arc<str> = cell.cell.as_str().into();
        let hash = random::hash_text(&name);
        let slot = self.new_slot();
        self.holders.change(slot, None, Some(&cell.counts.apps));
        if let Some(index) = &mut self.index {
            index.put(slot, &cell, row, hash);
        }
        self.drop_stale_index();
        self.by_name.insert(Arc::clone(&name), slot);
        self.slots.insert(Arc::clone(&name), slot);
        let at = slot as usize;
        self.names[at] = name;
        self.cells[at] = cell;
        self.rows[at] = row;
        self.hashes[at] = hash;
    }

    fn new_slot(&mut self) -> u32 {
        if let Some(slot) = self.free.pop() {
            return slot;
        }
        self.names.push("".into());
        self.cells.push(Cell::new("", Resources::default()));
        self.rows.push(Row::default());
        self.hashes.push(0);
        // a pool of 2^32 cells does not fit into memory
        u32::try_from(self.cells.len() - 1).unwrap_or(u32::MAX)
    }

    /// Drops the index if the change of a cell makes it invalid or too large.
    fn drop_stale_index(&mut self) {
        let cells = self.cells.len();
        if self
            .index
            .as_ref()
            .is_some_and(|index| index.depends_on_membership() || index.is_bloated(cells))
        {
            self.index = None;
        }
    }

    /// Removes a cell.
    pub fn remove(&mut self, cell: &str) -> Option<Cell> {
        let slot = self.slots.remove(cell)?;
        self.by_name.remove(cell);
        let at = slot as usize;
        if let Some(index) = &mut self.index {
            index.take(slot, &self.cells[at], self.rows[at]);
        }
        self.drop_stale_index();
        let nobody = Cell::new("", Resources::default());
        let removed = std::mem::replace(&mut self.cells[at], nobody);
        self.holders.change(slot, Some(&removed.counts.apps), None);
        self.names[at] = "".into();
        self.rows[at] = Row::default();
        self.free.push(slot);
        Some(removed)
    }

    /// Returns the cell with this name.
    pub fn get(&self, cell: &str) -> Option<&Cell> {
        self.slots.get(cell).map(|slot| &self.cells[*slot as usize])
    }

    /// Returns all cells, by name.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.by_name
            .values()
            .map(|slot| &self.cells[*slot as usize])
    }

    /// Returns how many cells there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Returns whether there are no cells.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Debits one instance of the job's request from the cell, if it is known, with the devices that it was given there
    /// ([`crate::Decision::devices`]). Returns how many instances of its app the cell then has; none for a task.
    pub fn debit(&mut self, cell: &str, job: &Job, given: Option<&DeviceShares>) -> Option<u32> {
        let slot = self.slots.get(cell).copied()?;
        let (at, request) = (slot as usize, &*job.request);
        let known = &mut self.cells[at];
        let count = known.debit(request, given);
        let old = std::mem::replace(&mut self.rows[at], Row::of(known));
        if let Some(count) = count {
            self.holders.set(&request.app, slot, count);
        }
        if let Some(index) = &mut self.index {
            index.debit(slot, old, (&self.cells[at], self.rows[at]), request);
        }
        count
    }

    /// Remembers a request, so that its size becomes part of the expected work, which is learnt from the last
    /// [`crate::MAX_LEARNT_REQUESTS`] requests. The same requests in the same order give the same decisions.
    pub fn learn(&mut self, request: &Request) {
        self.arrivals.add(request);
    }

    /// Returns the expected work under a policy: that of its file, or else what was learnt, and from how many requests.
    pub fn expected<'p>(&'p self, policy: &'p Policy) -> (&'p ExpectedWork, usize) {
        match policy.expected() {
            Some(given) => (given, 0),
            None => (self.arrivals.expected(), self.arrivals.len()),
        }
    }

    /// Runs the batch auction over the pool, with the debits of this batch. The pool is unchanged afterwards: what is
    /// actually sent is debited with [`Pool::debit`].
    pub fn plan(&mut self, jobs: &[Job], policy: &Policy, context: &PlanContext) -> Plan {
        // full explanations come from the plain engine
        if context.explain >= Explain::Stages {
            return self.plan_plainly(jobs, policy, context);
        }
        let batch = self.batch(jobs, policy);
        let mut index = self.take_index(policy, context);
        // lent to the engine, which debits them and reverts that
        let mut rows = std::mem::take(&mut self.rows);
        let auction = self.auction(jobs, &batch, policy, context);
        let parts = Parts {
            names: &self.names,
            cells: &self.cells,
            hashes: &self.hashes,
            holders: &self.holders,
            rows: &mut rows,
            expected: (self.expected(policy).0, self.arrivals.version()),
        };
        let slot_of = |name: &str| self.slots.get(name).copied();
        let session = Session::new(parts, policy, context, batch.apps.len(), slot_of);
        let plan = planner::plan(auction, index.begin(session, &batch));
        self.rows = rows;
        // an index for an auction with cells left out is useless for the next one
        let is_lasting = !index.depends_on_membership() || context.has_all_cells();
        self.index = is_lasting.then_some(index);
        plan
    }

    /// Returns the index of the last plan if it fits this one, else a new one.
    fn take_index(&mut self, policy: &Policy, context: &PlanContext) -> Box<dyn Index> {
        let fits = |index: &dyn Index| {
            index.policy() == policy && (!index.depends_on_membership() || context.has_all_cells())
        };
        if let Some(index) = self.index.take().filter(|index| fits(index.as_ref())) {
            return index;
        }
        let exists =
            |name: &&Arc<str>| !context.absent.contains(*name) && !context.expired.contains(*name);
        let by_name = self
            .by_name
            .iter()
            .filter(|(name, _)| exists(name))
            .map(|(_, slot)| *slot);
        fast::build_index(policy, &self.cells, &self.rows, &self.hashes, by_name)
    }

    /// Builds the fast engine's index for a policy before the first plan.
    pub fn prepare(&mut self, policy: &Policy) {
        self.index = Some(self.take_index(policy, &PlanContext::default()));
    }

    /// Returns the engine that plans under a policy: `"ordered"`, `"halves"` or `"columnar"`.
    pub fn engine(policy: &Policy) -> &'static str {
        fast::engine_name(policy)
    }

    /// Like [`Pool::plan`] with the plain engine, which walks all cells for every job: the readable definition with
    /// which the fast engines are compared.
    pub fn plan_plainly(&self, jobs: &[Job], policy: &Policy, context: &PlanContext) -> Plan {
        let batch = self.batch(jobs, policy);
        let auction = self.auction(jobs, &batch, policy, context);
        let engine = PlainEngine::new(auction.pool, policy, context);
        planner::plan(auction, Box::new(engine))
    }

    fn batch<'j>(&self, jobs: &'j [Job], policy: &Policy) -> Batch<'j> {
        // a single job needs no order, so the walk over all cells is skipped
        let by_share = policy.order == Order::LargestFirst && jobs.len() > 1;
        let totals = by_share.then(|| Totals::of(self.cells()));
        Batch::new(jobs, policy.order, totals.as_ref())
    }

    /// Returns the input of an auction over these cells.
    fn auction<'a>(
        &'a self,
        jobs: &'a [Job],
        batch: &'a Batch<'a>,
        policy: &'a Policy,
        context: &'a PlanContext,
    ) -> Auction<'a> {
        let pool = PoolCells {
            by_name: &self.by_name,
            names: &self.names,
            cells: &self.cells,
            expected: self.expected(policy).0,
        };
        Auction {
            pool,
            jobs,
            batch,
            policy,
            context,
        }
    }
}

#[cfg(test)]
mod tests;
