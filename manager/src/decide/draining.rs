//! Replaces instances that are on draining cells or are to be moved elsewhere before it stops them.

use super::{Cause, Found, Plan};
use crate::{
    apps::App,
    look::{Scene, Seen, Versions},
};

/// Replaces the instances of an index that are on draining cells or are to be moved.
pub(super) fn replace(
    app: &App,
    versions: &Versions,
    scene: Scene<'_>,
    index: u32,
    (present, kept): (&[Seen], &[Seen]),
    found: &mut Found,
    plan: &mut Plan,
) {
    let now_ms = scene.now_ms;
    let leaving = || present.iter().filter(|one| one.draining && !one.stopping);
    let Some(first) = leaving().next() else {
        return;
    };
    // a rep that was told to end has little time: a passed check counts at once
    let hurries = leaving().any(|one| one.leaving);
    let min_healthy_ms = if hurries { 0 } else { versions.min_healthy_ms };
    let replaced = kept
        .iter()
        .any(|one| one.is_healthy(now_ms, min_healthy_ms));
    if replaced {
        return leaving().for_each(|one| plan.stop(one, false, now_ms));
    }
    // an instance that does not run is worth no more than its replacement; one that is only being moved stays if the move
    // fails
    leaving()
        .filter(|one| !one.runs() && !one.moving)
        .for_each(|one| plan.stop(one, false, now_ms));
    if let Some(next) = kept.iter().find(|one| one.up) {
        return plan.look_at(next.since_ms + min_healthy_ms);
    }
    if !kept.is_empty() {
        return;
    }
    let runs = leaving().any(Seen::runs);
    if versions.stop_first && runs {
        found.draining.push(index);
        return;
    }
    let slot = &app.slots[index as usize];
    if slot.given_up {
        return;
    }
    if slot.ready_ms() > now_ms {
        return plan.look_at(slot.ready_ms());
    }
    let known = app.template(first.version).is_some();
    let version = if known {
        first.version
    } else {
        versions.for_missing(slot, false).0
    };
    if first.moving {
        plan.start_elsewhere(Cause::Moved, version, index, first.cell);
    } else {
        plan.start(Cause::Evacuated, version, index);
    }
}

/// Stops the old instance first, for apps that want it so: one index after the other, and only while every other one
/// runs.
pub(super) fn stop_first(app: &App, scene: Scene<'_>, found: &Found, plan: &mut Plan) {
    let Some(index) = found.draining.first().filter(|_| found.unwell == 0) else {
        return;
    };
    let held = &app.slots[*index as usize].held;
    for one in held.iter().filter_map(|id| scene.one(*id)) {
        if one.draining {
            plan.stop(&one, false, scene.now_ms);
        }
    }
}
