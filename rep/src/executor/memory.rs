//! How the memory limit of an instance is enforced: control groups version 2, else version 1, else
//! polling by the supervisor.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use crate::{config::MemoryLimit, supervisor::SUPERVISORS};

/// How limits are enforced on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// One control group per instance below this one, and the file for the limit.
    Cgroup {
        below: PathBuf,
        limit_file: &'static str,
    },
    /// The supervisor polls resident memory.
    Watch,
    /// Not enforced.
    Off,
}

const V2: &str = "/sys/fs/cgroup";
const V2_LIMIT: &str = "memory.max";
const V1: &str = "/sys/fs/cgroup/memory";
const V1_LIMIT: &str = "memory.limit_in_bytes";

impl Memory {
    /// The best way that works here, and a text with the reason for the log.
    pub(crate) fn choose(wanted: MemoryLimit, cell: &str) -> (Self, String) {
        match wanted {
            MemoryLimit::Off => (Self::Off, "memory limits not enforced".into()),
            MemoryLimit::Watch => (Self::Watch, "memory limits enforced by polling".into()),
            MemoryLimit::Auto => {
                let mut why = Vec::new();
                for (version, root, limit_file) in [(2, V2, V2_LIMIT), (1, V1, V1_LIMIT)] {
                    match prepare(Path::new(root), limit_file, cell) {
                        Ok(below) => {
                            let text = format!("memory limits enforced by cgroup v{version}");
                            return (Self::Cgroup { below, limit_file }, text);
                        }
                        Err(e) => why.push(format!("cgroup v{version}: {e}")),
                    }
                }
                let text = format!("memory limits enforced by polling ({})", why.join("; "));
                (Self::Watch, text)
            }
        }
    }

    /// A control group for one instance with this limit, MiB; none where there are none, or no
    /// limit (0).
    pub(crate) fn group(&self, name: &str, limit_mb: i64) -> io::Result<Option<PathBuf>> {
        match self {
            Self::Cgroup { below, limit_file } if limit_mb > 0 => {
                let group = below.join(name);
                make(&group)?;
                fs::write(group.join(limit_file), (limit_mb << 20).to_string())?;
                // without this, swap would extend the limit, and only one process of the instance
                // would be killed; only v2 has these files, and not every kernel accounts swap
                let _ = fs::write(group.join("memory.swap.max"), "0");
                let _ = fs::write(group.join("memory.oom.group"), "1");
                Ok(Some(group))
            }
            _ => Ok(None),
        }
    }

    /// Removes the groups; a group in use stays.
    pub(crate) fn close(&self) {
        if let Self::Cgroup { below, .. } = self {
            remove(below);
        }
    }
}

/// Distinguishes the cells of one process.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// `root/vendue/CELL.PID.N`, if groups with a limit can be made there.
fn prepare(root: &Path, limit_file: &str, cell: &str) -> io::Result<PathBuf> {
    sweep(&root.join("vendue"));
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{cell}.{}.{count}", std::process::id());
    let below = root.join("vendue").join(name);
    if limit_file == V2_LIMIT {
        let controllers = fs::read_to_string(root.join("cgroup.controllers"))?;
        if !controllers.split_whitespace().any(|c| c == "memory") {
            return Err(io::Error::other("no memory controller"));
        }
        make(&below)?;
        for group in [root, &root.join("vendue"), &below] {
            fs::write(group.join("cgroup.subtree_control"), "+memory")?;
        }
    } else if !root.join(limit_file).exists() {
        return Err(io::Error::other("no memory controller"));
    }
    make(&below.join(SUPERVISORS))?;
    let probe = below.join("probe");
    make(&probe)?;
    let limited = fs::write(probe.join(limit_file), (1_u64 << 30).to_string());
    fs::remove_dir(&probe)?;
    limited.map(|()| below)
}

/// Removes the groups of cells that were killed.
fn sweep(all_cells: &Path) {
    for cell in fs::read_dir(all_cells).into_iter().flatten().flatten() {
        let name = cell.file_name();
        let pid = name.to_str().and_then(|name| name.split('.').nth(1));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            remove(&cell.path());
        }
    }
}

/// Removes a cell's group and its subgroups; a group in use stays.
fn remove(cell: &Path) {
    for group in fs::read_dir(cell).into_iter().flatten().flatten() {
        // its files belong to the kernel and cannot be removed
        let _ = fs::remove_dir(group.path());
    }
    let _ = fs::remove_dir(cell);
}

fn make(group: &Path) -> io::Result<()> {
    fs::create_dir_all(group)
}
