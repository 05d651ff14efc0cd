//! The random order of the cells that take part, by their names: the rank of one is found without those of the others.

use crate::tie::{Point, Shuffle};

/// The cells that take part, and the order that the last job drew.
#[derive(Default)]
pub(super) struct Chance {
    /// One bit for each slot, in the order of the cells' names.
    takes_part: Vec<u64>,
    /// How many take part before each of these words.
    before: Vec<u32>,
    shuffle: Shuffle,
}

impl Chance {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            takes_part: vec![0; slots.div_ceil(64)],
            ..Self::default()
        }
    }

    /// The cell at this place of the order by name takes part, or no longer.
    pub(super) fn set(&mut self, place: u32, takes_part: bool) {
        let word = &mut self.takes_part[place as usize / 64];
        let bit = 1 << (place % 64);
        *word = if takes_part {
            *word | bit
        } else {
            *word & !bit
        };
    }

    /// Draws the order of a job.
    pub(super) fn draw(&mut self, point: Point) {
        let mut sum = 0;
        self.before.clear();
        self.before.extend(self.takes_part.iter().map(|word| {
            let before = sum;
            sum += word.count_ones();
            before
        }));
        self.shuffle = Shuffle::new(point, sum as usize);
    }

    /// The rank of the cell at this place, which takes part: 1 for the first, 0 for the last.
    pub(super) fn share(&self, place: u32) -> f64 {
        let (at, bit) = (place as usize / 64, place % 64);
        let lower = self.takes_part[at] & ((1 << bit) - 1);
        self.shuffle.share(self.before[at] + lower.count_ones())
    }
}
