//! The link between managers and the bucket, and its faults.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use manager::{AppRecord, Revision, TaskEnd, TaskRecord, WriteResult, read_stored};

use shared::wire::AppStatus;

use super::{Arrival, Arrived, Happening, World};
use crate::{
    bucket::{Bucket, StateAnswer, StateRequest, StateWrite, TASKS},
    check::{manager::ManagerNode, script::BucketFault},
};

/// The longest time until a manager notices that its watch has missed something.
const NOTICED_MS: u64 = 5_000;

/// The connection of a manager to the bucket.
#[derive(Debug, Default)]
pub(in crate::check) struct StateLink {
    /// Number of faults that keep it down.
    pub(super) cut: u32,
    pub(super) watch: Option<u64>,
    /// Whether the watch shows nothing more.
    ended: bool,
    /// Whether the watch has missed something, which the manager will notice.
    gap: bool,
    /// Whether the watch is read from a server that is behind.
    behind: bool,
    up_us: u64,
    ended_us: u64,
    shown_us: u64,
}

/// A key, its revision and its value.
type Value = (String, Revision, Option<Bytes>);

/// The bucket, its known past, and its faults.
#[derive(Debug, Default)]
pub(in crate::check) struct State {
    pub(super) bucket: Bucket,
    down: u32,
    loses_answers: u32,
    watch_slow_us: u64,
    /// Writes that are stored, without an answer, when the bucket is back.
    late: Vec<StateWrite>,
    /// Failovers in progress, and the content of a server that is behind.
    fails_over: u32,
    behind: Vec<Value>,
    /// Whether it was purged without anybody having noticed yet.
    purged: bool,
    /// The desired states, and since when.
    pub(super) wanted: Vec<Wanted>,
    /// How stored requests ended, as first stored.
    pub(super) ends: BTreeMap<String, TaskEnd>,
}

/// The desired state from a moment on.
#[derive(Debug)]
pub(in crate::check) struct Wanted {
    pub(in crate::check) at_ms: u64,
    pub(in crate::check) flow_ms: u64,
    pub(in crate::check) apps: Vec<AppRecord>,
}

impl World<'_> {
    /// Sends a request of a manager to the bucket.
    pub(super) fn ask_state(&mut self, n: usize, request: StateRequest) {
        let travel_us = 100 + self.random.below(400);
        let place = &mut self.places[n];
        if place.link.cut > 0 {
            return;
        }
        let link = &mut place.link;
        link.up_us = link.up_us.max(self.now_us + travel_us + place.slow_us);
        let asked = Happening::AsksState(n, place.life, Box::new(request));
        self.queue.add(link.up_us, asked);
    }

    /// Handles a manager's request that reaches the bucket.
    pub(super) fn state_asked(&mut self, n: usize, life: u32, request: StateRequest) {
        if self.state.down > 0 {
            if let StateRequest::Write(write) = request
                && self.random.below(4) == 0
            {
                self.state.late.push(write);
            }
            return;
        }
        let of_this_life = self.places[n].life == life && self.places[n].alive;
        match request {
            StateRequest::Write(write) => {
                let result = self.store(&write);
                let write = write.write;
                let lost = self.state.loses_answers > 0 && self.random.below(2) == 0;
                if of_this_life && !lost {
                    self.tell_state(n, StateAnswer::Ended { write, result });
                }
            }
            StateRequest::Watch(watch) if of_this_life => {
                let behind = self.state.fails_over > 0;
                let link = &mut self.places[n].link;
                (link.watch, link.ended, link.gap) = (Some(watch), false, false);
                link.behind = behind;
                self.noticed_purge();
                let values = if behind {
                    self.state.behind.clone()
                } else {
                    self.state.bucket.values()
                };
                self.show(n, watch, values);
                let revision = self.state.bucket.revision();
                self.tell_state(n, StateAnswer::Ready { watch, revision });
            }
            StateRequest::Look(watch) if of_this_life => {
                let seen = self.state.bucket.look(watch);
                self.tell_state(n, seen);
            }
            StateRequest::Watch(_) | StateRequest::Look(_) => {}
        }
    }

    fn show(&mut self, n: usize, watch: u64, values: Vec<Value>) {
        for (key, revision, value) in values {
            let shown = StateAnswer::Shown {
                watch,
                key,
                revision,
                value,
            };
            self.tell_state(n, shown);
        }
    }

    /// Records that a manager is shown that the bucket was purged.
    fn noticed_purge(&mut self) {
        if std::mem::take(&mut self.state.purged) {
            self.note_wanted();
        }
    }

    /// Lets the server that is behind catch up, or discards its content if that is obsolete.
    fn caught_up(&mut self, shows: bool) {
        let behind = std::mem::take(&mut self.state.behind);
        let rest = || self.state.bucket.values().into_iter();
        let rest: Vec<Value> = rest().filter(|value| !behind.contains(value)).collect();
        for n in 0..self.places.len() {
            let link = &mut self.places[n].link;
            if !std::mem::take(&mut link.behind) || !shows {
                continue;
            }
            if let Some(watch) = link.watch.filter(|_| !link.ended) {
                self.show(n, watch, rest.clone());
            }
        }
    }

    fn store(&mut self, write: &StateWrite) -> WriteResult {
        let result = self.state.bucket.write(write);
        if let WriteResult::Written(revision) = result {
            for n in 0..self.places.len() {
                let link = &self.places[n].link;
                let Some(watch) = link.watch.filter(|_| !link.ended && !link.behind) else {
                    continue;
                };
                let (key, value) = (write.key.clone(), write.value.clone());
                let shown = StateAnswer::Shown {
                    watch,
                    key,
                    revision,
                    value,
                };
                self.tell_state(n, shown);
            }
            if write.key.starts_with("app.") {
                self.note_wanted();
            }
            self.note_end(write);
        }
        result
    }

    /// Returns when a manager last started, stopped or stored something.
    pub(in crate::check) fn worked_ms(&self) -> u64 {
        self.worked.values().copied().max().unwrap_or(0)
    }

    /// Returns the apps for which `so` holds according to a manager: their names, and the uids of all their creations.
    pub(in crate::check) fn apps_that(&self, so: impl Fn(&AppStatus) -> bool) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for machine in self.all::<ManagerNode>().filter_map(ManagerNode::machine) {
            for app in machine.apps() {
                let status = machine.status(app).filter(&so);
                let Some(record) = status.and_then(|_| machine.record(app)) else {
                    continue;
                };
                names.insert(app.to_owned());
                names.extend(record.former.iter().map(ToString::to_string));
                names.insert(record.uid.to_string());
            }
        }
        names
    }

    /// Records the end of a stored request if the write contains one.
    fn note_end(&mut self, write: &StateWrite) {
        let (Some(id), Some(value)) = (write.key.strip_prefix(TASKS), &write.value) else {
            return;
        };
        let record: Option<TaskRecord> = read_stored(value).ok();
        if let Some(end) = record.and_then(|record| record.end) {
            self.state.ends.entry(id.to_owned()).or_insert(end);
        }
    }

    /// Records that the desired state has changed.
    fn note_wanted(&mut self) {
        let mut apps = self.state.bucket.apps();
        // apps removed by a purge are wanted until a manager can know of it
        let last = self.state.wanted.last().filter(|_| self.state.purged);
        let names: Vec<String> = apps.iter().map(|a| a.definition.app().to_owned()).collect();
        let gone = last.into_iter().flat_map(|last| &last.apps);
        let gone = gone.filter(|app| !names.iter().any(|name| name == app.definition.app()));
        apps.extend(gone.cloned().collect::<Vec<_>>());
        self.state.wanted.push(Wanted {
            at_ms: self.now_us / 1_000,
            flow_ms: self.flow_ms(),
            apps,
        });
    }

    /// Sends a message of the bucket to a manager.
    fn tell_state(&mut self, n: usize, answer: StateAnswer) {
        if self.meddle_state.is_some_and(|meddle| !meddle(&answer)) {
            return;
        }
        let travel_us = 100 + self.random.below(400);
        let place = &mut self.places[n];
        let of_watch = answer.watch().is_some();
        if place.link.cut > 0 {
            place.link.gap |= of_watch;
            return;
        }
        let mut at_us = self.now_us + travel_us + place.slow_us;
        let link = &mut place.link;
        if of_watch {
            at_us = link.shown_us.max(at_us + self.state.watch_slow_us);
            link.shown_us = at_us;
        } else {
            at_us = link.ended_us.max(at_us);
            link.ended_us = at_us;
        }
        let arrival = Arrival {
            to: n,
            life: place.life,
            what: Arrived::State(answer),
        };
        self.queue.add(at_us, Happening::Arrives(Box::new(arrival)));
    }

    /// Handles a message of the bucket that did not arrive because the manager has no connection.
    pub(super) fn state_unheard(&mut self, n: usize, answer: &StateAnswer) {
        self.places[n].link.gap |= answer.watch().is_some();
    }

    /// Handles that a manager has a connection to the bucket again.
    pub(super) fn link_mended(&mut self, n: usize) {
        let link = &mut self.places[n].link;
        if std::mem::take(&mut link.gap) {
            self.break_watch(n, NOTICED_MS);
        }
    }

    /// Ends a manager's watch, which it notices within this time.
    fn break_watch(&mut self, n: usize, within_ms: u64) {
        let at_us = self.now_us + self.random.below(within_ms * 1_000 + 1);
        let place = &mut self.places[n];
        let Some(watch) = place.link.watch else {
            return;
        };
        place.link.ended = true;
        let arrival = Arrival {
            to: n,
            life: place.life,
            what: Arrived::State(StateAnswer::Broken { watch }),
        };
        let at_us = at_us.max(place.link.shown_us);
        self.queue.add(at_us, Happening::Arrives(Box::new(arrival)));
    }

    fn break_watches(&mut self, within_ms: u64) {
        for n in 0..self.places.len() {
            self.break_watch(n, within_ms);
        }
    }

    /// Begins a fault of the bucket.
    pub(super) fn bucket_fails(&mut self, fault: BucketFault) {
        match fault {
            BucketFault::Down => self.state.down += 1,
            BucketFault::LosesAnswers => self.state.loses_answers += 1,
            BucketFault::SlowWatch { by_ms } => self.state.watch_slow_us += by_ms * 1_000,
            BucketFault::WatchesEnd => self.break_watches(1_000),
            BucketFault::Recreated { with_lease } => {
                self.state.bucket.recreate(with_lease);
                self.replaced();
                self.break_watches(1_000);
            }
            BucketFault::Emptied => self.delete_keys(""),
            BucketFault::StateDeleted => self.delete_keys("state."),
            BucketFault::Purged { with_lease } => {
                self.state.bucket.purge(with_lease);
                self.state.purged = true;
                self.state.behind.clear();
            }
            BucketFault::FailsOver => {
                if self.state.fails_over == 0 {
                    self.state.behind = self.state.bucket.values();
                }
                self.state.fails_over += 1;
                self.break_watches(NOTICED_MS);
            }
            BucketFault::Copied => self.state.bucket.save(),
            BucketFault::Restored => {
                self.state.bucket.restore();
                self.replaced();
                self.break_watches(1_000);
            }
        }
    }

    /// Handles that the bucket was replaced: no server is behind any more.
    fn replaced(&mut self) {
        self.state.behind = self.state.bucket.values();
        self.caught_up(false);
        self.state.purged = false;
        self.note_wanted();
    }

    pub(super) fn bucket_mended(&mut self, fault: BucketFault) {
        match fault {
            BucketFault::Down => {
                self.state.down -= 1;
                if self.state.down == 0 {
                    for write in std::mem::take(&mut self.state.late) {
                        self.store(&write);
                    }
                    if self.random.below(2) == 0 {
                        self.break_watches(NOTICED_MS);
                    }
                }
            }
            BucketFault::LosesAnswers => self.state.loses_answers -= 1,
            BucketFault::SlowWatch { by_ms } => self.state.watch_slow_us -= by_ms * 1_000,
            BucketFault::FailsOver => {
                self.state.fails_over -= 1;
                if self.state.fails_over == 0 {
                    self.caught_up(true);
                }
            }
            _ => {}
        }
    }

    /// Deletes keys one by one.
    fn delete_keys(&mut self, prefix: &str) {
        for key in self.state.bucket.keys(prefix) {
            self.store(&StateWrite {
                write: manager::WriteId(0),
                key,
                value: None,
                expected: None,
            });
        }
    }
}
