//! Checks that the documentation of the roles is made from their table.

#![allow(clippy::unwrap_used)] // a test may panic

use std::fmt::Write;

use shared::{
    Subjects,
    permissions::{Role, Subscribe},
};

/// Returns the sections about the roles.
fn documentation() -> String {
    let subjects = Subjects::new("vendue").unwrap();
    let mut text = String::new();
    for role in Role::ALL {
        let may = role.permissions(&subjects, "NAME");
        let quoted = |items: Vec<String>| {
            let items: Vec<String> = items.iter().map(|item| format!("`{item}`")).collect();
            items.join(" ")
        };
        let strings = |list: &[Subscribe]| list.iter().map(ToString::to_string).collect();
        let publish = match may.publish.as_slice() {
            [] => "nothing".to_owned(),
            some => quoted(some.to_vec()),
        };
        let mut rows = vec![
            ("publishes", publish),
            ("subscribes to", quoted(strings(&may.subscribe))),
        ];
        if !may.not_join.is_empty() {
            rows.push(("joins no queue group", quoted(strings(&may.not_join))));
        }
        write!(
            text,
            "### {role}\n\n{}.\n\n| | |\n|---|---|\n",
            role.purpose()
        )
        .unwrap();
        for (what, subjects) in rows {
            writeln!(text, "| {what} | {subjects} |").unwrap();
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_documentation_of_the_roles_is_that_of_the_table() {
    let text = documentation();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/SECURITY.md");
    let page = std::fs::read_to_string(page).unwrap();
    let there = page.contains(text.trim_end());
    assert!(there, "docs/SECURITY.md must hold:\n{text}");
}
