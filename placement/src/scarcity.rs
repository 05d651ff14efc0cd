//! How scarce a resource is: by how much room the cells have for the work that asks for it.
//!
//! Where most cells have room for much more than is going to come, it does not matter which remainders they keep, and
//! a score of them would only make the cells uneven. So `scarce_below = N` of the score `fragmentation` reduces it by
//! the square of how much more room there is than for N instances of the typical size on each cell.

use crate::{
    expected::ExpectedWork,
    free::Free,
    policy::{Policy, Step, Term},
    resource_name::ResourceName,
    resources::Amounts,
};

/// The mean of what cells have free of a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct MeanFree {
    sum: i128,
    cells: u32,
}

impl MeanFree {
    /// Computes it over cells of which each has this much free; none if the cell does not count.
    // whole numbers, so that the order of the cells does not matter
    pub(crate) fn of(cells: impl Iterator<Item = Option<i64>>) -> Self {
        cells.flatten().fold(Self::default(), |mean, free| Self {
            sum: mean.sum + i128::from(free.max(0)),
            cells: mean.cells + 1,
        })
    }

    /// Returns what a score of the resource is multiplied by: 1 while the mean is less than `below` times the typical
    /// size of the expected work, and less the more it exceeds that.
    pub(crate) fn scarcity(self, of: &ResourceName, work: &ExpectedWork, below: f64) -> f64 {
        let enough = below * of.typical(work);
        let mean = self.sum as f64 / f64::from(self.cells.max(1));
        if enough <= 0.0 || mean <= enough {
            return 1.0;
        }
        (enough / mean) * (enough / mean)
    }
}

impl ResourceName {
    /// Returns what a cell has free of it, if it counts for the mean: not if it has no limit, none, or devices, whose
    /// sum says little.
    pub(crate) fn limited(&self, free: &Free<'_>) -> Option<i64> {
        match self {
            Self::Amount(resource) => limited(free.amounts[*resource]),
            Self::Named(name) if free.devices.contains_key(name) => None,
            Self::Named(name) => free.extra.get(name).copied(),
        }
    }

    /// Returns the mean size of the expected work, weighted by what each size asks for of the resource; 0 if none asks
    /// for any.
    pub(crate) fn typical(&self, work: &ExpectedWork) -> f64 {
        let (mut asked, mut squares) = (0.0, 0.0);
        for expected in work.sizes() {
            let wanted = self.of_size(&expected.size, 0) as f64;
            asked += expected.share * wanted;
            squares += expected.share * wanted * wanted;
        }
        if asked > 0.0 { squares / asked } else { 0.0 }
    }
}

/// Returns the amount, unless it has no limit.
pub(crate) fn limited(free: i64) -> Option<i64> {
    (free != Amounts::UNLIMITED).then_some(free)
}

impl Policy {
    /// Returns the resources of whose scarcity a score depends.
    pub(crate) fn scarce(&self) -> impl Iterator<Item = &ResourceName> {
        self.stages.iter().filter_map(|stage| match &stage.step {
            Step::Score(score) => match &score.term {
                Term::Fragmentation {
                    fragments,
                    scarce_below: Some(_),
                    ..
                } => Some(&fragments.of),
                _ => None,
            },
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        expected::{ExpectedSize, Size},
        resources::Resource,
    };

    fn work(sizes: &[(f64, i64)]) -> ExpectedWork {
        let size = |(share, memory_mb): &(f64, i64)| ExpectedSize {
            share: *share,
            size: Size {
                memory_mb: *memory_mb,
                ..Size::default()
            },
        };
        ExpectedWork::exactly(sizes.iter().map(size).collect())
    }

    const MEMORY: ResourceName = ResourceName::Amount(Resource::Memory);

    #[test]
    fn the_typical_size_is_that_of_the_typical_unit_asked_for() {
        let close = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value}");
        close(MEMORY.typical(&work(&[(1.0, 8)])), 8.0);
        // of 16 asked for, 8 are asked for as 8, and 8 as 1
        close(MEMORY.typical(&work(&[(8.0, 1), (1.0, 8)])), 4.5);
        close(MEMORY.typical(&work(&[(1.0, 0)])), 0.0);
        close(MEMORY.typical(&ExpectedWork::default()), 0.0);
    }

    #[test]
    fn the_more_room_the_less_scarce() {
        let mean = |free: &[i64]| MeanFree::of(free.iter().map(|free| limited(*free)));
        let scarcity = |free: &[i64]| mean(free).scarcity(&MEMORY, &work(&[(1.0, 8)]), 2.0);
        let close = |value: f64, expected: f64| assert!((value - expected).abs() < 1e-9, "{value}");
        close(scarcity(&[]), 1.0);
        close(scarcity(&[0, 16]), 1.0);
        close(scarcity(&[16, 16]), 1.0);
        // twice as much, on average of those that have a limit
        close(scarcity(&[0, 64, Amounts::UNLIMITED]), 1.0 / 4.0);
        // what is overcommitted is not less than nothing
        close(scarcity(&[-64, 64]), 1.0 / 4.0);
        close(mean(&[99]).scarcity(&MEMORY, &work(&[(1.0, 0)]), 2.0), 1.0);
    }
}
