//! One file for each group of commands.

use std::process::ExitCode;

pub(crate) mod capacity;
pub(crate) mod cells;
pub(crate) mod condition;
pub(crate) mod demo;
pub(crate) mod drain;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod health;
pub(crate) mod instances;
pub(crate) mod logs;
pub(crate) mod place;
pub(crate) mod policy;
pub(crate) mod ps;
pub(crate) mod roles;
pub(crate) mod run;
pub(crate) mod sim;
pub(crate) mod start;
pub(crate) mod stop;
pub(crate) mod up;
pub(crate) mod version;
pub(crate) mod wait;
pub(crate) mod web;

/// How a command ended that could be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// As it should.
    Well,
    /// Not as it should; what went wrong has been said.
    Badly,
    /// Not everything found a place; it has been said.
    NotPlaced,
    /// By Ctrl-C.
    Interrupted,
}

impl From<Done> for ExitCode {
    fn from(done: Done) -> Self {
        ExitCode::from(match done {
            Done::Well => 0,
            Done::Badly => 1,
            Done::NotPlaced => 3,
            Done::Interrupted => 130, // as shells say it: 128 + SIGINT
        })
    }
}
