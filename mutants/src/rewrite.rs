//! Rewrites a file with all its changes in it, each behind a switch.

mod edit;
mod finder;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use syn::visit::Visit;

use self::finder::Finder;
use crate::change::{Change, Kind, State};

pub(crate) use self::edit::Rewritten;

/// Rewrites `text` with the changes of this file that are to be tried. Sets the state of those that cannot be tried.
/// Functions in `keep_const` stay `const`, so nothing in them can be switched.
pub(crate) fn rewrite(
    text: &str,
    file: &str,
    changes: &mut [Change],
    keep_const: &BTreeSet<String>,
) -> Result<Rewritten> {
    let tree = syn::parse_file(text).with_context(|| format!("parsing {file}"))?;
    let mut pending: BTreeMap<(Kind, usize), Vec<usize>> = BTreeMap::new();
    for (number, change) in changes.iter().enumerate() {
        if change.file == file {
            let at = pending.entry((change.kind, change.range.start));
            at.or_default().push(number);
        }
    }
    let mut finder = Finder {
        text,
        pending,
        changes,
        keep_const,
        fixed: false,
        edits: Vec::new(),
    };
    finder.visit_file(&tree);
    // what is left is code that syn parses differently from cargo-mutants
    for number in finder.pending.into_values().flatten() {
        finder.changes[number].state = State::NotSwitchable;
    }
    let mut rewritten = Rewritten {
        text: String::new(),
        changes: Vec::new(),
        choices: Vec::new(),
    };
    let mut edits = finder.edits;
    // an outer part comes before the parts inside it
    edits.sort_by_key(|edit| (edit.range.start, usize::MAX - edit.range.end));
    let mut edits = edits.into_iter().peekable();
    rewritten.write(text, 0..text.len(), &mut edits);
    Ok(rewritten)
}

#[cfg(test)]
mod tests;
