use placement::{Resources, Trait};
use serde_json::json;

use super::*;
use crate::config::{ExecutorKind, ProcessConfig};

fn config() -> RepConfig {
    let mut config = RepConfig::new("a", "z1", Resources::new(100, 100, 10));
    config.attributes.rack = Some("r0".into());
    config
        .attributes
        .traits
        .insert("ssd".into(), Trait::Flag(false));
    let script = Some("/etc/staging.sh".into());
    config.executor = ExecutorKind::Process(ProcessConfig {
        staging_script: script,
        ..ProcessConfig::default()
    });
    config
}

#[test]
fn a_cell_without_a_script_for_it_never_says_that_it_stages() {
    let mut config = config();
    let says =
        |config: &RepConfig, set: Changes| changed_cell(config, &set).map(|cell| cell.staging);
    let set = |value: bool| Changes::from([("staging".to_owned(), json!(value))]);
    assert_eq!(says(&config, Changes::new()), Ok(true));
    assert_eq!(says(&config, set(false)), Ok(false));
    config.executor = ExecutorKind::Process(ProcessConfig::default());
    assert_eq!(says(&config, Changes::new()), Ok(false));
    assert_eq!(says(&config, set(true)).unwrap_err().field, "staging");
    config.attributes.staging = true;
    assert_eq!(config.check().unwrap_err().field, "attributes.staging");
}

fn set(pairs: &[(&str, Value)]) -> Result<Cell, Invalid> {
    let set = pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), value.clone()));
    changed_cell(&config(), &merge(Changes::new(), set.collect())?)
}

#[test]
fn nothing_changed_is_the_configured_cell() {
    let (configured, _) = config().check().unwrap();
    assert_eq!(set(&[]).unwrap(), configured);
}

#[test]
fn every_attribute_can_be_changed() {
    let all = [
        ("zone", json!("z9")),
        ("zone_number", json!(9)),
        ("index", json!(7)),
        ("stacks", json!(["x"])),
        ("droplets", json!(true)),
        ("droplets_only", json!(true)),
        ("dea", json!("d1")),
        ("staging", json!(true)),
        ("placement_tags", json!(["p"])),
        ("optional_placement_tags", json!(["o"])),
        ("volume_drivers", json!(["nfs"])),
        ("volumes", json!(["v"])),
        ("cached_blobs", json!(["b"])),
        ("status", json!("maintenance")),
        ("reserved", json!(true)),
        ("control_plane", json!(true)),
        ("networks.external", json!("up")),
        ("traits.ssd", json!(true)),
        (
            "platform",
            json!({"version":"7.0","stamp":"20260301T000000Z"}),
        ),
        ("next_reboot", json!("2026-12-01")),
        ("last_boot", json!("2026-01-01T04:00:00Z")),
        ("host", json!("h1")),
        ("rack", json!("r1")),
        ("hardware_priority", json!(-3)),
        ("reboot_batch", json!("third")),
        ("overcommit.memory", json!(1.5)),
    ];
    assert_eq!(all.len(), settable().count());
    let cell = serde_json::to_value(set(&all).unwrap()).unwrap();
    for (key, value) in all {
        let path = format!("/{}", key.replace('.', "/"));
        assert_eq!(cell.pointer(&path), Some(&value), "{key}");
    }
}

#[test]
fn a_platform_is_set_as_a_whole_or_in_both_its_parts_at_once() {
    let stamp = ("platform.stamp", json!("20260301T000000Z"));
    let error = set(std::slice::from_ref(&stamp)).unwrap_err().to_string();
    assert!(error.contains("expected a version and a stamp"), "{error}");
    let cell = set(&[stamp, ("platform.version", json!("7.0"))]).unwrap();
    assert_eq!(cell.platform.as_ref().unwrap().version, "7.0");
}

#[test]
fn changes_are_taken_back_one_by_one_or_with_their_table() {
    let one = |key: &str, value: Value| Changes::from([(key.to_owned(), value)]);
    let mut changed = merge(Changes::new(), one("traits.fast", json!(true))).unwrap();
    changed = merge(changed, one("rack", json!("r1"))).unwrap();
    changed = merge(changed, one("rack", Value::Null)).unwrap();
    let cell = changed_cell(&config(), &changed).unwrap();
    assert_eq!(cell.rack.as_deref(), Some("r0"), "as configured again");
    assert_eq!(cell.traits.len(), 2, "a part leaves the others as they are");
    changed = merge(changed, one("traits", json!({}))).unwrap();
    assert!(changed_cell(&config(), &changed).unwrap().traits.is_empty());
    changed = merge(changed, one("traits", Value::Null)).unwrap();
    assert!(changed.is_empty());
}

#[test]
fn invalid_attributes_are_rejected_with_field_value_and_expectation() {
    for (key, value, said) in [
        (
            "rak",
            json!("r1"),
            &["rak", "one of", "did you mean \"rack\"?"][..],
        ),
        ("rack.x", json!("r1"), &["rack.x", "a string"]),
        ("rack", json!(3), &["rack: 3", "a string"]),
        (
            "reserved",
            json!("yes"),
            &["reserved: \"yes\"", "true or false"],
        ),
        ("index", json!(-1), &["index: -1", "an integer"]),
        (
            "stacks",
            json!("x"),
            &["stacks: \"x\"", "a list of strings"],
        ),
        (
            "next_reboot",
            json!("soon"),
            &["next_reboot", "soon", "2026-12-01"],
        ),
        (
            "next_reboot",
            json!("2026-13-01"),
            &["next_reboot", "2026-13-01"],
        ),
        ("zone", json!("a b"), &["zone", "a b", "A-Z"]),
        ("zone", json!(1), &["zone: 1", "a string"]),
        ("traits.ssd", json!(1), &["traits.ssd: 1", "true, false"]),
        ("networks.x", json!(true), &["networks.x: true", "up"]),
        (
            "overcommit.memory",
            json!(0),
            &["overcommit.memory: 0", "above 0"],
        ),
        ("platform.version", json!("7.0"), &["platform", "stamp"]),
        (
            "platform",
            json!({"version":"7","stamp":"now"}),
            &["platform.stamp", "now", "20260301T000000Z"],
        ),
        ("memory_mb", json!(1), &["memory_mb", "one of zone"]),
    ] {
        let error = set(&[(key, value.clone())]).unwrap_err().to_string();
        assert!(
            said.iter().all(|text| error.contains(text)),
            "{key}={value}: {error}"
        );
    }
    let long = json!("x".repeat(5_000));
    let error = set(&[("rack", long)]).unwrap_err().to_string();
    assert!(error.contains("4096") && error.len() < 200, "{error}");
    let many: Changes = (0..300)
        .map(|i| (format!("traits.t{i}"), json!(true)))
        .collect();
    assert!(merge(Changes::new(), many).is_err());
}

#[test]
fn values_as_people_type_them() {
    for (key, text, value) in [
        ("rack", "1", json!("1")),
        ("next_reboot", "2026-12-01", json!("2026-12-01")),
        ("reserved", "true", json!(true)),
        ("index", "3", json!(3)),
        ("placement_tags", "a,b", json!(["a", "b"])),
        ("placement_tags", "", json!([])),
        ("stacks", r#"["a", "b"]"#, json!(["a", "b"])),
        ("traits.disk", r#"["a"]"#, json!(["a"])),
        ("traits.ssd", "true", json!(true)),
        ("traits.disk", "fast", json!("fast")),
        ("traits.disk", "a,b", json!(["a", "b"])),
        ("networks.external", "up", json!("up")),
        ("overcommit.cpu", "1.5", json!(1.5)),
        (
            "platform.stamp",
            "20260301T000000Z",
            json!("20260301T000000Z"),
        ),
        ("platform", r#"{"version":"7"}"#, json!({"version":"7"})),
        ("rack", "null", Value::Null),
    ] {
        assert_eq!(attribute_value(key, text), Ok(value), "{key}={text}");
    }
    for (key, text) in [
        ("rak", "x"),
        ("reserved", "yes"),
        ("index", "x"),
        ("traits", "ssd"),
        ("stacks", r#"["a","b""#),
        ("stacks", r#""a","b""#),
        ("stacks", "[1]"),
        ("traits.disk", r#"["a""#),
    ] {
        assert!(attribute_value(key, text).is_err(), "{key}={text}");
    }
}

#[test]
fn a_part_has_a_name_where_the_attribute_has_parts() {
    let name = |bytes: usize| format!("traits.{}", "x".repeat(bytes));
    for (key, taken) in [
        (name(1), true),
        (name(128), true),
        (name(129), false),
        (name(0), false),
        ("rack.x".to_owned(), false),
        ("stacks.x".to_owned(), false),
    ] {
        assert_eq!(attribute_value(&key, "null").is_ok(), taken, "{key}");
        let set = Changes::from([(key.clone(), Value::Null)]);
        assert_eq!(merge(Changes::new(), set).is_ok(), taken, "{key}");
    }
}

#[test]
fn changes_are_bounded_in_number_and_length() {
    let many = |count: usize| (0..count).map(|n| (format!("traits.t{n}"), json!(true)));
    let merged = merge(Changes::new(), many(MAX_CHANGED).collect()).unwrap();
    assert_eq!(merged.len(), MAX_CHANGED);
    let error = merge(merged, many(MAX_CHANGED + 1).collect()).unwrap_err();
    assert_eq!((error.field.as_str(), error.value.as_str()), ("set", "257"));
    // two of the bytes are quotes
    let rack = |bytes: usize| Changes::from([("rack".to_owned(), json!("x".repeat(bytes)))]);
    assert!(merge(Changes::new(), rack(MAX_TEXT - 2)).is_ok());
    let error = merge(Changes::new(), rack(MAX_TEXT - 1)).unwrap_err();
    assert_eq!(error.field, "rack");
}
