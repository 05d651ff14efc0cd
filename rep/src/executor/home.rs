//! The directory that contains the directories of a rep's instances.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

use crate::{config::ProcessConfig, leftovers, tree};

/// The prefix of its name.
const PREFIX: &str = "vendue-instances-";
/// How often to create another one if a rep that starts at the same moment removed it.
const TRIES: u32 = 10;

/// A new directory for the instances of one run of a rep; removed on drop.
///
/// The rep and its supervisors hold a lock on it. Once they are all gone, the next rep that starts in the same place
/// ends and removes what is in it.
#[derive(Debug)]
pub(crate) struct Home {
    base: PathBuf,
    directory: PathBuf,
    _lock: File,
}

impl Home {
    /// Creates one in the configured directory, or else in the system's temporary directory.
    pub(crate) fn make(process: &ProcessConfig, cell: &str) -> io::Result<Self> {
        let base = match &process.state_dir {
            Some(given) => {
                let instances = given.join("instances");
                fs::create_dir_all(&instances)?;
                instances.canonicalize()?
            }
            None => std::env::temp_dir(),
        };
        for _ in 0..TRIES {
            // others may pass through to their own directories, but not list them
            let directory = tempfile::Builder::new()
                .prefix(&format!("{PREFIX}{cell}-"))
                .permissions(fs::Permissions::from_mode(0o711))
                .tempdir_in(&base)?
                .keep();
            let lock = File::open(&directory);
            if let Ok(lock) = lock
                && lock.try_lock_shared().is_ok()
                && tree::is_at(&lock, &directory)
            {
                return Ok(Self {
                    base,
                    directory,
                    _lock: lock,
                });
            }
        }
        Err(io::Error::other("it is removed again and again"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }

    /// Ends and removes what is left of reps that were killed together with supervisors.
    pub(crate) fn sweep(&self) {
        let entries = fs::read_dir(&self.base).into_iter().flatten().flatten();
        for entry in entries {
            if entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(PREFIX.as_bytes())
            {
                sweep_one(&entry.path());
            }
        }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // the next rep tries to remove what supervisors could not remove
        let _ = fs::remove_dir(&self.directory);
    }
}

fn sweep_one(home: &Path) {
    let Some(lock) = abandoned(home) else {
        return;
    };
    let instances = fs::read_dir(home).into_iter().flatten().flatten();
    let instances: Vec<PathBuf> = instances.map(|entry| entry.path()).collect();
    // a rep that was killed without instances leaves only this directory
    if !instances.is_empty() {
        tracing::warn!(
            directory = %home.display(),
            instances = instances.len(),
            "ending processes and removing files that a killed rep left"
        );
        leftovers::kill_all(|| leftovers::processes_in(&instances));
    }
    if let Err(error) = tree::remove(home) {
        tracing::warn!(directory = %home.display(), %error, "cannot remove");
    }
    drop(lock);
}

/// Returns the locked directory if it was created by a rep of our user and that rep and its supervisors are gone.
fn abandoned(home: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(home, flags, Mode::empty()).ok()?);
    let ours = file.metadata().ok()?.uid() == rustix::process::geteuid().as_raw();
    (ours && file.try_lock().is_ok() && tree::is_at(&file, home)).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_holds_is_swept() {
        let state = tempfile::tempdir().unwrap();
        let process = ProcessConfig {
            state_dir: Some(state.path().into()),
            ..ProcessConfig::default()
        };
        let used = Home::make(&process, "a").unwrap();
        let other = Home::make(&process, "a").unwrap();
        fs::create_dir(used.path().join("instance-0")).unwrap();
        let killed = used.path().with_file_name("vendue-instances-a-killed");
        fs::create_dir_all(killed.join("instance-0/below")).unwrap();
        let foreign = used.path().with_file_name("foreign");
        fs::create_dir(&foreign).unwrap();
        other.sweep();
        assert!(!killed.exists());
        assert!(used.path().join("instance-0").exists() && foreign.exists());
        // what a supervisor holds is swept only after the supervisor was killed
        fs::create_dir(&killed).unwrap();
        let supervisor = File::open(&killed).unwrap();
        supervisor.lock_shared().unwrap();
        other.sweep();
        assert!(killed.exists());
        drop(supervisor);
        other.sweep();
        assert!(!killed.exists());
        let path = other.path().to_owned();
        drop(other);
        assert!(!path.exists());
    }
}
