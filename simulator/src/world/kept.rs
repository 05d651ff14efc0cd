//! What is wanted of managers and what actually runs, which nobody in the cluster knows: taken from what is stored and
//! from the processes on the cells. Figures about recovery, duplicates and rollouts follow from it.

use std::collections::{BTreeMap, BTreeSet};

use manager::{AppRecord, AppUid};
use shared::{InstanceId, WaveId};

use super::cell::InstanceRuns;
use crate::{
    measure::Gauge,
    outcome::{Kept, Spread},
};

/// A running instance.
#[derive(Clone, Copy, Debug)]
struct Held {
    uid: AppUid,
    version: u32,
    index: u32,
    cell: usize,
    /// Whether a manager has told it to stop.
    stopped: bool,
}

/// A wanted index of which no instance runs on a reachable cell.
#[derive(Clone, Copy, Debug)]
struct Missing {
    since_us: u64,
    /// Whether it ran before and nobody stopped it.
    lost: bool,
}

#[derive(Clone, Debug, Default)]
struct Index {
    held: Vec<InstanceId>,
    missing: Option<Missing>,
    /// Number of running instances beyond one per version, and since when.
    surplus: usize,
    surplus_us: u64,
    /// Since when there has been a surplus.
    twice_us: u64,
    /// Whether the wanted version runs.
    right: bool,
    /// Number of instances of other versions.
    wrong: usize,
}

/// One creation of an app.
#[derive(Clone, Debug, Default)]
struct App {
    version: u32,
    /// A version whose instances are as good: after an undo, the one before.
    also: Option<u32>,
    wanted: u32,
    indices: Vec<Index>,
    /// Number of indices of which the wanted version runs, and of instances of other versions.
    right: usize,
    wrong: usize,
    /// Since when a new version has been replacing another.
    rollout_us: Option<u64>,
}

/// The tally; see the module. Times are in microseconds.
#[derive(Debug, Default)]
pub(super) struct Tally {
    apps: BTreeMap<AppUid, App>,
    names: BTreeMap<String, AppUid>,
    runs: BTreeMap<InstanceId, Held>,
    by_cell: Vec<BTreeSet<InstanceId>>,
    /// Unreachable cells.
    cut: BTreeSet<usize>,
    now_us: u64,
    wanted: u64,
    missing: Gauge,
    recovery_ms: Vec<f64>,
    start_ms: Vec<f64>,
    rollout_ms: Vec<f64>,
    lost: u64,
    duplicates: u64,
    longest_us: u64,
    surplus_us: u64,
}

impl Tally {
    /// Creates a tally in which nothing is wanted and nothing runs.
    pub(super) fn new(cells: usize, now_us: u64) -> Self {
        Self {
            now_us,
            by_cell: vec![BTreeSet::new(); cells],
            ..Self::default()
        }
    }

    /// Returns the number of indices missing now.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a count
    pub(super) fn missing(&self) -> u64 {
        self.missing.now as u64
    }

    /// Lets time pass until now.
    fn pass(&mut self, now_us: u64) {
        let passed_us = now_us.saturating_sub(self.now_us);
        if passed_us > 0 {
            self.missing.pass(passed_us as f64 / 1_000.0);
        }
        self.now_us = now_us;
    }

    /// Records what is stored of an app from now on.
    pub(super) fn wants(&mut self, now_us: u64, record: &AppRecord) {
        self.pass(now_us);
        let name = record.definition.app().to_owned();
        let before = self.names.insert(name, record.uid);
        if let Some(former) = before.filter(|uid| *uid != record.uid) {
            self.set(former, 0);
        }
        let ends = record.stopped || record.deleted;
        let wanted = if ends { 0 } else { record.definition.instances };
        let app = self.apps.entry(record.uid).or_default();
        if app.version > 0 && record.version > app.version {
            app.rollout_us = Some(now_us);
        }
        app.version = record.version;
        let before = record.before.as_ref().filter(|_| record.reverted);
        app.also = before.map(|before| before.version);
        self.set(record.uid, wanted);
    }

    fn set(&mut self, uid: AppUid, wanted: u32) {
        let app = self.apps.entry(uid).or_default();
        self.wanted = self.wanted + u64::from(wanted) - u64::from(app.wanted);
        app.wanted = wanted;
        if wanted == 0 {
            app.rollout_us = None;
        }
        let count = app.indices.len().max(wanted as usize);
        app.indices.resize(count, Index::default());
        for index in 0..u32::try_from(count).unwrap_or(u32::MAX) {
            self.judge(uid, index, false);
        }
    }

    /// Records what has happened to instances of managers on a cell.
    pub(super) fn note(&mut self, now_us: u64, cell: usize, changes: Vec<InstanceRuns>) {
        self.pass(now_us);
        for change in changes {
            match change {
                InstanceRuns::Began(id, wave, index) => self.began(id, wave, index, cell),
                InstanceRuns::Ended(id) => self.ended(id),
            }
        }
    }

    fn began(&mut self, id: InstanceId, wave: WaveId, index: u32, cell: usize) {
        let (uid, version) = (wave.uid, wave.version);
        let held = Held {
            uid,
            version,
            index,
            cell,
            stopped: false,
        };
        if self.runs.insert(id, held).is_some() {
            return;
        }
        self.by_cell[cell].insert(id);
        let app = self.apps.entry(uid).or_default();
        let count = app.indices.len().max(index as usize + 1);
        app.indices.resize(count, Index::default());
        app.indices[index as usize].held.push(id);
        self.judge(uid, index, false);
    }

    fn ended(&mut self, id: InstanceId) {
        // it may have been launched without ever running
        let Some(held) = self.runs.remove(&id) else {
            return;
        };
        self.by_cell[held.cell].remove(&id);
        if let Some(app) = self.apps.get_mut(&held.uid) {
            let index = &mut app.indices[held.index as usize];
            index.held.retain(|other| *other != id);
        }
        self.judge(held.uid, held.index, !held.stopped);
    }

    /// Records that a manager's stop has reached a cell.
    pub(super) fn stopped(&mut self, instances: &[InstanceId]) {
        for id in instances {
            if let Some(held) = self.runs.get_mut(id) {
                held.stopped = true;
            }
        }
    }

    /// Records that a cell became unreachable or reachable.
    pub(super) fn reach(&mut self, now_us: u64, cell: usize, reached: bool) {
        self.pass(now_us);
        if reached {
            self.cut.remove(&cell);
        } else {
            self.cut.insert(cell);
        }
        let held: Vec<Held> = self.by_cell[cell].iter().map(|id| self.runs[id]).collect();
        for held in held {
            self.judge(held.uid, held.index, !held.stopped);
        }
    }

    /// Reassesses an index after a change; `lost` says that an instance went that nobody had stopped.
    fn judge(&mut self, uid: AppUid, at: u32, lost: bool) {
        let Some(app) = self.apps.get_mut(&uid) else {
            return;
        };
        let wanted = at < app.wanted;
        let mut index = std::mem::take(&mut app.indices[at as usize]);
        let held: Vec<Held> = index.held.iter().map(|id| self.runs[id]).collect();
        let present = held.iter().any(|one| !self.cut.contains(&one.cell));
        self.count_surplus(&mut index, &held);
        self.count_right(uid, wanted, &mut index, &held);
        self.count_missing(&mut index, (wanted, present), lost);
        if let Some(app) = self.apps.get_mut(&uid) {
            app.indices[at as usize] = index;
        }
    }

    /// Counts the surplus: one instance of each version is enough.
    fn count_surplus(&mut self, index: &mut Index, held: &[Held]) {
        let versions: BTreeSet<u32> = held.iter().map(|one| one.version).collect();
        let surplus = held.len() - versions.len();
        let now_us = self.now_us;
        self.surplus_us += index.surplus as u64 * (now_us - index.surplus_us);
        index.surplus_us = now_us;
        match (index.surplus, surplus) {
            (0, 1..) => {
                index.twice_us = now_us;
                self.duplicates += 1;
            }
            (1.., 0) => self.longest_us = self.longest_us.max(now_us - index.twice_us),
            _ => {}
        }
        index.surplus = surplus;
    }

    /// Updates the rollout's counts. A rollout is over when every index has the wanted version and nothing else.
    fn count_right(&mut self, uid: AppUid, wanted: bool, index: &mut Index, held: &[Held]) {
        let Some(app) = self.apps.get_mut(&uid) else {
            return;
        };
        let is_right = |one: &&Held| one.version == app.version || Some(one.version) == app.also;
        let reached = |one: &Held| !self.cut.contains(&one.cell);
        let right = wanted && held.iter().filter(is_right).any(reached);
        let wrong = held.iter().filter(|one| !is_right(one)).count();
        app.right = app.right + usize::from(right) - usize::from(index.right);
        app.wrong = app.wrong + wrong - index.wrong;
        (index.right, index.wrong) = (right, wrong);
        if (app.right, app.wrong) == (app.wanted as usize, 0)
            && let Some(since_us) = app.rollout_us.take()
        {
            self.rollout_ms.push(span_ms(since_us, self.now_us));
        }
    }

    fn count_missing(&mut self, index: &mut Index, (wanted, present): (bool, bool), lost: bool) {
        match (index.missing, wanted && !present) {
            (None, true) => {
                index.missing = Some(Missing {
                    since_us: self.now_us,
                    lost,
                });
                self.lost += u64::from(lost);
                self.missing.now += 1.0;
            }
            (Some(missing), false) => {
                index.missing = None;
                self.missing.now -= 1.0;
                if !wanted {
                    return;
                }
                let times = if missing.lost {
                    &mut self.recovery_ms
                } else {
                    &mut self.start_ms
                };
                times.push(span_ms(missing.since_us, self.now_us));
            }
            _ => {}
        }
    }

    /// Returns the figures up to now.
    pub(super) fn figures(&mut self, now_us: u64) -> Kept {
        self.pass(now_us);
        let indices = || self.apps.values().flat_map(|app| &app.indices);
        let twice = || indices().filter(|index| index.surplus > 0);
        let open_us: u64 = twice()
            .map(|index| index.surplus as u64 * (now_us - index.surplus_us))
            .sum();
        let longest_us = twice().map(|index| now_us - index.twice_us).max();
        let unrecovered = indices().filter(|i| i.missing.is_some_and(|missing| missing.lost));
        let unfinished = self.apps.values().filter(|app| app.rollout_us.is_some());
        Kept {
            wanted: self.wanted,
            missing: self.missing.over_time(),
            lost: self.lost,
            unrecovered: unrecovered.count() as u64,
            recovery_ms: Spread::of(&mut self.recovery_ms.clone()),
            start_ms: Spread::of(&mut self.start_ms.clone()),
            duplicates: self.duplicates,
            longest_duplicate_ms: longest_us.unwrap_or(0).max(self.longest_us) / 1_000,
            duplicate_s: (self.surplus_us + open_us) as f64 / 1e6,
            rollouts: self.rollout_ms.len() as u64,
            rollouts_unfinished: unfinished.count() as u64,
            rollout_ms: Spread::of(&mut self.rollout_ms.clone()),
            ..Kept::default()
        }
    }
}

fn span_ms(from_us: u64, to_us: u64) -> f64 {
    (to_us - from_us) as f64 / 1_000.0
}
