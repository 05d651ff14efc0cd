//! The instances that run on the cells before the first request.

use std::sync::Arc;

use placement::{Cell, Job, Kind, Request};
use scenarios::{OfflineAuction, ScenarioError};

/// Checks that the instances on a cell before the first request fit there.
pub(super) fn check_room(cells: &[Cell]) -> Result<(), ScenarioError> {
    for cell in cells {
        let (total, free) = (&cell.total, &cell.available);
        let resources = [
            ("memory_mb", Some(total.memory_mb), Some(free.memory_mb)),
            ("disk_mb", total.disk_mb, free.disk_mb),
            ("containers", total.containers, free.containers),
            ("cpu_millis", Some(total.cpu_millis), Some(free.cpu_millis)),
        ];
        for (name, total, free) in resources {
            if let (Some(total), Some(free)) = (total, free)
                && free < 0
            {
                return Err(ScenarioError::Field {
                    at: format!("{}.running", cell.cell),
                    message: format!(
                        "{name}: {} are used; expected at most the cell's total of {total}",
                        total - free
                    ),
                });
            }
        }
    }
    Ok(())
}

/// Checks that the devices in use before the first request exist.
pub(super) fn check_devices(base: &OfflineAuction) -> Result<(), ScenarioError> {
    for cell in &base.cells {
        let mut left = cell.total.clone();
        for job in base.running.get(&cell.cell).into_iter().flatten() {
            let given = left.choose_devices(&job.request);
            let has = |name: &String| given.as_ref().is_some_and(|given| given.contains_key(name));
            if let Some(name) = job.request.devices.keys().find(|name| !has(name)) {
                return Err(ScenarioError::Field {
                    at: format!("{}.running", cell.cell),
                    message: format!("{name}: too few devices of the cell have enough free"),
                });
            }
            left.debit(&job.request, given.as_deref());
        }
    }
    Ok(())
}

/// Fills in instances if a file has only the apps of a cell and what is available: each instance gets the same share of
/// what is used; without apps, one instance gets all of it.
pub(super) fn fill_running(base: &mut OfflineAuction) {
    for cell in &base.cells {
        let used_mb = cell.total.memory_mb - cell.available.memory_mb;
        let listed = cell
            .counts
            .apps
            .iter()
            .map(|(app, count)| (app.clone(), *count, Kind::Lrp));
        let tasks = (cell.counts.tasks > 0).then(|| {
            (
                format!("tasks-of-{}", cell.cell),
                cell.counts.tasks,
                Kind::Task,
            )
        });
        let mut apps: Vec<(String, u32, Kind)> = listed.chain(tasks).collect();
        if base.running.contains_key(&cell.cell) || (apps.is_empty() && used_mb <= 0) {
            continue;
        }
        if apps.is_empty() {
            apps.push((format!("used-of-{}", cell.cell), 1, Kind::Lrp));
        }
        let count: i64 = apps.iter().map(|(_, count, _)| i64::from(*count)).sum();
        let used = |total: Option<i64>, left: Option<i64>| {
            total.zip(left).map_or(0, |(t, l)| (t - l).max(0))
        };
        let disk_mb = used(cell.total.disk_mb, cell.available.disk_mb);
        let cpu = (cell.total.cpu_millis - cell.available.cpu_millis).max(0);
        let mut jobs = Vec::new();
        for (app, instances, kind) in apps {
            for index in 0..instances {
                // the first instance gets the remainder
                let share = |all: i64| all / count + if jobs.is_empty() { all % count } else { 0 };
                let mut request = Request::new(app.as_str(), share(used_mb.max(0)), share(disk_mb));
                request.cpu_millis = share(cpu);
                request.kind = kind;
                jobs.push(Job {
                    request: Arc::new(request),
                    index,
                });
            }
        }
        base.running.insert(cell.cell.clone(), jobs);
    }
}
