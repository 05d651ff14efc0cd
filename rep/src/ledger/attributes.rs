//! Attributes that operators set, as opposed to what is counted.

use placement::Cell;

use super::Ledger;

impl Ledger {
    /// Takes the attributes from `said`. Returns whether that changed the cell.
    pub fn describe(&mut self, said: &Cell) -> bool {
        let own = &mut self.cell;
        if own.index == said.index && own.attributes == said.attributes {
            return false;
        }
        own.index = said.index;
        own.attributes.clone_from(&said.attributes);
        self.seq += 1;
        true
    }
}
