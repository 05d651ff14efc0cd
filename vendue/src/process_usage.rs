//! What a process of this machine uses, as the kernel accounts it.

use anyhow::Context;

/// Processor time of a process so far, in seconds (user and system).
pub(crate) fn cpu_seconds(pid: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("process {pid} has ended"))?;
    // the command's name may hold blanks; the numbers start after its last parenthesis
    let numbers = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let mut fields = numbers.split_whitespace().skip(11).map(str::parse::<f64>);
    match (fields.next(), fields.next()) {
        (Some(Ok(user)), Some(Ok(system))) => {
            Ok((user + system) / rustix::param::clock_ticks_per_second() as f64)
        }
        _ => anyhow::bail!("/proc/{pid}/stat has an unknown form"),
    }
}

/// Resident memory of a process, KiB.
pub(crate) fn resident_kib(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} has ended"))?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    line.and_then(|l| l.split_whitespace().next()?.parse().ok())
        .with_context(|| format!("/proc/{pid}/status has an unknown form"))
}

/// The most memory that this process held at a time, KiB; none where the kernel does not say.
pub(crate) fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The children of all threads of a process.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"));
    let files = threads
        .into_iter()
        .flatten()
        .flatten()
        .map(|t| t.path().join("children"));
    let texts: Vec<String> = files
        .filter_map(|f| std::fs::read_to_string(f).ok())
        .collect();
    texts
        .iter()
        .flat_map(|t| t.split_whitespace())
        .filter_map(|p| p.parse().ok())
        .collect()
}
