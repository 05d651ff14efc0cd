//! `dea-out`: cells of a cluster as DEAs of an estate.
//!
//! [`run`] moves messages between two connections; `OutCells` makes the decisions, with a
//! [`Facade`](crate::dea::Facade) for each cell.

mod cells;
mod shell;
mod staging;
mod starts;
#[cfg(test)]
mod tests;
mod told;

use std::{collections::BTreeSet, time::Duration};

use placement::{Invalid, Span, check_name};
use shared::{
    Subjects,
    nats::{Bus, BusError, PermissionViolation},
    shutdown::CancellationToken,
};

/// The most cells that one program turns into DEAs.
pub const MAX_OUT_CELLS: usize = 1_000;

/// The longest name, which is part of the ids of the requests that are started.
const MAX_NAME: usize = 80;

/// The highest setting for the minimum that the staging of an app takes, in MB.
const MAX_STAGING_MB: i64 = 1 << 20;

/// Settings for turning cells into DEAs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeaOutConfig {
    /// Its name.
    pub name: String,
    /// The cells; no other program may turn them into DEAs.
    pub cells: Vec<String>,
    /// The interval between advertisements of a DEA, in ms.
    pub advertise_ms: u64,
    /// The interval between heartbeats of a DEA, in ms.
    pub heartbeat_ms: u64,
    /// The interval between registrations of the same route, in ms.
    pub register_ms: u64,
    /// The longest time for which an advertisement of a cell is believed, in ms.
    pub max_ttl_ms: u64,
    /// The least memory that the staging of an app takes, in MB.
    pub staging_memory_mb: i64,
    /// The least disk that the staging of an app takes, in MB.
    pub staging_disk_mb: i64,
    /// How long the staging of an app may take, in ms.
    pub staging_ms: u64,
}

impl DeaOutConfig {
    /// Returns settings with the intervals and amounts with which DEAs were deployed.
    pub fn new(name: &str, cells: Vec<String>) -> Self {
        Self {
            name: name.to_owned(),
            cells,
            advertise_ms: 5_000,
            heartbeat_ms: 10_000,
            register_ms: 20_000,
            max_ttl_ms: 60_000,
            staging_memory_mb: 1_024,
            staging_disk_mb: 2_048,
            staging_ms: 900_000,
        }
    }

    /// Rejects bad names, no cells or too many, intervals under 100 ms, and staging amounts and times that are zero or
    /// unlimited.
    pub fn check(&self) -> Result<(), Invalid> {
        check_name("name", &self.name)?;
        if self.name.len() > MAX_NAME {
            let expected = format!("at most {MAX_NAME} characters");
            return Err(Invalid::new("name", self.name.len(), expected));
        }
        if !(1..=MAX_OUT_CELLS).contains(&self.cells.len()) {
            let count = format!("a list of {}", self.cells.len());
            let expected = format!("1 to {MAX_OUT_CELLS} cells");
            return Err(Invalid::new("cells", count, expected));
        }
        let mut distinct = BTreeSet::new();
        for cell in &self.cells {
            check_name("cells", cell)?;
            if !distinct.insert(cell) {
                return Err(Invalid::new("cells", format!("{cell:?}"), "each cell once"));
            }
        }
        for (field, ms) in [
            ("advertise", self.advertise_ms),
            ("heartbeat", self.heartbeat_ms),
            ("register", self.register_ms),
            ("max-ttl", self.max_ttl_ms),
            ("staging-time", self.staging_ms),
        ] {
            if !(100..=3_600_000).contains(&ms) {
                let given = Span(Duration::from_millis(ms));
                return Err(Invalid::new(field, given, "from 100ms to 1h"));
            }
        }
        for (field, mb) in [
            ("staging-memory", self.staging_memory_mb),
            ("staging-disk", self.staging_disk_mb),
        ] {
            if !(0..=MAX_STAGING_MB).contains(&mb) {
                let expected = format!("from 0 to {MAX_STAGING_MB} MB");
                return Err(Invalid::new(field, mb, expected));
            }
        }
        Ok(())
    }
}

/// Why cells cannot be turned into DEAs.
#[derive(Debug, thiserror::Error)]
pub enum DeaOutError {
    /// The configuration is not valid.
    #[error("invalid configuration")]
    Config(#[from] Invalid),
    /// Another program of its name answers.
    #[error("another dea-out named {0:?} is running; expected a name of its own for each")]
    NameTaken(String),
    /// A server's permissions do not allow what is necessary.
    #[error("{0}; the credentials must be those of this facade")]
    NotPermitted(PermissionViolation),
    /// NATS cannot be used.
    #[error("cannot use NATS")]
    Bus(#[from] BusError),
}

/// Turns cells into DEAs until it is told to end. The DEAs then say `dea.shutdown`, and what was started through them
/// is stopped, as DEAs do. Losing either connection ends nothing.
pub async fn run(
    config: DeaOutConfig,
    (estate, cluster): (Bus, Bus),
    subjects: Subjects,
    ending: CancellationToken,
) -> Result<(), DeaOutError> {
    config.check()?;
    shell::run(config, estate, cluster, subjects, ending).await
}
