//! The supervisor of one instance: a small process between the rep and the command. It starts the command, ends every
//! process that the command started, and reports how it ended. When the rep is gone, it ends everything at once.
//!
//! It is `vendue-supervisor` or, without that, the same program as the rep, called with `supervise DIRECTORY` (the
//! directory identifies the instance in process lists). It gets its orders over its socket. It has no threads and no
//! runtime and stays small, as there is one for each instance.

mod confine;
mod launch;
mod look;
mod orders;
mod result;
mod source;

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, Signal, WaitOptions},
};
use shared::proc::{Process, descendants};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

pub(crate) use self::result::RESULT_FILE;
pub(crate) use self::source::check_authorities;
pub use self::source::{STEP, step};
pub(crate) use self::{
    confine::hide_from_own_user,
    launch::SUPERVISORS,
    orders::{Orders, SourceFrom, SourceOrders, SupervisorReport},
};
use self::{
    launch::{Instance, launch},
    look::Looks,
};
use crate::{
    ledger::{EndReason, Limit},
    leftovers, tree,
};

/// The byte that tells the supervisor to end the instance, with SIGTERM first.
pub(crate) const END: u8 = b't';
/// The byte that tells the supervisor to kill the instance without SIGTERM.
pub(crate) const KILL: u8 = b'k';
/// How often processes that are still alive are killed again.
const KILL_PAUSE: Duration = Duration::from_millis(5);
/// How long to try to kill processes; those that cannot be killed are then left and reported.
const KILL_PATIENCE: Duration = Duration::from_secs(30);
/// How long a rep may take to end after the kernel has closed its sockets.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// The entry point of a program called with `supervise`. Its standard input is a socket to the rep, over which it gets
/// its orders. Must be called before any thread is started.
pub fn main() -> ExitCode {
    let Ok(rep) = rep_socket() else {
        eprintln!("`supervise` is an internal command; it is not meant to be run directly");
        return ExitCode::from(2);
    };
    // the command must not inherit files that were open where the rep was started
    close_fds::set_fds_cloexec(3, &[]);
    match hide_from_own_user().and_then(|()| supervise(rep)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot supervise: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns standard input, if it is a connected socket.
fn rep_socket() -> io::Result<UnixStream> {
    // not with `io::stdin`, which would allocate a buffer
    let rep = UnixStream::from(rustix::stdio::stdin().try_clone_to_owned()?);
    rep.peer_addr()?;
    Ok(rep)
}

fn supervise(mut rep: UnixStream) -> io::Result<()> {
    // detaches from the terminal in which the rep was started: Ctrl-C there is only for the rep, and an instance that
    // could open the terminal could type on behalf of its user
    rustix::process::setsid()?;
    // both the signal and the end of the socket mean that the rep is gone
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    let orders = Orders::read_from(&mut rep)?;
    Supervisor::new(&orders, rep)?.run(&orders);
    Ok(())
}

struct Supervisor {
    own: Pid,
    /// To and from the rep.
    rep: UnixStream,
    /// Receives a byte for each SIGCHLD.
    children: UnixStream,
    /// Receives a byte for each termination signal.
    end_signals: UnixStream,
    /// Shows that the instance's user is in use.
    user_lock: Option<File>,
    /// Shows that the directory of the rep's instances is in use.
    _home: Option<File>,
}

impl Supervisor {
    fn new(orders: &Orders, rep: UnixStream) -> io::Result<Self> {
        // a name of its own: `killall vendue` must not kill what cleans up after reps
        rustix::thread::set_name(c"supervisor")?;
        let own = rustix::process::getpid();
        rustix::process::set_child_subreaper(Some(own))?;
        // reports are few and short: they always fit into the socket's buffer
        rep.set_nonblocking(true)?;
        let user_lock = confine::hold_user(orders)?;
        let home = confine::hold_home(orders)?;
        let children = signals(&[SIGCHLD])?;
        let end_signals = signals(&[SIGTERM, SIGINT, SIGHUP])?;
        if !parent_lives(orders) {
            return Err(io::Error::other("the rep has ended already"));
        }
        Ok(Self {
            own,
            rep,
            children,
            end_signals,
            user_lock,
            _home: home,
        })
    }

    fn run(mut self, orders: &Orders) {
        let ended = match self.begin(orders) {
            Err(why) => why,
            Ok(mut instance) => {
                self.send(&SupervisorReport::Runs(
                    instance.main.as_raw_nonzero().get().unsigned_abs(),
                ));
                self.watch(orders, &mut instance);
                self.kill_all(&mut instance);
                self.report_result(orders);
                how_it_ended(orders, &instance)
            }
        };
        self.clean_up(orders);
        if let Some(home) = orders.directory.parent()
            && rep_ends(&mut self.rep, || parent_lives(orders))
        {
            // the last supervisor removes the rep's directory; while there are others, this has no effect
            let _ = fs::remove_dir(home);
        }
        self.send(&SupervisorReport::Ended(ended));
    }

    /// Starts the command, after everything that must come before it.
    fn begin(&mut self, orders: &Orders) -> Result<Instance, EndReason> {
        let confined = confine::confine(orders);
        confined.map_err(|e| EndReason::Failed(format!("cannot confine it: {e}")))?;
        if let Some(source) = &orders.source {
            self.put_source(orders, source)?;
        }
        launch(orders).map_err(EndReason::Failed)
    }

    /// Passes on the content of the instance's result file before the file is removed.
    fn report_result(&mut self, orders: &Orders) {
        if !orders.has_result {
            return;
        }
        let owner = orders.user.map(|(uid, _)| uid);
        match result::read(&orders.directory, owner) {
            Ok(Some(text)) => self.send(&SupervisorReport::Result(text)),
            Ok(None) => {}
            Err(why) => self.send(&SupervisorReport::Note(format!(
                "{}: {why}",
                result::RESULT_FILE
            ))),
        }
    }

    /// Removes what the instance leaves: its control group, its directory, and other files of its user.
    fn clean_up(&mut self, orders: &Orders) {
        if let Some(cgroup) = &orders.cgroup {
            let _ = fs::remove_dir(cgroup);
        }
        if let Err(error) = tree::remove(&orders.directory) {
            self.send(&SupervisorReport::Note(format!(
                "cannot remove {}: {error}",
                orders.directory.display()
            )));
        }
        if let (Some(lock), Some((uid, _))) = (&self.user_lock, orders.user)
            && self.descendants().is_empty()
        {
            leftovers::remove_files(&[uid]);
            // nothing of it is left, so another instance can have the user
            let _ = lock.set_len(0);
        }
    }

    /// Sends a report to the rep, unless the rep is gone.
    fn send(&mut self, status: &SupervisorReport) {
        let _ = self.rep.write_all(status.to_line().as_bytes());
    }

    /// Watches the instance until what is left of it, if anything, must be killed.
    fn watch(&mut self, orders: &Orders, instance: &mut Instance) {
        let mut looks = Looks::new(orders, Instant::now());
        loop {
            self.wait(&looks, instance);
            drain(&mut self.children);
            if drain(&mut self.end_signals) {
                if !parent_lives(orders) {
                    instance.told = true;
                    return;
                }
                self.ask_to_end(orders, instance);
            }
            match read_rep(&mut self.rep) {
                FromRep::Nothing => {}
                FromRep::End => self.ask_to_end(orders, instance),
                FromRep::Kill | FromRep::Gone => {
                    instance.told = true;
                    return;
                }
            }
            reap(instance);
            if ends_at(instance).is_some_and(|at| at <= Instant::now()) {
                return;
            }
            if instance.status.is_some() {
                // the command has ended after a stop, but others of its processes may still be shutting down
                let others = instance.kill_at.is_some() && !self.descendants().is_empty();
                if !others {
                    return;
                }
            }
            instance.over = looks.look(orders, || self.descendants());
            if instance.over.is_some() {
                return;
            }
        }
    }

    /// Waits for a signal, a message from the rep, or the next check.
    fn wait(&self, looks: &Looks, instance: &Instance) {
        let until = ends_at(instance).into_iter().chain(looks.next()).min();
        let timeout = until.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
        let flags = PollFlags::IN;
        let mut all = [
            PollFd::new(&self.children, flags),
            PollFd::new(&self.end_signals, flags),
            PollFd::new(&self.rep, flags),
        ];
        // an interruption by a signal is what we wait for
        let _ = poll(&mut all, timeout.as_ref());
    }

    /// Sends SIGTERM to the command's process group and to processes that have left it.
    fn ask_to_end(&self, orders: &Orders, instance: &mut Instance) {
        if instance.kill_at.is_some() {
            return;
        }
        instance.told = true;
        instance.kill_at = Some(Instant::now() + Duration::from_millis(orders.grace_ms));
        let _ = rustix::process::kill_process_group(instance.main, Signal::TERM);
        let group = instance.main.as_raw_nonzero().get().unsigned_abs();
        for process in self.descendants().iter().filter(|p| p.group != group) {
            signal(process.pid, Signal::TERM);
        }
    }

    /// Returns all descendants. As this is a subreaper, they include processes whose parent has died.
    fn descendants(&self) -> Vec<Process> {
        descendants(self.own.as_raw_nonzero().get().unsigned_abs())
    }

    /// Kills until no child is left: processes forked in the meantime are killed in the next round.
    fn kill_all(&mut self, instance: &mut Instance) {
        let give_up = Instant::now() + KILL_PATIENCE;
        while !reap(instance) {
            let left = self.descendants();
            for process in &left {
                signal(process.pid, Signal::KILL);
            }
            if Instant::now() > give_up {
                let text = format!("{} processes could not be killed", left.len());
                self.send(&SupervisorReport::Note(text));
                return;
            }
            std::thread::sleep(KILL_PAUSE);
        }
    }
}

/// Returns when what is left of it is killed.
fn ends_at(instance: &Instance) -> Option<Instant> {
    instance.kill_at.into_iter().chain(instance.deadline).min()
}

/// Returns whether the rep has ended. When it ends, its sockets are closed first: for a moment it is still our parent.
fn rep_ends(rep: &mut UnixStream, parent_lives: impl Fn() -> bool) -> bool {
    let give_up = Instant::now() + END_PATIENCE;
    while parent_lives() {
        let closed = loop {
            match read_rep(rep) {
                FromRep::Nothing => break false,
                FromRep::Gone => break true,
                // orders that came too late
                FromRep::End | FromRep::Kill => {}
            }
        };
        if !closed || Instant::now() > give_up {
            return false;
        }
        std::thread::sleep(KILL_PAUSE);
    }
    true
}

fn parent_lives(orders: &Orders) -> bool {
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    parent == Some(orders.parent)
}

/// Returns a stream that receives a byte for each of these signals.
fn signals(signals: &[i32]) -> io::Result<UnixStream> {
    let (ours, theirs) = UnixStream::pair()?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, theirs.try_clone()?)?;
    }
    ours.set_nonblocking(true)?;
    Ok(ours)
}

fn drain(stream: &mut UnixStream) -> bool {
    let mut any = false;
    let mut bytes = [0; 64];
    while stream.read(&mut bytes).is_ok_and(|n| n > 0) {
        any = true;
    }
    any
}

enum FromRep {
    Nothing,
    End,
    Kill,
    Gone,
}

fn read_rep(rep: &mut UnixStream) -> FromRep {
    let mut byte = [0];
    match rep.read(&mut byte) {
        Ok(1) if byte[0] == END => FromRep::End,
        Ok(1) if byte[0] == KILL => FromRep::Kill,
        Ok(0) => FromRep::Gone,
        Ok(_) => FromRep::Nothing,
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            FromRep::Nothing
        }
        Err(_) => FromRep::Gone,
    }
}

/// Reaps children that have ended; returns true if none are left at all.
fn reap(instance: &mut Instance) -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) => {
                if pid == instance.main {
                    instance.status = Some(status);
                }
            }
            Ok(None) => return false,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // gone already, or not ours to signal: this is checked again
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn how_it_ended(orders: &Orders, instance: &Instance) -> EndReason {
    let by_status = match &instance.status {
        Some(status) => match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => EndReason::Exit(code),
            (_, Some(number)) => EndReason::Signal(number),
            _ => EndReason::Failed("ended in an unknown way".into()),
        },
        None => EndReason::Failed("could not be waited for".into()),
    };
    let killed = orders.cgroup.as_deref().is_some_and(killed_for_memory);
    let for_memory = killed && by_status != EndReason::Exit(0);
    let over = instance.over.or(for_memory.then_some(Limit::Memory));
    over.map_or(by_status, EndReason::Over)
}

/// Returns whether the kernel has killed a process of this control group because of its memory limit (v2, v1).
fn killed_for_memory(cgroup: &Path) -> bool {
    ["memory.events", "memory.oom_control"]
        .iter()
        .filter_map(|file| fs::read_to_string(cgroup.join(file)).ok())
        .any(|text| {
            text.lines()
                .filter_map(|line| line.strip_prefix("oom_kill "))
                .any(|count| count.trim() != "0")
        })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_rep_that_closed_its_socket_is_waited_for() {
        let (mut ours, mut theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        assert!(rep_ends(&mut ours, || false), "it has ended");
        theirs.write_all(&[END, KILL]).unwrap();
        assert!(!rep_ends(&mut ours, || true), "it lives");
        theirs.write_all(&[KILL]).unwrap();
        drop(theirs);
        let looks = Cell::new(0);
        let lives = || {
            looks.set(looks.get() + 1);
            looks.get() < 3
        };
        assert!(rep_ends(&mut ours, lives), "it ends a moment later");
        assert_eq!(looks.get(), 3);
    }
}
