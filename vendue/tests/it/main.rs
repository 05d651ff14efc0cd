//! The program as people and programs use it, on real clusters with a real nats-server.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

mod app_commands;
mod app_files;
mod apps;
mod bad_input;
mod bench;
mod cli_page;
mod commands;
mod common;
mod completions;
mod dea;
mod demo;
mod devices;
mod legacy;
mod lost;
mod managers;
mod offline;
mod operators;
mod policy;
mod python;
mod readme;
mod rebalance;
mod roles;
mod secure;
mod security_page;
mod sim;
mod single;
mod sources;
mod tasks;
mod tls;
mod two_accounts;
mod up;
