//! Samples of the cells, equally spaced: at most 240 for any length of the run.

use super::{WARM_UP_US, World, devices::DevicesGiven};
use crate::{
    measure::{Load, Meter, memory_distribution},
    outcome::Sample,
};

/// Maximum number of samples.
const MAX_SAMPLES: usize = 240;
/// The shortest time between two samples, in microseconds.
const SHORTEST_US: u64 = 10_000;

/// The samples so far.
#[derive(Debug)]
pub(super) struct Samples {
    step_us: u64,
    pub(super) series: Vec<Sample>,
    /// By sample: the free memory on each cell in MiB; -1 if the cell was down.
    free_mb: Vec<Vec<i64>>,
    /// The largest size that the workload asks for, in MiB.
    largest_mb: i64,
    pub(super) distribution_before: f64,
    pub(super) most_starting: u64,
    pub(super) devices: DevicesGiven,
}

impl Samples {
    /// Creates it for a run that ends at `last_ms` (`exactly`) or some time after it.
    pub(super) fn new(last_ms: u64, exactly: bool) -> Self {
        let samples = if exactly {
            MAX_SAMPLES as u64 - 1
        } else {
            MAX_SAMPLES as u64 / 2
        };
        Self {
            step_us: (last_ms * 1_000 / samples).max(SHORTEST_US),
            series: Vec::new(),
            free_mb: Vec::new(),
            largest_mb: 0,
            distribution_before: 0.0,
            most_starting: 0,
            devices: DevicesGiven::default(),
        }
    }

    fn add(&mut self, sample: Sample, free_mb: Vec<i64>) {
        if self.series.len() == MAX_SAMPLES {
            // drop every second sample, and take half as many from now on
            self.series = std::mem::take(&mut self.series)
                .into_iter()
                .step_by(2)
                .collect();
            self.free_mb = std::mem::take(&mut self.free_mb)
                .into_iter()
                .step_by(2)
                .collect();
            self.step_us *= 2;
        }
        self.series.push(sample);
        self.free_mb.push(free_mb);
    }

    /// Returns whether the largest size fitted on one of the cells selected by `keep` in every sample from `from_ms`
    /// on.
    pub(super) fn largest_always_fits(&self, from_ms: u64, keep: impl Fn(usize) -> bool) -> bool {
        self.series
            .iter()
            .zip(&self.free_mb)
            .all(|(sample, free_mb)| {
                let mut kept = free_mb.iter().enumerate().filter(|(c, _)| keep(*c));
                sample.at_ms < from_ms || kept.any(|(_, free)| *free >= self.largest_mb)
            })
    }
}

impl World<'_> {
    /// Measures the cells from now on. `largest_mb` is the largest requested size in MiB.
    pub(super) fn measure_from_now(&mut self, largest_mb: i64) {
        let loads = (0..self.cells.len()).map(|c| self.load(c)).collect();
        self.meter = Meter::new(loads, largest_mb);
        let cells = self.cells.iter();
        self.samples.devices = DevicesGiven::of(cells.map(|c| (c.ledger().cell(), c.down == 0)));
        self.samples.largest_mb = largest_mb;
        self.samples.distribution_before = self.distribution();
    }

    fn load(&self, c: usize) -> Load {
        let cell = &self.cells[c];
        Load {
            memory_mb: cell.ledger().cell().total.memory_mb,
            used_mb: cell.used_mb(),
            instances: cell.ledger().instance_count() as u64,
            there: cell.down == 0,
        }
    }

    /// Updates the gauges: a cell's instances may have changed.
    pub(super) fn measure(&mut self, c: usize) {
        if self.now_us < WARM_UP_US || self.meter.cells().is_empty() {
            return;
        }
        let load = self.load(c);
        if self.meter.cells()[c] != load {
            self.meter.advance((self.now_us - WARM_UP_US) / 1_000);
            self.meter.change(c, |known| *known = load);
            let cell = &self.cells[c];
            let starting = u64::from(cell.ledger().cell().counts.starting);
            self.samples.most_starting = self.samples.most_starting.max(starting);
            let devices = &mut self.samples.devices;
            devices.look(c, cell.ledger().cell(), cell.down == 0);
        }
    }

    /// Returns how unevenly memory is used on the cells that are up; see [`memory_distribution`].
    pub(super) fn distribution(&self) -> f64 {
        let up = self.cells.iter().filter(|cell| cell.down == 0);
        let memory: Vec<(i64, i64)> = up
            .map(|cell| (cell.used_mb(), cell.ledger().cell().total.memory_mb))
            .collect();
        memory_distribution(&memory)
    }

    /// Takes a sample. Returns when to take the next one, in microseconds.
    pub(super) fn take_sample(&mut self) -> u64 {
        let since_us = self.now_us - WARM_UP_US;
        self.meter.advance(since_us / 1_000);
        let mut sample = self.meter.sample(self.client.waiting());
        sample.missing = self.tally.missing();
        let free = self.meter.cells().iter();
        let free_mb = free
            .map(|load| if load.there { load.free_mb() } else { -1 })
            .collect();
        self.samples.add(sample, free_mb);
        let step_us = self.samples.step_us;
        WARM_UP_US + (since_us / step_us + 1) * step_us
    }
}
