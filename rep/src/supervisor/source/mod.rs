//! What an instance is made from: fetched if the cell does not have it, checked, and unpacked into the instance's
//! directory before its command runs.
//!
//! What comes over the network and what is in an archive is only read by processes of the instance: they have its user,
//! its control group and its limits, and end with it. The supervisor itself copies nothing and parses nothing: it opens the
//! file that is written, computes the SHA-256 of what is in it, and gives it its name in the cell's cache.

mod blob;
mod fetch;
mod unpack;

use std::{
    fs::File,
    io::{Read, Write},
    process::{ChildStderr, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::Signal,
};

use self::blob::Part;
use super::{
    FromRep, Orders, SourceFrom, SourceOrders, Supervisor, SupervisorReport, drain,
    hide_from_own_user, how_it_ended,
    launch::{Instance, belong, start},
    read_rep,
};
use crate::ledger::EndReason;

/// The most bytes of a source where the instance has no disk limit.
const MOST_BYTES: u64 = 64 << 30;
/// The digits of a SHA-1, by which droplets are known.
const SHA1_DIGITS: usize = 40;
/// How often it is looked whether another instance has fetched the same.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest text of a step that failed, bytes.
const MAX_SAID: u64 = 1_024;
/// What a step ends with when its text says why it failed.
const FAILED: u8 = 1;
/// The end of an instance that was told to end before its command ran.
const STOPPED: &str = "stopped before it was started";

/// Does a step for a source if this program was called for one: `supervise fetch BYTES MILLISECONDS`, the address on
/// standard input and the content on standard output, or `supervise unpack BYTES`, the content on standard input.
pub(super) fn main() -> Option<ExitCode> {
    let words: Vec<String> = std::env::args_os()
        .skip(2)
        .map_while(|word| word.into_string().ok())
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["fetch", most, time] => {
            begin_step().and_then(|()| fetch::run(number(most)?, number(time)?))
        }
        ["unpack", most] => begin_step().and_then(|()| unpack::run(number(most)?)),
        _ => return None,
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(FAILED)
        }
    })
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{word:?} is no number"))
}

/// Nobody of the same user may look into the step, and it ends with its supervisor.
fn begin_step() -> Result<(), String> {
    hide_from_own_user().map_err(|e| e.to_string())?;
    let ended = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    ended.map_err(|e| e.to_string())
}

/// One of the two steps.
struct Step<'a> {
    /// The words after `supervise`.
    words: &'a [String],
    /// What is written to its standard input.
    text: &'a str,
    stdin: Stdio,
    stdout: Stdio,
    deadline: Instant,
}

impl Supervisor {
    /// Puts the instance's source into its directory. The time for it bounds both steps, and the wait for another instance
    /// that fetches the same.
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

    /// The content, checked, at its beginning, and only to be read.
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
                // another may have put it there since it was looked for
                if !blob::exists(cache, &source.what.sha256) {
                    self.fetch(orders, source, part.file(), deadline)?;
                    let blob = part.keep().map_err(cannot_keep)?;
                    // only now: the rep looks at once what the cell has
                    self.send(&SupervisorReport::Source(SourceFrom::Network));
                    return Ok(blob);
                }
            } else {
                self.pause(source, deadline)?;
            }
        }
    }

    /// Fetches it into a file, and checks what is in there then.
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
        let step = Step {
            words: &words,
            text: &source.what.url,
            stdin: Stdio::piped(),
            stdout: into.try_clone().map_err(cannot_keep)?.into(),
            deadline,
        };
        self.step(orders, step, source)?;
        // all its processes have ended: nobody can write to the file any more
        let expected = &source.what.sha256;
        let (field, sum) = match expected.len() {
            // a droplet of which nothing is known
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
        let mut command = Command::new("/proc/self/exe");
        command
            .arg("supervise")
            .args(step.words)
            .env_clear()
            // by this a rep knows what is left of an instance
            .env("HOME", &orders.directory)
            .stdin(step.stdin)
            .stdout(step.stdout)
            .stderr(Stdio::piped());
        belong(&mut command, orders);
        let mut child = start(orders, || command.spawn())
            .map_err(|e| failed(&format!("run.source: cannot start the step {word}: {e}")))?;
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

    /// Waits a moment; an error if the instance is to end, or the time is over.
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

/// The most bytes that are fetched, and that are unpacked.
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
fn cannot_keep(error: std::io::Error) -> EndReason {
    failed(&format!("run.source: the cell cannot keep it: {error}"))
}

fn late(source: &SourceOrders) -> EndReason {
    let seconds = Duration::from_millis(source.timeout_ms).as_secs_f64();
    let url = source.what.shown_url();
    failed(&format!(
        "run.source.url: {url}: not there after {seconds} s; expected a faster server, or a longer --source-timeout of the cell"
    ))
}
