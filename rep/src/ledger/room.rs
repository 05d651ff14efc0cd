//! The resources that work reserves, counted as the auctioneers count them.

use placement::{Cell, Invalid, Request, Run, check_device_shares};
use shared::wire::Work;

/// Rejects work that is not valid: bad names, negative or absurd sizes, a command that cannot be
/// executed.
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

/// The part of a request that uses resources, so that cells and auctioneers count alike. Without the devices, of
/// which the work says which they are.
pub(super) fn request_of(work: &Work) -> Request {
    let mut request = Request::new(work.app.clone(), work.memory_mb, work.disk_mb);
    request.kind = work.kind;
    request.cpu_millis = work.cpu_millis;
    request.extra.clone_from(&work.extra);
    request.owner.clone_from(&work.owner);
    request.tags.clone_from(&work.tags);
    request
}

/// The opposite of [`Cell::debit`], except for `starting`, which ends earlier than the reservation.
pub(super) fn credit(cell: &mut Cell, work: &Work) {
    let starting = cell.counts.starting;
    cell.credit(&request_of(work), Some(&work.devices));
    cell.counts.starting = starting;
}
