//! The goals of a search for weights.

use crate::outcome::Figures;

/// A figure to be improved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Goal {
    /// What was placed, in per cent of what could have been placed at most: the mean over everything that is counted.
    Allocated,
    /// Standard deviation / mean of the memory used per cell at the end.
    Balance,
    /// Stranded memory in MiB, mean over time.
    Stranded,
    /// The mean wait, in milliseconds.
    Wait,
    /// Cells that were never needed.
    Spare,
}

impl Goal {
    /// All goals.
    pub const ALL: [Self; 5] = [
        Self::Allocated,
        Self::Balance,
        Self::Stranded,
        Self::Wait,
        Self::Spare,
    ];

    /// Returns its name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocated => "allocated",
            Self::Balance => "balance",
            Self::Stranded => "stranded",
            Self::Wait => "wait",
            Self::Spare => "spare",
        }
    }

    /// Returns whether more of it is better.
    pub const fn is_more_better(self) -> bool {
        matches!(self, Self::Allocated | Self::Spare)
    }

    /// Returns its value in a run.
    pub fn value(self, figures: &Figures) -> f64 {
        match self {
            Self::Allocated => allocated(figures),
            Self::Balance => figures.distribution,
            Self::Stranded => figures.stranded_mb.mean,
            Self::Wait => figures.wait_ms.mean,
            Self::Spare => figures.spare_cells as f64,
        }
    }

    /// Returns what is to be minimized: the value, or how much it is below `most`.
    pub(super) fn loss(self, value: f64, most: f64) -> f64 {
        if self.is_more_better() {
            most - value
        } else {
            value
        }
    }
}

fn allocated(figures: &Figures) -> f64 {
    let gaps = figures.bounds.iter().flat_map(|bounds| bounds.gap.values());
    let (sum, count) = gaps.fold((0.0, 0_u32), |(sum, count), gap| (sum + gap, count + 1));
    100.0 - sum / f64::from(count.max(1))
}
