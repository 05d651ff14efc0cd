//! Decisions for answers: as JSON, and as one-line texts for tallies and score terms.

use std::{fmt::Write, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    decision::{Explanation, Plan, Rating, RatingReport, StageReport, Tally, Verdict},
    devices::DeviceShares,
    request::{Job, Kind},
};

/// All decisions of one auction, in the order in which they were made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// One per job, except duplicates.
    pub decisions: Vec<DecisionReport>,
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DecisionReport {
    /// The app.
    pub app: String,
    /// The instance's index.
    pub index: u32,
    /// LRP or task.
    pub kind: Kind,
    /// Whether a cell was found.
    pub outcome: DecisionOutcome,
    /// The cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<Arc<str>>,
    /// The devices that it gets there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<Box<DeviceShares>>,
    /// The cells from which the winner was drawn, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalists: Vec<Arc<str>>,
    /// The winner's cost, if the lowest wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<f64>,
    /// The winner's score, if the highest wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Why it was not placed, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it was not placed, in numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tally: Vec<Tally>,
    /// Each stage's survivors and rejections, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageReport>,
    /// Each finalist's rating, term by term, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ratings: Vec<RatingReport>,
    /// Whether the terms are multiplied, with the product scaled to 0..1 after each; otherwise they are added.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub product: bool,
    /// Ignored hints and other notes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The outcome of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecisionOutcome {
    /// A cell was found.
    Placed,
    /// No cell fits.
    Unplaced,
}

impl std::fmt::Display for DecisionOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Placed => "placed",
            Self::Unplaced => "unplaced",
        })
    }
}

impl Report {
    /// Creates the report of a plan.
    pub fn new(jobs: &[Job], plan: Plan) -> Self {
        let decisions = plan.decisions.into_iter();
        let report = |decision: crate::decision::Decision| {
            let job = &jobs[decision.job];
            let Explanation {
                stages,
                ratings,
                product,
                notes,
            } = decision.explanation.map(|e| *e).unwrap_or_default();
            let (outcome, cell, reason, tally) = match decision.verdict {
                Verdict::Placed { cell } => (DecisionOutcome::Placed, Some(cell), None, Vec::new()),
                Verdict::Unplaced(why) => {
                    let tally = why.tally;
                    (DecisionOutcome::Unplaced, None, Some(why.reason), tally)
                }
                Verdict::Duplicate { .. } => return None,
            };
            Some(DecisionReport {
                app: job.request.app.clone(),
                index: job.index,
                kind: job.request.kind,
                outcome,
                cell,
                devices: decision.devices,
                finalists: decision.finalists,
                cost: decision.rating.and_then(Rating::cost),
                score: decision.rating.and_then(Rating::score),
                reason,
                tally,
                stages,
                ratings,
                product,
                notes,
            })
        };
        Self {
            decisions: decisions.filter_map(report).collect(),
        }
    }

    /// Returns how many jobs were placed.
    pub fn placed(&self) -> usize {
        self.decisions.iter().filter(|d| d.cell.is_some()).count()
    }
}

/// Joins score terms to a formula: added or multiplied.
pub fn joined(terms: &[String], product: bool) -> String {
    if product {
        format!("{}, scaled", terms.join(" × "))
    } else {
        terms.join(" + ")
    }
}

impl Tally {
    /// Returns one line, such as `memory: 12 cells dropped, needs 4096, the best has 2048`.
    pub fn in_words(&self) -> String {
        let cells = if self.cells == 1 { "cell" } else { "cells" };
        let mut out = match self.cells {
            0 => format!("{}: also insufficient", self.stage),
            n => format!("{}: {n} {cells} dropped", self.stage),
        };
        if let Some(reason) = &self.reason {
            let _ = write!(out, ", {reason}");
        }
        match (self.devices, self.needs, self.best) {
            (Some(devices), Some(needs), Some(_)) => {
                let _ = write!(out, ", needs {needs}: {devices}");
            }
            (None, Some(needs), Some(best)) => {
                let _ = write!(out, ", needs {needs}, the best has {best}");
            }
            _ => {}
        }
        if !self.names.is_empty() {
            let _ = write!(out, " ({})", self.names.join(", "));
        }
        out
    }
}
