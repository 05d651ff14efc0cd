use super::*;

fn read(text: &str) -> Result<RepConfig, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

#[test]
fn a_name_and_a_size_are_enough() {
    let config = read(r#"{"cell":"a","total":{"memory_mb":1}}"#).unwrap();
    let total = Resources {
        memory_mb: 1,
        ..Resources::default()
    };
    assert_eq!(config, RepConfig::new("a", "default", total.clone()));
    let (cell, cadence) = config.check().unwrap();
    assert_eq!(cell, Cell::new("a", total));
    assert_eq!(cadence.ttl(), seconds::<15>());
}

#[test]
fn operators_attributes_are_in_the_cell() {
    let text = r#"{"cell":"a","zone":"z1","total":{"memory_mb":1},"attributes":
        {"stacks":["x"],"rack":"r1","reserved":true,"traits":{"ssd":true},"zone_number":4}}"#;
    let (cell, _) = read(text).unwrap().check().unwrap();
    assert_eq!(
        (cell.stacks.clone(), cell.rack.clone()),
        (vec!["x".to_owned()], Some("r1".to_owned()))
    );
    assert!(cell.reserved && cell.traits.contains_key("ssd"));
    assert_eq!(
        (cell.zone_number, cell.status.as_str()),
        (Some(4), "running")
    );
}

#[test]
fn what_does_not_exist_is_refused() {
    for extra in [
        r#""intervall":"5s""#,
        r#""attributes":{"rak":"r1"}"#,
        r#""executor":{"kind":"process","user":"x"}"#,
        r#""executor":{"kind":"docker"}"#,
        r#""interval":5"#,
    ] {
        let text = format!(r#"{{"cell":"a","total":{{"memory_mb":1}},{extra}}}"#);
        assert!(read(&text).is_err(), "{extra}");
    }
}

#[test]
fn a_limit_for_nothing_asked_is_a_size_or_a_word() {
    let of = |text: &str| serde_json::from_str::<IfZero>(text).map_err(|_| ());
    assert_eq!(of("\"refuse\""), Ok(IfZero::Refuse));
    assert_eq!(of("\"unlimited\""), Ok(IfZero::Unlimited));
    assert_eq!(of("32"), Ok(IfZero::Limit(32)));
    assert!(of("\"none\"").is_err() && of("-1").is_err());
    assert_eq!(IfZero::Limit(32).limit_mb(0), 32);
    assert_eq!(IfZero::Limit(32).limit_mb(16), 16);
    assert_eq!(IfZero::Unlimited.limit_mb(0), 0);
}

#[test]
fn a_ttl_that_auctioneers_cut_is_warned_of() {
    for (ttl, warned) in [("15s", false), ("1m", false), ("61s", true), ("1h", true)] {
        let text = format!(r#"{{"cell":"a","total":{{"memory_mb":1}},"ttl":"{ttl}"}}"#);
        let config = read(&text).unwrap();
        config.check().unwrap();
        assert_eq!(config.ttl_warning().is_some(), warned, "{ttl}");
    }
}

#[test]
fn variables_of_devices_name_devices_of_the_cell() {
    let gpus = r#""total":{"memory_mb":1,"devices":{"gpu":{"count":2,"each":1}}}"#;
    for (variable, fault) in [
        (r#""X":"all {gpu}""#, None),
        (r#""X":"{fpga}""#, Some("executor.device_env")),
        (r#""":"{gpu}""#, Some("executor.device_env")),
    ] {
        let executor = format!(r#"{{"kind":"process","device_env":{{{variable}}}}}"#);
        let text = format!(r#"{{"cell":"a",{gpus},"executor":{executor}}}"#);
        let checked = read(&text).unwrap().check().map(|_| ());
        let field = checked.err().map(|e| e.field);
        assert_eq!(field.as_deref(), fault, "{variable}");
    }
}

#[test]
fn invalid_configurations_are_rejected() {
    for (field, extra) in [
        ("interval", r#""interval":"8s""#),
        ("ttl", r#""ttl":"1000h""#),
        ("ttl", r#""ttl":"3601s""#),
        ("heartbeat", r#""heartbeat":"0s""#),
        ("zone", r#""zone":"a b""#),
        ("address", "\"address\":\"\""),
        ("address", r#""address":"a b""#),
        (
            "executor.ports",
            r#""executor":{"kind":"process","ports":[9,8]}"#,
        ),
        (
            "executor.users",
            r#""executor":{"kind":"process","users":[70001,70000]}"#,
        ),
        (
            "executor.users",
            r#""executor":{"kind":"process","users":[0,70000]}"#,
        ),
        (
            "executor.users",
            r#""executor":{"kind":"process","users":[65000,66000]}"#,
        ),
        (
            "executor.source_timeout",
            r#""executor":{"kind":"process","source_timeout":"0s"}"#,
        ),
        (
            "executor.source_cache_mb",
            r#""executor":{"kind":"process","source_cache_mb":99999999999}"#,
        ),
        (
            "executor.memory_if_zero",
            r#""executor":{"kind":"process","memory_if_zero":0}"#,
        ),
        (
            "executor.disk_if_zero",
            r#""executor":{"kind":"process","disk_if_zero":0}"#,
        ),
        (
            "executor.max_processes",
            r#""executor":{"kind":"process","max_processes":0}"#,
        ),
        (
            "executor.max_files",
            r#""executor":{"kind":"process","max_files":3}"#,
        ),
    ] {
        let text = format!(r#"{{"cell":"a","total":{{"memory_mb":1}},{extra}}}"#);
        let refused = read(&text).unwrap().check().map(|_| ());
        assert_eq!(refused.map_err(|e| e.field), Err(field.to_owned()));
    }
    for (total, field) in [
        (Resources::new(-1, 0, 1), "total.memory_mb"),
        (Resources::new(0, 0, 1), "total.memory_mb"),
        (Resources::new(1, 0, 0), "total.containers"),
        (Resources::new(1, -1, 1), "total.disk_mb"),
    ] {
        let refused = RepConfig::new("a", "z", total).check().map(|_| ());
        assert_eq!(refused.map_err(|e| e.field), Err(field.to_owned()));
    }
    let no_disk = RepConfig::new("a", "z", Resources::new(1, 0, 1)).check();
    assert!(no_disk.is_ok(), "work may need none");
}
