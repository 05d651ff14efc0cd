//! What operators say of the cell, beside what is counted.

use placement::Cell;

use super::Ledger;

impl Ledger {
    /// Takes from `said` everything that is not counted here. Returns whether that changed the cell.
    pub fn describe(&mut self, said: &Cell) -> bool {
        let own = &self.cell;
        let cell = Cell {
            cell: own.cell.clone(),
            total: own.total.clone(),
            available: own.available.clone(),
            starting: own.starting,
            apps: own.apps.clone(),
            tasks: own.tasks,
            evacuating: own.evacuating,
            owners: own.owners.clone(),
            tags: own.tags.clone(),
            cpu_capped: own.cpu_capped,
            cpu_uncapped: own.cpu_uncapped,
            recent_starts: own.recent_starts.clone(),
            ..said.clone()
        };
        if cell == self.cell {
            return false;
        }
        self.cell = cell;
        self.seq += 1;
        true
    }
}
