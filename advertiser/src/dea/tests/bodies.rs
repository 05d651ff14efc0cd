//! Every body is read and written key for key and type for type.

use std::fmt::Debug;

use proptest::prelude::*;
use serde::Serialize;
use serde_json::Value;

use super::super::*;

const ADVERTISE: &str = r#"{"id":"3-7c1e0b9a44d24f0e9d3a5b6c7d8e9f01","stacks":["cflinuxfs2"],"available_memory":11264,
 "available_disk":40960,"app_id_to_count":{"5d1f7a52-6c7e-4b0f-9d8e-0a1b2c3d4e5f":2,"0b9e6d2c-1f3a-4c5b-8d7e-6f5a4b3c2d1e":1},
 "placement_properties":{"zone":"z1"}}"#;
const ADVERTISE_WITH_URL: &str = r#"{"id":"d1","stacks":["cflinuxfs2","lucid64"],"available_memory":-64.5,"available_disk":1.0,
 "app_id_to_count":{},"placement_properties":{"zone":"default"},"url":"https://dea-3.service.cf.internal:8443"}"#;
const STAGING_ADVERTISE: &str =
    r#"{"id":"3-7c1e","stacks":["cflinuxfs2"],"available_memory":11264,"available_disk":40960}"#;
const SHUTDOWN: &str =
    r#"{"id":"3-7c1e","ip":"10.0.16.9","version":"0.0.1","app_id_to_count":{"5d1f7a52":2}}"#;
const HELLO: &str = r#"{"id":"3-7c1e","ip":"10.0.16.9","version":"0.0.1"}"#;
const HELLO_WITH_PORT: &str = r#"{"id":"3-7c1e","ip":"10.0.16.9","version":"0.0.1","port":12345}"#;
const STATUS: &str = r#"{"id":"3-7c1e","ip":"10.0.16.9","version":"0.0.1","max_memory":16384,"reserved_memory":5120,
 "used_memory":2210,"num_clients":null}"#;
const DISCOVER: &str = r#"{"droplet":"4711","limits":{"mem":256,"disk":2048,"fds":256},"name":"orders","runtime":"ruby19",
 "prod":false,"sha":"2fd4e1c67a2d28fced849ee1bb76e7391b93eb12"}"#;
pub(super) const START: &str = r#"{"droplet":"5d1f7a52-6c7e-4b0f-9d8e-0a1b2c3d4e5f","name":"orders","stack":"cflinuxfs2","uris":["orders.example.test"],
 "prod":false,"sha1":"2fd4e1c67a2d28fced849ee1bb76e7391b93eb12","executableFile":"deprecated",
 "executableUri":"https://staging_user:hush@api.example.test/staging/droplets/5d1f7a52-6c7e-4b0f-9d8e-0a1b2c3d4e5f/download",
 "version":"7b3f1c9e-1111-4222-8333-444455556666",
 "services":[{"credentials":{"uri":"sql://u:hush@10.0.8.4:3306/orders"},"syslog_drain_url":null,"volume_mounts":[],
   "label":"p-sql","provider":null,"plan":"small","name":"orders-db","tags":["relational"]}],
 "limits":{"mem":512,"disk":1024,"fds":16384},"env":["LANG=C.UTF-8","PASSWORD=hush","CF_PROCESS_TYPE=web"],
 "cc_partition":"default","console":false,"debug":null,"start_command":null,"health_check_timeout":null,
 "vcap_application":{"limits":{"mem":512,"disk":1024,"fds":16384},"application_id":"5d1f7a52-6c7e-4b0f-9d8e-0a1b2c3d4e5f",
   "application_version":"7b3f1c9e-1111-4222-8333-444455556666","application_name":"orders","application_uris":["orders.example.test"],
   "version":"7b3f1c9e-1111-4222-8333-444455556666","name":"orders","space_name":"prod","space_id":"aa11bb22-0000-4000-8000-000000000007",
   "uris":["orders.example.test"],"users":null},
 "index":2,"egress_network_rules":[{"protocol":"tcp","ports":"443","destination":"0.0.0.0/0"}]}"#;
const STOPS: [&str; 4] = [
    r#"{"droplet":"5d1f7a52"}"#,
    r#"{"droplet":"5d1f7a52","version":"7b3f1c9e","indices":[3,4]}"#,
    r#"{"droplet":"5d1f7a52","instances":["c0ffee00aa11bb22cc33dd44ee55ff66"]}"#,
    r#"{"droplet":"5d1f7a52","states":["RUNNING","CRASHED"]}"#,
];
const UPDATE: &str = r#"{"droplet":"5d1f7a52","uris":["orders.example.test","shop.example.test"],"version":"7b3f1c9e"}"#;
const FIND: &str = r#"{"droplet":"5d1f7a52","version":"7b3f1c9e","states":["RUNNING"],"include_stats":true,"path":"logs"}"#;
const FOUND: &str = r#"{"dea":"3-7c1e","droplet":"5d1f7a52","version":"7b3f1c9e","instance":"c0ffee","index":2,"state":"RUNNING",
 "state_timestamp":1450000000.25,"staged":"/c0ffee",
 "file_uri_v2":"https://3-7c1e.example.test/instance_paths/c0ffee?hmac=hush&path=logs&timestamp=1450000100",
 "stats":{"name":"orders","uris":["orders.example.test"],"host":"10.0.16.9","port":61003,"uptime":100,
   "mem_quota":536870912,"disk_quota":1073741824,"fds_quota":16384,
   "usage":{"time":"2015-12-13 09:48:20 +0000","cpu":0.013,"mem":73400320,"disk":41943040}}}"#;
const HEARTBEAT: &str = r#"{"droplets":[{"cc_partition":"default","droplet":"5d1f7a52","version":"7b3f1c9e","instance":"c0ffee",
 "index":2,"state":"RUNNING","state_timestamp":1450000000.25}],"dea":"3-7c1e"}"#;
const EMPTY_HEARTBEAT: &str = r#"{"droplets":[],"dea":"3-7c1e"}"#;
const EXITED: &str = r#"{"cc_partition":"default","droplet":"5d1f7a52","version":"7b3f1c9e","instance":"c0ffee","index":2,
 "reason":"CRASHED","exit_status":137,"exit_description":"out of memory","crash_timestamp":1450000123}"#;
const ROUTES: [&str; 2] = [
    r#"{"dea":"3-7c1e","app":"5d1f7a52","uris":["orders.example.test"],"host":"10.0.16.9","port":61003,
        "tags":{"component":"dea-3"},"private_instance_id":"0a1b2c3d"}"#,
    r#"{"host":"10.0.16.9","port":5678,"uris":["3-7c1e.example.test"],"tags":{"component":"directory-server-3"}}"#,
];
const MISSING: &str =
    r#"{"message_id":"f2d5c0aa","droplet":"5d1f7a52","version":"7b3f1c9e","instance_index":2}"#;
const SURPLUS: &str = r#"{"message_id":"f2d5c0aa","droplet":"5d1f7a52","version":"7b3f1c9e","instance_guid":"c0ffee",
 "instance_index":2,"is_duplicate":false}"#;
const STAGING_BEGUN: &str =
    r#"{"task_id":"t1","task_streaming_log_url":"https://hush.example.test/log","error":null}"#;
const STAGED: &str = r#"{"task_id":"t1","detected_buildpack":"Ruby","buildpack_key":"k","droplet_sha1":"2fd4",
 "detected_start_command":"ruby hush.rb","procfile":{"web":"ruby hush.rb"}}"#;
const STAGED_IN_2013: &str = r#"{"task_id":"t1","detected_buildpack":"Ruby","buildpack_key":null,"droplet_sha1":null,
 "detected_start_command":null,"procfile":null,"task_log":"hush","error":"Error staging: no",
 "error_info":{"type":"NoAppDetectedError","message":"no"}}"#;
const STAGING_FAILED: &str = r#"{"task_id":"t1","error":"Error staging: task stopped"}"#;
const STAGING_STOP: &str = r#"{"app_id":"5d1f7a52"}"#;

pub(super) fn staging_start() -> String {
    format!(
        r#"{{"app_id":"5d1f7a52","stack":"cflinuxfs2","task_id":"t1",
        "properties":{{"services":[],"resources":{{"memory":1024,"disk":4096,"fds":16384}},"environment":["A=hush"],"meta":{{}}}},
        "download_uri":"https://u:hush@api.example.test/a","upload_uri":"https://u:hush@api.example.test/b",
        "buildpack_cache_download_uri":null,"buildpack_cache_upload_uri":"https://u:hush@api.example.test/c",
        "start_message":{START},"admin_buildpacks":[{{"url":"https://u:hush@api.example.test/d","key":"k"}}],
        "egress_network_rules":[],"accepts_http":true}}"#
    )
}

/// Checks that a body is read without anything odd and written as it was, and that its debug output contains no secret.
#[track_caller]
fn round<T: DeaBody + Serialize + Debug>(body: &str) -> T {
    let read = T::read(body.as_bytes()).unwrap();
    assert_eq!(read.odd, DeaOddities::default(), "{body}");
    let golden: Value = serde_json::from_str(body).unwrap();
    assert_eq!(serde_json::to_value(&read.body).unwrap(), golden);
    let shown = format!("{read:?}");
    assert!(!shown.contains("hush"), "{shown}");
    read.body
}

#[test]
fn advertisements() {
    let read: DeaAdvertisement = round(ADVERTISE);
    assert_eq!(
        (read.zone(), read.stacks.offers("cflinuxfs2")),
        ("z1", true)
    );
    assert_eq!(read.count_of("5d1f7a52-6c7e-4b0f-9d8e-0a1b2c3d4e5f"), 2);
    let read: DeaAdvertisement = round(ADVERTISE_WITH_URL);
    let available = read.available();
    assert_eq!((available.memory_mb, available.disk_mb), (-65, Some(1)));
    round::<DeaStagingAdvertisement>(STAGING_ADVERTISE);
}

#[test]
fn what_deas_say_of_themselves() {
    round::<DeaShutdown>(SHUTDOWN);
    round::<DeaHello>(HELLO);
    round::<DeaHello>(HELLO_WITH_PORT);
    round::<DeaStatus>(STATUS);
    round::<DeaDiscover>(DISCOVER);
}

#[test]
fn starts_and_stops() {
    let start: DeaStart = round(START);
    assert_eq!((start.index, start.limits.mem), (2, 512));
    for stop in STOPS {
        round::<DeaFilter>(stop);
    }
    round::<DeaUpdate>(UPDATE);
}

#[test]
fn questions_heartbeats_and_ends() {
    round::<DeaFind>(FIND);
    round::<DeaFound>(FOUND);
    round::<DeaHeartbeat>(HEARTBEAT);
    round::<DeaHeartbeat>(EMPTY_HEARTBEAT);
    let exited: DeaExited = round(EXITED);
    assert!(exited.is_crash() && !exited.is_refusal());
}

#[test]
fn staging_messages() {
    round::<DeaStagingStart>(&staging_start());
    round::<DeaStagingBegun>(STAGING_BEGUN);
    round::<DeaStaged>(STAGED);
    round::<DeaStaged>(STAGED_IN_2013);
    round::<DeaStagingFailed>(STAGING_FAILED);
    round::<DeaStagingStop>(STAGING_STOP);
}

#[test]
fn what_routers_and_health_managers_say() {
    for route in ROUTES {
        round::<DeaRoute>(route);
    }
    round::<DeaMissing>(MISSING);
    round::<DeaSurplus>(SURPLUS);
}

#[test]
fn the_emptiest_dea_answers_first() {
    let delays = [
        (0, 0, 8192),
        (2, 0, 8192),
        (0, 4096, 8192),
        (9, 9999, 1),
        (0, 0, 0),
    ];
    let delays = delays.map(|(n, used, all)| DeaDiscover::delay_ms(n, used, all));
    assert_eq!(delays, [0, 20, 50, 250, 0]);
}

/// Reads bytes as every kind of body.
fn read_all(body: &[u8]) {
    fn read<T: DeaBody + Serialize + Debug>(body: &[u8]) {
        if let Ok(read) = T::read(body) {
            let _ = format!("{read:?}");
            let written = serde_json::to_vec(&read.body).unwrap();
            assert!(T::read(&written).is_ok(), "what was written is read");
            assert!(read.odd.first.len() <= MAX_ODD);
        }
    }
    read::<DeaAdvertisement>(body);
    read::<DeaStagingAdvertisement>(body);
    read::<DeaShutdown>(body);
    read::<DeaHello>(body);
    read::<DeaStatus>(body);
    read::<DeaDiscover>(body);
    read::<DeaStart>(body);
    read::<DeaFilter>(body);
    read::<DeaUpdate>(body);
    read::<DeaFind>(body);
    read::<DeaFound>(body);
    read::<DeaHeartbeat>(body);
    read::<DeaExited>(body);
    read::<DeaStagingStart>(body);
    read::<DeaStagingBegun>(body);
    read::<DeaStaged>(body);
    read::<DeaStagingStop>(body);
    read::<DeaRoute>(body);
    read::<DeaMissing>(body);
    read::<DeaSurplus>(body);
}

fn some_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zA-Z0-9._*\\-]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

const GOLDEN: [&str; 10] = [
    ADVERTISE, STATUS, START, STOPS[1], FIND, FOUND, HEARTBEAT, EXITED, STAGED, SURPLUS,
];

proptest! {
    #[test]
    fn no_bytes_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        read_all(&body);
    }

    #[test]
    fn no_value_in_place_of_another_panics(
        golden in prop::sample::select(&GOLDEN[..]),
        key in any::<prop::sample::Index>(),
        value in some_value(),
    ) {
        let mut body: Value = serde_json::from_str(golden).unwrap();
        let object = body.as_object_mut().unwrap();
        let keys: Vec<String> = object.keys().cloned().collect();
        object.insert(keys[key.index(keys.len())].clone(), value);
        read_all(body.to_string().as_bytes());
    }

    #[test]
    fn what_is_written_is_read_as_it_was(
        memory in prop_oneof![any::<i32>().prop_map(|n| DeaNumber::Integer(n.into())), any::<i32>().prop_map(|n| DeaNumber::Float(f64::from(n) / 4.0))],
        disk in prop::option::of(any::<i32>().prop_map(|n| DeaNumber::Integer(n.into()))),
        counts in prop::collection::btree_map("[a-z0-9-]{1,36}", any::<u32>(), 0..6),
        zone in prop::option::of("[a-z0-9]{1,8}"),
    ) {
        let body = DeaAdvertisement {
            id: "d".into(), available_memory: memory, available_disk: disk, app_id_to_count: counts,
            placement_properties: DeaPlacementProperties { zone }, ..DeaAdvertisement::default()
        };
        let read = DeaAdvertisement::read(&serde_json::to_vec(&body).unwrap()).unwrap();
        prop_assert_eq!(read.body, body);
    }
}

/// A request carries everything that the script is told. A body that lacks an address is rejected without quoting its
/// values.
#[test]
fn staging_as_a_request_carries_it() {
    let start = DeaStagingStart::read(staging_start().as_bytes())
        .unwrap()
        .body;
    let run = StagingRun::of_start(&start);
    let carried = run.to_staging();
    assert_eq!(StagingRun::of(&carried).unwrap(), run);
    assert!(!format!("{run:?} {carried:?}").contains("hush"));
    let golden: Value = serde_json::from_str(&staging_start()).unwrap();
    for (field, value) in &carried.0 {
        let of_start = &golden["start_message"]["vcap_application"];
        let expected = golden.get(field).unwrap_or(of_start);
        assert_eq!(value, expected, "{field}");
    }
    for (field, odd) in [
        ("download_uri", Value::Null),
        ("upload_uri", "".into()),
        ("properties", "hush".into()),
    ] {
        let mut bad = carried.clone();
        bad.0.insert(field.into(), odd);
        let refused = StagingRun::of(&bad).unwrap_err();
        assert_eq!(refused.field, format!("run.staging.{field}"));
        assert!(!refused.to_string().contains("hush"));
    }
}
