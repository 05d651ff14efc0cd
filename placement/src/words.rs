//! Lists in words.

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
