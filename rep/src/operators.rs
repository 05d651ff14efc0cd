//! Operators' changes of attributes, kept in a file so that they survive a restart.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use placement::{Cell, Invalid};
use shared::wire::{WireError, code};

use crate::{
    attributes::{Changes, changed_cell, merge},
    config::RepConfig,
};

/// A cell's configuration, and the attributes that operators have changed.
#[derive(Debug)]
pub(crate) struct Operators {
    config: RepConfig,
    file: Option<PathBuf>,
    changed: Changes,
}

impl Operators {
    /// Reads the file if there is one; its contents must fit the configuration.
    pub(crate) fn load(config: &RepConfig) -> Result<Self, Invalid> {
        let file = file_of(config);
        let changed = match &file {
            None => Changes::new(),
            Some(file) => read(file).map_err(|e| {
                let expected = "a JSON object of attributes, as the cell wrote it";
                Invalid::new(
                    "attributes_file",
                    format!("{}: {e}", file.display()),
                    expected,
                )
            })?,
        };
        let operators = Self {
            config: config.clone(),
            file,
            changed,
        };
        operators.cell()?;
        Ok(operators)
    }

    /// Returns the empty cell with the configured and the changed attributes.
    pub(crate) fn cell(&self) -> Result<Cell, Invalid> {
        changed_cell(&self.config, &self.changed)
    }

    /// Returns all changed attributes.
    pub(crate) fn changed(&self) -> &Changes {
        &self.changed
    }

    /// Returns whether changes survive a restart.
    pub(crate) fn keeps(&self) -> bool {
        self.file.is_some()
    }

    /// Changes either all of these attributes or none; writes the file first.
    pub(crate) fn set(&mut self, set: Changes) -> Result<Cell, WireError> {
        let changed = merge(self.changed.clone(), set)?;
        let cell = changed_cell(&self.config, &changed)?;
        if let Some(file) = &self.file {
            let written = serde_json::to_vec_pretty(&changed).map_err(io::Error::other);
            let written = written.and_then(|text| replace(file, &text));
            written.map_err(|e| {
                let message = format!("{}: {e}; nothing was changed", file.display());
                WireError::new(code::INTERNAL, message)
            })?;
        }
        self.changed = changed;
        Ok(cell)
    }
}

/// Returns the configured file, or else one in the state directory, if that is configured.
fn file_of(config: &RepConfig) -> Option<PathBuf> {
    let in_state_dir = || {
        let directory = config.state_dir()?;
        Some(directory.join(format!("{}.attributes.json", config.cell)))
    };
    config.attributes_file.clone().or_else(in_state_dir)
}

fn read(file: &Path) -> io::Result<Changes> {
    match fs::read(file) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Changes::new()),
        Err(e) => Err(e),
    }
}

/// Replaces a file atomically: after a power failure it is either the old one or the new one.
pub(crate) fn replace(file: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::File::open(&new)?.sync_all()?;
    fs::rename(&new, file)
}
