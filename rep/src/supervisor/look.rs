//! The limits that a supervisor enforces itself, by looking at its instance from time to time.

use std::time::{Duration, Instant};

use shared::proc::{Process, memory_kib};

use super::Orders;
use crate::{ledger::Limit, tree};

/// How often the processes and their memory are looked at.
const PROCESSES: Duration = Duration::from_millis(500);
/// How often the files are looked at …
const FILES: Duration = Duration::from_secs(5);
/// … unless that takes long: the pause is this many times as long as a look, so that looking takes
/// no more than a twentieth of a processor.
const FILES_PAUSE: u32 = 20;

/// When the supervisor looks next at what.
#[derive(Debug)]
pub(super) struct Looks {
    processes_at: Option<Instant>,
    files_at: Option<Instant>,
}

impl Looks {
    /// For an instance that starts now; a limit that the kernel enforces, or that there is not,
    /// needs no look.
    pub(super) fn new(orders: &Orders, now: Instant) -> Self {
        let processes = orders.watch_mb > 0 || orders.watch_processes > 0;
        Self {
            processes_at: processes.then(|| now + PROCESSES),
            files_at: (orders.disk_mb > 0).then(|| now + FILES),
        }
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.processes_at.into_iter().chain(self.files_at).min()
    }

    /// Looks at what is due; the limit that the instance exceeds.
    pub(super) fn look(
        &mut self,
        orders: &Orders,
        processes: impl FnOnce() -> Vec<Process>,
    ) -> Option<Limit> {
        let now = Instant::now();
        if self.processes_at.is_some_and(|at| at <= now) {
            self.processes_at = Some(now + PROCESSES);
            let processes = processes();
            if orders.watch_processes > 0 && processes.len() as u64 > orders.watch_processes {
                return Some(Limit::Processes);
            }
            if orders.watch_mb > 0 && resident_mb(&processes) > orders.watch_mb {
                return Some(Limit::Memory);
            }
        }
        if self.files_at.is_some_and(|at| at <= now) {
            let over = over_files(orders);
            let took = now.elapsed();
            self.files_at = Some(now + took + FILES.max(took * FILES_PAUSE));
            return over;
        }
        None
    }
}

fn over_files(orders: &Orders) -> Option<Limit> {
    // a directory that cannot be read is its owner's own doing only without root, and then it is
    // looked at again
    let usage = tree::measure(&orders.directory, tree::MOST_FILES).ok()?;
    if usage.bytes > orders.disk_mb.saturating_mul(1 << 20) {
        return Some(Limit::Disk);
    }
    usage.cut_short.then_some(Limit::Files)
}

/// The resident memory of these processes, MiB, without pages of files on disk; memory that they
/// share with each other is counted for each.
fn resident_mb(processes: &[Process]) -> u64 {
    let amount = |pid, name| memory_kib(pid, name).unwrap_or(0);
    let kib: u64 = processes
        .iter()
        .map(|process| amount(process.pid, "RssAnon") + amount(process.pid, "RssShmem"))
        .sum();
    kib / 1_024
}
