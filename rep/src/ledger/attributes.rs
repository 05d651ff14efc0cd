//! Attributes that operators set, as opposed to what is counted.

use placement::Cell;

use super::Ledger;

impl Ledger {
    /// Takes the attributes from `described`. Returns whether that changed the cell.
    pub fn describe(&mut self, described: &Cell) -> bool {
        let own = &mut self.cell;
        if own.index == described.index && own.attributes == described.attributes {
            return false;
        }
        // only these: what is reserved and counted is the ledger's own
        own.index = described.index;
        own.attributes.clone_from(&described.attributes);
        self.seq += 1;
        true
    }
}
