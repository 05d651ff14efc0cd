//! The auctioneer: admission, the pool feed, bids, the batch auction, dispatch.
//!
//! The behaviour is in [`Auctioneer`], a pure state machine over [`AuctioneerInput`] and [`AuctioneerOutput`]; [`run`]
//! connects it to NATS and to timers. It keeps no durable state: after a restart it asks the cells to advertise and
//! continues.

pub mod admission;
mod answers;
mod auction;
mod auctioneer;
mod bidding;
mod cell_events;
mod claims;
mod counters;
mod dispatches;
pub mod feed;
mod grant;
mod groups;
mod ids;
mod io;
mod limits;
mod lookups;
mod namesake;
mod other_answer;
mod outcomes;
mod parts;
mod past_auctions;
mod pool_time;
mod questions;
mod queued;
mod rejections;
mod reply;
mod report;
mod requests;
mod shell;
pub mod sim;
mod stops;
mod ticket;

mod turn;
mod warm_up;

#[cfg(test)]
mod tests;

pub use admission::read_announcement;
pub use auction::START_EXPIRES_MS;
pub use auctioneer::Auctioneer;
pub use bidding::{BID_WAIT_MS, GATHER_MS};
pub use cell_events::MAX_CELL_EVENTS;
pub use counters::Counters;
pub use dispatches::START_WAIT_MS;
pub use grant::{CLOSE_MS, Grant, MARGIN_MS, RENEW_MS, Standing, WAIT_MS};
pub use ids::{DispatchId, EchoToken, GroupId, LookupId, PoolVersion, ReplyKey, StopId, TicketId};
pub use io::{
    AdmittedRequest, Announcement, AuctioneerInput, AuctioneerOutput, DryRun, Rejected,
    StartMessage,
};
pub use limits::Limits;
pub use outcomes::{MAX_OUTCOMES, REMEMBER_MS};
pub use parts::Settings;
pub use pool_time::{ECHO_MS, MAX_GAP_MS};
pub use requests::{DEFAULT_DEADLINE_MS, MAX_AUCTIONS, MAX_BATCH, MAX_WAITING, REQUEUE_MS};
pub use shell::{AuctioneerConfig, AuctioneerError, run};
pub use warm_up::WarmUp;
