//! What a fast engine keeps between plans: the pool's cells in the order that serves one policy.

use std::fmt::Debug;

use super::{rows::Row, session::Session};
use crate::{batch::Batch, cell::Cell, engine::Engine, policy::Policy, request::Request};

/// The cells of a pool, kept for one policy from plan to plan. Whoever changes a cell says so here;
/// `row` is always [`Row::of`] the cell beside it.
pub(crate) trait Index: Debug + Send + Sync {
    /// The policy that it serves.
    fn policy(&self) -> &Policy;

    /// Puts a cell in that was not there. `hash` is that of its name.
    fn put(&mut self, slot: u32, cell: &Cell, row: Row, hash: u64);

    /// Takes a cell out; `cell` and `row` are how it was last seen.
    fn take(&mut self, slot: u32, cell: &Cell, row: Row);

    /// The cell changed, but in nothing that [`super::classes::same_class_inputs`] compares.
    fn change(&mut self, slot: u32, old: (&Cell, Row), new: (&Cell, Row));

    /// The cell changed in what [`super::classes::same_class_inputs`] compares.
    fn replace(&mut self, slot: u32, old: (&Cell, Row), new: (&Cell, Row), hash: u64) {
        self.take(slot, old.0, old.1);
        self.put(slot, new.0, new.1, hash);
    }

    /// The request's resources were taken from the cell, which is now as `new` says.
    fn debit(&mut self, slot: u32, old: Row, new: (&Cell, Row), request: &Request);

    /// Whether a cell that comes, goes or changes more than its amounts moves others as well.
    fn depends_on_membership(&self) -> bool {
        false
    }

    /// Sets each cell's rank in its zone, by slot, before the cells come; for an index that
    /// [`Index::depends_on_membership`].
    fn set_ranks(&mut self, _ranks: Vec<u32>) {}

    /// How many different classes of cells, or other texts, it has numbered so far.
    fn numbered(&self) -> usize;

    /// Whether so many cells changed their class that a new index would be smaller.
    fn is_bloated(&self, cells: usize) -> bool {
        // four to one: a rebuild looks at every cell, and must stay rare; 64 so that small pools do not rebuild at all
        self.numbered() > 4 * cells + 64
    }

    /// An engine for one batch. [`Engine::finish`] leaves the index as it was.
    fn begin<'a>(&'a mut self, session: Session<'a>, batch: &'a Batch<'a>) -> Box<dyn Engine + 'a>;

    /// A copy, for a copy of the pool.
    fn boxed_clone(&self) -> Box<dyn Index>;
}

impl Clone for Box<dyn Index> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}
