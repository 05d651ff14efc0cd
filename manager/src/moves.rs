//! The moves that operators have asked for: those in progress and how the last ones ended. `relocation` carries them
//! out.

use std::{collections::VecDeque, sync::Arc};

use shared::{InstanceId, wire::MoveState};

use crate::{
    ids::{AppId, AppUid, CellId},
    io::MoveAnswer,
};

/// Maximum number of moves in progress.
pub const MAX_MOVES: usize = 100;
/// Number of ended moves that are remembered.
const MAX_ENDED: usize = 1_000;

/// A move in progress.
#[derive(Debug)]
pub(crate) struct Moving {
    pub(crate) id: String,
    pub(crate) app: AppId,
    pub(crate) uid: AppUid,
    pub(crate) index: u32,
    pub(crate) old: InstanceId,
    pub(crate) from: CellId,
    pub(crate) due_ms: u64,
    /// Whether the start of the new instance was sent.
    pub(crate) sent: bool,
}

/// The moves in progress, and how the last ones ended.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    pub(crate) on_way: Vec<Moving>,
    pub(crate) ended: VecDeque<(String, MoveAnswer)>,
}

impl Moves {
    /// Returns whether this instance is to be replaced elsewhere.
    pub(crate) fn is_leaving(&self, id: InstanceId) -> bool {
        self.on_way.iter().any(|moving| moving.old == id)
    }

    /// Records that starts of these indices were sent.
    pub(crate) fn sent(&mut self, app: AppId, indices: &[u32]) {
        let of_app = self.on_way.iter_mut().filter(|moving| moving.app == app);
        for moving in of_app.filter(|moving| indices.contains(&moving.index)) {
            moving.sent = true;
        }
    }

    /// Forgets all moves in progress, as another manager may have acted meanwhile: asking again begins a move anew.
    pub(crate) fn forget(&mut self) {
        self.on_way.clear();
    }

    /// Returns when the next move will have taken too long.
    pub(crate) fn next_ms(&self) -> u64 {
        let due = self.on_way.iter().map(|moving| moving.due_ms);
        due.min().unwrap_or(u64::MAX)
    }

    /// Remembers how a move ended.
    pub(crate) fn end(&mut self, id: String, answer: MoveAnswer) {
        if self.ended.len() >= MAX_ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back((id, answer));
    }
}

impl MoveAnswer {
    pub(crate) fn moving() -> Self {
        Self {
            state: MoveState::Moving,
            cell: None,
            reason: None,
        }
    }

    pub(crate) fn moved(cell: Arc<str>) -> Self {
        Self {
            state: MoveState::Moved,
            cell: Some(cell),
            reason: None,
        }
    }

    pub(crate) fn failed(reason: impl Into<String>) -> Self {
        Self {
            state: MoveState::Failed,
            cell: None,
            reason: Some(reason.into()),
        }
    }
}
