//! What a process of this machine uses, as the kernel accounts it.

use anyhow::Context;
use shared::proc::{self, Process};

/// Processor time of a process so far, in seconds (user and system).
pub(crate) fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let process = Process::read(pid).with_context(|| format!("process {pid} has ended"))?;
    Ok(process.cpu_ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Resident memory of a process, KiB.
pub(crate) fn resident_kib(pid: u32) -> anyhow::Result<u64> {
    proc::memory_kib(pid, "VmRSS").with_context(|| format!("process {pid} has ended"))
}

/// The most memory that this process held at a time, KiB; none where the kernel does not say.
pub(crate) fn peak_kib() -> Option<u64> {
    proc::memory_kib(std::process::id(), "VmHWM")
}
