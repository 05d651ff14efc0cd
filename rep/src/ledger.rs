//! What a cell has reserved and what it runs. A state machine without clock, I/O or randomness; it decides what the
//! cell accepts, and what to launch, end and report.

mod actions;
mod attributes;
mod changes;
mod checks;
mod drain;
mod entry;
mod lifecycle;
mod room;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use placement::{Cell, Form, Kind};
use shared::wire::{
    Acceptance, CellStart, Instance, InstanceState, Instances, Refusal, RunningIds, Stop,
    StopAnswer, Stopped, Work, reason,
};
use shared::{AuctionId, Incarnation, InstanceId};

pub(crate) use self::actions::{RunningProcess, SUPERVISOR_LOST};
pub use self::{
    actions::{Action, CheckOf, EndReason, ExecutorOrder, ExecutorReport, InstanceChange, Limit},
    drain::Held,
    lifecycle::{HEALTHY_MS, RESTART_DELAYS_MS},
    room::check_work,
};
use self::{
    attributes::Blobs, changes::Changes, checks::Timer, drain::Drain, entry::Entry,
    room::request_of,
};
use crate::history::History;

/// How many of the most recently accepted ids an advertisement lists.
const RECENT: usize = 64;
/// For how long they are listed; after that no auctioneer waits for their starts any more.
const RECENT_MS: u64 = 60_000;

/// Returns, in words, what the machine lacks for an instance; none if nothing.
pub type Lacks<'a> = &'a dyn Fn(&Work) -> Option<String>;

/// One cell's reservations and instances.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// The cell as advertised; `available` and the counts are kept up to date.
    cell: Cell,
    incarnation: Incarnation,
    /// The address of instances with a port.
    address: String,
    seq: u64,
    instances: BTreeMap<InstanceId, Entry>,
    history: History,
    recent: VecDeque<Accepted>,
    changes: Changes,
    /// Instances that wait for a restart, with the time at which it is due.
    restarts: BTreeSet<(u64, InstanceId)>,
    /// What is due for instances with checks.
    timers: BTreeSet<(u64, InstanceId, Timer)>,
    drain: Drain,
    blobs: Blobs,
    actions: Vec<Action>,
    /// Whether instances without a command are refused.
    needs_run: bool,
    /// Whether instances that ask for no memory, or for no disk space, are refused.
    needs_size: [bool; 2],
}

/// An instance that was accepted.
#[derive(Clone, Debug)]
struct Accepted {
    at_ms: u64,
    /// The first version that includes it.
    seq: u64,
    instance: InstanceId,
}

impl Ledger {
    /// Creates an empty ledger for this cell: everything in `cell.total` is available.
    pub fn new(mut cell: Cell, incarnation: Incarnation, address: impl Into<String>) -> Self {
        cell.available = cell.total.clone();
        Self {
            blobs: Blobs::of(&cell),
            cell,
            incarnation,
            address: address.into(),
            seq: 1,
            instances: BTreeMap::new(),
            history: History::default(),
            recent: VecDeque::new(),
            changes: Changes::since(1),
            restarts: BTreeSet::new(),
            timers: BTreeSet::new(),
            drain: Drain::default(),
            actions: Vec::new(),
            needs_run: false,
            needs_size: [false; 2],
        }
    }

    /// Sets whether work without a command is refused: only a simulated executor can start it.
    pub fn needs_run(&mut self, needs_run: bool) {
        self.needs_run = needs_run;
    }

    /// Sets whether work that asks for no memory, or for no disk space, is refused: for cells where each instance must
    /// have a limit that it asked for.
    pub fn needs_size(&mut self, memory: bool, disk: bool) {
        self.needs_size = [memory, disk];
    }

    /// Reserves this work without checks, for what a simulated cell runs from the start.
    pub fn adopt(&mut self, work: impl Iterator<Item = Work>) {
        for work in work {
            // nobody sent it: no repeat is expected, and no claim is lower than nil
            self.accept(0, 0, &work, AuctionId::nil());
        }
        // nobody sent these, so there are no debits for them to settle
        self.recent.clear();
    }

    /// Returns the cell as it is now.
    pub fn cell(&self) -> &Cell {
        &self.cell
    }

    /// Returns the cell's version, which increases with every change of [`Ledger::cell`].
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns the rep's incarnation.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Returns the last 64 instance ids accepted within the last minute, oldest first.
    pub fn recent(&self, now_ms: u64) -> Vec<InstanceId> {
        let fresh = |accepted: &&Accepted| accepted.at_ms + RECENT_MS > now_ms;
        let recent = self.recent.iter().filter(fresh);
        recent.map(|accepted| accepted.instance).collect()
    }

    /// Returns how many instances hold a reservation.
    pub fn instance_count(&self) -> usize {
        self.instances.len()
    }

    /// Removes and returns the actions since the last call, in order.
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.actions)
    }

    /// Decides on each instance of a start: it is accepted and reserved, or refused with the reason. An instance that
    /// is already reserved is accepted again, without effect.
    pub fn start(&mut self, now_ms: u64, start: &CellStart) -> Acceptance {
        self.start_unless(now_ms, start, &|_| None)
    }

    /// Like [`Ledger::start`], but refuses new instances for which `lacks` returns a reason.
    pub fn start_unless(&mut self, now_ms: u64, start: &CellStart, lacks: Lacks<'_>) -> Acceptance {
        // `believed` counts what runs before each instance in the order of the message, so it does not include repeats
        // of reserved instances that come later. Per app, these are the repeats still to come in this message
        let mut to_come: BTreeMap<&str, u32> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for work in &start.work {
            if self.holds_lrp(&work.instance) && seen.insert(work.instance) {
                *to_come.entry(work.app.as_str()).or_insert(0) += 1;
            }
        }
        let mut accepted = Vec::new();
        let mut refused = Vec::new();
        for work in &start.work {
            if seen.remove(&work.instance)
                && let Some(count) = to_come.get_mut(work.app.as_str())
            {
                *count -= 1;
            }
            let later = to_come.get(work.app.as_str()).copied().unwrap_or(0);
            match self.judge(now_ms, start, work, (later, lacks)) {
                Ok(Judged::Repeat) => {
                    self.list_again(work.instance);
                    accepted.push(work.instance);
                }
                Ok(Judged::New) => {
                    self.accept(now_ms, start.expires_ms.as_ms(), work, start.auction);
                    accepted.push(work.instance);
                }
                Err(refusal) => refused.push(refusal),
            }
        }
        // the oldest: their senders have usually seen a newer advertisement
        let too_many = self.recent.len().saturating_sub(RECENT);
        self.recent.drain(..too_many);
        Acceptance {
            v: shared::VERSION,
            cell: self.cell.cell.clone(),
            incarnation: self.incarnation,
            seq: self.seq,
            available: self.cell.available.clone(),
            apps: start
                .work
                .iter()
                .map(|work| (work.app.clone(), self.cell.count_of(&work.app)))
                .collect(),
            accepted,
            refused,
        }
    }

    /// Stops matching instances, and remembers ids that have not arrived (yet).
    pub fn stop(&mut self, now_ms: u64, stop: &Stop) -> StopAnswer {
        let indices: BTreeSet<&u32> = stop.indices.iter().collect();
        let ids: BTreeSet<&InstanceId> = stop.instances.iter().collect();
        let found: Vec<Arc<Work>> = self
            .instances
            .values()
            .filter(|entry| {
                let work = &entry.work;
                work.app == stop.app
                    && (indices.is_empty() || indices.contains(&work.index))
                    && (ids.is_empty() || ids.contains(&work.instance))
                    && stop.claim.is_none_or(|claim| claim == entry.claim)
            })
            .map(|entry| Arc::clone(&entry.work))
            .collect();
        // in two steps, because ending an instance changes the map
        for work in &found {
            self.end(now_ms, &work.instance, stop.claim.is_some());
        }
        for id in &stop.instances {
            // stopping a duplicate must not block the start that wins
            if stop.claim.is_none() && !self.instances.contains_key(id) {
                self.history.stop_before_start(now_ms, *id);
            }
        }
        StopAnswer {
            v: shared::VERSION,
            cell: self.cell.cell.clone(),
            stopped: found
                .iter()
                .map(|work| Stopped {
                    instance: work.instance,
                    index: work.index,
                    cell: None,
                })
                .collect(),
        }
    }

    /// Does what is due: restarts and checks, the end of a drain, forgetting old entries.
    pub fn tick(&mut self, now_ms: u64) {
        self.history.forget(now_ms);
        // before the restarts: one that is due now must not outlive the drain
        self.tick_drain(now_ms);
        while let Some((at, id)) = self.restarts.first().copied()
            && at <= now_ms
        {
            self.restarts.pop_first();
            self.restart(now_ms, &id);
        }
        self.tick_checks(now_ms);
    }

    /// Returns when [`Ledger::tick`] must be called next.
    pub fn next_ms(&self) -> Option<u64> {
        let restart = self.restarts.first().map(|(at, _)| *at);
        let check = self.timers.first().map(|(at, ..)| *at);
        restart
            .into_iter()
            .chain(check)
            .chain(self.next_drain_ms())
            .min()
    }

    /// Returns current and recently ended instances that match the filter.
    pub fn find_instances(&self, now_ms: u64, filter: &Instances) -> Vec<Instance> {
        // filtered before they are described: a question about many ids goes to every cell, and most cells have none of
        // them
        let wanted = matches(filter);
        let entries = self.instances.iter();
        let current = entries
            .filter(|(id, entry)| wanted(id, &entry.work.app))
            .map(|(_, entry)| entry.describe(now_ms, &self.address));
        let ended = self.history.ended(now_ms);
        let ended = ended.filter(|(_, ended)| wanted(&ended.instance, &ended.app));
        let ended = ended.map(|(age_ms, ended)| Instance {
            age_ms,
            ..ended.clone()
        });
        current.chain(ended).collect()
    }

    /// Returns the ids of matching instances that have not ended and are not being stopped.
    pub fn running_ids(&self, filter: &Instances) -> RunningIds {
        let wanted = matches(filter);
        let running = self.instances.iter().filter(|(id, entry)| {
            entry.state != InstanceState::Stopping && wanted(id, &entry.work.app)
        });
        running.map(|(id, _)| id).collect()
    }

    /// Returns all instances that hold a reservation.
    pub fn current_instances(&self, now_ms: u64) -> Vec<Instance> {
        let entry = self.instances.values();
        entry
            .map(|entry| entry.describe(now_ms, &self.address))
            .collect()
    }

    /// Returns the main processes of running instances.
    pub(crate) fn processes(&self) -> Vec<RunningProcess> {
        let entries = self.instances.values();
        let running = entries.filter(|entry| entry.state == InstanceState::Running);
        let process = |entry: &Entry| {
            Some(RunningProcess {
                instance: entry.work.instance,
                attempt: entry.attempt,
                pid: entry.pid?,
            })
        };
        running.filter_map(process).collect()
    }

    fn holds_lrp(&self, id: &InstanceId) -> bool {
        let entry = self.instances.get(id);
        entry.is_some_and(|entry| entry.work.kind == Kind::Lrp)
    }

    fn judge(
        &mut self,
        now_ms: u64,
        start: &CellStart,
        work: &Work,
        (later, lacks): (u32, Lacks<'_>),
    ) -> Result<Judged, Refusal> {
        // known ids first: a repeat gets the first answer, whatever has happened to the cell since
        if let Some(judged) = self.judge_repeat(now_ms, start, work) {
            return judged;
        }
        let refuse = |reason: &str| refusal(work, reason);
        if start.incarnation != self.incarnation {
            // the auctioneer decided on the basis of what the earlier incarnation had free
            return Err(refuse(reason::RESTARTED));
        }
        // by then the auctioneer has taken its debit back: what is accepted later would not be counted by anybody
        if now_ms > start.expires_ms.as_ms() {
            return Err(refuse(reason::STALE));
        }
        // after the known ids: a repeat of an accepted start is accepted even while the cell drains
        if self.cell.evacuating {
            let why = if self.cell.cordoned {
                reason::CORDONED
            } else {
                reason::DRAINING
            };
            return Err(refuse(why));
        }
        let form = work.run.as_ref().map_or(Form::Command, |run| run.form());
        if !self.cell.runs(form) {
            return Err(refuse(match form {
                Form::Command => "the cell runs only droplets",
                Form::Droplet => "the cell runs no droplets",
                Form::Staging => "the cell stages no apps",
            }));
        }
        if self.needs_run && work.run.is_none() {
            return Err(refuse("nothing to run: the request has no run.command"));
        }
        if let Some(why) = lacks(work) {
            return Err(refuse(&why));
        }
        for (field, needed, asked_mb) in [
            ("memory_mb", self.needs_size[0], work.memory_mb),
            ("disk_mb", self.needs_size[1], work.disk_mb),
        ] {
            if needed && asked_mb == 0 {
                let text = format!("{field} is 0: this cell takes no instance without a limit");
                return Err(refuse(&text));
            }
        }
        // two auctioneers may have chosen this cell for copies of one app without knowing of each other's
        let here = self.cell.count_of(&work.app) - later;
        if work.kind == Kind::Lrp && work.believed.is_some_and(|believed| here > believed) {
            return Err(Refusal {
                needs: work.believed.map(i64::from),
                has: Some(i64::from(here)),
                ..refuse(reason::CHANGED)
            });
        }
        let request = request_of(work);
        let mut lacking = self.cell.available.lacks(&request);
        lacking.extend(self.cell.available.lacks_devices(&work.devices));
        let Some((_, needs, has)) = lacking.first() else {
            return Ok(Judged::New);
        };
        let names: Vec<&str> = lacking.iter().map(|(name, ..)| name.as_str()).collect();
        Err(Refusal {
            needs: Some(*needs),
            has: Some(*has),
            ..refuse(&format!("insufficient resources: {}", names.join(", ")))
        })
    }

    /// Decides on a start whose instance id is known; returns none if it is unknown.
    fn judge_repeat(
        &mut self,
        now_ms: u64,
        start: &CellStart,
        work: &Work,
    ) -> Option<Result<Judged, Refusal>> {
        if let Some(entry) = self.instances.get_mut(&work.instance) {
            // the lower of two claims counts, whichever arrived first
            entry.claim = entry.claim.min(work.claim.unwrap_or(start.auction));
            entry.expires_ms = entry.expires_ms.max(start.expires_ms.as_ms());
            return Some(Ok(Judged::Repeat));
        }
        if let Some(stopped) = self.history.stopped(now_ms, &work.instance) {
            self.history
                .extend(now_ms, work.instance, start.expires_ms.as_ms());
            // a stop that overtook its start: the start must not undo it
            if stopped {
                return Some(Err(refusal(work, reason::STOPPED)));
            }
            return Some(Ok(Judged::Repeat));
        }
        None
    }

    fn accept(&mut self, now_ms: u64, expires_ms: u64, work: &Work, auction: AuctionId) {
        let work = Arc::new(work.clone());
        // on acceptance, not when it runs: the next instance in the same message must not get the same room
        self.cell.debit(&request_of(&work), Some(&work.devices));
        self.work_changed(Arc::clone(&work));
        self.recent.push_back(Accepted {
            at_ms: now_ms,
            seq: self.seq,
            instance: work.instance,
        });
        self.actions.push(Action::Execute(ExecutorOrder::Launch {
            work: Arc::clone(&work),
            attempt: 0,
        }));
        let entry = Entry {
            state: InstanceState::Starting,
            since_ms: now_ms,
            attempt: 0,
            running_ms: None,
            strikes: 0,
            pid: None,
            port: None,
            usage: None,
            ended: None,
            exit_code: None,
            signal: None,
            expires_ms,
            claim: work.claim.unwrap_or(auction),
            checks: None,
            duplicate: false,
            began: false,
            work,
        };
        self.instances.insert(entry.work.instance, entry);
    }
}

fn refusal(work: &Work, reason: &str) -> Refusal {
    Refusal {
        instance: work.instance,
        reason: reason.into(),
        needs: None,
        has: None,
    }
}

/// The kinds of accepted instances.
enum Judged {
    /// The start is a repeat, without effect.
    Repeat,
    New,
}

#[cfg(test)]
mod tests;

/// Returns a predicate on the id and app of an instance: whether the filter asks for it.
fn matches(filter: &Instances) -> impl Fn(&InstanceId, &str) -> bool {
    let ids: BTreeSet<&InstanceId> = filter.ids.iter().collect();
    move |id, app| {
        filter.app.as_ref().is_none_or(|only| only == app)
            && (ids.is_empty() || ids.contains(id))
            && (filter.id_prefixes.is_empty() || filter.id_prefixes.match_id(id))
    }
}
