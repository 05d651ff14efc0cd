//! Rights that a supervisor drops, so that the command which it starts does not have them. All of this is inherited
//! across `exec`. The supervisor itself keeps root's rights until it executes another program, which it never does.

use std::{fs::File, io};

use rustix::{
    fs::{Gid, Uid},
    io::Errno,
    process::{DumpableBehavior, Resource, Rlimit},
    stdio,
    thread::{CapabilitySet, CapabilitySets, UnshareFlags},
};

use super::Orders;

/// Prevents everybody but root, including processes of the same user, from tracing this process or reading its memory
/// and environment.
pub(crate) fn hide_from_own_user() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(
        DumpableBehavior::NotDumpable,
    )?)
}

/// Sets the limits of the command, and drops the rights that it must not have.
pub(super) fn confine(orders: &Orders) -> io::Result<()> {
    limit(Resource::Core, 0)?;
    limit(Resource::Nofile, orders.max_files)?;
    if orders.user_lock.is_some() {
        // counted for the whole user, so only if the instance has a user of its own
        limit(Resource::Nproc, orders.max_processes)?;
    }
    rustix::thread::set_no_new_privs(true)?;
    drop_capabilities(orders.user)?;
    own_ipc();
    if let Some((uid, gid)) = orders.user {
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        // so that the command can open /dev/stdout and /dev/stderr
        rustix::fs::fchown(stdio::stdout(), uid, gid)?;
        rustix::fs::fchown(stdio::stderr(), uid, gid)?;
    }
    Ok(())
}

/// Holds the user of the instance, so that no other instance gets it while this supervisor lives.
pub(super) fn hold_user(orders: &Orders) -> io::Result<Option<File>> {
    let Some(path) = &orders.user_lock else {
        return Ok(None);
    };
    let lock = File::options().write(true).open(path)?;
    lock.try_lock_shared()?;
    Ok(Some(lock))
}

/// Holds the directory of all instances of the rep, so that no later rep considers it abandoned.
pub(super) fn hold_home(orders: &Orders) -> io::Result<Option<File>> {
    let Some(home) = orders.directory.parent() else {
        return Ok(None);
    };
    let home = File::open(home)?;
    home.try_lock_shared()?;
    Ok(Some(home))
}

/// Sets a limit, or keeps this process's own if that is lower.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let hard = rustix::process::getrlimit(resource).maximum;
    let most = Some(hard.map_or(most, |hard| hard.min(most)));
    let limit = Rlimit {
        current: most,
        maximum: most,
    };
    Ok(rustix::process::setrlimit(resource, limit)?)
}

/// Drops capabilities, so that no program executed from here has any, not even one executed as root. Without root there
/// are none to drop; `no_new_privs` prevents gaining others.
fn drop_capabilities(user: Option<(u32, u32)>) -> io::Result<()> {
    let becomes_root = user.is_some_and(|(uid, _)| uid == 0);
    if rustix::process::geteuid().is_root() {
        for bit in 0..64 {
            let capability = CapabilitySet::from_bits_retain(1 << bit);
            let dropped = rustix::thread::remove_capability_from_bounding_set(capability);
            if !may_have_more(dropped, becomes_root)? {
                break;
            }
        }
    }
    // kernels older than 4.3 have none
    let _ = rustix::thread::clear_ambient_capability_set();
    let own = rustix::thread::capabilities(None)?;
    let none_inherited = CapabilitySets {
        inheritable: CapabilitySet::empty(),
        ..own
    };
    Ok(rustix::thread::set_capabilities(None, none_inherited)?)
}

/// Returns whether there may be more capabilities, given the result of dropping one.
fn may_have_more(dropped: Result<(), Errno>, becomes_root: bool) -> Result<bool, Errno> {
    match dropped {
        Ok(()) => Ok(true),
        // the kernel knows no more
        Err(Errno::INVAL) => Ok(false),
        // a container without CAP_SETPCAP: users other than root have none anyway
        Err(Errno::PERM) if !becomes_root => Ok(false),
        Err(error) => Err(error),
    }
}

/// Creates an IPC namespace, if that is allowed: shared memory, semaphores and message queues of System V and POSIX
/// then end with the instance, and other instances do not see them.
#[expect(
    deprecated,
    reason = "deprecated as it could close files that are in use; this flag does not"
)]
fn own_ipc() {
    let _ = rustix::thread::unshare(UnshareFlags::NEWIPC);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_would_keep_a_capability_is_not_started() {
        for (dropped, becomes_root, expected) in [
            (Ok(()), false, Ok(true)),
            (Ok(()), true, Ok(true)),
            (Err(Errno::INVAL), true, Ok(false)),
            (Err(Errno::PERM), false, Ok(false)),
            // as root, an executed program would get all of them
            (Err(Errno::PERM), true, Err(Errno::PERM)),
            (Err(Errno::NOSYS), false, Err(Errno::NOSYS)),
        ] {
            assert_eq!(
                may_have_more(dropped, becomes_root),
                expected,
                "{dropped:?}"
            );
        }
    }
}
