//! What is reported about an app. It does not include the environment and the command of its instances.

use shared::wire::{AppStatus, Rollout, format_indices};

use crate::{
    apps::{App, Slot},
    instances::Managed,
    parts::Parts,
    stored::RolloutPhase,
};

/// Maximum number of indices named in a reason.
const NAMED: usize = 20;

/// Returns the status of an app.
pub(crate) fn status(app: &App, parts: &Parts) -> AppStatus {
    let record = &app.record;
    let ends = record.stopped || record.deleted;
    let mut status = AppStatus {
        app: app.name.to_string(),
        uid: record.uid.to_string(),
        version: record.version,
        wanted: if ends { 0 } else { record.definition.instances },
        running: 0,
        starting: 0,
        crashed: 0,
        given_up: 0,
        suspect: 0,
        complete: app.progress.0,
        rollout: rollout(app),
        stopped: record.stopped,
        deleted: record.deleted,
        went_back: app.went_back,
        unplaced: app.unplaced.clone(),
        why: None,
    };
    let shown = if ends {
        app.slots.len()
    } else {
        status.wanted as usize
    };
    for slot in app.slots.iter().take(shown) {
        count(slot, parts, &mut status);
    }
    status.why = why(app, &status, parts);
    status
}

fn rollout(app: &App) -> Rollout {
    match app.phase() {
        Some(RolloutPhase::Done) => Rollout::Done,
        Some(RolloutPhase::Failed) => Rollout::Failed,
        None if app.record.paused => Rollout::Paused,
        None => Rollout::Running,
    }
}

fn count(slot: &Slot, parts: &Parts, status: &mut AppStatus) {
    let held = || slot.held.iter().filter_map(|id| parts.fleet.get(id));
    status.suspect += u32::try_from(held().filter(|one| one.suspect).count()).unwrap_or(0);
    let mut present = held().filter(|one| !one.suspect).peekable();
    if present.peek().is_none() {
        status.given_up += u32::from(slot.given_up);
        status.crashed += u32::from(slot.crashes > 0 && !slot.given_up);
    } else if present.any(Managed::is_up) {
        status.running += 1;
    } else {
        status.starting += 1;
    }
}

/// Returns the most important reason why not everything wanted runs in the wanted version.
fn why(app: &App, status: &AppStatus, parts: &Parts) -> Option<String> {
    if app.unreadable {
        return Some("its stored value cannot be read: put it again".into());
    }
    if app.went_back {
        let version = status.version;
        return Some(format!(
            "the stored version {version} is older than what ran: put it again"
        ));
    }
    let ending = status.running + status.starting;
    if status.stopped || status.deleted {
        return (ending > 0).then(|| format!("{ending} of its instances are ending"));
    }
    if status.rollout == Rollout::Failed {
        let rollout = app.rollout.as_ref();
        let reason = rollout.and_then(|rollout| rollout.reason.as_deref());
        return Some(format!("the rollout failed: {}", reason.unwrap_or("?")));
    }
    if status.running >= status.wanted {
        return None;
    }
    if status.given_up > 0 {
        let (indices, last) = (empty(app, |slot| slot.given_up), app.last_crash());
        return Some(format!(
            "index {indices} crashed too often{last} and is not started again: restart it or put a new version"
        ));
    }
    if let Some(unplaced) = &status.unplaced {
        return Some(unplaced.clone());
    }
    if status.crashed > 0 {
        let crashed = app.slots.iter().filter(|slot| slot.crashes > 0);
        let due = crashed.map(Slot::ready_ms).min().unwrap_or(0);
        let wait_s = due.saturating_sub(parts.now_ms).div_ceil(1_000);
        let (indices, last) = (empty(app, |slot| slot.crashes > 0), app.last_crash());
        return Some(format!(
            "index {indices} crashed{last}; the next start is in {wait_s} s"
        ));
    }
    let unready = named(app, |slot| {
        let held = || slot.held.iter().filter_map(|id| parts.fleet.get(id));
        held().any(|one| one.unready && !one.suspect) && !held().any(Managed::is_up)
    });
    unready.map(|indices| format!("index {indices} runs and is not ready"))
}

/// Lists the first matching indices where nothing is.
fn empty(app: &App, which: impl Fn(&Slot) -> bool) -> String {
    named(app, |slot| slot.held.is_empty() && which(slot)).unwrap_or_default()
}

/// Lists the first matching indices; none if there are none.
fn named(app: &App, which: impl Fn(&Slot) -> bool) -> Option<String> {
    let slots = (0..).zip(&app.slots);
    let found = slots.filter(|(_, slot)| which(slot));
    let mut indices: Vec<u32> = found.map(|(index, _)| index).take(NAMED + 1).collect();
    let more = if indices.len() > NAMED { " …" } else { "" };
    indices.truncate(NAMED);
    (!indices.is_empty()).then(|| format!("{}{more}", format_indices(indices)))
}
