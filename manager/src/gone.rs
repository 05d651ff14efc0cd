//! Deleted apps. A cell that was silent when an app was deleted may come back with instances of it, possibly when
//! another manager acts: these are ended, as the user wanted.

use std::{collections::BTreeMap, sync::Arc};

use placement::{Kind, MAX_INSTANCES};
use shared::{
    InstanceId,
    wire::{Instance, instance_id},
};

use crate::{
    ids::{AppUid, CellId, Revision, WaveId},
    stored::MAX_GONE,
};

/// Instances of one app with their cells.
type Met = Vec<(CellId, InstanceId)>;

/// What is known of deleted apps.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    /// By creation: the revision of the record and the app's name.
    apps: BTreeMap<AppUid, (Revision, Arc<str>)>,
    /// Instances of them that cells have listed, by app.
    met: BTreeMap<Arc<str>, Met>,
}

impl Gone {
    /// Forgets all of them because the watch begins again or the bucket is another one.
    pub(crate) fn clear(&mut self) {
        self.apps.clear();
    }

    /// Records that this creation of an app was deleted.
    pub(crate) fn insert(&mut self, uid: AppUid, revision: Revision, app: &str) {
        self.apps.insert(uid, (revision, app.into()));
    }

    pub(crate) fn remove(&mut self, uid: AppUid) {
        self.apps.remove(&uid);
    }

    /// Returns whether the deletion of this creation of the app is stored.
    pub(crate) fn has(&self, uid: AppUid, app: &str) -> bool {
        self.apps.get(&uid).is_some_and(|(_, name)| **name == *app)
    }

    /// Returns the oldest ones that will be too many once these are added.
    pub(crate) fn surplus(&self, added: &[AppUid]) -> Vec<AppUid> {
        let is_new = |uid: &&AppUid| !self.apps.contains_key(uid);
        let count = self.apps.len() + added.iter().filter(is_new).count();
        let mut oldest: Vec<_> = self.apps.iter().map(|(uid, (at, _))| (*at, *uid)).collect();
        oldest.sort_unstable();
        oldest.truncate(count.saturating_sub(MAX_GONE));
        oldest.into_iter().map(|(_, uid)| uid).collect()
    }

    /// Records that a cell lists an instance of no app of the bucket. Returns whether it belongs to a deleted one.
    pub(crate) fn meet(&mut self, cell: CellId, listed: &Instance, wave: &WaveId) -> bool {
        let Some((_, app)) = self.apps.get(&wave.uid) else {
            return false;
        };
        // anybody may start something under such an id; only an instance id that follows from it proves a wave
        let own = instance_id(&wave.to_string(), app, Kind::Lrp, listed.index);
        if own != listed.instance || listed.index >= MAX_INSTANCES {
            return false;
        }
        let met = self.met.entry(Arc::clone(app)).or_default();
        met.push((cell, listed.instance));
        true
    }

    /// Takes what was met since the last call.
    pub(crate) fn take_met(&mut self) -> BTreeMap<Arc<str>, Met> {
        std::mem::take(&mut self.met)
    }
}
