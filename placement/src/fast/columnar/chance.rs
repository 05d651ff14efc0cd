//! The random numbers of one job on all cells.

use crate::tie::{self, Lot, Point};

/// What a cell that takes no part has: no number is below it.
pub(super) const NOBODY: u32 = u32::MAX >> 1;
const BINS: usize = 64;

/// The upper 31 bits of each cell's random number, and how many are in each of 64 equal ranges.
#[derive(Default)]
pub(super) struct Chance {
    upper: Vec<u32>,
    /// How many come before each range.
    before: Vec<u32>,
}

impl Chance {
    /// Draws for the cells where `mask` is 0; where it is [`NOBODY`] the cell takes no part.
    pub(super) fn draw(&mut self, lots: &[Lot], mask: &[u32], point: Point) {
        let mut counts = [0_u32; BINS];
        self.upper.resize(lots.len(), NOBODY);
        for ((to, lot), mask) in self.upper.iter_mut().zip(lots).zip(mask) {
            let upper = tie::noise_upper(*lot, point) | mask;
            *to = upper;
            counts[(upper >> 25) as usize % BINS] += 1;
        }
        self.before.clear();
        let mut sum = 0;
        for count in counts {
            self.before.push(sum);
            sum += count;
        }
    }

    /// The cell's number as a share of 1.
    pub(super) fn share(&self, slot: u32) -> f64 {
        f64::from(self.upper[slot as usize]) / f64::from(NOBODY)
    }

    /// A place at or before that of the cell, from the lowest number on.
    pub(super) fn place_at_least(&self, slot: u32) -> u32 {
        self.before[(self.upper[slot as usize] >> 25) as usize % BINS]
    }

    /// How many cells have a lower number.
    pub(super) fn place(&self, slot: u32, lots: &[Lot], mask: &[u32], point: Point) -> u32 {
        let own = self.upper[slot as usize];
        let (mut less, mut equal) = (0, 0);
        for upper in &self.upper {
            less += u32::from(*upper < own);
            equal += u32::from(*upper == own);
        }
        if equal == 1 {
            return less;
        }
        let own = tie::noise(lots[slot as usize], point);
        let lower = lots.iter().zip(mask);
        let lower = lower.filter(|(lot, mask)| **mask == 0 && tie::noise(**lot, point) < own);
        u32::try_from(lower.count()).unwrap_or(u32::MAX)
    }
}
