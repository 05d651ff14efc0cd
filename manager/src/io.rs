//! The inputs and outputs of the manager's state machine.

mod tasks;

use std::sync::Arc;

use bytes::Bytes;
use placement::{Request, Span};
use shared::{
    Incarnation, InstanceId,
    wire::{Event, GrantRequest, InstancesAnswer, MoveState, StartReply, Stop, WireError},
};

use crate::{
    definition::AppDefinition,
    differences::Differences,
    grants::GrantReply,
    ids::{AppUid, BucketId, CommandKey, QuestionId, Revision, WaveId, WriteId},
    stored::StoredKey,
};

pub use tasks::{TaskAnswer, TaskCommand, TaskInput, TaskOutput};

/// The parts of an advertisement that matter here. Its ttl is 0 when the cell leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct CellHeard {
    /// The cell.
    pub cell: String,
    /// The incarnation of its rep.
    pub incarnation: Incarnation,
    /// The version of its state.
    pub seq: u64,
    /// How long it is valid.
    pub ttl: Span,
    /// Whether it accepts no work and its instances are going to end.
    pub draining: bool,
    /// Whether they will end within a grace period because its rep was told to end.
    pub leaving: bool,
    /// The last instances it accepted.
    pub recent: Vec<InstanceId>,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteResult {
    /// It is stored under this revision.
    Written(Revision),
    /// The key has another revision than expected.
    Conflict,
    /// It is not known whether it is stored.
    Failed,
}

/// What an operator wants.
#[derive(Clone, Debug, PartialEq)]
pub enum AppCommand {
    /// Run this definition.
    Put(Box<AppDefinition>),
    /// Report what this definition would change, without changing anything.
    Try(Box<AppDefinition>),
    /// Keep the definition, but run this many instances.
    Scale(u32),
    /// Make it what it was in a bucket that was lost: whatever of it runs is taken over.
    Restore {
        /// The id of that bucket. This one takes it if it has no apps.
        bucket: BucketId,
        /// The uid of the app.
        uid: AppUid,
        /// Its version.
        version: u32,
        /// Whether none of it is to run.
        stopped: bool,
        /// What is to run.
        definition: Box<AppDefinition>,
    },
    /// Run none of it.
    Stop,
    /// Run it again.
    Start,
    /// Replace every instance by a new one, this many at once.
    Restart {
        /// As in the definition if absent.
        max_in_flight: Option<u32>,
    },
    /// Delete it.
    Delete,
    /// Return to the version before.
    Undo,
    /// Pause the rollout.
    Pause,
    /// Resume the rollout.
    Resume,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppAnswer {
    /// The uid of this creation of the app.
    pub uid: AppUid,
    /// The version that is wanted now.
    pub version: u32,
    /// Whether the command changed anything or, for [`AppCommand::Try`], would.
    pub changed: bool,
    /// Whether the app did not exist before.
    pub created: bool,
    /// The differences, field by field.
    pub differences: Differences,
}

/// An order to move an instance to another cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveOrder {
    /// Identifies the move: the same id is the same move.
    pub id: String,
    /// The index of the instance.
    pub index: u32,
    /// The cell on which it runs.
    pub from: String,
}

/// The state of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveAnswer {
    /// Whether it is in progress or how it ended.
    pub state: MoveState,
    /// The cell on which the instance runs now, if it was moved.
    pub cell: Option<Arc<str>>,
    /// Why it failed.
    pub reason: Option<String>,
}

/// One input: something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum ManagerInput {
    /// A value of the bucket as its watch shows it; none = the key was deleted. Deletions are shown too because the
    /// next write of the key must name their revision.
    Kv {
        /// The key.
        key: String,
        /// Its revision.
        revision: Revision,
        /// The value.
        value: Option<Bytes>,
    },
    /// All values in the bucket were shown.
    KvReady {
        /// The bucket's last revision.
        revision: Revision,
    },
    /// The watch ended. All values are shown again before the next [`ManagerInput::KvReady`].
    KvInterrupted,
    /// A write has ended. Every [`ManagerOutput::Write`] is answered once.
    WriteEnded {
        /// The write.
        write: WriteId,
        /// Its result.
        result: WriteResult,
    },
    /// An advertisement.
    Cell(CellHeard),
    /// One message of a list of instances: a heartbeat, or part of an answer to a question.
    Listed {
        /// The question that it answers.
        question: Option<QuestionId>,
        /// The message.
        list: Box<InstancesAnswer>,
    },
    /// An event of a cell.
    Event(Box<Event>),
    /// The answer to a start, or why there is none.
    Outcome {
        /// The wave.
        wave: WaveId,
        /// The answer. An error means that nothing of the wave was begun.
        answer: Result<Box<StartReply>, WireError>,
    },
    /// The manager's own echo arrived.
    Echo,
    /// Messages were lost, or the connection was.
    Interrupted,
    /// A command.
    Command {
        /// The recipient of the answer.
        to: CommandKey,
        /// The app.
        app: String,
        /// The command.
        command: AppCommand,
    },
    /// A request to move an instance, or for the state of such a move.
    Move {
        /// The recipient of the answer.
        to: CommandKey,
        /// The app.
        app: String,
        /// The move.
        order: MoveOrder,
    },
    /// An auctioneer with `--single` asks for the grant to accept requests, or gives it back.
    Grant {
        /// Whom the answer is for.
        to: CommandKey,
        /// The auctioneer.
        auctioneer: String,
        /// Which run of it, and what it wants.
        request: GrantRequest,
    },
    /// Something about a stored request.
    Task(TaskInput),
    /// Time passed.
    Tick,
    /// The process ends: give the lease back and do nothing more.
    Leave,
}

/// One output.
#[derive(Clone, Debug, PartialEq)]
pub enum ManagerOutput {
    /// Store a value; answered by [`ManagerInput::WriteEnded`].
    Write {
        /// The write.
        write: WriteId,
        /// The key.
        key: StoredKey,
        /// The value; none = delete the key.
        value: Option<Bytes>,
        /// The key's present revision, [`Revision::NONE`] if it must not exist; none = any.
        expected: Option<Revision>,
    },
    /// Send a start request to one auctioneer. Answered by [`ManagerInput::Outcome`] or [`TaskInput::Outcome`],
    /// depending on the form of its id, or not at all.
    Start(Arc<Request>),
    /// Send a stop to one cell.
    Stop {
        /// The cell.
        cell: Arc<str>,
        /// The message, which lists instances by id.
        stop: Stop,
    },
    /// Ask all cells for all their instances.
    Ask {
        /// The question.
        question: QuestionId,
    },
    /// Publish an event.
    Event(Box<Event>),
    /// Answer a command.
    Reply {
        /// The recipient.
        to: CommandKey,
        /// The answer.
        answer: Result<AppAnswer, WireError>,
    },
    /// Answer a move order or a question about it.
    Moved {
        /// The recipient.
        to: CommandKey,
        /// The answer.
        answer: Result<MoveAnswer, WireError>,
    },
    /// Answer an auctioneer.
    Granted {
        /// Whom.
        to: CommandKey,
        /// The answer; none if there is to be none, because this manager does not act.
        reply: Option<GrantReply>,
    },
    /// An output that only stored requests need.
    Task(Box<TaskOutput>),
}
