//! Apps that managers keep running: what is asked of a manager, and what it answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{WireError, is_false};
use crate::version::Version;

/// `put`: this is what is to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppPut {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// A start request that may also have `crash` and `update`, as its user wrote it.
    pub definition: Value,
    /// Only say what would change.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dry_run: bool,
}

/// `scale`: as before, but this often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppScale {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// How many instances.
    pub instances: u32,
}

/// `restart`: every instance is replaced by a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppRestart {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// So many at once; as in the definition if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<u32>,
}

/// `move`: an instance is started on another cell, and the old one is stopped when the new one is healthy. Repeated with the
/// same id, it asks how far that is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppMove {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Names this move: 1 to 128 of `A-Za-z0-9_-`.
    pub id: String,
    /// Which instance.
    pub index: u32,
    /// The cell that it runs on.
    pub from: String,
}

/// How far a move is.
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

/// The answer to a `move`, of the manager that acts.
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
    /// How far it is.
    pub state: MoveState,
    /// Where it runs now, if it was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `stop`, `start`, `delete`, `undo`, `pause` and `resume`: the subject says it all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppAction {
    /// 1.
    #[serde(default)]
    pub v: Version,
}

/// `show` and `export`; an empty body asks for the version that is wanted.
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
    /// At most so many (default and most: 500).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
}

/// One difference between two definitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldChange {
    /// The path of the field, such as `run.command`.
    pub field: String,
    /// Its value before; none if it had none. A variable of the environment has `"(hidden)"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// Its value after; none if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The answer to whatever changes an app, once the bucket has acknowledged it.
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
    /// There was no such app before.
    #[serde(default, skip_serializing_if = "is_false")]
    pub created: bool,
    /// Nothing was changed: it was only asked what would.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dry_run: bool,
    /// Field by field; the first 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FieldChange>,
    /// There are more changes than are listed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// How far the rollout of the wanted version is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rollout {
    /// It goes on.
    Running,
    /// It waits until it is resumed.
    Paused,
    /// Every index runs the version, and has for `min_healthy`.
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
    /// The version that is wanted.
    pub version: u32,
    /// How many instances are wanted; 0 of a stopped or deleted app.
    pub wanted: u32,
    /// Indices with an instance that runs and, where its definition says how that is checked, is ready.
    pub running: u32,
    /// Indices with one that is on its way, or is not ready.
    pub starting: u32,
    /// Indices that wait after a crash.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub crashed: u32,
    /// Indices that crashed too often and are not started again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub given_up: u32,
    /// Instances on cells that are lost: they may run.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suspect: u32,
    /// Indices that run the wanted version for `min_healthy`.
    pub complete: u32,
    /// How far the rollout is.
    pub rollout: Rollout,
    /// It is stopped.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stopped: bool,
    /// It was deleted, and its instances are ending.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deleted: bool,
    /// What is stored is older than what ran: it is left alone until it is put again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub went_back: bool,
    /// Why something of it was not placed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unplaced: Option<String>,
    /// The most important reason why not everything that is wanted runs; none when it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// A page of apps, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppListed {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// Which manager answers.
    pub manager: String,
    /// Whether it is the one that acts.
    pub acting: bool,
    /// How many apps there are.
    pub total: usize,
    /// These of them.
    pub apps: Vec<AppStatus>,
    /// `after` of the next page; none when this is the last.
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
    /// How it is.
    pub status: AppStatus,
    /// The version of the definition below.
    pub version: u32,
    /// What was put. `run.env` is a list of names.
    pub definition: Value,
}

/// The versions of an app that are remembered.
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
    /// The newest first.
    pub versions: Vec<AppVersion>,
}

/// One version of an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppVersion {
    /// Its number.
    pub version: u32,
    /// It is the one that is wanted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub current: bool,
    /// `undo` returns to it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub undo: bool,
    /// When it was stored, by the server's clock (RFC 3339, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// What is different from the next older one in this list; the first 100 fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<FieldChange>,
    /// There are more changes than are listed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub more: bool,
}

/// The answer to `export`, and an app of an `import`: with the values of the environment.
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
    /// It was stopped.
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
    /// Keep `bucket`, `uid` and `version`, so that instances which run are taken over and not started
    /// again. Only for a bucket without apps, or for apps that are not in their bucket any more.
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
    /// For each app, in their order.
    pub apps: Vec<AppImportResult>,
}

/// What became of one app of an import.
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
