//! Stops.

use serde::{Deserialize, Serialize};

use super::{WireError, parse_strict};
use crate::ids::{AuctionId, InstanceId};
use crate::version::Version;

/// What to stop: an app, or some of it. An instance must match all filters. An absent filter
/// matches everything; an empty one or an unknown field is rejected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The app.
    pub app: String,
    /// These indices only.
    #[serde(
        default,
        deserialize_with = "super::error::some",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub indices: Vec<u32>,
    /// These instances only.
    #[serde(
        default,
        deserialize_with = "super::error::some",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub instances: Vec<InstanceId>,
    /// Only what runs under this claim, killed at once: an instance that runs elsewhere under a lower claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<AuctionId>,
}

impl Stop {
    /// Parses a stop. A misspelt filter is an error: it must not stop more than was meant.
    pub fn read(body: &[u8]) -> Result<Self, WireError> {
        let stop: Self = parse_strict(body, "app, indices, instances or claim")?;
        placement::check_name("app", &stop.app)?;
        Ok(stop)
    }
}

/// One instance that is being stopped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stopped {
    /// Its id.
    pub instance: InstanceId,
    /// Its index.
    pub index: u32,
    /// Its cell; omitted in a cell's own answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
}

/// One cell's answer, even if nothing matched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StopAnswer {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The cell.
    pub cell: String,
    /// The instances that are being stopped.
    #[serde(default)]
    pub stopped: Vec<Stopped>,
}

/// How a stop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StopOutcome {
    /// Something was stopped or cancelled, and all cells answered.
    Stopped,
    /// All cells answered, and nothing matched.
    None,
    /// Some cells did not answer: they may still run matching instances.
    Partial,
}

/// The answer on behalf of all cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StopReply {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The app.
    pub app: String,
    /// How it ended.
    pub outcome: StopOutcome,
    /// How many instances are being stopped.
    pub count: usize,
    /// The first 1,000 of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<Stopped>,
    /// Queued instances that were cancelled.
    #[serde(default)]
    pub cancelled: usize,
    /// Cells that did not answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent: Vec<String>,
    /// A message for people: `"none found"` and the like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
