//! The cells: how long each is considered alive and what it has said about its instances.

use std::sync::Arc;

use placement::{FastMap, FastSet};
use shared::{Incarnation, InstanceId};

use crate::{
    clocks::{DEFAULT_TTL_MS, Moment},
    ids::CellId,
};

/// Maximum number of cells in memory; further ones are dropped and counted.
pub const MAX_CELLS: usize = 50_000;
/// Time within which all messages of a list must arrive.
const LIST_MS: u64 = 5_000;
/// How long an instance of a lost cell is remembered. An instance that its cell lists later is adopted again.
pub(crate) const SUSPECT_MS: u64 = 3_600_000;

/// Whether a cell is considered alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It was heard within its ttl.
    Here,
    /// It was not heard within its ttl, or it withdrew.
    Lost(Moment),
}

/// The messages of a list that have arrived so far.
#[derive(Clone, Debug)]
struct Parts {
    seq: u64,
    next: u32,
    began_ms: u64,
    asked_ms: Option<u64>,
}

/// What a message of a list means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListPart {
    /// It is older than what is known.
    Old,
    /// More is to come.
    Incomplete,
    /// An earlier message of the list is missing.
    Broken,
    /// It was the last one: an instance that is not in the list does not exist. `asked_ms` is when the list was asked
    /// for.
    Complete {
        /// None for a heartbeat.
        asked_ms: Option<u64>,
    },
}

/// One cell.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) name: Arc<str>,
    pub(crate) incarnation: Option<Incarnation>,
    former: Option<(Incarnation, Moment)>,
    pub(crate) ttl_ms: u64,
    pub(crate) draining: bool,
    /// Whether it drains because its rep is about to end.
    pub(crate) leaving: bool,
    pub(crate) presence: Presence,
    heard: Moment,
    /// Since when it has been here without a break.
    pub(crate) joined: Moment,
    /// The version of the last list.
    seq: u64,
    parts: Option<Parts>,
    /// The number of the list being read.
    pub(crate) list: u32,
    pub(crate) instances: FastSet<InstanceId>,
    /// Number of instances in its last list that belong to unknown apps of this bucket.
    pub(crate) orphans: u32,
    /// When the latest question was asked that it answered with a complete list.
    pub(crate) answered_ms: u64,
}

impl Place {
    fn new(name: &str, now: Moment) -> Self {
        Self {
            name: name.into(),
            incarnation: None,
            former: None,
            ttl_ms: DEFAULT_TTL_MS,
            draining: false,
            leaving: false,
            presence: Presence::Here,
            heard: now,
            joined: now,
            seq: 0,
            parts: None,
            list: 0,
            instances: FastSet::default(),
            orphans: 0,
            answered_ms: 0,
        }
    }

    /// Returns whether a message of this incarnation counts, and whether the incarnation replaces another
    /// one, whose messages are then ignored for a ttl.
    pub(crate) fn meets(&mut self, incarnation: Incarnation, now: Moment) -> (bool, bool) {
        if self.incarnation == Some(incarnation) {
            return (true, false);
        }
        if let Some((former, since)) = self.former
            && former == incarnation
            && now.flow_since(since) < self.ttl_ms
        {
            return (false, false);
        }
        let before = self.incarnation.replace(incarnation);
        self.former = before.map(|before| (before, now));
        (self.seq, self.parts) = (0, None);
        (self.draining, self.leaving) = (false, false);
        (true, before.is_some())
    }

    /// Records one message of a list.
    pub(crate) fn list_part(
        &mut self,
        now_ms: u64,
        (seq, part, parts): (u64, u32, u32),
        asked_ms: Option<u64>,
    ) -> ListPart {
        if seq < self.seq {
            return ListPart::Old;
        }
        if part == 1 {
            self.list = self.list.wrapping_add(1);
            self.orphans = 0;
            self.parts = Some(Parts {
                seq,
                next: 1,
                began_ms: now_ms,
                asked_ms,
            });
        }
        self.seq = seq;
        let Some(read) = self.parts.as_mut() else {
            return ListPart::Broken;
        };
        let follows = read.seq == seq && read.next == part && read.asked_ms == asked_ms;
        if !follows || now_ms.saturating_sub(read.began_ms) > LIST_MS {
            self.parts = None;
            return ListPart::Broken;
        }
        read.next += 1;
        if part < parts {
            return ListPart::Incomplete;
        }
        self.parts = None;
        ListPart::Complete { asked_ms }
    }
}

/// The result of looking at all leases.
#[derive(Debug, Default)]
pub(crate) struct Looked {
    /// Cells that have just been lost.
    pub(crate) lost: Vec<CellId>,
    /// Cells whose instances are to be forgotten.
    pub(crate) forgotten: Vec<CellId>,
    /// Set when so many cells have just fallen silent that a further ttl is waited.
    pub(crate) many: Option<(usize, usize)>,
}

/// All cells.
#[derive(Debug, Default)]
pub(crate) struct Places {
    list: Vec<Place>,
    by_name: FastMap<Arc<str>, CellId>,
    /// Since when too many cells have been silent.
    many_since: Option<Moment>,
    last_loss: Option<(Moment, usize)>,
}

impl Places {
    pub(crate) fn get(&self, id: CellId) -> &Place {
        &self.list[id.0 as usize]
    }

    pub(crate) fn get_mut(&mut self, id: CellId) -> &mut Place {
        &mut self.list[id.0 as usize]
    }

    /// Returns the cell of this name, added if it is new; none if there are too many.
    pub(crate) fn find(&mut self, name: &str, now: Moment) -> Option<CellId> {
        if let Some(id) = self.by_name.get(name) {
            return Some(*id);
        }
        let place = Place::new(name, now);
        let name = Arc::clone(&place.name);
        let id = if self.list.len() < MAX_CELLS {
            self.list.push(place);
            CellId(u32::try_from(self.list.len() - 1).unwrap_or(u32::MAX))
        } else {
            // reuse the entry of a lost cell of which nothing is known
            let empty =
                |place: &Place| place.presence != Presence::Here && place.instances.is_empty();
            let at = self.list.iter().position(empty)?;
            let former = std::mem::replace(&mut self.list[at], place);
            self.by_name.remove(&former.name);
            CellId(u32::try_from(at).unwrap_or(u32::MAX))
        };
        self.by_name.insert(name, id);
        Some(id)
    }

    /// Records that the cell was heard. Returns whether it was lost before.
    pub(crate) fn heard(&mut self, id: CellId, now: Moment) -> bool {
        let place = self.get_mut(id);
        place.heard = now;
        let back = place.presence != Presence::Here;
        if back {
            (place.presence, place.joined) = (Presence::Here, now);
        }
        back
    }

    /// Records that the cell withdrew.
    pub(crate) fn left(&mut self, id: CellId, now: Moment) {
        self.get_mut(id).presence = Presence::Lost(now);
    }

    /// Restarts every lease.
    pub(crate) fn begin_again(&mut self, now: Moment) {
        self.many_since = None;
        for place in &mut self.list {
            place.parts = None;
            if place.presence == Presence::Here {
                place.heard = now;
            }
        }
    }

    /// Returns the longest ttl of the cells that are here, in milliseconds.
    pub(crate) fn longest_ttl_ms(&self) -> u64 {
        let here = self.list.iter().filter(|p| p.presence == Presence::Here);
        here.map(|place| place.ttl_ms)
            .max()
            .unwrap_or(0)
            .max(DEFAULT_TTL_MS)
    }

    /// Looks at all leases. If all cells are silent, none is lost; if three quarters are, only after a further ttl.
    pub(crate) fn look(&mut self, now: Moment) -> Looked {
        let mut looked = Looked::default();
        let mut here = 0;
        for (id, place) in (0..).map(CellId).zip(&self.list) {
            match place.presence {
                Presence::Here if now.is_past(place.heard, place.ttl_ms) => looked.lost.push(id),
                Presence::Here => here += 1,
                Presence::Lost(since)
                    if !place.instances.is_empty() && now.flow_since(since) >= SUSPECT_MS =>
                {
                    looked.forgotten.push(id);
                }
                Presence::Lost(_) => {}
            }
        }
        let silent = looked.lost.len();
        if silent == 0 {
            self.many_since = None;
            return looked;
        }
        let ttl_ms = self.longest_ttl_ms();
        let recent = self.last_loss.filter(|(at, _)| !now.is_past(*at, ttl_ms));
        let gone = silent + recent.map_or(0, |(_, count)| count);
        let all = gone + here;
        let many = gone * 4 >= all * 3;
        let waited = self
            .many_since
            .is_some_and(|since| now.is_past(since, ttl_ms));
        if here == 0 || (many && !waited) {
            looked.lost.clear();
            if self.many_since.is_none() {
                self.many_since = Some(now);
                looked.many = Some((gone, all));
            }
            return looked;
        }
        self.many_since = None;
        self.last_loss = Some((now, gone));
        for id in &looked.lost {
            self.list[id.0 as usize].presence = Presence::Lost(now);
        }
        looked
    }

    /// Returns the latest time such that every cell that is here has answered, with a complete list, a question asked
    /// then or later; 0 if no cell is here.
    pub(crate) fn answered_ms(&self) -> u64 {
        let here = self.list.iter().filter(|p| p.presence == Presence::Here);
        here.map(|place| place.answered_ms).min().unwrap_or(0)
    }

    /// Returns whether a cell of this name is considered alive.
    pub(crate) fn is_here(&self, name: &str) -> bool {
        let id = self.by_name.get(name);
        id.is_some_and(|id| self.get(*id).presence == Presence::Here)
    }

    /// Returns the number of instances of unknown apps of this bucket, as their cells last listed them.
    pub(crate) fn orphans(&self) -> u64 {
        self.list.iter().map(|place| u64::from(place.orphans)).sum()
    }
}
