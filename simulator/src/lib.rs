//! What would happen: the state machines that run in production (pool, batch, plan, ledger,
//! advertisement schedule) under virtual time, with faults, and what there is to see of it.

pub mod outcome;
pub mod report;
