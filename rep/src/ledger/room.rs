//! The resources that work reserves, counted in the same way as by auctioneers.

use placement::{Cell, Invalid, Request, Run, check_device_shares};
use shared::wire::Work;

/// Rejects invalid work: bad names, negative or absurd sizes, a command that cannot be executed.
pub fn check_work(work: &Work) -> Result<(), Invalid> {
    request_of(work).check()?;
    check_device_shares("devices", &work.devices)?;
    let has_port = work.run.as_deref().is_some_and(Run::needs_port);
    for (field, check) in [("health", &work.health), ("ready", &work.ready)] {
        if let Some(check) = check {
            check.check(field, has_port)?;
        }
    }
    work.run.as_deref().map_or(Ok(()), Run::check)
}

/// Returns the part of a request that uses resources, so that cells and auctioneers count alike. Devices are not
/// included, because the work says which ones it has.
pub(super) fn request_of(work: &Work) -> Request {
    let mut request = Request::new(work.app.clone(), work.memory_mb, work.disk_mb);
    request.kind = work.kind;
    request.cpu_millis = work.cpu_millis;
    request.extra.clone_from(&work.extra);
    request.owner.clone_from(&work.owner);
    request.tags.clone_from(&work.tags);
    request
}

/// Reverts [`Cell::debit`], except for `starting`, which ends earlier than the reservation.
pub(super) fn credit(cell: &mut Cell, work: &Work) {
    let starting = cell.counts.starting;
    cell.credit(&request_of(work), Some(&work.devices));
    cell.counts.starting = starting;
}
