//! What a report is, and what came of receiving one.

use std::{collections::BTreeMap, sync::Arc};

use shared::{AuctionId, InstanceId, wire::WireError};

use crate::counters::Counters;

/// The kinds of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// An advertisement.
    Advert,
    /// A bid.
    Bid,
    /// The answer to `.state`.
    State,
}

/// The result of receiving a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// If the report was used: the cell, and the auction for which it bids.
    pub from: Option<(Arc<str>, Option<AuctionId>)>,
    /// The cell was not in the pool before.
    pub joined: bool,
    /// The cell withdrew, or another one made room for it; what that was running.
    pub left: Option<LostCell>,
    /// Its state must be asked for: it bids "unchanged" since a report that was not received.
    pub ask_state: Option<Arc<str>>,
    /// Unanswered instances that the report lists as accepted.
    pub settled: Vec<InstanceId>,
    /// What is wrong with the report: it was dropped.
    pub error: Option<WireError>,
}

/// A cell that left the pool, with what it was running: from its last advertisement and what was
/// sent to it since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostCell {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it has ever answered a question: one that has not may be made up.
    pub has_answered: bool,
    /// The ttl of its advertisements, milliseconds.
    pub ttl_ms: u64,
    /// Its long-running instances, by app.
    pub apps: BTreeMap<String, u32>,
    /// Its tasks.
    pub tasks: u32,
}

impl Received {
    /// A report that cannot be used changes nothing.
    pub(super) fn malformed(error: WireError, counters: &mut Counters) -> Self {
        counters.dropped_malformed += 1;
        Self {
            error: Some(error),
            ..Self::default()
        }
    }
}
