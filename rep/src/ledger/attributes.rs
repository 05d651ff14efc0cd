//! Attributes that operators set, as opposed to what is counted.

use placement::Cell;

use super::Ledger;

/// The sources of a cell's cached blobs.
#[derive(Clone, Debug)]
pub(super) struct Blobs {
    /// Blobs set by operators.
    set: Vec<String>,
    /// Blobs that the executor has.
    cached: Vec<String>,
}

impl Blobs {
    /// Takes the blobs of a described cell; nothing is cached by the executor yet.
    pub(super) fn of(described: &Cell) -> Self {
        Self {
            set: described.cached_blobs.clone(),
            cached: Vec::new(),
        }
    }

    /// Returns all of them; cached ones that operators have set are listed once.
    fn all(&self) -> Vec<String> {
        let more = self.cached.iter().filter(|blob| !self.set.contains(blob));
        self.set.iter().chain(more).cloned().collect()
    }
}

impl Ledger {
    /// Takes the attributes from `described`. Returns whether that changed the cell.
    pub fn describe(&mut self, described: &Cell) -> bool {
        self.blobs.set.clone_from(&described.cached_blobs);
        let mut attributes = described.attributes.clone();
        let blobs = self.blobs.all();
        if attributes.cached_blobs != blobs {
            std::sync::Arc::make_mut(&mut attributes).cached_blobs = blobs;
        }
        let own = &mut self.cell;
        if own.index == described.index && own.attributes == attributes {
            return false;
        }
        // only these: what is reserved and counted belongs to the ledger
        own.index = described.index;
        own.attributes = attributes;
        self.cell_changed();
        true
    }

    /// Takes over what the executor has cached, which is advertised in addition to what operators have set.
    pub fn cached(&mut self, blobs: Vec<String>) {
        self.blobs.cached = blobs;
        let all = self.blobs.all();
        if self.cell.cached_blobs != all {
            self.cell.attributes_mut().cached_blobs = all;
            self.cell_changed();
        }
    }
}
