//! The inputs and outputs of the manager's state machine.

mod tasks;

use std::sync::Arc;

use bytes::Bytes;
use placement::{Request, Span};
use shared::{
    Incarnation, InstanceId,
    wire::{Event, InstancesAnswer, MoveState, StartReply, Stop, WireError},
};

use crate::{
    definition::AppDefinition,
    differences::Differences,
    ids::{AppUid, BucketId, CommandKey, QuestionId, Revision, WaveId, WriteId},
    stored::StoredKey,
};

pub use tasks::{TaskAnswer, TaskCommand, TaskInput, TaskOutput};

/// What an advertisement says that matters here. Its ttl is 0 when the cell leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct CellHeard {
    /// The cell.
    pub cell: String,
    /// The run of its rep.
    pub incarnation: Incarnation,
    /// The version of its state.
    pub seq: u64,
    /// How long it is believed.
    pub ttl: Span,
    /// It accepts no work, and its instances will end.
    pub draining: bool,
    /// They will within a grace period, as its rep was told to end.
    pub leaving: bool,
    /// The last instances that it accepted.
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
    /// This is what is to run.
    Put(Box<AppDefinition>),
    /// What would change with this definition? Nothing is changed.
    Try(Box<AppDefinition>),
    /// As before, but this often.
    Scale(u32),
    /// It is to be as it was in a bucket that was lost: what runs of it is taken over.
    Restore {
        /// The id of that bucket, which this one gets if it has no apps.
        bucket: BucketId,
        /// The creation of the app.
        uid: AppUid,
        /// Its version.
        version: u32,
        /// Nothing of it is to run.
        stopped: bool,
        /// What is to run.
        definition: Box<AppDefinition>,
    },
    /// Nothing of it is to run.
    Stop,
    /// It is to run again.
    Start,
    /// Every instance is replaced by a new one, so many at once.
    Restart {
        /// As in the definition if not given.
        max_in_flight: Option<u32>,
    },
    /// It is to be gone.
    Delete,
    /// Return to the version before.
    Undo,
    /// The rollout waits.
    Pause,
    /// The rollout goes on.
    Resume,
}

/// The answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppAnswer {
    /// This creation of the app.
    pub uid: AppUid,
    /// The version that is wanted now.
    pub version: u32,
    /// Whether the command changed anything, or would.
    pub changed: bool,
    /// There was no such app before.
    pub created: bool,
    /// What is different, field by field.
    pub differences: Differences,
}

/// An instance is to be moved to another cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveOrder {
    /// Names this move: the same id is the same move.
    pub id: String,
    /// Which instance.
    pub index: u32,
    /// Where it runs.
    pub from: String,
}

/// How far a move is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveAnswer {
    /// It goes on, or has ended.
    pub state: MoveState,
    /// Where the instance runs now, of one that was moved.
    pub cell: Option<Arc<str>>,
    /// Why it failed.
    pub reason: Option<String>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum ManagerInput {
    /// A value of the bucket as its watch shows it; none = the key was deleted: the revision of a deletion is
    /// what the next write of the key replaces, so deletions are shown, too.
    Kv {
        /// The key.
        key: String,
        /// Its revision.
        revision: Revision,
        /// The value.
        value: Option<Bytes>,
    },
    /// All values that the bucket has were shown.
    KvReady {
        /// The bucket's last revision.
        revision: Revision,
    },
    /// The watch ended. All values are shown again before the next [`ManagerInput::KvReady`].
    KvInterrupted,
    /// A write has ended. Every [`ManagerOutput::Write`] is answered once.
    WriteEnded {
        /// Which one.
        write: WriteId,
        /// How.
        result: WriteResult,
    },
    /// An advertisement.
    Cell(CellHeard),
    /// One message of a list of instances: a heartbeat, or part of an answer to a question.
    Listed {
        /// Which question it answers.
        question: Option<QuestionId>,
        /// The message.
        list: Box<InstancesAnswer>,
    },
    /// An event of a cell.
    Event(Box<Event>),
    /// The answer to a start, or why there is none.
    Outcome {
        /// Which wave.
        wave: WaveId,
        /// The answer. An error says that nothing of the wave was begun.
        answer: Result<Box<StartReply>, WireError>,
    },
    /// The manager's own echo arrived.
    Echo,
    /// Messages were lost, or the connection was.
    Interrupted,
    /// A command.
    Command {
        /// Whom the answer is for.
        to: CommandKey,
        /// The app.
        app: String,
        /// What is wanted of it.
        command: AppCommand,
    },
    /// A move is asked for, or how far it is.
    Move {
        /// Whom the answer is for.
        to: CommandKey,
        /// The app.
        app: String,
        /// What is to be moved.
        order: MoveOrder,
    },
    /// Something about a stored request.
    Task(TaskInput),
    /// Time passed.
    Tick,
    /// The process ends: give the lease back, and do nothing more.
    Leave,
}

/// One output.
#[derive(Clone, Debug, PartialEq)]
pub enum ManagerOutput {
    /// Store a value; answered by [`ManagerInput::WriteEnded`].
    Write {
        /// Which write.
        write: WriteId,
        /// The key.
        key: StoredKey,
        /// The value; none deletes the key.
        value: Option<Bytes>,
        /// The key's present revision, [`Revision::NONE`] if it must not exist; none = whatever it is.
        expected: Option<Revision>,
    },
    /// Send a start request to one auctioneer; answered by [`ManagerInput::Outcome`] or [`TaskInput::Outcome`], by the
    /// form of its id, or not at all.
    Start(Arc<Request>),
    /// Send a stop to one cell.
    Stop {
        /// The cell.
        cell: Arc<str>,
        /// The message, which names instances by their ids.
        stop: Stop,
    },
    /// Ask all cells for all their instances.
    Ask {
        /// Which question.
        question: QuestionId,
    },
    /// Publish an event.
    Event(Box<Event>),
    /// Answer a command.
    Reply {
        /// Whom.
        to: CommandKey,
        /// The answer.
        answer: Result<AppAnswer, WireError>,
    },
    /// Answer a question about a move.
    Moved {
        /// Whom.
        to: CommandKey,
        /// The answer.
        answer: Result<MoveAnswer, WireError>,
    },
    /// What only stored requests need.
    Task(Box<TaskOutput>),
}
