//! Starts the processes of an instance.

use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use rustix::process::{Pid, WaitStatus};

use super::Orders;
use crate::ledger::Limit;

/// A process that was started for an instance, until it and everything that it started have ended.
pub(super) struct Instance {
    pub(super) main: Pid,
    pub(super) status: Option<WaitStatus>,
    /// When remaining processes are killed, once it was asked to end.
    pub(super) kill_at: Option<Instant>,
    /// When it is killed if it has not ended by itself.
    pub(super) deadline: Option<Instant>,
    /// Whether it was told to end, by the rep or by the rep's death.
    pub(super) told: bool,
    /// The limit that it exceeded.
    pub(super) over: Option<Limit>,
}

/// The program that instances can run even if they may not access its directory: the rep's own.
const OWN_PROGRAM: &str = "vendue";

/// Starts the command. If the instance's user may not access the rep's own program (a checkout below root's home, say),
/// it is opened with our rights and executed with the user's.
fn spawn(orders: &Orders) -> io::Result<Child> {
    let started = command(orders, &orders.command[0]).spawn();
    let Some(program) = started.is_err().then(|| own_program(orders)).flatten() else {
        return started;
    };
    let open_file = format!("/proc/self/fd/{}", program.as_raw_fd());
    command(orders, OsStr::new(&open_file))
        .arg0(&orders.command[0])
        .spawn()
}

fn own_program(orders: &Orders) -> Option<fs::File> {
    if orders.user.is_none() || orders.command[0] != OWN_PROGRAM {
        return None;
    }
    let ours = std::env::current_exe().ok()?;
    fs::File::open(ours.with_file_name(OWN_PROGRAM)).ok()
}

fn command(orders: &Orders, program: &OsStr) -> Command {
    let mut command = Command::new(program);
    command
        .args(&orders.command[1..])
        .env_clear()
        .envs(&orders.environment)
        .stdin(Stdio::null());
    belong(&mut command, orders);
    command
}

/// Makes a process part of the instance: it gets its user, its directory, and a process group of its own.
pub(super) fn belong(command: &mut Command, orders: &Orders) {
    command.current_dir(&orders.directory).process_group(0);
    if let Some((uid, gid)) = orders.user {
        // this also drops all supplementary groups
        command.uid(uid).gid(gid);
    }
}

/// Starts the command in the instance's control group.
pub(super) fn launch(orders: &Orders) -> Result<Instance, String> {
    let started = start(orders, || spawn(orders));
    let child = started.map_err(|error| cannot_run(&orders.command[0], &error))?;
    Ok(Instance::of(&child, None))
}

/// Starts a process in the instance's control group.
pub(super) fn start(
    orders: &Orders,
    spawn: impl FnOnce() -> io::Result<Child>,
) -> io::Result<Child> {
    if let Some(cgroup) = &orders.cgroup {
        join(cgroup)?;
    }
    let child = spawn();
    if let Some(parent) = orders.cgroup.as_deref().and_then(Path::parent) {
        join(&parent.join(SUPERVISORS))?;
    }
    child
}

impl Instance {
    pub(super) fn of(child: &Child, deadline: Option<Instant>) -> Self {
        Self {
            main: Pid::from_child(child),
            status: None,
            kill_at: None,
            deadline,
            told: false,
            over: None,
        }
    }
}

/// Returns why the command could not be started, without its name: what a request runs must not appear in events.
fn cannot_run(program: &OsStr, error: &io::Error) -> String {
    let program = program.as_bytes();
    let is_path = program.contains(&b'/');
    let why = match error.kind() {
        // also if a directory in PATH is not readable
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied if !is_path => {
            "no such program in PATH".to_owned()
        }
        _ => error.to_string(),
    };
    let hint = if program.iter().any(u8::is_ascii_whitespace) {
        "; the program's name contains spaces: a shell command needs sh -c"
    } else {
        ""
    };
    format!("cannot run the command: {why}{hint}")
}

/// The control group for supervisors, next to those of their instances.
pub(crate) const SUPERVISORS: &str = "supervisors";

fn join(cgroup: &Path) -> io::Result<()> {
    // "0" stands for the writing process itself
    fs::write(cgroup.join("cgroup.procs"), "0")
}
