//! Shared by the engines that keep cells in order: the class of each slot's cell, what a shape of jobs finds in each
//! class, and the order in which zones are tried.
//!
//! **Why.** Filters look at classes and zones, of which there are few, instead of cells.
//!
//! **Invariant.** A slot has a class exactly while its cell is in the index.

use std::ops::Range;

use super::{
    classes::{Class, Classes},
    rows::Need,
};
use crate::{batch::JobGroup, cell::Cell, context::Now, policy::Filter, request::Request};

/// No class: the slot is not in the index.
const OUT: u32 = u32::MAX;

/// The classes of an index, and the class of each cell in it.
#[derive(Clone, Debug)]
pub(super) struct Members {
    pub(super) classes: Classes,
    /// By slot; [`OUT`] if there is no cell.
    class_of: Vec<u32>,
}

impl Members {
    pub(super) fn new(filters: Vec<Filter>, by_totals: bool) -> Self {
        Self {
            classes: Classes::new(filters, by_totals),
            class_of: Vec::new(),
        }
    }

    /// Records that the cell is in the index now; returns its class.
    pub(super) fn put(&mut self, slot: u32, cell: &Cell) -> u32 {
        let class = self.classes.of(cell);
        self.put_back(slot, class);
        class
    }

    /// Records that a cell of this class is in the index again.
    pub(super) fn put_back(&mut self, slot: u32, class: u32) {
        let at = slot as usize;
        if self.class_of.len() <= at {
            self.class_of.resize(at + 1, OUT);
        }
        self.class_of[at] = class;
    }

    /// Records that the cell is no longer in the index; returns the class that it had.
    pub(super) fn take(&mut self, slot: u32) -> Option<u32> {
        let class = self.class_of.get_mut(slot as usize)?;
        let class = std::mem::replace(class, OUT);
        (class != OUT).then_some(class)
    }

    /// Returns the class of the slot's cell, if it is in the index.
    #[inline]
    pub(super) fn class_of(&self, slot: u32) -> Option<u32> {
        let class = self.class_of.get(slot as usize).copied()?;
        (class != OUT).then_some(class)
    }

    /// Returns the zone of the slot's cell, if it is in the index.
    #[inline]
    pub(super) fn zone_of(&self, slot: u32) -> Option<u32> {
        self.class_of(slot)
            .map(|class| self.classes.get(class).zone)
    }

    /// Returns the result of `found` for each class that admits the request; none for the others.
    fn each_admitted<T>(
        &self,
        request: &Request,
        now: Now<'_>,
        found: impl Fn(&Class) -> T,
    ) -> Vec<Option<T>> {
        // classes are numbered in u32
        let classes = u32::try_from(self.classes.len()).unwrap_or(u32::MAX);
        let found = |class| {
            let admits = self.classes.admits(class, request, now);
            admits.then(|| found(self.classes.get(class)))
        };
        (0..classes).map(found).collect()
    }
}

/// What the jobs of one shape need, and what they find in each class; none if not admitted.
#[derive(Clone, Debug)]
pub(super) struct ShapeFacts<T> {
    pub(super) need: Need,
    pub(super) by_class: Vec<Option<T>>,
}

/// What is known of the shapes of one batch; each is determined when its first job is decided.
#[derive(Debug)]
pub(super) struct Shapes<T>(Vec<Option<ShapeFacts<T>>>);

impl<T> Shapes<T> {
    pub(super) fn new(shapes: usize) -> Self {
        Self(std::iter::repeat_with(|| None).take(shapes).collect())
    }

    /// Determines what is not yet known of the job's shape; returns what its jobs need.
    pub(super) fn learn(
        &mut self,
        group: JobGroup,
        need: impl FnOnce() -> Need,
        (members, request, now): (&Members, &Request, Now<'_>),
        found: impl Fn(&Class) -> T,
    ) -> Need {
        let facts = self.0[group.shape as usize].get_or_insert_with(|| ShapeFacts {
            need: need(),
            by_class: members.each_admitted(request, now, found),
        });
        facts.need
    }

    /// Returns what the jobs of the shape find in each class; nothing before [`Shapes::learn`].
    #[inline]
    pub(super) fn by_class(&self, group: JobGroup) -> &[Option<T>] {
        let facts = self.0[group.shape as usize].as_ref();
        facts.map_or(&[], |facts| &facts.by_class)
    }
}

/// The zones in the order in which a job tries them. Reused from job to job.
#[derive(Debug, Default)]
pub(super) struct RankedZones {
    /// The number of the app's instances in the zone, and the zone's number.
    zones: Vec<(u32, u32)>,
}

impl RankedZones {
    /// Ranks the zones, those with the fewest instances first; all alike if instances do not matter.
    pub(super) fn rank(&mut self, instances: &[u32], by_instances: bool) {
        self.zones.clear();
        for (zone, count) in (0..).zip(instances) {
            let count = if by_instances { *count } else { 0 };
            self.zones.push((count, zone));
        }
        // by count, then by number: zones with equal counts are tried together, so their order does not matter
        self.zones.sort_unstable();
    }

    /// Returns the range of zones that tie with the one at this position and are tried together; none past the last.
    pub(super) fn tied_from(&self, from: usize) -> Option<Range<usize>> {
        let (fewest, _) = self.zones.get(from)?;
        let tied = self.zones[from..].iter();
        let tied = tied.take_while(|(count, _)| count == fewest).count();
        Some(from..from + tied)
    }

    pub(super) fn numbers(&self, tied: Range<usize>) -> impl Iterator<Item = u32> {
        self.zones[tied].iter().map(|(_, zone)| *zone)
    }
}
