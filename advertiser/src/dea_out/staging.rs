//! The staging of apps: what cells are sent, and what they report about its end.

use std::sync::Arc;

use placement::{Cell, Kind, Run};
use shared::wire::{TaskResult, Work, last_of_output};

use super::cells::{OutCells, OutOutput, instance_of, key_of};
use crate::dea::{FacadeEvent, FacadeInput, FacadeStaged, FacadeStaging, Hidden};

impl OutCells {
    /// Makes the DEA of a cell advertise staging and listen for it, if the cell stages apps.
    pub(super) fn stages(&mut self, now_ms: u64, cell: &Cell, out: &mut Vec<OutOutput>) {
        let known = self.cells.get(&cell.cell);
        let facade = known.and_then(|known| known.facade.as_ref());
        let Some(facade) = facade.filter(|facade| facade.stages() != cell.staging) else {
            return;
        };
        let subjects = facade.staging_subjects();
        if cell.staging {
            out.extend(subjects.map(|subject| OutOutput::Listen { subject }));
        } else {
            // the other subjects are shared by all DEAs
            let [.., subject] = subjects;
            out.push(OutOutput::Unlisten { subject });
        }
        let stages = FacadeInput::Stages(cell.staging);
        self.tell(now_ms, &cell.cell, stages, out);
    }

    /// Sends the staging of an app to the cell.
    pub(super) fn stage(
        &mut self,
        now_ms: u64,
        name: &str,
        key: &str,
        staging: &FacadeStaging,
        out: &mut Vec<OutOutput>,
    ) {
        let Some(instance) = instance_of(key) else {
            return;
        };
        let (memory_mb, disk_mb) = (staging.memory_mb, staging.disk_mb);
        let mut work = Work::new(instance, &staging.app, memory_mb, disk_mb);
        work.kind = Kind::Task;
        work.run = Some(Arc::new(Run {
            staging: Some(Arc::new(staging.run.to_staging())),
            ..Run::default()
        }));
        self.send(now_ms, name, key, work, out);
    }

    /// Handles a cell's report of how a task ended; ignored if the task is not one of a facade.
    pub(crate) fn task_ended(&mut self, now_ms: u64, result: TaskResult) -> Vec<OutOutput> {
        let mut out = Vec::new();
        let (name, key) = (result.cell, key_of(result.instance));
        if let Some(cell) = self.cells.get_mut(&name) {
            cell.accepted.remove(&key);
        }
        let failed = if result.stopped {
            Some("task stopped".to_owned())
        } else if result.exit_code == Some(0) {
            None
        } else {
            Some(placement::cut(&result.ended).into_owned())
        };
        let staged = FacadeStaged {
            failed,
            left: Hidden(result.result.unwrap_or_default()),
            output: Hidden(result.output.map(last_of_output)),
        };
        // its acceptance may have been lost
        self.accepted(now_ms, &name, &key, &mut out);
        let staged = FacadeEvent::Staged(Box::new(staged));
        self.happened(now_ms, &name, &key, staged, &mut out);
        out
    }
}
