//! Measures and removes directories that an instance may have filled in any way, with few open files however deep they
//! are, and without following links.

use std::{
    collections::HashSet,
    ffi::{CStr, CString},
    fs::{File, Metadata},
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::Path,
};

use rustix::{
    fs::{self, AtFlags, CWD, Dir, Mode, OFlags, Stat},
    io::Errno,
};
use uuid::Uuid;

/// How many names are read at once, so that a directory of any size takes little memory.
const BATCH: usize = 1_024;
/// The deepest directory that is measured; each level takes an open file.
pub(crate) const DEEPEST: usize = 128;

/// The most files and directories of an instance.
pub(crate) const MOST_FILES: u64 = 200_000;

/// What a directory contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// The space that its files take on disk; a file with several names counts once.
    pub(crate) bytes: u64,
    /// The number of names in it and below.
    pub(crate) files: u64,
    /// Whether measuring stopped early, because of more files than wanted or directories deeper than [`DEEPEST`].
    pub(crate) cut_short: bool,
}

/// Measures a directory and everything below, up to `most` files.
pub(crate) fn measure(root: &Path, most: u64) -> io::Result<Usage> {
    let mut usage = Usage::default();
    let mut linked = HashSet::new();
    let mut open = vec![Dir::new(open_directory(CWD, root)?)?];
    while let Some(directory) = open.last_mut() {
        let Some(entry) = directory.next() else {
            open.pop();
            continue;
        };
        let entry = entry?;
        let name = entry.file_name();
        if is_dots(name) {
            continue;
        }
        // skipped if it is gone by now
        let Ok(stat) = stat(directory.fd()?, name) else {
            continue;
        };
        usage.files += 1;
        let is_directory = is_directory(&stat);
        if is_directory || stat.st_nlink < 2 || linked.insert((stat.st_dev, stat.st_ino)) {
            usage.bytes += u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        }
        if usage.files > most || (is_directory && open.len() >= DEEPEST) {
            usage.cut_short = true;
            return Ok(usage);
        }
        if is_directory
            && let Some(directory) = open.last()
            && let Ok(below) = open_directory(directory.fd()?, name)
        {
            open.push(Dir::new(below)?);
        }
    }
    Ok(usage)
}

/// Removes a file, or a directory with everything in it. Nothing may be writing there any more.
///
/// Entries two levels down are moved up before their directory is removed, so neither the depth of a tree nor the
/// length of its paths matters.
pub(crate) fn remove(root: &Path) -> io::Result<()> {
    let refused = match fs::unlink(root) {
        Err(refused @ (Errno::ISDIR | Errno::PERM)) => refused,
        other => return Ok(other?),
    };
    // another user's file in a directory where only its owner may remove it; a link is not followed
    let no_directory = |e: &io::Error| {
        let raw = e.raw_os_error();
        [Errno::NOTDIR, Errno::LOOP]
            .map(|no| Some(no.raw_os_error()))
            .contains(&raw)
    };
    let top = match open_directory(CWD, root) {
        Err(error) if no_directory(&error) => return Err(refused.into()),
        opened => opened?,
    };
    let unique = Uuid::new_v4();
    let mut moved = 0_u64;
    loop {
        let names = some_names(&top)?;
        if names.is_empty() {
            return Ok(fs::rmdir(root)?);
        }
        for name in names {
            if unlink(&top, &name)? {
                continue;
            }
            let below = open_directory(&top, name.as_c_str())?;
            loop {
                let names = some_names(&below)?;
                if names.is_empty() {
                    break;
                }
                for name in names {
                    if !unlink(&below, &name)? {
                        moved += 1;
                        let above = format!("{unique}-{moved}");
                        fs::renameat(&below, name.as_c_str(), &top, above.as_str())?;
                    }
                }
            }
            fs::unlinkat(&top, name.as_c_str(), AtFlags::REMOVEDIR)?;
        }
    }
}

/// Removes a file; returns false if it is a directory.
fn unlink(from: &OwnedFd, name: &CStr) -> io::Result<bool> {
    match fs::unlinkat(from, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(error) => match stat(from, name) {
            Ok(stat) if is_directory(&stat) => {
                // its owner may have revoked its own rights; root needs none
                let _ = fs::chmodat(from, name, Mode::RWXU, AtFlags::empty());
                Ok(false)
            }
            _ => Err(error.into()),
        },
    }
}

fn some_names(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if !is_dots(entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
        if names.len() == BATCH {
            break;
        }
    }
    Ok(names)
}

/// Returns whether this open file is the one at `path`, and not another one that has the name by now.
pub(crate) fn is_at(open: &File, path: &Path) -> bool {
    let inode = |m: Metadata| (m.dev(), m.ino());
    let open = open.metadata().map(inode).ok();
    open.is_some() && open == std::fs::symlink_metadata(path).map(inode).ok()
}

fn open_directory(from: impl AsFd, path: impl rustix::path::Arg) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(fs::openat(from, path, flags, Mode::empty())?)
}

fn stat(from: impl AsFd, name: &CStr) -> rustix::io::Result<Stat> {
    fs::statat(from, name, AtFlags::SYMLINK_NOFOLLOW)
}

fn is_directory(stat: &Stat) -> bool {
    fs::FileType::from_raw_mode(stat.st_mode).is_dir()
}

fn is_dots(name: &CStr) -> bool {
    matches!(name.to_bytes(), b"." | b"..")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Creates a tree with more levels than a process may have open files, and than a path may have.
    fn deep(root: &Path, levels: usize) {
        let mut at = open_directory(CWD, root).unwrap();
        for level in 0..levels {
            let name = format!("directory-{level}");
            fs::mkdirat(&at, name.as_str(), Mode::RWXU).unwrap();
            at = open_directory(&at, name.as_str()).unwrap();
        }
    }

    #[test]
    fn all_of_a_tree_is_removed_and_nothing_outside_it() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("kept"), "x").unwrap();
        let home = tempfile::tempdir().unwrap();
        let root = home.path().join("instance");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        for nth in 0..BATCH + 10 {
            std::fs::write(root.join(format!("a/b/{nth}")), "").unwrap();
        }
        symlink(outside.path(), root.join("link")).unwrap();
        symlink(outside.path(), root.join("a/link")).unwrap();
        let closed = root.join("closed");
        std::fs::create_dir(&closed).unwrap();
        std::fs::write(closed.join("file"), "").unwrap();
        std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
        deep(&root, 3_000);
        remove(&root).unwrap();
        assert!(!root.exists());
        assert!(outside.path().join("kept").exists());
        symlink(outside.path(), &root).unwrap();
        remove(&root).unwrap();
        assert!(!root.exists() && outside.path().exists());
    }

    /// Needs root, to have files that a thread of another user may not remove.
    #[test]
    fn what_must_not_be_removed_stays_and_the_error_says_why() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let public = home.path().join("public");
        std::fs::create_dir_all(public.join("directory/below")).unwrap();
        std::fs::write(public.join("file"), "x").unwrap();
        symlink("/", public.join("link")).unwrap();
        for (path, mode) in [(home.path(), 0o755), (&public, 0o1777)] {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, mode).unwrap();
        }
        let all = ["file", "directory", "link"].map(|name| public.join(name));
        let there = all.clone();
        let refused = std::thread::spawn(move || {
            let nobody = rustix::fs::Uid::from_raw(65_534);
            rustix::thread::set_thread_uid(nobody).unwrap();
            all.map(|path| remove(&path).unwrap_err().kind())
        });
        let refused = refused.join().unwrap();
        assert_eq!(refused, [io::ErrorKind::PermissionDenied; 3]);
        for path in there {
            assert!(path.symlink_metadata().is_ok(), "{}", path.display());
        }
    }

    #[test]
    fn the_files_below_are_counted_once_each() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path();
        let empty = measure(root, 100).unwrap();
        assert_eq!((empty.files, empty.cut_short), (0, false));
        std::fs::create_dir(root.join("a")).unwrap();
        std::fs::write(root.join("a/file"), vec![1; 1 << 20]).unwrap();
        std::fs::hard_link(root.join("a/file"), root.join("again")).unwrap();
        symlink("/", root.join("link")).unwrap();
        let found = measure(root, 100).unwrap();
        assert_eq!((found.files, found.cut_short), (4, false));
        assert!((1 << 20..2 << 20).contains(&found.bytes), "{found:?}");
        assert!(measure(root, 3).unwrap().cut_short);
        deep(root, DEEPEST + 1);
        assert!(measure(root, 1_000).unwrap().cut_short);
    }
}
