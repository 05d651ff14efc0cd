//! The changes to try, as cargo-mutants lists them (`--list --json`).

use std::{collections::BTreeMap, fs, ops::Range, path::Path};

use anyhow::{Context, Result};
use serde::Deserialize;

/// One change of the code.
pub(crate) struct Change {
    /// Relative to the root of the workspace.
    pub(crate) file: String,
    /// What is replaced, in bytes of the file. For a function's value, it is inside the function's body.
    pub(crate) range: Range<usize>,
    pub(crate) replacement: String,
    pub(crate) kind: Kind,
    /// The change in words, with file, line and column.
    pub(crate) name: String,
    pub(crate) state: State,
}

/// The kind of code that is replaced.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    /// A function's body, replaced by a value.
    FnValue,
    BinaryOperator,
    UnaryOperator,
    /// An arm of a match, which is removed.
    MatchArm,
    /// The condition of an arm, replaced by true or false.
    MatchArmGuard,
    /// A field of a struct expression, which is then taken from the expression's base.
    StructField,
}

/// Whether a change can be tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Tried,
    /// The code does not compile with it.
    DoesNotCompile,
    /// It is in a constant or a pattern, where nothing can be decided at run time.
    NotSwitchable,
}

#[derive(Deserialize)]
struct Listed {
    file: String,
    span: Span,
    replacement: String,
    genre: Kind,
    name: String,
}

#[derive(Deserialize)]
struct Span {
    start: Position,
    end: Position,
}

/// Both are counted from 1; the column counts characters.
#[derive(Deserialize)]
struct Position {
    line: usize,
    column: usize,
}

/// Reads the list, and by name the files that it mentions; `root` is the directory of the workspace.
pub(crate) fn read(list: &Path, root: &Path) -> Result<(Vec<Change>, BTreeMap<String, String>)> {
    let text = fs::read_to_string(list).with_context(|| format!("reading {}", list.display()))?;
    let listed: Vec<Listed> =
        serde_json::from_str(&text).with_context(|| format!("in {}", list.display()))?;
    let mut texts = BTreeMap::new();
    for file in listed.iter().map(|listed| &listed.file) {
        if !texts.contains_key(file) {
            let text = fs::read_to_string(root.join(file));
            texts.insert(
                file.clone(),
                text.with_context(|| format!("reading {file}"))?,
            );
        }
    }
    let changes = listed.into_iter().map(|listed| {
        let text = &texts[&listed.file];
        let (start, end) = (
            offset(text, &listed.span.start),
            offset(text, &listed.span.end),
        );
        let outside = || format!("{} is not in its file", listed.name);
        Ok(Change {
            range: start.with_context(outside)?..end.with_context(outside)?,
            file: listed.file,
            replacement: listed.replacement,
            kind: listed.genre,
            name: listed.name,
            state: State::Tried,
        })
    });
    let changes = changes.collect::<Result<_>>()?;
    Ok((changes, texts))
}

fn offset(text: &str, at: &Position) -> Option<usize> {
    let before = at.line.checked_sub(1)?;
    let line: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
    let mut columns = text[line..].char_indices().map(|(offset, _)| offset);
    let column = columns.nth(at.column.checked_sub(1)?);
    Some(line + column.unwrap_or(text.len() - line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_counts_characters() {
        let text = "first\nü + 1\n";
        let at = |line, column| offset(text, &Position { line, column });
        assert_eq!(at(1, 1), Some(0));
        assert_eq!(at(2, 1), Some(6));
        assert_eq!(&text[at(2, 3).expect("in the text")..], "+ 1\n");
        assert_eq!(at(0, 1), None);
    }
}
