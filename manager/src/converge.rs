//! Carries out what was decided, within the bounds on starts and stops and the most urgent first.

use std::sync::Arc;

use placement::FastMap;
use shared::wire::{Event, kind, to_bytes};

use crate::{
    decide::{Cause, Plan, StopOne, decide},
    ids::{AppId, AppUid, CellId, Revision},
    io::WriteResult,
    look::Scene,
    parts::{Parts, Purpose},
    stored::{FORMAT, GoneRecord, HISTORY, RolloutPhase, RolloutRecord, StoredKey},
    waves::{self, MAX_OUTSTANDING, NewWave, SAVE_MS},
};

/// The indices that an app wants to start.
#[derive(Debug)]
struct Wish {
    cause: Cause,
    /// Negated thousandths of the app that are missing, so that the larger share comes first.
    present: i64,
    app: AppId,
    version: u32,
    indices: Vec<u32>,
    exclude_cell: Option<CellId>,
}

/// Looks at every app for which something has changed.
pub(crate) fn run(parts: &mut Parts) {
    if !parts.may_act() {
        return;
    }
    settled(parts);
    let mut wishes = Vec::new();
    for id in parts.apps.take_dirty(parts.now_ms) {
        one_app(parts, id, &mut wishes);
    }
    // stable sort: equal wishes keep the order of the apps
    wishes.sort_by_key(|wish| (wish.cause, wish.present));
    start(parts, wishes);
}

/// Ends settling once a ttl has passed since anything could have been missed.
fn settled(parts: &mut Parts) {
    if parts.settling.is_none() {
        return;
    }
    let moment = parts.clocks.moment();
    let ttl_ms = parts.places.longest_ttl_ms();
    if parts
        .settling
        .take_if(|since| moment.is_past(*since, ttl_ms))
        .is_some()
    {
        parts.apps.touch_all();
    }
}

fn one_app(parts: &mut Parts, id: AppId, wishes: &mut Vec<Wish>) {
    let scene = Scene {
        now_ms: parts.now_ms,
        moment: parts.clocks.moment(),
        settled: parts.settling.is_none(),
        period: parts.period,
        fleet: &parts.fleet,
        places: &parts.places,
        moves: &parts.moves,
    };
    let Some(app) = parts.apps.get(id) else {
        return;
    };
    // the write in progress determines what is known next
    if app.writing.is_some() {
        return;
    }
    if app.record.deleted && app.is_empty() && scene.settled {
        return bury(parts, id);
    }
    let plan = decide(app, scene);
    let wanted = app.record.definition.instances.max(1);
    note(parts, id, &plan);
    stop(parts, id, &plan.stops);
    if let Some((phase, reason)) = plan.ended.clone() {
        rollout_ended(parts, id, phase, reason);
    }
    parts.apps.touch_at(id, plan.due_ms);
    let urgent = plan.starts.iter().filter(|start| start.cause.is_needed());
    let missing: usize = urgent.map(|start| start.indices.len()).sum();
    let permille = missing.saturating_mul(1_000) / wanted as usize;
    let present = -i64::try_from(permille).unwrap_or(i64::MAX);
    if plan.starts.is_empty() {
        return save(parts, id);
    }
    wishes.extend(plan.starts.into_iter().map(|start| Wish {
        cause: start.cause,
        present,
        app: id,
        version: start.version,
        indices: start.indices,
        exclude_cell: start.moved_from,
    }));
}

/// Records what the decision found.
fn note(parts: &mut Parts, id: AppId, plan: &Plan) {
    let now_ms = parts.now_ms;
    let Some(app) = parts.apps.get_mut(id) else {
        return;
    };
    for (index, version) in &plan.alone {
        let target = app.record.version;
        let slot = app.slot_mut(*index);
        slot.version = *version;
        slot.rolling &= *version != target;
    }
    for index in &plan.rolling {
        app.slot_mut(*index).rolling = true;
    }
    if plan.complete > app.progress.0 {
        app.progress = (plan.complete, now_ms);
    }
    // a lower count is adopted, so that only an increase is progress
    app.progress.0 = app.progress.0.min(plan.complete);
}

/// Stores unsaved state, once a second at most.
fn save(parts: &mut Parts, id: AppId) {
    let now_ms = parts.now_ms;
    let Some(app) = parts.apps.get(id).filter(|app| app.unsaved) else {
        return;
    };
    let due_ms = app.saved_ms + SAVE_MS;
    if app.saved_ms > 0 && now_ms < due_ms {
        parts.apps.touch_at(id, due_ms);
    } else {
        waves::save(parts, id);
    }
}

/// Sends stops. Of the ones that nobody asked for, only a few are sent at once.
fn stop(parts: &mut Parts, id: AppId, stops: &[StopOne]) {
    let now_ms = parts.now_ms;
    let most_of_all = (parts.fleet.len() / 100).max(10);
    let Some(app) = parts.apps.get_mut(id) else {
        return;
    };
    let name = Arc::clone(&app.name);
    let most = (app.record.definition.instances as usize / 10).max(1);
    let mut send: Vec<(CellId, shared::InstanceId)> = Vec::new();
    let mut held = 0;
    for stop in stops {
        if stop.braked {
            let own = app.brake.allows(now_ms, most);
            if !own || !parts.brake.allows(now_ms, most_of_all) {
                held += 1;
                continue;
            }
            app.brake.count();
            parts.brake.count();
        }
        send.push((stop.cell, stop.id));
    }
    let again_ms = app.brake.ends_ms().max(parts.brake.ends_ms());
    let news = held > 0 && !std::mem::replace(&mut app.brake.told, held > 0);
    parts.counters.braked += held;
    parts.stop(&name, &send);
    if held > 0 {
        parts.apps.touch_at(id, again_ms);
    }
    if news {
        let why =
            format!("{held} instances too many are stopped later: only a few are stopped at once");
        parts.tell_app(kind::STOP_BRAKE, &name, None, why);
    }
}

/// Begins waves, the most urgent first, up to the limit of indices without an outcome.
fn start(parts: &mut Parts, wishes: Vec<Wish>) {
    let mut room = MAX_OUTSTANDING.saturating_sub(parts.outstanding);
    let mut begun: Vec<(AppId, Vec<NewWave>)> = Vec::new();
    let mut place_of: FastMap<AppId, usize> = FastMap::default();
    for mut wish in wishes {
        if wish.indices.len() > room {
            wish.indices.truncate(room);
            parts.apps.touch_at(wish.app, parts.now_ms + SAVE_MS);
        }
        room -= wish.indices.len();
        if wish.indices.is_empty() {
            continue;
        }
        let name = |cell| Arc::clone(&parts.places.get(cell).name);
        let start = NewWave {
            version: wish.version,
            indices: wish.indices,
            exclude_cell: wish.exclude_cell.map(name),
        };
        let at = *place_of.entry(wish.app).or_insert(begun.len());
        if at == begun.len() {
            begun.push((wish.app, Vec::new()));
        }
        begun[at].1.push(start);
    }
    for (app, starts) in begun {
        waves::begin(parts, app, starts);
    }
}

/// Stores and reports that the rollout of the present version has ended.
fn rollout_ended(parts: &mut Parts, id: AppId, phase: RolloutPhase, reason: Option<String>) {
    let Some(app) = parts.apps.get_mut(id) else {
        return;
    };
    let version = app.record.version;
    let record = RolloutRecord {
        format: FORMAT,
        version,
        phase,
        reason: reason.clone(),
    };
    let (name, uid) = (Arc::clone(&app.name), app.record.uid);
    let (expected, first) = (app.rollout_revision, app.record.before.is_none());
    // set now, not when it is stored: until then every look would decide it again
    app.rollout = Some(record.clone());
    let purpose = Purpose::Rollout(id, uid);
    let value = Some(to_bytes(&record));
    parts.write(purpose, StoredKey::Rollout(uid), value, Some(expected));
    parts.apps.touch(id);
    if first {
        return;
    }
    let kind = match phase {
        RolloutPhase::Done => kind::ROLLOUT_DONE,
        RolloutPhase::Failed => kind::ROLLOUT_FAILED,
    };
    let mut event = Event::app(kind, &*name);
    event.reason = Some(match reason {
        Some(reason) => format!("version {version}: {reason}"),
        None => format!("version {version}"),
    });
    parts.tell(event);
    if phase == RolloutPhase::Failed {
        crate::commands::revert(parts, id);
    }
}

/// Handles the end of the write of a rollout's end. If it failed, the end is decided again.
pub(crate) fn rollout_stored(parts: &mut Parts, id: AppId, uid: AppUid, result: WriteResult) {
    let app = parts.apps.get_mut(id);
    let Some(app) = app.filter(|app| app.record.uid == uid) else {
        return;
    };
    match result {
        WriteResult::Written(revision) => {
            app.rollout_revision = app.rollout_revision.max(revision);
        }
        WriteResult::Conflict | WriteResult::Failed => {
            let failed = app.rollout.take().and_then(|rollout| rollout.reason);
            app.failing = failed.or(app.failing.take());
            app.blocked_ms = parts.now_ms + SAVE_MS;
        }
    }
    parts.apps.touch(id);
}

/// Removes the keys of a deleted app of which no cell reports anything any more, once its deletion is stored. Until
/// then, only the app's own key causes instances on a silent cell to end.
fn bury(parts: &mut Parts, id: AppId) {
    let Some(app) = parts.apps.get_mut(id) else {
        return;
    };
    // until the watch shows what is written now; a failed write is repeated
    app.blocked_ms = parts.now_ms + 30 * SAVE_MS;
    let name = Arc::clone(&app.name);
    let former = app.record.former.iter().copied();
    let mut unsaid: Vec<AppUid> = former.chain([app.record.uid]).collect();
    unsaid.retain(|uid| !parts.bucket.gone.has(*uid, &name));
    if unsaid.is_empty() {
        return remove(parts, id);
    }
    for uid in parts.bucket.gone.surplus(&unsaid) {
        parts.write(Purpose::Other, StoredKey::Gone(uid), None, None);
    }
    for uid in unsaid {
        let record = GoneRecord {
            format: FORMAT,
            app: name.to_string(),
        };
        let value = Some(to_bytes(&record));
        parts.write(Purpose::Other, StoredKey::Gone(uid), value, None);
    }
}

/// Removes everything stored of an app.
fn remove(parts: &mut Parts, id: AppId) {
    let Some(app) = parts.apps.get(id) else {
        return;
    };
    let (uid, name, revision) = (app.record.uid, Arc::clone(&app.name), app.revision);
    let version = app.record.version;
    for (key, expected) in [
        (StoredKey::State(uid), app.state_revision),
        (StoredKey::Rollout(uid), app.rollout_revision),
    ] {
        if expected != Revision::NONE {
            parts.write(Purpose::Other, key, None, Some(expected));
        }
    }
    for version in version.saturating_sub(HISTORY - 1).max(1)..=version {
        let key = StoredKey::History(uid, version);
        parts.write(Purpose::Other, key, None, None);
    }
    // last: while this key exists, any other leftovers are found and removed again
    parts.write(Purpose::Other, StoredKey::App(name), None, Some(revision));
}
