//! Enforces the memory limits of instances: by control groups version 2, else version 1, else by polling in the
//! supervisor. Control groups version 2 also limit processes.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use uuid::Uuid;

use crate::{config::MemoryLimit, leftovers, supervisor::SUPERVISORS};

/// How limits are enforced on this machine.
#[derive(Clone, Debug)]
pub(crate) enum Groups {
    /// By one control group per instance below this one.
    Cgroup(Arc<Cgroup>),
    /// By polling of resident memory in the supervisor.
    Watch,
    /// Not enforced.
    Off,
}

/// The control group of a rep.
#[derive(Debug)]
pub(crate) struct Cgroup {
    version: Version,
    below: PathBuf,
    /// Locked while the rep lives.
    _lock: File,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

impl Version {
    fn root(self) -> &'static Path {
        Path::new(match self {
            Self::V1 => "/sys/fs/cgroup/memory",
            Self::V2 => "/sys/fs/cgroup",
        })
    }

    fn limit_file(self) -> &'static str {
        match self {
            Self::V1 => "memory.limit_in_bytes",
            Self::V2 => "memory.max",
        }
    }
}

/// The parent group of all reps' groups.
const ALL: &str = "vendue";
/// The prefix of the names of reps' groups.
const PREFIX: &str = "rep-";

impl Groups {
    /// Returns the best way that works here, and a text with the reason for the log.
    pub(crate) fn choose(wanted: MemoryLimit, cell: &str) -> (Self, String) {
        match wanted {
            MemoryLimit::Off => (Self::Off, "memory limits not enforced".into()),
            MemoryLimit::Watch => (Self::Watch, "memory limits enforced by polling".into()),
            MemoryLimit::Auto => {
                let mut why = Vec::new();
                for version in [Version::V2, Version::V1] {
                    let name = format!("{version:?}").to_lowercase();
                    match Cgroup::make(version, cell) {
                        Ok(group) => {
                            let text = format!("memory limits enforced by cgroup {name}");
                            return (Self::Cgroup(Arc::new(group)), text);
                        }
                        Err(e) => why.push(format!("cgroup {name}: {e}")),
                    }
                }
                let text = format!("memory limits enforced by polling ({})", why.join("; "));
                (Self::Watch, text)
            }
        }
    }

    /// Creates a control group for one instance with these limits (memory in MiB, 0 = none); none if control groups are
    /// not used. Also returns whether the group limits processes.
    pub(crate) fn group(
        &self,
        name: &str,
        limit_mb: u64,
        max_processes: u64,
    ) -> io::Result<(Option<PathBuf>, bool)> {
        let Self::Cgroup(cgroup) = self else {
            return Ok((None, false));
        };
        let group = cgroup.below.join(name);
        make(&group)?;
        if limit_mb > 0 {
            let bytes = limit_mb.saturating_mul(1 << 20);
            fs::write(group.join(cgroup.version.limit_file()), bytes.to_string())?;
        }
        // otherwise swap would extend the limit, and only one process of the instance would be killed; only v2 has
        // these files, and not every kernel accounts for swap
        let _ = fs::write(group.join("memory.swap.max"), "0");
        let _ = fs::write(group.join("memory.oom.group"), "1");
        // only v2 has this in the same group, if the controller is enabled for this part of the tree. One more than
        // allowed, because the supervisor starts the command inside the group
        let pids = fs::write(group.join("pids.max"), (max_processes + 1).to_string());
        Ok((Some(group), pids.is_ok()))
    }

    /// Kills and removes what reps that are gone have left.
    pub(crate) fn sweep(&self) {
        if let Self::Cgroup(cgroup) = self {
            sweep(&cgroup.version.root().join(ALL));
        }
    }

    /// Removes the groups, except those in use.
    pub(crate) fn close(&self) {
        if let Self::Cgroup(cgroup) = self {
            remove(&cgroup.below);
        }
    }
}

impl Cgroup {
    /// Creates `root/vendue/rep-CELL-ID`, if groups with a limit can be created there.
    fn make(version: Version, cell: &str) -> io::Result<Self> {
        let root = version.root();
        let all = root.join(ALL);
        let below = all.join(format!("{PREFIX}{cell}-{}", Uuid::new_v4().simple()));
        if version == Version::V2 {
            let controllers = fs::read_to_string(root.join("cgroup.controllers"))?;
            if !controllers.split_whitespace().any(|c| c == "memory") {
                return Err(io::Error::other("no memory controller"));
            }
        } else if !root.join(version.limit_file()).exists() {
            return Err(io::Error::other("no memory controller"));
        }
        make(&all)?;
        // locked, so that nobody sweeps between creating the group and locking it
        let all_locked = File::open(&all)?;
        all_locked.lock()?;
        make(&below)?;
        let lock = File::open(&below)?;
        lock.try_lock_shared()?;
        drop(all_locked);
        if version == Version::V2 {
            for group in [root, &all, &below] {
                fs::write(group.join("cgroup.subtree_control"), "+memory")?;
                // limits processes, if the controller is available
                let _ = fs::write(group.join("cgroup.subtree_control"), "+pids");
            }
        }
        make(&below.join(SUPERVISORS))?;
        let probe = below.join("probe");
        make(&probe)?;
        let limited = fs::write(probe.join(version.limit_file()), (1_u64 << 30).to_string());
        fs::remove_dir(&probe)?;
        limited.map(|()| Self {
            version,
            below,
            _lock: lock,
        })
    }
}

/// Kills and removes what is in the groups of reps that are gone.
fn sweep(all: &Path) {
    let Ok(all_locked) = File::open(all) else {
        return;
    };
    if all_locked.try_lock().is_err() {
        return;
    }
    for rep in fs::read_dir(all).into_iter().flatten().flatten() {
        let ours = rep
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes());
        let abandoned = || File::open(rep.path()).is_ok_and(|group| group.try_lock().is_ok());
        if !ours || !abandoned() {
            continue;
        }
        for group in fs::read_dir(rep.path()).into_iter().flatten().flatten() {
            // supervisors end by themselves and clean up
            if group.file_name() != SUPERVISORS && group.path().is_dir() {
                kill(&group.path());
            }
        }
        remove(&rep.path());
    }
}

/// Kills all processes of a group until none is left; returns false if some could not be killed.
pub(crate) fn kill(group: &Path) -> bool {
    // with version 2 on Linux 5.14 or newer, all at once; otherwise one by one
    let _ = fs::write(group.join("cgroup.kill"), "1");
    leftovers::kill_all(|| {
        let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        let members = members.lines().filter_map(|pid| pid.parse().ok());
        // 0 stands for a process outside our namespace
        members.filter(|pid| *pid > 0).collect()
    })
}

/// Removes a rep's group and its subgroups, except those in use.
fn remove(rep: &Path) {
    for group in fs::read_dir(rep).into_iter().flatten().flatten() {
        // only the directory: its files belong to the kernel and cannot be removed
        let _ = fs::remove_dir(group.path());
    }
    let _ = fs::remove_dir(rep);
}

fn make(group: &Path) -> io::Result<()> {
    fs::create_dir_all(group)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt, process::Command};

    use super::*;

    /// Returns both versions, as far as this machine has them and lets us create groups; that needs root.
    fn roots() -> Vec<PathBuf> {
        [
            "/sys/fs/cgroup/memory",
            "/sys/fs/cgroup/unified",
            "/sys/fs/cgroup",
        ]
        .map(|root| Path::new(root).join(format!("test-{}", Uuid::new_v4())))
        .into_iter()
        .filter(|all| {
            let made = all
                .parent()
                .is_some_and(|root| root.join("cgroup.procs").exists());
            made && fs::create_dir(all).is_ok()
        })
        .collect()
    }

    #[test]
    fn the_processes_of_a_rep_that_is_gone_are_killed_and_its_groups_removed() {
        for all in roots() {
            let [gone, lives] = ["rep-gone", "rep-lives"].map(|name| all.join(name));
            make(&gone.join(SUPERVISORS)).unwrap();
            make(&gone.join("instance-0")).unwrap();
            make(&lives.join("instance-0")).unwrap();
            let held = File::open(&lives).unwrap();
            held.try_lock_shared().unwrap();
            let start = |group: &Path| {
                let child = Command::new("sleep").arg("60").spawn().unwrap();
                let members = group.join("instance-0/cgroup.procs");
                fs::write(members, child.id().to_string()).unwrap();
                child
            };
            let (mut dead, mut alive) = (start(&gone), start(&lives));
            // a process that has ended remains a member until it is reaped
            let waits = std::thread::spawn(move || dead.wait().unwrap().signal());
            sweep(&all);
            assert_eq!(waits.join().unwrap(), Some(9), "{}", all.display());
            assert!(alive.try_wait().unwrap().is_none());
            assert!(!gone.exists(), "{}", all.display());
            alive.kill().unwrap();
            alive.wait().unwrap();
            drop(held);
            sweep(&all);
            assert!(!lives.exists());
            fs::remove_dir(&all).unwrap();
        }
    }
}
