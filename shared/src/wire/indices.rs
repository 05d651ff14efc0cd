//! Sets of instance indices, written like `"0,2-9"`.

use std::fmt::Write;

/// Writes indices in ascending order as ranges: `[0,2,3,4]` is `"0,2-4"`. Duplicates are dropped.
pub fn format_indices(indices: impl IntoIterator<Item = u32>) -> String {
    let mut sorted: Vec<u32> = indices.into_iter().collect();
    if let [index] = sorted.as_slice() {
        return index.to_string();
    }
    sorted.sort_unstable();
    sorted.dedup();
    let mut text = String::new();
    let mut rest = sorted.as_slice();
    while let [first, ..] = rest {
        let run = rest
            .iter()
            .zip(*first..)
            .take_while(|(index, next)| *index == next)
            .count();
        let last = rest[run - 1];
        let comma = if text.is_empty() { "" } else { "," };
        let _ = if run == 1 {
            write!(text, "{comma}{first}")
        } else {
            write!(text, "{comma}{first}-{last}")
        };
        rest = &rest[run..];
    }
    text
}

/// Parses the format of [`format_indices`]; `None` if the text has another form or names more than `most` indices.
pub fn parse_indices(text: &str, most: usize) -> Option<Vec<u32>> {
    let mut indices = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        let count = usize::try_from(last.checked_sub(first)?).ok()? + 1;
        if indices.len() + count > most {
            return None;
        }
        indices.extend(first..=last);
    }
    Some(indices)
}
