//! What must hold after every step and at rest. To add an invariant, write a function and name it in
//! [`Invariants::after_step`] or [`at_rest`].

mod managed;
mod tasks;

use std::collections::{BTreeMap, BTreeSet};

use manager::WaveId;
use shared::{
    AttemptId, InstanceId,
    wire::{Outcome, instance_id},
};

use super::{
    CheckReport, Violation,
    auctioneer::AuctioneerNode,
    cell::{CARD, CARDS, CellNode},
    client::{Client, ClientAnswer},
    node::Node,
    script::Script,
    world::World,
};

/// The longest time for which two reps of one name may run while nothing fails: a ttl and two intervals, within which
/// the one that leaves hears the other, and the time that its instances need to end.
const MAX_TWO_REPS_MS: u64 = 15_000 + 2 * 5_000 + 1_000;
/// … and two auctioneers: one must have been heard for a second.
const MAX_TWO_AUCTIONEERS_MS: u64 = 2_000;
/// The default deadline of a start request plus the travel time of messages.
const MAX_ANSWER_MS: u64 = auctioneer::DEFAULT_DEADLINE_MS + 500;
/// The longest time for which an instance may run twice while nothing fails, in milliseconds.
pub(super) const MAX_DOUBLE_MS: u64 = 2_000;

/// Ok, or what is wrong.
type Checked = Result<(), String>;

/// What the invariants remember from step to step.
#[derive(Debug, Default)]
pub(super) struct Invariants {
    /// Duplicate instances, and since when, in time without faults.
    doubles: BTreeMap<InstanceId, u64>,
    /// Names that two programs share, and since when.
    namesakes: BTreeMap<String, u64>,
    short_doubles: u64,
    longest_double_ms: u64,
    /// The sum of [`CellNode::changes`] of all cells at the last look.
    changes: u64,
    managed: managed::Managed,
}

/// Plays a script. Returns the first broken promise, and the timeline if it is to be kept.
pub(super) fn play(
    script: &Script,
    keep: bool,
    report: &mut CheckReport,
) -> (Option<Violation>, Vec<String>) {
    play_world(World::begun(script, keep), report)
}

/// Like [`play`], in a world that has just begun.
pub(super) fn play_world(
    mut world: World<'_>,
    report: &mut CheckReport,
) -> (Option<Violation>, Vec<String>) {
    let mut invariants = Invariants::default();
    let mut violation = None;
    report.managed += u64::from(world.script().managers > 0);
    while violation.is_none() && world.goes_on(report) {
        violation = invariants.after_step(&world);
        world.sent.clear();
    }
    if violation.is_none() {
        violation = at_rest(&world);
    }
    invariants.add_to(report);
    let timeline = world.told(violation.as_ref());
    (violation, timeline)
}

impl Invariants {
    /// Returns the first invariant that does not hold after a step.
    pub(super) fn after_step(&mut self, world: &World<'_>) -> Option<Violation> {
        let checked = no_cell_holds_more_than_it_has(world)
            .map_err(|what| ("over-commitment", what))
            .and_then(|()| {
                self.no_name_is_kept_by_two(world)
                    .map_err(|what| ("one of a name", what))
            })
            .and_then(|()| {
                self.nothing_runs_twice(world)
                    .map_err(|what| ("double run", what))
            })
            .and_then(|()| self.managed.check(world))
            .and_then(|()| match &world.busy {
                None => Ok(()),
                Some(who) => Err(("pauses", format!("{who} does not pause between its timers"))),
            })
            .and_then(|()| {
                starts_are_answered_in_time(world).map_err(|what| ("answered in time", what))
            });
        violation(world, checked)
    }

    /// Adds what was seen to the report.
    pub(super) fn add_to(&self, report: &mut CheckReport) {
        report.short_doubles += self.short_doubles;
        report.longest_double_ms = report.longest_double_ms.max(self.longest_double_ms);
    }

    /// Of two programs of one name, one leaves in time.
    fn no_name_is_kept_by_two(&mut self, world: &World<'_>) -> Checked {
        let two = two_of_a_name(world);
        self.namesakes.retain(|name, _| two.contains(name.as_str()));
        for name in two {
            let since_ms = self
                .namesakes
                .entry(name.to_owned())
                .or_insert(world.now_ms());
            let most_ms = if name.starts_with('a') {
                MAX_TWO_AUCTIONEERS_MS
            } else {
                MAX_TWO_REPS_MS
            };
            let flows_ms = world.now_ms() - world.flows_since_ms().max(*since_ms);
            if flows_ms > most_ms {
                return Err(format!(
                    "two programs named {name} run for more than {most_ms} ms in which nothing failed"
                ));
            }
        }
        Ok(())
    }

    /// No instance runs on two cells for long. A failing cell counts as gone until it is back.
    fn nothing_runs_twice(&mut self, world: &World<'_>) -> Checked {
        let changes = world.all::<CellNode>().map(|cell| cell.changes).sum();
        let same = std::mem::replace(&mut self.changes, changes) == changes;
        if !same && world.script().managers > 0 {
            self.managed.note(world);
        }
        if same && self.doubles.is_empty() && !world.has_namesakes() {
            return Ok(());
        }
        // of two reps of one name, the instances of the one that leaves end with it
        let two = two_of_a_name(world);
        let mut runs: BTreeMap<InstanceId, Vec<(&CellNode, u64)>> = BTreeMap::new();
        for cell in world
            .all::<CellNode>()
            .filter(|cell| !two.contains(cell.name()))
        {
            for (instance, process) in &cell.processes {
                let on = runs.entry(*instance).or_default();
                on.push((cell, process.since_ms));
            }
        }
        runs.retain(|_, cells| cells.len() > 1);
        let flow_ms = world.flow_ms();
        let ended = self.doubles.iter().filter(|(id, _)| !runs.contains_key(id));
        for (_, since_ms) in ended {
            self.short_doubles += 1;
            self.longest_double_ms = self.longest_double_ms.max(flow_ms - since_ms);
        }
        self.doubles.retain(|id, _| runs.contains_key(id));
        for (instance, cells) in runs {
            let since_ms = *self.doubles.entry(instance).or_insert(flow_ms);
            if flow_ms - since_ms > MAX_DOUBLE_MS {
                let on: Vec<String> = cells
                    .iter()
                    .map(|(cell, since_ms)| format!("{} since {since_ms} ms", cell.name()))
                    .collect();
                let on = on.join(" and ");
                return Err(format!(
                    "instance {instance} runs on {on}, for more than {MAX_DOUBLE_MS} ms in which nothing failed"
                ));
            }
        }
        Ok(())
    }
}

/// Whatever else fails, an auctioneer that does not fail itself answers a request by its deadline.
fn starts_are_answered_in_time(world: &World<'_>) -> Checked {
    match world.open_starts.late(world.now_ms(), MAX_ANSWER_MS) {
        None => Ok(()),
        Some((number, node)) => Err(format!(
            "a{node} has not answered #{number} after {MAX_ANSWER_MS} ms, and has not failed meanwhile"
        )),
    }
}

/// Returns the names that two programs share. A program that still asks whether its name is free does not count.
fn two_of_a_name<'w>(world: &'w World<'_>) -> BTreeSet<&'w str> {
    if !world.has_namesakes() {
        return BTreeSet::new();
    }
    let reps = world.all::<CellNode>().filter(|c| c.machine().is_some());
    let auctioneers = world
        .all::<AuctioneerNode>()
        .filter(|a| a.machine().is_some());
    let names = reps
        .map(CellNode::name)
        .chain(auctioneers.map(AuctioneerNode::name));
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(*name)).collect()
}

/// An invariant of the whole world.
type Invariant = fn(&World<'_>) -> Checked;

/// Returns the first invariant that does not hold once nothing has failed for longer than a ttl and every request was
/// repeated.
pub(super) fn at_rest(world: &World<'_>) -> Option<Violation> {
    let all: [(&'static str, Invariant); 11] = [
        ("nothing outlives its rep", nothing_outlives_its_rep),
        ("answered", every_request_is_answered),
        ("answers are true", answers_are_true),
        ("believed is true", what_is_believed_is_true),
        ("nothing is left over", nothing_is_left_over),
        ("what is wanted runs", managed::what_is_wanted_runs),
        ("managers rest", managed::managers_rest),
        ("commands are answered", managed::commands_are_answered),
        ("one manager acts", managed::one_manager_acts),
        (
            "stored requests have an outcome",
            tasks::every_stored_request_is_over,
        ),
        (
            "results are kept and true",
            tasks::results_are_kept_and_true,
        ),
    ];
    all.into_iter()
        .find_map(|(name, check)| violation(world, check(world).map_err(|what| (name, what))))
}

fn violation(world: &World<'_>, checked: Result<(), (&'static str, String)>) -> Option<Violation> {
    let (invariant, what) = checked.err()?;
    Some(Violation {
        invariant,
        at_ms: world.now_ms(),
        what,
    })
}

/// The instances on a cell never need more memory than the cell has, nor more of any device.
fn no_cell_holds_more_than_it_has(world: &World<'_>) -> Checked {
    for cell in world.all::<CellNode>() {
        let used: i64 = cell.processes.values().map(|p| p.memory_mb).sum();
        if used > cell.memory_mb() {
            return Err(format!(
                "{} runs {used} MiB of {} MiB",
                cell.name(),
                cell.memory_mb()
            ));
        }
        for number in 0..CARDS {
            let shares = cell.processes.values().flat_map(|p| p.devices.values());
            let on_it = shares.filter(|share| share.numbers.contains(&number));
            let given: i64 = on_it.map(|share| share.amount).sum();
            if given > CARD {
                return Err(format!(
                    "{} runs {given} of {CARD} on its card {number}",
                    cell.name()
                ));
            }
        }
    }
    Ok(())
}

/// Everything that a rep ran ended before it left.
fn nothing_outlives_its_rep(world: &World<'_>) -> Checked {
    let mut left = world.all::<CellNode>().filter(|c| c.machine().is_none());
    match left.find_map(|cell| Some((cell, cell.processes.keys().next()?))) {
        None => Ok(()),
        Some((cell, instance)) => Err(format!("{instance} outlives {}", cell.label())),
    }
}

/// When repeated while nothing fails, every request has an answer other than `unknown`.
fn every_request_is_answered(world: &World<'_>) -> Checked {
    for (request, answer) in last_answers(world) {
        let id = &world.script().requests[request].id;
        match answer {
            None | Some(ClientAnswer::Done) => {
                return Err(format!(
                    "{id} was asked when nothing failed, and not answered"
                ));
            }
            Some(ClientAnswer::Error(error)) => {
                return Err(format!("{id} was asked when nothing failed: {error}"));
            }
            Some(ClientAnswer::Reply(reply)) if reply.outcome == Outcome::Unknown => {
                return Err(format!(
                    "{id} was asked when nothing failed: {:?}",
                    reply.instances
                ));
            }
            Some(ClientAnswer::Reply(_)) => {}
        }
    }
    Ok(())
}

/// An instance that is reported as placed on a cell was started there, and if it runs, it runs where it is reported.
fn answers_are_true(world: &World<'_>) -> Checked {
    for (request, answer) in last_answers(world) {
        let asked = &world.script().requests[request];
        let Some(ClientAnswer::Reply(reply)) = answer else {
            continue;
        };
        // an instance shared with another request is reported with that request
        let own = reply.instances.iter().filter(|i| i.duplicate_of.is_none());
        for told in own {
            let (Some(index), Some(cell)) = (told.index, &told.cell) else {
                continue;
            };
            let kind = placement::Kind::Lrp;
            let instance = instance_id(&asked.id, &asked.app, kind, index);
            let on = |c: &&CellNode| c.processes.contains_key(&instance);
            let runs: Vec<&CellNode> = world.all::<CellNode>().filter(on).collect();
            let mut said = world
                .all::<CellNode>()
                .filter(|c| c.name() == cell.as_ref());
            let was_there = said.any(|c| c.launched.contains(&instance));
            let (id, kept) = (&asked.id, runs.first().map(|c| c.name()));
            if told.outcome == Outcome::Placed && !was_there {
                return Err(format!(
                    "{id}/{index} is said to be on {cell}, and never was"
                ));
            }
            let lost = runs.iter().any(|c| world.lost_since(c.name(), 0));
            if kept.is_some_and(|kept| kept != cell.as_ref()) && !lost && runs.len() == 1 {
                return Err(format!(
                    "{id}/{index} is said to be on {cell}, and runs on {kept:?}"
                ));
            }
        }
    }
    Ok(())
}

/// Every auctioneer knows every cell as it is.
fn what_is_believed_is_true(world: &World<'_>) -> Checked {
    for node in world.all::<AuctioneerNode>() {
        let Some(machine) = node.machine() else {
            continue;
        };
        let believed = machine.feed().pool();
        for cell in world.all::<CellNode>() {
            let Some(truth) = cell.machine().map(|m| m.ledger().cell()) else {
                continue;
            };
            let name = cell.name();
            let Some(belief) = believed.get(name) else {
                return Err(format!("{} does not know {name}", node.name()));
            };
            if (&belief.available, &belief.counts.apps) != (&truth.available, &truth.counts.apps) {
                return Err(format!(
                    "{} believes that {name} has {:?} free and runs {:?}; it has {:?} and runs {:?}",
                    node.name(),
                    belief.available.memory_mb,
                    belief.counts.apps,
                    truth.available.memory_mb,
                    truth.counts.apps
                ));
            }
            let used: i64 = cell.processes.values().map(|p| p.memory_mb).sum();
            if used != truth.total.memory_mb - truth.available.memory_mb {
                return Err(format!(
                    "{name} runs {used} MiB and has reserved another size"
                ));
            }
        }
    }
    Ok(())
}

/// No auctioneer still holds a request.
fn nothing_is_left_over(world: &World<'_>) -> Checked {
    // a manager keeps trying what has found no room
    let lately = world.now_ms() < world.worked_ms() + MAX_ANSWER_MS;
    let is_managers = |id: &str| WaveId::parse(id).is_some() || AttemptId::parse(id).is_some();
    for node in world.all::<AuctioneerNode>() {
        let Some(machine) = node.machine() else {
            continue;
        };
        // a request that waits for room may still wait
        let mut left = machine
            .open_requests()
            .filter(|(id, waits)| !(*waits || lately && is_managers(id)));
        if let Some((id, _)) = left.next() {
            return Err(format!("{} still holds {id}", node.name()));
        }
        if !machine.is_idle() && machine.open_requests().next().is_none() {
            return Err(format!("{} still holds a stop", node.name()));
        }
    }
    Ok(())
}

/// Returns the answers to the last questions, by request.
fn last_answers<'w>(
    world: &'w World<'_>,
) -> impl Iterator<Item = (usize, Option<&'w ClientAnswer>)> {
    let client = world.all::<Client>().next();
    let numbers = world.last_questions.iter().enumerate();
    numbers.map(move |(request, number)| {
        (
            request,
            client.and_then(|client| client.answers.get(number)),
        )
    })
}
