//! Stores equal attributes of many cells only once.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Weak},
};

use super::{Attributes, Cell};
use crate::times::Timestamp;

/// The distinct attributes of a pool's cells.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttributeInterner {
    /// By a hash of what differs most; a bucket rarely has more than one entry. Only cells own the attributes.
    by_fingerprint: HashMap<u64, Vec<Weak<Attributes>>>,
    /// The number of entries at which unused ones are dropped.
    tidy_at: usize,
}

impl AttributeInterner {
    /// Makes the cell share its attributes with one of the pool that has equal ones. `before` is the earlier state of
    /// this cell.
    pub(crate) fn share(&mut self, cell: &mut Cell, before: Option<&Cell>) {
        if let Some(before) = before
            && before.attributes == cell.attributes
        {
            cell.attributes = Arc::clone(&before.attributes);
            return;
        }
        if self.by_fingerprint.len() >= self.tidy_at {
            self.by_fingerprint.retain(|_, all| {
                all.retain(|known| known.strong_count() > 0);
                !all.is_empty()
            });
            self.tidy_at = 2 * self.by_fingerprint.len() + 64;
        }
        let all = self
            .by_fingerprint
            .entry(fingerprint(&cell.attributes))
            .or_default();
        let mut known = all.iter().filter_map(Weak::upgrade);
        match known.find(|known| *known == cell.attributes) {
            Some(known) => cell.attributes = known,
            None => all.push(Arc::downgrade(&cell.attributes)),
        }
    }
}

/// Returns a hash of what usually distinguishes attributes.
fn fingerprint(attributes: &Attributes) -> u64 {
    let mut hasher = DefaultHasher::new();
    let platform = attributes.platform.as_ref();
    (
        &attributes.zone,
        &attributes.stacks,
        &attributes.placement_tags,
        &attributes.status,
        &attributes.networks,
        (&attributes.rack, &attributes.dea, &attributes.host),
        platform.map(|platform| (&platform.version, &platform.stamp)),
        attributes.hardware_priority,
        &attributes.volumes,
        &attributes.cached_blobs,
        attributes.next_reboot.as_ref().map(Timestamp::ms),
        attributes.last_boot.as_ref().map(Timestamp::ms),
    )
        .hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::Resources;

    #[test]
    fn cells_that_are_alike_share_until_one_changes() {
        let mut interner = AttributeInterner::default();
        let mut cells: Vec<Cell> = (0..3)
            .map(|n| Cell::new(format!("c{n}"), Resources::new(100, 100, 1)))
            .collect();
        cells[2].attributes_mut().rack = Some("r".into());
        for cell in &mut cells {
            interner.share(cell, None);
        }
        assert!(Arc::ptr_eq(&cells[0].attributes, &cells[1].attributes));
        assert!(!Arc::ptr_eq(&cells[0].attributes, &cells[2].attributes));
        cells[0].attributes_mut().reserved = true;
        assert!(!cells[1].reserved, "a change reached another cell");
    }

    #[test]
    fn a_cell_that_says_something_new_has_the_new_attributes_and_else_those_it_had() {
        let mut interner = AttributeInterner::default();
        let mut first = Cell::new("c", Resources::new(100, 100, 1));
        first.attributes_mut().rack = Some("r1".into());
        interner.share(&mut first, None);
        let mut same = first.clone();
        same.attributes_mut().reserved = false;
        interner.share(&mut same, Some(&first));
        assert!(Arc::ptr_eq(&same.attributes, &first.attributes));
        let mut moved = first.clone();
        moved.attributes_mut().rack = Some("r2".into());
        interner.share(&mut moved, Some(&first));
        assert_eq!(moved.rack.as_deref(), Some("r2"));
        assert_eq!(interner.by_fingerprint.len(), 2);
    }

    /// Tidying up does not remove attributes that a cell still has.
    #[test]
    fn cells_share_however_many_others_came_between() {
        let mut interner = AttributeInterner::default();
        let racked = |n: usize| {
            let mut cell = Cell::new("c", Resources::new(100, 100, 1));
            cell.attributes_mut().rack = Some(format!("r{n}"));
            cell
        };
        let mut held = racked(0);
        interner.share(&mut held, None);
        for n in 1..1_000 {
            interner.share(&mut racked(n), None);
            let mut alike = racked(0);
            interner.share(&mut alike, None);
            assert!(Arc::ptr_eq(&alike.attributes, &held.attributes), "{n}");
        }
    }

    #[test]
    fn unused_attributes_are_dropped() {
        let mut interner = AttributeInterner::default();
        let mut cell = Cell::new("c", Resources::new(100, 100, 1));
        for n in 0..10_000 {
            let before = cell.clone();
            cell.attributes_mut().rack = Some(format!("r{n}"));
            interner.share(&mut cell, Some(&before));
        }
        assert!(
            interner.by_fingerprint.len() <= 64,
            "{}",
            interner.by_fingerprint.len()
        );
    }
}
