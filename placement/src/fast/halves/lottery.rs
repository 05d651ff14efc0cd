//! The draw among the finalists, without sorting them.

use super::{
    HalvesPlan,
    sorted::{Entry, high},
};
use crate::tie::{self, Point};

/// How many lots are compared together: with more, nearly every group contains a wanted one.
const EIGHT: usize = 8;

impl HalvesPlan<'_> {
    /// Returns the `k`-th of `n` finalists in the order of their lots after the point.
    ///
    /// Lots are spread evenly, so the `k`-th lies close to `k / n` of the circle. One pass counts how many lie below
    /// that; the difference tells where to look for the wanted one, in a narrow band that a second pass collects.
    /// Should the band miss it, the next band is the whole circle.
    pub(super) fn kth_by_lot(&mut self, k: usize, n: usize, point: Point) -> Option<u32> {
        let guess = place(k as f64 / n as f64);
        let below = self.count_below(guess, high(point.0));
        let off = k as f64 - below as f64;
        // the number of lots in a section of the circle varies by about its square root: three times that nearly always
        // suffices
        let margin = 3.0 * off.abs().sqrt() + 4.0;
        let from = place((k as f64 + off.min(0.0) - margin) / n as f64);
        let to = place((k as f64 + off.max(0.0) + margin) / n as f64);
        for (from, to) in [(from, to), (0, u32::MAX)] {
            self.collect_band(from, to, point);
            let band = &mut self.scratch.band;
            // the band may include lots below the guess, which were counted too
            let inside = band
                .iter()
                .filter(|(distance, _)| high(*distance) < guess)
                .count();
            let below = below - inside;
            if k >= below && k - below < band.len() {
                let (_, found, _) = band.select_nth_unstable(k - below);
                return Some(found.1);
            }
        }
        None
    }

    /// Returns how many finalists lie less than this far after the point.
    fn count_below(&self, limit: u32, point: u32) -> usize {
        let scratch = &self.scratch;
        let lots = self.session.lots;
        let near = |lot: u32| lot.wrapping_sub(point) < limit;
        let mut count = 0_usize;
        for run in &scratch.runs {
            for (_, lots) in self.index.lists[run.list as usize].from(run.from) {
                // a chunk is short, so a 32-bit count suffices, which the compiler can vectorise
                let inside: u32 = lots.iter().map(|lot| u32::from(near(*lot))).sum();
                count += inside as usize;
            }
        }
        let is_near = |entry: &&Entry| near(high(lots.of_cell(entry.hash).0));
        count += scratch.cells.iter().filter(is_near).count();
        count - scratch.skipped.iter().filter(is_near).count()
    }

    /// Collects the finalists from one distance after the point to another, both inclusive.
    fn collect_band(&mut self, from: u32, to: u32, point: Point) {
        let Self {
            index,
            session,
            scratch,
            ..
        } = self;
        let lots = session.lots;
        let start = high(point.0).wrapping_add(from);
        let inside = |lot: u32| lot.wrapping_sub(start) <= to - from;
        let band = &mut scratch.band;
        band.clear();
        let mut keep = |entry: &Entry| {
            let distance = tie::distance(lots.of_cell(entry.hash), point);
            band.push((distance, entry.slot));
        };
        let mut keep_inside = |cells: &[Entry], lots: &[u32]| {
            for (entry, lot) in cells.iter().zip(lots) {
                if inside(*lot) {
                    keep(entry);
                }
            }
        };
        for run in &scratch.runs {
            for (cells, lots) in index.lists[run.list as usize].from(run.from) {
                // most are outside: eight are compared together, in a few vector instructions
                let (eights, rest) = lots.as_chunks::<EIGHT>();
                for (eight, at) in eights.iter().zip((0..).step_by(EIGHT)) {
                    if eight.iter().fold(false, |any, lot| any | inside(*lot)) {
                        keep_inside(&cells[at..], eight);
                    }
                }
                keep_inside(&cells[cells.len() - rest.len()..], rest);
            }
        }
        let each = scratch.cells.iter();
        each.filter(|e| inside(high(lots.of_cell(e.hash).0)))
            .for_each(&mut keep);
        if !scratch.skipped.is_empty() {
            band.retain(|(_, slot)| !session.is_marked(*slot));
        }
    }
}

/// Converts a share of the circle to the high half of a distance.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped to the circle
fn place(share: f64) -> u32 {
    (share * f64::from(u32::MAX)).clamp(0.0, f64::from(u32::MAX)) as u32
}
