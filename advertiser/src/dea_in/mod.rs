//! `dea-in`: the DEAs of an estate as cells of a cluster.
//!
//! [`run`] moves messages between two connections, to the estate and to the cluster; `DeaCells` makes the decisions.

mod answers;
mod asked;
mod cells;
mod changes;
mod held;
mod queries;
mod shell;
mod start;
#[cfg(test)]
mod tests;

use std::time::Duration;

use placement::{Invalid, Span, check_name};
use shared::{
    Subjects,
    nats::{Bus, BusError, PermissionViolation},
    shutdown::CancellationToken,
};

pub use self::{
    asked::{OF_CELL, Question, Topic},
    cells::{CellsOutput, DeaCells},
};
use crate::dea::{BridgeOptions, EstateOptions, MAX_SLOTS};

/// The longest time for which an advertisement of a DEA may count, in s.
const MAX_EXPIRY_S: u64 = 3_600;
/// The longest time for which a bridge settles, in ms.
const MAX_SETTLE_MS: u64 = 3_600_000;

/// Settings of a bridge between DEAs and a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeaInConfig {
    /// Its name; its cells are `NAME-0`, `NAME-1` and so on.
    pub name: String,
    /// The maximum number of cells.
    pub slots: usize,
    /// How long an advertisement of a DEA counts, in s.
    pub expiry_s: u64,
    /// For how long after its start only heartbeats give slots, in ms. If this is shorter than the interval between two
    /// heartbeats of a DEA, the bridge may give other slots than an earlier bridge did.
    pub settle_ms: u64,
}

impl DeaInConfig {
    /// Rejects a bad name, no slots or too many, and times that are zero or too long.
    pub fn check(&self) -> Result<(), Invalid> {
        check_name("name", &self.name)?;
        if !(1..=MAX_SLOTS).contains(&self.slots) {
            let expected = format!("a number from 1 to {MAX_SLOTS}");
            return Err(Invalid::new("slots", self.slots, expected));
        }
        if !(1..=MAX_EXPIRY_S).contains(&self.expiry_s) {
            let expected = format!("from 1s to {MAX_EXPIRY_S}s");
            return Err(Invalid::new(
                "expiry",
                format!("{}s", self.expiry_s),
                expected,
            ));
        }
        if self.settle_ms > MAX_SETTLE_MS {
            let given = Span(Duration::from_millis(self.settle_ms));
            return Err(Invalid::new("settle", given, "at most 1h"));
        }
        Ok(())
    }

    /// Returns the names of the cells.
    pub fn cells(&self) -> impl Iterator<Item = String> {
        (0..self.slots).map(|slot| format!("{}-{slot}", self.name))
    }

    /// Returns 8 hexadecimal digits that distinguish the droplets of this bridge, in the cluster with this prefix, from
    /// those of others.
    pub fn mark(&self, prefix: &str) -> String {
        let text = format!("{prefix}/{}", self.name);
        let digest = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, text.as_bytes());
        digest.simple().to_string()[..8].to_owned()
    }

    fn options(&self, prefix: &str) -> BridgeOptions {
        BridgeOptions {
            name: self.name.clone(),
            mark: self.mark(prefix),
            slots: self.slots,
            estate: EstateOptions {
                expiry_s: self.expiry_s,
            },
            settle_ms: self.settle_ms,
        }
    }
}

/// Why a bridge cannot run.
#[derive(Debug, thiserror::Error)]
pub enum DeaInError {
    /// The configuration is not valid.
    #[error("invalid configuration")]
    Config(#[from] Invalid),
    /// Another bridge of its name, or a cell, answers.
    #[error("cell {0:?} answers already: another bridge of the same name is running")]
    NameTaken(String),
    /// A server's permissions do not allow what a bridge must do.
    #[error("{0}; the credentials must be those of this bridge")]
    NotPermitted(PermissionViolation),
    /// NATS cannot be used.
    #[error("cannot use NATS")]
    Bus(#[from] BusError),
}

/// Runs a bridge between an estate and a cluster until it is told to end. Its cells then take no more work, and are
/// known for another 15 s: a bridge that is started within this time takes them over. Losing either connection ends
/// nothing.
pub async fn run(
    config: DeaInConfig,
    (estate, cluster): (Bus, Bus),
    subjects: Subjects,
    ending: CancellationToken,
) -> Result<(), DeaInError> {
    config.check()?;
    shell::run(&config, estate, cluster, subjects, ending).await
}
