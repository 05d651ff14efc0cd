//! The content of the bucket: plain data, each value with the number of its format.
//!
//! | key | value | written by |
//! |---|---|---|
//! | `meta` | [`MetaRecord`]: the bucket's id | the first manager, once |
//! | `lease` | [`LeaseRecord`]: who acts | managers; a bucket of its own with history 1 is enough |
//! | `app.<name>` | [`AppRecord`]: what is wanted | commands |
//! | `state.<uid>` | [`StateRecord`]: waves and crash counts | the lease holder, before each start |
//! | `rollout.<uid>` | [`RolloutRecord`]: how the last rollout ended | the lease holder |
//! | `hist.<uid>.<version>` | [`HistoryRecord`]: a template that was wanted | commands |
//! | `gone.<uid>` | [`GoneRecord`]: an app that was deleted | the lease holder |
//!
//! Every write except those of `hist` and `gone` names the revision that it replaces. All of `state` and `rollout` may
//! be lost: that costs one ttl of waiting and a new wave, but stops nothing.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use placement::{Invalid, Request, check_name};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use shared::wire::{WireError, code};

use crate::{
    definition::AppDefinition,
    ids::{AppUid, BucketId},
};

/// The format of every value that this program writes. A manager that finds a value of a newer format gives the lease
/// back and only observes.
pub const FORMAT: u32 = 1;

/// Maximum number of crash counts stored for an app; further ones are only in memory.
pub const MAX_STORED_CRASHES: usize = 20_000;
/// Maximum number of former creations of an app whose instances are still stopped.
pub const MAX_FORMER: usize = 8;

/// Maximum number of deleted apps that are remembered. Instances of these are stopped on a cell that returns.
pub const MAX_GONE: usize = 1_000;

/// Number of versions of an app in its history.
pub const HISTORY: u32 = 10;

/// A key of the bucket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoredKey {
    /// The bucket itself.
    Meta,
    /// The holder of the lease.
    Lease,
    /// What is wanted of an app, by its name.
    App(Arc<str>),
    /// Waves and crash counts of an app.
    State(AppUid),
    /// The last rollout of an app.
    Rollout(AppUid),
    /// A version of an app.
    History(AppUid, u32),
    /// A deleted app.
    Gone(AppUid),
}

impl fmt::Display for StoredKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meta => f.write_str("meta"),
            Self::Lease => f.write_str("lease"),
            Self::App(name) => write!(f, "app.{name}"),
            Self::State(uid) => write!(f, "state.{uid}"),
            Self::Rollout(uid) => write!(f, "rollout.{uid}"),
            Self::History(uid, version) => write!(f, "hist.{uid}.{version}"),
            Self::Gone(uid) => write!(f, "gone.{uid}"),
        }
    }
}

impl FromStr for StoredKey {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let parts: Vec<&str> = text.splitn(4, '.').collect();
        match parts.as_slice() {
            ["meta"] => Ok(Self::Meta),
            ["lease"] => Ok(Self::Lease),
            ["app", name] => {
                check_name("key", name)?;
                Ok(Self::App((*name).into()))
            }
            ["state", uid] => Ok(Self::State(uid.parse()?)),
            ["rollout", uid] => Ok(Self::Rollout(uid.parse()?)),
            ["gone", uid] => Ok(Self::Gone(uid.parse()?)),
            ["hist", uid, version] if version.parse::<u32>().is_ok() => Ok(Self::History(
                uid.parse()?,
                version.parse().unwrap_or_default(),
            )),
            _ => {
                let expected =
                    "meta, lease, app.NAME, state.UID, rollout.UID, gone.UID or hist.UID.VERSION";
                Err(Invalid::new("key", format!("{text:?}"), expected))
            }
        }
    }
}

/// `meta`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetaRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The bucket's id, which is part of every wave's id.
    pub bucket: BucketId,
    /// Changes each time an import restores apps into a new bucket. Of two buckets with the same id, it tells the
    /// restored one from an older copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<BucketId>,
}

/// `lease`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The run of a manager that holds it; empty if the lease was given back.
    pub holder: String,
}

/// A version that ran before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Before {
    /// Its version.
    pub version: u32,
    /// Its definition.
    pub definition: AppDefinition,
}

/// `app.<name>`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The uid of this creation of the app.
    pub uid: AppUid,
    /// The version of the template, counted from 1. It grows with each change of what runs.
    pub version: u32,
    /// What is wanted.
    pub definition: AppDefinition,
    /// Whether none of it is to run.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stopped: bool,
    /// Whether its rollout is paused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub paused: bool,
    /// Whether it was restored from an export: it may run although nothing else in the bucket says so.
    #[serde(default, skip_serializing_if = "is_false")]
    pub restored: bool,
    /// Whether it was deleted. The record is kept until none of its instances is reported.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deleted: bool,
    /// Whether this version returns to the one before, whose instances are then fine as they are.
    #[serde(default, skip_serializing_if = "is_false")]
    pub reverted: bool,
    /// `max_in_flight` of this version's rollout if it differs from the definition's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// The last version whose rollout was completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Box<Before>>,
    /// Earlier creations under this name, whose instances are to end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<AppUid>,
}

impl AppRecord {
    /// Returns the template that instances of a version were started with; none if it is no longer known.
    pub(crate) fn template(&self, version: u32) -> Option<&Arc<Request>> {
        if version == self.version {
            return Some(&self.definition.template);
        }
        let before = self.before.as_ref().filter(|b| b.version == version)?;
        Some(&before.definition.template)
    }
}

/// A stored wave whose outcome is not stored yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredWave {
    /// Its number.
    pub wave: u32,
    /// The version that it starts.
    pub version: u32,
    /// The app's number of instances at that time, as its request names it.
    pub instances: u32,
    /// Its indices, such as `"0,2-9"`.
    pub indices: String,
    /// The cell that its instances are moved from and must not go to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_cell: Option<String>,
}

/// `state.<uid>`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The highest wave.
    pub wave: u32,
    /// The highest version that was acted on.
    pub acted: u32,
    /// Waves without an outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open: Vec<StoredWave>,
    /// Number of crashes in a row, by index.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub crashes: BTreeMap<u32, u32>,
    /// How the last crashed instance ended, such as `exit 1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash: Option<String>,
    /// Why some of its instances were last unplaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unplaced: Option<String>,
}

/// How a rollout ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RolloutPhase {
    /// Every index has run the version for `min_healthy`.
    Done,
    /// An instance of it failed, or there was no progress.
    Failed,
}

/// `rollout.<uid>`. A version without one is being rolled out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolloutRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The version.
    pub version: u32,
    /// How it ended.
    pub phase: RolloutPhase,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `hist.<uid>.<version>`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// What was wanted.
    pub definition: AppDefinition,
}

/// `gone.<uid>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneRecord {
    /// [`FORMAT`].
    pub format: u32,
    /// The app's name.
    pub app: String,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_false(b: &bool) -> bool {
    !*b
}

/// Why a stored value is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It is of a newer format.
    Newer(u32),
    /// It cannot be read.
    Unreadable(WireError),
}

/// Reads a stored value. The format is read first, as the other fields of a newer format are unknown.
pub fn read_stored<T: DeserializeOwned>(value: &[u8]) -> Result<T, Unusable> {
    #[derive(Deserialize)]
    struct Formatted {
        format: u32,
    }
    let formatted: Formatted = shared::wire::read(value).map_err(Unusable::Unreadable)?;
    if formatted.format > FORMAT {
        return Err(Unusable::Newer(formatted.format));
    }
    shared::wire::read(value).map_err(Unusable::Unreadable)
}

/// Returns the error of a manager that does not know what is stored.
pub(crate) fn unavailable() -> WireError {
    let message = "the stored state is not available to this manager; try again";
    WireError::new(code::INTERNAL, message)
}
