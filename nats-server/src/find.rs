//! Finds the nats-server program.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt,
    path::{Path, PathBuf},
};

const PROGRAM: &str = "nats-server";

/// Where to look for a nats-server, in order. Displayed as a list of lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The value of `NATS_SERVER_BIN`; if it is set, nothing else is tried.
    pub named: Option<PathBuf>,
    /// The directories of `PATH`.
    pub path: Vec<PathBuf>,
    /// Directories in which, and above which, to look for `.tools/nats-server`.
    pub tools: Vec<PathBuf>,
}

impl Places {
    /// Returns the places for this process: its environment, its working directory and the directory of its program.
    pub fn of_this_process() -> Self {
        let program = env::current_exe().ok();
        let program = program.and_then(|file| file.parent().map(Path::to_owned));
        Self::new(
            env::var_os("NATS_SERVER_BIN"),
            &env::var_os("PATH").unwrap_or_default(),
            env::current_dir().into_iter().chain(program).collect(),
        )
    }

    fn new(named: Option<OsString>, path: &OsStr, tools: Vec<PathBuf>) -> Self {
        Self {
            named: named.filter(|name| !name.is_empty()).map(PathBuf::from),
            path: env::split_paths(path).collect(),
            tools,
        }
    }

    /// Returns the first place that has the program.
    pub fn find(&self) -> Option<PathBuf> {
        if let Some(named) = &self.named {
            return named.is_file().then(|| named.clone());
        }
        let above = self.tools.iter().flat_map(|dir| dir.ancestors());
        self.path
            .iter()
            .map(|dir| dir.join(PROGRAM))
            .chain(above.map(|dir| dir.join(".tools").join(PROGRAM)))
            .find(|file| file.is_file())
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(named) = &self.named {
            return write!(
                f,
                "NATS_SERVER_BIN={}: no such file; set it to the path of a nats-server, or unset it",
                named.display()
            );
        }
        writeln!(f, "nats-server is not installed; looked for it in")?;
        writeln!(f, "  NATS_SERVER_BIN, which is not set")?;
        let path = env::join_paths(&self.path).unwrap_or_default();
        writeln!(f, "  PATH: {}", path.display())?;
        for dir in &self.tools {
            writeln!(
                f,
                "  .tools/ of {} and of every directory above it",
                dir.display()
            )?;
        }
        write!(
            f,
            "`make tools` in a checkout of vendue puts one into its .tools/; to use that one from \
             anywhere:\n  export NATS_SERVER_BIN=CHECKOUT/.tools/nats-server\n\
             or install your system's package nats-server, or a release from \
             https://github.com/nats-io/nats-server/releases"
        )
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_program_is_the_named_one_else_on_the_path_else_in_tools_here_or_above() {
        let home = tempfile::tempdir().unwrap();
        let file = |dir: &str| {
            let dir = home.path().join(dir);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(PROGRAM), "").unwrap();
            dir.join(PROGRAM)
        };
        let (named, on_path, in_tools) = (file("named"), file("path"), file("checkout/.tools"));
        let path = home.path().join("path").into_os_string();
        let no_path = OsStr::new("");
        let below = vec![home.path().join("checkout/crate/src")];
        let find = |named: Option<&Path>, path: &OsStr| {
            Places::new(named.map(Into::into), path, below.clone()).find()
        };
        assert_eq!(find(Some(&named), &path), Some(named.clone()));
        assert_eq!(find(None, &path), Some(on_path));
        assert_eq!(find(None, no_path), Some(in_tools.clone()));
        // an empty value counts as unset
        assert_eq!(find(Some(Path::new("")), no_path), Some(in_tools));
        // a wrong name is an error, not a reason to look elsewhere
        assert_eq!(find(Some(Path::new("/no/where")), &path), None);
    }

    #[test]
    fn a_missing_program_is_reported_with_every_place() {
        let places = Places::new(None, OsStr::new("/a:/b"), vec!["/c".into(), "/d".into()]);
        assert_eq!(places.find(), None);
        let text = places.to_string();
        for part in [
            "PATH: /a:/b",
            ".tools/ of /c",
            ".tools/ of /d",
            "make tools",
        ] {
            assert!(text.contains(part), "{part} is not in: {text}");
        }
        assert!(text.contains("export NATS_SERVER_BIN="), "{text}");
        let named = Places::new(Some("/no/where".into()), OsStr::new(""), Vec::new());
        assert!(named.to_string().starts_with("NATS_SERVER_BIN=/no/where"));
    }
}
