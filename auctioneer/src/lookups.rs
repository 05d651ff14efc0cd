//! What the cells are asked before a request enters an auction: where the instances named in `near`
//! and `far` run; and whether it runs already, if another auctioneer has announced it.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use placement::Request;
use shared::{
    VERSION,
    wire::{InstanceState, Instances, InstancesAnswer, to_bytes},
};

use crate::{
    fast_map::FastMap,
    ids::{LookupId, TicketId},
    io::AuctioneerOutput,
    parts::Parts,
    requests::Opened,
    ticket::{Done, Slot},
};
use shared::{InstanceId, RequestId};

/// How long to wait for the cells' answers.
const LOOKUP_WAIT_MS: u64 = 500;
/// More instances than this are looked up by app instead of by id.
const ASKED_BY_ID: usize = 1_000;

/// The requests for which the cells are being asked.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    open: FastMap<TicketId, Lookup>,
}

/// The lookup of one request.
#[derive(Debug)]
struct Lookup {
    missing: BTreeSet<Arc<str>>,
    /// Its own instances, if another auctioneer has announced it.
    positions: FastMap<InstanceId, usize>,
    until_ms: u64,
}

/// The items of `near` and `far` that name an instance: the text and the parsed id.
fn named(request: &Request) -> impl Iterator<Item = (&str, InstanceId)> {
    let items = request.near.iter().chain(&request.far);
    items.filter_map(|item| {
        let id = item.strip_prefix("instance:")?;
        Some((id, id.parse().ok()?))
    })
}

impl Lookups {
    /// A request was opened: it enters the next auction, after the cells have been asked if
    /// necessary.
    pub(crate) fn begin(&mut self, parts: &mut Parts, opened: Opened) {
        if opened.announced {
            self.find_own(parts, opened.ticket);
        } else {
            self.find_named(parts, opened.ticket);
        }
    }

    /// Asks the cells for the instances that the request needs to know of.
    fn find_own(&mut self, parts: &mut Parts, key: TicketId) {
        parts.turn.counters.repeats += 1;
        let Some(ticket) = parts.requests.get(key) else {
            return;
        };
        let ids = ticket.instances.iter().map(|i| i.id);
        let question = Instances {
            v: VERSION,
            app: Some(ticket.request.app.clone()),
            ids: if ticket.instances.len() > ASKED_BY_ID {
                Vec::new()
            } else {
                ids.collect()
            },
        };
        let instances = ticket.instances.iter().enumerate();
        let positions = instances.map(|(position, i)| (i.id, position)).collect();
        self.ask(parts, key, &question, positions);
    }

    /// Puts the request into the next auction, now that the named instances are located.
    fn find_named(&mut self, parts: &mut Parts, key: TicketId) {
        let locality = parts.settings.policy.has_locality();
        let Some(ticket) = parts.requests.get_mut(key) else {
            return;
        };
        let ids: Vec<InstanceId> = named(&ticket.request).map(|(_, id)| id).collect();
        if ids.is_empty() || ticket.located.is_some() || !locality {
            return parts.requests.queue(key);
        }
        ticket.located = Some(Vec::new());
        let question = Instances {
            v: VERSION,
            app: None,
            ids,
        };
        self.ask(parts, key, &question, FastMap::default());
    }

    fn ask(
        &mut self,
        parts: &mut Parts,
        key: TicketId,
        question: &Instances,
        positions: FastMap<InstanceId, usize>,
    ) {
        let cells = parts.feed.cells();
        let missing: BTreeSet<Arc<str>> = cells.map(|(name, _)| Arc::clone(name)).collect();
        if missing.is_empty() {
            return self.find_named(parts, key);
        }
        parts.turn.out.push(AuctioneerOutput::AskInstances {
            lookup: LookupId::new(key.number()),
            body: to_bytes(question),
        });
        let lookup = Lookup {
            missing,
            positions,
            until_ms: parts.turn.now_ms + LOOKUP_WAIT_MS,
        };
        self.open.insert(key, lookup);
    }

    /// A cell's answer: those of its instances that belong to the request are placed, named ones
    /// are located.
    pub(crate) fn answered(
        &mut self,
        parts: &mut Parts,
        lookup: LookupId,
        answer: &InstancesAnswer,
    ) {
        let key = TicketId::new(lookup.number());
        let Some(lookup) = self.open.get_mut(&key) else {
            parts.turn.counters.stray_answers += 1;
            return;
        };
        if !answer.more {
            lookup.missing.remove(answer.cell.as_str());
        }
        let over = lookup.missing.is_empty();
        locate(parts, key, answer);
        let cell: Arc<str> = answer.cell.as_str().into();
        for held in &answer.instances {
            if let Some(position) = lookup.positions.get(&held.instance) {
                let slot = Slot::new(key, *position);
                let done = Done::placed(Arc::clone(&cell));
                parts.requests.finish(&mut parts.turn, slot, done);
            }
        }
        if over {
            self.open.remove(&key);
            self.find_named(parts, key);
        }
    }

    /// Instances that were not found in time are started.
    pub(crate) fn end_due(&mut self, parts: &mut Parts) {
        let now_ms = parts.turn.now_ms;
        let over = self.open.iter().filter(|(_, l)| l.until_ms <= now_ms);
        let mut over: Vec<TicketId> = over.map(|(key, _)| *key).collect();
        over.sort_unstable();
        for key in over {
            self.open.remove(&key);
            self.find_named(parts, key);
        }
    }

    /// The cell will not answer any more.
    pub(crate) fn cell_gone(&mut self, cell: &Arc<str>) {
        for lookup in self.open.values_mut() {
            lookup.missing.remove(cell);
            if lookup.missing.is_empty() {
                lookup.until_ms = 0;
            }
        }
    }

    /// These requests have ended: their lookups are dropped.
    pub(crate) fn forget(&mut self, ended: &[TicketId]) {
        for key in ended {
            self.open.remove(key);
        }
    }

    /// An outcome, our own or another auctioneer's.
    pub(crate) fn outcome(&mut self, parts: &mut Parts, id: &RequestId, body: Bytes) {
        let Some(key) = parts.requests.by_id(id) else {
            let now_ms = parts.turn.now_ms;
            return parts.requests.remember_outcome(now_ms, id, &body);
        };
        // the other auctioneer has answered while we asked the cells: its answer is used
        if self.open.remove(&key).is_some() {
            parts.requests.end_with(&mut parts.turn, key, body);
        }
    }

    /// When the next lookup ends without all answers.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.open.values().map(|lookup| lookup.until_ms).min()
    }
}

/// Records for the auction which of the named instances a cell has.
fn locate(parts: &mut Parts, key: TicketId, answer: &InstancesAnswer) {
    let Some(ticket) = parts.requests.get_mut(key) else {
        return;
    };
    let Some(located) = &mut ticket.located else {
        return;
    };
    for held in &answer.instances {
        if [InstanceState::Exited, InstanceState::Crashed].contains(&held.state) {
            continue;
        }
        let mut named = named(&ticket.request);
        if let Some((text, _)) = named.find(|(_, id)| *id == held.instance) {
            located.push((text.to_owned(), answer.cell.as_str().into()));
        }
    }
}
