//! Lists as text, corrections of misspelt words, and what is shown of long ones.

use std::borrow::Cow;

/// `a`, `a or b`, `a, b or c`.
pub(crate) fn or(items: &[String]) -> String {
    join(items, "or")
}

/// `"a"`, `"a" and "b"`, `"a", "b" and "c"`.
pub(crate) fn quoted_and(items: &[String]) -> String {
    let quoted: Vec<String> = items.iter().map(|item| format!("\"{item}\"")).collect();
    join(&quoted, "and")
}

fn join(items: &[String], word: &str) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [most @ .., last] => format!("{} {word} {last}", most.join(", ")),
    }
}

/// The valid name nearest to `name` by edits, if it is near enough to be a misspelling.
pub fn nearest<'n>(name: &str, valid: &[&'n str]) -> Option<&'n str> {
    let name: String = name.chars().take(64).collect();
    let distance = |candidate: &str| strsim::osa_distance(&name, candidate);
    let best = valid.iter().min_by_key(|candidate| distance(candidate))?;
    (distance(best) <= 1 + best.len() / 3).then_some(*best)
}

/// The most of a text that someone else chose, in errors, answers and log lines, characters.
const MAX_FOREIGN: usize = 200;

/// The first 200 characters of a text that someone else chose.
pub fn cut(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_FOREIGN) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// A text for an error: its first 40 characters, quoted.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}
