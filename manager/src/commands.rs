//! Commands: each changes the record of one app by compare-and-set. Any manager may answer them, even one that does not
//! hold the lease.

use shared::wire::{WireError, code, to_bytes};

use crate::{
    apps::App,
    definition::{AppDefinition, check_instances},
    differences::Differences,
    ids::{AppId, AppUid, CommandKey},
    io::{AppAnswer, AppCommand, WriteResult},
    parts::{Parts, PastVersion, PendingCommand, Purpose},
    rules::check_in_flight,
    stored::{
        AppRecord, Before, FORMAT, HISTORY, HistoryRecord, MAX_FORMER, RolloutPhase, StoredKey,
        unavailable,
    },
};

/// Maximum number of commands waiting for the bucket.
const MAX_COMMANDS: usize = 1_000;
/// Attempts before giving up because somebody else keeps changing the app.
const MAX_TRIES: u32 = 10;
/// How long a command may wait; the client waits for 10 s.
const MAX_WAIT_MS: u64 = 8_000;
/// Pause between two attempts, after which the watch shows what was written before.
const AGAIN_MS: u64 = 200;

/// Takes a command.
pub(crate) fn take(parts: &mut Parts, to: CommandKey, app: String, command: AppCommand) {
    if parts.commands.len() >= MAX_COMMANDS {
        parts.counters.dropped_commands += 1;
        let error = WireError::new(code::OVERLOADED, "too many commands wait; try again");
        return parts.reply(to, Err(error));
    }
    let pending = PendingCommand {
        to,
        app,
        command,
        tries: 0,
        since_ms: parts.now_ms,
        due_ms: parts.now_ms,
        done: None,
    };
    parts.commands.push(pending);
}

/// Tries the commands that are due.
pub(crate) fn due(parts: &mut Parts) {
    let now_ms = parts.now_ms;
    let (due, wait): (Vec<_>, Vec<_>) = std::mem::take(&mut parts.commands)
        .into_iter()
        .partition(|command| command.due_ms <= now_ms);
    parts.commands = wait;
    for command in due {
        attempt(parts, command);
    }
}

/// Returns when the next command is due.
pub(crate) fn next_ms(parts: &Parts) -> u64 {
    let due = parts.commands.iter().map(|command| command.due_ms);
    due.min().unwrap_or(u64::MAX)
}

fn attempt(parts: &mut Parts, mut pending: PendingCommand) {
    if !parts.bucket.is_known() {
        return parts.reply(pending.to, Err(unavailable()));
    }
    match adopt_bucket(parts, &pending) {
        Ok(false) => {}
        Ok(true) => {
            pending.tries += 1;
            pending.due_ms = parts.now_ms + AGAIN_MS;
            return parts.commands.push(pending);
        }
        Err(error) => return parts.reply(pending.to, Err(error)),
    }
    let fresh = new_uid(parts);
    let known = parts.apps.named(&pending.app);
    let app = known.and_then(|id| parts.apps.get(id));
    let edited = match app {
        Some(app) if app.unreadable => Err(WireError::new(
            code::INTERNAL,
            "the stored value of the app cannot be read",
        )),
        _ => edit(app, &pending.app, &pending.command, fresh),
    };
    let deleted = parts.bucket.deleted.get(pending.app.as_str());
    let revision = app.map_or(deleted.copied().unwrap_or_default(), |app| app.revision);
    let (record, is_new) = match edited {
        Err(error) => return parts.reply(pending.to, Err(error)),
        Ok(Some(record)) => (record, true),
        // stored again anyway: that proves that this manager's view is not outdated, and shows it to a manager that
        // leaves the app alone
        Ok(None) => match app {
            Some(app) => (app.record.clone(), false),
            None => return parts.reply(pending.to, Err(no_such_app(&pending.app))),
        },
    };
    let answer = answer(app, &record);
    if let AppCommand::Try(_) = pending.command {
        return parts.reply(pending.to, Ok(answer));
    }
    let history = (is_new && !record.deleted).then(|| history(&record));
    pending.done = Some((answer, history));
    let key = StoredKey::App(pending.app.as_str().into());
    let purpose = Purpose::Command(Box::new(pending));
    parts.write(purpose, key, Some(to_bytes(&record)), Some(revision));
}

/// Handles the end of a command's write. If it failed, the command is tried again.
pub(crate) fn stored(parts: &mut Parts, mut pending: PendingCommand, result: WriteResult) {
    let done = pending.done.take();
    if let WriteResult::Written(_) = result
        && let Some((answer, history)) = done
    {
        let is_wanted = !matches!(pending.command, AppCommand::Delete);
        if is_wanted && parts.bucket.gone.has(answer.uid, &pending.app) {
            // it was deleted, and an import or an older copy of the bucket has brought it back
            parts.write(Purpose::Other, StoredKey::Gone(answer.uid), None, None);
        }
        if let Some((uid, version, value)) = history {
            let oldest = version.checked_sub(HISTORY).filter(|version| *version > 0);
            if let Some(oldest) = oldest {
                let key = StoredKey::History(uid, oldest);
                parts.write(Purpose::Other, key, None, None);
            }
            let key = StoredKey::History(uid, version);
            parts.write(Purpose::Other, key, Some(value), None);
        }
        return parts.reply(pending.to, Ok(answer));
    }
    pending.tries += 1;
    let late = parts.now_ms >= pending.since_ms + MAX_WAIT_MS;
    if result == WriteResult::Failed && late {
        let message = "the bucket does not acknowledge the write: the change may be stored or not";
        return parts.reply(pending.to, Err(WireError::new(code::INTERNAL, message)));
    }
    if pending.tries >= MAX_TRIES || late {
        let message = "the app is being changed by somebody else; try again";
        return parts.reply(pending.to, Err(WireError::new(code::CONFLICT, message)));
    }
    pending.due_ms = parts.now_ms + AGAIN_MS;
    parts.commands.push(pending);
}

/// Handles a failed rollout: with `auto_revert` the version before is wanted again, once.
pub(crate) fn revert(parts: &mut Parts, id: AppId) {
    let Some(app) = parts.apps.get(id) else {
        return;
    };
    let (record, revision) = (&app.record, app.revision);
    let differs = record
        .before
        .as_ref()
        .is_some_and(|before| !before.definition.runs_as(&record.definition));
    if !record.definition.update.auto_revert || record.reverted || !differs {
        return;
    }
    let key = StoredKey::App(app.name.clone());
    if let Ok(Some(record)) = edit(Some(app), &app.name, &AppCommand::Undo, app.record.uid) {
        // a newer command by somebody takes precedence
        let value = Some(to_bytes(&record));
        parts.write(Purpose::Other, key, value, Some(revision));
    }
}

/// Returns the entry for the history.
fn history(record: &AppRecord) -> PastVersion {
    let value = HistoryRecord {
        format: FORMAT,
        definition: record.definition.clone(),
    };
    (record.uid, record.version, to_bytes(&value))
}

fn new_uid(parts: &mut Parts) -> AppUid {
    loop {
        let uid = AppUid::new(u32::try_from(parts.random.draw() >> 32).unwrap_or_default());
        if parts.apps.of_uid(uid).is_none() {
            return uid;
        }
    }
}

/// Returns the answer to a command that turns the app's record into this one.
fn answer(app: Option<&App>, record: &AppRecord) -> AppAnswer {
    let before = app.map(|app| &app.record).filter(|before| !before.deleted);
    AppAnswer {
        uid: record.uid,
        version: record.version,
        changed: before != Some(record),
        created: before.is_none(),
        differences: before.map_or_else(Differences::default, |before| {
            Differences::between(before, record)
        }),
    }
}

/// Returns the error for an app that does not exist.
pub(crate) fn no_such_app(name: &str) -> WireError {
    let name = placement::cut(name);
    let message = format!("app: {name:?} is not known; expected the name of an app that was put");
    WireError {
        field: Some("app".into()),
        ..WireError::new(code::NOT_FOUND, message)
    }
}

/// Returns the record after a command; none if it changes nothing.
fn edit(
    app: Option<&App>,
    name: &str,
    command: &AppCommand,
    fresh: AppUid,
) -> Result<Option<AppRecord>, WireError> {
    placement::check_name("app", name)?;
    let present = app.filter(|app| !app.record.deleted);
    if let AppCommand::Put(definition) | AppCommand::Try(definition) = command {
        check_name_of(definition, name)?;
        return Ok(match present {
            Some(app) => put(app, definition),
            None => Some(create(app, definition, fresh)),
        });
    }
    if let AppCommand::Restore {
        uid,
        version,
        stopped,
        definition,
        ..
    } = command
    {
        check_name_of(definition, name)?;
        if let Some(app) = app {
            return check_restored(app, *uid, *version).map(|()| None);
        }
        let mut record = create(None, definition, *uid);
        (record.version, record.stopped, record.restored) = (*version, *stopped, true);
        return Ok(Some(record));
    }
    let app = present.ok_or_else(|| no_such_app(name))?;
    let mut record = app.record.clone();
    match command {
        AppCommand::Put(_) | AppCommand::Try(_) | AppCommand::Restore { .. } => {}
        AppCommand::Scale(instances) => {
            check_instances(*instances)?;
            record.definition.instances = *instances;
        }
        AppCommand::Stop => record.stopped = true,
        AppCommand::Start => record.stopped = false,
        AppCommand::Restart { max_in_flight } => {
            if let Some(count) = max_in_flight {
                check_in_flight("max_in_flight", *count)?;
            }
            next_version(app, &mut record);
            record.in_flight = *max_in_flight;
        }
        AppCommand::Delete => record.deleted = true,
        AppCommand::Undo => undo(app, &mut record)?,
        AppCommand::Pause => record.paused = true,
        AppCommand::Resume => record.paused = false,
    }
    Ok((record != app.record).then_some(record))
}

/// Checks a restore of an existing app: a repeated one changes nothing, and none ever replaces what is stored.
fn check_restored(app: &App, uid: AppUid, version: u32) -> Result<(), WireError> {
    let record = &app.record;
    if record.uid == uid && record.version >= version && !record.deleted {
        return Ok(());
    }
    let what = if record.deleted {
        "is being deleted: repeat this when it is gone".to_owned()
    } else {
        format!(
            "is stored with uid {} and version {}: put changes it",
            record.uid, record.version
        )
    };
    let expected = format!("an app that is not stored; this one {what}");
    Err(placement::Invalid::new("app", format!("{:?}", app.name), expected).into())
}

fn check_name_of(definition: &AppDefinition, name: &str) -> Result<(), placement::Invalid> {
    if definition.app() == name {
        return Ok(());
    }
    let expected = format!("{name:?}, as in the subject");
    Err(placement::Invalid::new("app", definition.app(), expected))
}

/// Has a bucket without apps take the id of the bucket from which an app is restored. Returns true while the id is
/// being stored.
fn adopt_bucket(parts: &mut Parts, pending: &PendingCommand) -> Result<bool, WireError> {
    let AppCommand::Restore { bucket, uid, .. } = pending.command else {
        return Ok(false);
    };
    if parts.bucket.id == Some(bucket) {
        let holder = parts.apps.of_uid(uid).and_then(|id| parts.apps.get(id));
        if holder.is_some_and(|app| *app.name != *pending.app) {
            let expected = "an id that no other app of the bucket has";
            return Err(placement::Invalid::new("uid", uid, expected).into());
        }
        return Ok(false);
    }
    if parts.apps.count() > 0 || pending.tries >= MAX_TRIES {
        let expected = "the id of this bucket, or a bucket without apps; without restore they are put as new apps";
        return Err(placement::Invalid::new("bucket", bucket, expected).into());
    }
    crate::bucket::adopt(parts, bucket);
    Ok(true)
}

fn create(former: Option<&App>, definition: &AppDefinition, uid: AppUid) -> AppRecord {
    let former = former.map(|app| {
        let mut uids = app.record.former.clone();
        uids.push(app.record.uid);
        let surplus = uids.len().saturating_sub(MAX_FORMER);
        uids.split_off(surplus)
    });
    AppRecord {
        format: FORMAT,
        uid,
        version: 1,
        definition: definition.clone(),
        stopped: false,
        paused: false,
        restored: false,
        deleted: false,
        reverted: false,
        in_flight: None,
        before: None,
        former: former.unwrap_or_default(),
    }
}

/// Applies a put. Only a changed template or health check changes what runs; any other change leaves the instances as
/// they are.
fn put(app: &App, definition: &AppDefinition) -> Option<AppRecord> {
    let mut record = app.record.clone();
    record.stopped = false;
    if !definition.runs_as(&record.definition) || app.went_back {
        next_version(app, &mut record);
    }
    record.definition = definition.clone();
    (record != app.record).then_some(record)
}

/// Begins a new version of the same app, which supersedes an ongoing rollout. The version before is the last one whose
/// rollout was completed.
fn next_version(app: &App, record: &mut AppRecord) {
    if app.phase() == Some(RolloutPhase::Done) {
        record.before = Some(Box::new(Before {
            version: record.version,
            definition: record.definition.clone(),
        }));
    }
    record.version = record.version.max(app.acted) + 1;
    (record.reverted, record.paused, record.in_flight) = (false, false, None);
}

/// Returns to the version before, whose instances are fine as they are.
fn undo(app: &App, record: &mut AppRecord) -> Result<(), WireError> {
    let Some(before) = record.before.clone() else {
        let expected = "an app with a version before the present one";
        return Err(placement::Invalid::new("app", app.name.as_ref(), expected).into());
    };
    let instances = record.definition.instances;
    let done = app.phase() == Some(RolloutPhase::Done);
    if done {
        next_version(app, record);
    } else {
        record.version = record.version.max(app.acted) + 1;
        (record.paused, record.in_flight) = (false, None);
    }
    record.definition = before.definition;
    record.definition.instances = instances;
    // after a completed rollout no instance of the version before runs
    record.reverted = !done;
    Ok(())
}
