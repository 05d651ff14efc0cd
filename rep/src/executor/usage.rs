//! Measures what instances use: the memory and processor time of all their processes, read from `/proc`.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use placement::Usage;
use shared::{
    InstanceId,
    proc::{Process, descendants, memory_kib},
};

use crate::ledger::RunningProcess;

/// Remembers the last reading, because processor time is a difference: when it was, and the clock ticks until then.
#[derive(Debug, Default)]
pub(super) struct Meter {
    last: HashMap<(InstanceId, u32), (Instant, u64)>,
}

impl Meter {
    /// Measures these processes, and forgets all others. An instance that was not measured before, or whose processes
    /// are gone, has no result.
    pub(super) fn measure(&mut self, all: &[RunningProcess]) -> Vec<(RunningProcess, Usage)> {
        let mut before = std::mem::take(&mut self.last);
        let mut found = Vec::new();
        for one in all {
            let Some((processes, mut ticks)) = processes_of(one.pid) else {
                continue;
            };
            let now = Instant::now();
            let run = (one.instance, one.attempt);
            if let Some((then, earlier)) = before.remove(&run) {
                // a process that ends while they are read may be missing from this reading
                ticks = ticks.max(earlier);
                let usage = Usage {
                    memory_mb: resident_mb(&processes),
                    cpu_millis: cpu_millis(ticks - earlier, now - then),
                };
                found.push((*one, usage));
            }
            self.last.insert(run, (now, ticks));
        }
        found
    }
}

/// Returns all processes of an instance, and the clock ticks that they and those that have ended used: the processes
/// below its supervisor, which is the parent of the main process and adopts orphans. None if all are gone.
fn processes_of(main: u32) -> Option<(Vec<Process>, u64)> {
    let process = Process::read(main)?;
    let supervised = process.parent > 1 && process.parent != std::process::id();
    let (processes, above) = if supervised {
        // read before its children: one that ends in between is counted once
        let supervisor = Process::read(process.parent)?;
        (descendants(supervisor.pid), supervisor.ended_ticks)
    } else {
        let mut all = descendants(main);
        all.push(process);
        (all, 0)
    };
    let ticks = processes.iter().map(|p| p.cpu_ticks + p.ended_ticks);
    let ticks = above + ticks.sum::<u64>();
    (!processes.is_empty()).then_some((processes, ticks))
}

/// Returns the memory that belongs to no file, in MiB; memory that processes share is counted for each.
fn resident_mb(processes: &[Process]) -> i64 {
    let amount = |pid, name| memory_kib(pid, name).unwrap_or(0);
    let kib: u64 = processes
        .iter()
        .map(|process| amount(process.pid, "RssAnon") + amount(process.pid, "RssShmem"))
        .sum();
    i64::try_from(kib.div_ceil(1_024)).unwrap_or(i64::MAX)
}

/// Converts the clock ticks that were used in this time to thousandths of a core.
fn cpu_millis(ticks: u64, passed: Duration) -> i64 {
    let in_second = rustix::param::clock_ticks_per_second().max(1);
    let passed_ms = u64::try_from(passed.as_millis()).unwrap_or(u64::MAX).max(1);
    let millis = ticks.saturating_mul(1_000_000) / in_second / passed_ms;
    i64::try_from(millis).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn clock_ticks_are_thousandths_of_a_core() {
        let second = rustix::param::clock_ticks_per_second();
        assert_eq!(cpu_millis(second, Duration::from_secs(1)), 1_000);
        assert_eq!(cpu_millis(second * 3 / 2, Duration::from_secs(10)), 150);
        assert_eq!(cpu_millis(0, Duration::from_secs(1)), 0);
        assert!(cpu_millis(1, Duration::ZERO) > 0);
    }

    /// As scripts do that call one program after the other: none of them is there at two readings.
    #[test]
    fn the_time_of_processes_that_have_ended_in_between_counts() {
        let script = "while :; do sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; done";
        let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
        let own = || Process::read(child.id()).unwrap().cpu_ticks;
        let (deadline, mut ticks) = (Instant::now() + Duration::from_secs(60), 0);
        while ticks < own() + 20 {
            assert!(Instant::now() < deadline, "{ticks} ticks");
            ticks = processes_of(child.id()).unwrap().1;
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_process_is_measured_from_the_second_look_on() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let one = RunningProcess {
            instance: uuid::Uuid::from_u128(1).into(),
            attempt: 0,
            pid: child.id(),
        };
        let mut meter = Meter::default();
        assert_eq!(meter.measure(&[one]), []);
        let found = meter.measure(&[one]);
        assert_eq!((found.len(), found[0].0), (1, one));
        assert!(found[0].1.memory_mb < 100, "{found:?}");
        // the next attempt is a different run, and a process that is gone uses nothing
        assert_eq!(meter.measure(&[RunningProcess { attempt: 1, ..one }]), []);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(meter.measure(&[one]), []);
        assert!(meter.last.is_empty());
    }
}
