//! Changes a cell's attributes for operators.

use bytes::Bytes;
use shared::wire::{CellSet, CellSetAnswer, WireError, parse_strict, to_bytes};

use super::Shell;
use crate::{attributes::MAX_CHANGED, machine::bounded};

impl Shell {
    /// Changes attributes, writes them to the file, and advertises the change at once.
    pub(super) fn set(&mut self, now_ms: u64, body: &[u8]) -> Result<Bytes, WireError> {
        let set: CellSet = parse_strict(body, "set")?;
        bounded("set", set.set.len(), MAX_CHANGED)?;
        let names = set.set.keys().cloned().collect::<Vec<_>>().join(", ");
        let cell = self.operators.set(set.set)?;
        tracing::info!(names = %placement::cut(&names), "an operator has changed attributes");
        self.machine.describe(now_ms, &cell);
        Ok(to_bytes(&CellSetAnswer {
            v: shared::VERSION,
            cell: cell.cell,
            seq: self.machine.ledger().seq(),
            changed: self.operators.changed().clone(),
            kept: self.operators.keeps(),
        }))
    }
}
