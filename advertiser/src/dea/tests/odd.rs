//! Odd bodies cost no more than what is odd in them.

use serde_json::{Value, json};

use super::{super::*, advertisement, bodies::START};

fn read<T: DeaBody>(body: &Value) -> DeaRead<T> {
    T::read(body.to_string().as_bytes()).unwrap()
}

fn refused<T: DeaBody + std::fmt::Debug>(body: &Value) -> String {
    T::read(body.to_string().as_bytes())
        .unwrap_err()
        .to_string()
}

/// Returns an advertisement with one field replaced or removed.
fn with(key: &str, value: Option<Value>) -> DeaRead<DeaAdvertisement> {
    let mut body = advertisement("d1", "z1", 512, &json!({"a": 1}));
    match value {
        Some(value) => body[key] = value,
        None => _ = body.as_object_mut().unwrap().remove(key),
    }
    read(&body)
}

#[test]
fn zones_in_every_form() {
    let key = "placement_properties";
    for (value, zone, odd) in [
        (None, "default", 0),
        (Some(json!({})), "default", 0),
        (Some(json!({"zone": "default"})), "default", 0),
        (Some(json!({"zone": "z9", "rack": 3})), "z9", 0),
        (Some(json!(null)), "default", 1),
        (Some(json!({"zone": null})), "(null)", 1),
        (Some(json!(["z1"])), "default", 1),
    ] {
        let read = with(key, value.clone());
        assert_eq!((read.body.zone(), read.odd.count), (zone, odd), "{value:?}");
    }
}

#[test]
fn amounts_in_every_form() {
    let key = "available_memory";
    for (value, memory, odd) in [
        (Some(json!(512.75)), 512, 0),
        (Some(json!(-0.5)), -1, 0),
        (Some(json!(0)), 0, 0),
        (Some(json!(-64)), -64, 0),
        (Some(json!(1e300)), (1 << 31) - 1, 0),
        (Some(json!("256")), 256, 1),
        (Some(json!("much")), 0, 1),
        (Some(json!(null)), 0, 1),
        (None, 0, 1),
    ] {
        let read = with(key, value.clone());
        let found = (read.body.available().memory_mb, read.odd.count);
        assert_eq!(found, (memory, odd), "{value:?}");
    }
    for value in [None, Some(json!(null))] {
        let read = with("available_disk", value);
        assert_eq!((read.body.available().disk_mb, read.odd.count), (None, 0));
    }
}

#[test]
fn stacks_in_every_form() {
    let offers = |value: Option<Value>| {
        let read = with("stacks", value);
        let offers = |stack| read.body.stacks.offers(stack);
        (offers("linux"), offers("cflinuxfs2"), read.odd.count)
    };
    assert_eq!(offers(Some(json!(["cflinuxfs2"]))), (false, true, 0));
    assert_eq!(offers(Some(json!(["*", "CFLINUXFS2"]))), (false, false, 0));
    assert_eq!(offers(Some(json!("cflinuxfs2"))), (true, true, 1));
    assert_eq!(offers(Some(json!([7, "cflinuxfs2"]))), (false, true, 1));
    assert_eq!(offers(Some(json!([]))), (false, false, 0));
    assert_eq!(offers(None), (false, false, 1));
}

#[test]
fn counts_in_every_form() {
    let counts = |value: Option<Value>| {
        let read = with("app_id_to_count", value);
        (
            read.body.app_id_to_count.into_iter().collect::<Vec<_>>(),
            read.odd.count,
        )
    };
    let a = |n| vec![("a".to_owned(), n)];
    assert_eq!(counts(None), (vec![], 1));
    assert_eq!(counts(Some(json!(null))), (vec![], 1));
    assert_eq!(counts(Some(json!({}))), (vec![], 0));
    assert_eq!(counts(Some(json!({"a": 2.0, "b": null}))), (a(2), 1));
    assert_eq!(
        counts(Some(json!({"a": 2, "b": -1, "c": [], "": 1, "d.>": 1}))),
        (a(2), 5)
    );
}

#[test]
fn what_is_shown_of_a_key_moves_no_cursor() {
    let read = with("app_id_to_count", Some(json!({"\u{1b}[2J": 1})));
    assert_eq!(read.odd.first[0].field, "app_id_to_count. [2J");
}

#[test]
fn ids_of_every_generation() {
    for id in [
        json!("3-7c1e0b9a44d24f0e9d3a5b6c7d8e9f01"),
        json!("0d9e8f7a-6b5c-4d3e-8f2a-1b0c9d8e7f6a"),
        json!("7c1e0b9a44d24f0e9d3a5b6c7d8e9f01"),
        json!(17),
    ] {
        let body = advertisement("", "z", 1, &json!({}));
        let mut body = body.clone();
        body["id"] = id.clone();
        let read: DeaRead<DeaAdvertisement> = read(&body);
        assert_eq!(
            read.body.id,
            id.as_str().map_or(id.to_string(), str::to_owned)
        );
    }
    for id in [
        json!("a.b"),
        json!(">"),
        json!(""),
        json!(null),
        json!({}),
        json!("x".repeat(129)),
    ] {
        let body = json!({"id": id, "stacks": []});
        let why = refused::<DeaAdvertisement>(&body);
        assert!(why.starts_with("id: ") && why.ends_with("0-9 _ -"), "{why}");
    }
}

#[test]
fn what_is_no_object_is_malformed_and_its_text_is_not_repeated() {
    for body in [
        "",
        "hush",
        "[\"hush\"]",
        "\"hush\"",
        "{\"id\":\"hush\"",
        "\u{0}",
    ] {
        let malformed = DeaHello::read(body.as_bytes()).unwrap_err();
        let why = malformed.to_string();
        assert!(why.starts_with("body: ") && !why.contains("hush"), "{why}");
        assert_eq!(malformed.sender, None);
    }
    let deep = "[".repeat(100_000);
    assert!(DeaHello::read(deep.as_bytes()).is_err());
}

#[test]
fn a_start_is_refused_where_a_dea_drops_it() {
    let start: Value = serde_json::from_str(START).unwrap();
    for (key, value) in [
        ("cc_partition", json!(null)),
        ("limits", json!({"mem": 512, "disk": 1024})),
        ("limits", json!({"mem": "hush", "disk": 1024, "fds": 1})),
        ("limits", json!({"mem": 1.5, "disk": 1024, "fds": 1})),
        ("index", json!(-1)),
        ("droplet", json!(null)),
    ] {
        let mut body = start.clone();
        body[key] = value;
        let why = refused::<DeaStart>(&body);
        assert!(why.starts_with(key) && !why.contains("hush"), "{why}");
    }
    let mut body = start;
    body["droplet"] = json!(4711);
    body["flapping"] = json!("hush");
    let read: DeaRead<DeaStart> = read(&body);
    assert_eq!((read.body.droplet.as_str(), read.odd.count), ("4711", 0));
}

#[test]
fn a_filter_that_cannot_be_read_never_means_more() {
    for (key, value) in [
        ("states", json!(["NOSUCH"])),
        ("states", json!("RUNNING")),
        ("indices", json!([0, "1"])),
        ("indices", json!([-1])),
        ("instances", json!([null])),
        ("version", json!([])),
    ] {
        let mut body = json!({"droplet": "a"});
        body[key] = value;
        let why = refused::<DeaFilter>(&body);
        assert!(why.starts_with(key), "{why}");
    }
}

#[test]
fn filters_are_combined_and_empty_ones_do_not_filter() {
    let instance: DeaRead<DeaInstance> = read(
        &json!({"droplet": "a", "version": "v1", "instance": "i1", "index": 2,
        "state": "RUNNING", "state_timestamp": 1}),
    );
    for (means, filter) in [
        (true, json!({"droplet": "a"})),
        (
            true,
            json!({"droplet": "a", "instances": [], "indices": [], "states": null}),
        ),
        (
            true,
            json!({"droplet": "a", "instance_ids": ["i1"], "states": ["running", "Crashed"]}),
        ),
        (
            true,
            json!({"droplet": "a", "version": "v1", "indices": [1, 2]}),
        ),
        (false, json!({"droplet": "b"})),
        (false, json!({"droplet": "a", "version": "v2"})),
        (
            false,
            json!({"droplet": "a", "indices": [2], "states": ["CRASHED"]}),
        ),
        (
            false,
            json!({"droplet": "a", "instances": ["i2"], "instance_ids": ["i3"]}),
        ),
    ] {
        let read: DeaRead<DeaFilter> = read(&filter);
        assert_eq!(read.body.matches(&instance.body), means, "{filter}");
    }
}

#[test]
fn a_path_asks_for_files_even_when_it_is_null() {
    let asks = |body: Value| read::<DeaFind>(&body).body.path.is_some();
    assert!(asks(json!({"droplet": "a", "path": null})));
    assert!(asks(json!({"droplet": "a", "path": "logs"})));
    assert!(!asks(json!({"droplet": "a"})));
}

#[test]
fn a_heartbeat_loses_only_the_instances_that_cannot_be_read() {
    let good = json!({"droplet": 4711, "version": "v", "instance": "i", "index": 0, "state": "EVACUATING",
                      "state_timestamp": 1_450_000_000, "prod": true});
    let bad = [
        json!(null),
        json!({}),
        json!({"droplet": "a", "index": 0, "state": "GONE"}),
    ];
    let body = json!({"dea": "d", "droplets": [bad[0], good, bad[1], bad[2]], "prod": false});
    let read: DeaRead<DeaHeartbeat> = read(&body);
    assert_eq!((read.body.droplets.len(), read.odd.count), (1, 3));
    assert_eq!(read.body.droplets[0].droplet, "4711");
    let many = vec![json!(0); 1_000];
    let read: DeaRead<DeaHeartbeat> = self::read(&json!({"dea": "d", "droplets": many}));
    assert_eq!((read.odd.count, read.odd.first.len()), (1_000, MAX_ODD));
}

#[test]
fn refusals_are_told_from_crashes() {
    let exited = |description: &str, status: i64, reason: &str| {
        let body = json!({"droplet": "a", "index": 0, "reason": reason, "exit_status": status,
                          "exit_description": description});
        read::<DeaExited>(&body).body
    };
    assert!(exited("Not enough memory resource available.", -1, "CRASHED").is_refusal());
    assert!(exited("Not enough disk resource available.", -1, "crashed").is_refusal());
    assert!(!exited("Not enough memory resource available.", 1, "CRASHED").is_refusal());
    assert!(!exited("out of memory", -1, "CRASHED").is_refusal());
    assert!(!exited("", -1, "DEA_EVACUATION").is_crash());
}
