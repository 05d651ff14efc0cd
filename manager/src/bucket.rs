//! The bucket: what its watch shows and what each value changes.

mod records;

use std::sync::Arc;

use bytes::Bytes;
use shared::wire::{Event, kind, to_bytes};

use crate::{
    apps::App,
    ids::{AppId, AppUid, BucketId, Revision},
    io::WriteResult,
    lease::LeaseChange,
    office,
    parts::{Parts, Purpose},
    stored::{
        AppRecord, FORMAT, GoneRecord, LeaseRecord, MetaRecord, StoredKey, Unusable, read_stored,
    },
    waves,
};

/// Pause between two attempts to store the bucket's id.
const META_MS: u64 = 1_000;

/// Handles a value as the watch shows it; none = the key was deleted.
pub(crate) fn shown(parts: &mut Parts, key: &str, revision: Revision, value: Option<&Bytes>) {
    let Ok(stored_key) = key.parse::<StoredKey>() else {
        parts.counters.dropped_unreadable += 1;
        return;
    };
    let was_newer = parts.bucket.newer.remove(key);
    // the lease is in its own bucket, with its own revisions
    if parts.bucket.ready && stored_key != StoredKey::Lease {
        parts.bucket.highest = parts.bucket.highest.max(revision);
    }
    let result = match stored_key {
        StoredKey::Lease => lease(parts, revision, value),
        StoredKey::Meta => meta(parts, revision, value),
        StoredKey::App(name) => app(parts, &name, revision, value),
        StoredKey::State(uid) | StoredKey::Rollout(uid)
            if !parts.bucket.ready && parts.apps.of_uid(uid).is_none() =>
        {
            let early = (revision, value.cloned());
            parts.bucket.early.insert(stored_key, early);
            Ok(())
        }
        StoredKey::State(uid) => records::state(parts, uid, revision, value),
        StoredKey::Rollout(uid) => records::rollout(parts, uid, revision, value),
        StoredKey::Gone(uid) => gone(parts, uid, revision, value),
        // only commands read it
        StoredKey::History(..) => Ok(()),
    };
    if let Err(error) = result {
        unusable(parts, key, error);
    }
    if was_newer && parts.bucket.newer.is_empty() {
        parts.lease.stay();
    }
}

/// Handles a stored value that cannot be used.
pub(crate) fn unusable(parts: &mut Parts, key: &str, error: Unusable) {
    match error {
        Unusable::Newer(format) => {
            parts.bucket.newer.insert(key.to_owned());
            let why = format!(
                "{key} has format {format}; this manager reads {FORMAT} at most and does nothing: run a newer version of it"
            );
            let mut event = Event::app(kind::NEWER_FORMAT, "manager");
            event.reason = Some(why);
            parts.tell(event);
            office::leave(parts);
        }
        Unusable::Unreadable(error) => {
            parts.counters.dropped_unreadable += 1;
            let mut event = Event::app(kind::UNREADABLE, "manager");
            event.reason = Some(format!("{key}: {}", error.message));
            parts.tell(event);
        }
    }
}

fn lease(parts: &mut Parts, revision: Revision, value: Option<&Bytes>) -> Result<(), Unusable> {
    let record: Option<LeaseRecord> = value.map(|value| read_stored(value)).transpose()?;
    let change = parts.lease.seen(parts.now_ms, revision, record.as_ref());
    if change == LeaseChange::Lost {
        parts.clocks.lease_lost();
    }
    Ok(())
}

fn meta(parts: &mut Parts, revision: Revision, value: Option<&Bytes>) -> Result<(), Unusable> {
    let record: Option<MetaRecord> = value.map(|value| read_stored(value)).transpose()?;
    parts.bucket.meta_revision = revision;
    parts.bucket.meta_shown = record.is_some();
    if record.is_none() {
        parts.bucket.meta_deleted = Some(revision);
    }
    if let Some(record) = record {
        known(parts, record);
    }
    Ok(())
}

/// Handles the record of a deleted app.
fn gone(
    parts: &mut Parts,
    uid: AppUid,
    revision: Revision,
    value: Option<&Bytes>,
) -> Result<(), Unusable> {
    let record: Option<GoneRecord> = value.map(|value| read_stored(value)).transpose()?;
    match record {
        Some(record) => {
            parts.bucket.gone.insert(uid, revision, &record.app);
            buried(parts, &record.app);
        }
        None => parts.bucket.gone.remove(uid),
    }
    Ok(())
}

/// Handles that the deletion of an app is now stored: its keys can be removed.
fn buried(parts: &mut Parts, app: &str) {
    let Some(id) = parts.apps.named(app) else {
        return;
    };
    if let Some(app) = parts.apps.get_mut(id).filter(|app| app.record.deleted) {
        app.blocked_ms = parts.now_ms;
        parts.apps.touch(id);
    }
}

/// Handles the bucket's id. Apps that belonged to another bucket are left alone.
fn known(parts: &mut Parts, record: MetaRecord) {
    let id = record.bucket;
    let restored = std::mem::replace(&mut parts.bucket.restored, record.restored);
    let before = parts.bucket.id.replace(id);
    let deleted = parts.bucket.meta_deleted.take();
    if before == Some(id) && restored != record.restored {
        // a new bucket that an import has restored: its revisions are lower, but it is not older
        parts.bucket.highest = Revision::NONE;
    }
    if let Some(before) = before.filter(|before| *before != id) {
        let mut event = Event::app(kind::BUCKET_CHANGED, "manager");
        event.reason = Some(format!(
            "the bucket's id was {before} and is {id}: instances that were started from the earlier one are left as they are"
        ));
        parts.tell(event);
        parts.bucket.highest = Revision::NONE;
        parts.bucket.gone.clear();
        // what was stored after the id had been deleted belongs to the new bucket
        forget_apps(parts, |app| deleted.is_none_or(|at| app.revision <= at));
        parts.settle();
    }
}

/// Forgets apps and their instances; nothing is stopped.
fn forget_apps(parts: &mut Parts, which: impl Fn(&App) -> bool) {
    let ids: Vec<AppId> = parts.apps.by_name().collect();
    for id in ids {
        if parts.apps.get(id).is_some_and(&which) {
            forget_app(parts, id);
        }
    }
}

/// Forgets an app and its instances; nothing is stopped.
pub(crate) fn forget_app(parts: &mut Parts, id: AppId) {
    let Some(app) = parts.apps.get(id) else {
        return;
    };
    let slots = app.slots.iter().flat_map(|slot| &slot.held);
    let held: Vec<_> = slots.chain(&app.leftovers).copied().collect();
    for instance in held {
        parts.leave(&instance);
    }
    parts.no_room.remove(&id);
    if let Some(app) = parts.apps.remove(id) {
        for wave in &app.open {
            parts.outstanding -= wave.indices.len();
        }
    }
}

fn app(
    parts: &mut Parts,
    name: &Arc<str>,
    revision: Revision,
    value: Option<&Bytes>,
) -> Result<(), Unusable> {
    let known = parts.apps.named(name);
    parts.bucket.deleted.remove(name);
    let Some(value) = value else {
        parts.bucket.deleted.insert(Arc::clone(name), revision);
        // apps are not deleted this way: whatever of it runs is left alone
        if let Some(id) = known {
            forget_app(parts, id);
        }
        return Ok(());
    };
    let record = read_stored::<AppRecord>(value).inspect_err(|_| {
        let app = known.and_then(|id| parts.apps.get_mut(id));
        if let Some(app) = app {
            (app.unreadable, app.unshown) = (true, false);
        }
    })?;
    if record.definition.app() != &**name {
        let error = placement::Invalid::new("app", record.definition.app(), format!("{name:?}"));
        return Err(Unusable::Unreadable(error.into()));
    }
    let uid = record.uid;
    if let Some(id) = known {
        changed(parts, id, record, revision);
        return early(parts, uid);
    }
    let live = parts.bucket.ready;
    let mut app = App::new(record, revision, parts.now_ms);
    // only an app that was never started can be started at once
    if live && app.record.version == 1 && !app.record.restored {
        app.new_in = parts.period;
    }
    parts.apps.insert(app);
    if live {
        parts.ask();
    }
    early(parts, uid)
}

/// Reads the values of an app that were shown before the app itself.
fn early(parts: &mut Parts, uid: AppUid) -> Result<(), Unusable> {
    if let Some((revision, value)) = parts.bucket.early.remove(&StoredKey::State(uid)) {
        records::state(parts, uid, revision, value.as_ref())?;
    }
    if let Some((revision, value)) = parts.bucket.early.remove(&StoredKey::Rollout(uid)) {
        records::rollout(parts, uid, revision, value.as_ref())?;
    }
    Ok(())
}

/// Handles a changed record of a known app.
fn changed(parts: &mut Parts, id: AppId, record: AppRecord, revision: Revision) {
    let (now_ms, live) = (parts.now_ms, parts.bucket.ready);
    let Some(app) = parts.apps.get_mut(id) else {
        return;
    };
    (app.unshown, app.unreadable) = (false, false);
    if live && revision <= app.revision {
        return;
    }
    app.revision = revision;
    if app.record.uid != record.uid {
        return recreated(parts, id, record);
    }
    let highest = app.record.version.max(app.acted);
    if record.version < highest {
        app.record = record;
        return went_back(parts, id, highest);
    }
    // either somebody has put it since the bucket was restored, or only this manager's view was older than what ran
    app.went_back &= !live && !app.behind;
    if record.version > app.record.version {
        for slot in &mut app.slots {
            (slot.crashes, slot.given_up, slot.due_ms) = (0, false, 0);
        }
        app.progress = (0, now_ms);
        (app.unplaced, app.failing) = (None, None);
    }
    if app.record.stopped && !record.stopped {
        for slot in &mut app.slots {
            (slot.given_up, slot.due_ms) = (false, 0);
        }
    }
    let wanted = app.record.definition.instances;
    app.wanted_before = app.wanted_before.max(wanted);
    app.grow(record.definition.instances);
    app.record = record;
    parts.apps.index(id);
    parts.apps.touch(id);
}

/// Handles an app that was deleted and put again under the same name: instances of the earlier creation are to end.
fn recreated(parts: &mut Parts, id: AppId, record: AppRecord) {
    let revision = parts
        .apps
        .get(id)
        .map_or(Revision::NONE, |app| app.revision);
    let is_former = parts
        .apps
        .get(id)
        .is_some_and(|app| record.former.contains(&app.record.uid));
    if !is_former {
        // the bucket was restored or changed by hand: whatever runs is left alone
        forget_app(parts, id);
        parts.apps.insert(App::new(record, revision, parts.now_ms));
        return;
    }
    let open = parts.apps.get(id).map(|app| app.open.clone());
    for wave in open.into_iter().flatten() {
        waves::forget_waiting(parts, id, &wave);
    }
    let mut app = App::new(record, revision, parts.now_ms);
    app.new_in = parts.period;
    let Some(before) = parts.apps.get_mut(id) else {
        return;
    };
    let held = before.slots.iter().flat_map(|slot| &slot.held);
    app.leftovers = held.chain(&before.leftovers).copied().collect();
    for wave in std::mem::replace(before, app).open {
        parts.outstanding -= wave.indices.len();
    }
    parts.no_room.remove(&id);
    parts.apps.index(id);
    parts.apps.touch(id);
}

/// Handles that the stored record is older than what runs.
pub(crate) fn went_back(parts: &mut Parts, id: AppId, highest: u32) {
    let Some(app) = parts.apps.get_mut(id) else {
        return;
    };
    app.acted = app.acted.max(highest);
    if std::mem::replace(&mut app.went_back, true) {
        return;
    }
    app.behind = app.record.version < highest;
    let (name, version) = (Arc::clone(&app.name), app.record.version);
    let why = format!(
        "version {version} is stored, but {highest} ran: nothing is started or stopped until the app is put again"
    );
    parts.tell_app(kind::WENT_BACK, &name, None, why);
}

/// Handles the end of the watch: everything will be shown again.
pub(crate) fn interrupted(parts: &mut Parts) {
    parts.bucket.ready = false;
    parts.bucket.meta_shown = false;
    parts.bucket.meta_revision = Revision::NONE;
    parts.bucket.deleted.clear();
    parts.bucket.early.clear();
    parts.bucket.gone.clear();
    parts.bucket.newer_before |= !parts.bucket.newer.is_empty();
    parts.bucket.newer.clear();
    parts.lease.forget(parts.now_ms);
    parts.tasks.interrupted();
    let ids: Vec<AppId> = parts.apps.by_name().collect();
    for id in ids {
        if let Some(app) = parts.apps.get_mut(id) {
            app.unshown = true;
            (app.state_revision, app.rollout_revision) = (Revision::NONE, Revision::NONE);
        }
    }
}

/// Handles that everything was shown. Apps that were not shown no longer exist: their instances are left alone.
pub(crate) fn ready(parts: &mut Parts, revision: Revision) {
    parts.bucket.ready = true;
    parts.lease.ready(parts.now_ms);
    if std::mem::take(&mut parts.bucket.newer_before) && parts.bucket.newer.is_empty() {
        parts.lease.stay();
    }
    // these belong to apps that no longer exist
    parts.bucket.early.clear();
    forget_apps(parts, |app| app.unshown);
    parts.tasks.shown_all(parts.now_ms);
    let before = std::mem::replace(&mut parts.bucket.highest, revision);
    if revision < before {
        restored(parts);
    }
    parts.settle();
}

/// Returns whether the bucket has no id and needs one.
fn lacks_meta(parts: &Parts) -> bool {
    let bucket = &parts.bucket;
    bucket.ready && !bucket.meta_shown && !bucket.meta_busy && bucket.newer.is_empty()
}

/// Stores an id if there is none. A bucket without apps gets a new id, as it may have been deleted and recreated:
/// whatever was started from the old bucket is left as it is.
pub(crate) fn due(parts: &mut Parts) {
    if !lacks_meta(parts) || parts.now_ms < parts.bucket.meta_due_ms {
        return;
    }
    parts.bucket.meta_busy = true;
    let is_empty = parts.apps.count() == 0;
    let (id, restored) = match parts.bucket.id {
        Some(id) if !is_empty => (id, parts.bucket.restored),
        None if !is_empty => {
            let mut event = Event::app(kind::UNREADABLE, "manager");
            let why = "meta is missing: nothing is started or stopped without the bucket's id";
            event.reason = Some(why.into());
            return parts.tell(event);
        }
        _ => (any_id(parts), None),
    };
    write_meta(parts, id, restored);
}

/// Returns when the id must be stored.
pub(crate) fn next_ms(parts: &Parts) -> u64 {
    if lacks_meta(parts) {
        return parts.bucket.meta_due_ms;
    }
    u64::MAX
}

fn any_id(parts: &mut Parts) -> BucketId {
    BucketId::new(u32::try_from(parts.random.draw() >> 32).unwrap_or_default())
}

/// Gives a new bucket the id of the one from which apps are restored.
pub(crate) fn adopt(parts: &mut Parts, id: BucketId) {
    let restored = any_id(parts);
    write_meta(parts, id, Some(restored));
}

/// Stores the bucket's id.
fn write_meta(parts: &mut Parts, bucket: BucketId, restored: Option<BucketId>) {
    let record = MetaRecord {
        format: FORMAT,
        bucket,
        restored,
    };
    let value = Some(to_bytes(&record));
    let expected = Some(parts.bucket.meta_revision);
    parts.write(Purpose::Meta(record), StoredKey::Meta, value, expected);
}

/// Handles a bucket that is an older one with the same id: nothing in it may stop or start anything.
fn restored(parts: &mut Parts) {
    let ids: Vec<AppId> = parts.apps.by_name().collect();
    for id in ids {
        let version = parts.apps.get(id).map_or(0, |app| app.record.version);
        went_back(parts, id, version);
        if let Some(app) = parts.apps.get_mut(id) {
            app.behind = false;
        }
    }
}

/// Handles the end of the write of a new bucket's id. If it failed it is tried again, unless the watch shows another
/// id.
pub(crate) fn meta_written(parts: &mut Parts, record: MetaRecord, result: WriteResult) {
    parts.bucket.meta_busy = false;
    parts.bucket.meta_due_ms = parts.now_ms + META_MS;
    if let WriteResult::Written(revision) = result
        && revision > parts.bucket.meta_revision
    {
        (parts.bucket.meta_revision, parts.bucket.meta_shown) = (revision, true);
        known(parts, record);
    }
}
