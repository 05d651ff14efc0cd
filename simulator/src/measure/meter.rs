//! Gauges during a run: stranded memory, the largest size that fits, empty cells, and samples of
//! the load.

use std::collections::BTreeMap;

use crate::outcome::{OverTime, Sample};

/// The memory of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Its total, MiB.
    pub memory_mb: i64,
    /// Used, MiB.
    pub used_mb: i64,
    /// Its instances and tasks.
    pub instances: u64,
    /// Whether it is up; cells that are down are not counted.
    pub there: bool,
}

impl Load {
    /// Returns the free memory, in MiB.
    pub fn free_mb(&self) -> i64 {
        (self.memory_mb - self.used_mb).max(0)
    }
}

/// Follows the cells and integrates over virtual time. A change costs O(log cells).
#[derive(Clone, Debug)]
pub struct Meter {
    cells: Vec<Load>,
    /// Number of cells by their free MiB.
    free: BTreeMap<i64, u32>,
    largest_mb: i64,
    now_ms: u64,
    stranded_mb: Gauge,
    largest_fit_mb: Gauge,
    empty: Gauge,
}

impl Meter {
    /// Begins at time 0 with these cells; `largest_mb` is the largest memory that one instance asks for.
    pub fn new(cells: Vec<Load>, largest_mb: i64) -> Self {
        let mut meter = Self {
            cells: Vec::with_capacity(cells.len()),
            free: BTreeMap::new(),
            largest_mb,
            now_ms: 0,
            stranded_mb: Gauge::default(),
            largest_fit_mb: Gauge::default(),
            empty: Gauge::default(),
        };
        for load in cells {
            meter.account(load, 1.0);
            meter.cells.push(load);
        }
        meter.look_up_largest();
        meter
    }

    /// Returns the cells as they are now.
    pub fn cells(&self) -> &[Load] {
        &self.cells
    }

    /// Advances the time.
    pub fn advance(&mut self, to_ms: u64) {
        let passed_ms = to_ms.saturating_sub(self.now_ms);
        if passed_ms == 0 {
            return;
        }
        self.now_ms = to_ms;
        for gauge in [
            &mut self.stranded_mb,
            &mut self.largest_fit_mb,
            &mut self.empty,
        ] {
            gauge.pass(passed_ms as f64);
        }
    }

    /// Changes a cell now.
    pub fn change(&mut self, cell: usize, change: impl FnOnce(&mut Load)) {
        let mut load = self.cells[cell];
        self.account(load, -1.0);
        change(&mut load);
        self.account(load, 1.0);
        self.cells[cell] = load;
        self.look_up_largest();
    }

    fn account(&mut self, load: Load, sign: f64) {
        if !load.there {
            return;
        }
        let free_mb = load.free_mb();
        // a cell whose total is too small for the largest size cannot strand memory
        if free_mb < self.largest_mb && load.memory_mb >= self.largest_mb {
            self.stranded_mb.now += sign * free_mb as f64;
        }
        if load.instances == 0 {
            self.empty.now += sign;
        }
        let count = self.free.entry(free_mb).or_insert(0);
        if sign > 0.0 {
            *count += 1;
        } else if *count > 1 {
            *count -= 1;
        } else {
            self.free.remove(&free_mb);
        }
    }

    fn look_up_largest(&mut self) {
        let largest = self
            .free
            .last_key_value()
            .map_or(0, |(free_mb, _)| *free_mb);
        self.largest_fit_mb.now = largest as f64;
    }

    /// Returns the stranded memory, in MiB: free memory on cells that could hold the largest size but have no room for
    /// it now; now, and over the time until now.
    pub fn stranded_mb(&self) -> OverTime {
        self.stranded_mb.over_time()
    }

    /// Returns the largest memory that fits on a cell, in MiB.
    pub fn largest_fit_mb(&self) -> OverTime {
        self.largest_fit_mb.over_time()
    }

    /// Returns the number of cells without instances.
    pub fn empty_cells(&self) -> OverTime {
        self.empty.over_time()
    }

    /// Returns the current values. Costs O(cells).
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a count of cells
    pub fn sample(&self, waiting: u64) -> Sample {
        let up = || self.cells.iter().filter(|load| load.there);
        let with_memory = up().filter(|load| load.memory_mb > 0);
        let shares: Vec<f64> = with_memory
            .map(|load| load.used_mb as f64 / load.memory_mb as f64)
            .collect();
        let balance = crate::outcome::Balance::of(&shares);
        let used_mb: i64 = up().map(|load| load.used_mb).sum();
        let memory_mb: i64 = up().map(|load| load.memory_mb).sum();
        Sample {
            at_ms: self.now_ms,
            instances: up().map(|load| load.instances).sum(),
            waiting,
            missing: 0,
            used: used_mb as f64 / memory_mb.max(1) as f64,
            used_min: balance.min,
            used_max: balance.max,
            used_sd: balance.sd,
            stranded_mb: self.stranded_mb.now,
            largest_fit_mb: self.largest_fit_mb.now,
            empty_cells: self.empty.now as u64,
            cells: up().count() as u64,
        }
    }
}

/// One quantity, now and over time. A value of zero duration is neither lowest nor highest.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauge {
    pub(crate) now: f64,
    sum: f64,
    ms: f64,
    ends: Option<(f64, f64)>,
}

impl Gauge {
    /// Records that the value lasted for this time.
    pub(crate) fn pass(&mut self, ms: f64) {
        self.sum += self.now * ms;
        self.ms += ms;
        let (low, high) = self.ends.unwrap_or((self.now, self.now));
        self.ends = Some((low.min(self.now), high.max(self.now)));
    }

    pub(crate) fn over_time(&self) -> OverTime {
        let (low, high) = self.ends.unwrap_or((self.now, self.now));
        OverTime {
            end: self.now,
            mean: if self.ms > 0.0 {
                self.sum / self.ms
            } else {
                self.now
            },
            min: low.min(self.now),
            max: high.max(self.now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(memory_mb: i64, used_mb: i64, instances: u64) -> Load {
        Load {
            memory_mb,
            used_mb,
            instances,
            there: true,
        }
    }

    #[test]
    fn a_cell_too_small_for_the_largest_size_strands_nothing() {
        let meter = Meter::new(vec![load(8, 0, 0), load(16, 4, 1), load(64, 0, 0)], 16);
        assert_eq!(
            meter.stranded_mb().end.total_cmp(&12.0),
            std::cmp::Ordering::Equal
        );
    }

    #[test]
    fn gauges_are_integrated_over_time() {
        // the largest size is 16: the first cell has 10 free (stranded), the second is empty
        let mut meter = Meter::new(vec![load(64, 54, 3), load(32, 0, 0)], 16);
        let start = meter.sample(7);
        let expected = Sample {
            at_ms: 0,
            instances: 3,
            waiting: 7,
            missing: 0,
            used: 54.0 / 96.0,
            used_min: 0.0,
            used_max: 54.0 / 64.0,
            used_sd: 27.0 / 64.0,
            stranded_mb: 10.0,
            largest_fit_mb: 32.0,
            empty_cells: 1,
            cells: 2,
        };
        assert_eq!(start, expected);
        meter.advance(100);
        meter.change(1, |load| {
            load.used_mb += 20;
            load.instances += 1;
        });
        let over = |end, mean, min, max| OverTime {
            end,
            mean,
            min,
            max,
        };
        meter.advance(400);
        assert_eq!(meter.stranded_mb(), over(22.0, 19.0, 10.0, 22.0));
        assert_eq!(meter.largest_fit_mb(), over(12.0, 17.0, 12.0, 32.0));
        assert_eq!(meter.empty_cells(), over(0.0, 0.25, 0.0, 1.0));
        meter.change(0, |load| load.there = false);
        assert_eq!(meter.stranded_mb(), over(12.0, 19.0, 10.0, 22.0));
        assert_eq!(meter.sample(0).cells, 1);
        // a value that lasts no time is not an extreme
        meter.change(1, |load| load.used_mb = 0);
        meter.change(1, |load| load.used_mb = 20);
        meter.advance(500);
        assert_eq!(
            meter.largest_fit_mb().max.total_cmp(&32.0),
            std::cmp::Ordering::Equal
        );
    }

    #[test]
    fn an_over_committed_cell_has_no_free_memory() {
        let meter = Meter::new(vec![load(10, 12, 1)], 1);
        assert_eq!(meter.largest_fit_mb(), OverTime::default());
        assert_eq!(Meter::new(Vec::new(), 1).sample(0), Sample::default());
    }
}
