//! What is on draining cells, or is to be moved, gets a replacement elsewhere before it is stopped.

use super::{Cause, Found, Plan};
use crate::{
    apps::App,
    look::{Scene, Seen, Versions},
};

/// Replaces what an index has on draining cells, or what of it is to be moved.
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
    // what does not run is worth nothing: its replacement is as far
    leaving()
        .filter(|one| !one.runs())
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
    let cause = if first.moving {
        Cause::Moved
    } else {
        Cause::Evacuated
    };
    plan.start(cause, version, index);
}

/// Where the old instance is stopped first: one after the other, and only while every other index runs.
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
