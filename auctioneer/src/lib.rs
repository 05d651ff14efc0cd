//! The front door for start requests: the pool feed, bid gathering, the batch auction, dispatch.
//!
//! The behaviour is in [`Auctioneer`], a pure state machine over [`AuctioneerInput`] and [`AuctioneerOutput`]; [`run`]
//! moves bytes and timers between it and NATS. It keeps nothing that matters: killed and started
//! again it asks the cells to advertise and goes on.

pub mod admission;
mod answers;
mod auction;
mod batch;
mod capacity;
mod counters;
pub mod feed;
mod flow;
mod ids;
mod io;
mod memory;
mod questions;
mod queued;
mod repeats;
mod reply;
mod report;
mod ring;
mod settle;
mod shell;
pub mod sim;
mod stops;
mod ticket;
mod warm_up;

#[cfg(test)]
mod tests;

/// Ids are made by clients, so the hash is seeded; it is several times as fast as the default one.
type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
/// As [`HashMap`].
type HashSet<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;

pub use auction::{
    Auctioneer, BID_WAIT_MS, DEFAULT_DEADLINE_MS, GATHER_MS, MAX_AUCTIONS, MAX_BATCH, MAX_WAITING,
    REQUEUE_MS, START_EXPIRES_MS, START_WAIT_MS, Settings,
};
pub use counters::Counters;
pub use flow::{ECHO_MS, MAX_GAP_MS};
pub use ids::{DispatchId, GroupId, LookupId, ReplyKey, StopId, TicketId};
pub use io::{AdmittedRequest, AuctioneerInput, AuctioneerOutput, DryRun, Rejected, StartMessage};
pub use memory::{MAX_OUTCOMES, REMEMBER_MS};
pub use shell::{AuctioneerError, Config, run};
pub use warm_up::WarmUp;
