//! What a batch auction decided, and why.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// How much a plan explains. More costs more; a job that is not placed always has its tally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Explain {
    /// The winner only: what the auctioneer needs.
    #[default]
    Winner,
    /// And the finalists.
    Finalists,
    /// And every stage's survivors and rejections, and each finalist's score terms.
    Stages,
    /// And in each rejection the cells by name.
    Cells,
}

/// What a batch auction decided: one decision for each job, in the order they were taken.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In the order the auction took the jobs; duplicates come last.
    pub decisions: Vec<Decision>,
}

/// One job's outcome. Decisions come in the order in which the auction took the jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The job, as its position in the batch that was given.
    pub job: usize,
    /// Where it goes, or why nowhere.
    pub verdict: Verdict,
    /// The cells the final draw was made from, sorted; empty unless asked for.
    pub finalists: Vec<Arc<str>>,
    /// The winner's cost (policies whose lowest wins) or score (highest wins).
    pub value: Option<f64>,
    /// Stages and score terms; none unless asked for.
    pub explanation: Option<Box<Explanation>>,
}

/// Where a job goes.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// To this cell.
    Placed {
        /// The winner's name.
        cell: Arc<str>,
    },
    /// Nowhere.
    Unplaced(Box<Unplaced>),
    /// The same instance stands earlier in the batch and lends this one its outcome.
    Duplicate {
        /// The earlier job's position in the batch.
        of: usize,
    },
}

/// Why a job was not placed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unplaced {
    /// One line, with Diego's familiar texts where Diego has one.
    pub reason: String,
    /// What each stage dropped; grouped, so its size does not depend on the number of cells.
    pub tally: Vec<Tally>,
}

/// The cells that one stage dropped for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// The stage's name.
    pub stage: String,
    /// How many cells it dropped; 0 for a resource that every cell lacked as well, but that another
    /// stage had dropped them for already.
    pub cells: usize,
    /// What was needed, where it is a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<f64>,
    /// The best that a cell it would drop had, where it is a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<f64>,
    /// In words, where numbers do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The cells by name, when asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// Everything about one decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Explanation {
    /// Each stage in order.
    pub stages: Vec<StageReport>,
    /// Each finalist's score, term by term.
    pub scores: Vec<ScoreReport>,
    /// Whether the terms are multiplied, and the product scaled to 0..1 after each; else they are
    /// added up.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub product: bool,
    /// Hints that were ignored, and the like.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What one stage did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageReport {
    /// The stage's name.
    pub stage: String,
    /// Cells left after it.
    pub survivors: usize,
    /// What it dropped, grouped by reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<Tally>,
}

/// One cell's score.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreReport {
    /// The cell.
    pub cell: Arc<str>,
    /// The sum (or product) of the terms.
    pub value: f64,
    /// Each term by name.
    pub terms: Vec<(String, f64)>,
}
