//! Checks that the documents agree with the code.

mod figures;

use crate::sources::{Source, root, rust_sources};
use figures::FIGURES;

#[test]
fn figures_in_documents_are_those_of_the_code() {
    let (sources, mut wrong) = (rust_sources(), Vec::new());
    for (document, figures) in FIGURES {
        let text = std::fs::read_to_string(root().join("docs").join(document)).expect(document);
        // a phrase may be broken across two lines
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for (phrase, place, name, unit) in *figures {
            match constant(&sources, place, name) {
                Ok(value) => {
                    let expected = phrase.replace("{}", &grouped(value / unit));
                    if value % unit != 0 || !text.contains(&expected) {
                        wrong.push(format!(
                            "docs/{document} lacks {expected:?}: {name} is {value}"
                        ));
                    }
                }
                Err(why) => wrong.push(format!("{name}, which docs/{document} states: {why}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the value of the only constant of this name in this file or directory.
fn constant(sources: &[Source], place: &str, name: &str) -> Result<u64, String> {
    let start = format!("const {name}: ");
    let inside = sources
        .iter()
        .filter(|source| source.path.starts_with(place));
    let lines = inside.flat_map(|source| source.text.lines());
    let mut found = lines.filter_map(|line| line.split_once(&start)?.1.split_once(" = "));
    let Some((_, value)) = found.next() else {
        return Err(format!("no such constant in {place}/"));
    };
    if found.next().is_some() {
        return Err(format!("there are two in {place}/; name the file"));
    }
    let value = value.trim_end_matches(';');
    evaluate(value).ok_or_else(|| format!("its value {value:?} is not understood"))
}

/// Evaluates whole numbers, products and shifts of them, and durations in the unit in which they are written.
fn evaluate(text: &str) -> Option<u64> {
    if let Some((_, inside)) = text.split_once("Duration::from_") {
        let (_, number) = inside.strip_suffix(')')?.split_once('(')?;
        return evaluate(number);
    }
    if let Some((left, right)) = text.split_once(" << ") {
        return Some(evaluate(left)? << evaluate(right)?);
    }
    if let Some((left, right)) = text.split_once(" * ") {
        return Some(evaluate(left)? * evaluate(right)?);
    }
    text.trim().replace('_', "").parse().ok()
}

/// Formats a number like the documents: 10,000.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[test]
fn constants_and_numbers_are_read() {
    for (text, value) in [
        ("10_000", 10_000),
        ("128 * 1024", 131_072),
        ("64 << 20", 67_108_864),
    ] {
        assert_eq!(evaluate(text), Some(value), "{text}");
    }
    assert_eq!(evaluate("Duration::from_millis(250)"), Some(250));
    assert_eq!(evaluate("OTHER + 1"), None);
    assert_eq!(
        [5, 999, 1_000, 1_234_567].map(grouped),
        ["5", "999", "1,000", "1,234,567"]
    );
}
