//! A cell on a real nats-server.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod cell;
mod harness;
mod killed;
mod messages;
mod operators;
mod process;
