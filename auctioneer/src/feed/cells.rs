//! What is known of each cell: looked up by a hash of its name, and listed in order of names.

use std::{collections::BTreeSet, sync::Arc};

use placement::FastMap;

use super::Known;

/// All known cells, hashed by name: every report and every instance sent looks its cell up several times.
#[derive(Debug, Default)]
pub(super) struct Cells {
    known: FastMap<Arc<str>, Known>,
    /// The names in order, for iteration whose order matters: that of a hash map differs from run to run.
    names: BTreeSet<Arc<str>>,
}

impl Cells {
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn get(&self, cell: &str) -> Option<&Known> {
        self.known.get(cell)
    }

    pub(super) fn get_mut(&mut self, cell: &str) -> Option<&mut Known> {
        self.known.get_mut(cell)
    }

    /// Returns one cell with its name.
    pub(super) fn named(&self, cell: &str) -> Option<(&Arc<str>, &Known)> {
        self.known.get_key_value(cell)
    }

    /// Like [`Cells::named`], with mutable access.
    pub(super) fn named_mut(&mut self, cell: &str) -> Option<(Arc<str>, &mut Known)> {
        let (name, _) = self.known.get_key_value(cell)?;
        let name = Arc::clone(name);
        let known = self.known.get_mut(cell)?;
        Some((name, known))
    }

    /// Returns the cell with this name, created if it is missing.
    pub(super) fn get_or_insert(
        &mut self,
        name: &Arc<str>,
        new: impl FnOnce() -> Known,
    ) -> &mut Known {
        // nearly every report is about a known cell: the sorted names are left alone then
        if !self.known.contains_key(name) {
            self.names.insert(Arc::clone(name));
        }
        self.known.entry(Arc::clone(name)).or_insert_with(new)
    }

    pub(super) fn remove(&mut self, cell: &str) -> Option<(Arc<str>, Known)> {
        self.names.remove(cell);
        self.known.remove_entry(cell)
    }

    /// Returns all cells, sorted by name.
    pub(super) fn by_name(&self) -> impl Iterator<Item = (&Arc<str>, &Known)> {
        let known = |name: &'_ Arc<str>| self.known.get_key_value(name);
        self.names.iter().filter_map(known)
    }

    /// Returns all cells in any order.
    pub(super) fn unordered(&self) -> impl Iterator<Item = (&Arc<str>, &Known)> {
        self.known.iter()
    }

    /// Returns all cells in any order, with mutable access.
    pub(super) fn unordered_mut(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut Known)> {
        self.known.iter_mut()
    }
}
