//! A manager in virtual time: the machine, and what its shell does between it and the bucket. Routing messages is left
//! to its users, [`crate::world`] and [`mod@crate::check`].

use std::collections::BTreeMap;

use bytes::Bytes;
use manager::{
    CommandKey, Manager, ManagerInput, ManagerOutput, ManagerSettings, MoveAnswer, QuestionId,
    Revision, TaskInput, TaskOutput, WaveId, WriteId, WriteResult,
};
use placement::Request;
use shared::{
    AttemptId,
    wire::{Event, StartReply, Stop, WireError},
};
use std::sync::Arc;

use crate::bucket::{StateAnswer, StateRequest, StateWrite, TASKS};

/// How often it hears itself. Its clocks advance as long as pauses are shorter than 2.5 s.
pub(crate) const ECHO_MS: u64 = 500;
/// A write without an answer counts as failed after this time.
const WRITE_MS: u64 = 5_000;
/// A watch that has not shown everything within this time is restarted.
const WATCH_MS: u64 = 5_000;
/// Pause between the end of a watch and the next one.
const PAUSE_MS: u64 = 200;

/// How often it checks whether what a watch has shown still exists, as a purge of the stream is not shown.
const LOOK_MS: u64 = 10_000;

/// The machine numbers the writes of stored requests separately; here they have this bit set.
const OF_TASKS: u64 = 1 << 63;
/// The time at which virtual time begins, in milliseconds since 1970.
const BEGIN_UNIX_MS: u64 = 1_600_000_000_000;

/// What a manager sends.
#[derive(Debug)]
pub(crate) enum ManagerSends {
    /// A request to the bucket.
    State(StateRequest),
    /// A start request for one auctioneer. Its answer goes to [`ManagerDriver::started`] with this number.
    Start { number: u64, request: Arc<Request> },
    /// A stop for one cell.
    Stop { cell: Arc<str>, stop: Stop },
    /// A question to all cells: which instances do they have?
    Ask(QuestionId),
    /// An event.
    Event(Box<Event>),
    /// The answer to a command.
    Reply {
        to: CommandKey,
        answer: Result<(), WireError>,
    },
    /// The answer to a question about a move.
    Moved {
        to: CommandKey,
        answer: Result<MoveAnswer, WireError>,
    },
}

/// What a start request belongs to.
#[derive(Clone, Debug)]
enum Started {
    Wave(WaveId),
    Attempt(AttemptId),
}

/// One life of a manager. Times are those of the world; the machine counts from its start.
#[derive(Debug)]
pub(crate) struct ManagerDriver {
    machine: Manager,
    born_ms: u64,
    /// The present watch, and when it is restarted if it has not shown everything.
    watch: u64,
    watch_due_ms: Option<u64>,
    /// When it next looks at the bucket, and what the watch has shown: the revision and value of `meta`, and whether
    /// there was a lease.
    look_ms: u64,
    meta: Revision,
    meta_value: Option<Bytes>,
    lease: bool,
    /// When each unanswered write counts as failed.
    writes: BTreeMap<WriteId, u64>,
    /// What its unanswered start requests belong to, by number.
    waiting: BTreeMap<u64, Started>,
    starts: u64,
}

impl ManagerDriver {
    /// Creates a manager that starts now. Its first watch must be begun with [`ManagerDriver::watch`].
    pub(crate) fn new(now_ms: u64, settings: ManagerSettings) -> Self {
        let mut machine = Manager::new(settings);
        let unix_ms = BEGIN_UNIX_MS + now_ms;
        machine.take(0, ManagerInput::Task(TaskInput::Time { unix_ms }));
        Self {
            machine,
            born_ms: now_ms,
            watch: 0,
            watch_due_ms: None,
            look_ms: now_ms + LOOK_MS,
            meta: Revision::NONE,
            meta_value: None,
            lease: false,
            writes: BTreeMap::new(),
            waiting: BTreeMap::new(),
            starts: 0,
        }
    }

    pub(crate) fn machine(&self) -> &Manager {
        &self.machine
    }

    /// Has the bucket show everything, again or for the first time.
    pub(crate) fn watch(&mut self, now_ms: u64) -> ManagerSends {
        self.watch += 1;
        (self.meta, self.meta_value, self.lease) = (Revision::NONE, None, false);
        self.watch_due_ms = Some(now_ms + WATCH_MS);
        ManagerSends::State(StateRequest::Watch(self.watch))
    }

    /// Passes an input to the machine and does what is due.
    pub(crate) fn step(&mut self, now_ms: u64, input: Option<ManagerInput>) -> Vec<ManagerSends> {
        let own_ms = now_ms - self.born_ms;
        if let Some(input) = input {
            self.machine.take(own_ms, input);
        }
        let outputs = self.machine.run(own_ms);
        let sent = outputs.into_iter();
        sent.filter_map(|output| self.sends(now_ms, output))
            .collect()
    }

    fn sends(&mut self, now_ms: u64, output: ManagerOutput) -> Option<ManagerSends> {
        Some(match output {
            // no auctioneer asks it
            ManagerOutput::Granted { .. } => return None,
            ManagerOutput::Task(output) => self.task_sends(now_ms, *output),
            ManagerOutput::Write {
                write,
                key,
                value,
                expected,
            } => {
                self.writes.insert(write, now_ms + WRITE_MS);
                ManagerSends::State(StateRequest::Write(StateWrite {
                    write,
                    key: key.to_string(),
                    value,
                    expected,
                }))
            }
            ManagerOutput::Start(request) => {
                self.starts += 1;
                let number = self.starts;
                let wave = WaveId::parse(&request.id).map(Started::Wave);
                let attempt = || AttemptId::parse(&request.id).map(Started::Attempt);
                if let Some(started) = wave.or_else(attempt) {
                    self.waiting.insert(number, started);
                }
                ManagerSends::Start { number, request }
            }
            ManagerOutput::Stop { cell, stop } => ManagerSends::Stop { cell, stop },
            ManagerOutput::Ask { question } => ManagerSends::Ask(question),
            ManagerOutput::Event(event) => ManagerSends::Event(event),
            ManagerOutput::Reply { to, answer } => ManagerSends::Reply {
                to,
                answer: answer.map(|_| ()),
            },
            ManagerOutput::Moved { to, answer } => ManagerSends::Moved { to, answer },
        })
    }

    fn task_sends(&mut self, now_ms: u64, output: TaskOutput) -> ManagerSends {
        match output {
            TaskOutput::Reply { to, answer } => ManagerSends::Reply {
                to,
                answer: answer.map(|_| ()),
            },
            // no run lasts for the hour after which results are deleted
            TaskOutput::Write {
                write,
                id,
                value,
                expected,
                ..
            } => {
                let write = WriteId(write.0 | OF_TASKS);
                self.writes.insert(write, now_ms + WRITE_MS);
                ManagerSends::State(StateRequest::Write(StateWrite {
                    write,
                    key: format!("{TASKS}{id}"),
                    value,
                    expected: Some(expected),
                }))
            }
        }
    }

    /// Returns the input for the answer to the start request of this number; none if it was answered before.
    pub(crate) fn started(
        &mut self,
        number: u64,
        answer: Result<Box<StartReply>, WireError>,
    ) -> Option<ManagerInput> {
        Some(match self.waiting.remove(&number)? {
            Started::Wave(wave) => ManagerInput::Outcome { wave, answer },
            Started::Attempt(attempt) => ManagerInput::Task(TaskInput::Outcome { attempt, answer }),
        })
    }

    /// Handles a message of the bucket.
    pub(crate) fn state_says(&mut self, now_ms: u64, answer: StateAnswer) -> Vec<ManagerSends> {
        let of_watch = answer.watch();
        if of_watch.is_some_and(|watch| watch != self.watch) {
            return Vec::new();
        }
        let input = match answer {
            StateAnswer::Ended { write, result } => {
                if self.writes.remove(&write).is_none() {
                    return Vec::new();
                }
                write_ended(write, result)
            }
            StateAnswer::Shown {
                key,
                revision,
                value,
                ..
            } if key.starts_with(TASKS) => ManagerInput::Task(TaskInput::Shown {
                id: key[TASKS.len()..].to_owned(),
                revision,
                value,
            }),
            StateAnswer::Shown {
                key,
                revision,
                value,
                ..
            } => {
                match key.as_str() {
                    // it is stored again when it is missing, so another manager has found a purge that this one has not
                    "meta" if self.meta != Revision::NONE && self.meta_value == value => {
                        let watch = self.watch;
                        return self.state_says(now_ms, StateAnswer::Broken { watch });
                    }
                    "meta" => (self.meta, self.meta_value) = (revision, value.clone()),
                    "lease" => self.lease = true,
                    _ => {}
                }
                ManagerInput::Kv {
                    key,
                    revision,
                    value,
                }
            }
            StateAnswer::Seen { oldest, leases, .. } => {
                let purged = (self.meta != Revision::NONE && oldest > self.meta)
                    || (self.lease && leases == 0);
                if !purged {
                    return Vec::new();
                }
                return self.state_says(now_ms, StateAnswer::Broken { watch: self.watch });
            }
            StateAnswer::Ready { revision, .. } => {
                self.watch_due_ms = None;
                ManagerInput::KvReady { revision }
            }
            StateAnswer::Broken { .. } => {
                self.watch_due_ms = Some(now_ms + PAUSE_MS);
                self.watch += 1;
                ManagerInput::KvInterrupted
            }
        };
        self.step(now_ms, Some(input))
    }

    /// Does what is due: unanswered writes fail, a watch that has not shown everything is restarted, and the machine
    /// runs.
    pub(crate) fn due(&mut self, now_ms: u64) -> Vec<ManagerSends> {
        let mut sent = Vec::new();
        let late = self.writes.iter().filter(|(_, due_ms)| **due_ms <= now_ms);
        let late: Vec<WriteId> = late.map(|(write, _)| *write).collect();
        for write in late {
            self.writes.remove(&write);
            let failed = write_ended(write, WriteResult::Failed);
            sent.extend(self.step(now_ms, Some(failed)));
        }
        if self.watch_due_ms.is_some_and(|due_ms| due_ms <= now_ms) {
            sent.extend(self.step(now_ms, Some(ManagerInput::KvInterrupted)));
            sent.push(self.watch(now_ms));
        }
        if self.look_ms <= now_ms {
            self.look_ms = now_ms + LOOK_MS;
            sent.push(ManagerSends::State(StateRequest::Look(self.watch)));
        }
        sent.extend(self.step(now_ms, Some(ManagerInput::Tick)));
        sent
    }

    /// Returns by when [`ManagerDriver::due`] must be called.
    pub(crate) fn next_ms(&self) -> u64 {
        let own = self.machine.next_ms().saturating_add(self.born_ms);
        let write = self.writes.values().min().copied();
        let all = [write, self.watch_due_ms, Some(self.look_ms)];
        all.into_iter().flatten().fold(own, u64::min)
    }
}

fn write_ended(write: WriteId, result: WriteResult) -> ManagerInput {
    if write.0 & OF_TASKS == 0 {
        return ManagerInput::WriteEnded { write, result };
    }
    let write = WriteId(write.0 & !OF_TASKS);
    ManagerInput::Task(TaskInput::Written { write, result })
}
