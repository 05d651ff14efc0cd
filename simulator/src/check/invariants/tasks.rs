//! The promises of managers about stored requests.

use std::collections::{BTreeMap, BTreeSet};

use manager::TaskRecord;
use placement::Request;
use shared::{
    AttemptId, InstanceId,
    wire::{TaskState, instance_id},
};

use super::Checked;
use crate::check::{
    cell::CellNode,
    client::{Client, ClientAnswer},
    manager::ManagerNode,
    script::{ScriptTask, What},
    world::World,
};

/// What the invariants of stored requests remember from step to step.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    /// The stored request of each instance that a manager has asked for.
    asked: BTreeMap<InstanceId, String>,
    /// The sum of [`CellNode::changes`] of all cells at the last look.
    changes: u64,
}

impl Tasks {
    /// Records an attempt that a manager sends; none if the start is something else.
    pub(super) fn start(&mut self, request: &Request) -> Option<()> {
        let attempt = AttemptId::parse(&request.id)?;
        let all: Vec<u32> = (0..request.instances).collect();
        for index in request.indices.as_ref().unwrap_or(&all) {
            let id = instance_id(&request.id, &request.app, request.kind, *index);
            self.asked.insert(id, attempt.id.clone());
        }
        Some(())
    }

    /// Checks a stop that a manager sends; none if the instance belongs to no stored request.
    pub(super) fn stop(&self, world: &World<'_>, instance: InstanceId) -> Option<Checked> {
        let id = self.asked.get(&instance)?;
        let script = world.script();
        let n = script.tasks.iter().position(|task| task.id == *id)?;
        let cancelled = |what: &What| matches!(what, What::Cancel(task) if *task == n);
        let is_asked = script.steps.iter().any(|step| cancelled(&step.what));
        if is_asked || script.tasks[n].timeout_ms.is_some() {
            return Some(Ok(()));
        }
        Some(Err(format!(
            "{instance} of {id} is stopped, and nobody asked for that"
        )))
    }

    /// No task runs more often than it may, and no instance of a durable request is started twice.
    pub(super) fn run_at_most_once(&mut self, world: &World<'_>) -> Checked {
        let changes = world.all::<CellNode>().map(|cell| cell.changes).sum();
        if std::mem::replace(&mut self.changes, changes) == changes {
            return Ok(());
        }
        for task in &world.script().tasks {
            for (index, runs) in runs(world, task) {
                let distinct: BTreeSet<InstanceId> = runs.iter().copied().collect();
                let (count, most) = match task.instances {
                    // the same instance on two cells is a matter for another invariant
                    Some(_) => (distinct.len(), 1),
                    None => (runs.len(), 1 + task.retries as usize),
                };
                if count > most {
                    let id = &task.id;
                    return Err(format!(
                        "{id}/{index} ran {count} times, as {distinct:?}; expected at most {most}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Returns the instances of a stored request that were started on any cell, by index.
fn runs(world: &World<'_>, task: &ScriptTask) -> BTreeMap<u32, Vec<InstanceId>> {
    let mut runs: BTreeMap<u32, Vec<InstanceId>> = BTreeMap::new();
    for cell in world.all::<CellNode>() {
        for index in 0..task.instances.unwrap_or(1) {
            let started = cell.stored.get(&(task.id.clone(), index));
            runs.entry(index)
                .or_default()
                .extend(started.into_iter().flatten());
        }
    }
    runs
}

/// Every stored request has ended, and every manager says so; every acknowledged one is stored.
pub(super) fn every_stored_request_is_over(world: &World<'_>) -> Checked {
    let stored: BTreeMap<&str, _> = world.bucket().tasks().collect();
    let answers = world.all::<Client>().next().map(|client| &client.answers);
    for (number, task) in &world.submitted {
        let answer = answers.and_then(|answers| answers.get(number));
        let id = world.script().tasks[*task].id.as_str();
        if matches!(answer, Some(ClientAnswer::Done)) && !stored.contains_key(id) {
            return Err(format!("#{number}, {id}, was acknowledged and is gone"));
        }
    }
    for (id, record) in &stored {
        if record.end.is_none() {
            return Err(format!("{id} has no outcome: {record:?}"));
        }
        let managers = world.all::<ManagerNode>().filter_map(ManagerNode::machine);
        for machine in managers {
            let status = machine.task(id);
            if !status.as_ref().is_some_and(|status| status.state.is_over()) {
                return Err(format!("{id} is over, and a manager says: {status:?}"));
            }
        }
    }
    Ok(())
}

/// Every stored end is still stored, and matches what happened.
pub(super) fn results_are_kept_and_true(world: &World<'_>) -> Checked {
    let stored: BTreeMap<&str, _> = world.bucket().tasks().collect();
    for (id, end) in world.ends() {
        let record = stored.get(id.as_str());
        let kept = record.and_then(|record| record.end.as_ref());
        let Some(record) = record.filter(|_| kept == Some(end)) else {
            return Err(format!("{id} had ended as {end:?}, and now as {kept:?}"));
        };
        let Some(task) = world.script().tasks.iter().find(|task| task.id == *id) else {
            return Err(format!("{id} was never asked for"));
        };
        let runs = runs(world, task);
        let ran = runs.values().filter(|runs| !runs.is_empty()).count();
        let true_of = match end.state {
            TaskState::Succeeded => ran == 1 && end.exit_code == Some(0) && task.exit_code == 0,
            TaskState::Placed => runs
                .iter()
                .all(|(index, runs)| !runs.is_empty() || shared_one_ran(world, record, *index)),
            TaskState::Failed | TaskState::Cancelled => {
                !end.unplaced || ran == 0 || task.instances.is_some()
            }
            _ => false,
        };
        if !true_of {
            return Err(format!("{id} ended as {end:?}; it ran as {runs:?}"));
        }
    }
    Ok(())
}

/// Returns whether an index was placed as an instance of another request, according to the stored result, and that
/// instance was started.
fn shared_one_ran(world: &World<'_>, record: &TaskRecord, index: u32) -> bool {
    let mut named = record.shared.iter();
    named.any(|(request, indices)| {
        let id = instance_id(request, &record.request.app, record.request.kind, index);
        let mut cells = world.all::<CellNode>();
        indices.contains(&index) && cells.any(|cell| cell.launched.contains(&id))
    })
}
