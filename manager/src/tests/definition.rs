//! What a user may write.

use super::world::app;
use placement::CheckKind;

use crate::{AppDefinition, MAX_DEFINITION, UpdateOrder};

fn error(json: &str) -> (String, String) {
    let error = AppDefinition::read(json.as_bytes()).unwrap_err();
    (error.field.unwrap_or_default(), error.message)
}

/// Returns a valid definition with more fields.
fn with(more: &str) -> String {
    format!(r#"{{"app":"web","memory_mb":1,"disk_mb":1,"run":{{"command":["x"]}}{more}}}"#)
}

#[test]
fn a_start_request_is_an_app() {
    let read = AppDefinition::read(with("").as_bytes()).unwrap();
    assert_eq!((read.app(), read.instances), ("web", 1));
    assert_eq!(read.update.max_in_flight, 1);
    let more = r#","v":1,"instances":7,"crash":{"immediate":0},"health":{"kind":"http","port":80,"path":"/up"},
        "update":{"order":"stop-first","min_healthy":"3s"}"#;
    let read = AppDefinition::read(with(more).as_bytes()).unwrap();
    assert_eq!((read.instances, read.template.instances), (7, 1));
    let health = read.template.health.as_ref().unwrap();
    assert_eq!(health.kind, CheckKind::Http);
    assert_eq!(read.update.order, UpdateOrder::StopFirst);
    let json = serde_json::to_string(&read).unwrap();
    assert_eq!(serde_json::from_str::<AppDefinition>(&json).unwrap(), read);
}

#[test]
fn defaults_are_not_written() {
    let json = serde_json::to_string(&app("A", 2, "")).unwrap();
    assert!(
        !json.contains("crash") && !json.contains("update"),
        "{json}"
    );
}

#[test]
fn errors_name_the_field_and_what_was_expected() {
    for (more, field) in [
        (r#","instnces":3"#, "instnces"),
        (r#","id":"r-1""#, "id"),
        (r#","indices":[0]"#, "indices"),
        (r#","kind":"task""#, "kind"),
        (r#","queue_timeout":"1s""#, "queue_timeout"),
        (r#","instances":0"#, "instances"),
        (r#","crash":{"wait":"0s"}"#, "crash.wait"),
        (r#","crash":{"max_wait":"1s"}"#, "crash.max_wait"),
        (r#","crash":{"immediate":11}"#, "crash.immediate"),
        (r#","health":{"path":"up"}"#, "health.path"),
        (r#","health":{"failures":0}"#, "health.failures"),
        (r#","health":{"interval":"0s"}"#, "health.interval"),
        (r#","update":{"max_in_flight":0}"#, "update.max_in_flight"),
        (r#","update":{"deadline":"365d"}"#, "update.deadline"),
    ] {
        let (found, message) = error(&with(more));
        assert_eq!(found, field, "{message}");
        assert!(message.contains("expected"), "{message}");
    }
    let (found, message) = error(&with(r#","update":{"max_flight":0}"#));
    assert_eq!(found, "update.max_flight", "{message}");
    let (found, _) = error(r#"{"app":"web","memory_mb":1,"disk_mb":1}"#);
    assert_eq!(found, "run");
    // a misspelt field is reported before the one that is missing because of it
    for (from, to, field, missing) in [
        ("memory_mb", "memory", "memory", "memory_mb"),
        // nothing below `run` is quoted
        ("command", "comand", "run.(hidden)", "command"),
        (r#""app""#, r#""crash":{},"ap""#, "ap", "app"),
    ] {
        let (found, message) = error(&with("").replace(from, to));
        assert_eq!(found, field, "{message}");
        assert!(message.contains(missing), "{message}");
    }
    let long = "x".repeat(MAX_DEFINITION);
    assert!(
        error(&with(&format!(r#","owner":"{long}""#)))
            .1
            .contains("bytes")
    );
}

#[test]
fn values_of_the_environment_are_in_no_error() {
    let json = with("").replace(
        r#""command":["x"]"#,
        r#""command":["x"],"env":{"KEY":["hidden"]}"#,
    );
    assert!(!error(&json).1.contains("hidden"));
}
