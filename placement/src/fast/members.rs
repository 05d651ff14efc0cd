//! What the engines that keep cells in order share: which class the cell of each slot is of, what a
//! shape of jobs finds in each class, and in which order zones are tried.
//!
//! **Why.** Filters look at classes and zones, of which there are few, and not at cells.
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
    /// By slot; [`OUT`] where there is no cell.
    class_of: Vec<u32>,
}

impl Members {
    pub(super) fn new(filters: Vec<Filter>, by_totals: bool) -> Self {
        Self {
            classes: Classes::new(filters, by_totals),
            class_of: Vec::new(),
        }
    }

    /// The cell is in the index now; returns its class.
    pub(super) fn put(&mut self, slot: u32, cell: &Cell) -> u32 {
        let class = self.classes.of(cell);
        self.put_back(slot, class);
        class
    }

    /// A cell of this class is in the index again.
    pub(super) fn put_back(&mut self, slot: u32, class: u32) {
        let at = slot as usize;
        if self.class_of.len() <= at {
            self.class_of.resize(at + 1, OUT);
        }
        self.class_of[at] = class;
    }

    /// The cell is no longer in the index; returns the class that it was of.
    pub(super) fn take(&mut self, slot: u32) -> Option<u32> {
        let class = self.class_of.get_mut(slot as usize)?;
        let class = std::mem::replace(class, OUT);
        (class != OUT).then_some(class)
    }

    /// The class of the slot's cell, if it is in the index.
    #[inline]
    pub(super) fn class_of(&self, slot: u32) -> Option<u32> {
        let class = self.class_of.get(slot as usize).copied()?;
        (class != OUT).then_some(class)
    }

    /// The zone of the slot's cell, if it is in the index.
    #[inline]
    pub(super) fn zone_of(&self, slot: u32) -> Option<u32> {
        self.class_of(slot)
            .map(|class| self.classes.get(class).zone)
    }

    /// What `found` says of each class that admits the request; none for the others.
    fn each_admitted<T>(
        &self,
        request: &Request,
        now: Now<'_>,
        found: impl Fn(&Class) -> T,
    ) -> Vec<Option<T>> {
        // as many classes as were counted in u32
        let classes = u32::try_from(self.classes.len()).unwrap_or(u32::MAX);
        let found = |class| {
            let admits = self.classes.admits(class, request, now);
            admits.then(|| found(self.classes.get(class)))
        };
        (0..classes).map(found).collect()
    }
}

/// What the jobs of one shape need, and what they find in each class; none = not admitted.
#[derive(Clone, Debug)]
pub(super) struct ShapeFacts<T> {
    pub(super) need: Need,
    pub(super) by_class: Vec<Option<T>>,
}

/// What is known of the shapes of one batch, each found out when its first job is decided.
#[derive(Debug)]
pub(super) struct Shapes<T>(Vec<Option<ShapeFacts<T>>>);

impl<T> Shapes<T> {
    pub(super) fn new(shapes: usize) -> Self {
        Self(std::iter::repeat_with(|| None).take(shapes).collect())
    }

    /// Finds out what is not known of the job's shape; returns what its jobs need.
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

    /// What the jobs of the shape find in each class; nothing before [`Shapes::learn`].
    #[inline]
    pub(super) fn by_class(&self, group: JobGroup) -> &[Option<T>] {
        let facts = self.0[group.shape as usize].as_ref();
        facts.map_or(&[], |facts| &facts.by_class)
    }
}

/// The zones in the order in which one job tries them. Reused from job to job.
#[derive(Debug, Default)]
pub(super) struct RankedZones {
    /// The app's instances there, and the zone's number.
    zones: Vec<(u32, u32)>,
}

impl RankedZones {
    /// Those with the fewest instances first; all alike where they do not matter.
    pub(super) fn rank(&mut self, instances: &[u32], by_instances: bool) {
        self.zones.clear();
        for (zone, count) in (0..).zip(instances) {
            let count = if by_instances { *count } else { 0 };
            self.zones.push((count, zone));
        }
        // by count, then number: zones of one count are tried together, so their order among each other is free
        self.zones.sort_unstable();
    }

    /// The zones with as few instances as the one at this position, which are tried together; none
    /// past the last.
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
