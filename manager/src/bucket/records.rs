//! What is stored of an app besides its definition: waves, crash counts and the end of its rollout.

use std::sync::Arc;

use bytes::Bytes;
use placement::MAX_INSTANCES;
use shared::wire::parse_indices;

use super::went_back;
use crate::{
    apps::{App, OpenWave, WavePhase},
    ids::{AppId, AppUid, Revision},
    parts::Parts,
    stored::{RolloutRecord, StateRecord, StoredWave, Unusable, read_stored},
    waves,
};

/// Reads the waves and crash counts of an app.
pub(super) fn state(
    parts: &mut Parts,
    uid: AppUid,
    revision: Revision,
    value: Option<&Bytes>,
) -> Result<(), Unusable> {
    let record = match value {
        Some(value) => read_stored::<StateRecord>(value)?,
        None => StateRecord::default(),
    };
    let held = parts.lease.is_held();
    let Some(id) = parts.apps.of_uid(uid) else {
        return Ok(());
    };
    let Some(app) = parts.apps.get_mut(id) else {
        return Ok(());
    };
    if app.record.uid != uid || revision <= app.state_revision {
        return Ok(());
    }
    app.state_revision = revision;
    app.wave = app.wave.max(record.wave);
    app.acted = app.acted.max(record.acted);
    if record.wave > 0 && !held {
        // another manager has begun it
        app.new_in = 0;
    }
    if !held {
        // only the acting manager hears the answers of auctioneers
        (app.crash, app.unplaced) = (record.crash.clone(), record.unplaced.clone());
    }
    for (index, count) in &record.crashes {
        if *index < MAX_INSTANCES {
            let slot = app.slot_mut(*index);
            slot.crashes = if held {
                slot.crashes.max(*count)
            } else {
                *count
            };
        }
    }
    let mut open = adopt_waves(app, &record);
    let known = std::mem::take(&mut app.open).into_iter();
    let mut dropped: Vec<OpenWave> = Vec::new();
    for wave in known {
        parts.outstanding -= wave.indices.len();
        if !open.iter().any(|other| other.wave == wave.wave) {
            dropped.push(wave);
        }
    }
    if held {
        // this manager knows better than whoever wrote this
        app.unsaved |= !dropped.is_empty();
        open.append(&mut dropped);
    }
    parts.outstanding += count(&open);
    app.open = open;
    for wave in dropped {
        waves::forget_waiting(parts, id, &wave);
    }
    if held {
        waves::take_up(parts, id);
    }
    if let Some(highest) = backwards(parts, id) {
        went_back(parts, id, highest);
    }
    parts.apps.touch(id);
    Ok(())
}

fn count(waves: &[OpenWave]) -> usize {
    waves.iter().map(|wave| wave.indices.len()).sum()
}

/// Returns the highest version that was acted on, if the stored one is lower.
fn backwards(parts: &Parts, id: AppId) -> Option<u32> {
    let app = parts.apps.get(id)?;
    (app.record.version < app.acted).then_some(app.acted)
}

/// Returns the stored open waves; a wave that this manager already knows keeps its state.
fn adopt_waves(app: &App, record: &StateRecord) -> Vec<OpenWave> {
    let known = |wave: u32| app.open.iter().find(|open| open.wave == wave);
    let read = |stored: &StoredWave| {
        if let Some(open) = known(stored.wave) {
            return Some(open.clone());
        }
        let indices = parse_indices(&stored.indices, MAX_INSTANCES as usize)?;
        if indices.iter().any(|index| *index >= MAX_INSTANCES) {
            return None;
        }
        Some(OpenWave {
            wave: stored.wave,
            version: stored.version,
            instances: stored.instances,
            indices,
            exclude_cell: stored.exclude_cell.as_deref().map(Arc::from),
            phase: WavePhase::Held,
            tries: 0,
            adopted: true,
        })
    };
    record.open.iter().filter_map(read).collect()
}

/// Reads how a rollout ended.
pub(super) fn rollout(
    parts: &mut Parts,
    uid: AppUid,
    revision: Revision,
    value: Option<&Bytes>,
) -> Result<(), Unusable> {
    let record: Option<RolloutRecord> = value.map(|value| read_stored(value)).transpose()?;
    let Some(id) = parts.apps.of_uid(uid) else {
        return Ok(());
    };
    let Some(app) = parts.apps.get_mut(id) else {
        return Ok(());
    };
    if app.record.uid == uid && revision > app.rollout_revision {
        (app.rollout, app.rollout_revision) = (record, revision);
        app.failing = None;
        parts.apps.touch(id);
    }
    Ok(())
}
