//! The fast engines: they decide what the plain engine decides, without walking all cells.
//!
//! * [`ordered`]: where the cost separates into a part of the cell and a part of the job for each
//!   class of cells, cells stay in order and only the winner moves (Diego).
//! * [`halves`]: where the cells with the most memory are drawn from, cells stay sorted by memory
//!   (the DEA pool, `random`).
//! * [`columnar`]: every other policy, over columns that live as long as the pool.

pub(crate) mod classes;
pub(crate) mod columnar;
pub(crate) mod columns;
pub(crate) mod halves;
pub(crate) mod ordered;
pub(crate) mod recipe;
pub(crate) mod rows;
pub(crate) mod session;
mod terms;
mod vector;
mod view;

use std::collections::HashMap;

use crate::{Cell, Job, Policy, Request, batch::Ask, objective::Objective, plain::Choice};

use columns::Columns;
use halves::Halves;
use ordered::Ordered;
use rows::Row;

/// Something that decides one job after the other.
pub(crate) trait Engine {
    /// Where the job goes, as the plain engine would decide.
    fn choose(&mut self, job: &Job, ask: Ask, objective: Option<&Objective>) -> Choice;

    /// Takes the job's resources from the cell, for the jobs after it.
    fn debit(&mut self, slot: u32, job: &Job, ask: Ask);
}

/// By slot: the place by `index` among the counted cells of the zone; they come by name.
pub(crate) fn ranks(cells: &[Cell], mut counted: Vec<u32>) -> Vec<u32> {
    counted.sort_by_key(|slot| cells[*slot as usize].index);
    let mut ranks = vec![0; cells.len()];
    let mut next: HashMap<&str, u32> = HashMap::new();
    for slot in counted {
        let rank = next.entry(&cells[slot as usize].zone).or_insert(0);
        ranks[slot as usize] = *rank;
        *rank += 1;
    }
    ranks
}

/// The order in which a pool keeps its cells, for one policy.
#[derive(Clone, Debug)]
pub(crate) enum Index {
    Ordered(Box<Ordered>),
    Halves(Box<Halves>),
    Columnar(Box<Columns>),
}

impl Index {
    fn new(policy: &Policy) -> Self {
        if let Some(ordered) = Ordered::new(policy) {
            return Self::Ordered(Box::new(ordered));
        }
        match Halves::new(policy) {
            Some(halves) => Self::Halves(Box::new(halves)),
            None => Self::Columnar(Box::new(Columns::new(policy))),
        }
    }

    /// The name of the engine that serves the policy.
    pub(crate) fn kind(policy: &Policy) -> &'static str {
        match Self::new(policy) {
            Self::Ordered(_) => "ordered",
            Self::Halves(_) => "halves",
            Self::Columnar(_) => "columnar",
        }
    }

    /// An index for the policy. `by_name` gives the slots that exist for the coming auction, by name.
    pub(crate) fn build(
        policy: &Policy,
        cells: &[Cell],
        rows: &[Row],
        hashes: &[u64],
        by_name: impl Iterator<Item = u32>,
    ) -> Self {
        let mut index = Self::new(policy);
        if let Self::Ordered(ordered) = &mut index
            && ordered.uses_ranks()
        {
            let ignored = |cell: &Cell| policy.ignores_evacuating() && cell.evacuating;
            let counted = by_name.filter(|slot| !ignored(&cells[*slot as usize]));
            ordered.set_places(ranks(cells, counted.collect()));
        }
        for (slot, cell) in (0..).zip(cells) {
            // a free slot has no name
            if !cell.cell.is_empty() {
                index.put(slot, cell, rows[slot as usize], hashes[slot as usize]);
            }
        }
        index
    }

    pub(crate) fn policy(&self) -> &Policy {
        match self {
            Self::Ordered(ordered) => ordered.policy(),
            Self::Halves(halves) => halves.policy(),
            Self::Columnar(columns) => columns.policy(),
        }
    }

    /// Puts a cell in that was not there.
    pub(crate) fn put(&mut self, slot: u32, cell: &Cell, row: Row, hash: u64) {
        match self {
            Self::Ordered(ordered) => ordered.put(slot, cell),
            Self::Halves(halves) => halves.put(slot, cell, row, hash),
            Self::Columnar(columns) => columns.put(slot, cell, row),
        }
    }

    /// Takes a cell out; `cell` and `row` are how it was last seen.
    pub(crate) fn take(&mut self, slot: u32, cell: &Cell, row: Row) {
        match self {
            Self::Ordered(ordered) => ordered.take(slot, row),
            Self::Halves(halves) => halves.take(slot, row),
            Self::Columnar(columns) => columns.take(slot, cell),
        }
    }

    /// The cell changed, but not so that [`classes::same_kind`] would tell.
    pub(crate) fn change(&mut self, slot: u32, (old, old_row): (&Cell, Row), new: (&Cell, Row)) {
        match self {
            Self::Ordered(ordered) => ordered.touch(slot, old_row),
            Self::Halves(halves) => halves.change(slot, old_row, new.1),
            Self::Columnar(columns) => columns.change(slot, old, new.0, new.1),
        }
    }

    /// The cell changed so that [`classes::same_kind`] tells.
    pub(crate) fn replace(
        &mut self,
        slot: u32,
        (old, old_row): (&Cell, Row),
        (new, new_row): (&Cell, Row),
        hash: u64,
    ) {
        if let Self::Columnar(columns) = self {
            columns.replace(slot, old, new, new_row);
        } else {
            self.take(slot, old, old_row);
            self.put(slot, new, new_row, hash);
        }
    }

    /// The request's resources were taken from the cell, which is now as `new` says.
    pub(crate) fn debit(&mut self, slot: u32, old: Row, new: (&Cell, Row), request: &Request) {
        match self {
            Self::Ordered(ordered) => ordered.touch(slot, old),
            Self::Halves(halves) => halves.change(slot, old, new.1),
            Self::Columnar(columns) => columns.debit(slot, new.0, new.1, request),
        }
    }

    /// Whether a cell that comes, goes or changes more than its amounts moves others as well.
    pub(crate) fn is_fragile(&self) -> bool {
        match self {
            Self::Ordered(ordered) => ordered.uses_ranks(),
            Self::Halves(_) | Self::Columnar(_) => false,
        }
    }

    /// Whether so many cells changed their kind that a new index would be smaller.
    pub(crate) fn is_worn(&self, cells: usize) -> bool {
        let classes = match self {
            Self::Ordered(ordered) => ordered.classes(),
            Self::Halves(halves) => halves.classes(),
            Self::Columnar(columns) => columns.symbols(),
        };
        classes > 4 * cells + 64
    }
}
