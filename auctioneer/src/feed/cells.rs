//! What is known of each cell: found by a hash of its name, and listed by name.

use std::{collections::BTreeSet, sync::Arc};

use placement::FastMap;

use super::Known;

/// Every report looks its cell up several times, and so does every instance that is sent.
#[derive(Debug, Default)]
pub(super) struct Cells {
    known: FastMap<Arc<str>, Known>,
    /// Where the order counts: that of a hash map is another one in each run.
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

    /// One cell, with its name.
    pub(super) fn named(&self, cell: &str) -> Option<(&Arc<str>, &Known)> {
        self.known.get_key_value(cell)
    }

    /// As [`Cells::named`].
    pub(super) fn named_mut(&mut self, cell: &str) -> Option<(Arc<str>, &mut Known)> {
        let (name, _) = self.known.get_key_value(cell)?;
        let name = Arc::clone(name);
        let known = self.known.get_mut(cell)?;
        Some((name, known))
    }

    /// The cell of this name; made where there is none.
    pub(super) fn get_or_insert(
        &mut self,
        name: &Arc<str>,
        new: impl FnOnce() -> Known,
    ) -> &mut Known {
        // nearly every report is of a known cell: the sorted names are left alone then
        if !self.known.contains_key(name) {
            self.names.insert(Arc::clone(name));
        }
        self.known.entry(Arc::clone(name)).or_insert_with(new)
    }

    pub(super) fn remove(&mut self, cell: &str) -> Option<(Arc<str>, Known)> {
        self.names.remove(cell);
        self.known.remove_entry(cell)
    }

    /// By name.
    pub(super) fn by_name(&self) -> impl Iterator<Item = (&Arc<str>, &Known)> {
        let known = |name: &'_ Arc<str>| self.known.get_key_value(name);
        self.names.iter().filter_map(known)
    }

    /// In any order.
    pub(super) fn unordered(&self) -> impl Iterator<Item = (&Arc<str>, &Known)> {
        self.known.iter()
    }

    /// In any order.
    pub(super) fn unordered_mut(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut Known)> {
        self.known.iter_mut()
    }
}
