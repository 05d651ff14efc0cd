//! An auctioneer on a real nats-server, with hand-made cells and with real reps.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod bad_input;
mod cells;
mod faults;
mod harness;
mod placing;
mod questions;
mod repeats;
mod reps;
mod senders;
