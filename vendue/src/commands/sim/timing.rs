//! Real time, processor time and memory of a simulation, which are never part of its report.

use std::{fmt, time::Instant};

use serde::Serialize;
use simulator::outcome::SimRun;

use crate::process_usage;

/// The measurements of one run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Timing {
    policy: String,
    seconds: f64,
    cpu_seconds: f64,
    virtual_seconds: f64,
    /// Virtual time divided by real time.
    times_real_time: f64,
    /// Instances that got their outcome, per second of real time.
    decisions_per_second: f64,
    /// The peak memory of the process during the run.
    peak_memory_mib: Option<f64>,
}

/// Starts to measure.
pub(super) struct Stopwatch {
    start: Instant,
    cpu_seconds: f64,
}

impl Stopwatch {
    pub(super) fn start() -> Self {
        // resets the peak; if the kernel does not allow that, the peak covers all runs so far
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        Self {
            start: Instant::now(),
            cpu_seconds: cpu_seconds(),
        }
    }

    pub(super) fn stop(self, run: &SimRun) -> Timing {
        let seconds = self.start.elapsed().as_secs_f64();
        let virtual_seconds = run.figures.virtual_ms as f64 / 1_000.0;
        let decided = run.figures.placed + run.figures.unplaced;
        Timing {
            policy: run.policy.clone(),
            seconds,
            cpu_seconds: cpu_seconds() - self.cpu_seconds,
            virtual_seconds,
            times_real_time: virtual_seconds / seconds.max(1e-9),
            decisions_per_second: decided as f64 / seconds.max(1e-9),
            peak_memory_mib: process_usage::peak_kib().map(|kib| kib as f64 / 1_024.0),
        }
    }
}

fn cpu_seconds() -> f64 {
    process_usage::cpu_seconds(std::process::id()).unwrap_or(0.0)
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {:.1} s of virtual time in {:.2} s ({:.2} s processor time), {:.0} decisions/s",
            self.policy,
            self.virtual_seconds,
            self.seconds,
            self.cpu_seconds,
            self.decisions_per_second
        )?;
        match self.peak_memory_mib {
            Some(mib) => write!(f, ", peak {mib:.0} MiB"),
            None => Ok(()),
        }
    }
}
