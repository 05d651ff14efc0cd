//! The users that instances run as.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::PathBuf,
};

use rustix::fs::{FlockOperation, flock};
use shared::proc;

use super::{ExecutorError, accounts};
use crate::{config::ProcessConfig, leftovers};

/// The directory in which all reps of a machine see which users are in use. It has one file per user: locked while any
/// part of its instance may be alive, and not empty while something may be left of it.
const LOCKS: &str = "/run/vendue/users";

/// Which users instances run as.
#[derive(Debug)]
pub(crate) enum Users {
    /// The rep's own, because only root can choose another one.
    Own,
    /// The same configured user for all.
    One(u32, u32),
    /// A different user for each.
    Each(UserRange),
}

/// A range of users, one per instance. The least recently used one is tried first.
#[derive(Debug)]
pub(crate) struct UserRange {
    locks: PathBuf,
    first: u32,
    count: u32,
    next: u32,
}

/// The user of an instance.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// The lock, if the user is exclusive to the instance.
    pub(crate) own: Option<UserLock>,
}

/// Keeps a user from other instances until both this is dropped and the supervisor has ended.
#[derive(Debug)]
pub(crate) struct UserLock {
    file: File,
    pub(crate) path: PathBuf,
}

impl Users {
    /// Returns the configured users, if this rep can run instances as them.
    pub(crate) fn choose(process: &ProcessConfig, cell: &str) -> Result<Self, ExecutorError> {
        let own = rustix::process::geteuid().as_raw();
        let run_as = process.run_as.as_deref();
        if own == 0 && run_as.is_none() {
            let (first, last) = process.users;
            accounts::check_range(first, last)?;
            return Ok(Self::Each(UserRange::new(LOCKS.into(), first, last, cell)));
        }
        let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
        choose_from(run_as, own, &accounts)
    }

    /// Logs which users they are, and what is weaker than it could be.
    pub(crate) fn log(&self, cell: &str) {
        match self {
            Self::Own => tracing::warn!(
                cell,
                "instances run as the rep's own user, as it is not root: they can signal it, and \
                 signal each other and read each other's files and memory"
            ),
            Self::One(uid, gid) => tracing::warn!(
                cell,
                "instances all run as {uid}:{gid} (run-as): they can signal each other, and read \
                 each other's files and memory"
            ),
            Self::Each(range) => tracing::info!(
                cell,
                "each instance runs as a user of its own, of {}-{}",
                range.first,
                range.first + (range.count - 1)
            ),
        }
    }

    /// Returns the user of the next instance; none stands for the rep's own.
    pub(crate) fn take(&mut self) -> Result<Option<User>, String> {
        match self {
            Self::Own => Ok(None),
            Self::One(uid, gid) => Ok(Some(User {
                uid: *uid,
                gid: *gid,
                own: None,
            })),
            Self::Each(range) => range.take().map(Some),
        }
    }

    /// Ends what is left of instances whose rep and supervisor are gone.
    pub(crate) fn sweep(&self) {
        if let Self::Each(range) = self {
            range.sweep();
        }
    }

    /// Creates the directory in which the reps of this machine lock users.
    pub(crate) fn make_locks(&self) -> Result<(), ExecutorError> {
        let Self::Each(range) = self else {
            return Ok(());
        };
        let mut private = DirBuilder::new();
        let made = private.recursive(true).mode(0o700).create(&range.locks);
        made.map_err(|source| ExecutorError::Directory {
            directory: Some(range.locks.clone()),
            source,
        })
    }

    /// Rejects users that other programs on the machine run as.
    pub(crate) fn check_unused(&self) -> Result<(), ExecutorError> {
        let Self::Each(range) = self else {
            return Ok(());
        };
        let last = range.first + (range.count - 1);
        for pid in proc::every() {
            let user = proc::user(pid).filter(|user| (range.first..=last).contains(user));
            if let Some(user) = user.filter(|user| range.is_foreign(pid, *user)) {
                return Err(ExecutorError::UsersInUse {
                    users: (range.first, last),
                    by: format!("process {pid} runs as {user}"),
                });
            }
        }
        Ok(())
    }
}

impl UserRange {
    /// Creates the range from `first` to `last`. Cells start at different users.
    fn new(locks: PathBuf, first: u32, last: u32, cell: &str) -> Self {
        let count = last.saturating_sub(first).saturating_add(1);
        let hash = cell.bytes().fold(0_u32, |hash, b| {
            hash.wrapping_mul(31).wrapping_add(b.into())
        });
        Self {
            locks,
            first,
            count,
            next: hash % count,
        }
    }

    fn take(&mut self) -> Result<User, String> {
        for _ in 0..self.count {
            let uid = self.first + self.next;
            self.next = (self.next + 1) % self.count;
            let claimed = self.claim(uid);
            let claimed = claimed.map_err(|e| format!("cannot lock a user for the instance: {e}"));
            if let Some(own) = claimed? {
                return Ok(User {
                    uid,
                    gid: uid,
                    own: Some(own),
                });
            }
        }
        let last = self.first + (self.count - 1);
        Err(format!("no user of {}-{last} is free", self.first))
    }

    /// Claims this user, unless somebody has it or what is left of its last instance cannot be ended.
    fn claim(&self, uid: u32) -> io::Result<Option<UserLock>> {
        let path = self.locks.join(uid.to_string());
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        let used = file.metadata()?.len() > 0;
        if used && !end_users(&[uid]) {
            return Ok(None);
        }
        file.write_all(b"in use\n")?;
        // shared with the supervisor, which keeps it when the rep ends; if another rep was quicker in between, that one
        // has the user
        let shared = flock(&file, FlockOperation::NonBlockingLockShared);
        Ok(shared.is_ok().then_some(UserLock { file, path }))
    }

    /// Returns whether this process of one of our users belongs to no instance: no rep has the user or left anything of
    /// it. A process in a container may belong to an instance of a rep there, whose locks are not visible here.
    fn is_foreign(&self, pid: u32, uid: u32) -> bool {
        let lock = File::open(self.locks.join(uid.to_string()));
        if let Ok(lock) = &lock {
            let unused = lock.metadata().is_ok_and(|metadata| metadata.len() == 0);
            if !unused || flock(lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                return false;
            }
        }
        // its instance may have ended in the meantime
        leftovers::lives(pid) && proc::user(pid) == Some(uid) && !proc::is_in_other_namespace(pid)
    }

    fn sweep(&self) {
        let entries = fs::read_dir(&self.locks).into_iter().flatten().flatten();
        let abandoned: Vec<(u32, File)> = entries
            .filter_map(|entry| {
                let uid = entry.file_name().to_str()?.parse().ok()?;
                let mut file = File::options()
                    .read(true)
                    .write(true)
                    .open(entry.path())
                    .ok()?;
                flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
                let used = matches!(file.read(&mut [0]), Ok(1));
                used.then_some((uid, file))
            })
            .collect();
        if abandoned.is_empty() {
            return;
        }
        let users: Vec<u32> = abandoned.iter().map(|(uid, _)| *uid).collect();
        tracing::warn!(?users, "ending processes that a killed rep left");
        if end_users(&users) {
            for (_, file) in &abandoned {
                let _ = file.set_len(0);
            }
        }
    }
}

impl UserLock {
    /// Releases the user for other instances: nothing of this instance was started, or all of it is gone.
    pub(crate) fn nothing_is_left(&self) {
        let _ = self.file.set_len(0);
    }
}

/// Kills the processes of these users and removes their files; returns false if a process is left.
pub(crate) fn end_users(users: &[u32]) -> bool {
    let ended = leftovers::kill_all(|| leftovers::processes_of(users));
    leftovers::remove_files(users);
    ended
}

fn choose_from(run_as: Option<&str>, own: u32, accounts: &str) -> Result<Users, ExecutorError> {
    let Some(name) = run_as else {
        return Ok(Users::Own);
    };
    let (uid, gid) = match find(accounts, name) {
        Some(found) => found,
        None if name == "nobody" => (65_534, 65_534),
        None => return Err(ExecutorError::UnknownUser { user: name.into() }),
    };
    match own {
        0 => Ok(Users::One(uid, gid)),
        _ if uid == own => Ok(Users::Own),
        _ => Err(ExecutorError::NotRoot { user: name.into() }),
    }
}

fn find(accounts: &str, name: &str) -> Option<(u32, u32)> {
    accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        let mut numbers = fields.skip(1);
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_runs_instances_as_another_user() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\nanna:x:1000:100::/home/anna:/bin/sh\n";
        for (run_as, own, expected) in [
            (Some("nobody"), 0, Ok(Some((65_534, 65_534)))),
            (Some("anna"), 0, Ok(Some((1_000, 100)))),
            (Some("root"), 0, Ok(Some((0, 0)))),
            (None, 1_000, Ok(None)),
            (Some("anna"), 1_000, Ok(None)),
            (Some("root"), 1_000, Err(())),
            (Some("bert"), 0, Err(())),
        ] {
            let chosen = choose_from(run_as, own, accounts);
            let chosen = chosen.map(|users| match users {
                Users::One(uid, gid) => Some((uid, gid)),
                _ => None,
            });
            assert_eq!(chosen.map_err(|_| ()), expected, "{run_as:?} as {own}");
        }
    }

    /// Needs root in order to run something as another user.
    #[test]
    fn users_of_other_programs_are_refused_but_not_those_in_containers() {
        use std::{
            os::unix::process::CommandExt,
            process::{Child, Command},
        };
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let locks = tempfile::tempdir().unwrap();
        // no other test uses these
        let range = UserRange::new(locks.path().into(), 81_000, 81_003, "a");
        let users = Users::Each(range);
        let until_it_runs = |child: &Child, user| {
            let below = || proc::descendants(child.id()).into_iter().map(|p| p.pid);
            while !below()
                .chain([child.id()])
                .any(|pid| proc::user(pid) == Some(user))
            {}
        };
        let end = |mut child: Child, user| {
            assert!(leftovers::kill_all(|| leftovers::processes_of(&[user])));
            child.wait().unwrap();
        };
        let mut contained = Command::new("unshare");
        contained.args([
            "--pid",
            "--fork",
            "--kill-child",
            "setpriv",
            "--reuid",
            "81001",
        ]);
        let contained = contained
            .args(["--clear-groups", "sleep", "60"])
            .spawn()
            .unwrap();
        until_it_runs(&contained, 81_001);
        assert!(users.check_unused().is_ok());
        let other = Command::new("sleep").arg("60").uid(81_002).spawn().unwrap();
        until_it_runs(&other, 81_002);
        let refused = users.check_unused().unwrap_err().to_string();
        assert!(
            refused.contains(&format!("process {} runs as 81002", other.id())),
            "{refused}"
        );
        end(other, 81_002);
        end(contained, 81_001);
        assert!(users.check_unused().is_ok());
    }

    #[test]
    fn no_user_is_given_twice_and_the_next_is_the_one_unused_for_longest() {
        let locks = tempfile::tempdir().unwrap();
        let range = |cell| UserRange::new(locks.path().into(), 70_010, 70_013, cell);
        // like two reps of one machine
        let (mut one, mut other) = (range("a"), range("b"));
        let mut held: Vec<User> = (0..2)
            .flat_map(|_| [one.take().unwrap(), other.take().unwrap()])
            .collect();
        let mut uids: Vec<u32> = held.iter().map(|user| user.uid).collect();
        uids.sort_unstable();
        assert_eq!(uids, [70_010, 70_011, 70_012, 70_013]);
        let none = one.take().unwrap_err();
        assert_eq!(none, "no user of 70010-70013 is free");
        let freed = held.remove(1);
        freed.own.as_ref().unwrap().nothing_is_left();
        let uid = freed.uid;
        drop(freed);
        let again = one.take().unwrap();
        assert_eq!((again.uid, again.gid), (uid, uid));
        drop(again);
        held.clear();
        let turns: Vec<u32> = (0..4).map(|_| one.take().unwrap().uid).collect();
        let mut distinct = turns.clone();
        distinct.sort_unstable();
        assert_eq!(distinct, [70_010, 70_011, 70_012, 70_013], "{turns:?}");
    }
}
