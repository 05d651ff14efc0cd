//! The inputs and outputs of the part of the machine that carries out stored requests, besides those that it shares
//! with the rest: starts, stops and events.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use shared::{
    AttemptId,
    wire::{StartReply, TaskResult, TaskStatus, WireError},
};

use super::WriteResult;
use crate::{
    ids::{CommandKey, Revision, WriteId},
    tasks::definition::TaskDefinition,
};

/// A command about a stored request.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskCommand {
    /// Store it and carry it out. Submitting the same again changes nothing.
    Submit(Box<TaskDefinition>),
    /// Do not start it, or stop it if it runs.
    Cancel,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskAnswer {
    /// The request as it is now.
    pub status: TaskStatus,
    /// Whether the command changed anything.
    pub changed: bool,
}

/// One input: something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskInput {
    /// The time of the machine's clock.
    Time {
        /// Milliseconds since 1970.
        unix_ms: u64,
    },
    /// A value of the bucket as its watch shows it; none = the key was deleted.
    Shown {
        /// The key, which is an id.
        id: String,
        /// Its revision.
        revision: Revision,
        /// The value.
        value: Option<Bytes>,
    },
    /// A write has ended. Every [`TaskOutput::Write`] is answered once.
    Written {
        /// The write.
        write: WriteId,
        /// Its result.
        result: WriteResult,
    },
    /// The answer to the start of an attempt, or why there is none.
    Outcome {
        /// The attempt.
        attempt: AttemptId,
        /// The answer. An error other than `internal` means that nothing of it was begun.
        answer: Result<Box<StartReply>, WireError>,
    },
    /// A cell says how a task ended.
    Ended(Box<TaskResult>),
    /// A command.
    Command {
        /// The recipient of the answer.
        to: CommandKey,
        /// The id.
        id: String,
        /// The command.
        command: TaskCommand,
    },
}

/// One output.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskOutput {
    /// Store a value; answered by [`TaskInput::Written`].
    Write {
        /// The write.
        write: WriteId,
        /// The key, which is an id.
        id: Arc<str>,
        /// The value; none = delete the key.
        value: Option<Bytes>,
        /// The key's present revision, [`Revision::NONE`] if it must not exist.
        expected: Revision,
        /// The time after which the server deletes the value.
        ttl: Option<Duration>,
    },
    /// Answer a command.
    Reply {
        /// The recipient.
        to: CommandKey,
        /// The answer.
        answer: Result<Box<TaskAnswer>, WireError>,
    },
}
