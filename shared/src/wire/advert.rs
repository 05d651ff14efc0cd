//! Advertisements and bids.

use placement::{Cell, Span};
use serde::{Deserialize, Serialize};

use super::{Version, WireError, code};
use crate::{AuctionId, Incarnation, InstanceId, clock::CellTime};

/// A cell's advertisement, its full bid, and the answer to `.state`: the cell and how long the word
/// holds. Written only; read with [`Envelope::parse`] and [`parse_cell`], so that the large part is
/// parsed only when it is new.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advert {
    /// 1.
    pub v: Version,
    /// The auction it bids in; none in an advertisement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auction: Option<AuctionId>,
    /// A new one each time the cell's program starts.
    pub incarnation: Incarnation,
    /// The ledger's version: it grows with every change of what the cell says of itself.
    pub seq: u64,
    /// The cell's own monotonic clock.
    pub clock_ms: CellTime,
    /// How long the word holds from when it is heard; `"0s"` = I am leaving.
    pub ttl: Span,
    /// The last 64 instance ids accepted, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recent: Vec<InstanceId>,
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
}

/// A bid that says "my last advertisement still holds".
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

/// "Bid now", to every cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BidRequest {
    /// 1.
    #[serde(default)]
    pub v: Version,
    /// The auction.
    pub auction: AuctionId,
}

/// The part of an advertisement or a bid that says who speaks, of what version, for how long.
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
    /// A new one each time the cell's program starts.
    pub incarnation: Incarnation,
    /// The ledger's version.
    pub seq: u64,
    /// The cell's own monotonic clock.
    #[serde(default)]
    pub clock_ms: CellTime,
    /// How long the word holds; a bid without change says none.
    #[serde(default)]
    pub ttl: Option<Span>,
    /// The last instance ids accepted.
    #[serde(default)]
    pub recent: Vec<InstanceId>,
    /// The last advertisement still holds; nothing else is in this message.
    #[serde(default)]
    pub unchanged: bool,
}

impl Envelope {
    /// Reads the envelope of a body and holds it against the subject's cell, where there is one.
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
    cell.apps.retain(|_, count| *count > 0);
    Ok(cell)
}
