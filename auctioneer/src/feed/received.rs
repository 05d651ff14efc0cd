//! Kinds of reports, and the result of receiving one.

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
    /// If the report was used: the cell, and the auction that it bids in.
    pub from: Option<(Arc<str>, Option<AuctionId>)>,
    /// Whether the cell was not in the pool before.
    pub joined: bool,
    /// If the cell withdrew or another one took its place: what was lost with it.
    pub left: Option<LostCell>,
    /// The cell to ask for its state: it bids "unchanged" since a report that was not received.
    pub ask_state: Option<Arc<str>>,
    /// Unanswered instances that the report lists as accepted.
    pub settled: Vec<InstanceId>,
    /// What is wrong with the report, if it was dropped.
    pub error: Option<WireError>,
}

/// A cell that left the pool, and what it was running according to its last advertisement and what was sent to it
/// since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostCell {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it has ever answered a question; a cell that has not may be made up.
    pub has_answered: bool,
    /// The ttl of its advertisements, milliseconds.
    pub ttl_ms: u64,
    /// Its long-running instances, by app.
    pub apps: BTreeMap<String, u32>,
    /// Its tasks.
    pub tasks: u32,
}

impl Received {
    /// The result of a report that cannot be used: nothing changes.
    pub(super) fn malformed(error: WireError, counters: &mut Counters) -> Self {
        counters.dropped_malformed += 1;
        Self {
            error: Some(error),
            ..Self::default()
        }
    }
}

/// The cell of a report, with its apps inside it or alongside it.
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
    /// Returns how many apps it has.
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

/// Reads the envelope of a report, and the rest if that was parsed along with it. `known` is the cell that the report
/// claims to be from.
pub(super) fn read<'r>(
    body: &'r [u8],
    known: Option<&Known>,
) -> Result<(Envelope, Option<Reported<'r>>), WireError> {
    // most reports repeat a known version, so the rest need not be read; under load most are new
    let repeats = known.is_some_and(|known| likely_seq(body) == Some(known.seq));
    // recent instances only matter while an answer to a start is missing
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
        // for reports that cannot be read, too: parsing the envelope tells what is wrong
        None => Envelope::parse(body, None).map(|envelope| (envelope, None)),
    }
}
