//! The manager's state machine: passes every input to the part that it concerns, and does what is due.

use shared::wire::{AppStatus, GrantRequest, TaskStatus};

use crate::{
    bucket, commands, converge,
    counters::ManagerCounters,
    ids::{BucketId, CommandKey, WriteId},
    io::{ManagerInput, ManagerOutput, TaskInput, WriteResult},
    office,
    parts::{ManagerSettings, Parts, Purpose},
    relocation, sightings,
    status::status,
    stored::AppRecord,
    tasks::Office,
    waves,
};

/// The machine.
#[derive(Debug)]
pub struct Manager {
    parts: Parts,
}

impl Manager {
    /// Creates a machine that knows nothing yet.
    pub fn new(settings: ManagerSettings) -> Self {
        Self {
            parts: Parts::new(settings),
        }
    }

    /// Takes one input and does what is due: [`Manager::take`], then [`Manager::run`].
    pub fn handle(&mut self, now_ms: u64, input: ManagerInput) -> Vec<ManagerOutput> {
        self.take(now_ms, input);
        self.run(now_ms)
    }

    /// Takes one input. Several may be taken before the next [`Manager::run`].
    pub fn take(&mut self, now_ms: u64, input: ManagerInput) {
        use ManagerInput as Input;
        let parts = &mut self.parts;
        parts.now_ms = now_ms;
        // a message from a cell or from this manager itself shows that messages flow
        let flows = matches!(
            input,
            Input::Cell(_) | Input::Listed { .. } | Input::Event(_) | Input::Echo
        );
        if flows && !parts.clocks.heard(now_ms) {
            parts.settle();
        }
        match input {
            Input::Kv {
                key,
                revision,
                value,
            } => bucket::shown(parts, &key, revision, value.as_ref()),
            Input::KvReady { revision } => bucket::ready(parts, revision),
            Input::KvInterrupted => bucket::interrupted(parts),
            Input::WriteEnded { write, result } => written(parts, write, result),
            Input::Cell(heard) => sightings::advertised(parts, &heard),
            Input::Listed { question, list } => sightings::listed(parts, question, &list),
            Input::Event(event) => sightings::told(parts, &event),
            Input::Outcome { wave, answer } => waves::outcome(parts, wave, answer),
            Input::Command { to, app, command } => commands::take(parts, to, app, command),
            Input::Move { to, app, order } => relocation::take(parts, to, &app, order),
            Input::Grant {
                to,
                auctioneer,
                request,
            } => grant(parts, to, &auctioneer, &request),
            Input::Interrupted => {
                parts.clocks.interrupted();
                parts.settle();
            }
            Input::Task(input) => task(parts, input),
            Input::Echo | Input::Tick => {}
            Input::Leave => office::leave(parts),
        }
    }

    /// Does what is due: the lease, commands, lost cells, waves, moves, decisions. Returns all outputs since the last
    /// run.
    pub fn run(&mut self, now_ms: u64) -> Vec<ManagerOutput> {
        let parts = &mut self.parts;
        parts.now_ms = now_ms;
        bucket::due(parts);
        office::due(parts);
        commands::due(parts);
        sightings::look(parts);
        waves::room(parts);
        waves::due(parts);
        relocation::look(parts);
        converge::run(parts);
        run_tasks(parts);
        parts.send_question();
        std::mem::take(&mut parts.out)
    }

    /// Returns the time by which [`Manager::run`] must be called.
    pub fn next_ms(&self) -> u64 {
        let parts = &self.parts;
        let waves = parts.waves.first().map_or(u64::MAX, |(at, ..)| *at);
        let acting = if parts.may_act() {
            parts.apps.next_ms().min(waves).min(parts.moves.next_ms())
        } else {
            u64::MAX
        };
        // the lease is not renewed while the content of the bucket is unknown
        let lease = if parts.bucket.is_known() {
            parts.lease.next_ms()
        } else {
            u64::MAX
        };
        [
            lease,
            bucket::next_ms(parts),
            parts.next_look_ms,
            parts.next_ask_ms(),
            parts.room_ms,
            commands::next_ms(parts),
            parts.tasks.next_ms(),
            acting,
        ]
        .into_iter()
        .fold(u64::MAX, u64::min)
        .max(parts.now_ms)
    }

    /// Returns whether it holds the lease and its last renewal is fresh.
    pub fn is_acting(&self) -> bool {
        self.parts.may_act()
    }

    /// Returns whether it knows what is stored. Otherwise it can answer nothing.
    pub fn is_ready(&self) -> bool {
        self.parts.bucket.is_known()
    }

    /// Returns whether something is stored in a newer format than it knows: then it does nothing.
    pub fn meets_newer(&self) -> bool {
        !self.parts.bucket.newer.is_empty()
    }

    /// Returns the state of an app; none if it is not known.
    pub fn status(&self, app: &str) -> Option<AppStatus> {
        let id = self.parts.apps.named(app)?;
        Some(status(self.parts.apps.get(id)?, &self.parts))
    }

    /// Returns what is stored of an app; none if it is not known.
    pub fn record(&self, app: &str) -> Option<&AppRecord> {
        let id = self.parts.apps.named(app)?;
        Some(&self.parts.apps.get(id)?.record)
    }

    /// Returns the bucket's id, once it is known.
    pub fn bucket(&self) -> Option<BucketId> {
        self.parts.bucket.id
    }

    /// Returns how many instances of apps it knows.
    pub fn instances(&self) -> usize {
        self.parts.fleet.len()
    }

    /// Returns how many apps it knows.
    pub fn count(&self) -> usize {
        self.parts.apps.count()
    }

    /// Returns the names after this one in order, or all names if none is given.
    pub fn apps_after<'a>(&'a self, name: Option<&str>) -> impl Iterator<Item = &'a str> + 'a {
        let ids = self.parts.apps.after(name);
        ids.filter_map(|id| Some(&*self.parts.apps.get(id)?.name))
    }

    /// Returns the names of all apps in order.
    pub fn apps(&self) -> impl Iterator<Item = &str> + '_ {
        let ids = self.parts.apps.by_name();
        ids.filter_map(|id| Some(&*self.parts.apps.get(id)?.name))
    }

    /// Returns the number of instances of unknown apps of this bucket, which are left as they are.
    pub fn orphans(&self) -> u64 {
        self.parts.places.orphans()
    }

    /// Returns a stored request; none if it is not known.
    pub fn task(&self, id: &str) -> Option<TaskStatus> {
        self.parts.tasks.status(id)
    }

    /// Returns the ids and apps of the stored requests after this id, in order; all of them after an empty id.
    pub fn tasks_after(&self, id: &str) -> impl Iterator<Item = (&str, &str)> {
        self.parts.tasks.after(id)
    }

    /// Returns how many stored requests it knows, how many of these have not ended, and how many of these wait.
    pub fn task_counts(&self) -> [usize; 3] {
        let tasks = &self.parts.tasks;
        [tasks.count(), tasks.open(), tasks.waiting()]
    }

    /// Returns roughly how many bytes of memory those take that have not ended.
    pub fn open_task_bytes(&self) -> usize {
        self.parts.tasks.open_bytes()
    }

    /// The auctioneer with `--single` that has the grant, and how often another one got it.
    pub fn grants(&self) -> (Option<&str>, u64) {
        let grants = &self.parts.grants;
        let holder = grants.holder(self.parts.now_ms);
        (holder.filter(|_| self.is_acting()), grants.changes())
    }

    /// Returns the counters.
    pub fn counters(&self) -> &ManagerCounters {
        &self.parts.counters
    }
}

/// An auctioneer asks for the grant. The one who acts answers, and nobody else.
fn grant(parts: &mut Parts, to: CommandKey, auctioneer: &str, request: &GrantRequest) {
    let acts = parts.may_act();
    let mut ask = || {
        let (now_ms, run) = (parts.now_ms, request.run.as_str());
        parts.grants.ask(now_ms, auctioneer, run, request.ask)
    };
    let reply = acts.then(&mut ask);
    parts.out.push(ManagerOutput::Granted { to, reply });
}

/// Handles an input about a stored request.
fn task(parts: &mut Parts, input: TaskInput) {
    let key = match &input {
        TaskInput::Shown { id, .. } => Some(format!("task {id}")),
        _ => None,
    };
    let was_newer = key
        .as_ref()
        .is_some_and(|key| parts.bucket.newer.remove(key));
    if let (Err(error), Some(key)) = (parts.tasks.take(parts.now_ms, input), key) {
        bucket::unusable(parts, &key, error);
    }
    if was_newer && parts.bucket.newer.is_empty() {
        parts.lease.stay();
    }
}

/// Does what is due for stored requests.
fn run_tasks(parts: &mut Parts) {
    let answered_ms = if parts.tasks.is_asking() {
        parts.places.answered_ms()
    } else {
        0
    };
    let office = Office {
        acts: parts.may_act(),
        bucket: parts.bucket.id.filter(|_| parts.bucket.is_known()),
        settled: parts.settling.is_none(),
        answered_ms,
    };
    let outputs = parts.tasks.run(parts.now_ms, office);
    parts.out.extend(outputs);
    if parts.tasks.take_question() {
        parts.ask();
    }
}

/// Handles the end of a write.
fn written(parts: &mut Parts, write: WriteId, result: WriteResult) {
    let Some(purpose) = parts.writes.remove(&write) else {
        return;
    };
    if result == WriteResult::Conflict {
        parts.counters.conflicts += 1;
    }
    match purpose {
        Purpose::Lease => office::written(parts, write, result),
        Purpose::Meta(record) => bucket::meta_written(parts, record, result),
        Purpose::State(app, uid) => waves::saved(parts, app, uid, result),
        Purpose::Rollout(app, uid) => converge::rollout_stored(parts, app, uid, result),
        Purpose::Command(pending) => commands::stored(parts, *pending, result),
        Purpose::Other => {}
    }
}
