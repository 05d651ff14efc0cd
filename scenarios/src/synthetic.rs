//! Synthetic load for measurements: the same for the same seed.

use std::{collections::HashMap, sync::Arc};

use placement::{
    Attributes, Cell, DeviceNeed, DeviceSet, Job, Kind, Platform, Request, Resources,
    random::{self, mix},
};

/// This many jobs and cells, sized so that the jobs fill 70 % of the cells.
///
/// The cells are in four zones and of four sizes; the jobs are of four sizes, 10 % of them tasks,
/// the others in apps of four instances.
#[derive(Clone, Copy, Debug)]
pub struct SyntheticLoad {
    /// How many cells.
    pub cells: u32,
    /// How many jobs.
    pub jobs: u32,
    /// Determines sizes and zones.
    pub seed: u64,
}

/// MiB of a job.
const SIZES: [i64; 4] = [128, 256, 512, 1024];
/// Sizes of a cell, as shares of the mean.
const SHARES: [f64; 4] = [0.5, 0.75, 1.25, 1.5];
/// How much of the cells the jobs fill.
const FILL: f64 = 0.7;

fn attributes_of(zone: u32, day: u64) -> Attributes {
    Attributes {
        zone: format!("z{zone}"),
        stacks: vec!["cflinuxfs4".into()],
        platform: Some(Platform {
            version: "7.0".into(),
            stamp: format!("202601{day:02}T000000Z").into(),
        }),
        ..Attributes::default()
    }
}

impl SyntheticLoad {
    fn dice(&self, salt: u64, i: u32) -> u64 {
        mix(mix(self.seed ^ salt) ^ u64::from(i))
    }

    /// The cells, empty.
    #[allow(clippy::cast_possible_truncation)] // far below 2^63
    pub fn cells(&self) -> Vec<Cell> {
        let mean_job = SIZES.iter().sum::<i64>() as f64 / SIZES.len() as f64;
        let mean = f64::from(self.jobs) * mean_job / FILL / f64::from(self.cells.max(1));
        let containers = i64::from(self.jobs / self.cells.max(1)) * 4 + 16;
        // cells with equal attributes share them, as in a pool
        let mut attributes: HashMap<(u32, u64), Arc<Attributes>> = HashMap::new();
        let cell = |i: u32| {
            let dice = self.dice(1, i);
            // zones and sizes in turn, so that every zone has the same sizes
            let share = SHARES[(i / 4 % 4) as usize];
            let memory = (mean * share).max(1024.0) as i64;
            let total = Resources {
                cpu_millis: 64_000,
                ..Resources::new(memory, memory * 2, containers)
            };
            let mut cell = Cell::new(format!("cell-{i:06}"), total);
            cell.index = i / 4;
            let (zone, day) = (i % 4 + 1, dice % 28 + 1);
            let shared = attributes.entry((zone, day));
            cell.attributes = Arc::clone(shared.or_insert_with(|| attributes_of(zone, day).into()));
            if dice >> 32 & 1 == 0 {
                let day = (dice >> 16) % 28 + 1;
                cell.attributes_mut().next_reboot =
                    format!("2026-12-{day:02}T00:00:00Z").parse().ok();
            }
            cell
        };
        (0..self.cells).map(cell).collect()
    }

    /// As [`SyntheticLoad::cells`], and half of them have eight GPUs of two models.
    pub fn cells_with_devices(&self) -> Vec<Cell> {
        let mut cells = self.cells();
        for (i, cell) in (0..).zip(&mut cells) {
            let dice = self.dice(3, i);
            if dice.is_multiple_of(2) {
                let mut set = DeviceSet::new(8, 1_000);
                set.model = Some(
                    if (dice >> 8).is_multiple_of(4) {
                        "large"
                    } else {
                        "small"
                    }
                    .into(),
                );
                cell.total.devices.insert("gpu".into(), set.clone());
                cell.available.devices.insert("gpu".into(), set);
            }
        }
        cells
    }

    /// As [`SyntheticLoad::jobs`], one request in six of which asks for GPUs: a share of one, one, or two.
    pub fn jobs_with_devices(&self) -> Vec<Job> {
        let mut jobs = self.jobs();
        let mut changed: HashMap<String, Option<Arc<Request>>> = HashMap::new();
        for job in &mut jobs {
            let own = changed.entry(job.request.app.clone());
            let request = own.or_insert_with(|| {
                let dice = mix(self.seed ^ random::hash_text(&job.request.app));
                let need = match dice % 36 {
                    0..3 => DeviceNeed::new(1, Some(500)),
                    3..5 => DeviceNeed::new(1, None),
                    5 => DeviceNeed::new(2, None),
                    _ => return None,
                };
                let mut request = Request::clone(&job.request);
                request.cpu_millis = 4_000;
                request.devices.insert("gpu".into(), need);
                Some(Arc::new(request))
            });
            if let Some(request) = request {
                job.request = Arc::clone(request);
            }
        }
        jobs
    }

    /// The jobs, in the order of the requests.
    pub fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::with_capacity(self.jobs as usize);
        let mut number = 0;
        let wanted = self.jobs as usize;
        while jobs.len() < wanted {
            let dice = self.dice(2, number);
            let memory = SIZES[(dice % 4) as usize];
            let mut request = Request::new(format!("app-{number}"), memory, memory * 2);
            request.stack = Some("cflinuxfs4".into());
            request.owner = Some(format!("owner-{}", (dice >> 8) % 50));
            // one task to nine instances: 4 of 13 requests are tasks
            if (dice >> 16) % 13 < 4 {
                request.kind = Kind::Task;
                request.id = format!("task-{number}");
            } else {
                request.instances = 4;
            }
            jobs.extend(Arc::new(request).jobs());
            number += 1;
        }
        jobs.truncate(wanted);
        jobs
    }
}
