//! One file for each group of commands.

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
