//! The decisions of a batch auction, and their reasons.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::devices::{DeviceShares, FreeDevices};

/// How much a plan explains. More costs more; an unplaced job always has its tally.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Explain {
    /// Only the winner: what the auctioneer needs.
    #[default]
    Winner,
    /// The finalists as well.
    Finalists,
    /// As well, every stage's survivors and rejections, and each finalist's rating, term by term.
    Stages,
    /// As well, the names of the cells in each rejection.
    Cells,
}

/// The result of a batch auction: one decision for each job, in the order of decision.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// In the order of decision; duplicates come last.
    pub decisions: Vec<Decision>,
}

/// The decision of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The job's position in the given batch.
    pub job: usize,
    /// The cell, or why there is none.
    pub verdict: Verdict,
    /// Whether it must wait for a later batch even if its request allows no waiting: the cell that it wins has as many
    /// starting instances as the policy allows. The verdict names that cell.
    pub deferred: bool,
    /// The devices that it gets there; none if it asks for none.
    pub devices: Option<Box<DeviceShares>>,
    /// The cells from which the winner was drawn, sorted; empty unless requested.
    pub finalists: Vec<Arc<str>>,
    /// The winner's rating; none if the policy rates no cell.
    pub rating: Option<Rating>,
    /// Stages and ratings; none unless requested.
    pub explanation: Option<Box<Explanation>>,
}

/// How good a cell is for a job: depending on the policy's pick, the lowest cost or the highest score wins.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rating {
    /// The lowest wins.
    Cost(f64),
    /// The highest wins.
    Score(f64),
}

impl Rating {
    /// Returns the number if it is a cost.
    pub fn cost(self) -> Option<f64> {
        match self {
            Self::Cost(cost) => Some(cost),
            Self::Score(_) => None,
        }
    }

    /// Returns the number if it is a score.
    pub fn score(self) -> Option<f64> {
        match self {
            Self::Cost(_) => None,
            Self::Score(score) => Some(score),
        }
    }

    /// Orders the better one first: the lower cost, the higher score.
    pub fn best_first(&self, other: &Self) -> std::cmp::Ordering {
        match (self, other) {
            (Self::Score(a), Self::Score(b)) => b.total_cmp(a),
            (Self::Cost(a) | Self::Score(a), Self::Cost(b) | Self::Score(b)) => a.total_cmp(b),
        }
    }
}

/// The result for one job.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Placed on this cell.
    Placed {
        /// The winner's name.
        cell: Arc<str>,
    },
    /// Placed nowhere.
    Unplaced(Box<Unplaced>),
    /// The same instance is earlier in the batch, and this job shares its outcome.
    Duplicate {
        /// The earlier job's position in the batch.
        of: usize,
    },
}

/// Why a job was not placed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unplaced {
    /// One line, in Diego's words where Diego has them.
    pub reason: String,
    /// What each stage dropped, grouped by reason: its size does not depend on the number of cells.
    pub tally: Vec<Tally>,
}

/// The cells that one stage dropped for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// The stage's name.
    pub stage: String,
    /// How many cells it dropped; 0 for an additional resource that the cells lack although another stage dropped them
    /// first.
    pub cells: usize,
    /// What was needed, if it is a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<f64>,
    /// The best that a dropped cell had, if it is a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best: Option<f64>,
    /// The reason in words, if numbers do not express it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// For a set of devices: how close the dropped cells came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<FreeDevices>,
    /// The names of the cells, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// Everything about one decision.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Explanation {
    /// Each stage in order.
    pub stages: Vec<StageReport>,
    /// Each finalist's rating, term by term.
    pub ratings: Vec<RatingReport>,
    /// Whether the terms are multiplied, with the product scaled to 0..1 after each; otherwise they are added.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub product: bool,
    /// Ignored hints and other notes.
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

/// One cell's rating.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatingReport {
    /// The cell.
    pub cell: Arc<str>,
    /// The sum (or product) of the terms: a `cost` or a `score`.
    #[serde(flatten)]
    pub rating: Rating,
    /// Each term, by the name of the stage that gave it.
    pub terms: Vec<(String, f64)>,
}
