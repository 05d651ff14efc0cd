//! The content of an instance's result file.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::Path,
};

use rustix::fs::{Mode, OFlags, open};

/// The file's name in the directory of the instance.
pub(crate) const RESULT_FILE: &str = "result.json";
/// The most bytes that are read of it.
const MAX_BYTES: u64 = 32 << 10;

/// Returns the content of the file; none if there is no file. It is read with the rights of the rep, so a link is not
/// followed, and a file that is not the instance's own (a hard link to another user's file, say) is not read.
pub(super) fn read(directory: &Path, owner: Option<u32>) -> Result<Option<String>, String> {
    // opening a FIFO must not block the supervisor
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened: Result<OwnedFd, _> = open(directory.join(RESULT_FILE), flags, Mode::empty());
    let file = match opened {
        Ok(file) => File::from(file),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let about = file.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() || owner.is_some_and(|owner| owner != about.uid()) {
        return Err("not a file of the instance".to_owned());
    }
    let mut text = String::new();
    let read = file.take(MAX_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| format!("cannot be read: {error}"))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(format!("more than {MAX_BYTES} bytes"));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn a_result_is_a_small_file_of_the_instance() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(RESULT_FILE);
        let read_by = |owner| read(directory.path(), owner);
        assert_eq!(read_by(None), Ok(None));
        fs::write(&file, "{}").unwrap();
        let owner = file.metadata().unwrap().uid();
        assert_eq!(read_by(Some(owner)), Ok(Some("{}".to_owned())));
        assert!(read_by(Some(owner + 1)).is_err());
        let most = usize::try_from(MAX_BYTES).unwrap();
        fs::write(&file, "x".repeat(most)).unwrap();
        assert!(read_by(None).is_ok());
        fs::write(&file, "x".repeat(most + 1)).unwrap();
        assert!(read_by(None).unwrap_err().contains("more than"));
        fs::write(&file, b"\xff").unwrap();
        assert!(read_by(None).is_err());
    }

    #[test]
    fn no_link_is_followed_and_no_fifo_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let (file, other) = (
            directory.path().join(RESULT_FILE),
            directory.path().join("x"),
        );
        fs::write(&other, "secret").unwrap();
        symlink(&other, &file).unwrap();
        assert!(read(directory.path(), None).is_err());
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert!(read(directory.path(), None).is_err());
    }
}
