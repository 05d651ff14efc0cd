//! The messages of Cloud Foundry's Droplet Execution Agents (DEAs): written key for key and type for type like the
//! originals of early 2016, and readable as older and newer ones wrote them.
//!
//! A body is read with [`DeaBody::read`], which understands what it can and reports what was odd, and written with
//! `serde_json`. [`Estate`] follows DEAs by listening to them, [`Bridge`] turns them into cells, and [`Facade`] turns a
//! cell into a DEA. Like all state machines they are pure. Nothing here shows credentials: they are [`Hidden`].

mod advertise;
mod bridge;
mod cloud_controller;
mod droplet;
mod estate;
mod facade;
mod fields;
mod instances;
mod number;
mod others;
mod senders;
mod simulated;
mod staging;
mod staging_run;
mod start;
pub mod subjects;
#[cfg(test)]
mod tests;

pub use advertise::{
    DEFAULT_ZONE, DeaAdvertisement, DeaDiscover, DeaHello, DeaPlacementProperties, DeaShutdown,
    DeaStacks, DeaStagingAdvertisement, DeaStatus,
};
pub use bridge::{
    Bridge, BridgeAnswer, BridgeInput, BridgeInstanceState, BridgeOptions, BridgeOutput, MAX_SLOTS,
};
pub use cloud_controller::DeaChoice;
pub use droplet::{DropletInstance, DropletRun};
pub use estate::{Dea, DeaState, Estate, EstateChange, EstateInput, EstateOptions, MAX_DEAS};
pub use facade::{
    Facade, FacadeEvent, FacadeInput, FacadeOptions, FacadeOutput, FacadeRoom, FacadeStaged,
    FacadeStaging, MAX_FACADE_INSTANCES,
};
pub use fields::{DeaBody, DeaFields, DeaMalformed, DeaOddities, DeaRead, MAX_ODD};
pub use instances::{
    DeaExited, DeaFilter, DeaFind, DeaFound, DeaHeartbeat, DeaInstance, DeaInstanceState, DeaStats,
    DeaUpdate, DeaUsage,
};
pub use number::{DeaNumber, Hidden};
pub use others::{DeaMissing, DeaRoute, DeaSurplus};
pub use senders::{MAX_SENDERS, OddSender, OddSenders};
pub use simulated::{DeaMessage, SimulatedDeas};
pub use staging::{DeaStaged, DeaStagingBegun, DeaStagingFailed, DeaStagingStart, DeaStagingStop};
pub use staging_run::StagingRun;
pub use start::{DeaLimits, DeaStart};
