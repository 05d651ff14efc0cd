//! A mark in a file that a cell is out of service, so that this survives a restart.

use std::{fs, io, path::PathBuf};

use placement::Invalid;

use crate::{config::RepConfig, operators::replace};

/// How a cell is out of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Drained,
    Cordoned,
}

impl Mark {
    fn word(self) -> &'static str {
        match self {
            Self::Drained => "drained",
            Self::Cordoned => "cordoned",
        }
    }
}

/// The file with the mark; none if the rep has no directory for it.
#[derive(Debug)]
pub(crate) struct MarkFile(Option<PathBuf>);

impl MarkFile {
    pub(crate) fn of(config: &RepConfig) -> Self {
        let name = format!("{}.out-of-service", config.cell);
        Self(config.state_dir().map(|directory| directory.join(name)))
    }

    /// Returns the mark, if there is one.
    pub(crate) fn read(&self) -> Result<Option<Mark>, Invalid> {
        let Some(file) = &self.0 else {
            return Ok(None);
        };
        let invalid = |what: &dyn std::fmt::Display| {
            let value = format!("{}: {what}", file.display());
            let expected = "a file with the word drained or cordoned, or none";
            Invalid::new("state_dir", value, expected)
        };
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(invalid(&e)),
        };
        let marks = [Mark::Drained, Mark::Cordoned];
        let found = marks.into_iter().find(|mark| mark.word() == text.trim());
        found.map(Some).ok_or_else(|| invalid(&"another text"))
    }

    /// Sets the mark. Returns whether it survives a restart.
    pub(crate) fn set(&self, mark: Mark) -> bool {
        let Some(file) = &self.0 else {
            return false;
        };
        let set = replace(file, format!("{}\n", mark.word()).as_bytes());
        if let Err(error) = &set {
            let file = file.display();
            tracing::warn!(%file, %error, "in service again after a restart: cannot write the mark");
        }
        set.is_ok()
    }

    /// Removes the mark. Returns whether there is a file for it.
    pub(crate) fn clear(&self) -> io::Result<bool> {
        let Some(file) = &self.0 else {
            return Ok(false);
        };
        match fs::remove_file(file) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use placement::Resources;

    use super::*;
    use crate::config::{ExecutorKind, ProcessConfig};

    #[test]
    fn a_mark_is_kept_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let mut config = RepConfig::new("a", "z", Resources::new(1, 1, 1));
        config.executor = ExecutorKind::Process(ProcessConfig {
            state_dir: Some(directory.path().join("below")),
            ..ProcessConfig::default()
        });
        let file = MarkFile::of(&config);
        assert_eq!(file.read(), Ok(None));
        for mark in [Mark::Drained, Mark::Cordoned] {
            assert!(file.set(mark));
            assert_eq!(MarkFile::of(&config).read(), Ok(Some(mark)));
        }
        assert!(file.clear().unwrap() && file.clear().unwrap());
        assert_eq!(file.read(), Ok(None));
        fs::write(directory.path().join("below/a.out-of-service"), "x").unwrap();
        assert_eq!(file.read().unwrap_err().field, "state_dir");
    }

    #[test]
    fn without_a_directory_nothing_is_kept() {
        let file = MarkFile::of(&RepConfig::new("a", "z", Resources::new(1, 1, 1)));
        assert!(!file.set(Mark::Drained) && !file.clear().unwrap());
        assert_eq!(file.read(), Ok(None));
    }
}
