//! Questions to the cells. Before a request is queued: where the instances run that it wants to be near to or far from,
//! and whether it runs itself if it may have been sent before. While two auctioneers have begun the same request, or
//! after a lost cell comes back: what runs twice.

mod comparison;
mod duplicates;
mod lookup;
mod silent;
mod watches;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use placement::Request;
use shared::{
    InstanceId, RequestId, VERSION,
    wire::{InstanceState, Instances, InstancesAnswer, to_bytes},
};

use crate::{
    ids::{LookupId, TicketId},
    io::AuctioneerOutput,
    other_answer::OtherAnswer,
    parts::Parts,
    requests::Opened,
    ticket::{Begun, Done, Slot, Ticket},
};
use comparison::{COMPARED_MS, Comparison};
use duplicates::end_duplicates;
use lookup::{ASKED_BY_ID, Lookup};
use silent::{Silent, unknown};
use watches::{AGAIN_MS, Watches};

/// How long all cells' answers are awaited before it matters which cells have not answered.
const LOOKUP_WAIT_MS: u64 = 500;
/// The shortest interval between two questions about requests' own instances, each of which costs every cell time.
/// Whatever is wanted in between is asked for together.
const BETWEEN_QUESTIONS_MS: u64 = 100;
/// How long before its deadline a request stops waiting for cells that may run it: starting what the other cells can
/// run takes an auction and their answers.
const SEND_MS: u64 = 1_500;

/// The questions to the cells.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    open: BTreeMap<LookupId, Lookup>,
    next: u64,
    /// Requests that the cells are to be asked about, together, at the next run.
    wanted: BTreeSet<TicketId>,
    /// Requests that are looked for again later, with the time.
    later: BTreeSet<(u64, TicketId)>,
    /// Requests that two auctioneers have begun.
    watches: Watches,
    comparison: Comparison,
    /// When an instance was last started after the cells were asked for it: another auctioneer's start may be on its
    /// way to a cell that was not there.
    checked_ms: Option<u64>,
}

/// Returns the items of `near` and `far` that name an instance: the id as written, and parsed.
fn named(request: &Request) -> impl Iterator<Item = (&str, InstanceId)> {
    let items = request.near.iter().chain(&request.far);
    items.filter_map(|item| {
        let id = item.strip_prefix("instance:")?;
        Some((id, id.parse().ok()?))
    })
}

impl Lookups {
    /// Handles a new request: it is queued once the cells have said what must be known about it.
    pub(crate) fn begin(&mut self, parts: &mut Parts, opened: Opened) {
        // a question costs a round trip to every cell: it is only asked if a second copy is possible
        if opened.unsure || may_run_already(parts, opened.ticket) {
            self.wanted.insert(opened.ticket);
        } else {
            self.find_named(parts, opened.ticket);
        }
    }

    /// Has these requests wait until the cells were asked, because they may run already.
    pub(crate) fn check(&mut self, keys: impl IntoIterator<Item = TicketId>) {
        self.wanted.extend(keys);
    }

    /// Handles possibly missed answers: whatever waits for answers asks again.
    pub(crate) fn ask_again(&mut self) {
        for lookup in self.open.values_mut().filter(|lookup| lookup.own) {
            self.wanted.append(&mut lookup.tickets.drain(..).collect());
        }
        // their answers would be incomplete; questions about other requests' instances only give hints for placement
        self.open.retain(|_, lookup| !lookup.own);
    }

    /// Looks for requests that gave way to another auctioneer until what that one starts is found.
    pub(crate) fn follow(&mut self, now_ms: u64, keys: &[TicketId]) {
        self.forget(keys);
        self.later
            .extend(keys.iter().map(|key| (now_ms + AGAIN_MS, *key)));
    }

    /// Watches a request that two auctioneers have begun: what runs twice is ended.
    pub(crate) fn watch(&mut self, now_ms: u64, id: &RequestId, begun: Arc<Begun>) {
        self.watches.add(now_ms, id, begun);
    }

    /// Asks the cells for everything that is wanted, in few questions.
    fn ask_wanted(&mut self, parts: &mut Parts) {
        while self.may_ask_ms() <= parts.turn.now_ms {
            let together = self.gather(parts);
            if together.is_empty() {
                return;
            }
            let question = together.question();
            self.ask(parts, &question, together);
        }
    }

    /// Returns when the cells may be asked for instances of requests again.
    fn may_ask_ms(&self) -> u64 {
        let own = self.open.values().filter(|lookup| lookup.own);
        own.map(|lookup| lookup.asked_ms + BETWEEN_QUESTIONS_MS)
            .max()
            .unwrap_or(0)
    }

    /// Assembles the next question: first what waits for an answer, then what is watched.
    fn gather(&mut self, parts: &Parts) -> Lookup {
        let mut together = Lookup {
            own: true,
            ..Lookup::default()
        };
        while let Some(key) = self.wanted.first().copied() {
            if let Some(ticket) = parts.requests.get(key) {
                if !together.has_room_for(ticket.instances.len()) {
                    break;
                }
                together.add(&ticket.begun());
                together.tickets.push(key);
            }
            self.wanted.pop_first();
        }
        if together.instances.len() < ASKED_BY_ID {
            let most = ASKED_BY_ID - together.instances.len();
            together.suspects = self.comparison.take_suspects(most);
        }
        self.watches.ask(parts.turn.now_ms, &mut together);
        together
    }

    /// Puts a request into the next auction, once it is known where the instances are that it names.
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
            ids,
            ..Instances::default()
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
        lookup.asked_ms = parts.turn.now_ms;
        lookup.until_ms = parts.turn.now_ms + LOOKUP_WAIT_MS;
        self.next += 1;
        let id = LookupId::new(self.next);
        // no cell is known, so no answer will end the lookup
        if lookup.missing.is_empty() {
            return self.conclude(parts, id, lookup);
        }
        parts.turn.out.push(AuctioneerOutput::AskInstances {
            lookup: id,
            body: to_bytes(question),
        });
        self.open.insert(id, lookup);
    }

    /// Handles a cell's answer about what it holds.
    pub(crate) fn answered(&mut self, parts: &mut Parts, id: LookupId, answer: &InstancesAnswer) {
        if id == LookupId::COMPARISON {
            parts.feed.has_answered(&answer.cell);
            return self.comparison.answered(parts, answer);
        }
        let Some(lookup) = self.open.get_mut(&id) else {
            parts.turn.counters.stray_answers += 1;
            return;
        };
        parts.feed.has_answered(&answer.cell);
        // a large answer comes in parts; the last one completes it
        if !answer.more {
            lookup.missing.remove(answer.cell.as_str());
        }
        if lookup.own {
            lookup.found(answer);
        } else {
            for key in &lookup.tickets {
                locate(parts, *key, answer);
            }
        }
        if lookup.missing.is_empty()
            && let Some(lookup) = self.open.remove(&id)
        {
            self.conclude(parts, id, lookup);
        }
    }

    /// Concludes a lookup that all cells have answered, or whose time is up.
    fn conclude(&mut self, parts: &mut Parts, id: LookupId, mut lookup: Lookup) {
        if !lookup.own {
            for key in lookup.tickets {
                parts.requests.queue(key);
            }
            return;
        }
        for (instance, (app, holders)) in &mut lookup.instances {
            // running copies before ended ones, then by claim: the first one is kept
            holders.sort();
            holders.dedup_by(|a, b| a.cell == b.cell);
            end_duplicates(parts, app, *instance, holders);
            // if some requests keep waiting, the other copies are not ended a second time
            holders.truncate(1);
        }
        if !lookup.missing.is_empty() {
            self.watches.unanswered(&lookup.watches);
        }
        lookup.watches.clear();
        lookup.suspects.clear();
        let silent = Silent::of(parts.feed.pool(), &lookup);
        let mut waiting = std::mem::take(&mut lookup.tickets);
        waiting.retain(|key| self.found(parts, *key, &lookup, &silent));
        if !waiting.is_empty() {
            lookup.tickets = waiting;
            self.wait_on(parts, id, lookup);
        }
    }

    /// Keeps a lookup open: cells that may run what is left of these requests have not answered, and there is time.
    fn wait_on(&mut self, parts: &mut Parts, id: LookupId, mut lookup: Lookup) {
        let now_ms = parts.turn.now_ms;
        let tickets = lookup.tickets.iter();
        let tickets = tickets.filter_map(|key| parts.requests.get(*key));
        let checked = tickets.flat_map(Ticket::checked);
        let checked: BTreeSet<InstanceId> = checked.map(|(_, instance)| instance.id).collect();
        lookup.instances.retain(|id, _| checked.contains(id));
        lookup.until_ms = now_ms + LOOKUP_WAIT_MS;
        lookup.rounds += 1;
        // the question or an answer may be lost; but busy cells must not get more and more questions
        if lookup.rounds.is_power_of_two() {
            lookup.asked_ms = now_ms;
            parts.turn.out.push(AuctioneerOutput::AskInstances {
                lookup: id,
                body: to_bytes(&lookup.question()),
            });
        }
        self.open.insert(id, lookup);
    }

    /// Records what the cells hold of a request as placed, and starts what none of them holds, unless a silent cell may
    /// hold it. Returns whether the request waits for such a cell.
    fn found(
        &mut self,
        parts: &mut Parts,
        key: TicketId,
        lookup: &Lookup,
        silent: &Silent,
    ) -> bool {
        let now_ms = parts.turn.now_ms;
        let Some(ticket) = parts.requests.get(key) else {
            return false;
        };
        let yielded = ticket.yielded;
        let silent = silent.may_hold(parts.requests.outcomes(), ticket);
        let in_time = now_ms + SEND_MS < ticket.ends_ms();
        let mut waits = false;
        // the other auctioneer's answer names cells; what those say themselves counts more, so it is used once all have
        // answered
        let theirs = ticket.theirs.as_ref().filter(|_| lookup.missing.is_empty());
        let theirs = theirs.map(|body| OtherAnswer::read(body));
        // before the deadline the other auctioneer's start may still arrive at its cell
        let late = now_ms >= ticket.deadline_ms;
        let mut found: Vec<(Slot, Done)> = Vec::new();
        for (position, instance) in ticket.checked() {
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
                // if a silent cell may run it, a start elsewhere would be a second copy
                None if silent.is_empty() => continue,
                None if in_time => {
                    waits = true;
                    continue;
                }
                None => unknown(silent),
            };
            found.push((Slot::new(key, position), done));
        }
        for (slot, done) in found {
            parts.requests.finish(&mut parts.turn, slot, done);
        }
        // all of it was found, so the request has ended
        if parts.requests.get(key).is_none() {
            return false;
        }
        if yielded {
            self.later.insert((now_ms + AGAIN_MS, key));
        } else if !waits {
            self.start_after_all(parts, key, lookup.missing.is_empty());
        }
        waits
    }

    /// Starts a request that no cell holds. If somebody may have begun it before, or not `all` cells have answered, it
    /// is watched, because a start may still be on its way.
    fn start_after_all(&mut self, parts: &mut Parts, key: TicketId, all: bool) {
        if let Some(ticket) = parts.requests.get(key)
            && (!all || parts.requests.outcomes().claim(&ticket.id).is_some())
        {
            // it was looked for just now
            let from_ms = parts.turn.now_ms + AGAIN_MS;
            self.watch(from_ms, &ticket.id, Arc::new(ticket.begun()));
        }
        self.checked_ms = Some(parts.turn.now_ms);
        self.find_named(parts, key);
    }

    /// Concludes lookups whose time is up, and asks what is due.
    pub(crate) fn run(&mut self, parts: &mut Parts) {
        let now_ms = parts.turn.now_ms;
        let over = self.open.iter().filter(|(_, l)| l.until_ms <= now_ms);
        let over: Vec<LookupId> = over.map(|(id, _)| *id).collect();
        for id in over {
            if let Some(lookup) = self.open.remove(&id) {
                self.conclude(parts, id, lookup);
            }
        }
        while let Some((at_ms, key)) = self.later.first().copied()
            && at_ms <= now_ms
        {
            self.later.pop_first();
            self.wanted.insert(key);
        }
        self.comparison.run(parts);
        self.ask_wanted(parts);
    }

    /// Handles the loss of a cell, which will not answer any more.
    pub(crate) fn cell_gone(&mut self, cell: &Arc<str>) {
        self.comparison.cell_gone(cell);
        for lookup in self.open.values_mut() {
            lookup.missing.remove(cell);
            if lookup.missing.is_empty() {
                // concluded by the next run: requests cannot be reached from here
                lookup.until_ms = 0;
            }
        }
    }

    /// Handles a cell that has joined. It may have been lost before, and run what has been started elsewhere since.
    pub(crate) fn cell_joined(&mut self, parts: &Parts, cell: &str) {
        let now_ms = parts.turn.now_ms;
        let counts = parts.feed.pool().get(cell).map(|cell| &cell.counts);
        let runs = counts.is_some_and(|counts| counts.tasks > 0 || !counts.apps.is_empty());
        let checked = self.checked_ms;
        if runs || checked.is_some_and(|at_ms| now_ms < at_ms + COMPARED_MS) {
            self.compare(parts);
        }
    }

    /// Starts comparing what the cells run.
    pub(crate) fn compare(&mut self, parts: &Parts) {
        if !parts.requests.trusts_ids() {
            self.comparison.begin(parts);
        }
    }

    /// Forgets requests that have ended: nothing needs to be known of them.
    pub(crate) fn forget(&mut self, ended: &[TicketId]) {
        if ended.is_empty() {
            return;
        }
        let gone: BTreeSet<TicketId> = ended.iter().copied().collect();
        // every cell has to answer every question: none is asked about ended requests
        self.wanted.retain(|key| !gone.contains(key));
        self.later.retain(|(_, key)| !gone.contains(key));
        for lookup in self.open.values_mut() {
            lookup.tickets.retain(|key| !gone.contains(key));
        }
        self.open.retain(|_, lookup| {
            let others = !lookup.watches.is_empty() || !lookup.suspects.is_empty();
            others || !lookup.tickets.is_empty()
        });
    }

    /// Returns when [`Lookups::run`] has something to do.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        let open = self.open.values().map(|lookup| lookup.until_ms).min();
        let later = self.later.first().map(|(at_ms, _)| *at_ms);
        let watched = self.watches.next_ms();
        let wanted = !self.wanted.is_empty() || self.comparison.has_suspects();
        let wanted = wanted.then_some(0);
        // new questions wait for their turn
        let asked = [watched, wanted].into_iter().flatten().min();
        let asked = asked.map(|at_ms| at_ms.max(self.may_ask_ms()));
        let compared = self.comparison.next_ms();
        [open, later, asked, compared].into_iter().flatten().min()
    }
}

/// Returns whether a request may run already. One whose id is not known here may have been begun before this auctioneer
/// listened, and its outcome may be forgotten by all; but then its app runs somewhere.
fn may_run_already(parts: &mut Parts, key: TicketId) -> bool {
    let Some(ticket) = parts.requests.get(key) else {
        return false;
    };
    let (app, kind) = (&ticket.app, ticket.request.kind);
    // an id that we generated is new
    ticket.given && !parts.requests.trusts_ids() && parts.feed.may_run(parts.turn.now_ms, app, kind)
}

/// Remembers for the auction which of the instances that a request names the cell holds.
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
