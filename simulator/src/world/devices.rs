//! How much of the cells' devices is given to instances, now and at most.

use std::collections::BTreeMap;

use placement::{Cell, DeviceSet};

/// Amounts of all devices of a set, by the set's name.
type Sums = BTreeMap<String, i64>;

/// The given amounts over all cells.
#[derive(Debug, Default)]
pub(super) struct DevicesGiven {
    /// By cell; empty for a cell without devices.
    cells: Vec<Sums>,
    all: Sums,
    now: Sums,
    most: Sums,
}

impl DevicesGiven {
    /// Begins with these cells; a cell that is down has nothing given.
    pub(super) fn of<'c>(cells: impl Iterator<Item = (&'c Cell, bool)>) -> Self {
        let mut given = Self::default();
        for (cell, is_up) in cells {
            for (name, set) in &cell.total.devices {
                *given.all.entry(name.clone()).or_default() += set.sum_free();
            }
            given.cells.push(Sums::new());
            given.look(given.cells.len() - 1, cell, is_up);
        }
        given
    }

    /// Records the present state of a cell.
    pub(super) fn look(&mut self, at: usize, cell: &Cell, is_up: bool) {
        if cell.total.devices.is_empty() {
            return;
        }
        let mut sums = Sums::new();
        for (name, set) in cell.total.devices.iter().filter(|_| is_up) {
            let free = cell.available.devices.get(name);
            let given = set.sum_free() - free.map_or(0, DeviceSet::sum_free);
            sums.insert(name.clone(), given);
        }
        let before = std::mem::replace(&mut self.cells[at], sums);
        for (name, given) in before {
            *self.now.entry(name).or_default() -= given;
        }
        for (name, given) in &self.cells[at] {
            let now = self.now.entry(name.clone()).or_default();
            *now += given;
            let most = self.most.entry(name.clone()).or_default();
            *most = (*most).max(*now);
        }
    }

    /// Returns the figures in per cent of all: for each set at the end, and the most that was given at any time.
    pub(super) fn figures(&self) -> impl Iterator<Item = (String, f64)> {
        self.all.iter().flat_map(|(name, all)| {
            let share = |sums: &Sums| {
                let given = sums.get(name).copied().unwrap_or(0);
                100.0 * given as f64 / (*all).max(1) as f64
            };
            [
                (format!("{name} given at the end, %"), share(&self.now)),
                (format!("{name} given at most, %"), share(&self.most)),
            ]
        })
    }
}

#[cfg(test)]
mod tests {
    use placement::Resources;

    use super::*;

    fn cell(free: &[i64]) -> Cell {
        let mut cell = Cell::new("a", Resources::new(1, 1, 1));
        let set = DeviceSet::new(2, 1000);
        cell.total.devices.insert("gpu".into(), set.clone());
        let free = free.to_vec();
        cell.available
            .devices
            .insert("gpu".into(), DeviceSet { free, ..set });
        cell
    }

    #[test]
    fn what_is_given_is_added_over_cells_that_are_up() {
        let (idle, half, full) = (cell(&[]), cell(&[1000, 0]), cell(&[0, 0]));
        let none = Cell::new("b", Resources::new(1, 1, 1));
        let cells = [(&idle, true), (&full, true), (&none, true)];
        let mut given = DevicesGiven::of(cells.into_iter());
        let shown = |given: &DevicesGiven| -> Vec<i64> {
            #[allow(clippy::cast_possible_truncation)] // shares of four
            given.figures().map(|(_, share)| share as i64).collect()
        };
        assert_eq!(shown(&given), [50, 50]);
        given.look(0, &half, true);
        assert_eq!(shown(&given), [75, 75]);
        given.look(1, &full, false);
        assert_eq!(shown(&given), [25, 75]);
        given.look(1, &idle, true);
        given.look(0, &idle, true);
        assert_eq!(shown(&given), [0, 75]);
        assert_eq!(
            DevicesGiven::of([(&none, true)].into_iter())
                .figures()
                .count(),
            0
        );
    }
}
