//! Decides what is to be done for one app. It only reads: `converge` carries out the plan.
//!
//! The order is: what was deleted or stopped ends; what is missing starts; the rollout takes a step; instances that are
//! on draining cells or are to be moved are replaced; and only if nothing is missing, duplicates and surplus indices
//! end.

mod draining;
mod duplicates;
mod rollout;

use shared::InstanceId;

use crate::{
    apps::App,
    ids::CellId,
    look::{STOP_AGAIN_MS, Scene, Seen, Versions},
    stored::RolloutPhase,
};

/// Why a wave is begun, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    /// Its old instances are on draining cells.
    Evacuated,
    /// Nothing is at these indices.
    Missing,
    /// The instances at these indices crashed.
    Crashed,
    /// A new version.
    Update,
    /// An operator moves its instances.
    Moved,
}

impl Cause {
    /// Returns whether something is missing or soon will be.
    pub(crate) fn is_needed(self) -> bool {
        !matches!(self, Self::Update | Self::Moved)
    }
}

/// Indices to start, of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) cause: Cause,
    pub(crate) version: u32,
    pub(crate) indices: Vec<u32>,
    /// The cell that the instances are moved from, which they must not go to again.
    pub(crate) moved_from: Option<CellId>,
}

/// An instance to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StopOne {
    pub(crate) cell: CellId,
    pub(crate) id: InstanceId,
    /// Nobody asked for this stop: there must not be many of these.
    pub(crate) braked: bool,
}

/// What is to be done for an app.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) starts: Vec<Start>,
    pub(crate) stops: Vec<StopOne>,
    /// When to look at the app again.
    pub(crate) due_ms: u64,
    /// How the rollout has ended, if it has.
    pub(crate) ended: Option<(RolloutPhase, Option<String>)>,
    /// Indices with exactly one running instance, each with its version.
    pub(crate) alone: Vec<(u32, u32)>,
    /// Indices whose old instance is stopped before a new one is started.
    pub(crate) rolling: Vec<u32>,
    /// Number of indices that the rollout has completed.
    pub(crate) complete: u32,
}

impl Plan {
    fn new() -> Self {
        Self {
            starts: Vec::new(),
            stops: Vec::new(),
            due_ms: u64::MAX,
            ended: None,
            alone: Vec::new(),
            rolling: Vec::new(),
            complete: 0,
        }
    }

    fn look_at(&mut self, at_ms: u64) {
        self.due_ms = self.due_ms.min(at_ms);
    }

    fn start(&mut self, cause: Cause, version: u32, index: u32) {
        self.start_elsewhere(cause, version, index, None);
    }

    fn start_elsewhere(
        &mut self,
        cause: Cause,
        version: u32,
        index: u32,
        moved_from: Option<CellId>,
    ) {
        let same = |start: &&mut Start| {
            (start.cause, start.version, start.moved_from) == (cause, version, moved_from)
        };
        match self.starts.iter_mut().find(same) {
            Some(start) => start.indices.push(index),
            None => self.starts.push(Start {
                cause,
                version,
                indices: vec![index],
                moved_from,
            }),
        }
    }

    /// Stops an instance, unless it is already being stopped or its cell is unknown.
    fn stop(&mut self, seen: &Seen, braked: bool, now_ms: u64) {
        // a stop would not reach a lost cell; if it comes back, its list says what is left to stop
        if seen.suspect {
            return;
        }
        if seen.stopping {
            return self.look_at(now_ms + STOP_AGAIN_MS);
        }
        if let Some(cell) = seen.cell {
            let id = seen.id;
            self.stops.push(StopOne { cell, id, braked });
            self.look_at(now_ms + STOP_AGAIN_MS);
        }
    }
}

/// What is found at the indices of an app.
#[derive(Debug, Default)]
struct Found {
    /// Indices without any instance.
    empty: Vec<u32>,
    /// Number of instances that are present.
    present: usize,
    /// Number of those that run.
    running: usize,
    /// Number of indices where the rollout is in progress.
    in_flight: usize,
    /// Indices that it has not reached: whether the old instance is up, and the index.
    behind: Vec<(bool, u32)>,
    /// Number of indices below the wanted number without an instance that is up and stays where it is.
    unwell: usize,
    /// Indices whose instances are to be stopped because their cells drain.
    draining: Vec<u32>,
    /// Instances that are duplicates.
    spare: Vec<Seen>,
    /// Instances above the wanted number that nobody asked to stop.
    surplus: Vec<Seen>,
}

/// Decides what is to be done for an app.
pub(crate) fn decide(app: &App, scene: Scene<'_>) -> Plan {
    let mut plan = Plan::new();
    if app.is_left_alone() {
        return plan;
    }
    let now_ms = scene.now_ms;
    // instances of an earlier app of this name: they neither block nor hold an index of the present one
    for seen in app.leftovers.iter().filter_map(|id| scene.one(*id)) {
        plan.stop(&seen, false, now_ms);
    }
    if app.record.deleted || app.record.stopped {
        for slot in &app.slots {
            for seen in slot.held.iter().filter_map(|id| scene.one(*id)) {
                plan.stop(&seen, false, now_ms);
            }
        }
        return plan;
    }
    let versions = Versions::of(app);
    let mut found = Found::default();
    let mut seen = Vec::new();
    let wanted = app.record.definition.instances;
    for (index, slot) in (0..).zip(&app.slots) {
        scene.at(slot, &mut seen);
        if index < wanted {
            one_index(app, &versions, scene, index, &seen, &mut found, &mut plan);
        } else {
            too_many(app, index, &seen, &mut found, &mut plan, now_ms);
        }
    }
    missing(app, &versions, scene, &mut found, &mut plan);
    rollout::step(app, &versions, scene, &mut found, &mut plan);
    draining::stop_first(app, scene, &found, &mut plan);
    // while something is missing or not heard of yet, an extra instance may be the one that takes over
    let nothing_missing = !plan.starts.iter().any(|start| start.cause.is_needed());
    if scene.settled && nothing_missing && app.open.is_empty() {
        // the highest indices first, as when scaling down
        for extra in found.surplus.iter().rev().chain(&found.spare) {
            plan.stop(extra, true, now_ms);
        }
    }
    plan
}

/// Looks at one index.
fn one_index(
    app: &App,
    versions: &Versions,
    scene: Scene<'_>,
    index: u32,
    seen: &[Seen],
    found: &mut Found,
    plan: &mut Plan,
) {
    let present: Vec<Seen> = seen.iter().copied().filter(Seen::is_present).collect();
    found.present += present.len();
    found.running += present.iter().filter(|one| one.runs()).count();
    if present.is_empty() {
        found.empty.push(index);
        found.unwell += 1;
        return;
    }
    let kept: Vec<Seen> = present.iter().copied().filter(Seen::is_kept).collect();
    if !present.iter().any(|one| one.up && !one.stopping) {
        found.unwell += 1;
    }
    if let [one] = present.as_slice()
        && one.runs()
        && one.is_kept()
    {
        plan.alone.push((index, one.version));
    }
    draining::replace(app, versions, scene, index, (&present, &kept), found, plan);
    rollout::look(versions, scene, index, (&present, &kept), found, plan);
    duplicates::find(versions, &kept, found);
}

/// Handles an index above the wanted number.
fn too_many(app: &App, index: u32, seen: &[Seen], found: &mut Found, plan: &mut Plan, now_ms: u64) {
    for one in seen.iter().filter(|one| one.is_present()) {
        if index < app.wanted_before {
            plan.stop(one, false, now_ms);
        } else {
            found.surplus.push(*one);
        }
    }
}

/// Starts what is missing. While an app crashes and nothing of it runs, only one index is tried.
fn missing(app: &App, versions: &Versions, scene: Scene<'_>, found: &mut Found, plan: &mut Plan) {
    let nothing_left = found.present == 0;
    let mut ready: Vec<(u32, bool)> = Vec::new();
    for index in &found.empty {
        let slot = &app.slots[*index as usize];
        if slot.given_up || !scene.is_free(app, slot) {
            continue;
        }
        if slot.ready_ms() > scene.now_ms {
            plan.look_at(slot.ready_ms());
            continue;
        }
        ready.push((*index, slot.crashes > 0));
    }
    let all_crash = found.empty.iter().all(|index| {
        let slot = &app.slots[*index as usize];
        slot.crashes > 0 || slot.given_up
    });
    if found.running == 0 && all_crash {
        // one is enough to learn whether the app still crashes; starting all would fill the waves at each attempt
        ready.truncate(usize::from(nothing_left));
    }
    for (index, crashed) in ready {
        let slot = &app.slots[index as usize];
        let (version, is_step) = versions.for_missing(slot, nothing_left);
        if is_step {
            // a start of the new version: it counts towards the rollout's limit of indices in flight
            found.behind.push((false, index));
        } else {
            let cause = if crashed {
                Cause::Crashed
            } else {
                Cause::Missing
            };
            plan.start(cause, version, index);
        }
    }
}
