//! The source of an instance: fetched if the cell does not have it, checked, and unpacked into the instance's directory
//! before its command runs.
//!
//! Network data and archives are only read by processes of the instance: they have its user, its control group and its
//! limits, and end with it. They run `vendue`, not the supervisor's own program, which stays small. The supervisor
//! itself copies nothing and parses nothing: it opens the file that is written, computes the SHA-256 of its content,
//! and gives it its name in the cell's cache.

mod blob;
mod fetch;
mod unpack;

use std::{
    fs::File,
    io::{self, Read, Write},
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::PathBuf,
    process::{ChildStderr, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};

use self::blob::Part;
pub(crate) use self::fetch::check_authorities;
use super::{
    FromRep, Orders, SourceFrom, SourceOrders, Supervisor, SupervisorReport, drain,
    hide_from_own_user, how_it_ended,
    launch::{Instance, belong, start},
    read_rep,
};
use crate::ledger::EndReason;

/// The largest source, in bytes, if the instance has no disk limit.
const MOST_BYTES: u64 = 64 << 30;
/// The number of digits of a SHA-1, which identifies droplets.
const SHA1_DIGITS: usize = 40;
/// How often to check whether another instance has fetched the same source.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest text of a failed step, in bytes.
const MAX_SAID: u64 = 1_024;
/// The exit code of a step whose text says why it failed.
const FAILED: u8 = 1;
/// How an instance ended that was told to end before its command ran.
const STOPPED: &str = "stopped before it was started";

/// The first argument of a program that is called for a step.
pub const STEP: &str = "supervise-source";
/// The program that only supervises: there is one process of it per instance, so it links nothing that only steps need.
const SMALL_PROGRAM: &str = "vendue-supervisor";
/// The program next to it that carries out the steps.
const STEP_PROGRAM: &str = "vendue";

/// The entry point of a program called with [`STEP`]: `fetch BYTES MILLISECONDS`, with the address on standard input
/// and the content on standard output, or `unpack BYTES`, with the content on standard input. Must be called before any
/// thread is started.
pub fn step() -> ExitCode {
    let words: Vec<String> = std::env::args_os()
        .skip(2)
        .map_while(|word| word.into_string().ok())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["fetch", most, time] => begin_step()
            .and_then(|()| fetch::run(number(most)?, Duration::from_millis(number(time)?))),
        ["unpack", most] => begin_step().and_then(|()| unpack::run(number(most)?)),
        _ => Err(format!(
            "`{STEP}` is an internal command; it is not meant to be run directly"
        )),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(FAILED)
        }
    }
}

/// Returns the program for the steps, and a file that must stay open until it is started: the instance's user may not
/// be able to access its directory.
fn step_program() -> io::Result<(PathBuf, Option<File>)> {
    let own = std::env::current_exe()?;
    // a prefix, because the name says so if the file has been replaced in the meantime
    let is_small = own
        .file_name()
        .is_some_and(|name| name.as_bytes().starts_with(SMALL_PROGRAM.as_bytes()));
    if !is_small {
        return Ok(("/proc/self/exe".into(), None));
    }
    let program = File::open(own.with_file_name(STEP_PROGRAM))?;
    let path = format!("/proc/self/fd/{}", program.as_raw_fd());
    Ok((path.into(), Some(program)))
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

/// Prevents others of the same user from looking into the step, and ends it with its supervisor.
fn begin_step() -> Result<(), String> {
    hide_from_own_user().map_err(|e| e.to_string())?;
    let ended = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    ended.map_err(|e| e.to_string())
}

/// One of the two steps.
struct Step<'a> {
    /// The arguments after [`STEP`].
    words: &'a [String],
    /// The text written to its standard input.
    text: &'a str,
    stdin: Stdio,
    stdout: Stdio,
    deadline: Instant,
}

impl Supervisor {
    /// Puts the instance's source into its directory. The time limit includes both steps and the wait for another
    /// instance that fetches the same source.
    pub(super) fn put_source(
        &mut self,
        orders: &Orders,
        source: &SourceOrders,
    ) -> Result<(), EndReason> {
        let put = self.try_to_put(orders, source);
        if put.as_ref().is_err_and(|why| *why != failed(STOPPED)) {
            self.send(&SupervisorReport::Source(SourceFrom::Nowhere));
        }
        put
    }

    fn try_to_put(&mut self, orders: &Orders, source: &SourceOrders) -> Result<(), EndReason> {
        let own = rustix::process::geteuid().as_raw();
        if orders.user.map_or(own, |(uid, _)| uid) == 0 {
            let text = "run.source: the instances of this cell run as root; nothing is fetched as root: use another user (run-as)";
            return Err(failed(text));
        }
        let deadline = Instant::now() + Duration::from_millis(source.timeout_ms);
        let blob = self.blob(orders, source, deadline)?;
        let words = ["unpack".to_owned(), most_bytes(orders).to_string()];
        let step = Step {
            words: &words,
            text: "",
            stdin: blob.into(),
            stdout: Stdio::null(),
            deadline,
        };
        self.step(orders, step, source)
    }

    /// Returns the content: checked, positioned at its start, and read-only.
    fn blob(
        &mut self,
        orders: &Orders,
        source: &SourceOrders,
        deadline: Instant,
    ) -> Result<File, EndReason> {
        let Some(cache) = &source.cache else {
            let home = orders.directory.parent().unwrap_or(&orders.directory);
            let file = tempfile::tempfile_in(home).map_err(cannot_keep)?;
            self.fetch(orders, source, &file, deadline)?;
            self.send(&SupervisorReport::Source(SourceFrom::Network));
            return blob::to_read(&file).map_err(cannot_keep);
        };
        loop {
            if let Some(blob) = blob::find(cache, &source.what.sha256).map_err(cannot_keep)? {
                self.send(&SupervisorReport::Source(SourceFrom::Cache));
                return Ok(blob);
            }
            if let Some(part) = Part::lock(cache, source).map_err(cannot_keep)? {
                // another instance may have put it there since the last check
                if !blob::exists(cache, &source.what.sha256) {
                    self.fetch(orders, source, part.file(), deadline)?;
                    let blob = part.keep().map_err(cannot_keep)?;
                    // only now, because the rep immediately looks at what the cell has
                    self.send(&SupervisorReport::Source(SourceFrom::Network));
                    return Ok(blob);
                }
            } else {
                self.pause(source, deadline)?;
            }
        }
    }

    /// Fetches the source into a file, and checks the content of the file.
    fn fetch(
        &mut self,
        orders: &Orders,
        source: &SourceOrders,
        into: &File,
        deadline: Instant,
    ) -> Result<(), EndReason> {
        let left = deadline.saturating_duration_since(Instant::now());
        let words = [
            "fetch".to_owned(),
            most_bytes(orders).to_string(),
            left.as_millis().to_string(),
        ];
        let mut text = source.what.url.clone();
        if let Some(file) = &source.authorities {
            let read = fetch::read_authorities(file);
            let read = read.map_err(|why| failed(&format!("--source-ca of the cell: {why}")))?;
            text = format!("{text}\n{read}");
        }
        let step = Step {
            words: &words,
            text: &text,
            stdin: Stdio::piped(),
            stdout: into.try_clone().map_err(cannot_keep)?.into(),
            deadline,
        };
        self.step(orders, step, source)?;
        // all its processes have ended: nobody can write to the file any more
        let expected = &source.what.sha256;
        let (field, sum) = match expected.len() {
            // a droplet without a checksum
            0 => return Ok(()),
            SHA1_DIGITS => ("run.droplet.sha1", blob::sha1(into)),
            _ => ("run.source.sha256", blob::sum(into)),
        };
        let sum = sum.map_err(cannot_keep)?;
        if !sum.eq_ignore_ascii_case(expected) {
            let url = source.what.shown_url();
            let text = format!("{field}: {sum}; expected {expected} at {url}");
            return Err(failed(&text));
        }
        Ok(())
    }

    fn step(
        &mut self,
        orders: &Orders,
        step: Step<'_>,
        source: &SourceOrders,
    ) -> Result<(), EndReason> {
        let word = &step.words[0];
        let cannot =
            |e: io::Error| failed(&format!("run.source: cannot start the step {word}: {e}"));
        let (program, _open) = step_program().map_err(cannot)?;
        let mut command = Command::new(program);
        command
            .arg(STEP)
            .args(step.words)
            .env_clear()
            // lets a rep recognise what is left of an instance
            .env("HOME", &orders.directory)
            .stdin(step.stdin)
            .stdout(step.stdout)
            .stderr(Stdio::piped());
        belong(&mut command, orders);
        let mut child = start(orders, || command.spawn()).map_err(cannot)?;
        if let Some(mut stdin) = child.stdin.take() {
            // a step that has ended already says why
            let _ = stdin.write_all(step.text.as_bytes());
        }
        let stderr = child.stderr.take();
        let mut instance = Instance::of(&child, Some(step.deadline));
        self.watch(orders, &mut instance);
        self.kill_all(&mut instance);
        if instance.told {
            return Err(failed(STOPPED));
        }
        match how_it_ended(orders, &instance) {
            EndReason::Exit(0) => Ok(()),
            EndReason::Exit(code) if code == i32::from(FAILED) => Err(failed(&text_of(stderr))),
            EndReason::Over(limit) => Err(EndReason::Over(limit)),
            _ if step.deadline <= Instant::now() => Err(late(source)),
            other => Err(failed(&format!(
                "run.source: the step {word} ended: {other}"
            ))),
        }
    }

    /// Waits a moment; an error if the instance is to end or the time is up.
    fn pause(&mut self, source: &SourceOrders, deadline: Instant) -> Result<(), EndReason> {
        let timeout = Timespec::try_from(PAUSE).ok();
        let flags = PollFlags::IN;
        let mut all = [
            PollFd::new(&self.end_signals, flags),
            PollFd::new(&self.rep, flags),
        ];
        let _ = poll(&mut all, timeout.as_ref());
        if drain(&mut self.end_signals) || !matches!(read_rep(&mut self.rep), FromRep::Nothing) {
            return Err(failed(STOPPED));
        }
        if deadline <= Instant::now() {
            return Err(late(source));
        }
        Ok(())
    }
}

/// Returns the most bytes that are fetched, and that are unpacked.
fn most_bytes(orders: &Orders) -> u64 {
    match orders.disk_mb {
        0 => MOST_BYTES,
        mb => mb.saturating_mul(1 << 20),
    }
}

fn text_of(stderr: Option<ChildStderr>) -> String {
    let mut text = Vec::new();
    // every process that could write to it has ended
    let _ = stderr.map(|stderr| stderr.take(MAX_SAID).read_to_end(&mut text));
    String::from_utf8_lossy(&text).trim_end().to_owned()
}

fn failed(why: &str) -> EndReason {
    EndReason::Failed(why.to_owned())
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn cannot_keep(error: io::Error) -> EndReason {
    failed(&format!("run.source: the cell cannot keep it: {error}"))
}

fn late(source: &SourceOrders) -> EndReason {
    let seconds = Duration::from_millis(source.timeout_ms).as_secs_f64();
    let url = source.what.shown_url();
    failed(&format!(
        "run.source.url: {url}: not there after {seconds} s; expected a faster server, or a longer --source-timeout of the cell"
    ))
}
