//! Kinds of reports, and the result of receiving one.

use std::{collections::BTreeMap, sync::Arc};

use placement::{Cell, CellChange, Pool};
use shared::{
    AuctionId, InstanceId,
    wire::{CellReport, Envelope, WireError, likely_version, parse_change},
};

use super::{Debit, Known};
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

/// What a report says of its cell.
pub(super) enum Reported<'r> {
    Cell(Cell),
    /// The cell with its apps alongside it.
    WithApps(Cell, Vec<(&'r str, u32)>),
    /// What has changed since a known version.
    Change(CellChange),
}

impl From<Cell> for Reported<'_> {
    fn from(cell: Cell) -> Self {
        Self::Cell(cell)
    }
}

impl Reported<'_> {
    /// Returns how many apps it has.
    pub(super) fn apps(&self) -> usize {
        match self {
            Self::Cell(cell) => cell.counts.apps.len(),
            Self::WithApps(_, apps) => apps.len(),
            Self::Change(change) => change.apps.len(),
        }
    }

    /// Checks what depends on the cell as it is known.
    pub(super) fn check(&self, known: Option<&Cell>) -> Result<(), WireError> {
        match (self, known) {
            (Self::Change(change), Some(known)) => Ok(change.check(known)?),
            _ => Ok(()),
        }
    }

    /// Takes it over into the pool, where the cell has the debits of `shown`, which it shows, and of `debits`.
    pub(super) fn put_into<'d>(
        self,
        pool: &mut Pool,
        name: &str,
        shown: &'d [Debit],
        debits: &'d [Debit],
    ) {
        match self {
            Self::Cell(cell) => pool.put(cell),
            Self::WithApps(cell, apps) => pool.put_with_apps(cell, &apps),
            Self::Change(change) => {
                let debited = |debit: &'d Debit| (&*debit.job.request, debit.devices.as_deref());
                let [shown, hidden] = [shown, debits].map(|debits| debits.iter().map(debited));
                return pool.change(name, &change, shown, hidden);
            }
        }
        for debit in debits {
            pool.debit(name, &debit.job, debit.devices.as_deref());
        }
    }
}

/// Reads the envelope of a report, and the rest if that was parsed along with it. `known` is the cell that the report
/// claims to be from.
pub(super) fn read<'r>(
    body: &'r [u8],
    known: Option<&Known>,
) -> Result<(Envelope, Option<Reported<'r>>), WireError> {
    let likely = likely_version(body);
    // most reports repeat a known version, so the rest need not be read; under load most are new
    let repeats = known.is_some_and(|known| likely.is_some_and(|likely| likely.seq == known.seq));
    let read = if repeats {
        None
    } else if likely.is_some_and(|likely| likely.is_change) {
        let change = parse_change(body).ok();
        change.map(|(envelope, change)| (envelope, Reported::Change(change)))
    } else {
        // recent instances only matter while an answer to a start is missing
        let unanswered = |known: &Known| known.debits.iter().any(|d| d.answered_seq.is_none());
        let report = CellReport::read(body, known.is_some_and(unanswered));
        report.map(|report| {
            let reported = Reported::WithApps(report.cell, report.apps);
            (report.envelope, reported)
        })
    };
    match read {
        Some((envelope, reported)) => Ok((envelope, Some(reported))),
        // for reports that cannot be read, too: parsing the envelope tells what is wrong
        None => Envelope::parse(body, None).map(|envelope| (envelope, None)),
    }
}
