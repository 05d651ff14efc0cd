//! Statistics of lists of numbers: the same formulas for every policy.

mod meter;

pub(crate) use meter::Gauge;
pub use meter::{Load, Meter};

use crate::outcome::{Balance, Histogram, Spread};

/// Classes for waiting times in milliseconds: those of the first Diego simulator's report card, plus finer ones below.
pub const WAIT_BOUNDS_MS: [f64; 11] = [
    1.0, 10.0, 50.0, 250.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 20_000.0, 40_000.0,
];
/// Classes for numbers of rounds: 1, 2, 3, 4, 5, 6 to 10, 11 to 20, 21 to 40, more.
pub const ROUNDS_BOUNDS: [f64; 8] = [2.0, 3.0, 4.0, 5.0, 6.0, 11.0, 21.0, 41.0];
/// Classes for shares of memory used: tenths.
pub const LOAD_BOUNDS: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9];

impl Spread {
    /// Computes the spread of these values, which may be in any order and are sorted in place. Percentiles are values
    /// that occur (nearest rank).
    pub fn of(values: &mut [f64]) -> Self {
        values.sort_unstable_by(f64::total_cmp);
        let (Some(min), Some(max)) = (values.first(), values.last()) else {
            return Self::default();
        };
        Self {
            min: *min,
            mean: values.iter().sum::<f64>() / values.len() as f64,
            p50: nearest_rank(values, 50),
            p99: nearest_rank(values, 99),
            max: *max,
        }
    }
}

/// Returns the percentile of a sorted, non-empty list: rank ceil(n * percent / 100), counted from 1.
fn nearest_rank(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted[rank - 1]
}

impl Balance {
    /// Computes the balance of these values, with the population's standard deviation; all 0 without values.
    pub fn of(values: &[f64]) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self {
            mean,
            sd: variance.sqrt(),
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max,
            max_over_mean: if mean == 0.0 { 0.0 } else { max / mean },
            sd_over_mean: if mean == 0.0 {
                0.0
            } else {
                variance.sqrt() / mean
            },
        }
    }

    /// Returns standard deviation / mean, the distribution score of Diego's simulators; 0 if the mean is 0.
    pub fn score(&self) -> f64 {
        self.sd_over_mean
    }
}

/// Returns standard deviation / mean of the memory used per cell, from (used, total) of each cell in MiB. If all cells
/// have the same total it is computed from the used MiB, otherwise from the used shares, because then equally full
/// cells are even. Cells without memory have no share.
pub fn memory_distribution(cells: &[(i64, i64)]) -> f64 {
    let equal = cells.windows(2).all(|pair| pair[0].1 == pair[1].1);
    let values: Vec<f64> = if equal {
        cells.iter().map(|(used, _)| *used as f64).collect()
    } else {
        let with_memory = cells.iter().filter(|(_, total)| *total > 0);
        with_memory
            .map(|(used, total)| *used as f64 / *total as f64)
            .collect()
    };
    Balance::of(&values).score()
}

impl Histogram {
    /// Counts these values by class; `bounds` ascend, and a value at a bound is in the class above.
    pub fn of(bounds: &[f64], values: impl IntoIterator<Item = f64>) -> Self {
        let mut counts = vec![0; bounds.len() + 1];
        for value in values {
            counts[bounds.partition_point(|bound| *bound <= value)] += 1;
        }
        Self {
            bounds: bounds.to_vec(),
            counts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_five_numbers_of_the_list() {
        let mut values: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        let spread = Spread::of(&mut values);
        let expected = Spread {
            min: 1.0,
            mean: 100.5,
            p50: 100.0,
            p99: 198.0,
            max: 200.0,
        };
        assert_eq!(spread, expected);
        assert_eq!(Spread::of(&mut []), Spread::default());
        let one = Spread::of(&mut [3.0]);
        let same = [one.min, one.mean, one.p50, one.p99, one.max];
        assert!(same.iter().all(|x| (x - 3.0).abs() < 1e-12));
    }

    #[test]
    fn a_balance_is_of_the_population() {
        let balance = Balance::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]);
        let expected = Balance {
            mean: 5.0,
            sd: 2.0,
            min: 2.0,
            max: 9.0,
            max_over_mean: 1.8,
            sd_over_mean: 0.4,
        };
        assert_eq!(balance, expected);
        assert!((balance.score() - 0.4).abs() < 1e-12);
        assert_eq!(Balance::of(&[]), Balance::default());
        let zero = Balance::of(&[0.0, 0.0]);
        assert!(zero.max_over_mean == 0.0 && zero.score() == 0.0);
    }

    #[test]
    fn equally_full_cells_of_unlike_size_are_even() {
        assert!(memory_distribution(&[(50, 100), (100, 200)]).abs() < 1e-12);
        // more even in MiB, but less even in shares
        assert!((memory_distribution(&[(75, 100), (50, 200)]) - 0.5).abs() < 1e-12);
        let equal = memory_distribution(&[(50, 100), (100, 100)]);
        assert!((equal - 25.0 / 75.0).abs() < 1e-12);
        assert!(memory_distribution(&[(0, 0), (5, 10), (10, 20)]).abs() < 1e-12);
        assert!(memory_distribution(&[]).abs() < 1e-12);
    }

    #[test]
    fn a_value_at_a_bound_is_in_the_class_above() {
        let histogram = Histogram::of(&[1.0, 2.0], [0.0, 0.9, 1.0, 1.9, 2.0, 50.0, f64::INFINITY]);
        assert_eq!(histogram.counts, [2, 2, 3]);
        assert_eq!(Histogram::of(&[1.0], []).counts, [0, 0]);
        let rounds = Histogram::of(&ROUNDS_BOUNDS, (1..=41).map(f64::from));
        assert_eq!(rounds.counts, [1, 1, 1, 1, 1, 5, 10, 20, 1]);
    }
}
