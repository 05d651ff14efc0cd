//! The apps in memory: what is wanted of each, its indices, its waves, and which apps must be looked at.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use placement::{FastMap, Request};
use shared::InstanceId;

use crate::{
    ids::{AppId, AppUid, Revision, WriteId},
    stored::{AppRecord, RolloutPhase, RolloutRecord, StoredWave},
};

/// How often every app is looked at even if nothing happens.
pub const SWEEP_MS: u64 = 30_000;
/// Minimum time between two starts of an index.
const AGAIN_MS: u64 = 1_000;
/// Window in which stops that nobody asked for are counted together.
pub(crate) const BRAKE_MS: u64 = 10_000;
/// Number of indices that can be looked at per millisecond of pause. Large apps are looked at less often, so that each
/// app costs a bounded share of the processor.
const INDICES_PER_MS: usize = 20;

/// One index of an app.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slot {
    /// Its instances, in the order in which they became known.
    pub(crate) held: Vec<InstanceId>,
    /// Version of the last instance that ran alone here; 0 = unknown.
    pub(crate) version: u32,
    /// Number of crashes in a row.
    pub(crate) crashes: u32,
    /// Whether it was given up: it is not started again.
    pub(crate) given_up: bool,
    /// The version that crashed here last; 0 = none.
    pub(crate) crashed_version: u32,
    /// Whether it is being replaced by stopping the old instance first.
    pub(crate) rolling: bool,
    /// No start happens before this time.
    pub(crate) due_ms: u64,
    /// When it was last started; 0 = never.
    pub(crate) asked_ms: u64,
    /// Whether it was unplaced and waits for room.
    pub(crate) no_room: bool,
    /// The settling period in which it was seen to become free; 0 = never.
    pub(crate) free_in: u32,
}

impl Slot {
    /// Returns when it may be started again, whatever ended it: an instance that ends at once must not be restarted in
    /// a tight loop.
    pub(crate) fn ready_ms(&self) -> u64 {
        let again_ms = if self.asked_ms > 0 {
            self.asked_ms + AGAIN_MS
        } else {
            0
        };
        self.due_ms.max(again_ms)
    }
}

/// The state of an open wave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WavePhase {
    /// It is being stored.
    Storing,
    /// Its request may have been sent; if nobody has answered, the cells are asked at this time.
    Sent { ask_ms: u64 },
    /// The cells were asked; the request is sent again at this time.
    Asking { send_ms: u64 },
    /// It was stored but not sent, because the lease was too old.
    Held,
}

/// A wave without an outcome.
#[derive(Clone, Debug)]
pub(crate) struct OpenWave {
    pub(crate) wave: u32,
    pub(crate) version: u32,
    pub(crate) instances: u32,
    pub(crate) indices: Vec<u32>,
    /// The cell that its instances are moved from and must not go to.
    pub(crate) exclude_cell: Option<Arc<str>>,
    pub(crate) phase: WavePhase,
    pub(crate) tries: u32,
    /// Whether it was found in the bucket.
    pub(crate) adopted: bool,
}

impl OpenWave {
    /// Returns the form in which it is stored.
    pub(crate) fn stored(&self) -> StoredWave {
        StoredWave {
            wave: self.wave,
            version: self.version,
            instances: self.instances,
            indices: shared::wire::format_indices(self.indices.iter().copied()),
            exclude_cell: self.exclude_cell.as_deref().map(str::to_owned),
        }
    }
}

/// Counts stops that nobody asked for within [`BRAKE_MS`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Brake {
    since_ms: u64,
    count: usize,
    pub(crate) told: bool,
}

impl Brake {
    /// Returns whether one more may be sent now, out of at most `most`. Does not count it.
    pub(crate) fn allows(&mut self, now_ms: u64, most: usize) -> bool {
        if now_ms >= self.since_ms + BRAKE_MS {
            *self = Self {
                since_ms: now_ms,
                count: 0,
                told: false,
            };
        }
        self.count < most
    }

    pub(crate) fn count(&mut self) {
        self.count += 1;
    }

    /// Returns when further stops may be sent.
    pub(crate) fn ends_ms(&self) -> u64 {
        self.since_ms + BRAKE_MS
    }
}

/// One app.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) name: Arc<str>,
    pub(crate) record: AppRecord,
    pub(crate) revision: Revision,
    pub(crate) rollout: Option<RolloutRecord>,
    pub(crate) rollout_revision: Revision,
    pub(crate) state_revision: Revision,
    /// The number of its highest wave.
    pub(crate) wave: u32,
    /// The highest version that was acted on or that runs.
    pub(crate) acted: u32,
    pub(crate) open: Vec<OpenWave>,
    pub(crate) slots: Vec<Slot>,
    /// Instances of earlier creations.
    pub(crate) leftovers: Vec<InstanceId>,
    /// Indices below this were once wanted; those beyond the present number are stopped because a user said so.
    pub(crate) wanted_before: u32,
    /// The settling period in which this manager saw it created, so that none of its instances can run unheard; 0 =
    /// never.
    pub(crate) new_in: u32,
    /// The stored record is older than what runs: nothing is done until somebody puts the app again.
    pub(crate) went_back: bool,
    /// `went_back` is set only because a version ran that is newer than the stored one known here; it is cleared once
    /// that version is shown.
    pub(crate) behind: bool,
    /// The value could not be read.
    pub(crate) unreadable: bool,
    /// Whether the state in memory has yet to be stored.
    pub(crate) unsaved: bool,
    pub(crate) saved_ms: u64,
    pub(crate) writing: Option<WriteId>,
    pub(crate) blocked_ms: u64,
    pub(crate) brake: Brake,
    /// Number of indices that the rollout has completed, and since when.
    pub(crate) progress: (u32, u64),
    /// Why the rollout has failed, until the failure is stored.
    pub(crate) failing: Option<String>,
    /// Why some of its instances were last unplaced.
    pub(crate) unplaced: Option<String>,
    /// How the last crashed instance ended.
    pub(crate) crash: Option<String>,
    decided_ms: u64,
    due_ms: u64,
    /// Whether it has not been shown since the watch began again.
    pub(crate) unshown: bool,
}

impl App {
    pub(crate) fn new(record: AppRecord, revision: Revision, now_ms: u64) -> Self {
        let instances = record.definition.instances;
        let mut app = Self {
            name: record.definition.app().into(),
            record,
            revision,
            rollout: None,
            rollout_revision: Revision::NONE,
            state_revision: Revision::NONE,
            wave: 0,
            acted: 0,
            open: Vec::new(),
            slots: Vec::new(),
            leftovers: Vec::new(),
            wanted_before: instances,
            new_in: 0,
            went_back: false,
            behind: false,
            unreadable: false,
            unsaved: false,
            saved_ms: 0,
            writing: None,
            blocked_ms: 0,
            brake: Brake::default(),
            progress: (0, now_ms),
            failing: None,
            unplaced: None,
            crash: None,
            decided_ms: 0,
            due_ms: u64::MAX,
            unshown: false,
        };
        app.grow(instances);
        app
    }

    /// Ensures that each index below `instances` has a slot.
    pub(crate) fn grow(&mut self, instances: u32) {
        if self.slots.len() < instances as usize {
            self.slots.resize_with(instances as usize, Slot::default);
        }
    }

    pub(crate) fn slot_mut(&mut self, index: u32) -> &mut Slot {
        self.grow(index + 1);
        &mut self.slots[index as usize]
    }

    /// Returns the template of a version, if it is known.
    pub(crate) fn template(&self, version: u32) -> Option<&Arc<Request>> {
        self.record.template(version)
    }

    /// Returns how the rollout of the present version ended; none while it goes on.
    pub(crate) fn phase(&self) -> Option<RolloutPhase> {
        let rollout = self.rollout.as_ref();
        let of_this = rollout.filter(|rollout| rollout.version == self.record.version);
        of_this.map(|rollout| rollout.phase)
    }

    /// Returns whether none of its instances may be started or stopped.
    pub(crate) fn is_left_alone(&self) -> bool {
        self.went_back || self.unreadable
    }

    /// Returns whether no instance or open wave of it is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.leftovers.is_empty()
            && self.open.is_empty()
            && self.slots.iter().all(|slot| slot.held.is_empty())
    }

    /// Returns the crash counts in the form in which they are stored.
    pub(crate) fn crashes(&self) -> BTreeMap<u32, u32> {
        let counted = (0..).zip(&self.slots).filter(|(_, slot)| slot.crashes > 0);
        let stored = counted.map(|(index, slot)| (index, slot.crashes));
        stored.take(crate::stored::MAX_STORED_CRASHES).collect()
    }

    /// Returns how the last crash ended, to be appended to a message; empty if that is not known.
    pub(crate) fn last_crash(&self) -> String {
        let how = self.crash.as_ref();
        how.map_or_else(String::new, |how| format!(" (last: {how})"))
    }

    fn pause_ms(&self) -> u64 {
        u64::try_from(self.slots.len() / INDICES_PER_MS).unwrap_or(u64::MAX)
    }
}

/// All apps.
#[derive(Debug, Default)]
pub(crate) struct Apps {
    list: Vec<Option<App>>,
    free: Vec<AppId>,
    by_name: BTreeMap<Arc<str>, AppId>,
    by_uid: FastMap<AppUid, AppId>,
    dirty: BTreeSet<AppId>,
    due: BTreeSet<(u64, AppId)>,
    /// Position of the sweep, and when it continues.
    swept: u32,
    sweep_ms: u64,
}

impl Apps {
    pub(crate) fn get(&self, id: AppId) -> Option<&App> {
        self.list.get(id.0 as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, id: AppId) -> Option<&mut App> {
        self.list.get_mut(id.0 as usize)?.as_mut()
    }

    pub(crate) fn named(&self, name: &str) -> Option<AppId> {
        self.by_name.get(name).copied()
    }

    /// Returns the app that this creation belongs to, even if it is an earlier one.
    pub(crate) fn of_uid(&self, uid: AppUid) -> Option<AppId> {
        self.by_uid.get(&uid).copied()
    }

    /// Returns all apps in the order of their names.
    pub(crate) fn by_name(&self) -> impl Iterator<Item = AppId> + '_ {
        self.by_name.values().copied()
    }

    pub(crate) fn count(&self) -> usize {
        self.by_name.len()
    }

    /// Returns the apps after this name, or all apps if no name is given.
    pub(crate) fn after(&self, name: Option<&str>) -> impl Iterator<Item = AppId> + use<'_> {
        let from = name.map_or(Bound::Unbounded, Bound::Excluded);
        let range = self.by_name.range::<str, _>((from, Bound::Unbounded));
        range.map(|(_, id)| *id)
    }

    pub(crate) fn insert(&mut self, app: App) -> AppId {
        let id = self.free.pop().unwrap_or_else(|| {
            self.list.push(None);
            AppId(u32::try_from(self.list.len() - 1).unwrap_or(u32::MAX))
        });
        self.by_name.insert(Arc::clone(&app.name), id);
        self.list[id.0 as usize] = Some(app);
        self.index(id);
        self.touch(id);
        id
    }

    /// Indexes an app by the ids of its creations after its record has changed.
    pub(crate) fn index(&mut self, id: AppId) {
        let Some(app) = self.list.get(id.0 as usize).and_then(Option::as_ref) else {
            return;
        };
        let uids = app.record.former.iter().chain([&app.record.uid]);
        for uid in uids {
            self.by_uid.insert(*uid, id);
        }
    }

    pub(crate) fn remove(&mut self, id: AppId) -> Option<App> {
        let app = self.list.get_mut(id.0 as usize)?.take()?;
        self.by_name.remove(&app.name);
        for uid in app.record.former.iter().chain([&app.record.uid]) {
            self.by_uid.remove(uid);
        }
        self.dirty.remove(&id);
        self.due.remove(&(app.due_ms, id));
        self.free.push(id);
        Some(app)
    }

    /// Marks an app to be looked at.
    pub(crate) fn touch(&mut self, id: AppId) {
        self.dirty.insert(id);
    }

    pub(crate) fn touch_all(&mut self) {
        self.dirty.extend(self.by_name.values().copied());
    }

    /// Schedules a look at an app at the latest at this time.
    pub(crate) fn touch_at(&mut self, id: AppId, at_ms: u64) {
        let Some(app) = self.list.get_mut(id.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        if at_ms < app.due_ms {
            self.due.remove(&(app.due_ms, id));
            app.due_ms = at_ms;
            self.due.insert((at_ms, id));
        }
    }

    /// Takes the apps to look at now. Apps that were looked at a moment ago wait.
    pub(crate) fn take_dirty(&mut self, now_ms: u64) -> Vec<AppId> {
        while let Some((at, id)) = self.due.first().copied()
            && at <= now_ms
        {
            self.due.pop_first();
            if let Some(app) = self.get_mut(id) {
                app.due_ms = u64::MAX;
            }
            self.dirty.insert(id);
        }
        let mut now = Vec::new();
        for id in std::mem::take(&mut self.dirty) {
            let Some(app) = self.get_mut(id) else {
                continue;
            };
            let at = (app.decided_ms + app.pause_ms()).max(app.blocked_ms);
            if app.decided_ms > 0 && at > now_ms {
                self.touch_at(id, at);
            } else {
                app.decided_ms = now_ms;
                now.push(id);
            }
        }
        now
    }

    /// Returns when the next app must be looked at.
    pub(crate) fn next_ms(&self) -> u64 {
        if !self.dirty.is_empty() {
            return 0;
        }
        self.due.first().map_or(u64::MAX, |(at, _)| *at)
    }

    /// Once a second, marks a thirtieth of the apps to be looked at.
    pub(crate) fn sweep(&mut self, now_ms: u64) {
        if now_ms < self.sweep_ms || self.list.is_empty() {
            return;
        }
        self.sweep_ms = now_ms + 1_000;
        let all = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let seconds = u32::try_from(SWEEP_MS / 1_000).unwrap_or(30);
        for _ in 0..all.div_ceil(seconds) {
            self.swept = (self.swept + 1) % all;
            if self.list[self.swept as usize].is_some() {
                self.dirty.insert(AppId(self.swept));
            }
        }
    }
}
