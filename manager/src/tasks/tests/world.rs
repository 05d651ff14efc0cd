//! A world around the stored requests of successive managers: a bucket, cells, an auctioneer.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use placement::{Kind, Request, random::SplitMix64};
use serde_json::json;
use shared::{
    AttemptId, BucketId, InstanceId, VERSION,
    wire::{StartReply, TaskResult, TaskState, TaskStatus, instance_id},
};

use super::cells::{Ended, Held, SimCell, listed, task};
use crate::{
    CommandKey, ManagerOutput, Revision, TaskAnswer, TaskCommand, TaskInput, TaskOutput, TaskPhase,
    TaskRecord, WriteId, WriteResult,
    tasks::{Office, Tasks},
};

type Write = (WriteId, String, Option<Bytes>, Revision);

pub(super) struct World {
    pub(super) tasks: Tasks,
    pub(super) now: u64,
    pub(super) acts: bool,
    pub(super) values: BTreeMap<String, (u64, Bytes)>,
    revision: u64,
    pub(super) cells: BTreeMap<String, SimCell>,
    /// The auctioneer's memory.
    pub(super) placed: BTreeMap<String, String>,
    pub(super) starts: Vec<Request>,
    pub(super) stops: Vec<InstanceId>,
    pub(super) replies: Vec<Result<TaskAnswer, String>>,
    pub(super) ends: Vec<String>,
    /// How often the command of each task ran.
    pub(super) runs: BTreeMap<String, u32>,
    /// The fates of the next starts.
    pub(super) fates: VecDeque<Fate>,
    pub(super) hold_writes: bool,
    pub(super) held_writes: VecDeque<Write>,
    /// The next writes fail, after being stored (true) or without.
    pub(super) failing: VecDeque<bool>,
    /// Whether writes are neither stored nor answered.
    pub(super) down: bool,
    /// Number of writes.
    pub(super) writes: u32,
    /// Revisions at which ids were deleted.
    pub(super) deleted: BTreeMap<String, u64>,
    /// Whether cells answer no questions.
    pub(super) mute: bool,
    pub(super) settled: bool,
    /// Whether results are not heard.
    pub(super) deaf: bool,
    answered_ms: u64,
    lists: u32,
    commands: u64,
}

/// What becomes of a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// No auctioneer takes it.
    Vanishes,
    /// It is placed, but nobody says so.
    Unanswered,
    /// The answer is an error: nothing was begun.
    Refused(&'static str),
    /// The cell has not answered the auctioneer; it has the task (true) or not.
    Unknown(bool),
}

impl World {
    pub(super) fn new(cells: usize, slots: usize) -> Self {
        let cell = |n| {
            let cell = SimCell {
                slots,
                ..SimCell::default()
            };
            (format!("c{n}"), cell)
        };
        let mut world = Self {
            tasks: Tasks::default(),
            now: 1_000,
            acts: true,
            values: BTreeMap::new(),
            revision: 0,
            cells: (0..cells).map(cell).collect(),
            placed: BTreeMap::new(),
            starts: Vec::new(),
            stops: Vec::new(),
            replies: Vec::new(),
            ends: Vec::new(),
            runs: BTreeMap::new(),
            fates: VecDeque::new(),
            hold_writes: false,
            held_writes: VecDeque::new(),
            failing: VecDeque::new(),
            down: false,
            writes: 0,
            deleted: BTreeMap::new(),
            mute: false,
            settled: true,
            deaf: false,
            answered_ms: 0,
            lists: 0,
            commands: 0,
        };
        world.run();
        world
    }

    /// Starts another manager, which reads the bucket and acts.
    pub(super) fn next_manager(&mut self) {
        self.tasks = Tasks::default();
        self.held_writes.clear();
        (self.acts, self.answered_ms) = (true, 0);
        self.run();
        for (id, (revision, value)) in self.values.clone() {
            self.give(TaskInput::Shown {
                id,
                revision: Revision(revision),
                value: Some(value),
            });
        }
        self.tasks.shown_all(self.now);
        self.tasks.gained(self.now);
        self.run();
    }

    pub(super) fn give(&mut self, input: TaskInput) {
        self.tasks.take(self.now, input).unwrap();
    }

    /// Runs until nothing is left to do at this moment.
    pub(super) fn run(&mut self) {
        for _ in 0..2_000 {
            let office = Office {
                acts: self.acts,
                bucket: Some(BucketId::new(11)),
                settled: self.settled,
                answered_ms: self.answered_ms,
            };
            let out = self.tasks.run(self.now, office);
            let asks = self.tasks.take_question();
            if out.is_empty() && !asks {
                return;
            }
            for output in out {
                self.carry_out(output);
            }
            if asks && !self.mute {
                self.lists(Some(self.now));
            }
        }
        panic!("no end without time");
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, ms: u64) {
        let end = self.now + ms;
        while self.now < end {
            self.now = (self.now + 250).min(end);
            self.run();
        }
    }

    fn carry_out(&mut self, output: ManagerOutput) {
        match output {
            ManagerOutput::Start(request) => self.start(&request),
            ManagerOutput::Stop { cell, stop } => {
                for id in stop.instances {
                    self.stops.push(id);
                    self.end(&cell, id, None);
                }
            }
            ManagerOutput::Event(event) => self.ends.push(event.reason.unwrap_or_default()),
            ManagerOutput::Task(output) => match *output {
                TaskOutput::Reply { answer, .. } => {
                    let answer = answer.map(|answer| *answer);
                    self.replies.push(answer.map_err(|error| error.code));
                }
                TaskOutput::Write {
                    write,
                    id,
                    value,
                    expected,
                    ttl,
                } => {
                    // the server deletes results and deletion markers, and nothing else
                    let kept = value.as_ref().map(|value| {
                        let record: TaskRecord = serde_json::from_slice(value).unwrap();
                        record.phase != TaskPhase::Over
                    });
                    assert_eq!(ttl.is_none(), kept == Some(true), "{id}");
                    let write = (write, id.to_string(), value, expected);
                    if self.hold_writes {
                        self.held_writes.push_back(write);
                    } else {
                        self.finish(write);
                    }
                }
            },
            other => panic!("{other:?}"),
        }
    }

    /// Stores a value and reports the result.
    pub(super) fn finish(&mut self, (write, id, value, expected): Write) {
        self.writes += 1;
        let present = self.values.get(&id).map(|(revision, _)| *revision);
        let present = present.or(self.deleted.get(&id).copied());
        let fails = self.failing.pop_front();
        let result = if self.down {
            WriteResult::Failed
        } else if Revision(present.unwrap_or(0)) != expected {
            WriteResult::Conflict
        } else if fails == Some(false) {
            WriteResult::Failed
        } else {
            self.store(&id, value);
            match fails {
                Some(true) => WriteResult::Failed,
                _ => WriteResult::Written(Revision(self.revision)),
            }
        };
        self.give(TaskInput::Written { write, result });
    }

    /// Has somebody store a value, which the watch shows.
    pub(super) fn store(&mut self, id: &str, value: Option<Bytes>) {
        self.revision += 1;
        let revision = self.revision;
        if let Some(value) = &value {
            let value = (revision, value.clone());
            self.values.insert(id.to_owned(), value);
            self.deleted.remove(id);
        } else {
            self.values.remove(id);
            self.deleted.insert(id.to_owned(), revision);
        }
        let id = id.to_owned();
        self.give(TaskInput::Shown {
            id,
            revision: Revision(revision),
            value,
        });
    }

    /// Has an auctioneer receive a start request of a task.
    fn start(&mut self, request: &Request) {
        self.starts.push(request.clone());
        let fate = self.fates.pop_front();
        let attempt = AttemptId::parse(&request.id).unwrap();
        if fate == Some(Fate::Vanishes) {
            return;
        }
        if let Some(Fate::Refused(code)) = fate {
            let answer = Err(shared::wire::WireError::new(code, "refused"));
            return self.give(TaskInput::Outcome { attempt, answer });
        }
        let cell = match self.placed.get(&request.id) {
            Some(cell) => Some(cell.clone()),
            None if fate == Some(Fate::Unknown(false)) => None,
            None => self.place(request, &attempt),
        };
        if fate == Some(Fate::Unanswered) {
            return;
        }
        let instance = match &cell {
            cell if matches!(fate, Some(Fate::Unknown(_))) => {
                let cell = cell.as_deref().unwrap_or("c0");
                json!({ "index": 0, "outcome": "unknown", "cell": cell })
            }
            Some(cell) => json!({ "index": 0, "outcome": "placed", "cell": cell }),
            None => json!({ "indices": "0", "outcome": "unplaced", "reason": "no room" }),
        };
        self.answer(request, attempt, &instance);
    }

    /// Sends what the auctioneer says about a task.
    fn answer(&mut self, request: &Request, attempt: AttemptId, instance: &serde_json::Value) {
        let reply: StartReply = serde_json::from_value(json!({
            "id": request.id, "app": request.app, "outcome": instance["outcome"],
            "instances": [instance],
        }))
        .unwrap();
        let answer = Ok(Box::new(reply));
        self.give(TaskInput::Outcome { attempt, answer });
    }

    /// Runs a request on the first cell with room.
    fn place(&mut self, request: &Request, attempt: &AttemptId) -> Option<String> {
        let mut cells = self.cells.iter_mut();
        let (name, cell) = cells.find(|(_, cell)| !cell.dead && cell.running() < cell.slots)?;
        let id = instance_id(&request.id, &request.app, Kind::Task, 0);
        let held = Held {
            request: request.id.clone(),
            app: request.app.clone(),
            ended: Ended::Not,
        };
        assert!(cell.held.insert(id, held).is_none(), "it ran there before");
        *self.runs.entry(attempt.id.clone()).or_default() += 1;
        self.placed.insert(request.id.clone(), name.clone());
        Some(name.clone())
    }

    /// Returns what runs, with its cell.
    pub(super) fn running(&self) -> Vec<(String, InstanceId)> {
        let mut all = Vec::new();
        for (name, cell) in self.cells.iter().filter(|(_, cell)| !cell.dead) {
            let running = cell
                .held
                .iter()
                .filter(|(_, held)| held.ended == Ended::Not);
            all.extend(running.map(|(id, _)| (name.clone(), *id)));
        }
        all
    }

    /// Ends a task with this exit code, or because it was stopped.
    pub(super) fn end(&mut self, cell: &str, id: InstanceId, code: Option<i32>) {
        let Some(here) = self.cells.get_mut(cell).filter(|cell| !cell.dead) else {
            return;
        };
        let Some(held) = here
            .held
            .get_mut(&id)
            .filter(|held| held.ended == Ended::Not)
        else {
            return;
        };
        held.ended = code.map_or(Ended::Stopped, Ended::Exit);
        let result = self.result(cell, id);
        if !self.deaf {
            self.give(TaskInput::Ended(Box::new(result)));
        }
    }

    /// Returns a cell's message about a task that has ended.
    pub(super) fn result(&self, cell: &str, id: InstanceId) -> TaskResult {
        let held = &self.cells[cell].held[&id];
        TaskResult {
            v: VERSION,
            cell: cell.to_owned(),
            instance: id,
            request: held.request.parse().unwrap(),
            exit_code: held.ended.code(),
            signal: None,
            ended: held.ended.text(),
            stopped: held.ended == Ended::Stopped,
            began: true,
            ran_ms: Some(10),
            output: Some("done\n".into()),
            result: None,
        }
    }

    /// Returns where the last attempt of a task runs.
    pub(super) fn of(&self, id: &str) -> (String, InstanceId) {
        let running = self.running().into_iter();
        let mut found = running.filter(|(cell, instance)| {
            let request = &self.cells[cell].held[instance].request;
            AttemptId::parse(request).is_some_and(|attempt| attempt.id == id)
        });
        found.next().unwrap()
    }

    /// Ends everything that runs.
    pub(super) fn end_all(&mut self, code: i32) {
        for (cell, id) in self.running() {
            self.end(&cell, id, Some(code));
        }
        self.run();
    }

    /// Has every live cell list its tasks: all of them, or in a heartbeat only those that run.
    pub(super) fn lists(&mut self, asked_ms: Option<u64>) {
        self.lists += 1;
        let list = self.lists;
        for (name, cell) in self.cells.clone() {
            if cell.dead {
                continue;
            }
            for (id, held) in &cell.held {
                if asked_ms.is_some() || held.ended == Ended::Not {
                    let instance = listed(*id, held);
                    self.tasks.listed(self.now, &name, list, &instance);
                }
            }
            self.tasks.complete(self.now, &name, list, asked_ms);
        }
        self.answered_ms = asked_ms.unwrap_or(self.answered_ms);
    }

    /// Kills a cell with all that it runs.
    pub(super) fn kill_cell(&mut self, name: &str) {
        self.empty_cell(name);
        self.tasks.cell_lost(self.now, name);
        self.run();
    }

    /// Restarts a cell's rep: nothing is left of what it ran.
    pub(super) fn renew_cell(&mut self, name: &str) {
        self.empty_cell(name);
        self.tasks.cell_renewed();
        self.run();
    }

    fn empty_cell(&mut self, name: &str) {
        let slots = self.cells[name].slots;
        let gone = SimCell {
            slots,
            ..SimCell::default()
        };
        self.cells.insert(name.to_owned(), gone);
    }

    pub(super) fn submit(&mut self, id: &str, more: &str) {
        let command = TaskCommand::Submit(Box::new(task(id, more)));
        self.command(id, command);
    }

    pub(super) fn command(&mut self, id: &str, command: TaskCommand) {
        self.commands += 1;
        let to = CommandKey(self.commands);
        let id = id.to_owned();
        self.give(TaskInput::Command { to, id, command });
        self.run();
    }

    #[track_caller]
    pub(super) fn status(&self, id: &str) -> TaskStatus {
        self.tasks.status(id).unwrap()
    }

    #[track_caller]
    pub(super) fn state(&self, id: &str) -> TaskState {
        self.status(id).state
    }

    pub(super) fn stored(&self, id: &str) -> TaskRecord {
        serde_json::from_slice(&self.values[id].1).unwrap()
    }

    /// Returns the ids of the attempts sent since the last call, without repeats.
    pub(super) fn attempts(&mut self) -> Vec<String> {
        let sent: BTreeSet<String> = self.starts.drain(..).map(|start| start.id).collect();
        sent.into_iter()
            .map(|id| id.replacen("t-0000000b-", "", 1))
            .collect()
    }

    /// Causes a random fault.
    pub(super) fn fault(&mut self, random: &mut SplitMix64, cells_die: bool) {
        let mut draw = |n: u64| random.draw() % n;
        match draw(10) {
            0 => self.next_manager(),
            1 if cells_die => {
                let name = format!("c{}", draw(self.cells.len() as u64));
                if draw(2) == 0 {
                    self.kill_cell(&name);
                } else {
                    self.renew_cell(&name);
                }
            }
            // the auctioneer ends and forgets everything
            1 => self.placed.clear(),
            2 => self.fates.push_back(Fate::Vanishes),
            3 => self.fates.push_back(Fate::Unanswered),
            4 => self.fates.push_back(Fate::Refused("overloaded")),
            5 => self.failing.push_back(draw(2) == 0),
            6 => self.deaf = !self.deaf,
            7 => self.acts = !self.acts,
            8 => self.fates.push_back(Fate::Unknown(draw(2) == 0)),
            _ => self.lists(None),
        }
        if self.acts {
            self.run();
        }
    }
}
