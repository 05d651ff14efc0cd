//! The fast engines: they make the same decisions as the plain engine, without walking all cells.
//!
//! * [`ordered`]: if the cost separates into a part of the cell and a part of the job for each class of cells, cells
//!   stay in order and only the winner moves (Diego).
//! * [`halves`]: if the draw is from the cells with the most memory, cells stay sorted by memory (the DEA pool,
//!   `random`).
//! * [`columnar`]: every other policy, over columns that live as long as the pool.

pub(crate) mod classes;
pub(crate) mod columnar;
pub(crate) mod columns;
pub(crate) mod halves;
pub(crate) mod index;
mod known;
mod members;
pub(crate) mod ordered;
pub(crate) mod recipe;
pub(crate) mod rows;
pub(crate) mod session;
mod terms;
mod vector;
mod view;

use crate::{auction_view::ranks, cell::Cell, policy::Policy};

use columns::Columns;
use halves::Halves;
use index::Index;
use ordered::Ordered;
use rows::Row;

/// Returns an empty index of the engine that serves the policy, and the engine's name.
fn new_index(policy: &Policy) -> (Box<dyn Index>, &'static str) {
    // the fastest that can serve the policy; no policy has the form of both
    if let Some(ordered) = Ordered::new(policy) {
        return (Box::new(ordered), "ordered");
    }
    match Halves::new(policy) {
        Some(halves) => (Box::new(halves), "halves"),
        None => (Box::new(Columns::new(policy)), "columnar"),
    }
}

/// Returns the name of the engine that serves the policy.
pub(crate) fn engine_name(policy: &Policy) -> &'static str {
    new_index(policy).1
}

/// Builds an index for the policy. `by_name` gives the slots that exist for the coming auction, by name.
pub(crate) fn build_index(
    policy: &Policy,
    cells: &[Cell],
    rows: &[Row],
    hashes: &[u64],
    by_name: impl Iterator<Item = u32>,
) -> Box<dyn Index> {
    let (mut index, _) = new_index(policy);
    if index.depends_on_membership() {
        let ignored = |cell: &Cell| policy.ignores_evacuating() && cell.evacuating;
        let counted = by_name.filter(|slot| !ignored(&cells[*slot as usize]));
        index.set_ranks(ranks(cells, counted.collect()));
    }
    for (slot, cell) in (0..).zip(cells) {
        // a free slot has no name
        if !cell.cell.is_empty() {
            index.put(slot, cell, rows[slot as usize], hashes[slot as usize]);
        }
    }
    index
}
