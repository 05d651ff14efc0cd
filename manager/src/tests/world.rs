//! A world around one manager: a bucket, cells, and time that passes while messages arrive.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use placement::Request;
use shared::{
    InstanceId,
    wire::{Event, InstanceState, format_indices, kind},
};

use crate::{
    AppAnswer, AppCommand, AppDefinition, CommandKey, GrantReply, Manager, ManagerInput,
    ManagerOutput, ManagerSettings, MoveAnswer, QuestionId, Revision, StoredKey, TaskInput,
    TaskOutput, WaveId, WriteId, WriteResult,
};

/// The ttl of every cell, in milliseconds.
pub(super) const TTL: u64 = 15_000;

/// What was asked of the world and has not been looked at yet.
#[derive(Debug, Default)]
pub(super) struct Sent {
    pub(super) starts: Vec<Request>,
    pub(super) stops: Vec<(String, Vec<InstanceId>)>,
    pub(super) events: Vec<Event>,
    pub(super) questions: Vec<QuestionId>,
    pub(super) replies: Vec<Result<AppAnswer, shared::wire::WireError>>,
    pub(super) moved: Vec<Result<MoveAnswer, shared::wire::WireError>>,
    pub(super) granted: Vec<Option<GrantReply>>,
}

#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) request: String,
    pub(super) index: u32,
    pub(super) state: InstanceState,
    pub(super) since_ms: u64,
    pub(super) restarts: u32,
}

#[derive(Debug)]
pub(super) struct SimCell {
    pub(super) incarnation: u128,
    pub(super) seq: u64,
    pub(super) silent: bool,
    pub(super) draining: bool,
    pub(super) leaving: bool,
    pub(super) held: BTreeMap<InstanceId, Held>,
    /// Those of them that are not ready.
    pub(super) unready: BTreeSet<InstanceId>,
}

#[derive(Debug)]
pub(super) struct World {
    pub(super) manager: Manager,
    pub(super) now: u64,
    pub(super) revision: u64,
    pub(super) values: BTreeMap<String, (u64, Bytes)>,
    pub(super) cells: BTreeMap<String, SimCell>,
    pub(super) sent: Sent,
    /// Whether writes are kept instead of answered, except for those of the lease.
    pub(super) hold_writes: bool,
    pub(super) held_writes: VecDeque<(WriteId, StoredKey, Option<Bytes>, Option<Revision>)>,
    /// Whether renewals of the lease are not answered.
    pub(super) lease_down: bool,
    /// Whether there are no echoes and no messages of cells.
    pub(super) deaf: bool,
    /// Whether starts and stops are carried out at once.
    pub(super) obey: bool,
    /// With `obey`: whether there is no room.
    pub(super) full: bool,
    next_command: u64,
    /// Revisions at which keys were deleted.
    pub(super) deleted: BTreeMap<String, u64>,
    depth: u32,
}

impl World {
    /// Creates an empty bucket, four cells, and a manager that acts and has settled.
    pub(super) fn new() -> Self {
        let mut world = Self::with_values(BTreeMap::new());
        world.pass(2 * TTL);
        world.sent = Sent::default();
        world
    }

    /// Creates a manager that has just gained the lease over this bucket.
    pub(super) fn with_values(values: BTreeMap<String, (u64, Bytes)>) -> Self {
        let cells = ["c1", "c2", "c3", "c4"];
        let mut world = Self::bare(values, &cells);
        world.show_all();
        world
    }

    pub(super) fn bare(values: BTreeMap<String, (u64, Bytes)>, cells: &[&str]) -> Self {
        let settings = ManagerSettings {
            holder: "m-1".into(),
            seed: 7,
        };
        let cell = |(n, name): (usize, &&str)| {
            let cell = SimCell {
                incarnation: 1_000 + n as u128,
                seq: 1,
                silent: false,
                draining: false,
                leaving: false,
                held: BTreeMap::new(),
                unready: BTreeSet::new(),
            };
            ((*name).to_owned(), cell)
        };
        let revision = values.values().map(|(revision, _)| *revision).max();
        Self {
            manager: Manager::new(settings),
            now: 1_000,
            revision: revision.unwrap_or(0),
            values,
            cells: cells.iter().enumerate().map(cell).collect(),
            sent: Sent::default(),
            hold_writes: false,
            held_writes: VecDeque::new(),
            lease_down: false,
            deaf: false,
            obey: false,
            full: false,
            next_command: 0,
            deleted: BTreeMap::new(),
            depth: 0,
        }
    }

    /// Keeps bucket and cells, and starts another manager.
    pub(super) fn next_manager(&mut self) {
        let settings = ManagerSettings {
            holder: "m-2".into(),
            // so that it does not draw the ids of the one before
            seed: self.now,
        };
        self.manager = Manager::new(settings);
        self.values.remove("lease");
        self.deleted.remove("lease");
        self.sent = Sent::default();
        self.held_writes.clear();
        self.show_all();
    }

    /// Has the watch show everything, oldest first.
    pub(super) fn show_all(&mut self) {
        let there = self.values.clone().into_iter();
        let there = there.map(|(key, (revision, value))| (revision, key, Some(value)));
        let deleted = self.deleted.clone().into_iter();
        let deleted = deleted.map(|(key, revision)| (revision, key, None));
        let gone = deleted.filter(|(_, key, _)| !self.values.contains_key(key));
        let mut all: Vec<(u64, String, Option<Bytes>)> = there.chain(gone).collect();
        all.sort_unstable();
        for (revision, key, value) in all {
            self.give(ManagerInput::Kv {
                key,
                revision: Revision(revision),
                value,
            });
        }
        let revision = Revision(self.revision);
        self.give(ManagerInput::KvReady { revision });
        self.heartbeats();
    }

    pub(super) fn give(&mut self, input: ManagerInput) {
        self.depth += 1;
        let text = if self.depth > 190 {
            format!("{input:?}")
        } else {
            String::new()
        };
        let out = self.manager.handle(self.now, input);
        assert!(self.depth < 200, "no end without time: {text} {out:?}");
        self.carry_out(out);
        self.depth -= 1;
    }

    fn carry_out(&mut self, out: Vec<ManagerOutput>) {
        for output in out {
            match output {
                ManagerOutput::Write {
                    write,
                    key,
                    value,
                    expected,
                } => self.write(write, key, value, expected),
                ManagerOutput::Start(request) => {
                    let request = Request::clone(&request);
                    self.sent.starts.push(request.clone());
                    if self.obey {
                        self.start_somewhere(&request);
                    }
                }
                ManagerOutput::Stop { cell, stop } => {
                    let cell = cell.to_string();
                    assert!(stop.indices.is_empty() && !stop.instances.is_empty());
                    self.sent.stops.push((cell.clone(), stop.instances.clone()));
                    if self.obey {
                        for id in stop.instances {
                            self.end(&cell, id, kind::STOPPED, 0);
                        }
                    }
                }
                ManagerOutput::Ask { question } => {
                    self.sent.questions.push(question);
                    if !self.deaf {
                        for cell in self.heard_cells() {
                            self.list(&cell, Some(question));
                        }
                    }
                }
                ManagerOutput::Event(event) => self.sent.events.push(*event),
                ManagerOutput::Reply { answer, .. } => self.sent.replies.push(answer),
                ManagerOutput::Moved { answer, .. } => self.sent.moved.push(answer),
                ManagerOutput::Granted { reply, .. } => self.sent.granted.push(reply),
                ManagerOutput::Task(output) => self.store_task(&output),
            }
        }
    }

    /// Acknowledges a write of a stored request.
    fn store_task(&mut self, output: &TaskOutput) {
        let TaskOutput::Write { write, .. } = *output else {
            panic!("nobody has asked for a task: {output:?}");
        };
        self.revision += 1;
        let result = WriteResult::Written(Revision(self.revision));
        let written = TaskInput::Written { write, result };
        self.give(ManagerInput::Task(written));
    }

    fn write(
        &mut self,
        id: WriteId,
        key: StoredKey,
        value: Option<Bytes>,
        expected: Option<Revision>,
    ) {
        if key == StoredKey::Lease {
            if self.lease_down {
                let result = WriteResult::Failed;
                self.give(ManagerInput::WriteEnded { write: id, result });
            } else {
                self.finish((id, key, value, expected));
            }
        } else if self.hold_writes {
            self.held_writes.push_back((id, key, value, expected));
        } else {
            self.finish((id, key, value, expected));
        }
    }

    /// Stores a value, shows it, and acknowledges it.
    pub(super) fn finish(
        &mut self,
        (write, key, value, expected): (WriteId, StoredKey, Option<Bytes>, Option<Revision>),
    ) {
        let key = key.to_string();
        assert_eq!(key.parse::<StoredKey>().unwrap().to_string(), key);
        let present = self.values.get(&key).map(|(revision, _)| *revision);
        let present = present.or_else(|| self.deleted.get(&key).copied());
        let present = present.unwrap_or(0);
        let result = if expected.is_some_and(|expected| expected != Revision(present)) {
            WriteResult::Conflict
        } else {
            self.store(&key, value);
            WriteResult::Written(Revision(self.revision))
        };
        self.give(ManagerInput::WriteEnded { write, result });
    }

    /// Answers the oldest held write.
    pub(super) fn acknowledge(&mut self) -> String {
        let write = self.held_writes.pop_front().expect("a held write");
        let key = write.1.to_string();
        self.finish(write);
        key
    }

    /// Has somebody store a value.
    pub(super) fn store(&mut self, key: &str, value: Option<Bytes>) {
        self.revision += 1;
        let revision = self.revision;
        if let Some(value) = &value {
            let value = (revision, value.clone());
            self.values.insert(key.to_owned(), value);
        } else {
            self.values.remove(key);
            self.deleted.insert(key.to_owned(), revision);
        }
        let key = key.to_owned();
        self.give(ManagerInput::Kv {
            key,
            revision: Revision(revision),
            value,
        });
    }

    /// Returns the stored state of the only app.
    pub(super) fn stored<T: serde::de::DeserializeOwned>(&self, prefix: &str) -> T {
        let mut all = self.values.iter();
        let (_, (_, value)) = all.find(|(key, _)| key.starts_with(prefix)).unwrap();
        serde_json::from_slice(value).unwrap()
    }

    /// Lets time pass, with echoes, advertisements and heartbeats.
    pub(super) fn pass(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            let step = 100 - self.now % 100;
            self.now = (self.now + step).min(end);
            if self.deaf {
                self.give(ManagerInput::Tick);
                continue;
            }
            self.give(ManagerInput::Echo);
            if self.now.is_multiple_of(5_000) {
                for cell in self.heard_cells() {
                    self.advertise(&cell);
                }
            }
            if self.now.is_multiple_of(10_000) {
                self.heartbeats();
            }
        }
    }

    pub(super) fn heard_cells(&self) -> Vec<String> {
        let heard = self.cells.iter().filter(|(_, cell)| !cell.silent);
        heard.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn heartbeats(&mut self) {
        for cell in self.heard_cells() {
            self.advertise(&cell);
            self.list(&cell, None);
        }
    }

    pub(super) fn command(&mut self, command: AppCommand) {
        self.command_to("A", command);
    }

    pub(super) fn command_to(&mut self, app: &str, command: AppCommand) {
        self.next_command += 1;
        let to = CommandKey(self.next_command);
        let app = app.to_owned();
        self.give(ManagerInput::Command { to, app, command });
    }

    pub(super) fn put(&mut self, definition: &AppDefinition) {
        self.command(AppCommand::Put(Box::new(definition.clone())));
    }

    /// Returns the starts since the last call, without repeats: id without bucket and uid, and indices.
    pub(super) fn starts(&mut self) -> Vec<(String, String)> {
        let mut starts = std::mem::take(&mut self.sent.starts);
        let mut known: Vec<Request> = Vec::new();
        starts.retain(|start| {
            let before = known.iter().find(|known| known.id == start.id);
            // a repeat is the same, word for word
            assert!(before.is_none_or(|before| before == start));
            let is_new = before.is_none();
            known.push(start.clone());
            is_new
        });
        let one = |request: Request| {
            let id = WaveId::parse(&request.id).expect("the id of a wave");
            let indices = format_indices(request.indices.unwrap());
            (format!("{}-{}", id.version, id.wave), indices)
        };
        starts.into_iter().map(one).collect()
    }

    /// Returns the full id of a wave of the app.
    pub(super) fn id(&self, version_and_wave: &str) -> String {
        let uid = self.manager.status("A").unwrap().uid;
        let meta: crate::MetaRecord = self.stored("meta");
        format!("m-{}-{uid}-{version_and_wave}", meta.bucket)
    }

    /// Returns the ids stopped since the last call, in order and without repeats.
    pub(super) fn stops(&mut self) -> Vec<InstanceId> {
        let stops = std::mem::take(&mut self.sent.stops);
        let ids = stops.into_iter().flat_map(|(cell, ids)| {
            for id in &ids {
                // by id, on the cell that has it
                assert!(self.obey || self.cells[&cell].held.contains_key(id));
            }
            ids
        });
        let mut seen = BTreeSet::new();
        ids.filter(|id| seen.insert(*id)).collect()
    }

    /// Returns the kinds of the events since the last call.
    pub(super) fn events(&mut self) -> Vec<String> {
        let events = std::mem::take(&mut self.sent.events);
        events.into_iter().map(|event| event.kind).collect()
    }
}

/// Returns a definition of an app with this many instances.
pub(super) fn app(name: &str, instances: u32, more: &str) -> AppDefinition {
    let json = format!(
        r#"{{"app":"{name}","instances":{instances},"memory_mb":16,"disk_mb":16,"run":{{"command":["true"]}}{more}}}"#
    );
    AppDefinition::read(json.as_bytes()).unwrap()
}

/// Creates a world in which app A runs three instances: index 0 on c1, 1 on c2, 2 on c3.
pub(super) fn three() -> World {
    with_rules("")
}

/// Like [`three`], with more rules.
pub(super) fn with_rules(more: &str) -> World {
    let mut world = World::new();
    world.put(&app("A", 3, more));
    let id = world.id("1-1");
    world.runs(&id, &[(0, "c1"), (1, "c2"), (2, "c3")]);
    world.pass(2 * TTL);
    world.sent = Sent::default();
    world
}
