//! What is known of each instance of a managed app.

use placement::FastMap;
use shared::InstanceId;

use crate::ids::{AppId, AppUid, CellId};

/// How far an instance is, as its cell or an auctioneer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Its start was sent, and nobody has said where it is.
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

/// Nobody has said at which version of its cell it was there.
const NEVER: u64 = u64::MAX;

/// An instance. There are many: it holds numbers only.
#[derive(Clone, Debug)]
pub(crate) struct Managed {
    pub(crate) app: AppId,
    pub(crate) uid: AppUid,
    pub(crate) index: u32,
    pub(crate) version: u32,
    pub(crate) wave: u32,
    pub(crate) cell: Option<CellId>,
    pub(crate) life: Life,
    /// It runs, and has not passed its check of readiness.
    pub(crate) unready: bool,
    /// Its cell is lost and may still run it.
    pub(crate) suspect: bool,
    /// Since when it is in this state, by this process's clock.
    pub(crate) since_ms: u64,
    /// When its stop was sent last; 0 = never.
    pub(crate) stop_ms: u64,
    /// At this version of the cell it was there.
    there_seq: u64,
    /// An answer to a question asked then or later proves that it is not there.
    pub(crate) doubt_ms: u64,
    /// The last list that had it.
    pub(crate) list: u32,
}

impl Managed {
    /// One whose start is sent now.
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
            unready: false,
            suspect: false,
            since_ms: now_ms,
            stop_ms: 0,
            there_seq: NEVER,
            doubt_ms: NEVER,
            list: 0,
        }
    }

    /// Its cell says that it was there at this version of its state.
    pub(crate) fn was_there(&mut self, seq: u64) {
        self.there_seq = self.there_seq.min(seq);
    }

    /// It runs and may be used.
    pub(crate) fn is_up(&self) -> bool {
        self.life == Life::Running && !self.unready
    }

    /// Its cell has said that it was there.
    pub(crate) fn is_heard(&self) -> bool {
        self.there_seq != NEVER
    }

    /// Whether a list of its cell's state of this version, without it, proves that it is gone. `asked_ms`
    /// is when the question was asked that the list answers.
    pub(crate) fn is_disproved(&self, seq: u64, asked_ms: Option<u64>) -> bool {
        if self.is_heard() {
            return seq >= self.there_seq;
        }
        asked_ms.is_some_and(|at| at >= self.doubt_ms)
    }
}

/// All of them.
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
