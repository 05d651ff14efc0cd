//! `[[faults]]`: faults with their begin and duration.

use std::sync::Arc;

use placement::{Cell, Span};
use scenarios::ScenarioError;
use serde::Deserialize;

use super::{millis, read};

/// A fault with its begin and, if it ends, its duration.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// When it begins, in milliseconds after the first moment of the workload.
    pub at_ms: u64,
    /// How long it lasts; none: until the end of the run.
    pub for_ms: Option<u64>,
    /// The kind.
    pub kind: FaultKind,
    /// What it affects.
    pub target: Target,
    /// How long the instances of a drained cell continue; 0 for the other kinds.
    pub deadline_ms: u64,
}

/// The default deadline of a drain: that of a rep.
const DRAIN_DEADLINE_MS: u64 = 30_000;

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// The cells' reps end and their instances are lost; the cells return empty.
    CellLost,
    /// Messages to and from the cells are lost; their instances continue.
    CellCut,
    /// The cells take no more work, end their instances at the deadline and leave; they return empty.
    CellDrain,
    /// Like `cell-lost`, for all cells of a zone.
    ZoneLost,
    /// Like `cell-cut`, for all cells of a zone.
    ZoneCut,
    /// The auctioneer ends; when the fault is over another one starts without memory.
    AuctioneerRestart,
    /// The manager is killed; when the fault is over another one starts without memory.
    ManagerRestart,
    /// NATS is down: every role is disconnected and notices it.
    NatsAway,
}

/// What a fault affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// These cells, by name.
    Cells(Vec<Arc<str>>),
    /// This auctioneer, counted from 0.
    Auctioneer(usize),
    /// This manager, counted from 0.
    Manager(usize),
    /// All roles.
    All,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultTable {
    at: Span,
    #[serde(default, rename = "for")]
    lasts: Option<Span>,
    kind: FaultKind,
    #[serde(default)]
    cells: Vec<String>,
    #[serde(default)]
    zone: Option<String>,
    #[serde(default)]
    auctioneer: Option<u32>,
    #[serde(default)]
    manager: Option<u32>,
    #[serde(default)]
    deadline: Option<Span>,
}

impl FaultTable {
    pub(super) fn check(
        self,
        at: &str,
        cells: &[Cell],
        (auctioneers, managers): (u32, u32),
    ) -> Result<Fault, ScenarioError> {
        let target = match self.kind {
            FaultKind::CellLost | FaultKind::CellCut | FaultKind::CellDrain => {
                named(&self.cells, at, cells)?
            }
            FaultKind::ZoneLost | FaultKind::ZoneCut => of_zone(self.zone.as_deref(), at, cells)?,
            FaultKind::AuctioneerRestart => {
                let of = ("auctioneer", auctioneers);
                Target::Auctioneer(numbered(self.auctioneer, at, of)?)
            }
            FaultKind::ManagerRestart => {
                Target::Manager(numbered(self.manager, at, ("manager", managers))?)
            }
            FaultKind::NatsAway => Target::All,
        };
        let deadline_ms = self.deadline_ms(at)?;
        let mut for_ms = self.lasts.map(millis);
        if let Target::Auctioneer(_) | Target::Manager(_) = target {
            for_ms = for_ms.or(Some(0));
        }
        Ok(Fault {
            at_ms: millis(self.at),
            for_ms,
            kind: self.kind,
            target,
            deadline_ms,
        })
    }

    /// Returns the deadline of a drain, before which the cell cannot return.
    fn deadline_ms(&self, at: &str) -> Result<u64, ScenarioError> {
        if self.kind != FaultKind::CellDrain {
            return match self.deadline {
                None => Ok(0),
                Some(deadline) => {
                    let given = deadline.to_string().into();
                    let at = format!("{at}.deadline");
                    Err(read::wrong(&at, &given, "none: only a cell-drain has one"))
                }
            };
        }
        let deadline_ms = self.deadline.map_or(DRAIN_DEADLINE_MS, millis);
        match self.lasts {
            Some(lasts) if millis(lasts) <= deadline_ms => {
                let expected = format!("more than the deadline ({deadline_ms} ms)");
                let given = lasts.to_string().into();
                Err(read::wrong(&format!("{at}.for"), &given, &expected))
            }
            _ => Ok(deadline_ms),
        }
    }
}

/// Returns the number of a role, 0 if none is given.
fn numbered(
    given: Option<u32>,
    at: &str,
    (role, count): (&str, u32),
) -> Result<usize, ScenarioError> {
    let number = given.unwrap_or(0);
    if number >= count {
        let expected = format!("a number below {role}s ({count})");
        return Err(read::wrong(
            &format!("{at}.{role}"),
            &number.into(),
            &expected,
        ));
    }
    Ok(number as usize)
}

fn named(names: &[String], at: &str, cells: &[Cell]) -> Result<Target, ScenarioError> {
    let at = format!("{at}.cells");
    if names.is_empty() {
        return Err(read::wrong(&at, &names.into(), "a list of names of cells"));
    }
    for name in names {
        if !cells.iter().any(|cell| cell.cell == *name) {
            return Err(read::wrong(
                &at,
                &name.as_str().into(),
                "a cell of this scenario",
            ));
        }
    }
    Ok(Target::Cells(
        names.iter().map(|name| name.as_str().into()).collect(),
    ))
}

fn of_zone(zone: Option<&str>, at: &str, cells: &[Cell]) -> Result<Target, ScenarioError> {
    let inside = cells.iter().filter(|cell| Some(cell.zone.as_str()) == zone);
    let names: Vec<Arc<str>> = inside.map(|cell| cell.cell.as_str().into()).collect();
    if names.is_empty() {
        let at = format!("{at}.zone");
        return Err(read::wrong(
            &at,
            &zone.into(),
            "a zone of this scenario's cells",
        ));
    }
    Ok(Target::Cells(names))
}
