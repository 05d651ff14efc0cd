//! A model of the buckets in which managers keep their state: JetStream's key-value store with history 1, with separate
//! buckets for the lease and for stored requests, so that each has its own revisions. Deletions have revisions too.
//!
//! Used by scenarios ([`crate::world`]) and by the check of the protocol ([`mod@crate::check`]). Its faults are listed
//! in `check::script::BucketFault`.

use std::collections::BTreeMap;

use bytes::Bytes;
use manager::{AppRecord, Revision, TaskRecord, WriteId, WriteResult, read_stored};

/// A manager's request to the bucket.
#[derive(Clone, Debug)]
pub(crate) enum StateRequest {
    /// Store a value.
    Write(StateWrite),
    /// Show everything, and then every change. The number identifies the watch.
    Watch(u64),
    /// Report whether the values that this watch has shown still exist.
    Look(u64),
}

/// See `manager::ManagerOutput::Write`.
#[derive(Clone, Debug)]
pub(crate) struct StateWrite {
    pub(crate) write: WriteId,
    pub(crate) key: String,
    pub(crate) value: Option<Bytes>,
    pub(crate) expected: Option<Revision>,
}

/// What the bucket tells a manager.
#[derive(Clone, Debug)]
pub(crate) enum StateAnswer {
    /// A write has ended.
    Ended { write: WriteId, result: WriteResult },
    /// A watch shows a value or a deletion.
    Shown {
        watch: u64,
        key: String,
        revision: Revision,
        value: Option<Bytes>,
    },
    /// A watch has shown everything.
    Ready { watch: u64, revision: Revision },
    /// A watch has ended.
    Broken { watch: u64 },
    /// The oldest revision that exists, and how many values the lease's bucket has.
    Seen {
        watch: u64,
        oldest: Revision,
        leases: usize,
    },
}

impl StateAnswer {
    /// Returns the watch to which it belongs.
    pub(crate) fn watch(&self) -> Option<u64> {
        match self {
            Self::Ended { .. } => None,
            Self::Shown { watch, .. }
            | Self::Ready { watch, .. }
            | Self::Broken { watch }
            | Self::Seen { watch, .. } => Some(*watch),
        }
    }
}

/// Values and deletions with their revisions.
pub(crate) type Values = BTreeMap<String, (Revision, Option<Bytes>)>;

#[derive(Clone, Debug, Default)]
struct Store {
    revision: Revision,
    values: Values,
}

/// The buckets; see the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bucket {
    main: Store,
    lease: Store,
    tasks: Store,
    /// The content when a copy was last made.
    copy: Store,
}

const LEASE: &str = "lease";
/// Prefix of the keys of stored requests in this model; in JetStream they have their own bucket.
pub(crate) const TASKS: &str = "task.";

impl Bucket {
    /// Stores a value if the key has the expected revision.
    pub(crate) fn write(&mut self, write: &StateWrite) -> WriteResult {
        let store = if write.key == LEASE {
            &mut self.lease
        } else if write.key.starts_with(TASKS) {
            &mut self.tasks
        } else {
            &mut self.main
        };
        let present = store
            .values
            .get(&write.key)
            .map_or(Revision::NONE, |(at, _)| *at);
        if write.expected.is_some_and(|expected| expected != present) {
            return WriteResult::Conflict;
        }
        store.revision.0 += 1;
        let stored = (store.revision, write.value.clone());
        store.values.insert(write.key.clone(), stored);
        WriteResult::Written(store.revision)
    }

    /// Returns all values, oldest first.
    pub(crate) fn values(&self) -> Vec<(String, Revision, Option<Bytes>)> {
        let all = self.main.values.iter().chain(&self.lease.values);
        let all = all.chain(&self.tasks.values);
        let mut all: Vec<_> = all
            .map(|(key, (revision, value))| (key.clone(), *revision, value.clone()))
            .collect();
        all.sort_by_key(|(_, revision, _)| *revision);
        all
    }

    /// Returns the value of a key and its revision.
    pub(crate) fn get(&self, key: &str) -> Option<&(Revision, Option<Bytes>)> {
        let others = || self.lease.values.get(key).or(self.tasks.values.get(key));
        self.main.values.get(key).or_else(others)
    }

    /// Returns the stored requests with their ids.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = (&str, TaskRecord)> {
        let all = self.tasks.values.iter();
        all.filter_map(|(key, (_, value))| {
            let record = read_stored(value.as_ref()?).ok()?;
            Some((key.strip_prefix(TASKS)?, record))
        })
    }

    /// Returns the last revision of the main bucket.
    pub(crate) fn revision(&self) -> Revision {
        self.main.revision
    }

    /// Returns the keys with this prefix that have a value.
    pub(crate) fn keys(&self, prefix: &str) -> Vec<String> {
        let all = self.main.values.iter();
        let there = all.filter(|(key, (_, value))| key.starts_with(prefix) && value.is_some());
        there.map(|(key, _)| key.clone()).collect()
    }

    /// Returns the records of the apps.
    pub(crate) fn apps(&self) -> Vec<AppRecord> {
        let keys = self.keys("app.").into_iter();
        let values = keys.filter_map(|key| self.get(&key)?.1.clone());
        values
            .filter_map(|value| read_stored(&value).ok())
            .collect()
    }

    /// Deletes and recreates the bucket, with or without the lease's. Managers create it with the time as its first
    /// revision, so no revision occurs twice.
    pub(crate) fn recreate(&mut self, with_lease: bool) {
        let anew = |store: &Store| Store {
            revision: Revision(store.revision.0 + 1_000),
            values: Values::new(),
        };
        self.main = anew(&self.main);
        if with_lease {
            self.lease = anew(&self.lease);
        }
    }

    /// Removes everything, with or without the lease. Revisions continue.
    pub(crate) fn purge(&mut self, with_lease: bool) {
        self.main.values.clear();
        if with_lease {
            self.lease.values.clear();
        }
    }

    /// Returns the answer to [`StateRequest::Look`].
    pub(crate) fn look(&self, watch: u64) -> StateAnswer {
        let oldest = self
            .main
            .values
            .values()
            .map(|(revision, _)| *revision)
            .min();
        StateAnswer::Seen {
            watch,
            oldest: oldest.unwrap_or(Revision(self.main.revision.0 + 1)),
            leases: self.lease.values.len(),
        }
    }

    /// Saves a copy of it, without the lease.
    pub(crate) fn save(&mut self) {
        self.copy = self.main.clone();
    }

    /// Replaces it by the last copy.
    pub(crate) fn restore(&mut self) {
        self.main = self.copy.clone();
    }
}
