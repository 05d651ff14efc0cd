//! Placement. Pure functions over plain data: no clock, no I/O, no unseeded randomness.
//!
//! A [`Pool`] contains the known cells. [`Pool::plan`] runs a batch auction: it takes [`Job`]s and a [`Policy`], and
//! returns a [`Decision`] for each job, with the reasons.
//!
//! Read `plain.rs` first: the plain engine takes one job through the stages of a policy, and defines what the fast
//! engines (`fast/`) must decide as well. `planner.rs` is the auction around an engine.

mod auction_view;
mod batch;
mod capacity;
mod cell;
mod context;
mod decision;
mod devices;
mod droplet;
mod engine;
mod expected;
mod fast;
mod fast_map;
pub mod fields;
mod fit;
mod fragmentation;
mod free;
mod grouping;
mod health;
mod invalid;
mod near;
pub mod object;
mod objective;
mod plain;
mod planner;
mod policy;
mod pool;
mod preference;
pub mod random;
mod rate;
mod reasons;
mod rebalance;
mod report;
mod request;
mod resource_name;
mod resources;
mod run;
mod scarcity;
mod secret;
mod source;
mod stages;
mod tie;
mod times;
mod totals;
mod trace;
mod traits;
mod words;
mod worth;

pub use capacity::{Capacity, ZoneCapacity};
pub use cell::{
    AttributeField, AttributeShape, Attributes, Cell, CellChange, Counts, Debited, Platform,
    RecentStart,
};
pub use context::PlanContext;
pub use decision::{
    Decision, Explain, Explanation, Plan, Rating, RatingReport, StageReport, Tally, Unplaced,
    Verdict,
};
pub use devices::{
    DeviceNeed, DeviceSet, DeviceShare, DeviceShares, FreeDevices, MAX_DEVICE_SETS, MAX_DEVICES,
    check_device_shares,
};
pub use droplet::{Droplet, Staging};
pub use expected::{ExpectedSize, ExpectedWork, MAX_EXPECTED_SIZES, MAX_LEARNT_REQUESTS, Size};
pub use fast_map::{FastMap, FastSet};
pub use health::{CheckKind, HealthCheck};
pub use invalid::{Invalid, check_name};
pub use objective::{Constants, Objective, ObjectiveError};
pub use policy::{Policy, PolicyError};
pub use pool::Pool;
pub use preference::Preferences;
pub use rate::{NoRate, Rate};
pub use rebalance::{Evenness, LoadBy, Movable, Move, MoveReason, Rebalance, Usage};
pub use report::{DecisionOutcome, DecisionReport, Report, joined};
pub use request::{Job, Kind, MAX_INSTANCES, Request, is_traceparent};
pub use resource_name::ResourceName;
pub use resources::{Amounts, MAX_AMOUNT, Resource, Resources};
pub use run::{Form, Run};
pub use secret::{MAX_SECRETS, Secret};
pub use source::{RunSource, is_sha256, shown_url};
pub use times::{NoDate, Span, Stamp, Timestamp};
pub use traits::Trait;
pub use words::{cut, in_json_terms, nearest};
