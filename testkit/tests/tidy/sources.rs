//! The files of the repository, and checks on them such as the length of functions.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The longest function in lines, from `fn` to its last brace, without blank lines and comments.
const MOST_LINES: usize = 70;

/// Functions that are still longer. This list may only get shorter.
const STILL_LONG: &[&str] = &[];

/// Crates whose source files are checked.
const CRATES: [&str; 11] = [
    "placement",
    "shared",
    "advertiser",
    "rep",
    "auctioneer",
    "manager",
    "simulator",
    "vendue",
    "nats-server",
    "testkit",
    "mutants",
];

pub(crate) struct Source {
    /// Relative to the root of the repository.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    /// Returns whether it has this extension.
    pub(crate) fn is_a(&self, extension: &str) -> bool {
        Path::new(&self.path)
            .extension()
            .is_some_and(|found| found == extension)
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns every text file of the repository, except for what is built or fetched.
pub(crate) fn all_files() -> Vec<Source> {
    let mut found = Vec::new();
    read_below(&root(), "", &mut found);
    found
}

/// Returns the Rust files of the crates' `src` directories.
pub(crate) fn rust_sources() -> Vec<Source> {
    let mut found = Vec::new();
    for name in CRATES {
        let path = format!("{name}/src");
        read_below(&root().join(&path), &path, &mut found);
    }
    found.retain(|source| source.is_a("rs"));
    assert!(found.len() > 100, "only {} Rust files", found.len());
    found
}

fn read_below(directory: &Path, path: &str, found: &mut Vec<Source>) {
    // a crate that does not exist has no files
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let below = format!("{path}/{name}").trim_start_matches('/').to_owned();
        let kind = entry.file_type().expect("a kind of file");
        if kind.is_dir() {
            if !["target", ".git", ".tools"].contains(&name.as_str()) {
                read_below(&entry.path(), &below, found);
            }
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            found.push(Source { path: below, text });
        }
    }
}

/// Returns the functions of a file formatted by rustfmt: name, line and length.
fn functions(text: &str) -> Vec<(String, usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        // its last brace is indented like its first line
        let indent = &line[..line.len() - line.trim_start().len()];
        let end = format!("{indent}}}");
        let without_body = lines[start..]
            .iter()
            .find(|line| line.ends_with(['{', ';', '}']));
        if without_body.is_some_and(|line| !line.ends_with('{')) {
            continue;
        }
        let body = lines[start..].iter().take_while(|line| **line != end);
        let code = body.filter(|line| {
            let line = line.trim_start();
            !line.is_empty() && !line.starts_with("//")
        });
        found.push((name, start + 1, code.count() + 1));
    }
    found
}

fn function_name(line: &str) -> Option<String> {
    let mut words = line.split_whitespace().skip_while(|word| {
        word.starts_with("pub") || ["const", "async", "in", "super)", "crate)"].contains(word)
    });
    let name = (words.next()? == "fn").then(|| words.next())??;
    let end = name.find(['(', '<']).unwrap_or(name.len());
    Some(name[..end].to_owned())
}

#[test]
fn no_function_is_too_long() {
    let (mut long, mut allowed) = (Vec::new(), Vec::new());
    for source in rust_sources() {
        // a test is a list of cases
        if source.path.contains("/tests/") || source.path.ends_with("/tests.rs") {
            continue;
        }
        for (name, line, length) in functions(&source.text) {
            if length > MOST_LINES && STILL_LONG.contains(&name.as_str()) {
                allowed.push(name);
            } else if length > MOST_LINES {
                long.push(format!("{}:{line}: {name} has {length} lines", source.path));
            }
        }
    }
    assert!(
        long.is_empty(),
        "more than {MOST_LINES} lines:\n{}",
        long.join("\n")
    );
    assert_eq!(allowed, STILL_LONG, "STILL_LONG names what is short now");
}

#[test]
fn functions_are_measured() {
    let text = "\
pub(crate) async fn one(
    a: u32,
) -> u32 {
    // why

    if a > 1 {
        2
    }
}
trait T {
    fn two(&self);
    fn three(&self) {}
}
";
    let expected = [("one".to_owned(), 1, 7)];
    assert_eq!(functions(text), expected);
}

#[test]
fn no_file_names_a_home_directory() {
    // split, so that this file does not contain them
    let homes = [
        ["/ro", "ot/"].concat(),
        ["/ho", "me/"].concat(),
        ["/Us", "ers/"].concat(),
    ];
    // an account in a made-up /etc/passwd
    let allowed = ["rep/src/executor/users.rs"];
    let mut found = Vec::new();
    for source in all_files() {
        for (n, line) in source.text.lines().enumerate() {
            let named = homes.iter().any(|home| line.contains(home));
            if named && !allowed.contains(&source.path.as_str()) {
                found.push(format!("{}:{}: {}", source.path, n + 1, line.trim()));
            }
        }
    }
    assert!(
        found.is_empty(),
        "paths of one machine:\n{}",
        found.join("\n")
    );
}
