//! Replaces the old version by the new one, a few indices at a time.

use super::{Cause, Found, Plan};
use crate::{
    apps::App,
    look::{Scene, Seen, Versions},
    stored::RolloutPhase,
};

/// Determines whether an index has the wanted version, is on its way to it, or is behind.
pub(super) fn look(
    versions: &Versions,
    scene: Scene<'_>,
    index: u32,
    (present, kept): (&[Seen], &[Seen]),
    found: &mut Found,
    plan: &mut Plan,
) {
    let now_ms = scene.now_ms;
    let wanted = |one: &&Seen| versions.conforms(one.version);
    let healthy = |one: &&Seen| one.is_healthy(now_ms, versions.min_healthy_ms);
    let new = || kept.iter().filter(wanted);
    let old = || present.iter().filter(|one| !wanted(one));
    let is_well = new().any(|one| healthy(&one));
    if let Some(next) = new().find(|one| one.up && !healthy(one)) {
        plan.look_at(next.since_ms + versions.min_healthy_ms);
    }
    if old().next().is_none() {
        if is_well {
            plan.complete += 1;
        } else {
            found.in_flight += 1;
        }
        return;
    }
    if is_well {
        found.in_flight += 1;
        old().for_each(|one| plan.stop(one, false, now_ms));
    } else if versions.has_failed() {
        // the mixed state is kept: the new instance goes if the old one is still there
        if kept.iter().any(|one| !wanted(&one)) {
            let all = present.iter().filter(wanted);
            all.for_each(|one| plan.stop(one, false, now_ms));
        }
    } else if new().next().is_some() || old().any(|one| one.stopping) {
        found.in_flight += 1;
    } else {
        found.behind.push((old().any(|one| one.up), index));
    }
}

/// Takes the next step and determines whether the rollout has ended.
pub(super) fn step(
    app: &App,
    versions: &Versions,
    scene: Scene<'_>,
    found: &mut Found,
    plan: &mut Plan,
) {
    if let Some(reason) = &app.failing
        && app.phase().is_none()
    {
        plan.ended = Some((RolloutPhase::Failed, Some(reason.clone())));
        return;
    }
    if versions.has_failed() {
        return;
    }
    let wanted = app.record.definition.instances;
    if versions.phase.is_none() && plan.complete == wanted {
        plan.ended = Some((RolloutPhase::Done, None));
        return;
    }
    if versions.paused {
        return finish_begun(app, versions, scene, found, plan);
    }
    if versions.rolls() && is_over(app, versions, scene, plan) {
        return;
    }
    // indices whose missing instance is being started count too, as the new version is not known to be good
    let begun = if versions.rolls() {
        found.empty.len()
    } else {
        0
    };
    let on_its_way = found.in_flight + begun.min(rolling(app, found));
    let room = versions.max_in_flight.saturating_sub(on_its_way);
    // an index whose instance does not run can only improve
    found.behind.sort_unstable();
    let next: Vec<(bool, u32)> = found.behind.iter().take(room).copied().collect();
    for (_, index) in next {
        replace(app, versions, scene, index, plan);
    }
}

/// Finishes what was begun: a waiting rollout leaves no index empty whose old instance it has stopped.
fn finish_begun(app: &App, versions: &Versions, scene: Scene<'_>, found: &Found, plan: &mut Plan) {
    let behind = found.behind.iter().map(|(_, index)| *index);
    for index in behind.filter(|index| found.empty.contains(index)) {
        replace(app, versions, scene, index, plan);
    }
}

/// Counts the indices whose old instance was stopped and that have no new one yet.
fn rolling(app: &App, found: &Found) -> usize {
    let behind = |index: &u32| found.behind.iter().any(|(_, behind)| behind == index);
    let empty = found.empty.iter().filter(|index| !behind(index));
    empty
        .filter(|index| app.slots[**index as usize].rolling)
        .count()
}

/// Determines whether the rollout has failed because it makes no progress or a start takes too long.
fn is_over(app: &App, versions: &Versions, scene: Scene<'_>, plan: &mut Plan) -> bool {
    let now_ms = scene.now_ms;
    let (done, since_ms) = app.progress;
    let deadline_ms = since_ms.saturating_add(versions.deadline_ms);
    if versions.deadline_ms > 0 && plan.complete <= done {
        if now_ms >= deadline_ms {
            plan.ended = Some((RolloutPhase::Failed, Some("progress deadline".into())));
            return true;
        }
        plan.look_at(deadline_ms);
    }
    let held = app.slots.iter().flat_map(|slot| &slot.held);
    for one in held.filter_map(|id| scene.one(*id)) {
        let is_new = one.version == versions.target && one.is_kept();
        if !is_new || one.runs() {
            continue;
        }
        let late_ms = one.since_ms + versions.start_timeout_ms;
        if now_ms >= late_ms {
            plan.ended = Some((RolloutPhase::Failed, Some("start timeout".into())));
            return true;
        }
        plan.look_at(late_ms);
    }
    false
}

/// Begins to replace the instance of an index.
fn replace(app: &App, versions: &Versions, scene: Scene<'_>, index: u32, plan: &mut Plan) {
    let slot = &app.slots[index as usize];
    if slot.ready_ms() > scene.now_ms {
        return plan.look_at(slot.ready_ms());
    }
    let old = slot.held.iter().filter_map(|id| scene.one(*id));
    let old: Vec<Seen> = old.filter(Seen::is_present).collect();
    if versions.stop_first && !old.is_empty() {
        plan.rolling.push(index);
        return old
            .iter()
            .for_each(|one| plan.stop(one, false, scene.now_ms));
    }
    plan.start(Cause::Update, versions.target, index);
}
