//! What the cells are asked: before a request is queued, where the instances run that it wants to be
//! near to or far from, and whether it runs itself when it may have been asked for before; and while two
//! auctioneers have begun the same request, what runs twice.

mod duplicates;
mod restarted;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use placement::{Kind, Request};
use shared::{
    VERSION,
    wire::{InstanceState, Instances, InstancesAnswer, to_bytes},
};

use crate::{
    ids::{LookupId, TicketId},
    io::AuctioneerOutput,
    other_answer::OtherAnswer,
    parts::Parts,
    requests::Opened,
    ticket::{Begun, Done, Slot, State, Ticket},
};
use duplicates::{Holder, end_duplicates};
use restarted::Restarted;
use shared::{AuctionId, InstanceId, RequestId};

/// How long the cells' answers are awaited.
const LOOKUP_WAIT_MS: u64 = 500;
/// So many instances are asked for by id in one question; of a larger request, by app.
const ASKED_BY_ID: usize = 1_000;
/// How often the cells are asked again what runs of a request that another auctioneer has begun.
const AGAIN_MS: u64 = 500;
/// How long: a start that is on its way is refused as stale before that.
const WATCHED_MS: u64 = 8_000;
/// The most requests that are watched.
const MAX_WATCHED: usize = 10_000;
/// Silent cells that an answer names.
const NAMED: usize = 3;

/// The questions to the cells.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    open: BTreeMap<LookupId, Lookup>,
    next: u64,
    /// Requests for which the cells are to be asked, together, when the machine is run.
    wanted: BTreeSet<TicketId>,
    /// Requests that are looked for again later.
    later: BTreeSet<(u64, TicketId)>,
    /// Requests that two auctioneers have begun.
    watched: BTreeMap<RequestId, Watched>,
    /// What was started although it may have been begun before: a lost cell may run it, too.
    restarted: Restarted,
}

/// A question to the cells that is not answered by all.
#[derive(Debug, Default)]
struct Lookup {
    missing: BTreeSet<Arc<str>>,
    /// The requests that wait for it.
    tickets: Vec<TicketId>,
    /// Whether it asks for the requests' own instances, or for those that they name.
    own: bool,
    /// It asks for these, too, which are watched.
    watches: Vec<RequestId>,
    /// The instances that are asked for, with their apps, and where they are.
    instances: BTreeMap<InstanceId, (Arc<str>, Vec<Holder>)>,
    until_ms: u64,
}

/// A request that two auctioneers have begun.
#[derive(Debug)]
struct Watched {
    begun: Arc<Begun>,
    next_ms: u64,
    until_ms: u64,
}

/// The items of `near` and `far` that name an instance: its id as it was written, and read.
fn named(request: &Request) -> impl Iterator<Item = (&str, InstanceId)> {
    let items = request.near.iter().chain(&request.far);
    items.filter_map(|item| {
        let id = item.strip_prefix("instance:")?;
        Some((id, id.parse().ok()?))
    })
}

impl Lookups {
    /// A request was opened: it is queued once the cells said what must be known of it.
    pub(crate) fn begin(&mut self, parts: &mut Parts, opened: Opened) {
        // a question costs a round trip to every cell: only where a second copy is possible
        if opened.unsure || may_run_already(parts, opened.ticket) {
            self.wanted.insert(opened.ticket);
        } else {
            self.find_named(parts, opened.ticket);
        }
    }

    /// These requests may run already: they wait until the cells were asked.
    pub(crate) fn check(&mut self, keys: impl IntoIterator<Item = TicketId>) {
        self.wanted.extend(keys);
    }

    /// Answers may have been missed: who waits for any asks again.
    pub(crate) fn ask_again(&mut self) {
        for lookup in self.open.values_mut().filter(|lookup| lookup.own) {
            self.wanted.append(&mut lookup.tickets.drain(..).collect());
        }
        // their answers would be incomplete; the questions about others' instances are only hints for placement
        self.open.retain(|_, lookup| !lookup.own);
    }

    /// Requests gave way to another auctioneer's: what that starts is looked for until it is found.
    pub(crate) fn follow(&mut self, now_ms: u64, keys: &[TicketId]) {
        self.forget(keys);
        self.later
            .extend(keys.iter().map(|key| (now_ms + AGAIN_MS, *key)));
    }

    /// Two auctioneers have begun the request: what runs twice is ended. What is watched already is not asked
    /// for sooner: each question may end with announcements, and each of these comes here.
    pub(crate) fn watch(&mut self, now_ms: u64, id: &RequestId, begun: Arc<Begun>) {
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

    /// Asks the cells for everything that is wanted, in few questions.
    fn ask_wanted(&mut self, parts: &mut Parts) {
        let mut together = Lookup::default();
        for key in std::mem::take(&mut self.wanted) {
            let Some(ticket) = parts.requests.get(key) else {
                continue;
            };
            let begun = ticket.begun();
            self.gather(parts, &mut together, &begun);
            together.tickets.push(key);
        }
        let now_ms = parts.turn.now_ms;
        // before they are asked for: the time is up for those that nobody has extended
        self.watched.retain(|_, watched| watched.until_ms > now_ms);
        let mut due = Vec::new();
        for (id, watched) in &mut self.watched {
            if watched.next_ms <= now_ms {
                watched.next_ms = now_ms + AGAIN_MS;
                due.push((id.clone(), Arc::clone(&watched.begun)));
            }
        }
        for (id, begun) in due {
            self.gather(parts, &mut together, &begun);
            together.watches.push(id);
        }
        self.ask_own(parts, together);
    }

    /// Adds to a question, or asks it first when it is large enough.
    fn gather(&mut self, parts: &mut Parts, together: &mut Lookup, begun: &Begun) {
        let count = together.instances.len() + begun.instances.len();
        if count > ASKED_BY_ID && !together.instances.is_empty() {
            self.ask_own(parts, std::mem::take(together));
        }
        let instances = begun.instances.iter();
        let nowhere = instances.map(|id| (*id, (Arc::clone(&begun.app), Vec::new())));
        together.instances.extend(nowhere);
    }

    fn ask_own(&mut self, parts: &mut Parts, mut lookup: Lookup) {
        let Some((app, _)) = lookup.instances.values().next() else {
            return;
        };
        let one_app = lookup.instances.values().all(|(other, _)| other == app);
        // more than fit are those of one request
        let question = if lookup.instances.len() > ASKED_BY_ID {
            Instances {
                v: VERSION,
                app: Some(app.as_ref().to_owned()),
                ids: Vec::new(),
            }
        } else {
            Instances {
                v: VERSION,
                app: one_app.then(|| app.as_ref().to_owned()),
                ids: lookup.instances.keys().copied().collect(),
            }
        };
        lookup.own = true;
        self.ask(parts, &question, lookup);
    }

    /// Into the next auction, once it is known where the instances are that the request names.
    fn find_named(&mut self, parts: &mut Parts, key: TicketId) {
        let Some(ticket) = parts.requests.get_mut(key) else {
            return;
        };
        let ids: Vec<InstanceId> = named(&ticket.request).map(|(_, id)| id).collect();
        let known = ids.is_empty() || ticket.located.is_some();
        if known || !parts.settings.policy.has_locality() {
            return parts.requests.queue(key);
        }
        ticket.located = Some(Vec::new());
        let question = Instances {
            v: VERSION,
            app: None,
            ids,
        };
        let lookup = Lookup {
            tickets: vec![key],
            ..Lookup::default()
        };
        self.ask(parts, &question, lookup);
    }

    fn ask(&mut self, parts: &mut Parts, question: &Instances, mut lookup: Lookup) {
        let cells = parts.feed.cells();
        lookup.missing = cells.map(|(name, _)| Arc::clone(name)).collect();
        lookup.until_ms = parts.turn.now_ms + LOOKUP_WAIT_MS;
        // no cell is known, so no answer will end the lookup
        if lookup.missing.is_empty() {
            return self.conclude(parts, lookup);
        }
        self.next += 1;
        let id = LookupId::new(self.next);
        parts.turn.out.push(AuctioneerOutput::AskInstances {
            lookup: id,
            body: to_bytes(question),
        });
        self.open.insert(id, lookup);
    }

    /// A cell's answer: what it holds of what was asked for.
    pub(crate) fn answered(&mut self, parts: &mut Parts, id: LookupId, answer: &InstancesAnswer) {
        let Some(lookup) = self.open.get_mut(&id) else {
            parts.turn.counters.stray_answers += 1;
            return;
        };
        // a large answer comes in parts: the cell has answered with the last one
        if !answer.more {
            lookup.missing.remove(answer.cell.as_str());
        }
        if lookup.own {
            for held in &answer.instances {
                if let Some((_, holders)) = lookup.instances.get_mut(&held.instance) {
                    holders.push(Holder {
                        ended: has_ended(held.state),
                        claim: held.claim.unwrap_or(AuctionId::nil()),
                        cell: answer.cell.as_str().into(),
                        request: held.request.clone(),
                    });
                }
            }
        } else {
            for key in &lookup.tickets {
                locate(parts, *key, answer);
            }
        }
        if lookup.missing.is_empty()
            && let Some(lookup) = self.open.remove(&id)
        {
            self.conclude(parts, lookup);
        }
    }

    /// All have answered, or the time is up.
    fn conclude(&mut self, parts: &mut Parts, mut lookup: Lookup) {
        if !lookup.own {
            for key in lookup.tickets {
                parts.requests.queue(key);
            }
            return;
        }
        for (instance, (app, holders)) in &mut lookup.instances {
            // those that run before those that have ended, then by claim: the first one is kept
            holders.sort();
            holders.dedup_by(|a, b| a.cell == b.cell);
            end_duplicates(parts, app, *instance, holders);
        }
        // who has not answered is asked until it has, or is lost
        for watched in lookup.watches.iter().filter(|_| !lookup.missing.is_empty()) {
            if let Some(watched) = self.watched.get_mut(watched) {
                watched.until_ms = watched.until_ms.max(watched.next_ms + AGAIN_MS);
            }
        }
        for key in std::mem::take(&mut lookup.tickets) {
            self.found(parts, key, &lookup);
        }
    }

    /// What the cells hold of a request is placed; what none of them holds is started, unless one that
    /// may hold it is silent.
    fn found(&mut self, parts: &mut Parts, key: TicketId, lookup: &Lookup) {
        let Some(ticket) = parts.requests.get(key) else {
            return;
        };
        let yielded = ticket.yielded;
        let silent = may_hold(parts, ticket, &lookup.missing);
        // their answer names cells; what those say themselves counts more, so it is used when all have spoken
        let theirs = ticket.theirs.as_ref().filter(|_| lookup.missing.is_empty());
        let theirs = theirs.map(|body| OtherAnswer::read(body));
        // until then the other auctioneer's start may still arrive at its cell
        let late = parts.turn.now_ms >= ticket.deadline_ms;
        let instances = ticket.instances.iter().enumerate();
        let checked = instances.filter(|(_, i)| matches!(i.state, State::Checking));
        let mut found: Vec<(Slot, Done)> = Vec::new();
        for (position, instance) in checked {
            let holder = lookup.instances.get(&instance.id);
            let holder = holder.and_then(|(_, holders)| holders.first());
            let by_them = || theirs.as_ref().and_then(|theirs| theirs.of(instance.index));
            let done = match holder {
                Some(holder) => Done::placed(Arc::clone(&holder.cell)),
                None if yielded => match by_them() {
                    Some(done) => done,
                    None if late => Done::unknown(None, "another auctioneer owns this request"),
                    None => continue,
                },
                // where a silent cell may run it, a start elsewhere would be a second copy
                None if silent.is_empty() => continue,
                None => unknown(&silent),
            };
            found.push((Slot::new(key, position), done));
        }
        for (slot, done) in found {
            parts.requests.finish(&mut parts.turn, slot, done);
        }
        // all of it was found, so the request has ended
        if parts.requests.get(key).is_none() {
            return;
        }
        if yielded {
            self.later.insert((parts.turn.now_ms + AGAIN_MS, key));
        } else {
            self.start_after_all(parts, key, lookup.missing.is_empty());
        }
    }

    /// No cell holds it. If somebody has begun it before, a start may still be on its way; and not
    /// `all` cells have answered.
    fn start_after_all(&mut self, parts: &mut Parts, key: TicketId, all: bool) {
        if let Some(ticket) = parts.requests.get(key)
            && (!all || parts.requests.outcomes().claim(&ticket.id).is_some())
        {
            // it was looked for just now
            let from_ms = parts.turn.now_ms + AGAIN_MS;
            self.watch(from_ms, &ticket.id, Arc::new(ticket.begun()));
        }
        if let Some(ticket) = parts.requests.get(key) {
            let begun = Arc::new(ticket.begun());
            self.restarted.add(ticket.id.clone(), begun);
        }
        self.find_named(parts, key);
    }

    /// What was not answered in time; and what is due to be asked.
    pub(crate) fn run(&mut self, parts: &mut Parts) {
        let now_ms = parts.turn.now_ms;
        let over = self.open.iter().filter(|(_, l)| l.until_ms <= now_ms);
        let over: Vec<LookupId> = over.map(|(id, _)| *id).collect();
        for id in over {
            if let Some(lookup) = self.open.remove(&id) {
                self.conclude(parts, lookup);
            }
        }
        while let Some((at_ms, key)) = self.later.first().copied()
            && at_ms <= now_ms
        {
            self.later.pop_first();
            self.wanted.insert(key);
        }
        if std::mem::take(&mut self.restarted.look) {
            for (id, begun) in self.restarted.begun.clone() {
                self.watch(now_ms, &id, begun);
            }
        }
        self.ask_wanted(parts);
    }

    /// The cell answers no more.
    pub(crate) fn cell_gone(&mut self, cell: &Arc<str>) {
        for lookup in self.open.values_mut() {
            lookup.missing.remove(cell);
            if lookup.missing.is_empty() {
                // it is concluded by the next run: here its requests cannot be reached
                lookup.until_ms = 0;
            }
        }
    }

    /// A cell has joined. It may have been lost before, and run what was started elsewhere since.
    pub(crate) fn cell_joined(&mut self) {
        self.restarted.look = true;
    }

    /// These requests have ended: nothing needs to be known of them.
    pub(crate) fn forget(&mut self, ended: &[TicketId]) {
        if ended.is_empty() {
            return;
        }
        let gone: BTreeSet<TicketId> = ended.iter().copied().collect();
        // every cell has to answer a question: none is asked for what has ended
        self.wanted.retain(|key| !gone.contains(key));
        self.later.retain(|(_, key)| !gone.contains(key));
        for lookup in self.open.values_mut() {
            lookup.tickets.retain(|key| !gone.contains(key));
        }
        self.open
            .retain(|_, lookup| !lookup.watches.is_empty() || !lookup.tickets.is_empty());
    }

    /// When [`Lookups::run`] has something to do.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let open = self.open.values().map(|lookup| lookup.until_ms).min();
        let later = self.later.first().map(|(at_ms, _)| *at_ms);
        let watched = self
            .watched
            .values()
            .map(|w| w.next_ms.min(w.until_ms))
            .min();
        let wanted = (!self.wanted.is_empty() || self.restarted.look).then_some(0);
        [open, later, watched, wanted].into_iter().flatten().min()
    }
}

/// A request whose id is not known here may have been begun before this auctioneer listened, and its
/// outcome may be forgotten by all: then its app runs somewhere.
fn may_run_already(parts: &mut Parts, key: TicketId) -> bool {
    let Some(ticket) = parts.requests.get(key) else {
        return false;
    };
    let (app, kind) = (&ticket.app, ticket.request.kind);
    // an id that we gave it ourselves is new
    ticket.given && !parts.requests.trusts_ids() && parts.feed.may_run(parts.turn.now_ms, app, kind)
}

fn has_ended(state: InstanceState) -> bool {
    use InstanceState as Is;
    matches!(state, Is::Exited | Is::Crashed | Is::Stopping)
}

/// Those of the silent cells that may hold some of a request: all, where somebody is known to have begun
/// it, else those that had instances of its app when they were heard last.
fn may_hold(parts: &Parts, ticket: &Ticket, silent: &BTreeSet<Arc<str>>) -> Vec<Arc<str>> {
    let begun = parts.requests.outcomes().get(ticket.id.as_str()).is_some();
    let holds = |name: &&Arc<str>| {
        let cell = parts.feed.pool().get(name);
        cell.is_some_and(|cell| match ticket.request.kind {
            Kind::Lrp => cell.count_of(&ticket.app) > 0,
            Kind::Task => cell.counts.tasks > 0,
        })
    };
    let silent = silent.iter().filter(|name| begun || holds(name));
    silent.map(Arc::clone).collect()
}

/// Cells that may run it did not answer.
fn unknown(silent: &[Arc<str>]) -> Done {
    let named: Vec<&str> = silent.iter().take(NAMED).map(AsRef::as_ref).collect();
    let mut names = named.join(", ");
    if silent.len() > NAMED {
        names = format!("{names} and {} others", silent.len() - NAMED);
    }
    let cell = silent.first().filter(|_| silent.len() == 1);
    let why =
        format!("{names} did not answer whether it runs there already; not started elsewhere");
    Done::unknown(cell.cloned(), &why)
}

/// Remembers for the auction which of the instances that a request names a cell holds.
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
