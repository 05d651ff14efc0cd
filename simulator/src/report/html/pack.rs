//! The instances of all cells, packed so that hundreds of thousands of blocks fit in one page.
//!
//! Each run is a list of bytes, with its cells one after the other. All numbers are varints (seven bits per byte, the
//! lowest first, with the high bit set on all bytes but the last):
//!
//! ```text
//! cell  = count of blocks, then the blocks
//! block = app, shape, index
//! ```
//!
//! `app` is the zigzag difference to the app of the cell's previous block (0 at first), `shape` a position in
//! [`Packed::shapes`], and `index` the zigzag difference to the index of the previous block if that was of the same
//! app, else the index itself, as zigzag. The page's script decodes this.

use std::collections::{BTreeMap, HashMap};

use crate::outcome::{InstanceEnd, SimOutcome};
use crate::report::palette::Apps;

/// The packed blocks of all runs.
pub(super) struct Packed<'a> {
    /// The apps that occur, in the order of [`Apps::names`]; `app` is a position in this list.
    pub(super) names: Vec<&'a str>,
    /// The position of each app's name in [`Apps::names`].
    pub(super) ranks: Vec<usize>,
    /// The shapes of blocks, the most frequent first.
    pub(super) shapes: Vec<Shape>,
    /// The packed bytes of each run.
    pub(super) runs: Vec<Vec<u8>>,
    /// If set, only this many blocks of each cell are packed; the rest is one block without an app.
    pub(super) limit: Option<usize>,
}

/// The properties that many blocks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Shape {
    /// Number of instances.
    pub(super) count: u32,
    /// Memory of all of them, MiB.
    pub(super) memory_mb: i64,
    /// Whether it ran before the first request.
    pub(super) before: bool,
    /// Whether it is a task.
    pub(super) task: bool,
    /// Whether it merges entries of several apps, beyond the limit.
    pub(super) rest: bool,
}

/// A block before it is packed.
#[derive(Clone, Copy)]
struct Block {
    rank: usize,
    index: u32,
    shape: Shape,
}

/// Packs all runs into at most `budget` bytes of blocks and names, if necessary with fewer blocks per cell.
pub(super) fn pack<'a>(outcome: &'a SimOutcome, apps: &Apps<'a>, budget: usize) -> Packed<'a> {
    let cells = |run| outcome_cells(outcome, run, apps);
    let runs: Vec<Vec<Vec<Block>>> = (0..outcome.runs.len()).map(cells).collect();
    let all = encode(&runs, apps, None);
    if all.size() <= budget {
        return all;
    }
    let shorten = |limit: usize| {
        let shorter = |cell: &Vec<Block>| limited(cell, limit, apps.names.len());
        let runs: Vec<Vec<Vec<Block>>> = runs
            .iter()
            .map(|cells| cells.iter().map(shorter).collect())
            .collect();
        encode(&runs, apps, Some(limit))
    };
    [64, 24, 8, 2]
        .into_iter()
        .map(shorten)
        .find(|packed| packed.size() <= budget)
        .unwrap_or_else(|| shorten(0))
}

impl Packed<'_> {
    /// Returns the size in a page, in bytes: four of base64 for three, names with quotes and comma.
    fn size(&self) -> usize {
        let blocks: usize = self.runs.iter().map(|run| run.len().div_ceil(3) * 4).sum();
        let names: usize = self.names.iter().map(|name| name.len() + 3).sum();
        blocks + names + self.shapes.len() * 20
    }
}

/// Returns the blocks of each cell of a run, in the order drawn.
fn outcome_cells(outcome: &SimOutcome, run: usize, apps: &Apps<'_>) -> Vec<Vec<Block>> {
    let block = |(rank, i): (usize, &InstanceEnd)| Block {
        rank,
        index: i.index,
        shape: shape(i),
    };
    let blocks = |cell| apps.drawn(run, cell).into_iter().map(block).collect();
    outcome.runs[run].cells.iter().map(blocks).collect()
}

fn encode<'a>(runs: &[Vec<Vec<Block>>], apps: &Apps<'a>, limit: Option<usize>) -> Packed<'a> {
    let blocks = || runs.iter().flatten().flatten();

    let mut occurs = vec![false; apps.names.len()];
    let mut frequency: BTreeMap<Shape, usize> = BTreeMap::new();
    for block in blocks() {
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

/// Returns the largest blocks of a cell, with the rest merged into one block without an app (two, if some of it was
/// there before).
fn limited(cell: &[Block], limit: usize, no_app: usize) -> Vec<Block> {
    if cell.len() <= limit {
        return cell.to_vec();
    }
    let mut shown = cell.to_vec();
    shown.sort_by_key(|block| std::cmp::Reverse(block.shape.memory_mb));
    let others = shown.split_off(limit);
    for before in [true, false] {
        let mut rest = others
            .iter()
            .filter(|b| b.shape.before == before)
            .map(|b| b.shape);
        let Some(first) = rest.next() else { continue };
        let start = Shape {
            task: false,
            rest: true,
            ..first
        };
        let shape = rest.fold(start, |sum, next| Shape {
            count: sum.count.saturating_add(next.count),
            memory_mb: sum.memory_mb.saturating_add(next.memory_mb),
            ..sum
        });
        shown.push(Block {
            rank: no_app,
            index: 0,
            shape,
        });
    }
    shown.sort_by_key(|b| (!b.shape.before, b.rank, b.index));
    shown
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

/// Returns the lowest seven bits.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn block(rank: usize, memory_mb: i64, before: bool) -> Block {
        let shape = Shape {
            count: 1,
            memory_mb,
            before,
            task: false,
            rest: false,
        };
        Block {
            rank,
            index: 7,
            shape,
        }
    }

    #[test]
    fn numbers_are_written_as_documented() {
        let mut bytes = Vec::new();
        for value in [0, -1, 1, 64, -64, 8192] {
            varint(&mut bytes, zigzag(value));
        }
        assert_eq!(bytes, [0, 1, 2, 0x80, 1, 0x7f, 0x80, 0x80, 1]);
    }

    #[test]
    fn blocks_beyond_the_limit_are_summed_up() {
        let cell = [
            block(1, 5, true),
            block(2, 9, true),
            block(3, 4, false),
            block(4, 6, false),
        ];
        let shown: Vec<(usize, i64, u32, bool)> = limited(&cell, 1, 99)
            .iter()
            .map(|b| (b.rank, b.shape.memory_mb, b.shape.count, b.shape.rest))
            .collect();
        assert_eq!(
            shown,
            [(2, 9, 1, false), (99, 5, 1, true), (99, 10, 2, true)]
        );
        assert_eq!(limited(&cell, 4, 99).len(), 4);
        assert_eq!(limited(&cell, 0, 99).len(), 2);
    }
}
