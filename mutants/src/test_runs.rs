//! The tests of a crate: their list, which changes each reaches, and whether they notice one.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::{parallel, scratch::TestProgram};

/// Tests that take longer than this run after all others, one by one.
const SLOW: Duration = Duration::from_millis(200);
/// How long tests may take with a change, beyond ten times what they took without one. If the machine is busy for this
/// long, a change counts as noticed.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a test may take alone and without a change.
const ALONE: Duration = Duration::from_secs(1_200);

/// One test.
pub(crate) struct Test {
    /// The number of its program.
    program: usize,
    name: String,
    /// How long it takes without a change, as a separate process.
    time: Duration,
    /// The changes whose code it reaches.
    reaches: BTreeSet<usize>,
}

/// All tests of a crate.
pub(crate) struct Tests {
    programs: Vec<TestProgram>,
    /// The quickest first.
    tests: Vec<Test>,
}

impl Tests {
    /// Runs each test alone, without a change, `jobs` at a time; the records of what they reach are kept in `notes`.
    pub(crate) fn find(programs: Vec<TestProgram>, notes: &Path, jobs: usize) -> Result<Self> {
        let mut names = Vec::new();
        for (number, program) in programs.iter().enumerate() {
            let ignored = list(program, &["--ignored"])?;
            let all = list(program, &[])?;
            names.extend(all.difference(&ignored).map(|name| (number, name.clone())));
        }
        fs::create_dir_all(notes)?;
        let tests = parallel::map(jobs, &names, |index, (number, name)| {
            let file = notes.join(index.to_string());
            try_without_change(&programs[*number], *number, name, &file)
        });
        let mut tests = tests.into_iter().collect::<Result<Vec<Test>>>()?;
        ensure!(!tests.is_empty(), "there are no tests");
        tests.sort_by_key(|test| test.time);
        let found = Self { programs, tests };
        // otherwise every change would seem to be noticed
        for run in found.runs(|_| true).iter().filter(|run| run.len() > 1) {
            let names = run.iter().map(|test| test.name.as_str());
            let names: Vec<&str> = names.collect();
            ensure!(
                found.pass(run, None)?,
                "together, without a change, fail: {names:?}"
            );
        }
        Ok(found)
    }

    /// Returns the number of tests.
    pub(crate) fn count(&self) -> usize {
        self.tests.len()
    }

    /// Returns whether a test reaches the code of this change.
    pub(crate) fn reach(&self, change: usize) -> bool {
        self.tests.iter().any(|test| test.reaches.contains(&change))
    }

    /// Returns whether a test fails or hangs with this change.
    pub(crate) fn notice(&self, change: usize) -> Result<bool> {
        for run in self.runs(|test| test.reaches.contains(&change)) {
            if !self.pass(&run, Some(change))? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Groups the selected tests into runs: the quick ones of a program together, then the slow ones.
    fn runs(&self, which: impl Fn(&Test) -> bool) -> Vec<Vec<&Test>> {
        let tests = self.tests.iter().filter(|test| which(test));
        let (quick, slow): (Vec<&Test>, Vec<&Test>) = tests.partition(|test| test.time < SLOW);
        let of = |program| {
            quick
                .iter()
                .copied()
                .filter(move |test| test.program == program)
        };
        let quick = (0..self.programs.len()).map(|program| of(program).collect());
        let mut runs: Vec<Vec<&Test>> = quick.collect();
        runs.extend(slow.into_iter().map(|test| vec![test]));
        runs.retain(|run| !run.is_empty());
        runs
    }

    /// Returns whether these tests of one program pass, with or without a change.
    fn pass(&self, tests: &[&Test], change: Option<usize>) -> Result<bool> {
        let time: Duration = tests.iter().map(|test| test.time).sum();
        let mut command = self.programs[tests[0].program].command();
        command.args(tests.iter().map(|test| &test.name));
        if let Some(change) = change {
            command.env("VENDUE_MUTANT", change.to_string());
        }
        passes(command, time * 10 + PATIENCE)
    }
}

impl TestProgram {
    /// Returns a command that runs tests one after the other; their exact names are still to be added.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command
            .args(["--exact", "--test-threads=1"])
            .current_dir(&self.directory)
            .env("CARGO_MANIFEST_DIR", &self.directory)
            // the same cases each time, and no time spent on shrinking
            .env("PROPTEST_RNG_SEED", "1")
            .env("PROPTEST_MAX_SHRINK_ITERS", "0")
            .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
            .env("RUST_BACKTRACE", "0")
            .env_remove("VENDUE_MUTANT")
            .stdin(Stdio::null());
        command
    }
}

fn list(program: &TestProgram, options: &[&str]) -> Result<BTreeSet<String>> {
    let mut command = Command::new(&program.path);
    command.args(["--list", "--format", "terse"]).args(options);
    let output = command.current_dir(&program.directory).output();
    let output = output.with_context(|| format!("running {}", program.path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.map(str::to_owned).collect())
}

fn try_without_change(
    program: &TestProgram,
    number: usize,
    name: &str,
    notes: &Path,
) -> Result<Test> {
    let _ = fs::remove_file(notes);
    let mut command = program.command();
    command.arg(name).env("VENDUE_MUTANTS_REACHED", notes);
    let started = Instant::now();
    let passed = passes(command, ALONE)?;
    ensure!(passed, "{name} fails without a change");
    let time = started.elapsed();
    let reached = fs::read_to_string(notes).unwrap_or_default();
    let reaches = reached.lines().filter_map(|line| line.parse().ok());
    Ok(Test {
        program: number,
        name: name.to_owned(),
        time,
        reaches: reaches.collect(),
    })
}

/// Runs a test program until its first failure, for at most `longest`; returns false if a test failed or it did not
/// end.
fn passes(mut command: Command, longest: Duration) -> Result<bool> {
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // together with what the tests start, so that all can be ended at once
        .process_group(0)
        .spawn()
        .with_context(|| format!("running {command:?}"))?;
    let (send, failed) = mpsc::channel();
    if let Some(output) = child.stdout.take() {
        thread::spawn(move || send.send(fails(output)));
    }
    let failed = failed.recv_timeout(longest).unwrap_or(true);
    if failed {
        end(&child)?;
    }
    let status = child.wait()?;
    Ok(!failed && status.success())
}

/// Returns whether the output says that a test failed, as soon as it does.
fn fails(output: impl Read) -> bool {
    let mut lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
    lines.any(|line| line.ends_with(b"... FAILED"))
}

fn end(child: &Child) -> Result<()> {
    let id = Pid::from_child(child);
    match kill_process_group(id, Signal::KILL) {
        // it ended by itself
        Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
        Err(error) => Err(error).context("ending a test"),
    }
}
