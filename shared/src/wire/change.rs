//! Advertisements and bids that say only what has changed.

use std::collections::BTreeMap;

use placement::{CellChange, Resources, Span};
use serde::{Deserialize, Serialize};

use super::{Envelope, WireError};
use crate::version::Version;
use crate::{
    clock::CellTime,
    ids::{AuctionId, Incarnation, InstanceId},
};

/// An advertisement or a bid of a cell of which only amounts and counts have changed since an earlier version.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// 1.
    pub v: Version,
    /// The auction that it bids in; none in an advertisement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auction: Option<AuctionId>,
    /// As in the advertisement.
    pub incarnation: Incarnation,
    /// The version that this leads to.
    pub seq: u64,
    /// The version on which it builds; whoever knows this one or a later one knows the cell afterwards.
    pub since: u64,
    /// The cell's own monotonic clock.
    pub clock_ms: CellTime,
    /// As in the advertisement.
    pub ttl: Span,
    /// The instance ids accepted since then, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<InstanceId>,
    /// As in the advertisement.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// The cell's name.
    pub cell: String,
    /// What has changed.
    #[serde(flatten)]
    pub change: CellChange,
}

/// A [`Change`] as it is read: without `flatten`, which would read everything twice.
#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    v: Version,
    cell: String,
    #[serde(default)]
    auction: Option<AuctionId>,
    incarnation: Incarnation,
    seq: u64,
    since: u64,
    #[serde(default)]
    clock_ms: CellTime,
    ttl: Span,
    #[serde(default)]
    recent: Vec<InstanceId>,
    available: Resources,
    #[serde(default)]
    starting: u32,
    #[serde(default, deserialize_with = "placement::object::counts")]
    apps: BTreeMap<String, u32>,
    #[serde(default)]
    tasks: u32,
    #[serde(default)]
    evacuating: bool,
    #[serde(default)]
    cordoned: bool,
    #[serde(default, deserialize_with = "placement::object::counts")]
    owners: BTreeMap<String, u32>,
    #[serde(default, deserialize_with = "placement::object::counts")]
    tags: BTreeMap<String, u32>,
    #[serde(default)]
    cpu_capped: u32,
    #[serde(default)]
    cpu_uncapped: u32,
}

/// Parses a [`Change`] and checks all but what depends on the cell, which [`CellChange::check`] does.
pub fn parse_change(body: &[u8]) -> Result<(Envelope, CellChange), WireError> {
    let fields: Fields = super::error::read(body)?;
    let change = CellChange {
        available: fields.available,
        starting: fields.starting,
        apps: fields.apps,
        tasks: fields.tasks,
        evacuating: fields.evacuating,
        cordoned: fields.cordoned,
        owners: fields.owners,
        tags: fields.tags,
        cpu_capped: fields.cpu_capped,
        cpu_uncapped: fields.cpu_uncapped,
    };
    let envelope = Envelope {
        v: fields.v,
        cell: fields.cell,
        auction: fields.auction,
        incarnation: fields.incarnation,
        seq: fields.seq,
        since: Some(fields.since),
        clock_ms: fields.clock_ms,
        ttl: Some(fields.ttl),
        recent: fields.recent,
        unchanged: false,
    };
    envelope.check()?;
    Ok((envelope, change))
}
