//! The reported differences.

use super::world::app;
use crate::{AppDefinition, Differences};

fn names(differences: &Differences) -> Vec<&str> {
    let fields = differences.changes.iter();
    fields.map(|change| change.field.as_str()).collect()
}

#[test]
fn only_what_differs_is_listed() {
    let before = app("A", 2, "");
    let after = app("A", 3, r#","stack":"docker","update":{"min_healthy":"3s"}"#);
    let found = Differences::of_definitions(&before, &after);
    let expected = [
        "instances",
        "stack",
        "update.auto_revert",
        "update.deadline",
        "update.max_in_flight",
        "update.min_healthy",
        "update.order",
    ];
    assert_eq!(names(&found), expected);
    assert_eq!(found.changes[0].before, Some(2.into()));
    let same = Differences::of_definitions(&after, &after);
    assert_eq!(same, Differences::default());
}

#[test]
fn values_of_the_environment_are_hidden() {
    let with = |env: &str| {
        let json = format!(
            r#"{{"app":"A","memory_mb":1,"disk_mb":1,"run":{{"command":["x"],"env":{env}}}}}"#
        );
        AppDefinition::read(json.as_bytes()).unwrap()
    };
    let before = with(r#"{"A":"s3cret","B":"1"}"#);
    let after = with(r#"{"A":"0ther","B":"1"}"#);
    let found = Differences::of_definitions(&before, &after);
    assert_eq!(names(&found), ["run.env.A"]);
    let text = format!("{found:?} {:?}", after.shown());
    assert!(
        !text.contains("s3cret") && !text.contains("0ther"),
        "{text}"
    );
    let written = serde_json::to_vec(&after.written()).unwrap();
    assert_eq!(AppDefinition::read(&written).unwrap(), after);
    // without the values it cannot be put
    let shown = serde_json::to_vec(&after.shown()).unwrap();
    assert!(AppDefinition::read(&shown).is_err());
}

#[test]
fn credentials_of_a_source_are_hidden() {
    let with = |key: &str| {
        let url = format!("https://me:s3cret@host/web.tar?key={key}");
        let sum = "0f".repeat(32);
        let json = format!(
            r#"{{"app":"A","memory_mb":1,"disk_mb":1,"run":{{"command":["x"],"source":{{"url":"{url}","sha256":"{sum}"}}}}}}"#
        );
        AppDefinition::read(json.as_bytes()).unwrap()
    };
    let (before, after) = (with("s3cret1"), with("s3cret2"));
    let found = Differences::of_definitions(&before, &after);
    assert_eq!(names(&found), ["run.source.url"]);
    let text = format!("{found:?} {:?} {after:?}", after.shown());
    assert!(
        text.contains("https://host/web.tar") && !text.contains("s3cret"),
        "{text}"
    );
    let written = serde_json::to_vec(&after.written()).unwrap();
    assert_eq!(AppDefinition::read(&written).unwrap(), after);
}

#[test]
fn long_values_and_many_differences_are_cut() {
    let variables: Vec<String> = (0..150).map(|n| format!(r#""k{n}":"v""#)).collect();
    let owner = "x".repeat(200);
    let json = format!(
        r#"{{"app":"A","memory_mb":1,"disk_mb":1,"owner":"{owner}","run":{{"command":["{}"],"env":{{{}}}}}}}"#,
        "x".repeat(10_000),
        variables.join(",")
    );
    let after = AppDefinition::read(json.as_bytes()).unwrap();
    let found = Differences::of_definitions(&app("A", 1, ""), &after);
    assert!(found.more && found.changes.len() == 100);
    let bytes = serde_json::to_vec(&found.changes).unwrap().len();
    assert!(bytes < 20_000, "{bytes}");
}
