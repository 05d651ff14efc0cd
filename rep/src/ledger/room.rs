//! How much room work takes, counted as the auctioneers count it.

use placement::{Cell, Invalid, Request, Run};
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
    let starting = cell.starting;
    cell.credit(request);
    cell.starting = starting;
}
