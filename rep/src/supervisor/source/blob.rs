//! The cell's cache of sources: one file per source, named by its SHA-256. Only the rep's user can write there.

use std::{
    fs::{self, File},
    io::{self, Read, Seek},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use sha1_smol::Sha1;
use sha2::{Digest, Sha256};

use super::SourceOrders;
use crate::{sources::PART, tree::is_at};

/// Returns a cached blob, positioned at its start; none if there is none, or its content has changed.
pub(super) fn find(cache: &Path, sha256: &str) -> io::Result<Option<File>> {
    let path = cache.join(sha256);
    let file = match File::open(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    if sum(&file)? != sha256 {
        fs::remove_file(&path)?;
        return Ok(None);
    }
    // the least recently used blob is removed first
    file.set_modified(SystemTime::now())?;
    Ok(Some(file))
}

/// Returns whether there is a blob with this name.
pub(super) fn exists(cache: &Path, sha256: &str) -> bool {
    cache.join(sha256).exists()
}

/// Returns the SHA-256 of a file's whole content, and leaves the file at its start.
pub(super) fn sum(file: &File) -> io::Result<String> {
    let mut sum = Sha256::new();
    each_part(file, |bytes| sum.update(bytes))?;
    Ok(format!("{:x}", sum.finalize()))
}

/// Returns the SHA-1 of a file's whole content, which identifies droplets, and leaves the file at its start.
pub(super) fn sha1(file: &File) -> io::Result<String> {
    let mut sum = Sha1::new();
    each_part(file, |bytes| sum.update(bytes))?;
    Ok(sum.digest().to_string())
}

fn each_part(mut file: &File, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut bytes = vec![0; 64 << 10];
    file.rewind()?;
    loop {
        let n = file.read(&mut bytes)?;
        if n == 0 {
            break;
        }
        take(&bytes[..n]);
    }
    file.rewind()
}

/// Returns the same file, positioned at its start and opened read-only.
pub(super) fn to_read(file: &File) -> io::Result<File> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// A blob that only this process is fetching. Removed on drop.
pub(super) struct Part {
    file: File,
    path: PathBuf,
    whole: PathBuf,
    kept: bool,
}

impl Part {
    /// Locks the part of a source; none while another instance fetches the same content from the same address. Fetches
    /// from different addresses are separate, so that a slow server delays only those that named it.
    pub(super) fn lock(cache: &Path, source: &SourceOrders) -> io::Result<Option<Self>> {
        let sha256 = &source.what.sha256;
        let url = Sha256::digest(&source.what.url);
        let path = cache.join(format!("{sha256}-{url:x}{PART}"));
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).open(&path)?;
        // a file that was given up, or is a complete blob by now, has another name or none
        let ours = file.try_lock().is_ok() && is_at(&file, &path);
        if ours {
            // the remains of a supervisor that was killed
            file.set_len(0)?;
        }
        Ok(ours.then(|| Self {
            file,
            path,
            whole: cache.join(sha256),
            kept: false,
        }))
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives it its name in the cache. Returns it for reading.
    pub(super) fn keep(mut self) -> io::Result<File> {
        fs::rename(&self.path, &self.whole)?;
        self.kept = true;
        to_read(&self.file)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.kept {
            // if this fails, the rep removes it
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use placement::RunSource;

    use super::*;

    const SUM_OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn orders(url: &str) -> SourceOrders {
        SourceOrders {
            what: RunSource {
                url: url.into(),
                sha256: SUM_OF_ABC.into(),
            },
            cache: None,
            timeout_ms: 1,
            authorities: None,
        }
    }

    #[test]
    fn one_fetches_and_the_others_find_it() {
        let cache = tempfile::tempdir().unwrap();
        let (here, other) = (orders("http://a/b"), orders("http://a/c"));
        assert!(find(cache.path(), SUM_OF_ABC).unwrap().is_none());
        let part = Part::lock(cache.path(), &here).unwrap().unwrap();
        assert!(Part::lock(cache.path(), &here).unwrap().is_none());
        assert!(Part::lock(cache.path(), &other).unwrap().is_some());
        let left = part.path.clone();
        // given up: the next one fetches it again
        drop(part);
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 0);
        // what a killed one left does not become part of it
        fs::write(left, "left").unwrap();
        let part = Part::lock(cache.path(), &here).unwrap().unwrap();
        part.file().write_all(b"abc").unwrap();
        assert_eq!(sum(part.file()).unwrap(), SUM_OF_ABC);
        let mut text = String::new();
        part.keep().unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
        text.clear();
        let mut found = find(cache.path(), SUM_OF_ABC).unwrap().unwrap();
        found.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abc");
        assert!(found.write_all(b"x").is_err(), "only to be read");
    }

    #[test]
    fn sums_are_those_of_the_whole_content() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        assert_eq!(sum(&file).unwrap(), SUM_OF_ABC);
        let sha1_of_abc = "a9993e364706816aba3e25717850c26c9cd0d89d";
        assert_eq!(sha1(&file).unwrap(), sha1_of_abc);
    }

    #[test]
    fn a_blob_whose_content_has_changed_is_removed() {
        let cache = tempfile::tempdir().unwrap();
        fs::write(cache.path().join(SUM_OF_ABC), "abd").unwrap();
        assert!(find(cache.path(), SUM_OF_ABC).unwrap().is_none());
        assert!(!exists(cache.path(), SUM_OF_ABC));
    }
}
