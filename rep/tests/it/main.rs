//! A cell on a real nats-server.
#![allow(clippy::unwrap_used)] // a test that fails may panic

mod apart;
mod cell;
mod harness;
mod health;
mod https;
mod isolation;
mod killed;
mod limits;
mod messages;
mod operators;
mod process;
mod secrets;
mod service;
mod sources;
mod usage;
mod web;
