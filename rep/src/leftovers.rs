//! Finds and removes what an instance may leave on its machine: processes, and files outside its directory. They are
//! found by the user if the instance has one of its own.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use shared::proc::{self, Process};

use crate::tree;

/// Directories in which every user may write.
const PUBLIC: [&str; 4] = ["/dev/shm", "/dev/mqueue", "/tmp", "/var/tmp"];
/// The most entries that are examined in each.
const LOOKED_AT: usize = 10_000;
/// How long processes may take to die.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// Removes the files and directories of these users directly below the public directories.
pub(crate) fn remove_files(users: &[u32]) {
    for directory in PUBLIC {
        let entries = fs::read_dir(directory).into_iter().flatten();
        for entry in entries.take(LOOKED_AT).flatten() {
            // for a link, the owner of the link itself
            if entry.metadata().is_ok_and(|m| users.contains(&m.uid())) {
                let _ = tree::remove(&entry.path());
            }
        }
    }
}

/// Kills these processes until none is found; returns false if some could not be killed.
pub(crate) fn kill_all(find: impl FnMut() -> Vec<u32>) -> bool {
    kill_within(PATIENCE, find)
}

fn kill_within(patience: Duration, mut find: impl FnMut() -> Vec<u32>) -> bool {
    let give_up = Instant::now() + patience;
    loop {
        let found = find();
        for pid in &found {
            if let Some(pid) = i32::try_from(*pid).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        if found.is_empty() {
            return true;
        }
        if Instant::now() > give_up {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns the processes of these users that have not ended.
pub(crate) fn processes_of(users: &[u32]) -> Vec<u32> {
    let theirs = |pid: &u32| proc::user(*pid).is_some_and(|user| users.contains(&user));
    proc::every()
        .filter(|pid| theirs(pid) && lives(*pid))
        .collect()
}

/// Returns the processes that were started for an instance with one of these directories and that belong to its owner.
pub(crate) fn processes_in(directories: &[PathBuf]) -> Vec<u32> {
    let owned: Vec<(u32, &Path)> = directories
        .iter()
        .filter_map(|directory| {
            let metadata = fs::symlink_metadata(directory).ok()?;
            Some((metadata.uid(), directory.as_path()))
        })
        .collect();
    let own = std::process::id();
    let belongs = |pid: u32| {
        let Some(user) = proc::user(pid) else {
            return false;
        };
        let mut of_user = owned.iter().filter(|(owner, _)| *owner == user).peekable();
        if of_user.peek().is_none() {
            return false;
        }
        let environment = proc::environment(pid);
        of_user.any(|(_, directory)| names(&environment, directory))
    };
    proc::every()
        .filter(|pid| *pid != own && belongs(*pid) && lives(*pid))
        .collect()
}

/// Returns whether an environment belongs to the instance with this directory: by `HOME` or `TMPDIR` or, if the request
/// set those, by the instance's id.
fn names(environment: &[u8], directory: &Path) -> bool {
    let path = directory.as_os_str().as_encoded_bytes();
    let name = directory.file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    let id = name.rsplit_once('-').map_or("", |(id, _)| id);
    environment.split(|byte| *byte == 0).any(|variable| {
        let of = |name: &[u8]| variable.strip_prefix(name);
        of(b"HOME=").or(of(b"TMPDIR=")) == Some(path)
            || (!id.is_empty() && of(b"INSTANCE_ID=") == Some(id.as_bytes()))
    })
}

/// Returns whether this process has not ended; a zombie has.
pub(crate) fn lives(pid: u32) -> bool {
    Process::read(pid).is_some_and(|process| !process.has_ended())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Needs root, to have a process that a thread of another user may not kill.
    #[test]
    fn a_process_that_must_not_be_killed_is_reported_as_left() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let killed = std::thread::spawn(move || {
            let nobody = rustix::fs::Uid::from_raw(65_534);
            rustix::thread::set_thread_uid(nobody).unwrap();
            kill_within(Duration::ZERO, || vec![pid])
        });
        assert!(!killed.join().unwrap());
        assert!(child.try_wait().unwrap().is_none(), "it lives");
        // a process that has ended remains until it is reaped
        let mut find = || match child.try_wait() {
            Ok(None) => vec![pid],
            _ => Vec::new(),
        };
        assert!(kill_within(PATIENCE, &mut find));
    }

    #[test]
    fn a_process_is_found_by_what_it_was_started_with_and_killed() {
        let home = tempfile::tempdir().unwrap();
        let [mine, other] = ["0000-1111-0", "0000-2222-0"].map(|name| home.path().join(name));
        fs::create_dir(&mine).unwrap();
        let start = |name: &str, value: &Path| {
            let mut command = Command::new("sleep");
            command.arg("60").env_clear().env("PATH", "/bin:/usr/bin");
            let child = command.env(name, value).spawn().unwrap();
            // it has no environment for a moment while it is being executed
            while proc::environment(child.id()).is_empty() {}
            child
        };
        let mut found = [
            start("TMPDIR", &mine),
            start("INSTANCE_ID", Path::new("0000-1111")),
        ];
        let mut others = [
            start("TMPDIR", &other),
            start("INSTANCE_ID", Path::new("0000-2222")),
        ];
        let theirs = || processes_in(std::slice::from_ref(&mine));
        let mut pids = theirs();
        pids.sort_unstable();
        let mut expected: Vec<u32> = found.iter().map(std::process::Child::id).collect();
        expected.sort_unstable();
        assert_eq!(pids, expected);
        assert!(kill_all(theirs));
        for child in &mut found {
            child.wait().unwrap();
        }
        for child in &mut others {
            assert!(child.try_wait().unwrap().is_none());
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
