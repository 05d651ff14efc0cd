//! What the cells are asked before a request is queued: where the instances run that it wants to be
//! near to or far from; and whether it runs itself, when another auctioneer has begun it.

use std::{collections::BTreeSet, sync::Arc};

use bytes::Bytes;
use placement::Request;
use shared::{
    VERSION,
    wire::{InstanceState, Instances, InstancesAnswer, Outcome, to_bytes},
};

use crate::{
    HashMap, LookupId,
    auction::Auctioneer,
    io::AuctioneerOutput,
    ticket::{Answer, Done, Slot, State},
};
use shared::{InstanceId, RequestId};

/// How long the cells' answers are awaited.
const CHECK_WAIT_MS: u64 = 500;
/// More instances than this are asked for by app.
const ASKED_BY_ID: usize = 1_000;

/// A request for which the cells are being asked.
#[derive(Debug)]
pub(crate) struct Check {
    missing: BTreeSet<Arc<str>>,
    /// Its own instances, where another auctioneer has begun it.
    positions: HashMap<InstanceId, usize>,
    pub(crate) until_ms: u64,
}

/// The items of `near` and `far` that name an instance: its id as it was written, and read.
fn named(request: &Request) -> impl Iterator<Item = (&str, InstanceId)> {
    let items = request.near.iter().chain(&request.far);
    items.filter_map(|item| {
        let id = item.strip_prefix("instance:")?;
        Some((id, id.parse().ok()?))
    })
}

impl Auctioneer {
    /// Asks the cells what runs of the request. The question's number is the request's.
    pub(crate) fn check(&mut self, now_ms: u64, key: u64) {
        self.counters.repeats += 1;
        let Some(ticket) = self.tickets.get(&key) else {
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
        self.ask_instances(now_ms, key, &question, positions);
    }

    /// Into the next auction, once it is known where the instances are that the request names.
    pub(crate) fn locate(&mut self, now_ms: u64, key: u64) {
        let Some(ticket) = self.tickets.get_mut(&key) else {
            return;
        };
        let ids: Vec<InstanceId> = named(&ticket.request).map(|(_, id)| id).collect();
        if ids.is_empty() || ticket.located.is_some() || !self.settings.policy.has_locality() {
            return self.queue(key);
        }
        ticket.located = Some(Vec::new());
        let question = Instances {
            v: VERSION,
            app: None,
            ids,
        };
        self.ask_instances(now_ms, key, &question, HashMap::default());
    }

    fn ask_instances(
        &mut self,
        now_ms: u64,
        key: u64,
        question: &Instances,
        positions: HashMap<InstanceId, usize>,
    ) {
        let cells = self.feed.cells();
        let missing: BTreeSet<Arc<str>> = cells.map(|(name, _)| Arc::clone(name)).collect();
        if missing.is_empty() {
            return self.locate(now_ms, key);
        }
        let body = to_bytes(question);
        self.out.push(AuctioneerOutput::AskInstances {
            lookup: LookupId::new(key),
            body,
        });
        let check = Check {
            missing,
            positions,
            until_ms: now_ms + CHECK_WAIT_MS,
        };
        self.checks.insert(key, check);
    }

    /// A cell's answer: what it holds of the request is placed, what else was asked for is located.
    pub(crate) fn found(&mut self, now_ms: u64, key: u64, answer: &InstancesAnswer) {
        let Some(check) = self.checks.get_mut(&key) else {
            self.counters.stray_answers += 1;
            return;
        };
        if !answer.more {
            check.missing.remove(answer.cell.as_str());
        }
        let over = check.missing.is_empty();
        self.located(key, answer);
        let Some(check) = self.checks.get(&key) else {
            return;
        };
        let held = answer.instances.iter();
        let positions: Vec<usize> = held
            .filter_map(|held| check.positions.get(&held.instance).copied())
            .collect();
        let cell: Arc<str> = answer.cell.as_str().into();
        for position in positions {
            let slot = Slot {
                ticket: key,
                position,
            };
            self.finish(now_ms, slot, Done::placed(Arc::clone(&cell)));
        }
        if over {
            self.checks.remove(&key);
            self.locate(now_ms, key);
        }
    }

    /// Remembers for the auction which of the named instances a cell holds.
    fn located(&mut self, key: u64, answer: &InstancesAnswer) {
        let Some(ticket) = self.tickets.get_mut(&key) else {
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

    /// What was not found is started.
    pub(crate) fn end_checks(&mut self, now_ms: u64) {
        let over = self.checks.iter().filter(|(_, c)| c.until_ms <= now_ms);
        let mut over: Vec<u64> = over.map(|(key, _)| *key).collect();
        over.sort_unstable();
        for key in over {
            self.checks.remove(&key);
            self.locate(now_ms, key);
        }
    }

    /// The cell answers no more.
    pub(crate) fn cell_gone(&mut self, cell: &Arc<str>) {
        for check in self.checks.values_mut() {
            check.missing.remove(cell);
            if check.missing.is_empty() {
                check.until_ms = 0;
            }
        }
        for stopping in self.stops.values_mut() {
            stopping.missing.remove(cell);
        }
    }

    /// An outcome, ours come back or another auctioneer's.
    pub(crate) fn heard_outcome(&mut self, now_ms: u64, id: &RequestId, body: Bytes) {
        let ours = self.by_id.get(id).copied();
        if ours.is_none() {
            self.memory.ended(now_ms, id, &body, false);
            return;
        }
        // the other one ended while we asked the cells: its answer is the answer
        let Some(key) = ours.filter(|key| self.checks.contains_key(key)) else {
            return;
        };
        self.checks.remove(&key);
        self.memory.ended(now_ms, id, &body, false);
        self.end_with(key, body);
    }

    /// Ends a request with another auctioneer's answer.
    fn end_with(&mut self, key: u64, body: Bytes) {
        let Some(ticket) = self.tickets.remove(&key) else {
            return;
        };
        self.by_id.remove(&ticket.id);
        self.deadlines.remove(&(ticket.deadline_ms, key));
        self.queue_ends.remove(&(ticket.queue_end_ms, key));
        debug_assert!(
            ticket
                .instances
                .iter()
                .all(|i| matches!(i.state, State::Checking | State::Done(_))),
            "nothing of a request waits while the cells are asked for it"
        );
        let most = self.settings.max_payload;
        let answer = Answer::remembered(&ticket.id, &ticket.request, body, most);
        let answer = answer.unwrap_or_else(|error| Answer {
            id: ticket.id.clone(),
            app: Arc::clone(&ticket.app),
            outcome: Outcome::Unplaced,
            body: to_bytes(&error.body()),
        });
        for place in ticket.places {
            self.fill(place, answer.clone());
        }
    }

    /// Requests that an auctioneer has begun. Ours come back to us, too.
    pub(crate) fn heard_begun(&mut self, now_ms: u64, ids: &[RequestId]) {
        for id in ids {
            if !self.by_id.contains_key(id) {
                self.memory.begun(now_ms, id);
            }
        }
    }
}
