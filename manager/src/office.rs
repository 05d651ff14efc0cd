//! Holding the lease: it is gained, renewed, lost and given back.

use shared::wire::to_bytes;

use crate::{
    ids::{AppId, WriteId},
    io::WriteResult,
    lease::LeaseChange,
    parts::{Parts, Purpose},
    stored::{FORMAT, LeaseRecord, StoredKey},
    waves,
};

/// Renews or takes the lease if that is due.
pub(crate) fn due(parts: &mut Parts) {
    let now_ms = parts.now_ms;
    if parts.lease.outlived(now_ms) == LeaseChange::Lost {
        parts.clocks.lease_lost();
    }
    if !parts.bucket.is_known() || !parts.lease.is_due(now_ms) {
        return;
    }
    let write = WriteId(parts.next_id());
    let (holder, revision) = parts.lease.write(now_ms, write);
    let value = to_bytes(&LeaseRecord {
        format: FORMAT,
        holder,
    });
    parts.writes.insert(write, Purpose::Lease);
    parts.out.push(crate::io::ManagerOutput::Write {
        write,
        key: StoredKey::Lease,
        value: Some(value),
        expected: Some(revision),
    });
}

/// Handles the end of a write of the lease.
pub(crate) fn written(parts: &mut Parts, write: WriteId, result: WriteResult) {
    let revision = match result {
        WriteResult::Written(revision) => Some(revision),
        WriteResult::Conflict | WriteResult::Failed => None,
    };
    let refused = result == WriteResult::Conflict;
    let (change, sent_ms) = parts.lease.written(parts.now_ms, write, revision, refused);
    match change {
        LeaseChange::Gained => {
            parts.clocks.renewed(sent_ms);
            gained(parts);
        }
        LeaseChange::Renewed => parts.clocks.renewed(sent_ms),
        LeaseChange::Lost => parts.clocks.lease_lost(),
        LeaseChange::None => {}
    }
}

fn gained(parts: &mut Parts) {
    parts.settle();
    parts.moves.forget();
    parts.grants.gained(parts.now_ms);
    let ids: Vec<AppId> = parts.apps.by_name().collect();
    for id in ids {
        waves::take_up(parts, id);
    }
    parts.apps.touch_all();
    parts.tasks.gained(parts.now_ms);
}

/// Gives the lease back.
pub(crate) fn leave(parts: &mut Parts) {
    let Some(revision) = parts.lease.leave() else {
        return;
    };
    parts.clocks.lease_lost();
    let value = to_bytes(&LeaseRecord {
        format: FORMAT,
        holder: String::new(),
    });
    let value = Some(value);
    parts.write(Purpose::Other, StoredKey::Lease, value, Some(revision));
}
