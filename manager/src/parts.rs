//! What the parts of the machine share.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use placement::{FastMap, random::SplitMix64};
use shared::{
    InstanceId,
    wire::{Event, Stop, WireError},
};

use crate::{
    apps::{Apps, Brake},
    cells::Places,
    clocks::{Clocks, Moment},
    counters::ManagerCounters,
    gone::Gone,
    grants::Grants,
    ids::{AppId, AppUid, BucketId, CellId, CommandKey, QuestionId, Revision, WriteId},
    instances::{Fleet, Managed},
    io::{AppAnswer, AppCommand, ManagerOutput},
    lease::Lease,
    moves::Moves,
    stored::{MetaRecord, StoredKey},
    tasks::Tasks,
};

/// How long cells have to answer a question.
pub(crate) const ASK_MS: u64 = 2_000;
/// Minimum time between two questions to all cells.
const ASK_PAUSE_MS: u64 = 1_000;
/// Delay after a change before what found no room is tried again.
const ROOM_MS: u64 = 1_000;
/// Number of questions whose time is remembered.
const QUESTIONS: usize = 64;

/// The settings of a manager.
#[derive(Clone, Debug)]
pub struct ManagerSettings {
    /// The name of this run of the manager in the lease; no other run may have the same.
    pub holder: String,
    /// The seed of new ids.
    pub seed: u64,
}

/// The bucket as the watch shows it.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// All values were shown.
    pub(crate) ready: bool,
    pub(crate) id: Option<BucketId>,
    pub(crate) meta_revision: Revision,
    /// The revision at which its id was deleted, if that was shown.
    pub(crate) meta_deleted: Option<Revision>,
    /// Whether its id was shown since the watch began.
    pub(crate) meta_shown: bool,
    /// The id that marks its last restore by an import.
    pub(crate) restored: Option<BucketId>,
    /// Whether the id is being stored, or was reported as missing.
    pub(crate) meta_busy: bool,
    /// The id is not stored before this time.
    pub(crate) meta_due_ms: u64,
    /// Values of apps that were shown before the apps themselves, as values come in the order of their revisions.
    pub(crate) early: BTreeMap<StoredKey, (Revision, Option<Bytes>)>,
    /// Deleted apps with the revision of the deletion, which a new record replaces.
    pub(crate) deleted: BTreeMap<Arc<str>, Revision>,
    /// Deleted apps of which a cell may still have instances.
    pub(crate) gone: Gone,
    /// The highest revision seen.
    pub(crate) highest: Revision,
    /// Keys whose values are of a newer format. Since the watch does not show that a value has expired, it is restarted
    /// now and then while there are any.
    pub(crate) newer: BTreeSet<String>,
    /// Whether there were any when the watch was interrupted.
    pub(crate) newer_before: bool,
}

impl Bucket {
    /// Returns whether everything in it is known and readable.
    pub(crate) fn is_known(&self) -> bool {
        self.ready && self.meta_shown && self.id.is_some() && self.newer.is_empty()
    }
}

/// What happens when a write has ended.
#[derive(Clone, Debug)]
pub(crate) enum Purpose {
    Lease,
    Meta(MetaRecord),
    State(AppId, AppUid),
    Rollout(AppId, AppUid),
    Command(Box<PendingCommand>),
    /// Nothing follows from it.
    Other,
}

/// A version for the history: creation, number, value.
pub(crate) type PastVersion = (AppUid, u32, Bytes);

/// A command that is not answered yet.
#[derive(Clone, Debug)]
pub(crate) struct PendingCommand {
    pub(crate) to: CommandKey,
    pub(crate) app: String,
    pub(crate) command: AppCommand,
    pub(crate) tries: u32,
    /// When it arrived.
    pub(crate) since_ms: u64,
    pub(crate) due_ms: u64,
    /// The answer if the write succeeds, and the entry for the history in that case.
    pub(crate) done: Option<(AppAnswer, Option<PastVersion>)>,
}

/// Everything that the parts of the machine work on.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) now_ms: u64,
    pub(crate) clocks: Clocks,
    pub(crate) lease: Lease,
    pub(crate) bucket: Bucket,
    pub(crate) apps: Apps,
    pub(crate) places: Places,
    pub(crate) fleet: Fleet,
    pub(crate) tasks: Tasks,
    pub(crate) moves: Moves,
    pub(crate) grants: Grants,
    pub(crate) random: SplitMix64,
    pub(crate) writes: FastMap<WriteId, Purpose>,
    pub(crate) commands: Vec<PendingCommand>,
    /// Waves to look at, ordered by time.
    pub(crate) waves: BTreeSet<(u64, AppId, u32)>,
    /// Number of indices in open waves.
    pub(crate) outstanding: usize,
    /// Apps with indices that wait for room.
    pub(crate) no_room: BTreeSet<AppId>,
    /// When they are tried again because there is more room.
    pub(crate) room_ms: u64,
    pub(crate) brake: Brake,
    /// The settling period, and when it began.
    pub(crate) period: u32,
    pub(crate) settling: Option<Moment>,
    pub(crate) counters: ManagerCounters,
    pub(crate) out: Vec<ManagerOutput>,
    /// When the leases of cells are next looked at.
    pub(crate) next_look_ms: u64,
    asked: Vec<(QuestionId, u64)>,
    ask_ms: Option<u64>,
    last_id: u64,
}

impl Parts {
    pub(crate) fn new(settings: ManagerSettings) -> Self {
        Self {
            now_ms: 0,
            clocks: Clocks::default(),
            lease: Lease::new(settings.holder),
            bucket: Bucket::default(),
            apps: Apps::default(),
            places: Places::default(),
            fleet: Fleet::default(),
            tasks: Tasks::default(),
            moves: Moves::default(),
            grants: Grants::default(),
            random: SplitMix64::new(settings.seed),
            writes: FastMap::default(),
            commands: Vec::new(),
            waves: BTreeSet::new(),
            outstanding: 0,
            no_room: BTreeSet::new(),
            room_ms: u64::MAX,
            next_look_ms: 0,
            brake: Brake::default(),
            period: 1,
            settling: Some(Moment::default()),
            counters: ManagerCounters::default(),
            out: Vec::new(),
            asked: Vec::new(),
            ask_ms: None,
            last_id: 0,
        }
    }

    /// Returns whether anything may be started or stopped: the lease is fresh, messages flow, and the bucket is known.
    pub(crate) fn may_act(&self) -> bool {
        self.lease.is_fresh(self.now_ms)
            && self.clocks.is_heard(self.now_ms)
            && self.bucket.is_known()
    }

    /// Begins settling: instances that are not heard may still run, so nothing is concluded from silence for one ttl.
    pub(crate) fn settle(&mut self) {
        self.period += 1;
        self.tasks.settle(self.now_ms);
        self.settling = Some(self.clocks.moment());
        self.places.begin_again(self.clocks.moment());
        self.ask();
    }

    pub(crate) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Stores a value.
    pub(crate) fn write(
        &mut self,
        purpose: Purpose,
        key: StoredKey,
        value: Option<Bytes>,
        expected: Option<Revision>,
    ) -> WriteId {
        let write = WriteId(self.next_id());
        self.writes.insert(write, purpose);
        self.out.push(ManagerOutput::Write {
            write,
            key,
            value,
            expected,
        });
        write
    }

    /// Schedules a question to the cells for their instances.
    pub(crate) fn ask(&mut self) {
        let last = self.asked.last().map_or(0, |(_, at)| at + ASK_PAUSE_MS);
        self.ask_ms.get_or_insert(last.max(self.now_ms));
    }

    /// Returns when the cells are next asked.
    pub(crate) fn next_ask_ms(&self) -> u64 {
        self.ask_ms.unwrap_or(u64::MAX)
    }

    /// Asks the cells if that is due.
    pub(crate) fn send_question(&mut self) {
        if self.next_ask_ms() > self.now_ms {
            return;
        }
        self.ask_ms = None;
        let question = QuestionId(self.next_id());
        if self.asked.len() >= QUESTIONS {
            self.asked.remove(0);
        }
        self.asked.push((question, self.now_ms));
        self.out.push(ManagerOutput::Ask { question });
    }

    /// Returns when a question was asked.
    pub(crate) fn asked_ms(&self, question: QuestionId) -> Option<u64> {
        let found = self.asked.iter().find(|(id, _)| *id == question);
        found.map(|(_, at)| *at)
    }

    pub(crate) fn tell(&mut self, event: Event) {
        self.out.push(ManagerOutput::Event(Box::new(event)));
    }

    /// Publishes an event about an app.
    pub(crate) fn tell_app(&mut self, kind: &str, app: &str, index: Option<u32>, why: String) {
        let mut event = Event::app(kind, app);
        event.indices = index.map(|index| index.to_string());
        event.count = usize::from(index.is_some());
        event.reason = Some(why);
        self.tell(event);
    }

    pub(crate) fn reply(&mut self, to: CommandKey, answer: Result<AppAnswer, WireError>) {
        self.out.push(ManagerOutput::Reply { to, answer });
    }

    /// Notes that there may be more room than before.
    pub(crate) fn room(&mut self) {
        self.tasks.room(self.now_ms);
        if !self.no_room.is_empty() {
            self.room_ms = self.room_ms.min(self.now_ms + ROOM_MS);
        }
    }

    /// Sends stops, one message for each cell and app.
    pub(crate) fn stop(&mut self, app: &Arc<str>, stops: &[(CellId, InstanceId)]) {
        let mut by_cell: std::collections::BTreeMap<CellId, Vec<InstanceId>> = Default::default();
        for (cell, id) in stops {
            if let Some(instance) = self.fleet.get_mut(id) {
                instance.stop_ms = self.now_ms.max(1);
            }
            by_cell.entry(*cell).or_default().push(*id);
        }
        for (cell, instances) in by_cell {
            self.counters.stopped += instances.len() as u64;
            for some in instances.chunks(MAX_STOPS) {
                let stop = Stop {
                    v: shared::VERSION,
                    app: app.to_string(),
                    indices: Vec::new(),
                    instances: some.to_vec(),
                    claim: None,
                };
                let cell = Arc::clone(&self.places.get(cell).name);
                self.out.push(ManagerOutput::Stop { cell, stop });
            }
        }
    }

    /// Adds an instance of a known app.
    pub(crate) fn enter(&mut self, id: InstanceId, instance: Managed) {
        if let Some(app) = self.apps.get_mut(instance.app) {
            if instance.uid == app.record.uid {
                app.slot_mut(instance.index).held.push(id);
                app.wave = app.wave.max(instance.wave);
            } else {
                app.leftovers.push(id);
            }
        }
        if let Some(cell) = instance.cell {
            self.places.get_mut(cell).instances.insert(id);
        }
        self.apps.touch(instance.app);
        self.fleet.insert(id, instance);
    }

    /// Records that a message of a cell arrived. Returns none if there are too many cells.
    pub(crate) fn hear(&mut self, cell: &str) -> Option<CellId> {
        let now = self.clocks.moment();
        let Some(id) = self.places.find(cell, now) else {
            self.counters.dropped_cells += 1;
            return None;
        };
        if self.places.heard(id, now) {
            // what it still runs determines what happens to the replacements
            self.ask();
            self.room();
        }
        Some(id)
    }

    /// Records that an auctioneer has sent something to a cell. A cell that is here stays so only by its own messages.
    pub(crate) fn hear_of(&mut self, cell: &str) -> Option<CellId> {
        if self.places.is_here(cell) {
            return self.places.find(cell, self.clocks.moment());
        }
        self.hear(cell)
    }

    /// Records on which cell an instance is.
    pub(crate) fn put_on(&mut self, id: InstanceId, cell: CellId) {
        let Some(instance) = self.fleet.get_mut(&id) else {
            return;
        };
        let before = instance.cell.replace(cell);
        if before == Some(cell) {
            return;
        }
        if let Some(before) = before {
            self.places.get_mut(before).instances.remove(&id);
        }
        self.places.get_mut(cell).instances.insert(id);
    }

    /// Removes an instance that is gone.
    pub(crate) fn leave(&mut self, id: &InstanceId) -> Option<Managed> {
        let instance = self.fleet.remove(id)?;
        if let Some(cell) = instance.cell {
            self.places.get_mut(cell).instances.remove(id);
        }
        let period = self.period;
        if let Some(app) = self.apps.get_mut(instance.app) {
            if instance.uid == app.record.uid {
                let slot = app.slot_mut(instance.index);
                slot.held.retain(|held| held != id);
                slot.free_in = period;
            } else {
                app.leftovers.retain(|held| held != id);
            }
        }
        self.apps.touch(instance.app);
        Some(instance)
    }
}

/// Maximum number of instances in one stop, at about 40 bytes each.
const MAX_STOPS: usize = 10_000;
