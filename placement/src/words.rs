//! Lists as text, corrections of misspelt words, and shortened texts.

use std::borrow::Cow;

/// Returns `a`, `a or b`, or `a, b or c`.
pub(crate) fn or(items: &[String]) -> String {
    join(items, "or")
}

/// Returns `"a"`, `"a" and "b"`, or `"a", "b" and "c"`.
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

/// Returns the valid name with the smallest edit distance to `name`, if it is small enough for a misspelling.
pub fn nearest<'n>(name: &str, valid: &[&'n str]) -> Option<&'n str> {
    let name: String = name.chars().take(64).collect();
    let distance = |candidate: &str| strsim::osa_distance(&name, candidate);
    let best = valid.iter().min_by_key(|candidate| distance(candidate))?;
    (distance(best) <= 1 + best.len() / 3).then_some(*best)
}

/// The most characters shown of texts that someone else chose, in errors, answers and log lines.
const MAX_FOREIGN: usize = 200;

/// Returns the first 200 characters of a text that someone else chose.
pub fn cut(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(MAX_FOREIGN) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// Returns a text for an error: its first 40 characters, quoted.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}

/// Rewrites serde's message about a value in the words of our errors: what is not allowed and what was expected. For a
/// value that may be secret, only the type is given. None if the message is about something else.
pub fn in_json_terms(message: &str, secret: bool) -> Option<String> {
    let (fault, expected) = message.rsplit_once(", expected ")?;
    let (kind, value) = match fault.strip_prefix("unknown variant ") {
        Some(value) => ("string", Some(format!("{:?}", value.trim_matches('`')))),
        // for an object, serde also accepts an array of its fields in order
        None if fault.starts_with("invalid length ") => ("sequence", None),
        None => {
            let found = fault
                .strip_prefix("invalid type: ")
                .or_else(|| fault.strip_prefix("invalid value: "))?;
            match found.find(['`', '"']) {
                Some(at) => (
                    found[..at].trim_end(),
                    Some(found[at..].trim_matches('`').to_owned()),
                ),
                None => (found, None),
            }
        }
    };
    let kind = match kind {
        "string" | "character" => "a string",
        "integer" | "floating point" => "a number",
        "boolean" => "a boolean",
        "sequence" => "an array",
        "map" => "an object",
        other => other,
    };
    let value = value.filter(|_| !secret);
    let found = value.as_deref().unwrap_or(kind);
    let expected = match expected {
        "i64" | "i32" => "an integer",
        "u64" | "u32" | "u16" | "usize" => "a non-negative integer",
        "f64" | "f32" => "a number",
        "a sequence" => "an array",
        "a map" => "an object",
        // the names of Rust types mean nothing to the sender
        other if other.starts_with("struct ") => "an object",
        other => &other.replace('`', ""),
    };
    Some(format!("{found} is not allowed; expected {expected}"))
}
