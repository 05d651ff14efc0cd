//! Checks that docs/OPERATIONS.md lists every rule of an app's definition with its default, and every key of the
//! bucket.

#![allow(clippy::unwrap_used)] // a test that cannot go on has failed

use manager::{CrashPolicy, UpdateRules};
use placement::HealthCheck;
use serde_json::{Value, json};

fn page() -> String {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/OPERATIONS.md");
    std::fs::read_to_string(file).unwrap()
}

#[test]
fn every_rule_and_its_default_is_on_the_page() {
    let page = page();
    let defaults = json!({
        "crash": CrashPolicy::default(),
        "health": HealthCheck::default(),
        "update": UpdateRules::default(),
    });
    let mut missing = Vec::new();
    for (section, rules) in defaults.as_object().unwrap() {
        for (field, value) in rules.as_object().unwrap() {
            let value = match value {
                Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            let row = format!("| `{section}.{field}` | {value} |");
            if !page.contains(&row) {
                missing.push(row);
            }
        }
    }
    assert!(missing.is_empty(), "docs/OPERATIONS.md lacks {missing:#?}");
}

#[test]
fn every_key_of_the_bucket_is_on_the_page() {
    use manager::{AppUid, StoredKey};
    let (page, uid) = (page(), AppUid::new(0x3b2c_00a1));
    for key in [
        StoredKey::Meta,
        StoredKey::Lease,
        StoredKey::App("web".into()),
        StoredKey::State(uid),
        StoredKey::Rollout(uid),
        StoredKey::History(uid, 4),
        StoredKey::Gone(uid),
    ] {
        assert!(
            page.contains(&format!("| `{key}` |")),
            "docs/OPERATIONS.md lacks {key}"
        );
    }
}
