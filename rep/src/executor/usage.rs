//! Measures what instances use: the memory and processor time of all their processes, read from `/proc`.

use std::{
    collections::{BTreeMap, HashMap},
    time::{Duration, Instant},
};

use placement::Usage;
use shared::{
    InstanceId,
    proc::{Process, descendants, memory_kib},
};

use crate::ledger::RunningProcess;

/// Clock ticks of each process, by its id and start time, as ids are reused.
type Ticks = BTreeMap<(u32, u64), u64>;

/// Remembers the last reading, because processor time is a difference.
#[derive(Debug, Default)]
pub(super) struct Meter {
    last: HashMap<(InstanceId, u32), (Instant, Ticks)>,
}

impl Meter {
    /// Measures these processes, and forgets all others. An instance that was not measured before, or whose processes
    /// are gone, has no result.
    pub(super) fn measure(&mut self, all: &[RunningProcess]) -> Vec<(RunningProcess, Usage)> {
        let mut before = std::mem::take(&mut self.last);
        let mut found = Vec::new();
        for one in all {
            let processes = processes_of(one.pid);
            if processes.is_empty() {
                continue;
            }
            let now = Instant::now();
            let key = |p: &Process| ((p.pid, p.started_ticks), p.cpu_ticks);
            let ticks: Ticks = processes.iter().map(key).collect();
            let run = (one.instance, one.attempt);
            if let Some((then, earlier)) = before.remove(&run) {
                let usage = Usage {
                    memory_mb: resident_mb(&processes),
                    cpu_millis: cpu_millis(&earlier, &ticks, now - then),
                };
                found.push((*one, usage));
            }
            self.last.insert(run, (now, ticks));
        }
        found
    }
}

/// Returns all processes of an instance: those below its supervisor, which is the parent of the main process and adopts
/// orphans.
fn processes_of(main: u32) -> Vec<Process> {
    let Some(process) = Process::read(main) else {
        return Vec::new();
    };
    if process.parent > 1 && process.parent != std::process::id() {
        return descendants(process.parent);
    }
    let mut all = descendants(main);
    all.push(process);
    all
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

/// Returns the processor time between two readings, in thousandths of a core. That of processes that ended in between
/// is lost.
fn cpu_millis(earlier: &Ticks, now: &Ticks, passed: Duration) -> i64 {
    let used = now.iter().map(|(process, ticks)| {
        let before = earlier.get(process).copied().unwrap_or(0);
        ticks.saturating_sub(before)
    });
    let ticks: u64 = used.sum();
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
    fn processor_time_is_counted_by_process() {
        let second = rustix::param::clock_ticks_per_second();
        let earlier = Ticks::from([((1, 7), 10), ((2, 7), 1_000)]);
        // process 2 has ended, and another one has its id
        let now = Ticks::from([((1, 7), 10 + second), ((2, 9), second / 2)]);
        let used = |passed| cpu_millis(&earlier, &now, Duration::from_millis(passed));
        assert_eq!((used(1_000), used(10_000)), (1_500, 150));
        assert_eq!(cpu_millis(&now, &now, Duration::from_secs(1)), 0);
        assert!(cpu_millis(&earlier, &now, Duration::ZERO) > 0);
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
