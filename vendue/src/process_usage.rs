//! The resource usage of a process on this machine, according to the kernel.

use anyhow::Context;
use shared::proc::{self, Process};

/// Returns the processor time of a process so far, in seconds (user and system).
pub(crate) fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let process = Process::read(pid).with_context(|| format!("process {pid} has ended"))?;
    Ok(process.cpu_ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns the resident memory of a process, in KiB.
pub(crate) fn resident_kib(pid: u32) -> anyhow::Result<u64> {
    proc::memory_kib(pid, "VmRSS").with_context(|| format!("process {pid} has ended"))
}

/// Returns the peak memory of this process, in KiB; none if the kernel does not provide it.
pub(crate) fn peak_kib() -> Option<u64> {
    proc::memory_kib(std::process::id(), "VmHWM")
}
