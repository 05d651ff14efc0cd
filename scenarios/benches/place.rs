//! How long a batch, a single decision and an advertisement take.
#![allow(missing_docs)] // what the macros make

use std::hint::black_box;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use placement::{PlanContext, Policy, Pool};
use scenarios::SyntheticLoad;

fn pool(workload: &SyntheticLoad, policy: &Policy) -> Pool {
    let mut pool = Pool::default();
    for cell in workload.cells() {
        pool.put(cell);
    }
    pool.prepare(policy);
    pool
}

fn preset(name: &str) -> Policy {
    Policy::preset(name).unwrap_or_else(|e| unreachable!("{e}"))
}

fn batches(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("batch");
    group.sample_size(10);
    for (cells, jobs, names) in [
        (100, 1_000, ["diego", "diego-bin-pack", "dea"].as_slice()),
        (5_000, 10_000, ["diego", "diego-bin-pack", "dea"].as_slice()),
        (
            5_000,
            500,
            ["objective", "dapi", "rfd24", "dapi-2015", "random"].as_slice(),
        ),
    ] {
        let workload = SyntheticLoad {
            cells,
            jobs,
            seed: 1,
        };
        let jobs = workload.jobs();
        group.throughput(Throughput::Elements(jobs.len() as u64));
        for name in names {
            let policy = preset(name);
            let mut pool = pool(&workload, &policy);
            let id = BenchmarkId::new(*name, format!("{} jobs on {cells}", jobs.len()));
            group.bench_function(id, |bencher| {
                bencher.iter(|| black_box(pool.plan(&jobs, &policy, &PlanContext::default())));
            });
        }
    }
    group.finish();
}

fn singles(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("single");
    let workload = SyntheticLoad {
        cells: 5_000,
        jobs: 10_000,
        seed: 1,
    };
    let jobs = workload.jobs();
    for name in Policy::PRESETS {
        let policy = preset(name);
        let mut pool = pool(&workload, &policy);
        group.bench_function(BenchmarkId::new("decision", *name), |bencher| {
            bencher.iter(|| black_box(pool.plan(&jobs[..1], &policy, &PlanContext::default())));
        });
        let cells = workload.cells();
        let mut next = cells.iter().cycle();
        group.bench_function(BenchmarkId::new("advertisement", *name), |bencher| {
            let advertisement = || next.next().cloned();
            let feed = |cell: Option<placement::Cell>| {
                if let Some(mut cell) = cell {
                    cell.available.memory_mb -= 1;
                    pool.put(cell);
                }
            };
            bencher.iter_batched(advertisement, feed, BatchSize::SmallInput);
        });
    }
    group.finish();
}

/// The default objective against the same formula written by hand over the same columns.
fn objective(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("objective");
    let workload = SyntheticLoad {
        cells: 5_000,
        jobs: 10_000,
        seed: 1,
    };
    let policy = preset("objective");
    let mut pool = pool(&workload, &policy);
    let jobs = workload.jobs();
    let few = &jobs[..1_000];
    group.sample_size(10);
    group.bench_function("1000 jobs by the engine", |bencher| {
        bencher.iter(|| black_box(pool.plan(few, &policy, &PlanContext::default())));
    });
    let columns = Columns::of(&workload);
    group.bench_function("1000 jobs by hand", |bencher| {
        bencher.iter(|| {
            for job in few {
                black_box(columns.best(f64::from(job.index), job.request.memory_mb as f64));
            }
        });
    });
    group.finish();
}

struct Columns {
    memory: Vec<f64>,
    disk: Vec<f64>,
    total_memory: Vec<f64>,
    total_disk: Vec<f64>,
    zones: Vec<f64>,
    blobs: Vec<f64>,
    apps: Vec<f64>,
}

impl Columns {
    fn of(workload: &SyntheticLoad) -> Self {
        let cells = workload.cells();
        let column = |value: &dyn Fn(&placement::Cell) -> i64| -> Vec<f64> {
            cells.iter().map(|cell| value(cell) as f64).collect()
        };
        Self {
            memory: column(&|cell| cell.available.memory_mb),
            disk: column(&|cell| cell.available.disk_mb.unwrap_or(0)),
            total_memory: column(&|cell| cell.total.memory_mb),
            total_disk: column(&|cell| cell.total.disk_mb.unwrap_or(0)),
            zones: column(&|cell| i64::from(cell.index % 4 + 1)),
            blobs: vec![0.0; cells.len()],
            apps: vec![0.0; cells.len()],
        }
    }

    /// The position with the highest objective of the cells that fit.
    fn best(&self, instance: f64, wanted: f64) -> Option<usize> {
        let app = 1_234_567.0;
        let mut best = None;
        let mut highest = f64::NEG_INFINITY;
        for i in 0..self.memory.len() {
            if self.memory[i] < wanted || self.disk[i] < wanted {
                continue;
            }
            let sum = instance + app + self.zones[i];
            let value = sum - 4.0 * (sum / 4.0).floor()
                + 1.0
                + 0.25 * self.blobs[i]
                + 0.25 * (self.memory[i] / self.total_memory[i])
                + 0.25 * (self.disk[i] / self.total_disk[i])
                + 0.25 * (1.0 - self.apps[i] / 4.0);
            if value > highest {
                highest = value;
                best = Some(i);
            }
        }
        best
    }
}

criterion_group!(benches, batches, singles, objective);
criterion_main!(benches);
