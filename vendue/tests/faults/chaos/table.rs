//! The processes of instances, read from the machine's process table.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use shared::proc::Process;

/// The variable that marks the instances of one run.
pub(crate) const MARK: &str = "CHAOS";
/// The variable with the memory that an instance asked for, in MiB.
pub(crate) const MEMORY: &str = "CHAOS_MEMORY";
/// The variable with the version of an instance's app, if it has versions.
pub(crate) const VERSION: &str = "CHAOS_VERSION";

/// A process of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    /// In clock ticks since the machine booted.
    pub(crate) started_ticks: u64,
    pub(crate) app: String,
    pub(crate) index: u32,
    /// 0 if the app has no versions.
    pub(crate) version: u32,
    pub(crate) instance: String,
    pub(crate) cell: String,
    pub(crate) memory_mb: u64,
}

/// Returns the command of instances: a process that waits, and ends when the test's process ends in any way.
pub(crate) fn command() -> [String; 4] {
    let test = format!("--pid={}", std::process::id());
    ["tail".into(), test, "-f".into(), "/dev/null".into()]
}

/// Returns every process of the instances with this mark.
pub(crate) fn look(mark: &str) -> Vec<Found> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| read(&entry.path(), mark))
        .collect()
}

/// Reads a process. One that has ended meanwhile, or that may not be inspected, is not ours.
fn read(folder: &Path, mark: &str) -> Option<Found> {
    let pid: u32 = folder.file_name()?.to_str()?.parse().ok()?;
    let environment = fs::read(folder.join("environ")).ok()?;
    let variable = |name: &str| {
        let variables = environment.split(|byte| *byte == 0);
        let mut pairs =
            variables.filter_map(|pair| std::str::from_utf8(pair).ok()?.split_once('='));
        pairs.find_map(|(key, value)| (key == name).then(|| value.to_owned()))
    };
    if variable(MARK)? != mark {
        return None;
    }
    let process = Process::read(pid).filter(|process| !process.has_ended())?;
    Some(Found {
        pid,
        parent: process.parent,
        started_ticks: process.started_ticks,
        app: variable("APP")?,
        index: variable("INSTANCE_INDEX")?.parse().ok()?,
        version: variable(VERSION).map_or(Some(0), |text| text.parse().ok())?,
        instance: variable("INSTANCE_ID")?,
        cell: variable("CELL")?,
        memory_mb: variable(MEMORY)?.parse().ok()?,
    })
}

/// Returns the cells on which each instance has processes.
pub(crate) fn cells_by_instance(found: &[Found]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut cells: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for process in found {
        cells
            .entry(&process.instance)
            .or_default()
            .insert(&process.cell);
    }
    cells
}

/// Returns the memory in MiB that the instances of each cell asked for.
pub(crate) fn memory_by_cell(found: &[Found]) -> BTreeMap<&str, u64> {
    let instances: BTreeMap<_, _> = found
        .iter()
        .map(|process| ((&*process.cell, &*process.instance), process.memory_mb))
        .collect();
    let mut memory = BTreeMap::new();
    for ((cell, _), memory_mb) in instances {
        *memory.entry(cell).or_default() += memory_mb;
    }
    memory
}
