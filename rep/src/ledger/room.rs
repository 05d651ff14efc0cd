//! How much room work takes, counted as the auctioneers count it.

use std::collections::BTreeMap;

use placement::{Cell, Invalid, Kind, Request, Run};
use shared::wire::Work;

/// Refuses what no work may hold: bad names, negative or absurd sizes, what no system can execute.
pub fn check_work(work: &Work) -> Result<(), Invalid> {
    request_of(work).check()?;
    work.run.as_deref().map_or(Ok(()), Run::check)
}

/// The part of a request that takes room, so that a cell and the auctioneers count alike.
pub(super) fn request_of(work: &Work) -> Request {
    let mut request = Request::new(work.app.clone(), work.memory_mb, work.disk_mb);
    request.kind = work.kind;
    request.cpu_millis = work.cpu_millis;
    request.extra.clone_from(&work.extra);
    request.owner.clone_from(&work.owner);
    request.tags.clone_from(&work.tags);
    request
}

/// The opposite of [`Cell::debit`], but for `starting`, which ends earlier than the promise.
pub(super) fn credit(cell: &mut Cell, request: &Request) {
    cell.available.credit(request);
    match request.kind {
        Kind::Lrp => take_one(&mut cell.apps, &request.app),
        Kind::Task => cell.tasks -= 1,
    }
    if let Some(owner) = &request.owner {
        take_one(&mut cell.owners, owner);
    }
    for (key, value) in &request.tags {
        take_one(&mut cell.tags, &format!("{key}={value}"));
    }
    if request.cpu_millis > 0 {
        cell.cpu_capped -= 1;
    } else {
        cell.cpu_uncapped -= 1;
    }
}

fn take_one(counts: &mut BTreeMap<String, u32>, name: &str) {
    if let Some(count) = counts.get_mut(name) {
        *count -= 1;
        if *count == 0 {
            counts.remove(name);
        }
    }
}
