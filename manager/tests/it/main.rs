//! Managers on a real nats-server with JetStream, with a real auctioneer and real reps.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod faults;
mod harness;
mod requests;
mod servers;
