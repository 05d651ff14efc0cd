//! For tests only: what integration tests need to be independent of the machine's speed.
//!
//! - [`NatsServer`]: a real nats-server for one test, which ends with the test; [`cluster()`]: several that form one.
//! - [`eventually()`]: waits for a condition, with a deadline instead of a sleep.
//! - [`Link`]: a network link that can be blocked or cut.
//! - [`generators`]: valid cells and requests for property tests.
//! - [`lists`]: what cells report about their instances.
//!
//! Everything here panics on failure, as assertions do: a test could not handle it anyway.

mod cluster;
mod eventually;
pub mod generators;
mod link;
pub mod lists;
mod server;

pub use cluster::cluster;
pub use eventually::{Check, DEFAULT_DEADLINE, eventually, eventually_within};
pub use link::Link;
pub use nats_server::{Options, Port};
pub use server::{NatsServer, server_binary};
