//! Lists in words, and words that were meant.

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

/// The valid name with the fewest edits, when they are few.
pub(crate) fn nearest(name: &str, valid: &[&str]) -> Option<String> {
    let distance = |candidate: &str| {
        let target: Vec<char> = candidate.chars().collect();
        let mut row: Vec<usize> = (0..=target.len()).collect();
        for (i, a) in name.chars().take(64).enumerate() {
            let mut diagonal = row[0];
            row[0] = i + 1;
            for (j, b) in target.iter().enumerate() {
                let cost = diagonal + usize::from(a != *b);
                diagonal = row[j + 1];
                row[j + 1] = cost.min(row[j] + 1).min(diagonal + 1);
            }
        }
        row[target.len()]
    };
    let best = valid.iter().min_by_key(|candidate| distance(candidate))?;
    (distance(best) <= 1 + best.len() / 3).then(|| (*best).to_owned())
}

/// A text as an error quotes it: its first 40 characters.
pub(crate) fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}
