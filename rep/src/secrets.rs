//! The directory with the secrets of a cell. The contents of its files leave this process only for the instances that
//! are to get them.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{
            ffi::OsStringExt,
            fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown},
        },
    },
    path::{Path, PathBuf},
};

use placement::{Run, Secret};
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat, openat2};

/// The largest secret, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// The configured directory, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct Secrets(Option<PathBuf>);

impl Secrets {
    pub(crate) fn of(directory: Option<&Path>) -> Self {
        Self(directory.map(Path::to_owned))
    }

    /// Warns if every user of the machine can list the directory.
    pub(crate) fn warn_if_open(&self) {
        let Some(directory) = &self.0 else {
            return;
        };
        match directory.metadata() {
            Ok(data) if data.permissions().mode() & 0o005 == 0 => {}
            Ok(_) => tracing::warn!(
                directory = %directory.display(),
                "every user of this machine can enter the directory of secrets: use mode 0700"
            ),
            Err(error) => tracing::warn!(
                directory = %directory.display(), %error,
                "instances with secrets are refused: no directory of secrets"
            ),
        }
    }

    /// Returns why an instance cannot get its secrets here, naming the field but quoting nothing; none if it can.
    pub(crate) fn lacks(&self, run: Option<&Run>) -> Option<String> {
        let secrets = run.map_or(&[][..], |run| &run.secrets);
        secrets.iter().enumerate().find_map(|(n, secret)| {
            let opened = self.open(secret).err()?;
            Some(format!("run.secrets[{n}].file: {opened}"))
        })
    }

    /// Returns the content of a secret, the `n`th of the request.
    pub(crate) fn read(&self, n: usize, secret: &Secret) -> Result<Vec<u8>, String> {
        let about = |why: String| format!("run.secrets[{n}].file: {why}");
        let file = self.open(secret).map_err(about)?;
        let mut content = Vec::new();
        let read = file.take(MAX_BYTES + 1).read_to_end(&mut content);
        read.map_err(|e| about(e.to_string()))?;
        if content.len() as u64 > MAX_BYTES {
            return Err(about(format!("more than {MAX_BYTES} bytes")));
        }
        Ok(content)
    }

    /// Returns the variables with secrets of an instance. Most files end with a line feed that is not part of the
    /// secret: one at the end is left out.
    pub(crate) fn variables(&self, run: &Run) -> Result<Vec<(OsString, OsString)>, String> {
        let mut variables = Vec::new();
        for (n, secret) in run.secrets.iter().enumerate() {
            let Some(name) = &secret.env else {
                continue;
            };
            let mut content = self.read(n, secret)?;
            if content.last() == Some(&b'\n') {
                content.pop();
            }
            if content.contains(&0) {
                return Err(format!(
                    "run.secrets[{n}].file: has a NUL, which no variable can hold"
                ));
            }
            variables.push((name.into(), OsString::from_vec(content)));
        }
        Ok(variables)
    }

    /// Writes the secret files of an instance into its directory, readable only by its user.
    pub(crate) fn write_files(
        &self,
        run: &Run,
        directory: &Path,
        owner: Option<(u32, u32)>,
    ) -> Result<(), String> {
        for (n, secret) in run.secrets.iter().enumerate() {
            if let Some(path) = &secret.path {
                let content = self.read(n, secret)?;
                let written = write_below(directory, Path::new(path), &content, owner);
                written.map_err(|e| format!("run.secrets[{n}].path: {e}"))?;
            }
        }
        Ok(())
    }

    fn open(&self, secret: &Secret) -> Result<File, String> {
        let Some(directory) = &self.0 else {
            return Err("this cell has no directory of secrets (--secrets)".into());
        };
        let file = open_below(directory, &secret.file).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => "this cell has no such secret".to_owned(),
            _ => e.to_string(),
        })?;
        match file.metadata() {
            Ok(data) if data.is_file() => Ok(file),
            Ok(_) => Err("not a file".into()),
            Err(e) => Err(e.to_string()),
        }
    }
}

/// Writes a new file below a directory that nobody else uses yet.
pub(crate) fn write_below(
    directory: &Path,
    path: &Path,
    content: &[u8],
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    let own = |path: &Path| owner.map_or(Ok(()), |(uid, gid)| chown(path, Some(uid), Some(gid)));
    let mut parent = directory.to_owned();
    for part in path.parent().into_iter().flat_map(Path::components) {
        parent.push(part);
        if !parent.is_dir() {
            fs::DirBuilder::new().mode(0o700).create(&parent)?;
            own(&parent)?;
        }
    }
    let whole = directory.join(path);
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&whole)?;
    file.write_all(content)?;
    own(&whole)
}

/// Opens a file below a directory; links cannot lead out of it.
fn open_below(directory: &Path, file: &str) -> io::Result<File> {
    let of_directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let below = open(directory, of_directory, Mode::empty())?;
    // opening a FIFO must not block the rep
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(&below, file, flags, Mode::empty(), inside) {
        Ok(file) => Ok(File::from(file)),
        // Linux before 5.6, or a system call filter that does not know it: without following any link
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {
            walk(below, Path::new(file), flags).map(File::from)
        }
        Err(e) => Err(e.into()),
    }
}

fn walk(mut below: OwnedFd, file: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let mut parts = file.components().peekable();
    while let Some(part) = parts.next() {
        let flags = match parts.peek() {
            Some(_) => OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            None => flags,
        };
        below = openat(
            &below,
            part.as_os_str(),
            flags | OFlags::NOFOLLOW,
            Mode::empty(),
        )?;
    }
    Ok(below)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn secret(file: &str) -> Secret {
        Secret {
            file: file.into(),
            env: Some("X".into()),
            path: None,
        }
    }

    #[test]
    fn only_files_below_the_directory_are_read() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("secrets");
        fs::create_dir_all(directory.join("web")).unwrap();
        fs::write(home.path().join("outside"), "o").unwrap();
        fs::write(directory.join("db"), "d").unwrap();
        fs::write(directory.join("web/key"), "k").unwrap();
        fs::write(directory.join("large"), vec![b'x'; (64 << 10) + 1]).unwrap();
        symlink("web/key", directory.join("inner")).unwrap();
        symlink("../outside", directory.join("outer")).unwrap();
        symlink(home.path().join("outside"), directory.join("absolute")).unwrap();
        symlink("..", directory.join("up")).unwrap();
        let secrets = Secrets::of(Some(&directory));
        let read = |file: &str| secrets.read(0, &secret(file));
        assert_eq!(read("db"), Ok(b"d".to_vec()));
        assert_eq!(read("web/key"), Ok(b"k".to_vec()));
        assert_eq!(read("inner"), Ok(b"k".to_vec()));
        for file in [
            "outer",
            "absolute",
            "up/outside",
            "../outside",
            "nosuch",
            "web",
            "large",
        ] {
            let refused = read(file).unwrap_err();
            assert!(refused.starts_with("run.secrets[0].file: "), "{refused}");
        }
        assert!(read("nosuch").unwrap_err().ends_with("no such secret"));
        // without the newer system call, no link is followed
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let below = || open(&directory, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let walked = |file: &str| walk(below(), Path::new(file), flags).is_ok();
        let all = ["db", "web/key", "inner", "outer", "absolute", "up/outside"];
        assert_eq!(all.map(walked), [true, true, false, false, false, false]);
    }

    #[test]
    fn an_instance_gets_them_for_itself() {
        let home = tempfile::tempdir().unwrap();
        for (name, content) in [("a", "one\n"), ("b", "two\n\n"), ("nul", "x\0y")] {
            fs::write(home.path().join(name), content).unwrap();
        }
        let secrets = Secrets::of(Some(home.path()));
        let run = |list: serde_json::Value| Run {
            secrets: serde_json::from_value(list).unwrap(),
            ..Run::default()
        };
        let both = run(
            serde_json::json!([{"file":"a","env":"A"},{"file":"b","env":"B"},
            {"file":"b","path":"deep/er/b"}]),
        );
        let expected = [("A", "one"), ("B", "two\n")].map(|(n, v)| (n.into(), v.into()));
        assert_eq!(secrets.variables(&both), Ok(expected.to_vec()));
        let instance = tempfile::tempdir().unwrap();
        secrets.write_files(&both, instance.path(), None).unwrap();
        let file = instance.path().join("deep/er/b");
        assert_eq!(fs::read(&file).unwrap(), b"two\n\n");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
        let again = secrets.write_files(&both, instance.path(), None);
        assert!(again.unwrap_err().starts_with("run.secrets[2].path: "));
        let nul = secrets.variables(&run(serde_json::json!([{"file":"nul","env":"A"}])));
        assert!(nul.unwrap_err().ends_with("which no variable can hold"));
    }

    #[test]
    fn what_is_lacking_names_the_field() {
        let run = |files: &[&str]| Run {
            secrets: files.iter().map(|file| secret(file)).collect(),
            ..Run::default()
        };
        let none = Secrets::of(None);
        assert_eq!(none.lacks(None), None);
        assert_eq!(none.lacks(Some(&run(&[]))), None);
        let said = none.lacks(Some(&run(&["db"]))).unwrap();
        assert!(said.starts_with("run.secrets[0].file: ") && said.contains("--secrets"));
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("db"), "hidden").unwrap();
        let some = Secrets::of(Some(directory.path()));
        assert_eq!(some.lacks(Some(&run(&["db"]))), None);
        let said = some.lacks(Some(&run(&["db", "key"]))).unwrap();
        assert_eq!(said, "run.secrets[1].file: this cell has no such secret");
    }
}
