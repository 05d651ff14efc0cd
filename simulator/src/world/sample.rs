//! Looks at the cells, equally spaced: at most 240, however long the run is.

use super::{WARM_UP_US, World, cell::Node};
use crate::outcome::{OverTime, Sample};

/// The most looks.
const MOST: usize = 240;
/// The shortest time between two looks, microseconds.
const SHORTEST_US: u64 = 10_000;

/// What was seen.
#[derive(Debug)]
pub(super) struct Samples {
    step_us: u64,
    pub(super) series: Vec<Sample>,
    /// By look: memory that was free on each cell, MiB; -1 where a cell was not there.
    free_mb: Vec<Vec<i64>>,
    /// The largest size that the workload asks for, MiB.
    pub(super) largest_mb: i64,
    pub(super) distribution_before: f64,
}

impl Samples {
    /// For a run that ends at `last_ms`, or some time after it.
    pub(super) fn new(last_ms: u64, exactly: bool) -> Self {
        let looks = if exactly {
            MOST as u64 - 1
        } else {
            MOST as u64 / 2
        };
        Self {
            step_us: (last_ms * 1_000).div_ceil(looks).max(SHORTEST_US),
            series: Vec::new(),
            free_mb: Vec::new(),
            largest_mb: 0,
            distribution_before: 0.0,
        }
    }

    pub(super) fn begin(&mut self, cells: &[Node], largest_mb: i64) {
        self.largest_mb = largest_mb;
        self.distribution_before = distribution(cells);
    }

    fn add(&mut self, sample: Sample, free_mb: Vec<i64>) {
        if self.series.len() == MOST {
            // every second look is forgotten, and from now on there are half as many
            let mut keep = 0;
            self.series.retain(|_| {
                keep += 1;
                keep % 2 == 1
            });
            keep = 0;
            self.free_mb.retain(|_| {
                keep += 1;
                keep % 2 == 1
            });
            self.step_us *= 2;
        }
        self.series.push(sample);
        self.free_mb.push(free_mb);
    }

    /// A quantity over all looks.
    pub(super) fn over_time(&self, end: f64, of: impl Fn(&Sample) -> f64) -> OverTime {
        let all: Vec<f64> = self.series.iter().map(of).collect();
        OverTime {
            end,
            mean: all.iter().sum::<f64>() / all.len().max(1) as f64,
            min: all.iter().copied().fold(end, f64::min),
            max: all.iter().copied().fold(end, f64::max),
        }
    }

    /// Whether, at every look after `from_ms`, the largest size fitted on one of the cells that
    /// `keep` names.
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

/// Standard deviation / mean of the memory used on the cells that are there.
pub(super) fn distribution(cells: &[Node]) -> f64 {
    let there = cells.iter().filter(|cell| cell.down == 0);
    let used: Vec<f64> = there.map(|cell| cell.used_mb() as f64).collect();
    let balance = super::figures::balance(&used);
    if balance.mean == 0.0 {
        return 0.0;
    }
    balance.sd / balance.mean
}

impl World<'_> {
    /// Looks, and says when to look again.
    pub(super) fn look(&mut self) -> u64 {
        let (sample, free_mb) = self.sample();
        self.samples.add(sample, free_mb);
        let since_us = self.now_us - WARM_UP_US;
        let step_us = self.samples.step_us;
        WARM_UP_US + (since_us / step_us + 1) * step_us
    }

    pub(super) fn sample(&self) -> (Sample, Vec<i64>) {
        let largest_mb = self.samples.largest_mb;
        let mut sample = Sample {
            at_ms: (self.now_us - WARM_UP_US) / 1_000,
            waiting: self.client.waiting(),
            ..Sample::default()
        };
        let mut free_mb = Vec::with_capacity(self.cells.len());
        let mut shares = Vec::with_capacity(self.cells.len());
        let (mut used_all, mut total_all) = (0, 0);
        let mut largest_fit = 0;
        for cell in &self.cells {
            if cell.down > 0 {
                free_mb.push(-1);
                continue;
            }
            let total = cell.ledger.cell().total.memory_mb;
            let free = cell.ledger.cell().available.memory_mb;
            free_mb.push(free);
            used_all += total - free;
            total_all += total;
            shares.push((total - free) as f64 / total.max(1) as f64);
            largest_fit = largest_fit.max(free);
            if free < largest_mb {
                sample.stranded_mb += free.max(0) as f64;
            }
            sample.instances += cell.ledger.held() as u64;
            sample.empty_cells += u64::from(cell.ledger.held() == 0);
            sample.cells += 1;
        }
        let balance = super::figures::balance(&shares);
        sample.used = used_all as f64 / total_all.max(1) as f64;
        (sample.used_min, sample.used_max) = (balance.min, balance.max);
        sample.used_sd = balance.sd;
        sample.largest_fit_mb = largest_fit as f64;
        (sample, free_mb)
    }

    /// A last look at the end, where the last one was not there.
    pub(super) fn last_look(&mut self) -> Sample {
        let (sample, free_mb) = self.sample();
        if self
            .samples
            .series
            .last()
            .is_none_or(|last| last.at_ms < sample.at_ms)
            && self.samples.series.len() < MOST
            && self.scenario.duration_ms.is_none()
        {
            self.samples.add(sample.clone(), free_mb);
        }
        sample
    }
}
