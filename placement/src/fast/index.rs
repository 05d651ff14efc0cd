//! What a fast engine keeps between plans: the pool's cells in the order that serves one policy.

use std::fmt::Debug;

use super::{rows::Row, session::Session};
use crate::{batch::Batch, cell::Cell, engine::Engine, policy::Policy, request::Request};

/// The cells of a pool, kept for one policy from plan to plan. Whoever changes a cell reports it here; `row` is always
/// [`Row::of`] of the cell passed with it.
pub(crate) trait Index: Debug + Send + Sync {
    /// Returns the policy that it serves.
    fn policy(&self) -> &Policy;

    /// Inserts a new cell. `hash` is that of its name.
    fn put(&mut self, slot: u32, cell: &Cell, row: Row, hash: u64);

    /// Removes a cell; `cell` and `row` are its last known state.
    fn take(&mut self, slot: u32, cell: &Cell, row: Row);

    /// Updates a cell that changed in nothing that [`super::classes::same_class_inputs`] compares.
    fn change(&mut self, slot: u32, old: (&Cell, Row), new: (&Cell, Row));

    /// Updates a cell that changed in what [`super::classes::same_class_inputs`] compares.
    fn replace(&mut self, slot: u32, old: (&Cell, Row), new: (&Cell, Row), hash: u64) {
        self.take(slot, old.0, old.1);
        self.put(slot, new.0, new.1, hash);
    }

    /// Records a debit: the request's resources were taken from the cell, which is now `new`.
    fn debit(&mut self, slot: u32, old: Row, new: (&Cell, Row), request: &Request);

    /// Returns whether a cell that comes, goes or changes more than its amounts moves other cells as well.
    fn depends_on_membership(&self) -> bool {
        false
    }

    /// Sets each cell's rank in its zone, by slot, before the cells are inserted; for an index that
    /// [`Index::depends_on_membership`].
    fn set_ranks(&mut self, _ranks: Vec<u32>) {}

    /// Returns how many distinct classes of cells, or other texts, it has numbered so far.
    fn numbered(&self) -> usize;

    /// Returns whether so many cells have changed their class that a new index would be smaller.
    fn is_bloated(&self, cells: usize) -> bool {
        // a factor of four, because a rebuild visits every cell and must be rare; plus 64, so that small pools never
        // rebuild
        self.numbered() > 4 * cells + 64
    }

    /// Returns an engine for one batch. [`Engine::finish`] leaves the index as it was.
    fn begin<'a>(&'a mut self, session: Session<'a>, batch: &'a Batch<'a>) -> Box<dyn Engine + 'a>;

    /// Returns a copy, for a copy of the pool.
    fn boxed_clone(&self) -> Box<dyn Index>;
}

impl Clone for Box<dyn Index> {
    fn clone(&self) -> Self {
        self.boxed_clone()
    }
}
