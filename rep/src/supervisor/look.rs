//! Enforces limits by checking an instance periodically.

use std::time::{Duration, Instant};

use shared::proc::{Process, memory_kib};

use super::Orders;
use crate::{ledger::Limit, tree};

/// How often the processes and their memory are checked.
const PROCESSES: Duration = Duration::from_millis(500);
/// How often the files are checked, unless that takes long; see [`FILES_PAUSE`].
const FILES: Duration = Duration::from_secs(5);
/// The pause between checks of files is at least this many times as long as a check, so that checks take at most a
/// twentieth of a processor.
const FILES_PAUSE: u32 = 20;

/// When the supervisor makes the next check of each kind.
#[derive(Debug)]
pub(super) struct Looks {
    processes_at: Option<Instant>,
    files_at: Option<Instant>,
}

impl Looks {
    /// Creates the schedule for an instance that starts now. Limits that the kernel enforces, or that do not exist,
    /// need no checks.
    pub(super) fn new(orders: &Orders, now: Instant) -> Self {
        let processes = orders.watch_mb > 0 || orders.watch_processes > 0;
        Self {
            processes_at: processes.then(|| now + PROCESSES),
            files_at: (orders.disk_mb > 0).then(|| now + FILES),
        }
    }

    /// Returns when the next check is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.processes_at.into_iter().chain(self.files_at).min()
    }

    /// Makes the checks that are due. Returns the limit that the instance exceeds.
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
    // without root, the directory can be unreadable, which is its owner's own doing; it is checked again later
    let usage = tree::measure(&orders.directory, tree::MOST_FILES).ok()?;
    if usage.bytes > orders.disk_mb.saturating_mul(1 << 20) {
        return Some(Limit::Disk);
    }
    usage.cut_short.then_some(Limit::Files)
}

/// Returns the resident memory of these processes in MiB, without pages of files on disk; memory that processes share
/// is counted for each.
fn resident_mb(processes: &[Process]) -> u64 {
    let amount = |pid, name| memory_kib(pid, name).unwrap_or(0);
    let kib: u64 = processes
        .iter()
        .map(|process| amount(process.pid, "RssAnon") + amount(process.pid, "RssShmem"))
        .sum();
    kib / 1_024
}
