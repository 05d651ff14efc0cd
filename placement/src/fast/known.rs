//! Cached terms: a value that depends on a cell's devices holds for all work of one size until the cell or the expected
//! work changes.

use std::sync::Arc;

use crate::{
    expected::Size, fast_map::FastMap, fragmentation::Fragments, request::Request,
    resource_name::ResourceName,
};

/// The most cached values: 128 MiB.
const MAX_VALUES: usize = 16 << 20;

/// What a column contains for each cell.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Known {
    /// Whether it has the named resources and the devices: 1 or 0.
    Extras,
    /// The used shares after the placement.
    Used(Arc<[ResourceName]>, bool),
    /// The current fragment, whatever is placed.
    Fragment(Fragments),
    /// The gradient of the placement.
    Gradient(Fragments),
}

/// Columns of values by slot; NaN if not known.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownTerms {
    numbers: FastMap<(Known, Size), usize>,
    columns: Vec<Column>,
    /// The slots of the last cells that changed.
    changes: Vec<u32>,
    /// How many changes preceded those.
    forgotten: usize,
}

#[derive(Clone, Debug, Default)]
struct Column {
    values: Vec<f64>,
    /// The version of the expected work for which they hold.
    version: u64,
    /// How many changes it has taken into account.
    seen: usize,
}

impl KnownTerms {
    /// Records that the cell of the slot changed.
    // only recorded: a column that is never used again costs nothing
    pub(super) fn forget(&mut self, slot: u32) {
        if self.columns.is_empty() {
            return;
        }
        let longest = self.columns[0].values.len().max(64);
        if self.changes.len() >= 2 * longest {
            self.changes.drain(..longest);
            self.forgotten += longest;
        }
        self.changes.push(slot);
    }

    /// Returns the column for the work; values for other expected work are discarded.
    pub(super) fn column(
        &mut self,
        known: Known,
        request: Option<&Request>,
        version: u64,
        slots: usize,
    ) -> &mut [f64] {
        if self.columns.len() * slots > MAX_VALUES {
            self.numbers.clear();
            self.columns.clear();
        }
        let next = self.columns.len();
        let key = (known, request.map(Size::of).unwrap_or_default());
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.columns.push(Column::default());
        }
        let column = &mut self.columns[number];
        if column.version != version || column.seen < self.forgotten {
            column.values.clear();
            column.version = version;
        } else {
            for slot in &self.changes[column.seen - self.forgotten..] {
                if let Some(value) = column.values.get_mut(*slot as usize) {
                    *value = f64::NAN;
                }
            }
        }
        column.seen = self.forgotten + self.changes.len();
        column.values.resize(slots, f64::NAN);
        &mut column.values
    }
}

/// Returns the value, computed if it is not known.
#[inline]
pub(super) fn known_or_new(known: &mut f64, new: impl FnOnce() -> f64) -> f64 {
    if known.is_nan() {
        *known = new();
    }
    *known
}
