//! What the end of an instance means: either a requested stop, or a crash that is counted.

use std::sync::Arc;

use shared::{InstanceId, clock::millis, wire::kind};

use crate::{
    instances::{Life, Managed},
    parts::Parts,
};

/// How an instance ended that nobody had told to end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash<'a> {
    /// How long it had run, milliseconds.
    pub(crate) ran_ms: u64,
    /// In its cell's words, such as `exit 1`.
    pub(crate) how: Option<&'a str>,
}

/// Handles an instance that has ended for good on its cell, by itself or because it was stopped.
pub(crate) fn ended(parts: &mut Parts, id: InstanceId, crash: Option<Crash<'_>>) {
    let Some(instance) = parts.leave(&id) else {
        return;
    };
    parts.room();
    let asked_for = instance.stop_ms > 0 || instance.life == Life::Stopping;
    if let Some(crash) = crash.filter(|_| !asked_for && !instance.suspect) {
        count_crash(parts, &instance, crash);
    }
}

/// Counts a crash and determines when the index is due again.
fn count_crash(parts: &mut Parts, instance: &Managed, crash: Crash<'_>) {
    let (now_ms, id) = (parts.now_ms, instance.app);
    let Some(app) = parts
        .apps
        .get(id)
        .filter(|app| app.record.uid == instance.uid)
    else {
        return;
    };
    let definition = &app.record.definition;
    if app.record.deleted || app.record.stopped || instance.index >= definition.instances {
        return;
    }
    parts.counters.crashed += 1;
    let settled_in = millis(definition.update.min_healthy.0).max(1);
    let is_new = instance.version == app.record.version && app.record.before.is_some();
    let fails = is_new && app.phase().is_none() && crash.ran_ms < settled_in;
    let stays = |id: &InstanceId| {
        parts.fleet.get(id).is_some_and(|other| {
            let draining = other
                .cell
                .is_some_and(|cell| parts.places.get(cell).draining);
            !other.suspect && !draining
        })
    };
    let alone = !app.slots[instance.index as usize].held.iter().any(stays);
    let policy = definition.crash.clone();
    let Some(app) = parts.apps.get_mut(id) else {
        return;
    };
    let how = crash.how.map(placement::cut);
    app.crash = how.map(std::borrow::Cow::into_owned);
    app.unsaved = true;
    if fails {
        let (index, version, last) = (instance.index, instance.version, app.last_crash());
        let why = format!("index {index} of version {version} failed{last}");
        app.failing.get_or_insert(why);
    }
    let slot = app.slot_mut(instance.index);
    slot.crashed_version = instance.version;
    // another instance holds the index, so nothing waits for it to become due
    if !alone {
        return;
    }
    slot.crashes = policy.count(slot.crashes, crash.ran_ms);
    let (count, wait) = (slot.crashes, policy.wait_ms(slot.crashes));
    match wait {
        Some(wait) => slot.due_ms = now_ms + wait,
        None => slot.given_up = true,
    }
    if wait.is_none() {
        let (name, last) = (Arc::clone(&app.name), app.last_crash());
        let why = format!(
            "crashed {count} times{last}: not started again until the app is restarted, changed or deleted"
        );
        parts.tell_app(kind::GIVEN_UP, &name, Some(instance.index), why);
    }
}
