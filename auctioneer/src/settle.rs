//! Requests from the door to their answers.

use std::{collections::BTreeMap, sync::Arc};

use placement::{Span, Unplaced};
use shared::{
    clock::millis,
    wire::{Event, Outcome, WireError, code, instance_id, kind, to_bytes},
};

use crate::ids::ReplyKey;
use crate::{
    auction::{Auctioneer, DEFAULT_DEADLINE_MS, MAX_WAITING},
    io::{AdmittedRequest, AuctioneerOutput, Rejected, StartMessage},
    memory::{Seen, other_app},
    reply,
    report::{Line, Lines},
    ticket::{Answer, Done, Group, Instance, Slot, State, Ticket, because},
};

impl Auctioneer {
    /// A start message: each request is taken, repeated or turned away by itself.
    pub(crate) fn start(&mut self, now_ms: u64, asked: StartMessage) {
        let key = self.key();
        let count = asked.requests.len();
        let group = Group {
            reply: asked.reply,
            array: asked.array,
            answers: vec![None; count],
            missing: count,
        };
        self.groups.insert(key, group);
        let mut rejected = Vec::new();
        for (position, request) in asked.requests.into_iter().enumerate() {
            let taken = request.and_then(|r| self.take_request(now_ms, r, (key, position)));
            if let Err(why) = taken {
                rejected.push((position, why));
            }
        }
        if rejected.is_empty() {
            return;
        }
        self.counters.rejected += 1;
        self.tell_rejected(rejected.iter().map(|(_, why)| why), asked.reply.is_none());
        if rejected.len() == count {
            self.groups.remove(&key);
            if let Some(to) = asked.reply {
                let error = Box::new(first_error(rejected.iter().map(|(_, why)| &why.error)));
                self.out.push(AuctioneerOutput::ReplyError { to, error });
            }
            return;
        }
        for (position, why) in rejected {
            let answer = Answer {
                id: why.id.clone(),
                app: why.app.as_deref().unwrap_or_default().into(),
                outcome: Outcome::Unplaced,
                body: to_bytes(&serde_json::json!({ "error": why.error })),
            };
            self.fill((key, position), answer);
        }
    }

    /// A message to the door that cannot be used at all.
    pub(crate) fn rejected(&mut self, rejected: &Rejected, reply: Option<ReplyKey>) {
        self.counters.rejected += 1;
        self.tell_rejected(std::iter::once(rejected), reply.is_none());
        if let Some(to) = reply {
            let error = Box::new(rejected.error.clone());
            self.out.push(AuctioneerOutput::ReplyError { to, error });
        }
    }

    /// One event for each app, and for those who cannot be answered the outcome.
    fn tell_rejected<'r>(
        &mut self,
        rejected: impl Iterator<Item = &'r Rejected>,
        publish_outcome: bool,
    ) {
        let mut apps: BTreeMap<&str, Event> = BTreeMap::new();
        for why in rejected {
            let app = why.app.as_deref().unwrap_or("unknown");
            let event = apps.entry(app).or_insert_with(|| Event {
                reason: Some(why.error.message.clone()),
                request: Some(why.id.clone()),
                ..Event::app(kind::REJECTED, app)
            });
            event.count += 1;
            if publish_outcome {
                self.out.push(AuctioneerOutput::Outcome {
                    id: why.id.clone(),
                    body: to_bytes(&why.error.body()),
                });
            }
        }
        let events = apps
            .into_values()
            .map(|event| AuctioneerOutput::Event(Box::new(event)));
        self.out.extend(events);
    }

    fn take_request(
        &mut self,
        now_ms: u64,
        asked: AdmittedRequest,
        place: (u64, usize),
    ) -> Result<(), Rejected> {
        let id = asked.request.id.as_str();
        if let Some(ticket) = self.by_id.get(id).copied() {
            return self.repeated(ticket, &asked, place);
        }
        let seen = self.memory.get(id);
        if let Some(Seen::Ended(body)) = seen {
            let answer =
                Answer::remembered(&asked.id, &asked.request, body, self.settings.max_payload);
            let answer = answer.map_err(|error| turned_away(&asked, error))?;
            self.counters.repeats += 1;
            self.fill(place, answer);
            return Ok(());
        }
        let jobs = match &asked.request.indices {
            Some(indices) => indices.len(),
            None => asked.request.instances as usize,
        };
        let refuse = |code, message| turned_away(&asked, WireError::new(code, message));
        if self.leaving {
            let message = format!("{} is ending", self.settings.name);
            return Err(refuse(code::SHUTTING_DOWN, message));
        }
        if self.waiting_count + jobs > MAX_WAITING {
            self.counters.overloaded += 1;
            let message = format!(
                "{} jobs wait already and {jobs} more would; at most {MAX_WAITING} may",
                self.waiting_count
            );
            return Err(refuse(code::OVERLOADED, message));
        }
        let ticket = self.open(now_ms, asked, place);
        match seen {
            Some(_) => self.check(now_ms, ticket),
            None => self.locate(now_ms, ticket),
        }
        Ok(())
    }

    fn open(&mut self, now_ms: u64, asked: AdmittedRequest, place: (u64, usize)) -> u64 {
        self.counters.requests += 1;
        let request = asked.request;
        let key = self.key();
        let id = asked.id;
        let instance = |index| Instance {
            index,
            id: instance_id(id.as_str(), &request.app, request.kind, index),
            state: State::Checking,
            failures: 0,
            changed: 0,
            queued: false,
            sharers: Vec::new(),
        };
        let instances: Vec<Instance> = match &request.indices {
            Some(indices) => indices.iter().copied().map(instance).collect(),
            None => (0..request.instances).map(instance).collect(),
        };
        let span = |span: Option<Span>, default| span.map_or(default, |s| millis(s.0));
        let deadline_ms = now_ms + span(request.deadline, DEFAULT_DEADLINE_MS);
        let queue_end_ms = now_ms + span(request.queue_timeout, 0);
        self.deadlines.insert((deadline_ms, key));
        if queue_end_ms > now_ms {
            self.queue_ends.insert((queue_end_ms, key));
        }
        self.by_id.insert(id.clone(), key);
        let ticket = Ticket {
            id,
            app: request.app.as_str().into(),
            run: request.run.clone().map(Arc::new),
            located: None,
            warnings: asked.warnings,
            open: instances.len(),
            instances,
            places: vec![place],
            asked_ms: now_ms,
            deadline_ms,
            queue_end_ms,
            replied: false,
            announced: false,
            auction: None,
            request,
        };
        self.tickets.insert(key, ticket);
        key
    }

    /// What is not known to run goes into the next auction.
    pub(crate) fn queue(&mut self, key: u64) {
        let Some(ticket) = self.tickets.get(&key) else {
            return;
        };
        for position in 0..ticket.instances.len() {
            let slot = Slot {
                ticket: key,
                position,
            };
            if matches!(self.state(slot), Some(State::Checking)) {
                self.set_state(slot, State::Waiting);
                self.waiting.push_back(slot);
            }
        }
    }

    /// The request is on its way already: both askers get its answer.
    fn repeated(
        &mut self,
        key: u64,
        asked: &AdmittedRequest,
        place: (u64, usize),
    ) -> Result<(), Rejected> {
        let Some(ticket) = self.tickets.get_mut(&key) else {
            return Ok(());
        };
        if ticket.app.as_ref() != asked.request.app {
            return Err(turned_away(asked, other_app(&asked.request, &ticket.app)));
        }
        self.counters.repeats += 1;
        if ticket.request != asked.request {
            let warning = "this id was asked before with another body, which counts".to_owned();
            if !ticket.warnings.contains(&warning) {
                ticket.warnings.push(warning);
            }
        }
        if ticket.replied {
            let answer = reply::answer(ticket, self.settings.max_payload);
            self.fill(place, answer);
        } else {
            ticket.places.push(place);
        }
        Ok(())
    }

    /// The answer to one request of a message; after the last one the message is answered.
    pub(crate) fn fill(&mut self, (key, position): (u64, usize), answer: Answer) {
        let Some(group) = self.groups.get_mut(&key) else {
            return;
        };
        if group.answers[position].replace(answer).is_none() {
            group.missing -= 1;
        }
        if group.missing > 0 {
            return;
        }
        let Some(group) = self.groups.remove(&key) else {
            return;
        };
        let Some(to) = group.reply else {
            return;
        };
        let body = if group.array {
            reply::array(&group, self.settings.max_payload)
        } else {
            let answer = group.answers.into_iter().flatten().next();
            Ok(answer.map(|a| a.body).unwrap_or_default())
        };
        self.out.push(match body {
            Ok(body) => AuctioneerOutput::Reply { to, body },
            Err(error) => AuctioneerOutput::ReplyError {
                to,
                error: Box::new(error),
            },
        });
    }

    /// How far an instance is; none when its request has ended.
    pub(crate) fn state(&self, slot: Slot) -> Option<&State> {
        let ticket = self.tickets.get(&slot.ticket)?;
        Some(&ticket.instances[slot.position].state)
    }

    /// Moves an instance on. The counts of what waits follow.
    pub(crate) fn set_state(&mut self, slot: Slot, state: State) {
        let Some(ticket) = self.tickets.get_mut(&slot.ticket) else {
            return;
        };
        let old = &mut ticket.instances[slot.position].state;
        let waits = |s: &State| usize::from(matches!(s, State::Waiting | State::Held(_)));
        let holds = |s: &State| usize::from(matches!(s, State::Held(_)));
        self.waiting_count = self.waiting_count + waits(&state) - waits(old);
        self.held_count = self.held_count + holds(&state) - holds(old);
        *old = state;
    }

    pub(crate) fn app_of(&self, slot: Slot) -> Option<Arc<str>> {
        let ticket = self.tickets.get(&slot.ticket)?;
        Some(Arc::clone(&ticket.app))
    }

    /// What events tell of an instance.
    pub(crate) fn line(&self, slot: Slot) -> Option<Line> {
        let ticket = self.tickets.get(&slot.ticket)?;
        let instance = &ticket.instances[slot.position];
        Some(Line {
            request: ticket.id.clone(),
            index: instance.index,
            instance: instance.id,
            cell: None,
            why: None,
        })
    }

    /// An instance's final outcome, which those who share it get as well.
    pub(crate) fn finish(&mut self, now_ms: u64, slot: Slot, done: Done) {
        let mut ended = vec![(slot, done)];
        while let Some((slot, done)) = ended.pop() {
            if matches!(self.state(slot), None | Some(State::Done(_))) {
                continue;
            }
            self.set_state(slot, State::Done(done.clone()));
            let Some(ticket) = self.tickets.get_mut(&slot.ticket) else {
                continue;
            };
            ticket.open -= 1;
            let sharers = std::mem::take(&mut ticket.instances[slot.position].sharers);
            let of = ticket.id.clone();
            let over = ticket.open == 0;
            if over {
                self.end(now_ms, slot.ticket);
            }
            for sharer in sharers {
                let mut shared = done.clone();
                shared.duplicate_of = Some(of.clone());
                ended.push((sharer, shared));
            }
        }
    }

    /// An instance is given up, and that is told by an event of its own.
    pub(crate) fn give_up(&mut self, now_ms: u64, slot: Slot, why: Arc<Unplaced>) {
        if let (Some(app), Some(mut line)) = (self.app_of(slot), self.line(slot)) {
            line.why = Some(Arc::clone(&why));
            let auction = self.tickets.get(&slot.ticket).and_then(|t| t.auction);
            let mut lines = Lines::default();
            lines.add(line);
            self.event(lines.event(kind::UNPLACED, &app, auction));
        }
        self.finish(now_ms, slot, Done::unplaced(why));
    }

    /// Every instance has its outcome.
    fn end(&mut self, now_ms: u64, key: u64) {
        self.tell(now_ms, key);
        let Some(ticket) = self.tickets.remove(&key) else {
            return;
        };
        self.by_id.remove(&ticket.id);
        self.deadlines.remove(&(ticket.deadline_ms, key));
        self.queue_ends.remove(&(ticket.queue_end_ms, key));
        self.checks.remove(&key);
    }

    /// Answers with what is known now, once; what comes later is only remembered.
    fn tell(&mut self, now_ms: u64, key: u64) {
        let Some(ticket) = self.tickets.get_mut(&key) else {
            return;
        };
        let answer = reply::answer(ticket, self.settings.max_payload);
        let later = std::mem::replace(&mut ticket.replied, true);
        self.memory.ended(now_ms, &answer.id, &answer.body, later);
        if later {
            return;
        }
        let places = std::mem::take(&mut ticket.places);
        self.out.push(AuctioneerOutput::Outcome {
            id: answer.id.clone(),
            body: answer.body.clone(),
        });
        for place in places {
            self.fill(place, answer.clone());
        }
    }

    /// Deadlines of requests and of waiting for room.
    pub(crate) fn due(&mut self, now_ms: u64) {
        while let Some((_, key)) = self
            .queue_ends
            .first()
            .copied()
            .filter(|(t, _)| *t <= now_ms)
        {
            self.queue_ends.pop_first();
            self.give_up_all(now_ms, key, |instance| match &instance.state {
                State::Held(why) => Some(Arc::clone(why)),
                _ => None,
            });
        }
        while let Some((_, key)) = self
            .deadlines
            .first()
            .copied()
            .filter(|(t, _)| *t <= now_ms)
        {
            self.deadlines.pop_first();
            let Some(ticket) = self.tickets.get(&key) else {
                continue;
            };
            if ticket.queue_end_ms <= now_ms {
                self.give_up_all(now_ms, key, |instance| {
                    let late = matches!(instance.state, State::Waiting);
                    late.then(|| because("its deadline passed before it was sent to a cell"))
                });
            }
            self.end_unchecked(now_ms, key);
            if self.tickets.contains_key(&key) {
                self.tell(now_ms, key);
            }
        }
    }

    /// The deadline passed while the cells were still asked whether it runs already.
    fn end_unchecked(&mut self, now_ms: u64, key: u64) {
        let Some(ticket) = self.tickets.get(&key) else {
            return;
        };
        let why = match ticket.located {
            None => "begun by another auctioneer; the cells did not say in time whether it runs",
            Some(_) => "the cells did not say in time where the instances are that it names",
        };
        for position in 0..ticket.instances.len() {
            let slot = Slot {
                ticket: key,
                position,
            };
            if matches!(self.state(slot), Some(State::Checking)) {
                self.finish(now_ms, slot, Done::unknown(None, why));
            }
        }
    }

    /// Gives up those instances of a request for which there is a reason, with one event.
    pub(crate) fn give_up_all(
        &mut self,
        now_ms: u64,
        key: u64,
        reason: impl Fn(&Instance) -> Option<Arc<Unplaced>>,
    ) -> usize {
        let Some(ticket) = self.tickets.get(&key) else {
            return 0;
        };
        let all = ticket.instances.iter().enumerate();
        let gone: Vec<(usize, Arc<Unplaced>)> = all
            .filter_map(|(position, i)| reason(i).map(|why| (position, why)))
            .collect();
        let (app, auction) = (ticket.request.app.clone(), ticket.auction);
        let mut lines = Lines::default();
        for (position, why) in &gone {
            let slot = Slot {
                ticket: key,
                position: *position,
            };
            if let Some(mut line) = self.line(slot) {
                line.why = Some(Arc::clone(why));
                lines.add(line);
            }
            self.finish(now_ms, slot, Done::unplaced(Arc::clone(why)));
        }
        if !gone.is_empty() {
            self.event(lines.event(kind::UNPLACED, &app, auction));
        }
        gone.len()
    }

    /// Takes nothing new from now on; what waits for room is given up.
    pub(crate) fn leave(&mut self, now_ms: u64) {
        self.leaving = true;
        let mut keys: Vec<u64> = self.tickets.keys().copied().collect();
        keys.sort_unstable();
        for key in keys {
            self.give_up_all(now_ms, key, |instance| {
                matches!(instance.state, State::Held(_)).then(|| because("the auctioneer ends"))
            });
        }
    }
}

fn turned_away(asked: &AdmittedRequest, error: WireError) -> Rejected {
    Rejected {
        id: asked.id.clone(),
        app: Some(asked.request.app.clone()),
        error,
    }
}

/// The first error, which tells how many others there are.
fn first_error<'e>(mut errors: impl Iterator<Item = &'e WireError>) -> WireError {
    let mut first = errors
        .next()
        .cloned()
        .unwrap_or_else(|| WireError::new(code::INVALID_REQUEST, "no request"));
    let others = errors.count();
    if others > 0 {
        first.message = format!(
            "{} (and {others} others are not valid either)",
            first.message
        );
    }
    first
}
