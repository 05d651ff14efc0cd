//! The manager: keeps apps running. It compares what is wanted, which is stored in a bucket of JetStream's key-value
//! store, with what cells report, and sends start requests to auctioneers and stops to cells. A pure state machine
//! over [`ManagerInput`] and [`ManagerOutput`], without clock, I/O or unseeded randomness; `shell` has these.
//!
//! # Terms
//!
//! - An **app** has a uid for each creation, a version that grows with each change of what runs, and `instances` indices
//!   from 0. What a user writes is [`AppDefinition`]; what is stored, and under which keys, is in `stored`.
//! - A **wave** is one start request of one app for some of its indices. Its id names bucket, uid, version and number
//!   ([`WaveId`]), cells report it with each instance, and so an instance shows whose it is. What has no such id, or
//!   one of another bucket or of an unknown uid, is never touched.
//! - The **lease** says which of several managers acts.
//!
//! # Parts
//!
//! | file | |
//! |---|---|
//! | `definition`, `rules`, `differences` | what a user writes, what is wrong with it, what has changed |
//! | `stored`, `ids` | what is stored, and the ids in it |
//! | `io` | inputs and outputs |
//! | `manager` | passes each input to its part, and does what is due |
//! | `lease`, `office` | who acts |
//! | `bucket` | what the watch of the bucket shows |
//! | `sightings`, `cells`, `clocks` | what cells say, and what their silence means |
//! | `crashes` | what the end of an instance means |
//! | `apps`, `instances`, `parts` | what is known |
//! | `decide`, `look` | what is to be done for one app: reads only |
//! | `converge` | carries that out, within the bounds |
//! | `waves` | starts: stored, sent, repeated, answered |
//! | `moves`, `relocation` | an instance to another cell, as an operator asks |
//! | `commands` | `put`, `scale`, `stop` and so on: compare-and-set of one value |
//! | `status` | what is told about an app |
//! | `tasks` | stored requests: tasks, and starts that must not be lost |
//! | `shell` | the I/O around all of it: NATS, the buckets in JetStream, requests |
//!
//! # When it acts
//!
//! Only while it holds the lease, sent the last acknowledged renewal less than 5 s ago, hears messages, knows the
//! bucket, and meets no value of a newer format. At other times it looks: it takes note of everything, so that it can
//! take over.
//!
//! A cell is lost when nothing was heard of it for its ttl on two clocks: one passes only while messages arrive, the
//! other only between acknowledged renewals of the lease. What a lost cell ran is `suspect`: it is replaced, and may
//! still run. An instance is gone when its cell says so: by an event, by a complete list of a state in which it
//! would have to be, or by a new incarnation. After an interruption, and when the lease was gained, silence proves
//! nothing for one ttl: that is called settling.
//!
//! # The order of decisions
//!
//! For an app for which something has changed, and for each app every 30 s:
//!
//! 1. What was deleted or stopped by a user ends, and so do indices that a user scaled away.
//! 2. Indices where nothing is get a wave: at once, or when the wait after a crash is over. While nothing of an app
//!    is there and it crashes, only one index is tried.
//! 3. The rollout takes a step.
//! 4. What is on draining cells, or is to be moved, is replaced, then stopped.
//! 5. If nothing is missing and a ttl has passed since settling began, duplicates and indices that nobody asked to
//!    stop end, a few at a time.
//!
//! Waves are begun for instances on draining cells first, then by the part of the app that is missing, then for what
//! crashed, then for rollouts, then for moves. A wave is stored by compare-and-set before it is sent, so of two managers that both
//! believe to act only one starts it; without an answer it is sent again, word for word, after the cells were asked.
//!
//! # Cost
//!
//! Nothing walks over all instances: a report costs one look-up for each instance it lists, and an app is looked at when
//! one of its instances changes, when something of it is due, and every 30 s. Large apps are looked at after a pause in
//! proportion to their size.

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
