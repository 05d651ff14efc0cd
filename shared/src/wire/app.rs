//! Apps that managers keep running: requests to managers, and their answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{WireError, is_false};
use crate::version::Version;

/// `put`: sets what is to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppPut {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// A start request that may also contain `crash` and `update`, as its user wrote it.
    pub definition: Value,
    /// Only report what would change.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dry_run: bool,
}

/// `scale`: changes only the number of instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppScale {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// How many instances.
    pub instances: u32,
}

/// `restart`: replaces every instance by a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppRestart {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// How many at a time; as in the definition if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
}

/// `move`: starts an instance on another cell, and stops the old one when the new one is healthy. Repeated with the
/// same id, it asks for the progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppMove {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The id of this move: 1 to 128 of `A-Za-z0-9_-`.
    pub id: String,
    /// Which instance.
    pub index: u32,
    /// The cell that it runs on.
    pub from: String,
}

/// The progress of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MoveState {
    /// Both run, or the new one is being started.
    Moving,
    /// The new one runs, and the old one has ended.
    Moved,
    /// The old one stays.
    Failed,
}

/// The answer to a `move`, from the manager that acts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppMoved {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which manager.
    pub manager: String,
    /// The app.
    pub app: String,
    /// Which instance.
    pub index: u32,
    /// Where it ran.
    pub from: String,
    /// The progress.
    pub state: MoveState,
    /// Where it runs now, if it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `stop`, `start`, `delete`, `undo`, `pause` and `resume`: the subject says everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppAction {
    /// 1.
    #[serde(default)]
    pub v: Version,
}

/// `show` and `export`; an empty body asks for the wanted version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppLook {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// This version, if it is still in the history.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
}

/// `list`; an empty body asks for the first page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppList {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The apps after this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// The most apps to list (default and maximum: 500).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// One difference between two definitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldChange {
    /// The path of the field, such as `run.command`.
    pub field: String,
    /// Its value before; none if it had none. Environment variables have `"(hidden)"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// Its value after; none if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The answer to a request that changes an app, once the bucket has acknowledged the change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AppChanged {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which manager.
    pub manager: String,
    /// The app.
    pub app: String,
    /// This creation of it: 8 hexadecimal digits.
    pub uid: String,
    /// The version that is wanted now.
    pub version: u32,
    /// Whether anything changed.
    pub changed: bool,
    /// Whether the app did not exist before.
    #[serde(default, skip_serializing_if = "is_false")]
    pub created: bool,
    /// Whether nothing was changed because it was a dry run.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dry_run: bool,
    /// The changed fields; the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FieldChange>,
    /// Whether there are more changes than listed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// The progress of the rollout of the wanted version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rollout {
    /// It is in progress.
    Running,
    /// It waits until it is resumed.
    Paused,
    /// Every index runs the version, and has done so for `min_healthy`.
    Done,
    /// An instance of it failed, or there was no progress.
    Failed,
}

/// An app as a manager sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppStatus {
    /// Its name.
    pub app: String,
    /// This creation of it: 8 hexadecimal digits.
    pub uid: String,
    /// The wanted version.
    pub version: u32,
    /// How many instances are wanted; 0 for a stopped or deleted app.
    pub wanted: u32,
    /// Indices with an instance that is running and, if its definition has a readiness check, ready.
    pub running: u32,
    /// Indices with an instance that is on its way, or not ready.
    pub starting: u32,
    /// Indices that wait after a crash.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crashed: u32,
    /// Indices that crashed too often and are not started again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub given_up: u32,
    /// Instances on lost cells, which may still run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suspect: u32,
    /// Indices that have run the wanted version for `min_healthy`.
    pub complete: u32,
    /// The progress of the rollout.
    pub rollout: Rollout,
    /// Whether it is stopped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stopped: bool,
    /// Whether it was deleted, and its instances are ending.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deleted: bool,
    /// Whether the stored state is older than what ran: the app is then left alone until it is put again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub went_back: bool,
    /// Why some of it could not be placed last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unplaced: Option<String>,
    /// The main reason why not everything that is wanted runs; none if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A page of apps, sorted by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppListed {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which manager answers.
    pub manager: String,
    /// Whether it is the one that acts.
    pub acting: bool,
    /// How many apps there are in total.
    pub total: usize,
    /// The apps on this page.
    pub apps: Vec<AppStatus>,
    /// `after` for the next page; none if this is the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An app with its definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppShown {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which manager answers.
    pub manager: String,
    /// Whether it is the one that acts.
    pub acting: bool,
    /// Its status.
    pub status: AppStatus,
    /// The version of the definition below.
    pub version: u32,
    /// What was put. `run.env` is only a list of names.
    pub definition: Value,
}

/// The remembered versions of an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppHistory {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which manager answers.
    pub manager: String,
    /// The app.
    pub app: String,
    /// This creation of it: 8 hexadecimal digits.
    pub uid: String,
    /// Newest first.
    pub versions: Vec<AppVersion>,
}

/// One version of an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppVersion {
    /// Its number.
    pub version: u32,
    /// Whether it is the wanted one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub current: bool,
    /// Whether `undo` returns to it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub undo: bool,
    /// When it was stored, by the server's clock (RFC 3339, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The differences from the next older version in this list; the first 100 fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FieldChange>,
    /// Whether there are more changes than listed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// The answer to `export`, and an app of an `import`, including the values of the environment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AppExport {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The bucket it was exported from: 8 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<String>,
    /// The creation of the app: 8 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// The version that was wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Whether it was stopped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stopped: bool,
    /// What was put.
    pub definition: Value,
}

/// `import`: puts several apps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppImport {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Whether to keep `bucket`, `uid` and `version`, so that running instances are taken over instead of started
    /// again. Only for a bucket without apps, or for apps that are no longer in their bucket.
    #[serde(default, skip_serializing_if = "is_false")]
    pub restore: bool,
    /// At most 1,000.
    #[serde(deserialize_with = "placement::object::list")]
    pub apps: Vec<AppExport>,
}

/// The answer to an import.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppImported {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which manager.
    pub manager: String,
    /// One result for each app, in order.
    pub apps: Vec<AppImportResult>,
}

/// The result for one app of an import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppImportResult {
    /// The app; empty if its definition has no name.
    pub app: String,
    /// The version that is wanted now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// Whether anything changed.
    pub changed: bool,
    /// Why it was not imported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<WireError>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(n: &u32) -> bool {
    *n == 0
}
