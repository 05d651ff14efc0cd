//! Ties and draws. All engines follow these functions, so that all decide alike.
//!
//! Every cell has a lot for the auction, and every job a point on the same circle of 2^64 numbers. Among tied cells,
//! the first at or after the job's point wins. So ties are fair over many auctions and depend only on seed, auction,
//! app, index and the cell's name; and an index that keeps cells in the order of their lots finds the winner without
//! visiting all of them.

use crate::random::{SplitMix64, mix};

/// A cell's position on the circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lot(pub(crate) u64);

/// A job's position on the circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point(pub(crate) u64);

impl Point {
    /// Returns the first lot that counts as after the point.
    pub(crate) fn first_lot(self) -> Lot {
        Lot(self.0)
    }
}

/// The lots of one auction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lots {
    key: u64,
}

impl Lots {
    /// Creates the lots of an auction from its seed and id.
    #[allow(clippy::cast_possible_truncation)] // both halves of the id are used
    pub(crate) fn new(seed: u64, auction: u128) -> Self {
        let high = (auction >> 64) as u64;
        let low = auction as u64;
        Self {
            key: mix(mix(mix(seed) ^ high) ^ low),
        }
    }

    /// Returns a cell's lot, from the hash of its name.
    pub(crate) fn of_cell(self, name_hash: u64) -> Lot {
        Lot(mix(name_hash ^ self.key))
    }

    /// Returns a job's point on the circle, from the hash of its app and its index. Its low half is 0, so that the high
    /// half of a distance depends only on the high half of the lot.
    pub(crate) fn of_job(self, app_hash: u64, index: u32) -> Point {
        let point = mix(mix(app_hash.rotate_left(32) ^ self.key).wrapping_add(u64::from(index)));
        Point(point & !0xffff_ffff)
    }
}

/// Returns the distance from the job's point to a cell's lot: among tied cells the lowest wins.
pub(crate) fn distance(lot: Lot, point: Point) -> u64 {
    lot.0.wrapping_sub(point.0)
}

/// Returns the number in `0..n` that a job draws, for `sample`.
#[allow(clippy::cast_possible_truncation)] // a remainder of a usize fits it
pub(crate) fn draw(point: Point, n: usize) -> usize {
    (mix(point.0 ^ 0x5a5a_5a5a_5a5a_5a5a) % n.max(1) as u64) as usize
}

/// Returns a number that differs for every pair of job and cell: the `random` score as a share.
pub(crate) fn noise(lot: Lot, point: Point) -> u64 {
    mix(lot.0 ^ point.0.rotate_left(17))
}

/// A job's random order of `n` things: the `random` score as a rank. The place of one is found without those of the
/// others.
///
/// It is a permutation of as many bits as `n` needs, of steps that each can be undone: adding, multiplying with an odd
/// number, and combining the lower half of the bits with the upper one. Places of `n` or more are permuted again until
/// one is below it (cycle walking: Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shuffle {
    n: u32,
    mask: u32,
    shift: u32,
    /// For each round what is added, and the odd factor.
    rounds: [(u32, u32); ROUNDS],
}

const ROUNDS: usize = 5;

impl Shuffle {
    /// Creates the order of `n` things that the job draws.
    #[allow(clippy::cast_possible_truncation)] // both halves are used
    pub(crate) fn new(point: Point, n: usize) -> Self {
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        // at least six bits: with fewer there are too few odd factors to prefer nobody
        let bits = (u32::BITS - n.saturating_sub(1).leading_zeros()).max(6);
        let mut dice = SplitMix64::new(point.0 ^ 0x3c3c_3c3c_3c3c_3c3c);
        Self {
            n,
            mask: u32::MAX >> (u32::BITS - bits),
            shift: bits.div_ceil(2),
            rounds: [(); ROUNDS].map(|()| {
                let drawn = dice.draw();
                (drawn as u32, (drawn >> 32) as u32 | 1)
            }),
        }
    }

    /// Returns the rank of one of the `n` things: 1 for the first place, 0 for the last; 1 for a single one.
    pub(crate) fn share(&self, of: u32) -> f64 {
        let last = f64::from(self.n.saturating_sub(1));
        if last == 0.0 {
            return 1.0;
        }
        (last - f64::from(self.place(of))) / last
    }

    /// Returns the place of one of the `n` things, from 0 on.
    fn place(&self, of: u32) -> u32 {
        debug_assert!(of < self.n, "{of} is not one of {}", self.n);
        let mut place = of;
        loop {
            for (add, factor) in &self.rounds {
                place = place.wrapping_add(*add).wrapping_mul(*factor) & self.mask;
                place ^= place >> self.shift;
            }
            if place < self.n {
                return place;
            }
        }
    }
}

#[cfg(test)]
mod tests;
