//! The promises of managers.

use std::collections::BTreeMap;

use manager::{AppRecord, StoredKey, UpdateOrder, WaveId};
use shared::{
    InstanceId,
    wire::{code, instance_id},
};

use super::{Checked, tasks::Tasks};
use crate::check::{
    cell::CellNode,
    client::{Client, ClientAnswer},
    manager::ManagerNode,
    script::What,
    world::{Sent, Wanted, World},
};

/// How long a former desired state may still be acted on.
const LATE_MS: u64 = 30_000;
/// How long, in time without faults, an ended instance may be believed to run: a ttl, and another one if most cells are
/// silent.
const BELIEVED_MS: u64 = 35_000;
/// How long, in time without faults, instances of a forgotten app may still be stopped.
const FORGOTTEN_MS: u64 = 10_000;
/// A cell at which nothing has failed for this long is heard by everybody, …
const HEARD_MS: u64 = 40_000;
/// … and so are its instances after this time.
const TOLD_MS: u64 = 12_000;
/// At rest, nothing was started, stopped or stored for this long.
const REST_MS: u64 = 40_000;

/// An instance that a manager asked for.
#[derive(Clone, Copy, Debug)]
struct Asked {
    wave: WaveId,
    index: u32,
    at_ms: u64,
}

/// What the invariants of managers remember from step to step.
#[derive(Debug, Default)]
pub(super) struct Managed {
    asked: BTreeMap<InstanceId, Asked>,
    /// What runs: its cell's node, and since when, in time without faults.
    runs: BTreeMap<InstanceId, (usize, u64)>,
    /// When it ended, in that time.
    ended: BTreeMap<InstanceId, u64>,
    tasks: Tasks,
}

impl Managed {
    /// Records what runs after it has changed.
    pub(super) fn note(&mut self, world: &World<'_>) {
        let flow_ms = world.flow_ms();
        let mut runs = BTreeMap::new();
        for n in 0..world.nodes() {
            let Some(cell) = world.node::<CellNode>(n) else {
                continue;
            };
            for (id, process) in &cell.processes {
                if process.wave.is_some() {
                    let since = self.runs.get(id).filter(|(on, _)| *on == n);
                    runs.insert(*id, since.copied().unwrap_or((n, flow_ms)));
                }
            }
        }
        let ended = self.runs.keys().filter(|id| !runs.contains_key(*id));
        self.ended.extend(ended.map(|id| (*id, flow_ms)));
        self.runs = runs;
    }

    /// Checks everything that managers have sent.
    pub(super) fn check(&mut self, world: &World<'_>) -> Result<(), (&'static str, String)> {
        for sent in &world.sent {
            match sent {
                Sent::Start { node, request } => {
                    if self.tasks.start(request).is_some() {
                        continue;
                    }
                    let started = self.start_is_right(world, *node, request);
                    started.map_err(|what| ("one of an index", what))?;
                }
                Sent::Stop { cell, instances } => {
                    for id in instances {
                        let of_task = self.tasks.stop(world, *id);
                        let stopped =
                            of_task.unwrap_or_else(|| self.stop_is_right(world, cell, *id));
                        stopped.map_err(|what| ("nothing is stopped unasked", what))?;
                    }
                }
            }
        }
        let once = self.tasks.run_at_most_once(world);
        once.map_err(|what| ("a task runs at most once", what))
    }

    /// Nothing is started while a cell that is heard runs the same.
    fn start_is_right(
        &mut self,
        world: &World<'_>,
        node: usize,
        request: &placement::Request,
    ) -> Checked {
        let wave = WaveId::parse(&request.id).ok_or("a start that is not a wave")?;
        for index in request.indices.iter().flatten() {
            let kind = placement::Kind::Lrp;
            let id = instance_id(&request.id, &request.app, kind, *index);
            let at_ms = world.now_ms();
            let asked = Asked {
                wave,
                index: *index,
                at_ms,
            };
            // a repeat, by this manager or its successor
            if self.asked.contains_key(&id) {
                continue;
            }
            self.asked.insert(id, asked);
            let heard = self.runs.iter().find(|(other, (cell, since_ms))| {
                let same = self.asked.get(other).is_some_and(|other| {
                    (other.wave.uid, other.index) == (wave.uid, *index)
                        && other.wave.version == wave.version
                });
                let moves = is_to_move(world, (&request.app, *index), *cell);
                same && !moves && world.flow_ms() >= since_ms + TOLD_MS && is_heard(world, *cell)
            });
            if let Some((other, (cell, _))) = heard.filter(|_| hears(world, node)) {
                let cell = world.node::<CellNode>(*cell).map_or("", |c| c.name());
                return Err(format!(
                    "{} starts index {index}, which {other} has on {cell}",
                    request.id
                ));
            }
        }
        Ok(())
    }

    /// An instance that is stopped was started by a manager, and either it is not wanted or there is another one.
    fn stop_is_right(&self, world: &World<'_>, cell: &str, id: InstanceId) -> Checked {
        let Some(asked) = self.asked.get(&id) else {
            return Err(format!("{id} on {cell} is stopped, and is nobody's"));
        };
        let uid = asked.wave.uid;
        let is_of = |record: &AppRecord| record.uid == uid || record.former.contains(&uid);
        let flow_ms = world.flow_ms();
        let from_ms = asked.at_ms.saturating_sub(LATE_MS);
        let wanted = in_force(world.wanted(), from_ms);
        let last = world
            .wanted()
            .iter()
            .rposition(|w| w.apps.iter().any(is_of));
        let records_of = |at: usize| world.wanted()[at].apps.iter().filter(|r| is_of(r));
        // a user has deleted the app: its instances on a silent cell end whenever that cell is back
        if last.is_some_and(|at| records_of(at).any(|r| r.deleted || r.uid != uid)) {
            return Ok(());
        }
        let forgotten = last.and_then(|at| world.wanted().get(at + 1));
        if forgotten.is_some_and(|since| flow_ms > since.flow_ms + FORGOTTEN_MS) {
            return Err(format!(
                "{id} on {cell} is stopped, and its app is not stored any more"
            ));
        }
        let records = || wanted.iter().flat_map(|w| &w.apps).filter(|r| is_of(r));
        if records().any(|record| is_unwanted(record, asked)) {
            return Ok(());
        }
        let Some((node, since_ms)) = self.runs.get(&id) else {
            // it does not run
            return Ok(());
        };
        let cell_node = world.node::<CellNode>(*node);
        let drains = cell_node
            .and_then(CellNode::machine)
            .is_none_or(|machine| machine.ledger().cell().evacuating);
        // a process that has crashed and is restarted counts as one that was never ready
        let process = cell_node.and_then(|cell| cell.processes.get(&id));
        let starts = process.is_none_or(|p| world.now_ms() <= p.since_ms + TOLD_MS);
        let stop_first = |record: &AppRecord| {
            record.definition.update.order == UpdateOrder::StopFirst
                && (drains || record.version != asked.wave.version)
        };
        let young = starts || flow_ms <= since_ms + TOLD_MS;
        if records().any(stop_first) || (drains && young) || self.has_another(world, id, asked) {
            return Ok(());
        }
        Err(format!(
            "{id}, index {} of {}, on {cell} is stopped; nobody asked for that, and there is no other one",
            asked.index, asked.wave
        ))
    }

    /// Returns whether another instance of the index runs, or did so until recently.
    fn has_another(&self, world: &World<'_>, id: InstanceId, asked: &Asked) -> bool {
        let same = |other: &Asked| (other.wave.uid, other.index) == (asked.wave.uid, asked.index);
        let others = self.asked.iter().filter(|(other, _)| **other != id);
        others.filter(|(_, other)| same(other)).any(|(other, _)| {
            let ended = self.ended.get(other);
            let lately = ended.is_some_and(|at_ms| world.flow_ms() <= at_ms + BELIEVED_MS);
            lately || self.runs.contains_key(other)
        })
    }
}

/// Returns whether an operator has asked for an index to be moved away from a cell.
fn is_to_move(world: &World<'_>, (app, index): (&str, u32), cell: usize) -> bool {
    let mut begun = world.script().steps.iter();
    begun.any(|step| match &step.what {
        What::Move {
            app: of,
            index: at,
            node,
        } => step.at_ms <= world.now_ms() && (of.as_str(), *at, *node) == (app, index, cell),
        _ => false,
    })
}

/// Returns the desired states at this time and later.
fn in_force(wanted: &[Wanted], from_ms: u64) -> &[Wanted] {
    let later = wanted.partition_point(|w| w.at_ms <= from_ms);
    &wanted[later.saturating_sub(1)..]
}

/// Returns whether a user has said that it is to end.
fn is_unwanted(record: &AppRecord, asked: &Asked) -> bool {
    let ends = record.deleted || record.stopped;
    ends || record.uid != asked.wave.uid || asked.index >= record.definition.instances
}

fn is_heard(world: &World<'_>, node: usize) -> bool {
    let since_ms = world.well_since_ms(node);
    let cell = world.node::<CellNode>(node).and_then(CellNode::machine);
    since_ms.is_some_and(|since_ms| world.now_ms() >= since_ms + HEARD_MS)
        && cell.is_some_and(|machine| !machine.ledger().cell().evacuating)
}

/// Returns whether no message to a manager can have been lost lately.
fn hears(world: &World<'_>, node: usize) -> bool {
    let since_ms = world.well_since_ms(node);
    since_ms.is_some_and(|since_ms| world.now_ms() >= since_ms + HEARD_MS)
}

/// Every wanted index runs once if there is room.
pub(super) fn what_is_wanted_runs(world: &World<'_>) -> Checked {
    let mut free: Vec<i64> = Vec::new();
    let mut runs: BTreeMap<_, Vec<(u32, String)>> = BTreeMap::new();
    for cell in world.all::<CellNode>() {
        let machine = cell.machine();
        let open = machine.filter(|m| !m.ledger().cell().evacuating);
        free.extend(open.map(|m| m.ledger().cell().available.memory_mb));
        for process in cell.processes.values() {
            if let Some((wave, index)) = process.wave {
                let at = runs.entry((wave.uid, index)).or_default();
                at.push((wave.version, cell.name().to_owned()));
            }
        }
    }
    let gone = world.bucket().keys("gone.");
    for (uid, index) in runs.keys() {
        if gone.contains(&StoredKey::Gone(*uid).to_string()) {
            return Err(format!("index {index} of the deleted app {uid} runs"));
        }
    }
    for record in world.bucket().apps() {
        let managers = world.all::<ManagerNode>().filter_map(ManagerNode::machine);
        let name = record.definition.app();
        let mut known = managers.filter_map(|machine| machine.status(name));
        // nothing is done for such an app until it is put again
        if known.any(|status| status.went_back) {
            continue;
        }
        let needs = record.definition.template.memory_mb;
        let is_room = free.iter().any(|free| *free >= needs);
        let ends = record.deleted || record.stopped;
        let wanted = if ends { 0 } else { record.definition.instances };
        for ((_, index), at) in runs
            .iter()
            .filter(|((uid, _), _)| record.former.contains(uid) || *uid == record.uid)
        {
            let _ = at;
            if *index >= wanted {
                return Err(format!("{name}/{index} runs, and is not wanted: {at:?}"));
            }
        }
        for index in 0..wanted {
            let at = runs
                .get(&(record.uid, index))
                .map_or(&[][..], Vec::as_slice);
            if at.len() == 1 || (at.is_empty() && !is_room) {
                continue;
            }
            return Err(format!(
                "{name}/{index} of version {} runs {} times: {at:?}",
                record.version,
                at.len()
            ));
        }
        if runs.keys().any(|(uid, _)| record.former.contains(uid)) {
            return Err(format!("a former {name} runs"));
        }
    }
    Ok(())
}

/// Nothing is started, stopped or stored any more, except for apps that wait for room.
pub(super) fn managers_rest(world: &World<'_>) -> Checked {
    if world.script().managers == 0 {
        return Ok(());
    }
    let waits = world.apps_that(|status| status.unplaced.is_some());
    for (what, at_ms) in &world.worked {
        if !waits.contains(what) && world.now_ms() < at_ms + REST_MS {
            return Err(format!(
                "a manager has started, stopped or stored something of {what} at {at_ms} ms"
            ));
        }
    }
    Ok(())
}

/// Every command is answered, and while nothing fails not with an error of the manager.
pub(super) fn commands_are_answered(world: &World<'_>) -> Checked {
    if let Some(node) = world.all::<ManagerNode>().find(|m| !m.commands.is_empty()) {
        let count = node.commands.len();
        return Err(format!("a manager has not answered {count} commands"));
    }
    let Some(client) = world.all::<Client>().next() else {
        return Ok(());
    };
    for number in &world.last_commands {
        match client.answers.get(number) {
            Some(ClientAnswer::Done) => {}
            Some(ClientAnswer::Error(error)) if error.starts_with(code::NOT_FOUND) => {}
            other => {
                return Err(format!(
                    "a command when nothing failed is answered {other:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Exactly one manager acts.
pub(super) fn one_manager_acts(world: &World<'_>) -> Checked {
    let managers = world.all::<ManagerNode>().filter_map(ManagerNode::machine);
    let acting = managers.filter(|machine| machine.is_acting()).count();
    if world.script().managers == 0 || acting == 1 {
        return Ok(());
    }
    Err(format!("{acting} managers act"))
}
