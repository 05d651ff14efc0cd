//! The known cells, and the batch auction over them.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    auction_view::PoolCells,
    batch::Batch,
    cell::{AttributeInterner, Cell},
    context::PlanContext,
    decision::{Explain, Plan},
    devices::DeviceShares,
    fast::{
        self,
        classes::same_class_inputs,
        index::Index,
        rows::{Holders, Row},
        session::{Parts, Session},
    },
    plain::PlainEngine,
    planner::{self, Auction},
    policy::Policy,
    random,
    request::Job,
    resources::Resources,
};

/// The known cells, by name.
///
/// It also keeps what the fast engines need: each cell's amounts in a few words, which cells have
/// which app, and the cells in the order of the last policy that planned.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    by_name: BTreeMap<Arc<str>, u32>,
    /// By slot; the name of a free slot is empty.
    names: Vec<Arc<str>>,
    cells: Vec<Cell>,
    rows: Vec<Row>,
    hashes: Vec<u64>,
    free: Vec<u32>,
    holders: Holders,
    interner: AttributeInterner,
    index: Option<Box<dyn Index>>,
}

impl Pool {
    /// Inserts the cell, or replaces the one of its name.
    pub fn put(&mut self, mut cell: Cell) {
        let row = Row::of(&cell);
        let before = self.by_name.get(cell.cell.as_str());
        let before = before.map(|slot| &self.cells[*slot as usize]);
        self.interner.share(&mut cell, before);
        if let Some(slot) = self.by_name.get(cell.cell.as_str()).copied() {
            let at = slot as usize;
            let (old, old_row) = (&self.cells[at], self.rows[at]);
            self.holders
                .change(slot, Some(&old.counts.apps), Some(&cell.counts.apps));
            let same = same_class_inputs(old, &cell);
            if let Some(index) = &mut self.index {
                if same {
                    index.change(slot, (old, old_row), (&cell, row));
                } else {
                    index.replace(slot, (old, old_row), (&cell, row), self.hashes[at]);
                }
            }
            if !same {
                self.drop_stale_index();
            }
            self.cells[at] = cell;
            self.rows[at] = row;
            return;
        }
        let name: Arc<str> = cell.cell.as_str().into();
        let hash = random::hash_text(&name);
        let slot = self.new_slot();
        self.holders.change(slot, None, Some(&cell.counts.apps));
        if let Some(index) = &mut self.index {
            index.put(slot, &cell, row, hash);
        }
        self.drop_stale_index();
        self.by_name.insert(Arc::clone(&name), slot);
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

    /// Drops the index if the change of one cell makes it invalid, or too large.
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

    /// Removes the cell.
    pub fn remove(&mut self, cell: &str) -> Option<Cell> {
        let slot = self.by_name.remove(cell)?;
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

    /// The cell of this name.
    pub fn get(&self, cell: &str) -> Option<&Cell> {
        self.by_name
            .get(cell)
            .map(|slot| &self.cells[*slot as usize])
    }

    /// All cells, by name.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.by_name
            .values()
            .map(|slot| &self.cells[*slot as usize])
    }

    /// How many cells there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there is no cell.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Debits one instance of the job's request from the cell, if it is known, with the devices that it was
    /// given there ([`crate::Decision::devices`]).
    pub fn debit(&mut self, cell: &str, job: &Job, given: Option<&DeviceShares>) {
        let Some(slot) = self.by_name.get(cell).copied() else {
            return;
        };
        let at = slot as usize;
        self.cells[at].debit(&job.request, given);
        let old = std::mem::replace(&mut self.rows[at], Row::of(&self.cells[at]));
        if job.request.kind == crate::request::Kind::Lrp {
            self.holders.add(&job.request.app, slot);
        }
        if let Some(index) = &mut self.index {
            index.debit(slot, old, (&self.cells[at], self.rows[at]), &job.request);
        }
    }

    /// Runs the batch auction over the pool plus the debits of this batch. The pool is unchanged
    /// afterwards: what is really sent is debited with [`Pool::debit`].
    pub fn plan(&mut self, jobs: &[Job], policy: &Policy, context: &PlanContext) -> Plan {
        // full explanations come from the plain engine
        if context.explain >= Explain::Stages {
            return self.plan_plainly(jobs, policy, context);
        }
        let batch = Batch::new(jobs, policy.order);
        let mut index = self.take_index(policy, context);
        // lent to the engine, which debits them and takes that back
        let mut rows = std::mem::take(&mut self.rows);
        let auction = self.auction(jobs, &batch, policy, context);
        let parts = Parts {
            names: &self.names,
            cells: &self.cells,
            hashes: &self.hashes,
            holders: &self.holders,
            rows: &mut rows,
        };
        let slot_of = |name: &str| self.by_name.get(name).copied();
        let session = Session::new(parts, policy, context, batch.apps.len(), slot_of);
        let plan = planner::plan(auction, index.begin(session, &batch));
        self.rows = rows;
        // an index for an auction with cells left out is useless for the next
        let is_lasting = !index.depends_on_membership() || context.has_all_cells();
        self.index = is_lasting.then_some(index);
        plan
    }

    /// The index of the last plan if it fits this one, else a new one.
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

    /// Which engine plans under a policy: `"ordered"`, `"halves"` or `"columnar"`.
    pub fn engine(policy: &Policy) -> &'static str {
        fast::engine_name(policy)
    }

    /// The same with the plain engine, which walks all cells for every job: the readable definition
    /// to which the fast engines are compared.
    pub fn plan_plainly(&self, jobs: &[Job], policy: &Policy, context: &PlanContext) -> Plan {
        let batch = Batch::new(jobs, policy.order);
        let auction = self.auction(jobs, &batch, policy, context);
        let engine = PlainEngine::new(auction.pool, policy, context);
        planner::plan(auction, Box::new(engine))
    }

    /// What an auction over these cells works on.
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
