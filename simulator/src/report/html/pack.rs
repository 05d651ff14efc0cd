//! What cells hold, small enough for hundreds of thousands of blocks in one page.
//!
//! Each run is a list of bytes, its cells one after the other. All numbers are varints (seven bits to
//! a byte, the lowest first, the high bit set on all but the last):
//!
//! ```text
//! cell  = count of blocks, then the blocks
//! block = app, shape, index
//! ```
//!
//! `app` is the zigzag difference to the app of the cell's block before (0 at first), `shape` a
//! position in [`Packed::shapes`], `index` the zigzag difference to the index of the block before if
//! that was of the same app, else the index itself, as zigzag. The page's script reads this again.

use std::collections::{BTreeMap, HashMap};

use crate::outcome::{CellEnd, InstanceEnd, Outcome};
use crate::report::palette::Apps;

/// The blocks of all runs.
pub(super) struct Packed<'a> {
    /// The apps that occur, in the order of [`Apps::names`]; `app` counts from here.
    pub(super) names: Vec<&'a str>,
    /// Where an app's name is in [`Apps::names`].
    pub(super) ranks: Vec<usize>,
    /// What blocks have in common, the most frequent first.
    pub(super) shapes: Vec<Shape>,
    /// For each run.
    pub(super) runs: Vec<Vec<u8>>,
    /// Only so many blocks of each cell have their own; the rest is one block of no app.
    pub(super) limit: Option<usize>,
}

/// What many blocks have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Shape {
    /// How many instances.
    pub(super) count: u32,
    /// Memory of all of them, MiB.
    pub(super) memory_mb: i64,
    /// There before the first request.
    pub(super) before: bool,
    /// A task.
    pub(super) task: bool,
    /// Of several apps: what is beyond the limit.
    pub(super) rest: bool,
}

/// A block before it is packed.
#[derive(Clone, Copy)]
struct Block {
    rank: usize,
    index: u32,
    shape: Shape,
}

/// Packs all runs into at most `budget` bytes of blocks and names, if need be with fewer blocks of
/// their own for each cell.
pub(super) fn pack<'a>(outcome: &'a Outcome, apps: &Apps<'a>, budget: usize) -> Packed<'a> {
    let limits = [None, Some(64), Some(24), Some(8), Some(2), Some(0)];
    for limit in limits {
        let packed = pack_limited(outcome, apps, limit);
        if packed.size() <= budget || limit == Some(0) {
            return packed;
        }
    }
    pack_limited(outcome, apps, Some(0))
}

impl Packed<'_> {
    /// Bytes in a page: four of base64 for three, names with their quotes and comma.
    fn size(&self) -> usize {
        let blocks: usize = self.runs.iter().map(|run| run.len().div_ceil(3) * 4).sum();
        let names: usize = self.names.iter().map(|name| name.len() + 3).sum();
        blocks + names + self.shapes.len() * 20
    }
}

fn pack_limited<'a>(outcome: &'a Outcome, apps: &Apps<'a>, limit: Option<usize>) -> Packed<'a> {
    let runs: Vec<Vec<Vec<Block>>> = (0..outcome.runs.len())
        .map(|run| {
            outcome.runs[run]
                .cells
                .iter()
                .map(|c| blocks(c, run, apps, limit))
                .collect()
        })
        .collect();
    let each = || runs.iter().flatten().flatten();

    let mut occurs = vec![false; apps.names.len()];
    let mut frequency: BTreeMap<Shape, usize> = BTreeMap::new();
    for block in each() {
        if let Some(occurs) = occurs.get_mut(block.rank) {
            *occurs = true;
        }
        *frequency.entry(block.shape).or_default() += 1;
    }
    let ranks: Vec<usize> = (0..occurs.len()).filter(|rank| occurs[*rank]).collect();
    let mut number_of = vec![ranks.len(); apps.names.len()];
    for (number, rank) in ranks.iter().enumerate() {
        number_of[*rank] = number;
    }
    let mut shapes: Vec<(Shape, usize)> = frequency.into_iter().collect();
    shapes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let shapes: Vec<Shape> = shapes.into_iter().map(|(shape, _)| shape).collect();
    let shape_at: HashMap<Shape, usize> = shapes
        .iter()
        .enumerate()
        .map(|(at, shape)| (*shape, at))
        .collect();

    let number = |rank: usize| number_of.get(rank).copied().unwrap_or(ranks.len());
    let runs = runs
        .iter()
        .map(|cells| {
            let mut bytes = Vec::new();
            for cell in cells {
                write_cell(&mut bytes, cell, &number, &shape_at);
            }
            bytes
        })
        .collect();
    let names = ranks.iter().map(|rank| apps.names[*rank]).collect();
    Packed {
        names,
        ranks,
        shapes,
        runs,
        limit,
    }
}

fn write_cell(
    bytes: &mut Vec<u8>,
    cell: &[Block],
    number: &impl Fn(usize) -> usize,
    shape_at: &HashMap<Shape, usize>,
) {
    varint(bytes, cell.len() as u64);
    let mut app_before = 0_i64;
    let mut index_before: Option<(usize, i64)> = None;
    for block in cell {
        let app = i64::try_from(number(block.rank)).unwrap_or(i64::MAX);
        varint(bytes, zigzag(app - app_before));
        varint(bytes, shape_at[&block.shape] as u64);
        let index = i64::from(block.index);
        let base = index_before
            .filter(|(rank, _)| *rank == block.rank)
            .map_or(0, |(_, i)| i);
        varint(bytes, zigzag(index - base));
        app_before = app;
        index_before = Some((block.rank, index));
    }
}

/// The blocks of a cell in the order drawn: what was there before, then the apps by rank.
fn blocks(cell: &CellEnd, run: usize, apps: &Apps<'_>, limit: Option<usize>) -> Vec<Block> {
    let mut sorted = in_order(cell, run, apps);
    let Some(limit) = limit.filter(|limit| *limit < sorted.len()) else {
        return sorted;
    };
    let mut by_size: Vec<usize> = (0..sorted.len()).collect();
    by_size.sort_by_key(|at| std::cmp::Reverse(sorted[*at].shape.memory_mb));
    let mut own = vec![false; sorted.len()];
    for at in by_size.iter().take(limit) {
        own[*at] = true;
    }
    for before in [true, false] {
        let rest: Vec<&Block> = (0..sorted.len())
            .filter(|at| !own[*at] && sorted[*at].shape.before == before && !sorted[*at].shape.rest)
            .map(|at| &sorted[at])
            .collect();
        if rest.is_empty() {
            continue;
        }
        let shape = Shape {
            count: rest
                .iter()
                .fold(0, |sum, b| sum.saturating_add(b.shape.count)),
            memory_mb: rest
                .iter()
                .fold(0, |sum, b| sum.saturating_add(b.shape.memory_mb)),
            before,
            task: false,
            rest: true,
        };
        own.push(true);
        sorted.push(Block {
            rank: apps.names.len(),
            index: 0,
            shape,
        });
    }
    let mut keep = own.into_iter();
    sorted.retain(|_| keep.next().unwrap_or(true));
    sorted.sort_by_key(|b| (!b.shape.before, b.rank, b.index));
    sorted
}

fn in_order(cell: &CellEnd, run: usize, apps: &Apps<'_>) -> Vec<Block> {
    let block = |(rank, i): (usize, &InstanceEnd)| Block {
        rank,
        index: i.index,
        shape: shape(i),
    };
    apps.drawn(run, cell).into_iter().map(block).collect()
}

fn shape(instance: &InstanceEnd) -> Shape {
    Shape {
        count: instance.count,
        memory_mb: instance.memory_mb,
        before: instance.before,
        task: instance.task,
        rest: false,
    }
}

fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)).cast_unsigned()
}

/// The lowest seven bits.
fn low(value: u64) -> u8 {
    value.to_le_bytes()[0] & 0x7f
}

fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(low(value) | 0x80);
        value >>= 7;
    }
    bytes.push(low(value));
}
