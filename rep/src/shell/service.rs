//! Takes a cell out of service, and puts it back, for operators.

use bytes::Bytes;
use shared::wire::{CordonAnswer, WireError, code, to_bytes};

use super::Shell;
use crate::mark::Mark;

impl Shell {
    /// Drains, and keeps a mark of it.
    pub(super) fn drain(&mut self, now_ms: u64, body: &[u8]) -> Result<Bytes, WireError> {
        let mut answer = self.machine.drain(now_ms, body)?;
        answer.kept = self.mark.set(Mark::Drained);
        let (instances, deadline) = (answer.instances, answer.deadline);
        tracing::info!(instances, %deadline, exit = answer.exit, "draining: accepting no new work");
        Ok(to_bytes(&answer))
    }

    /// Cordons, and keeps a mark of it.
    pub(super) fn cordon(&mut self, now_ms: u64, body: &[u8]) -> Result<Bytes, WireError> {
        let mut answer: CordonAnswer = self.machine.cordon(now_ms, body)?;
        answer.kept = self.mark.set(Mark::Cordoned);
        tracing::info!("cordoned: accepting no new work");
        Ok(to_bytes(&answer))
    }

    /// Accepts work again, and removes the mark.
    pub(super) fn uncordon(&mut self, now_ms: u64, body: &[u8]) -> Result<Bytes, WireError> {
        let mut answer = self.machine.uncordon(now_ms, body)?;
        tracing::info!("uncordoned: accepting work");
        answer.kept = self.mark.clear().map_err(|e| {
            let message = format!(
                "in service, but out of service again after a restart: cannot remove the mark from the state directory: {e}"
            );
            WireError::new(code::INTERNAL, message)
        })?;
        Ok(to_bytes(&answer))
    }
}
