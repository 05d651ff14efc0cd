//! The link between managers and the bucket, which is available whenever NATS is, and the commands that change what is
//! stored.

use manager::{ManagerInput, WriteResult, read_stored};
use shared::wire::{WireError, code};

use super::{
    Event, World,
    messages::{Message, ToManager},
    traffic::Kind,
};
use crate::bucket::{StateAnswer, StateRequest, StateWrite};

/// A client repeats an unanswered command after this time.
const PATIENCE_US: u64 = 11_000_000;
/// … and after this time if no manager could take it.
const AGAIN_US: u64 = 1_000_000;
/// Maximum number of refused commands named in notes.
const MAX_NOTES: usize = 20;

/// The state of a command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    tries: u32,
    answered: bool,
}

impl World<'_> {
    /// Sends a request of a manager to the bucket.
    pub(super) fn ask_bucket(&mut self, m: usize, request: StateRequest) {
        if matches!(request, StateRequest::Write(_)) {
            self.counts.sent(Kind::BucketWrite, 1);
        }
        if self.away > 0 {
            return;
        }
        let Some(at_us) = self.travel() else {
            return;
        };
        let manager = &mut self.managers[m];
        manager.asks_us = manager.asks_us.max(at_us);
        let (at_us, life) = (manager.asks_us, manager.life);
        self.fly(at_us, Message::Bucket(m, life, Box::new(request)));
    }

    /// Handles a manager's request that reaches the bucket.
    pub(super) fn bucket_asked(&mut self, m: usize, life: u32, request: StateRequest) {
        if self.away > 0 {
            return;
        }
        let is_there = self.managers[m].life == life;
        match request {
            StateRequest::Write(write) => {
                let bytes = write.value.as_ref().map_or(0, |value| value.len() as u64);
                self.counts.delivered(Kind::BucketWrite, 1, bytes);
                let result = self.store(&write);
                let write = write.write;
                if is_there && let Some(at_us) = self.travel() {
                    let manager = &mut self.managers[m];
                    manager.ended_us = manager.ended_us.max(at_us);
                    let at_us = manager.ended_us;
                    let answer = ToManager::State(StateAnswer::Ended { write, result });
                    self.counts.sent(Kind::BucketAnswer, 1);
                    self.fly_to_manager(at_us, m, Kind::BucketAnswer, 0, answer);
                }
            }
            StateRequest::Watch(watch) if is_there => {
                self.managers[m].watch = Some(watch);
                for (key, revision, value) in self.bucket.values() {
                    self.show(
                        m,
                        StateAnswer::Shown {
                            watch,
                            key,
                            revision,
                            value,
                        },
                    );
                }
                let revision = self.bucket.revision();
                self.show(m, StateAnswer::Ready { watch, revision });
            }
            StateRequest::Look(watch) if is_there => {
                let seen = self.bucket.look(watch);
                self.show(m, seen);
            }
            StateRequest::Watch(_) | StateRequest::Look(_) => {}
        }
    }

    fn store(&mut self, write: &StateWrite) -> WriteResult {
        let result = self.bucket.write(write);
        let WriteResult::Written(revision) = result else {
            return result;
        };
        for m in 0..self.managers.len() {
            if let Some(watch) = self.managers[m].watch {
                let (key, value) = (write.key.clone(), write.value.clone());
                self.show(
                    m,
                    StateAnswer::Shown {
                        watch,
                        key,
                        revision,
                        value,
                    },
                );
            }
        }
        if write.key.starts_with("app.")
            && let Some(record) = write.value.as_ref().and_then(|v| read_stored(v).ok())
        {
            self.tally.wants(self.now_us, &record);
        }
        result
    }

    /// Sends what a watch shows, in order and without losses, as the server repeats whatever is not acknowledged.
    fn show(&mut self, m: usize, answer: StateAnswer) {
        let bytes = match &answer {
            StateAnswer::Shown { value, .. } => value.as_ref().map_or(0, |v| v.len() as u64),
            _ => 0,
        };
        let at_us = self.now_us + self.scenario.network.latency.sample_us(&mut self.random);
        let manager = &mut self.managers[m];
        manager.shown_us = manager.shown_us.max(at_us);
        let at_us = manager.shown_us;
        self.counts.sent(Kind::BucketValue, 1);
        self.fly_to_manager(at_us, m, Kind::BucketValue, bytes, ToManager::State(answer));
    }

    /// Sends a client's command, unless it was sent again since this try.
    pub(super) fn command(&mut self, command: usize, tries: u32) {
        let asked = &mut self.commands[command];
        if asked.answered || asked.tries != tries {
            return;
        }
        asked.tries += 1;
        let again = Event::Command(command, asked.tries);
        self.at(self.now_us + PATIENCE_US, again);
        self.counts.sent(Kind::Command, 1);
        if self.away == 0
            && let Some(at_us) = self.travel()
        {
            self.fly(at_us, Message::Command(command));
        }
    }

    /// Delivers a command to one of the managers that know what is stored.
    pub(super) fn command_arrives(&mut self, command: usize) {
        let knows = |m: &usize| {
            let driver = self.managers[*m].driver.as_ref();
            driver.is_some_and(|driver| driver.machine().is_ready())
        };
        let ready: Vec<usize> = (0..self.managers.len()).filter(knows).collect();
        if self.away > 0 {
            return;
        }
        if ready.is_empty() {
            let error = WireError::new(code::OVERLOADED, "no manager accepts requests");
            return self.command_reply(command, Err(error));
        }
        let m = ready[self.client.random.place(ready.len())];
        let told = &self.scenario.commands[command];
        let (app, what) = (told.app.clone(), told.command.clone());
        self.counts.delivered(Kind::Command, 1, 0);
        let manager = &mut self.managers[m];
        manager.keys += 1;
        let to = manager::CommandKey(manager.keys);
        manager.commands.insert(to, command);
        let input = ManagerInput::Command {
            to,
            app,
            command: what,
        };
        self.act(m, |driver, now_ms| driver.step(now_ms, Some(input)));
    }

    /// Sends a manager's answer to a command.
    pub(super) fn command_reply(&mut self, command: usize, answer: Result<(), WireError>) {
        self.counts.sent(Kind::CommandReply, 1);
        if self.away == 0
            && let Some(at_us) = self.travel()
        {
            self.fly(at_us, Message::CommandReply(command, answer));
        }
    }

    /// Handles the answer that reaches the client.
    pub(super) fn command_answered(&mut self, command: usize, answer: Result<(), WireError>) {
        self.counts.delivered(Kind::CommandReply, 1, 0);
        let asked = &mut self.commands[command];
        let Err(error) = answer else {
            asked.answered = true;
            return;
        };
        if [code::INTERNAL, code::OVERLOADED, code::CONFLICT].contains(&error.code.as_str()) {
            let again = Event::Command(command, asked.tries);
            return self.at(self.now_us + AGAIN_US, again);
        }
        if !std::mem::replace(&mut asked.answered, true) {
            self.refused_commands += 1;
            if self.command_notes.len() < MAX_NOTES {
                let app = &self.scenario.commands[command].app;
                let note = format!("A command to {app} was refused: {}", error.message);
                self.command_notes.push(note);
            }
        }
    }
}
