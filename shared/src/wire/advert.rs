//! Advertisements and bids.

use placement::{Cell, Span};
use serde::{Deserialize, Serialize};

use super::{WireError, code};
use crate::version::Version;
use crate::{
    clock::CellTime,
    ids::{AuctionId, Incarnation, InstanceId},
};

/// A cell's advertisement, its full bid, and the answer to `.state`: the cell, and how long this is
/// valid. Written only; read with [`Envelope::parse`] and [`parse_cell`], so that the large part is
/// parsed only when it is new.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advert {
    /// 1.
    pub v: Version,
    /// The auction it bids in; none in an advertisement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auction: Option<AuctionId>,
    /// A new one each time the rep starts.
    pub incarnation: Incarnation,
    /// The ledger's version: it increases with every change of the cell's state.
    pub seq: u64,
    /// The cell's own monotonic clock.
    pub clock_ms: CellTime,
    /// How long it is valid from when it is received; `"0s"` withdraws the cell.
    pub ttl: Span,
    /// The last 64 instance ids accepted, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<InstanceId>,
    /// Of a draining cell: its rep was told to end, and waits for its grace period at most.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub leaving: bool,
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
}

/// A bid of a cell whose last advertisement is still right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bid {
    /// 1.
    pub v: Version,
    /// The auction it bids in.
    pub auction: AuctionId,
    /// The cell.
    pub cell: String,
    /// As in the advertisement.
    pub incarnation: Incarnation,
    /// As in the advertisement.
    pub seq: u64,
    /// The cell's clock now.
    pub clock_ms: CellTime,
    /// Always true.
    pub unchanged: bool,
}

/// To every cell: a request for a bid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BidRequest {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The auction.
    pub auction: AuctionId,
}

/// The part of an advertisement or a bid that identifies its sender and version, and says how long
/// it is valid.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Envelope {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The cell's name.
    pub cell: String,
    /// The auction it bids in.
    #[serde(default)]
    pub auction: Option<AuctionId>,
    /// A new one each time the rep starts.
    pub incarnation: Incarnation,
    /// The ledger's version.
    pub seq: u64,
    /// The cell's own monotonic clock.
    #[serde(default)]
    pub clock_ms: CellTime,
    /// How long it is valid; absent in a bid without change.
    #[serde(default)]
    pub ttl: Option<Span>,
    /// The last instance ids accepted.
    #[serde(default)]
    pub recent: Vec<InstanceId>,
    /// The last advertisement is still right; the message has no cell.
    #[serde(default)]
    pub unchanged: bool,
}

impl Envelope {
    /// Reads the envelope of a body, and checks its cell against the one in the subject, if that
    /// has one.
    pub fn parse(body: &[u8], subject_cell: Option<&str>) -> Result<Self, WireError> {
        let envelope: Self = super::error::read(body)?;
        placement::check_name("cell", &envelope.cell)?;
        if envelope.recent.len() > 64 {
            let message = format!("recent: {} ids; expected at most 64", envelope.recent.len());
            return Err(WireError::new(code::INVALID_REQUEST, message));
        }
        match subject_cell {
            Some(cell) if cell != envelope.cell => Err(WireError {
                code: code::INVALID_REQUEST.into(),
                field: Some("cell".into()),
                message: format!(
                    "cell: {:?} advertised on the subject of {cell:?}",
                    envelope.cell
                ),
            }),
            _ => Ok(envelope),
        }
    }
}

/// Reads and checks the cell of an advertisement or a full bid. An app without instances is not there.
pub fn parse_cell(body: &[u8]) -> Result<Cell, WireError> {
    let mut cell: Cell = super::error::read(body)?;
    cell.check()?;
    cell.counts.apps.retain(|_, count| *count > 0);
    Ok(cell)
}
