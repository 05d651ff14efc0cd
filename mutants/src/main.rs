//! `make mutants`: changes a crate in small ways and counts the changes that its tests notice.
//!
//! A build for each change would take many hours, so all changes are compiled into one program, each behind a switch:
//! `a < b` becomes `(if off(17, 18) { a < b } else { (a) <= (b) })`. The tests then run once for each change, with its
//! number in the environment; only the tests that reach the code of the change run, until the first one fails. The list
//! of changes is that of cargo-mutants.

#![allow(clippy::print_stdout)] // a program for people

mod change;
mod parallel;
mod rewrite;
mod scratch;
// compiled into the changed crate; included here so that it is formatted and checked
#[cfg(test)]
mod switch;
mod test_runs;

use std::{
    env, fs,
    path::Path,
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Resource, Rlimit, setrlimit};

use change::{Change, State};
use scratch::Scratch;
use test_runs::Tests;

/// The minimum share of changes that must be noticed, in per cent.
const LEAST: usize = 97;
/// Memory limit of a test program in bytes of address space, as a change may make a test allocate endlessly.
const MOST_MEMORY: u64 = 4 << 30;

const USAGE: &str = "mutants PACKAGE DIRECTORY JOBS [OPTION OF CARGO TEST]...
DIRECTORY/PACKAGE/changes.json is what `cargo-mutants mutants --list --json` prints; the results are
written beside it";

fn main() -> ExitCode {
    match run(&env::args().skip(1).collect::<Vec<_>>()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether enough changes of a crate were noticed.
fn run(arguments: &[String]) -> Result<bool> {
    let [package, directory, jobs, cargo_options @ ..] = arguments else {
        bail!("{USAGE}");
    };
    let jobs: usize = jobs
        .parse()
        .with_context(|| format!("JOBS is {jobs:?}, not a number"))?;
    let root = env::current_dir()?;
    let directory = root.join(directory);
    let results = directory.join(package);
    let (mut changes, originals) = change::read(&results.join("changes.json"), &root)?;
    println!("{package}: {} changes; compiling", changes.len());
    let scratch = Scratch::copy(&root, &directory, package, originals)?;
    let programs = scratch.compile(cargo_options, &mut changes)?;
    let limit = Rlimit {
        current: Some(MOST_MEMORY),
        maximum: Some(MOST_MEMORY),
    };
    setrlimit(Resource::As, limit).context("limiting the memory")?;
    println!("{package}: running each test without a change");
    let tests = Tests::find(programs, &results.join("reached"), jobs)?;
    let outcomes = try_all(package, &changes, &tests, jobs)?;
    write_lists(&results, &changes, &outcomes)?;
    Ok(judge(package, &changes, &outcomes))
}

/// The result of trying a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Noticed,
    Missed,
    /// Missed because no test reaches it.
    NotReached,
}

/// Returns the outcome of each change that can be tried, with its number.
fn try_all(
    package: &str,
    changes: &[Change],
    tests: &Tests,
    jobs: usize,
) -> Result<Vec<(usize, Outcome)>> {
    let tried = |number: &usize| changes[*number].state == State::Tried;
    let numbers: Vec<usize> = (0..changes.len()).filter(tried).collect();
    println!(
        "{package}: {} tests, {} changes to try",
        tests.count(),
        numbers.len()
    );
    let (started, done, missed) = (Instant::now(), AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes = parallel::map(jobs, &numbers, |_, number| {
        let outcome = match tests.reach(*number) {
            false => Outcome::NotReached,
            true if tests.notice(*number)? => Outcome::Noticed,
            true => Outcome::Missed,
        };
        if outcome != Outcome::Noticed {
            missed.fetch_add(1, Ordering::Relaxed);
        }
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if done % 50 == 0 {
            let (all, missed) = (numbers.len(), missed.load(Ordering::Relaxed));
            let seconds = started.elapsed().as_secs();
            println!("{package}: {done} of {all} tried, {missed} missed, {seconds} s");
        }
        Ok((*number, outcome))
    });
    outcomes.into_iter().collect()
}

/// Writes the changes that were missed and those that were not tried, one per line.
fn write_lists(to: &Path, changes: &[Change], outcomes: &[(usize, Outcome)]) -> Result<()> {
    let missed = outcomes.iter().filter_map(|(number, outcome)| {
        let note = match outcome {
            Outcome::Noticed => return None,
            Outcome::Missed => "",
            Outcome::NotReached => "  (no test gets there)",
        };
        Some(format!("{}{note}", changes[*number].name))
    });
    let of = |state: State| -> Vec<String> {
        let such = changes.iter().filter(|change| change.state == state);
        such.map(|change| change.name.clone()).collect()
    };
    write(&to.join("missed.txt"), &missed.collect::<Vec<_>>())?;
    write(&to.join("does-not-compile.txt"), &of(State::DoesNotCompile))?;
    write(&to.join("not-switchable.txt"), &of(State::NotSwitchable))
}

fn write(path: &Path, lines: &[String]) -> Result<()> {
    let text: String = lines
        .iter()
        .flat_map(|line| [line.as_str(), "\n"])
        .collect();
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

/// Prints the result in one line, and returns whether enough was noticed.
fn judge(package: &str, changes: &[Change], outcomes: &[(usize, Outcome)]) -> bool {
    let count = |wanted| {
        outcomes
            .iter()
            .filter(|(_, outcome)| *outcome == wanted)
            .count()
    };
    let (all, not_reached) = (outcomes.len(), count(Outcome::NotReached));
    let noticed = count(Outcome::Noticed);
    let in_state = |state| {
        changes
            .iter()
            .filter(|change| change.state == state)
            .count()
    };
    println!(
        "result: {package}: {noticed} of {all} changes noticed ({:.1} %), {} missed (no test gets to \
         {not_reached} of them); {} do not compile, {} are not switchable",
        100.0 * noticed as f64 / all.max(1) as f64,
        all - noticed,
        in_state(State::DoesNotCompile),
        in_state(State::NotSwitchable),
    );
    all > 0 && noticed * 100 >= all * LEAST
}

#[cfg(test)]
mod tests {
    /// Not in the file itself, where it would become one of the changed crate's tests.
    #[test]
    fn nothing_is_switched_on_without_a_number() {
        assert!(!super::switch::on(0));
        assert!(super::switch::off(0, 1_000));
    }
}
