//! A copy of the workspace in which the code is changed, and its compilation.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::{
    change::{Change, State},
    rewrite::{Rewritten, rewrite},
};

/// The file that is added to the changed crate.
const SWITCH: &str = include_str!("switch.rs");

/// Directories that belong to no crate.
const LEFT_OUT: [&str; 4] = ["target", ".git", ".tools", "proptest-regressions"];

/// A copy of the workspace.
pub(crate) struct Scratch {
    root: PathBuf,
    /// Cargo's target directory. It differs from the workspace's, where this build would be mistaken for the
    /// workspace's own.
    target: PathBuf,
    package: String,
    /// The original content of the files that are changed.
    originals: BTreeMap<String, String>,
}

/// A test program that cargo built.
pub(crate) struct TestProgram {
    pub(crate) path: PathBuf,
    /// The directory in which cargo would run it.
    pub(crate) directory: PathBuf,
}

#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum CargoMessage {
    CompilerMessage {
        message: Diagnostic,
    },
    CompilerArtifact(Artifact),
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Artifact {
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    message: String,
    rendered: Option<String>,
    code: Option<Code>,
    spans: Vec<Place>,
}

#[derive(Deserialize)]
struct Code {
    code: String,
}

#[derive(Deserialize)]
struct Place {
    file_name: String,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
}

/// The cause of a compiler error.
#[derive(Debug)]
enum Blame {
    /// These changes do not compile.
    Changes(Vec<usize>),
    /// This function is called where it must be `const`.
    Const(String),
}

impl Scratch {
    /// Copies the workspace from `from` to `to/work`. A file that is already identical there keeps its time, so that
    /// cargo does not rebuild it.
    pub(crate) fn copy(
        from: &Path,
        to: &Path,
        package: &str,
        mut originals: BTreeMap<String, String>,
    ) -> Result<Self> {
        let (root, target) = (to.join("work"), to.join("target"));
        let mut copied = BTreeSet::new();
        copy_below(from, &root, Path::new(""), &mut copied)?;
        remove_others(&root, Path::new(""), &copied)?;
        // it gets the switch
        let lib = format!("{package}/src/lib.rs");
        let text = fs::read_to_string(from.join(&lib)).with_context(|| format!("reading {lib}"))?;
        originals.insert(lib, text);
        let package = package.to_owned();
        Ok(Self {
            root,
            target,
            package,
            originals,
        })
    }

    /// Writes all changes that are to be tried into the copy and compiles it, leaving out those that do not compile.
    /// Sets the state of each change.
    pub(crate) fn compile(
        &self,
        cargo_options: &[String],
        changes: &mut [Change],
    ) -> Result<Vec<TestProgram>> {
        let mut keep_const = BTreeSet::new();
        let mut last_errors = String::new();
        loop {
            let files = self.write_changes(changes, &keep_const)?;
            let (programs, errors) = self.cargo(cargo_options)?;
            if errors.is_empty() {
                return Ok(programs);
            }
            let before = (count_tried(changes), keep_const.len());
            for error in &errors {
                match blame(error, &files) {
                    Some(Blame::Changes(numbers)) => {
                        for number in numbers {
                            changes[number].state = State::DoesNotCompile;
                        }
                    }
                    Some(Blame::Const(function)) => _ = keep_const.insert(function),
                    None => {}
                }
                last_errors += error.rendered.as_deref().unwrap_or(&error.message);
            }
            if before == (count_tried(changes), keep_const.len()) {
                bail!("this is the fault of no change:\n{last_errors}");
            }
            last_errors.clear();
            println!("{} changes compile or may", count_tried(changes));
        }
    }

    fn write_changes(
        &self,
        changes: &mut [Change],
        keep_const: &BTreeSet<String>,
    ) -> Result<BTreeMap<String, Rewritten>> {
        let mut files = BTreeMap::new();
        let lib = format!("{}/src/lib.rs", self.package);
        for (file, text) in &self.originals {
            let mut new = rewrite(text, file, changes, keep_const)?;
            if *file == lib {
                new.text += "\nmod mutant_switch;\n";
            }
            write(&self.root.join(file), new.text.as_bytes())?;
            files.insert(file.clone(), new);
        }
        let switch = lib.replace("lib.rs", "mutant_switch.rs");
        write(&self.root.join(switch), SWITCH.as_bytes())?;
        Ok(files)
    }

    /// Builds the tests; returns the programs, or the errors.
    fn cargo(&self, options: &[String]) -> Result<(Vec<TestProgram>, Vec<Diagnostic>)> {
        let output = Command::new("cargo")
            .args([
                "test",
                "--no-run",
                "--message-format=json",
                "-p",
                &self.package,
            ])
            .args(options)
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            .stderr(Stdio::inherit())
            .output()
            .context("running cargo")?;
        let (mut programs, mut errors) = (Vec::new(), Vec::new());
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            match serde_json::from_str(line).with_context(|| format!("from cargo: {line}"))? {
                CargoMessage::CompilerMessage { message } if message.level == "error" => {
                    errors.push(message);
                }
                CargoMessage::CompilerArtifact(Artifact {
                    profile: Profile { test: true },
                    executable: Some(path),
                }) => {
                    let directory = self.root.join(&self.package);
                    programs.push(TestProgram { path, directory });
                }
                _ => {}
            }
        }
        errors.retain(|error| !error.spans.is_empty());
        ensure!(
            output.status.success() || !errors.is_empty(),
            "cargo failed"
        );
        Ok((programs, errors))
    }
}

fn count_tried(changes: &[Change]) -> usize {
    let tried = changes.iter().filter(|change| change.state == State::Tried);
    tried.count()
}

/// Determines what causes an error: the changes in whose code it is, or else those between which and the original code
/// is chosen there.
fn blame(error: &Diagnostic, files: &BTreeMap<String, Rewritten>) -> Option<Blame> {
    let at = |primary: bool| {
        let places = error
            .spans
            .iter()
            .filter(move |place| place.is_primary || !primary);
        places.filter_map(|place| Some((files.get(&place.file_name)?, place)))
    };
    for primary in [true, false] {
        let found: Vec<usize> = at(primary)
            .flat_map(|(file, place)| {
                let within = file.changes.iter().filter(|(_, range)| holds(range, place));
                within.map(|(number, _)| *number)
            })
            .collect();
        if !found.is_empty() {
            return Some(Blame::Changes(found));
        }
    }
    // not in a change, so the call is in a constant: cannot call non-const function `NAME` in ..
    if error.code.as_ref().is_some_and(|code| code.code == "E0015") {
        let called = error.message.split('`').nth(1)?;
        let name = called.rsplit("::").next()?;
        return Some(Blame::Const(name.to_owned()));
    }
    let (file, place) = at(true).next()?;
    let within = file.choices.iter().filter(|(_, range)| holds(range, place));
    let smallest = within.min_by_key(|(_, range)| range.len())?;
    let same = file
        .choices
        .iter()
        .filter(|(_, range)| *range == smallest.1);
    Some(Blame::Changes(same.map(|(number, _)| *number).collect()))
}

fn holds(range: &Range<usize>, place: &Place) -> bool {
    range.start <= place.byte_start && place.byte_end <= range.end
}

fn copy_below(from: &Path, to: &Path, below: &Path, copied: &mut BTreeSet<PathBuf>) -> Result<()> {
    let directory = from.join(below);
    let entries = fs::read_dir(&directory);
    for entry in entries.with_context(|| format!("reading {}", directory.display()))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() && !LEFT_OUT.iter().any(|name| entry.file_name() == *name) {
            copy_below(from, to, &path, copied)?;
        } else if kind.is_file() {
            write(&to.join(&path), &fs::read(entry.path())?)?;
            copied.insert(path);
        }
    }
    Ok(())
}

/// Removes all files except these.
fn remove_others(root: &Path, below: &Path, keep: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            remove_others(root, &path, keep)?;
        } else if !keep.contains(&path) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Writes a file unless it already has this content.
fn write(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|found| found == content) {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(path, content).with_context(|| format!("writing {}", path.display()))
}
