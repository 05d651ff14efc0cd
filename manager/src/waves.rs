//! Waves: a wave is a start request of one app for some of its indices. It is stored before it is sent, and repeated
//! word for word while its outcome is unknown, a few times at most: then what is still missing starts with another wave.

use std::sync::Arc;

use placement::{Kind, Request, random::SplitMix64};
use shared::{
    InstanceId,
    wire::{
        InstanceOutcome, Outcome, StartReply, WireError, code, instance_id, parse_indices, to_bytes,
    },
};

use crate::{
    apps::{App, OpenWave, WavePhase},
    ids::{AppId, AppUid, BucketId, Revision, WaveId},
    instances::{Life, Managed},
    io::{ManagerOutput, WriteResult},
    parts::{ASK_MS, Parts, Purpose},
    stored::{FORMAT, StateRecord, StoredKey},
};

/// How long an auctioneer has to answer a start: its own deadline is 4 s.
pub const REPLY_MS: u64 = 6_000;
/// How often a wave is sent. Whatever keeps an auctioneer from starting it, such as what is remembered of its id, does
/// not apply to another wave.
const SENDS: u32 = 3;
/// What found no room is tried again after this time, or earlier when there may be room.
pub const RETRY_MS: u64 = 30_000;
/// The wait after an error of an auctioneer.
const RETRY_ERROR_MS: u64 = 5_000;
/// A start that a cell has not answered can reach it for less than this.
const ON_ITS_WAY_MS: u64 = 6_000;
/// Maximum number of indices in waves without an outcome.
pub const MAX_OUTSTANDING: usize = 20_000;
/// Minimum time between two writes of an app's state if losing it would cost nothing but looks.
pub(crate) const SAVE_MS: u64 = 1_000;

/// What a wave is to start.
#[derive(Debug)]
pub(crate) struct NewWave {
    pub(crate) version: u32,
    pub(crate) indices: Vec<u32>,
    /// The cell that the instances are moved from and must not go to.
    pub(crate) exclude_cell: Option<Arc<str>>,
}

/// Begins waves of an app by storing them.
pub(crate) fn begin(parts: &mut Parts, id: AppId, starts: Vec<NewWave>) {
    let now_ms = parts.now_ms;
    let Some(app) = parts.apps.get_mut(id) else {
        return;
    };
    app.acted = app.acted.max(app.record.version);
    leave_earlier_waves(app, &mut parts.random);
    for start in starts {
        let mut indices = start.indices;
        indices.sort_unstable();
        for index in &indices {
            app.slot_mut(*index).asked_ms = now_ms;
        }
        parts.outstanding += indices.len();
        app.wave += 1;
        app.open.push(OpenWave {
            wave: app.wave,
            version: start.version,
            instances: app
                .record
                .definition
                .instances
                .max(indices.last().map_or(1, |i| i + 1)),
            indices,
            exclude_cell: start.exclude_cell,
            phase: WavePhase::Storing,
            tries: 0,
            adopted: false,
        });
    }
    save(parts, id);
}

/// Skips the numbers of earlier waves of a restored app. Which waves it had before the bucket was lost is unknown, and
/// whoever remembers the id of one would take a new wave of that id for a repeat. So the first state stored of it
/// continues far above them.
fn leave_earlier_waves(app: &mut App, random: &mut SplitMix64) {
    if app.record.restored && app.state_revision == Revision::NONE {
        let far = u32::try_from(random.draw() >> 33).unwrap_or_default();
        app.wave = app.wave.max(far);
    }
}

/// Stores the state of an app.
pub(crate) fn save(parts: &mut Parts, id: AppId) {
    let now_ms = parts.now_ms;
    let Some(app) = parts.apps.get_mut(id) else {
        return;
    };
    leave_earlier_waves(app, &mut parts.random);
    let record = StateRecord {
        format: FORMAT,
        wave: app.wave,
        acted: app.acted,
        open: app.open.iter().map(OpenWave::stored).collect(),
        crashes: app.crashes(),
        crash: app.crash.clone(),
        unplaced: app.unplaced.clone(),
    };
    (app.unsaved, app.saved_ms) = (false, now_ms);
    let (uid, expected) = (app.record.uid, Some(app.state_revision));
    let value = Some(to_bytes(&record));
    let purpose = Purpose::State(id, uid);
    let write = parts.write(purpose, StoredKey::State(uid), value, expected);
    if let Some(app) = parts.apps.get_mut(id) {
        app.writing = Some(write);
    }
}

/// Handles the end of the write of an app's state. If it is stored its new waves are sent; otherwise they were never
/// begun.
pub(crate) fn saved(parts: &mut Parts, id: AppId, uid: AppUid, result: WriteResult) {
    let (now_ms, acts) = (parts.now_ms, parts.may_act());
    let Some(app) = parts.apps.get_mut(id).filter(|app| app.record.uid == uid) else {
        return;
    };
    app.writing = None;
    parts.apps.touch(id);
    let Some(app) = parts.apps.get_mut(id) else {
        return;
    };
    let WriteResult::Written(revision) = result else {
        // if it was stored all the same, the watch shows it
        let before: usize = app.open.iter().map(|wave| wave.indices.len()).sum();
        app.open.retain(|wave| wave.phase != WavePhase::Storing);
        let after: usize = app.open.iter().map(|wave| wave.indices.len()).sum();
        (app.unsaved, app.blocked_ms) = (true, now_ms + SAVE_MS);
        parts.outstanding -= before - after;
        return;
    };
    app.state_revision = app.state_revision.max(revision);
    let stored = app
        .open
        .iter_mut()
        .filter(|w| w.phase == WavePhase::Storing);
    let mut waves = Vec::new();
    for wave in stored {
        wave.phase = WavePhase::Held;
        waves.push(wave.wave);
    }
    for wave in waves {
        if acts {
            send(parts, id, wave);
        } else {
            // the lease was lost meanwhile: another manager finds the wave in the bucket; this one looks again when it
            // acts again
            parts.waves.insert((now_ms, id, wave));
        }
    }
}

/// Returns the id of a wave's request.
fn wave_id(app: &App, bucket: BucketId, wave: &OpenWave) -> WaveId {
    WaveId {
        bucket,
        uid: app.record.uid,
        version: wave.version,
        wave: wave.wave,
    }
}

/// Returns the request of a wave, which is the same each time.
fn request(app: &App, bucket: BucketId, wave: &OpenWave) -> Option<Arc<Request>> {
    let mut request = Request::clone(app.template(wave.version)?);
    request.id = wave_id(app, bucket, wave).to_string();
    request.instances = wave.instances;
    request.indices = Some(wave.indices.clone());
    request.exclude_cells = wave.exclude_cell.iter().map(ToString::to_string).collect();
    // the manager waits itself: it must know after the deadline what was started
    request.queue_timeout = Some(placement::Span::default());
    Some(Arc::new(request))
}

/// Returns the ids of a wave's instances.
fn ids(app: &App, bucket: BucketId, wave: &OpenWave) -> Vec<(u32, InstanceId)> {
    let request = wave_id(app, bucket, wave).to_string();
    let id = |index: &u32| (*index, instance_id(&request, &app.name, Kind::Lrp, *index));
    wave.indices.iter().map(id).collect()
}

fn find(app: &App, wave: u32) -> Option<&OpenWave> {
    app.open.iter().find(|open| open.wave == wave)
}

/// Adds the instances of a wave that nobody has reported.
fn enter(parts: &mut Parts, id: AppId, wave: u32) {
    let (Some(app), Some(bucket)) = (parts.apps.get(id), parts.bucket.id) else {
        return;
    };
    let Some(open) = find(app, wave) else {
        return;
    };
    let (uid, version, now_ms) = (app.record.uid, open.version, parts.now_ms);
    for (index, instance) in ids(app, bucket, open) {
        if parts.fleet.get(&instance).is_none() {
            let asked = Managed::asked(id, uid, (index, version, wave), now_ms);
            parts.enter(instance, asked);
        }
    }
}

/// Sends the request of a wave.
fn send(parts: &mut Parts, id: AppId, wave: u32) {
    enter(parts, id, wave);
    let now_ms = parts.now_ms;
    let (Some(app), Some(bucket)) = (parts.apps.get_mut(id), parts.bucket.id) else {
        return;
    };
    let Some(open) = app.open.iter_mut().find(|open| open.wave == wave) else {
        return;
    };
    // longer each time: repeats do not help an auctioneer that is too busy to answer
    let wait = REPLY_MS << open.tries.min(SENDS);
    open.phase = WavePhase::Sent {
        ask_ms: now_ms + wait,
    };
    open.tries += 1;
    let (repeat, count) = (open.tries > 1, open.indices.len());
    parts.moves.sent(id, &open.indices);
    let Some(request) = find(app, wave).and_then(|open| request(app, bucket, open)) else {
        // its version is no longer known
        return abandon(parts, id, wave);
    };
    parts.counters.asked += count as u64;
    parts.counters.repeated += u64::from(repeat);
    parts.waves.insert((now_ms + wait, id, wave));
    parts.out.push(ManagerOutput::Start(request));
}

/// Takes over the waves found by a new holder of the lease: they may have been sent.
pub(crate) fn take_up(parts: &mut Parts, id: AppId) {
    let now_ms = parts.now_ms;
    let Some(app) = parts.apps.get_mut(id) else {
        return;
    };
    let mut found = Vec::new();
    for open in &mut app.open {
        if open.phase != WavePhase::Storing {
            // due at once, so that the cells are asked before anything is sent a second time
            open.phase = WavePhase::Sent { ask_ms: now_ms };
            found.push(open.wave);
        }
    }
    for wave in found {
        enter(parts, id, wave);
        parts.waves.insert((now_ms, id, wave));
    }
}

/// Looks at the waves that are due.
pub(crate) fn due(parts: &mut Parts) {
    if !parts.may_act() {
        return;
    }
    while let Some((at, id, wave)) = parts.waves.first().copied()
        && at <= parts.now_ms
    {
        parts.waves.pop_first();
        let phase = parts.apps.get(id).and_then(|app| find(app, wave));
        let Some(phase) = phase.map(|open| open.phase) else {
            continue;
        };
        match phase {
            WavePhase::Storing => {}
            // an entry from before its last change: skipping it here is cheaper than searching for it there
            WavePhase::Sent { ask_ms } if ask_ms > at => {}
            WavePhase::Held | WavePhase::Sent { .. } => ask(parts, id, wave),
            WavePhase::Asking { send_ms } if send_ms > at => {}
            WavePhase::Asking { .. } => repeat(parts, id, wave),
        }
    }
}

/// Asks the cells, as no auctioneer has answered.
fn ask(parts: &mut Parts, id: AppId, wave: u32) {
    parts.ask();
    let send_ms = parts.next_ask_ms().max(parts.now_ms) + ASK_MS;
    enter(parts, id, wave);
    if let Some(app) = parts.apps.get_mut(id) {
        let open = app.open.iter_mut().find(|open| open.wave == wave);
        if let Some(open) = open {
            open.phase = WavePhase::Asking { send_ms };
        }
    }
    parts.waves.insert((send_ms, id, wave));
}

/// Repeats a wave, in the same words, after the cells were asked and some of its instances are on none of them.
fn repeat(parts: &mut Parts, id: AppId, wave: u32) {
    let (Some(app), Some(bucket)) = (parts.apps.get(id), parts.bucket.id) else {
        return;
    };
    let Some(open) = find(app, wave) else {
        return;
    };
    let all = ids(app, bucket, open);
    let waits = |id: &InstanceId| parts.fleet.get(id).is_some_and(|i| i.life == Life::Asked);
    let waiting: Vec<InstanceId> = all.iter().map(|(_, id)| *id).filter(waits).collect();
    if waiting.is_empty() {
        return close(parts, id, wave);
    }
    let record = &app.record;
    let ends = record.deleted || record.stopped;
    let wanted = record.definition.instances;
    if ends || open.indices.last().is_some_and(|last| *last >= wanted) {
        return abandon(parts, id, wave);
    }
    if open.tries >= SENDS {
        parts.counters.given_up += waiting.len() as u64;
        return abandon(parts, id, wave);
    }
    if !open.adopted || waiting.len() == all.len() {
        return send(parts, id, wave);
    }
    // another manager sent it: its unreported instances may have ended since
    abandon(parts, id, wave);
}

/// Closes a wave that is not repeated: its unreported instances are not waited for.
fn abandon(parts: &mut Parts, id: AppId, wave: u32) {
    let open = parts.apps.get(id).and_then(|app| find(app, wave).cloned());
    if let Some(open) = open {
        forget_waiting(parts, id, &open);
    }
    close(parts, id, wave);
}

/// Forgets the instances of a wave that nobody has reported. Whether they run all the same is known after a ttl.
pub(crate) fn forget_waiting(parts: &mut Parts, id: AppId, wave: &OpenWave) {
    let (Some(app), Some(bucket)) = (parts.apps.get(id), parts.bucket.id) else {
        return;
    };
    for (index, instance) in ids(app, bucket, wave) {
        let waits = parts.fleet.get(&instance);
        if waits.is_none_or(|instance| instance.life != Life::Asked) {
            continue;
        }
        parts.leave(&instance);
        if let Some(app) = parts.apps.get_mut(id) {
            app.slot_mut(index).free_in = 0;
        }
    }
}

/// Closes a wave, which has its outcome.
fn close(parts: &mut Parts, id: AppId, wave: u32) {
    if let Some(app) = parts.apps.get_mut(id) {
        if let Some(at) = app.open.iter().position(|open| open.wave == wave) {
            let open = app.open.remove(at);
            parts.outstanding -= open.indices.len();
        }
        app.unsaved = true;
    }
    parts.apps.touch(id);
}

/// Handles an auctioneer's answer.
pub(crate) fn outcome(parts: &mut Parts, wave: WaveId, answer: Result<Box<StartReply>, WireError>) {
    if parts.bucket.id != Some(wave.bucket) {
        return;
    }
    let Some(id) = parts.apps.of_uid(wave.uid) else {
        return;
    };
    let Some(app) = parts.apps.get(id).filter(|app| app.record.uid == wave.uid) else {
        return;
    };
    let Some(open) = find(app, wave.wave) else {
        return;
    };
    let all = ids(app, wave.bucket, open);
    match answer {
        Ok(reply) => {
            for outcome in &reply.instances {
                one_outcome(parts, id, &all, outcome);
            }
        }
        // it may have been begun: the cells are asked
        Err(error) if error.code == code::INTERNAL => return,
        Err(error) => {
            for (_, instance) in &all {
                unplaced(parts, id, instance, RETRY_ERROR_MS, &error.message);
            }
        }
    }
    let waits = |id: &InstanceId| parts.fleet.get(id).is_some_and(|i| i.life == Life::Asked);
    if !all.iter().any(|(_, id)| waits(id)) {
        close(parts, id, wave.wave);
    }
}

fn one_outcome(parts: &mut Parts, id: AppId, all: &[(u32, InstanceId)], outcome: &InstanceOutcome) {
    let group = outcome.indices.as_deref();
    let group = group.and_then(|text| parse_indices(text, placement::MAX_INSTANCES as usize));
    let indices = outcome.index.into_iter().chain(group.into_iter().flatten());
    for index in indices {
        let Ok(at) = all.binary_search_by_key(&index, |(index, _)| *index) else {
            continue;
        };
        let instance = all[at].1;
        match outcome.outcome {
            Outcome::Placed => sent(parts, instance, outcome.cell.as_deref(), 0),
            Outcome::Unknown => sent(parts, instance, outcome.cell.as_deref(), ON_ITS_WAY_MS),
            // not final, and no further answer comes: the wave is repeated when its time is over
            Outcome::Queued => {}
            Outcome::Unplaced => {
                let reason = outcome.reason.as_deref().unwrap_or("unplaced");
                unplaced(parts, id, &instance, RETRY_MS, reason);
            }
        }
    }
}

/// Records that a cell accepted an instance, or may have. What the cell itself has reported takes precedence.
fn sent(parts: &mut Parts, id: InstanceId, cell: Option<&str>, wait_ms: u64) {
    let now_ms = parts.now_ms;
    let Some(instance) = parts.fleet.get_mut(&id) else {
        return;
    };
    let app = instance.app;
    instance.doubt_ms = now_ms + wait_ms;
    if instance.life != Life::Asked {
        return;
    }
    // an auctioneer has heard of the cell: if it counts as lost here, it does so again after a ttl of silence, together
    // with the instances it was sent now
    let cell = cell.and_then(|cell| parts.hear_of(cell));
    // without a cell the wave is repeated
    if let Some(cell) = cell
        && let Some(instance) = parts.fleet.get_mut(&id)
    {
        (instance.life, instance.since_ms) = (Life::Sent, now_ms);
        parts.put_on(id, cell);
        if let Some(app) = parts.apps.get_mut(app) {
            app.unplaced = None;
        }
    }
    parts.apps.touch(app);
}

fn unplaced(parts: &mut Parts, id: AppId, instance: &InstanceId, wait_ms: u64, reason: &str) {
    let asked = parts.fleet.get(instance).filter(|i| i.life == Life::Asked);
    let Some(index) = asked.map(|instance| instance.index) else {
        return;
    };
    parts.leave(instance);
    let due_ms = parts.now_ms + wait_ms;
    if let Some(app) = parts.apps.get_mut(id) {
        app.unplaced = Some(placement::cut(reason).into_owned());
        let slot = app.slot_mut(index);
        (slot.due_ms, slot.no_room) = (slot.due_ms.max(due_ms), true);
        parts.no_room.insert(id);
    }
}

/// Tries again what found no room, as there may be some now.
pub(crate) fn room(parts: &mut Parts) {
    if parts.now_ms < parts.room_ms {
        return;
    }
    parts.room_ms = u64::MAX;
    for id in std::mem::take(&mut parts.no_room) {
        if let Some(app) = parts.apps.get_mut(id) {
            for slot in app.slots.iter_mut().filter(|slot| slot.no_room) {
                (slot.no_room, slot.due_ms) = (false, 0);
            }
        }
        parts.apps.touch(id);
    }
}
