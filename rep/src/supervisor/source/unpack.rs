//! The step that unpacks a source into the instance's directory, which is the working directory.
//!
//! Everything that it creates is inside: absolute paths and `..` are rejected, nothing is written through a link, and
//! links do not lead outside.

use std::{
    ffi::OsStr,
    fs::{self, DirBuilder, File, Permissions},
    io::{self, BufReader, Read, Seek},
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink},
    },
    path::{Component, Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use placement::cut;
use rustix::stdio;
use tar::{Archive, Entry, EntryType};

use crate::tree::{DEEPEST, MOST_FILES};

/// The file name of a source that is not an archive.
const PLAIN: &str = "source";
/// The size of a header in an archive.
const HEADER: usize = 512;
/// The number of bytes read at once.
const BUFFER: usize = 64 << 10;

/// Unpacks standard input: an archive (tar, optionally in gzip) of at most `most_bytes`. Anything else becomes one
/// file.
pub(super) fn run(most_bytes: u64) -> Result<(), String> {
    let blob = stdio::stdin()
        .try_clone_to_owned()
        .map_err(|e| cannot_read(&e))?;
    unpack(File::from(blob), Path::new("."), most_bytes)
}

fn unpack(mut blob: File, into: &Path, most_bytes: u64) -> Result<(), String> {
    let mut again = || {
        let copy = blob
            .try_clone()
            .and_then(|copy| blob.rewind().map(|()| copy));
        copy.map(|copy| BufReader::with_capacity(BUFFER, copy))
            .map_err(|e| cannot_read(&e))
    };
    let mut target = Target {
        into,
        most_bytes,
        bytes: 0,
        files: 0,
        parent: None,
    };
    if is_tar(&mut again()?) {
        return target.archive(again()?);
    }
    if is_tar(&mut MultiGzDecoder::new(again()?)) {
        return target.archive(MultiGzDecoder::new(again()?));
    }
    target.file(Path::new(PLAIN), 0o700, again()?)
}

/// Returns whether the data starts with a header of a POSIX or GNU archive.
fn is_tar(from: &mut impl Read) -> bool {
    let mut header = [0; HEADER];
    from.read_exact(&mut header).is_ok() && header[257..].starts_with(b"ustar")
}

/// The progress of unpacking.
struct Target<'a> {
    into: &'a Path,
    most_bytes: u64,
    bytes: u64,
    files: u64,
    /// The last directory that was checked: all of its path consists of real directories.
    parent: Option<PathBuf>,
}

impl Target<'_> {
    fn archive(&mut self, from: impl Read) -> Result<(), String> {
        let mut archive = Archive::new(from);
        for entry in archive.entries().map_err(|e| broken(&e))? {
            self.entry(entry.map_err(|e| broken(&e))?)?;
        }
        Ok(())
    }

    fn entry<R: Read>(&mut self, entry: Entry<'_, R>) -> Result<(), String> {
        let kind = entry.header().entry_type();
        // skipped entries have to be read as well
        self.count(entry.size())?;
        let path = inside(&entry.path_bytes())?;
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let mode = entry.header().mode().unwrap_or(0o600) & 0o777;
        match kind {
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                self.file(&path, mode, entry)
            }
            EntryType::Directory => self.directory(&path, mode),
            EntryType::Symlink => self.link(&path, &target_of(&entry, &path)?),
            EntryType::Link => self.name(&path, &target_of(&entry, &path)?),
            // devices, FIFOs, and metadata of the archive itself
            _ => Ok(()),
        }
    }

    /// Counts one more file of this many bytes.
    fn count(&mut self, bytes: u64) -> Result<(), String> {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.most_bytes {
            let mib = self.most_bytes >> 20;
            return Err(format!(
                "run.source: unpacked it has more than {mib} MiB; expected at most the instance's disk limit: ask for more disk_mb"
            ));
        }
        if self.files > MOST_FILES {
            return Err(format!(
                "run.source: more than {MOST_FILES} files; expected fewer"
            ));
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, mode: u32, mut from: impl Read) -> Result<(), String> {
        let whole = self.place(path)?;
        let mut options = File::options();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&whole).map_err(|e| cannot_make(path, &e))?;
        // content that is not in an archive has not been counted yet
        let most = self.most_bytes;
        let copied = io::copy(&mut from.by_ref().take(most + 1), &mut file);
        if copied.map_err(|e| cannot_make(path, &e))? > most {
            return self.count(u64::MAX);
        }
        // nothing that its owner could not set: no set-user-ID
        let mode = Permissions::from_mode(mode | 0o600);
        file.set_permissions(mode)
            .map_err(|e| cannot_make(path, &e))
    }

    fn directory(&mut self, path: &Path, mode: u32) -> Result<(), String> {
        let whole = self.place(path)?;
        make_directory(&whole).map_err(|e| cannot_make(path, &e))?;
        let mode = Permissions::from_mode(mode | 0o700);
        fs::set_permissions(&whole, mode).map_err(|e| cannot_make(path, &e))
    }

    /// Creates a symbolic link. Its target is judged by the text alone, so `..` may only be at its start: behind
    /// another link it would lead elsewhere.
    fn link(&mut self, path: &Path, to: &Path) -> Result<(), String> {
        let above = path.components().count() - 1;
        let ups = to.components().take_while(|c| *c == Component::ParentDir);
        let ups = ups.count();
        let plain = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
        if ups > above || !to.components().skip(ups).all(plain) {
            return Err(leads_out(path));
        }
        let whole = self.place(path)?;
        symlink(to, whole).map_err(|e| cannot_make(path, &e))
    }

    /// Creates another name for a file that was unpacked before.
    fn name(&mut self, path: &Path, of: &Path) -> Result<(), String> {
        let of = inside(of.as_os_str().as_bytes()).map_err(|_| leads_out(path))?;
        let from = self.place(&of)?;
        let whole = self.place(path)?;
        let data = fs::symlink_metadata(&from).map_err(|e| cannot_make(path, &e))?;
        // a symbolic link would lead elsewhere from another directory
        if !data.is_file() {
            return Err(leads_out(path));
        }
        fs::hard_link(from, whole).map_err(|e| cannot_make(path, &e))
    }

    /// Returns where a path is, after creating its directories. None of them is a link.
    fn place(&mut self, path: &Path) -> Result<PathBuf, String> {
        let parent = path.parent().unwrap_or(Path::new(""));
        if self.parent.as_deref() != Some(parent) {
            let mut whole = self.into.to_owned();
            for part in parent {
                whole.push(part);
                make_directory(&whole).map_err(|e| cannot_make(path, &e))?;
            }
            self.parent = Some(parent.to_owned());
        }
        Ok(self.into.join(path))
    }
}

/// Creates a directory unless it exists; a link to one does not count.
fn make_directory(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(data) if data.is_dir() => Ok(()),
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => DirBuilder::new().mode(0o700).create(path),
    }
}

/// Returns the path of an entry, without `.`.
fn inside(bytes: &[u8]) -> Result<PathBuf, String> {
    let path = Path::new(OsStr::from_bytes(bytes));
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => parts.push(part),
            Component::CurDir => {}
            _ => {
                let path = shown(path);
                return Err(format!(
                    "run.source: the path {path} in the archive; expected one below its top, without .."
                ));
            }
        }
    }
    if parts.components().count() > DEEPEST {
        let path = shown(path);
        return Err(format!(
            "run.source: the path {path} in the archive; expected at most {DEEPEST} directories"
        ));
    }
    Ok(parts)
}

fn target_of<R: Read>(entry: &Entry<'_, R>, path: &Path) -> Result<PathBuf, String> {
    let to = entry.link_name_bytes().filter(|to| !to.is_empty());
    let to = to.ok_or_else(|| leads_out(path))?;
    Ok(PathBuf::from(OsStr::from_bytes(&to)))
}

fn shown(path: &Path) -> String {
    cut(&format!("{:?}", path.to_string_lossy())).into_owned()
}

fn leads_out(path: &Path) -> String {
    let path = shown(path);
    format!(
        "run.source: the link {path} in the archive leads out of it; expected one to what is in it"
    )
}

fn cannot_make(path: &Path, error: &io::Error) -> String {
    let path = shown(path);
    match error.kind() {
        io::ErrorKind::AlreadyExists => format!(
            "run.source: {path} is there already; expected each path once in the archive, none behind a link, and none of run.secrets"
        ),
        _ => format!("run.source: cannot unpack {path}: {error}"),
    }
}

fn cannot_read(error: &io::Error) -> String {
    format!("run.source: cannot be read: {error}")
}

fn broken(error: &io::Error) -> String {
    format!("run.source: a broken archive: {}", cut(&error.to_string()))
}

#[cfg(test)]
mod tests;
