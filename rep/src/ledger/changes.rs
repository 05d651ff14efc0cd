//! What has changed since an earlier version of the cell.

use std::{collections::VecDeque, sync::Arc};

use placement::{CellChange, Kind};
use shared::{InstanceId, wire::Work};

use super::{Ledger, RECENT};

/// The work that came or went, since a version from which on nothing else has changed but amounts and plain counts.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    since: u64,
    works: VecDeque<(u64, Arc<Work>)>,
}

impl Changes {
    pub(super) fn since(seq: u64) -> Self {
        Self {
            since: seq,
            works: VecDeque::new(),
        }
    }

    /// Forgets what led to this version and earlier ones.
    fn forget(&mut self, seq: u64) {
        while let Some((at, _)) = self.works.front()
            && *at <= seq
        {
            self.works.pop_front();
        }
        self.since = self.since.max(seq);
    }
}

impl Ledger {
    /// Counts a version in which this work has come or gone.
    pub(super) fn work_changed(&mut self, work: Arc<Work>) {
        self.seq += 1;
        self.changes.works.push_back((self.seq, work));
        // more than this many accepted instances are not listed either
        if self.changes.works.len() > RECENT
            && let Some((seq, _)) = self.changes.works.pop_front()
        {
            self.changes.since = seq;
        }
    }

    /// Lists an accepted instance again in the next change: whoever has sent its start again waits for that.
    pub(super) fn list_again(&mut self, instance: InstanceId) {
        let at = self.recent.iter().position(|one| one.instance == instance);
        if let Some(mut listed) = at.and_then(|at| self.recent.remove(at)) {
            listed.seq = self.seq + 1;
            self.recent.push_back(listed);
        }
    }

    /// Counts a version in which something else has changed than amounts and counts: whoever knows an earlier one must
    /// get the whole cell.
    pub(super) fn cell_changed(&mut self) {
        self.seq += 1;
        self.changes = Changes::since(self.seq);
    }

    /// Returns what has changed since this version, and the instances accepted since, oldest first; none if too much has
    /// changed, or if that is not known any more.
    pub(crate) fn changes_since(&self, seq: u64) -> Option<(CellChange, Vec<InstanceId>)> {
        if seq < self.changes.since {
            return None;
        }
        let counts = &self.cell.counts;
        let mut change = CellChange {
            available: self.cell.available.clone(),
            starting: counts.starting,
            apps: Default::default(),
            tasks: counts.tasks,
            evacuating: self.cell.evacuating,
            cordoned: self.cell.cordoned,
            owners: Default::default(),
            tags: Default::default(),
            cpu_capped: counts.cpu_capped,
            cpu_uncapped: counts.cpu_uncapped,
        };
        let later = |at: u64| at > seq;
        for (_, work) in self.changes.works.iter().filter(|(at, _)| later(*at)) {
            if work.kind == Kind::Lrp {
                let count = self.cell.count_of(&work.app);
                change.apps.insert(work.app.clone(), count);
            }
            if let Some(owner) = &work.owner {
                let count = counts.owners.get(owner).copied().unwrap_or(0);
                change.owners.insert(owner.clone(), count);
            }
            for (key, value) in &work.tags {
                let tag = format!("{key}={value}");
                let count = counts.tags.get(&tag).copied().unwrap_or(0);
                change.tags.insert(tag, count);
            }
        }
        let recent = self.recent.iter().filter(|accepted| later(accepted.seq));
        let recent = recent.map(|accepted| accepted.instance).collect();
        Some((change, recent))
    }

    /// Says that nobody will ask what has changed since a version before this one.
    pub(crate) fn forget_changes(&mut self, before: u64) {
        self.changes.forget(before);
    }
}
