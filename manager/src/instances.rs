//! What is known of each instance of a managed app.

use placement::FastMap;
use shared::InstanceId;

use crate::ids::{AppId, AppUid, CellId};

/// How far along an instance is, according to its cell or an auctioneer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Its start was sent, and nobody has said yet where it is.
    Asked,
    /// A cell accepted it, or may have.
    Sent,
    /// Its process is being started, or is not healthy yet.
    Starting,
    /// It runs and is healthy.
    Running,
    /// It failed, and its cell starts it again.
    Restarting,
    /// Its cell stops it.
    Stopping,
}

impl Life {
    /// Returns how far this attempt is.
    fn step(self) -> u8 {
        match self {
            Self::Asked | Self::Sent | Self::Starting => 0,
            Self::Running => 1,
            Self::Restarting | Self::Stopping => 2,
        }
    }
}

/// Stands for: nobody has said at which version of its cell's state it was there.
const NEVER: u64 = u64::MAX;

/// An instance. As there are many, it holds numbers only.
#[derive(Clone, Debug)]
pub(crate) struct Managed {
    pub(crate) app: AppId,
    pub(crate) uid: AppUid,
    pub(crate) index: u32,
    pub(crate) version: u32,
    pub(crate) wave: u32,
    pub(crate) cell: Option<CellId>,
    pub(crate) life: Life,
    /// How often its cell had restarted it when it was last heard of.
    pub(crate) restarts: u32,
    /// It runs but has not passed its readiness check.
    pub(crate) unready: bool,
    /// Its cell is lost, but may still run it.
    pub(crate) suspect: bool,
    /// Since when it has been in this state, by this process's clock.
    pub(crate) since_ms: u64,
    /// When a stop for it was last sent; 0 = never.
    pub(crate) stop_ms: u64,
    /// The lowest version of its cell's state at which it was there.
    there_seq: u64,
    /// Only an answer to a question asked at this time or later can prove that it is not there.
    pub(crate) doubt_ms: u64,
    /// The last list that contained it.
    pub(crate) list: u32,
}

impl Managed {
    /// Creates an instance whose start is being sent.
    pub(crate) fn asked(
        app: AppId,
        uid: AppUid,
        (index, version, wave): (u32, u32, u32),
        now_ms: u64,
    ) -> Self {
        Self {
            app,
            uid,
            index,
            version,
            wave,
            cell: None,
            life: Life::Asked,
            restarts: 0,
            unready: false,
            suspect: false,
            since_ms: now_ms,
            stop_ms: 0,
            there_seq: NEVER,
            doubt_ms: NEVER,
            list: 0,
        }
    }

    /// Records that, according to its cell, it was there at this version of its state.
    pub(crate) fn was_there(&mut self, seq: u64) {
        self.there_seq = self.there_seq.min(seq);
    }

    /// Returns whether a message is older than the last one that counted. Messages on different subjects, such as events
    /// of different kinds, arrive in any order; within one attempt an instance starts, then runs, then ends.
    pub(crate) fn is_past(&self, restarts: u32, life: Life) -> bool {
        (restarts, life.step()) < (self.restarts, self.life.step())
    }

    /// Returns whether it runs and may be used.
    pub(crate) fn is_up(&self) -> bool {
        self.life == Life::Running && !self.unready
    }

    /// Returns whether its cell has ever reported it.
    pub(crate) fn is_heard(&self) -> bool {
        self.there_seq != NEVER
    }

    /// Returns whether a list of its cell's state at this version that lacks it proves that it is gone. `asked_ms` is
    /// when the question was asked that the list answers.
    pub(crate) fn is_disproved(&self, seq: u64, asked_ms: Option<u64>) -> bool {
        if self.is_heard() {
            return seq >= self.there_seq;
        }
        asked_ms.is_some_and(|at| at >= self.doubt_ms)
    }
}

/// All instances.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    all: FastMap<InstanceId, Managed>,
}

impl Fleet {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, id: &InstanceId) -> Option<&Managed> {
        self.all.get(id)
    }

    pub(crate) fn get_mut(&mut self, id: &InstanceId) -> Option<&mut Managed> {
        self.all.get_mut(id)
    }

    pub(crate) fn insert(&mut self, id: InstanceId, instance: Managed) {
        self.all.insert(id, instance);
    }

    pub(crate) fn remove(&mut self, id: &InstanceId) -> Option<Managed> {
        self.all.remove(id)
    }
}
