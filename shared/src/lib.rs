//! What all processes share: all subjects and messages, connecting to NATS, scatter-gather requests, logging and
//! shutdown. Knows nothing about auctions, ledgers or the command line.

pub mod ask;
mod attempt;
pub mod clock;
mod ids;
mod log_limit;
pub mod nats;
pub mod permissions;
pub mod proc;
mod role;
pub mod shutdown;
pub mod size;
mod subjects;
pub mod telemetry;
mod version;
mod wave;
pub mod wire;

pub use attempt::{AttemptId, MAX_STORED_ID, check_stored_id};
pub use ids::{AuctionId, Incarnation, InstanceId, RequestId};
pub use log_limit::LogLimit;
pub use subjects::{
    ANSWER_TO, AnswerSubject, AnswerTo, EventSubject, LogSubject, Subjects, check_prefix,
    may_answer,
};
pub use version::{VERSION, Version};
pub use wave::{AppUid, BucketId, WaveId};
