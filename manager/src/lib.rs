//! The manager: keeps apps running. It compares the desired state, which is stored in a bucket of JetStream's key-value
//! store, with what cells report, and sends start requests to auctioneers and stops to cells. It is a pure state
//! machine over [`ManagerInput`] and [`ManagerOutput`], without clock, I/O or unseeded randomness; `shell` provides
//! these.
//!
//! # Terms
//!
//! - An **app** has a uid for each creation, a version that grows with each change of what runs, and `instances` indices
//!   from 0. What a user writes is [`AppDefinition`]; what is stored, and under which keys, is in `stored`.
//! - A **wave** is one start request for some indices of one app. Its id names bucket, uid, version and number
//!   ([`WaveId`]). Cells report it with each instance, which shows whose instance it is. Instances without such an id,
//!   or with one of another bucket or of an unknown uid, are never touched.
//! - The **lease** decides which of several managers acts.
//!
//! # Parts
//!
//! | file | |
//! |---|---|
//! | `definition`, `rules`, `differences` | what a user writes, what is wrong with it, what has changed |
//! | `stored`, `ids` | what is stored, and the ids in it |
//! | `io` | inputs and outputs |
//! | `manager` | passes each input to the part it concerns, and does what is due |
//! | `lease`, `office` | which manager acts |
//! | `grants` | which of the auctioneers with `--single` accepts requests |
//! | `bucket` | what the watch of the bucket shows |
//! | `sightings`, `cells`, `clocks` | what cells report, and what their silence means |
//! | `crashes` | what the end of an instance means |
//! | `apps`, `instances`, `parts` | what is known |
//! | `decide`, `look` | what is to be done for one app: reads only |
//! | `converge` | carries that out, within the bounds |
//! | `waves` | starts: stored, sent, repeated, answered |
//! | `moves`, `relocation` | moves an instance to another cell, as an operator asks |
//! | `commands` | `put`, `scale`, `stop` and so on: compare-and-set of one value |
//! | `status` | what is reported about an app |
//! | `tasks` | stored requests: tasks, and starts that must not be lost |
//! | `shell` | the I/O around all of it: NATS, the buckets in JetStream, requests |
//!
//! # When it acts
//!
//! It acts only while it holds the lease, sent the last acknowledged renewal less than 5 s ago, hears messages, knows
//! the bucket, and finds no value of a newer format. Otherwise it only observes: it records everything, so that it can
//! take over.
//!
//! A cell is lost when nothing was heard of it for its ttl on two clocks: one advances only while messages arrive, the
//! other only between acknowledged renewals of the lease. Instances of a lost cell are `suspect`: they are replaced,
//! and may still run. An instance is gone when its cell says so: by an event, by a complete list of a state in which it
//! would have to be, or by a new incarnation. After an interruption, and after the lease was gained, silence proves
//! nothing for one ttl; this is called settling.
//!
//! # The order of decisions
//!
//! When something has changed for an app, and for each app every 30 s:
//!
//! 1. What a user deleted or stopped ends, and so do indices that a user scaled away.
//! 2. Indices where nothing is get a wave, at once or when the wait after a crash is over. While an app crashes and
//!    nothing of it is there, only one index is tried.
//! 3. The rollout takes a step.
//! 4. Instances that are on draining cells or are to be moved are replaced, then stopped.
//! 5. If nothing is missing and a ttl has passed since settling began, duplicates and indices that nobody asked to
//!    stop end, a few at a time.
//!
//! Waves are begun for instances on draining cells first, then by the share of the app that is missing, then for
//! crashed instances, then for rollouts, then for moves. A wave is stored by compare-and-set before it is sent, so if
//! two managers both believe they act, only one of them starts it. Without an answer it is sent again, word for word,
//! after the cells were asked.
//!
//! # Cost
//!
//! Nothing iterates over all instances: a report costs one look-up for each instance it lists, and an app is looked at
//! when one of its instances changes, when something of it is due, and every 30 s. Looks at a large app are spaced by
//! pauses in proportion to its size.

mod apps;
mod bucket;
mod cells;
mod clocks;
mod commands;
mod converge;
mod counters;
mod crashes;
mod decide;
mod definition;
mod differences;
mod gone;
mod grants;
mod ids;
mod instances;
mod io;
mod lease;
mod look;
mod manager;
mod moves;
mod office;
mod parts;
mod relocation;
mod rules;
mod shell;
mod sightings;
mod status;
mod stored;
mod tasks;
mod waves;

#[cfg(test)]
mod tests;

pub use apps::SWEEP_MS;
pub use cells::MAX_CELLS;
pub use clocks::{ACT_MS, MAX_PAUSE_MS};
pub use counters::ManagerCounters;
pub use definition::{AppDefinition, MAX_DEFINITION};
pub use differences::Differences;
pub use grants::{GRANT_MS, GrantReply, Grants};
pub use ids::{AppUid, BucketId, CommandKey, QuestionId, Revision, WaveId, WriteId};
pub use io::{
    AppAnswer, AppCommand, CellHeard, ManagerInput, ManagerOutput, MoveAnswer, MoveOrder,
    TaskAnswer, TaskCommand, TaskInput, TaskOutput, WriteResult,
};
pub use lease::{LEASE_MS, RENEW_MS};
pub use manager::Manager;
pub use moves::MAX_MOVES;
pub use parts::ManagerSettings;
pub use rules::{CrashPolicy, UpdateOrder, UpdateRules};
pub use shell::{BucketConfig, ManagerConfig, ManagerError, run};
pub use stored::{
    AppRecord, Before, FORMAT, GoneRecord, HISTORY, HistoryRecord, LeaseRecord, MAX_FORMER,
    MAX_GONE, MAX_STORED_CRASHES, MetaRecord, RolloutPhase, RolloutRecord, StateRecord, StoredKey,
    StoredWave, Unusable, read_stored,
};
pub use tasks::{
    KEPT_MS, MAX_DURABLE_INSTANCES, MAX_FAILURES, MAX_OPEN, MAX_RESULTS, MAX_STORED, Submitted,
    TASK_REPLY_MS, TaskDefinition, TaskEnd, TaskPhase, TaskRecord,
};
pub use waves::{MAX_OUTSTANDING, REPLY_MS, RETRY_MS};
