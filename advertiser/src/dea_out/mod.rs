//! `dea-out`: cells of a cluster as DEAs of an estate.
//!
//! [`run`] moves the messages between two connections; `OutCells` decides, with a [`Facade`](crate::dea::Facade) for each cell.

mod cells;
mod shell;
mod starts;
#[cfg(test)]
mod tests;
mod told;

use std::collections::BTreeSet;

use placement::{Invalid, check_name};
use shared::{
    Subjects,
    nats::{Bus, BusError, PermissionViolation},
    shutdown::CancellationToken,
};

/// The most cells of which one program makes DEAs.
pub const MAX_OUT_CELLS: usize = 1_000;

/// The longest name: the requests of what is started begin with it.
const MAX_NAME: usize = 80;

/// How cells are made DEAs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeaOutConfig {
    /// Its name.
    pub name: String,
    /// The cells; no other program may make DEAs of them.
    pub cells: Vec<String>,
    /// Between two advertisements of a DEA, ms.
    pub advertise_ms: u64,
    /// Between two heartbeats of a DEA, ms.
    pub heartbeat_ms: u64,
    /// Between two registrations of the same route, ms.
    pub register_ms: u64,
}

impl DeaOutConfig {
    /// The intervals with which DEAs were deployed.
    pub fn new(name: &str, cells: Vec<String>) -> Self {
        Self {
            name: name.to_owned(),
            cells,
            advertise_ms: 5_000,
            heartbeat_ms: 10_000,
            register_ms: 20_000,
        }
    }

    /// Rejects bad names, no cells or too many, and intervals under 100 ms.
    pub fn check(&self) -> Result<(), Invalid> {
        check_name("name", &self.name)?;
        if self.name.len() > MAX_NAME {
            let expected = format!("at most {MAX_NAME} characters");
            return Err(Invalid::new("name", self.name.len(), expected));
        }
        let distinct: BTreeSet<&String> = self.cells.iter().collect();
        if !(1..=MAX_OUT_CELLS).contains(&self.cells.len()) || distinct.len() < self.cells.len() {
            let expected = format!("1 to {MAX_OUT_CELLS} different cells");
            return Err(Invalid::new("cells", self.cells.len(), expected));
        }
        for cell in &self.cells {
            check_name("cells", cell)?;
        }
        for (field, ms) in [
            ("advertise", self.advertise_ms),
            ("heartbeat", self.heartbeat_ms),
            ("register", self.register_ms),
        ] {
            if !(100..=3_600_000).contains(&ms) {
                return Err(Invalid::new(field, format!("{ms}ms"), "from 100ms to 1h"));
            }
        }
        Ok(())
    }
}

/// Why cells cannot be made DEAs.
#[derive(Debug, thiserror::Error)]
pub enum DeaOutError {
    /// The configuration is not valid.
    #[error("invalid configuration")]
    Config(#[from] Invalid),
    /// Another program of its name answers.
    #[error("another dea-out named {0:?} is running; expected a name of its own for each")]
    NameTaken(String),
    /// A server's permissions do not allow what is to be done.
    #[error("{0}; the credentials must be those of this facade")]
    NotPermitted(PermissionViolation),
    /// NATS cannot be used.
    #[error("cannot use NATS")]
    Bus(#[from] BusError),
}

/// Makes cells DEAs until it is told to end. Its DEAs say `dea.shutdown` then, and what was started through them is stopped, as
/// DEAs do it. Losing either connection ends nothing.
pub async fn run(
    config: DeaOutConfig,
    (estate, cluster): (Bus, Bus),
    subjects: Subjects,
    ending: CancellationToken,
) -> Result<(), DeaOutError> {
    config.check()?;
    shell::run(config, estate, cluster, subjects, ending).await
}
