//! Ties and draws. All engines follow these functions, so that all decide alike.
//!
//! Every cell has a lot for the auction, and every job a point on the same circle of 2^64 numbers. Among tied cells,
//! the first at or after the job's point wins. So ties are fair over many auctions and depend only on seed, auction,
//! app, index and the cell's name; and an index that keeps cells in the order of their lots finds the winner without
//! visiting all of them.

use crate::random::{mix, mix_upper};

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

/// Returns a number that differs for every pair of job and cell: the `random` score.
pub(crate) fn noise(lot: Lot, point: Point) -> u64 {
    mix(lot.0 ^ point.0.rotate_left(17))
}

/// The upper 31 bits of [`noise`].
#[allow(clippy::cast_possible_truncation)] // 31 bits
pub(crate) fn noise_upper(lot: Lot, point: Point) -> u32 {
    (mix_upper(lot.0 ^ point.0.rotate_left(17)) >> 33) as u32
}

#[cfg(test)]
mod tests;
