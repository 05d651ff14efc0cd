//! What would happen: the state machines that run in production (pool, batch, plan, ledger,
//! advertisement schedule) under virtual time, with faults, and what there is to see of it.

pub mod demand;
pub mod era;
pub mod measure;
pub mod outcome;
pub mod random;
pub mod trace;
pub mod workload;
