//! `vendue`: places work on cells over NATS. This program contains every role and every command.

// texts for people are built plainly: an extra allocation does not matter
#![allow(clippy::format_push_string)]

mod auth;
mod bench;
mod cli;
mod cluster;
mod commands;
mod complete;
mod context;
mod output;
mod process_usage;
mod report;
mod senders;
mod table;
mod terminal;
#[cfg(test)]
mod tests;
mod usage;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

/// With the system's allocator, an auctioneer under load spends a fifth of its time allocating.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // before anything else: there is a supervisor for each instance, so it must stay small
    match std::env::args_os().nth(1) {
        Some(first) if first == "supervise" => return rep::supervisor::main(),
        Some(first) if first == rep::supervisor::STEP => return rep::supervisor::step(),
        _ => {}
    }
    // nobody reads error messages about an unfinished line
    match complete::is_asked().then(|| complete::answer(&cli::Cli::command())) {
        Some(Ok(true)) => return ExitCode::SUCCESS,
        Some(Err(_)) => return ExitCode::FAILURE,
        Some(Ok(false)) | None => {}
    }
    match cli::Cli::try_parse() {
        Ok(cli) => cli::run(&cli),
        Err(error) => report::report_usage(&error, std::env::args_os().skip(1)),
    }
}
