//! Requests that two auctioneers have begun: the cells are asked for them repeatedly.

use std::{collections::BTreeMap, sync::Arc};

use shared::RequestId;

use super::lookup::Lookup;
use crate::ticket::Begun;

/// How often the cells are asked again what runs of such a request.
pub(super) const AGAIN_MS: u64 = 500;
/// How long they are asked. A start that is still in flight by then is refused as stale.
const WATCHED_MS: u64 = 8_000;
/// The most requests that are watched.
const MAX_WATCHED: usize = 10_000;

/// The requests that are watched.
#[derive(Debug, Default)]
pub(super) struct Watches {
    watched: BTreeMap<RequestId, Watched>,
}

#[derive(Debug)]
struct Watched {
    begun: Arc<Begun>,
    next_ms: u64,
    until_ms: u64,
}

impl Watches {
    /// Watches a request, or extends its watch. A request that is watched already is not asked for sooner: each
    /// question may end with announcements, and each of those leads here again.
    pub(super) fn add(&mut self, now_ms: u64, id: &RequestId, begun: Arc<Begun>) {
        let until_ms = now_ms + WATCHED_MS;
        if let Some(watched) = self.watched.get_mut(id) {
            watched.begun = begun;
            watched.until_ms = watched.until_ms.max(until_ms);
        } else if self.watched.len() < MAX_WATCHED {
            let watched = Watched {
                begun,
                next_ms: now_ms,
                until_ms,
            };
            self.watched.insert(id.clone(), watched);
        }
    }

    /// Adds watched requests that are due to a question with room for them, the longest due first.
    pub(super) fn ask(&mut self, now_ms: u64, question: &mut Lookup) {
        // first, those whose time is over because nobody has extended it
        self.watched.retain(|_, watched| watched.until_ms > now_ms);
        let due = self.watched.iter_mut().filter(|(_, w)| w.next_ms <= now_ms);
        let mut due: Vec<(&RequestId, &mut Watched)> = due.collect();
        due.sort_by_key(|(_, watched)| watched.next_ms);
        for (id, watched) in due {
            // a later one that would fit is not added either, or large requests would never get their turn
            if !question.has_room_for(watched.begun.instances.len()) {
                return;
            }
            watched.next_ms = now_ms + AGAIN_MS;
            question.add(&watched.begun);
            question.watches.push(id.clone());
        }
    }

    /// Extends the watch of requests that not all cells have answered for, until they have or are lost.
    pub(super) fn unanswered(&mut self, ids: &[RequestId]) {
        for id in ids {
            if let Some(watched) = self.watched.get_mut(id) {
                watched.until_ms = watched.until_ms.max(watched.next_ms + AGAIN_MS);
            }
        }
    }

    /// Returns when [`Watches::ask`] has something to do.
    pub(super) fn next_ms(&self) -> Option<u64> {
        let watched = self.watched.values();
        watched.map(|w| w.next_ms.min(w.until_ms)).min()
    }
}
