//! What a report is, and what came of receiving one.

use std::{collections::BTreeMap, sync::Arc};

use placement::{Cell, Pool};
use shared::{
    AuctionId, InstanceId,
    wire::{CellReport, Envelope, WireError, likely_seq},
};

use super::Known;
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

/// The cell of a report, with its apps in it or beside it.
pub(super) struct Reported<'r> {
    cell: Cell,
    apps: Option<Vec<(&'r str, u32)>>,
}

impl From<Cell> for Reported<'_> {
    fn from(cell: Cell) -> Self {
        Self { cell, apps: None }
    }
}

impl Reported<'_> {
    /// How many apps it has.
    pub(super) fn apps(&self) -> usize {
        let beside = self.apps.as_ref().map(Vec::len);
        beside.unwrap_or(self.cell.counts.apps.len())
    }

    pub(super) fn put_into(self, pool: &mut Pool) {
        match self.apps {
            Some(apps) => pool.put_with_apps(self.cell, &apps),
            None => pool.put(self.cell),
        }
    }
}

/// The envelope of a report, and the rest if that was read at once. `known`: the cell of which it says that it is.
pub(super) fn read<'r>(
    body: &'r [u8],
    known: Option<&Known>,
) -> Result<(Envelope, Option<Reported<'r>>), WireError> {
    // most reports repeat a known version, whose rest need not be read; under load most are new
    let repeats = known.is_some_and(|known| likely_seq(body) == Some(known.seq));
    // its recent instances only matter where the answer to a start is missing
    let unanswered = |known: &Known| known.debits.iter().any(|d| d.answered_seq.is_none());
    let whole = if repeats {
        None
    } else {
        CellReport::read(body, known.is_some_and(unanswered))
    };
    match whole {
        Some(CellReport {
            envelope,
            cell,
            apps,
        }) => {
            let apps = Some(apps);
            Ok((envelope, Some(Reported { cell, apps })))
        }
        // also what cannot be read: here it is said what is wrong
        None => Envelope::parse(body, None).map(|envelope| (envelope, None)),
    }
}
