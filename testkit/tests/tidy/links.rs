//! Checks that the links in documents lead somewhere.

use std::path::Path;

use crate::sources::{Source, all_files, root};

#[test]
fn every_link_between_documents_leads_somewhere() {
    let files = all_files();
    let documents: Vec<&Source> = files.iter().filter(|file| file.is_a("md")).collect();
    assert!(documents.len() >= 6, "only {} documents", documents.len());
    let mut dead = Vec::new();
    for document in documents {
        for link in links(&document.text) {
            if let Some(why) = why_dead(document, link, &files) {
                dead.push(format!("{}: {link}: {why}", document.path));
            }
        }
    }
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

/// Returns the targets of a document's links, except for those in code.
fn links(text: &str) -> Vec<&str> {
    let mut in_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        in_code ^= line.trim_start().starts_with("```");
        let parts = line.split("](").skip(1).filter(|_| !in_code);
        found.extend(parts.filter_map(|rest| Some(rest.split_once(')')?.0)));
    }
    found
}

fn why_dead(document: &Source, link: &str, files: &[Source]) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = if path.is_empty() {
        document.path.clone()
    } else {
        let directory = Path::new(&document.path).parent()?;
        let mut parts: Vec<&str> = directory.iter().filter_map(|part| part.to_str()).collect();
        for part in path
            .split('/')
            .filter(|part| !part.is_empty() && *part != ".")
        {
            if part == ".." {
                parts.pop();
            } else {
                parts.push(part);
            }
        }
        parts.join("/")
    };
    if !root().join(&target).exists() {
        return Some("no such file");
    }
    let text = files
        .iter()
        .find(|file| file.path == target)
        .map(|file| file.text.as_str());
    let mut headings = text
        .unwrap_or_default()
        .lines()
        .filter(|line| line.starts_with('#'));
    let there = heading.is_empty() || headings.any(|line| anchor(line) == heading);
    (!there).then_some("no such heading")
}

/// Returns the anchor of a heading.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text
        .chars()
        .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn links_and_headings_are_read() {
    let text = "[a](docs/A.md#one-two) and [b](B.md)\n```\n[c](C.md)\n```\n";
    assert_eq!(links(text), ["docs/A.md#one-two", "B.md"]);
    assert_eq!(anchor("## One, `two`: 3-4"), "one-two-3-4");
}
