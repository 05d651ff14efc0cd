//! The cell's cache of sources as seen by the rep, which limits its size and reports its content. Supervisors fetch
//! sources and add them (see `supervisor/source`).

use std::{
    fs::{self, DirBuilder, File, Metadata, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::SystemTime,
};

use crate::config::ProcessConfig;

/// The suffix of the name of a file that is being fetched.
pub(crate) const PART: &str = ".part";
/// The most blobs that are advertised.
const MAX_SHOWN: usize = 64;
/// The most blobs that are kept.
const MAX_KEPT: usize = 1_024;

/// The cache of one cell, if it keeps one.
#[derive(Debug)]
pub(crate) struct Sources {
    directory: Option<PathBuf>,
    most_bytes: u64,
    /// What is in it, and whether that has changed since the last query.
    news: Mutex<News>,
}

#[derive(Debug, Default)]
struct News {
    shown: Vec<String>,
    changed: bool,
}

impl Sources {
    /// Opens the cache of a cell below its state directory. Without such a directory, or with size 0, nothing is kept.
    pub(crate) fn open(process: &ProcessConfig, cell: &str) -> io::Result<Self> {
        let kept = process
            .state_dir
            .as_ref()
            .filter(|_| process.source_cache_mb > 0);
        let directory = kept.map(|state| private(&state.join("sources").join(cell)));
        let sources = Self {
            directory: directory.transpose()?,
            most_bytes: process.source_cache_mb << 20,
            news: Mutex::default(),
        };
        sources.settle();
        Ok(sources)
    }

    /// Returns the directory of the blobs.
    pub(crate) fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Removes the least recently used blobs beyond the limits, and records which are left.
    pub(crate) fn settle(&self) {
        let Some(directory) = &self.directory else {
            return;
        };
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let mut shown = keep_latest(directory, self.most_bytes);
        shown.truncate(MAX_SHOWN);
        // the order of use is no news for auctioneers
        shown.sort_unstable();
        if shown != news.shown {
            *news = News {
                shown,
                changed: true,
            };
        }
    }

    /// Returns the names of the most recently used blobs, at most 64, if they have changed since the last call.
    pub(crate) fn news(&self) -> Option<Vec<String>> {
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = std::mem::take(&mut news.changed);
        changed.then(|| news.shown.clone())
    }
}

/// Creates a directory that only its owner can enter.
fn private(path: &Path) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // it may be left from an earlier run, or made by hand
    fs::set_permissions(path, Permissions::from_mode(0o700))?;
    // supervisors have another working directory
    path.canonicalize()
}

/// Removes what exceeds the limits, and returns the names of the rest, most recently used first.
fn keep_latest(directory: &Path, most_bytes: u64) -> Vec<String> {
    let mut blobs: Vec<(SystemTime, u64, String)> = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let path = entry.path();
        if name.ends_with(PART) {
            remove_abandoned(&path);
        } else if placement::is_sha256(&name)
            && let Ok(data) = entry.metadata()
        {
            blobs.push((used(&data), data.blocks() * 512, name));
        }
    }
    blobs.sort_unstable_by(|a, b| b.cmp(a));
    let mut bytes = 0;
    let mut kept = Vec::new();
    for (_, size, name) in blobs {
        if bytes + size <= most_bytes && kept.len() < MAX_KEPT {
            bytes += size;
            kept.push(name);
        } else if let Err(error) = fs::remove_file(directory.join(&name)) {
            tracing::warn!(directory = %directory.display(), name, %error, "cannot remove a cached source");
        }
    }
    kept
}

fn used(data: &Metadata) -> SystemTime {
    data.modified().unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Removes a file that a killed supervisor was fetching.
fn remove_abandoned(path: &Path) {
    if let Ok(file) = File::open(path)
        && file.try_lock().is_ok()
    {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn process(state: &Path, source_cache_mb: u64) -> ProcessConfig {
        ProcessConfig {
            state_dir: Some(state.into()),
            source_cache_mb,
            ..ProcessConfig::default()
        }
    }

    fn name(n: u32) -> String {
        format!("{n:064x}")
    }

    fn put(sources: &Sources, n: u32, bytes: usize) {
        let path = sources.directory().unwrap().join(name(n));
        fs::write(&path, vec![1; bytes]).unwrap();
        let used = SystemTime::UNIX_EPOCH + Duration::from_secs(u64::from(n));
        File::open(path).unwrap().set_modified(used).unwrap();
    }

    #[test]
    fn what_was_used_last_is_kept_and_shown() {
        let state = tempfile::tempdir().unwrap();
        let sources = Sources::open(&process(state.path(), 1), "a").unwrap();
        assert_eq!(sources.news(), None);
        for n in 1..=4 {
            put(&sources, n, 300 << 10);
        }
        sources.settle();
        assert_eq!(sources.news(), Some(vec![name(2), name(3), name(4)]));
        assert_eq!(sources.news(), None);
        let there = |n| sources.directory().unwrap().join(name(n)).exists();
        assert!(!there(1) && there(2));
        // using a blob again is no news
        put(&sources, 2, 300 << 10);
        sources.settle();
        assert_eq!(sources.news(), None);
        // a blob larger than the cache is not kept
        put(&sources, 9, 2 << 20);
        sources.settle();
        assert!(sources.news().is_none() && !there(9));
        // everything survives the rep
        put(&sources, 7, 1);
        let again = Sources::open(&process(state.path(), 1), "a").unwrap();
        assert_eq!(again.news(), Some([2, 3, 4, 7].map(name).to_vec()));
    }

    #[test]
    fn at_most_64_are_shown() {
        let state = tempfile::tempdir().unwrap();
        let sources = Sources::open(&process(state.path(), 1), "a").unwrap();
        (1..=70).for_each(|n| put(&sources, n, 1));
        sources.settle();
        let shown = sources.news().unwrap();
        assert_eq!(shown, (7..=70).map(name).collect::<Vec<_>>());
    }

    #[test]
    fn what_nobody_fetches_any_more_is_removed() {
        let state = tempfile::tempdir().unwrap();
        let sources = Sources::open(&process(state.path(), 1), "a").unwrap();
        let part = |n: u32| {
            sources
                .directory()
                .unwrap()
                .join(format!("{}-x{PART}", name(n)))
        };
        let [left, held] = [1, 2].map(|n| File::create(part(n)).unwrap());
        held.lock().unwrap();
        drop(left);
        sources.settle();
        assert!(!part(1).exists() && part(2).exists());
        let mode = fs::metadata(sources.directory().unwrap())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn without_a_state_directory_nothing_is_kept() {
        let none = Sources::open(&ProcessConfig::default(), "a").unwrap();
        assert_eq!((none.directory(), none.news()), (None, None));
        let state = tempfile::tempdir().unwrap();
        let none = Sources::open(&process(state.path(), 0), "a").unwrap();
        assert_eq!(none.directory(), None);
    }
}
