//! Reading what strangers send: each error is reported, and nothing panics.

#![allow(clippy::unwrap_used)] // a test may panic

use placement::Request;
use proptest::prelude::*;
use serde_json::json;
use shared::{
    Subjects,
    wire::{self, StartBody, format_indices, parse_indices, parse_start},
};

fn refusal(body: &str) -> wire::WireError {
    match parse_start(body.as_bytes()) {
        Err(e) => e,
        Ok(StartBody::One(one)) => one.unwrap_err(),
        Ok(StartBody::Many(many)) => panic!("an array: {many:?}"),
    }
}

/// The field (`-` = none) | the message | the body.
const FAULTS: &str = r#"
- | it ends too early | {
- | 5 is not allowed; expected an object | 5
run | a string is not allowed; expected an object | {"app":"a","memory_mb":1,"disk_mb":1,"run":"x"}
run | expected an object | {"app":"a","memory_mb":1,"disk_mb":1,"run":[]}
run.env.A | run.env.A: an array is not allowed; expected a string | {"app":"a","memory_mb":1,"disk_mb":1,"run":{"command":["x"],"env":{"A":["x"]}}}
instances | instances: "3" is not allowed; expected a non-negative integer | {"app":"a","memory_mb":1,"disk_mb":1,"instances":"3"}
app | missing field `app` | {"memory_mb":1,"disk_mb":1}
memory_mb | "64" | {"app":"a","memory_mb":"64","disk_mb":1}
memory_mb | -1 | {"app":"a","memory_mb":-1,"disk_mb":1}
memory_mb | expected an integer | {"app":"a","memory_mb":1e30,"disk_mb":1}
disk_mb | 2147483648 | {"app":"a","memory_mb":1,"disk_mb":2147483648}
app | a b | {"app":"a b","memory_mb":1,"disk_mb":1}
app | 1 to 128 | {"app":"","memory_mb":1,"disk_mb":1}
app | xxx | {"app":"LONG","memory_mb":1,"disk_mb":1}
id | xxx | {"id":"LONG","app":"a","memory_mb":1,"disk_mb":1}
instances | 0 | {"app":"a","instances":0,"memory_mb":1,"disk_mb":1}
instances | 100001 | {"app":"a","instances":100001,"memory_mb":1,"disk_mb":1}
indices | 3 | {"app":"a","indices":[3],"memory_mb":1,"disk_mb":1}
indices | repeated | {"app":"a","instances":2,"indices":[1,1],"memory_mb":1,"disk_mb":1}
kind | kind: "job" is not allowed; expected lrp or task | {"app":"a","kind":"job","memory_mb":1,"disk_mb":1}
deadline | soon | {"app":"a","deadline":"soon","memory_mb":1,"disk_mb":1}
extra.gpu | -2 | {"app":"a","extra":{"gpu":-2},"memory_mb":1,"disk_mb":1}
run.command | program | {"app":"a","memory_mb":1,"disk_mb":1,"run":{"command":[]}}
run.command[1] | with NUL | {"app":"a","memory_mb":1,"disk_mb":1,"run":{"command":["x","a\u0000b"]}}
run.env.A | with NUL | {"app":"a","memory_mb":1,"disk_mb":1,"run":{"command":["x"],"env":{"A":"\u0000"}}}
run.env | an empty name | {"app":"a","memory_mb":1,"disk_mb":1,"run":{"command":["x"],"env":{"":"1"}}}
run.env | a name with = | {"app":"a","memory_mb":1,"disk_mb":1,"run":{"command":["x"],"env":{"A=B":"1"}}}
devices.gpu.count | 0 | {"app":"a","devices":{"gpu":{"count":0}},"memory_mb":1,"disk_mb":1}
devices | "GPU" | {"app":"a","devices":{"GPU":{"count":1}},"memory_mb":1,"disk_mb":1}
extra | "" | {"app":"a","extra":{"":2},"memory_mb":1,"disk_mb":1}
min_platform.7.0 | "soon" | {"app":"a","min_platform":{"7.0":"soon"},"memory_mb":1,"disk_mb":1}
max_platform.7.0 | 20260301T000000Z | {"app":"a","max_platform":{"7.0":"20261301T000000Z"},"memory_mb":1,"disk_mb":1}
v | 2 is not allowed; expected 1 | {"v":2,"app":"a","memory_mb":1,"disk_mb":1}
v | "1" is not allowed; expected 1 | {"v":"1","app":"a","memory_mb":1,"disk_mb":1}
v | 2 is not allowed; expected 1 | {"v":2,"app":{},"size":"small"}
v | null is not allowed; expected 1 | {"v":null,"app":"a","memory_mb":1,"disk_mb":1}
- | trailing | {"app":"a","memory_mb":1,"disk_mb":1} x
"#;

#[test]
fn a_message_that_is_not_utf_8_is_refused_also_where_nobody_reads_it() {
    let body = b"{\"app\":\"web\",\"memory_mb\":1,\"disk_mb\":1,\"other\":\"\xff\"}";
    let Ok(StartBody::One(one)) = parse_start(body) else {
        panic!("an array");
    };
    let error = one.unwrap_err();
    assert_eq!(error.message, "not a valid message: it is not UTF-8");
}

#[test]
fn each_fault_of_a_request_names_its_field() {
    for row in FAULTS.trim().lines() {
        let [field, says, body] = row.splitn(3, " | ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let e = refusal(&body.replace("LONG", &"x".repeat(300)));
        assert_eq!(e.field.as_deref().unwrap_or("-"), field, "{body}: {e}");
        assert!(e.message.contains(says), "{body}: {e}");
    }
    assert!(refusal("").message.contains("ends too early"));
}

/// Nothing that a request executes is quoted, because errors become events, which every observer gets. Columns: the
/// field | the body.
const SECRETS: &str = r#"
run.env | {"run":{"command":["x"],"env":"hunter2"}}
run.env | {"run":{"command":["x"],"env":["hunter2"]}}
run.env | {"run":{"command":["x"],"env":{"hunter2=":"1"}}}
run.env | {"run":{"command":["x"],"env":{"hunter2\u0000":"1"}}}
run.env.A | {"run":{"command":["x"],"env":{"A":"hunter2\u0000"}}}
run.env.A | {"run":{"command":["x"],"env":{"A":["hunter2"]}}}
run.env.A | {"run":{"command":["x"],"env":{"A":271828}}}
run.command | {"run":{"command":"hunter2"}}
run.command | {"run":{"command":"hunter2, expected hunter2"}}
run.command | {"run":{"command":"`hunter2`"}}
run.command[1] | {"run":{"command":["x","hunter2\u0000"]}}
run.command[0] | {"run":{"command":[{"hunter2":1}]}}
run.port | {"run":{"command":["x"],"port":"hunter2"}}
run | {"run":"hunter2"}
"#;

#[test]
fn what_a_request_executes_is_never_quoted() {
    for row in SECRETS.trim().lines() {
        let (field, run) = row.split_once(" | ").unwrap();
        let body = run.replacen('{', r#"{"app":"a","memory_mb":1,"disk_mb":1,"#, 1);
        let error = refusal(&body);
        assert_eq!(error.field.as_deref(), Some(field), "{body}: {error}");
        let told = serde_json::to_string(&error.body()).unwrap();
        assert!(
            !told.contains("hunter2") && !told.contains("271828"),
            "{body}: {told}"
        );
    }
    for body in [
        r#"{"app":"a","run":{"command":["hunter2"]}}"#,
        r#"{"app":"a","run":"hunter2"}"#,
    ] {
        let error = wire::Stop::read(body.as_bytes()).unwrap_err();
        assert!(!error.message.contains("hunter2"), "{body}: {error}");
    }
}

/// A stop or drain that would affect more than was meant is rejected. Columns: field | message | body.
const TOO_MUCH: &str = r#"
index | index: 0 is not allowed; expected app, indices, instances or claim | {"app":"w","index":0}
indices | [] is not allowed; expected at least one | {"app":"w","indices":[]}
instances | [] is not allowed; expected at least one | {"app":"w","instances":[]}
instances[0] | UUID | {"app":"w","instances":["x"]}
app | a b | {"app":"a b"}
app | missing field `app` | {}
v | v: 2 is not allowed; expected 1 | {"v":2,"app":"w","but_these":[1]}
"#;

#[test]
fn what_linux_passes_to_no_program_is_refused_without_being_quoted() {
    let body = |run: serde_json::Value| {
        json!({ "app": "a", "memory_mb": 1, "disk_mb": 1, "run": run }).to_string()
    };
    let most = 128 * 1024 - 1;
    let word = |bytes| json!({ "command": ["x", "s".repeat(bytes)] });
    assert!(accepted(&body(word(most))));
    let variable = |bytes| json!({ "command": ["x"], "env": { "A": "s".repeat(bytes) } });
    assert!(accepted(&body(variable(most - 2))));
    let many = json!({ "command": vec!["s".repeat(100_000); 11] });
    for (run, field, bytes, bound) in [
        (word(most + 1), "run.command[1]", 131_072, "at most 131071"),
        (variable(most - 1), "run.env.A", 131_072, "at most 131071"),
        (many, "run", 1_100_099, "at most 1048576"),
    ] {
        let error = refusal(&body(run));
        assert_eq!(error.field.as_deref(), Some(field));
        let said = [format!("{bytes} bytes"), bound.to_owned()];
        let message = &error.message;
        assert!(said.iter().all(|text| message.contains(text)), "{message}");
        assert!(!message.contains("sss"), "{message}");
    }
}

fn accepted(body: &str) -> bool {
    let StartBody::One(parsed) = wire::parse_start(body.as_bytes()).unwrap() else {
        panic!("not one request");
    };
    parsed.is_ok()
}

#[test]
fn of_a_long_text_only_the_start_is_quoted() {
    let long = "x".repeat(500_000);
    let about = |body: serde_json::Value| {
        let error = refusal(&body.to_string());
        let field = error.field.clone().unwrap_or_default();
        assert!(field.chars().count() <= 201, "{} characters", field.len());
        let message = error.message;
        assert!(message.chars().count() <= 700, "{message}");
        message
    };
    let kind = about(json!({ "app": "a", "memory_mb": 1, "disk_mb": 1, "kind": long }));
    assert!(kind.starts_with("kind: \"xxx"), "{kind}");
    assert!(
        kind.ends_with("xxx…\" is not allowed; expected lrp or task"),
        "{kind}"
    );
    let size = about(json!({ "app": "a", "memory_mb": long, "disk_mb": 1 }));
    assert!(
        size.starts_with("memory_mb: ") && size.contains("expected an integer"),
        "{size}"
    );
    about(json!({ "app": long, "memory_mb": 1, "disk_mb": 1 }));
    about(json!({ "app": "a", "memory_mb": 1, "disk_mb": 1, "extra": { (long.clone()): -1 } }));
    about(json!({ "app": "a", "memory_mb": 1, "disk_mb": 1,
        "run": { "command": ["x"], "env": { (long.clone()): 7 } } }));
    let misspelt = json!({ "app": "a", (long): 7 }).to_string();
    let error = wire::Stop::read(misspelt.as_bytes()).unwrap_err();
    assert!(error.message.len() < 700 && error.field.unwrap().starts_with("xxx"));
}

#[test]
fn a_stop_or_drain_with_a_misspelt_filter_is_refused() {
    for row in TOO_MUCH.trim().lines() {
        let [field, says, body] = row.splitn(3, " | ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let e = wire::Stop::read(body.as_bytes()).unwrap_err();
        assert_eq!(e.field.as_deref(), Some(field), "{body}: {e}");
        assert!(e.message.contains(says), "{body}: {e}");
    }
    let stop = wire::Stop::read(br#"{"v":1,"app":"w","indices":[0]}"#).unwrap();
    assert_eq!(stop.indices, [0]);
    let e = wire::Drain::read(br#"{"dedline":"1h"}"#).unwrap_err();
    let says = "dedline: \"1h\" is not allowed; expected deadline or exit";
    assert_eq!(
        (e.field.as_deref(), e.message.as_str()),
        (Some("dedline"), says)
    );
    let long = format!(r#"{{"dedline":"{}"}}"#, "x".repeat(50));
    let e = wire::Drain::read(long.as_bytes()).unwrap_err();
    assert!(e.message.contains("xxx…\" is not allowed"), "{e}");
    assert_eq!(wire::Drain::read(b"{}").unwrap().deadline, None);
    wire::Drain::read(b"").unwrap_err();
    for nothing in ["", "{}", r#"{"v":1}"#] {
        wire::read_nothing(nothing.as_bytes()).unwrap();
    }
    for meant_for_another in ["[]", "7", r#"{"v":1,"name":"vendue-cell"}"#] {
        wire::read_nothing(meant_for_another.as_bytes()).unwrap_err();
    }
}

#[test]
fn an_array_is_not_taken_for_an_object() {
    let says = "not a valid message: an array; expected an object";
    for body in [&b"[]"[..], b" [1]"] {
        let page = wire::parse::<wire::Page>(body, &mut Vec::new());
        assert_eq!(page.unwrap_err().message, says);
    }
    assert_eq!(wire::Stop::read(br#"[1,"web"]"#).unwrap_err().message, says);
    for (field, part) in [
        ("run", r#""run":[["sleep","5"]]"#),
        (
            "health",
            r#""run":{"command":["x"],"port":true},"health":["port"]"#,
        ),
        (
            "ready",
            r#""run":{"command":["x"],"port":true},"ready":["port"]"#,
        ),
        (
            "run.secrets[0]",
            r#""run":{"command":["x"],"secrets":[["db","DB"]]}"#,
        ),
    ] {
        let error = refusal(&format!(
            r#"{{"app":"a","memory_mb":1,"disk_mb":1,{part}}}"#
        ));
        assert_eq!(error.field.as_deref(), Some(field), "{error}");
        assert!(error.message.contains("expected an object"), "{error}");
    }
    let extra = wire::parse::<wire::PlaceExtra>(br#"{"add_cells":[[1,"a"]]}"#, &mut Vec::new());
    assert_eq!(extra.unwrap_err().field.as_deref(), Some("add_cells[0]"));
}

#[test]
fn a_misspelt_field_is_a_warning() {
    let body = br#"{"v":1,"app":"a","instnces":3,"memory_mb":1,"disk_mb":1,"run":{"command":["x"],"prot":true}}"#;
    let Ok(StartBody::One(one)) = parse_start(body) else {
        panic!()
    };
    let warnings = one.unwrap().warnings;
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(
        warnings[0].contains("instnces") && warnings[1].starts_with("run.(hidden): "),
        "{warnings:?}"
    );
}

/// A misplaced value may be a secret, and warnings and errors are published.
#[test]
fn nothing_under_run_is_quoted() {
    let secret = "hunter2";
    for run in [
        json!({ "command": ["x"], (secret): 1 }),
        json!({ "command": ["x"], "secrets": [{ "file": "a", "env": "A", (secret): 1 }] }),
        json!({ "command": ["x"], "secrets": [{ "file": "../hunter2", "env": "A" }] }),
        json!({ "command": ["x"], "secrets": [{ "file": "a", "path": "/hunter2" }] }),
        json!({ "command": ["x"], "secrets": [{ "file": "a", "env": "hunter2=" }] }),
        json!({ "command": ["x"], "secrets": secret }),
        json!({ "command": ["x"], "secrets": [secret] }),
        json!({ "command": ["x"], "secrets": [[secret, secret]] }),
        json!({ "command": secret }),
        json!({ "command": ["x"], "port": secret }),
        json!([[secret]]),
        json!(secret),
    ] {
        let body = json!({ "app": "a", "memory_mb": 1, "disk_mb": 1, "run": run }).to_string();
        let Ok(StartBody::One(parsed)) = parse_start(body.as_bytes()) else {
            panic!("{body}")
        };
        let said = match *parsed {
            Ok(parsed) => parsed.warnings.join(" "),
            Err(error) => error.to_string(),
        };
        assert!(said.contains("run") && !said.contains(secret), "{said}");
    }
}

#[test]
fn an_array_is_judged_one_by_one() {
    let body = br#"[{"app":"a","memory_mb":1,"disk_mb":1},{"app":"b"},{"app":"c","memory_mb":1,"disk_mb":1}]"#;
    let Ok(StartBody::Many(many)) = parse_start(body) else {
        panic!()
    };
    assert_eq!(
        many.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, false, true]
    );
    assert!(parse_start(b"[]").is_err());
    assert!(parse_start(b"[{]").is_err());
}

#[test]
fn an_advertisement_must_match_its_subject() {
    let body = br#"{"cell":"a","incarnation":"018f0000-0000-4000-8000-000000000001","seq":1,"total":{"memory_mb":1},"available":{"memory_mb":1}}"#;
    assert!(wire::Envelope::parse(body, Some("a")).is_ok());
    let e = wire::Envelope::parse(body, Some("b")).unwrap_err();
    assert_eq!(e.field.as_deref(), Some("cell"));
    assert!(
        wire::parse_cell(br#"{"cell":"a","total":{"memory_mb":-1},"available":{"memory_mb":1}}"#)
            .is_err()
    );
}

#[test]
fn subjects() {
    let s = Subjects::new("a.b").unwrap();
    assert_eq!(s.cell("c", "start"), "a.b.cell.c.start");
    assert_eq!(s.cell_of("a.b.cell.c.advert"), Some("c"));
    assert_eq!(s.cell_of("x.cell.c.advert"), None);
    for bad in ["", ".", "a..b", "a.*", "a b", ">"] {
        assert!(Subjects::new(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_body_names_the_sender_that_its_subject_names() {
    let s = Subjects::new("vendue").unwrap();
    let agrees = |event: &wire::Event, subject: &str| {
        s.event_of(subject)
            .is_some_and(|subject| event.agrees_with(subject))
    };
    let mut running = wire::Event::app("running", "web");
    running.cell = Some("c1".into());
    running.stamp("c1");
    assert!(agrees(&running, "vendue.event.running.web.c1"));
    for other in ["running.web.c2", "crashed.web.c1", "running.db.c1"] {
        assert!(
            !agrees(&running, &format!("vendue.event.{other}")),
            "{other}"
        );
    }
    running.cell = Some("c2".into());
    assert!(!agrees(&running, "vendue.event.running.web.c1"));
    // an auctioneer's event about a cell names the cell, but not as its sender
    let mut lost = wire::Event::cell("cell-lost", "c1");
    lost.stamp("a1");
    assert!(agrees(&lost, "vendue.event.cell-lost.c1.a1"));
    assert!(!agrees(&lost, "vendue.event.cell-lost.c1.c1"));

    let line = r#"{"app":"web","index":3,"cell":"c1","stream":"stdout","text":"x"}"#;
    let line: wire::LogLine = serde_json::from_str(line).unwrap();
    let agrees = |subject: &str| line.agrees_with(s.log_of(subject).unwrap());
    assert!(agrees("vendue.log.web.3.c1"));
    assert!(!agrees("vendue.log.web.3.c2") && !agrees("vendue.log.web.4.c1"));
}

#[test]
fn secrets_stay_out_of_messages() {
    let shown = shared::nats::without_secrets("nats://u:p@h:1, nats://token@i:2,j:3");
    assert_eq!(shown, "nats://h:1,nats://i:2,j:3");
}

proptest! {
    #[test]
    fn indices_survive(indices in proptest::collection::btree_set(0u32..300, 0..60)) {
        let text = format_indices(indices.iter().copied());
        let back = if text.is_empty() { Vec::new() } else { parse_indices(&text, 1000).unwrap() };
        prop_assert_eq!(back, indices.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "\\PC*") {
        for body in [&bytes[..], text.as_bytes()] {
            let _ = parse_start(body);
            let _ = wire::Envelope::parse(body, None);
            let _ = wire::parse_cell(body);
            let _ = parse_indices(&String::from_utf8_lossy(body), 1000);
        }
    }
}

/// Otherwise an app with 0 instances would count as one that the cell has in use.
#[test]
fn apps_without_instances_are_not_taken_over_from_a_report() {
    let report = br#"{"v":1,"cell":"a","total":{"memory_mb":10},"available":{"memory_mb":10},
        "apps":{"none":0,"web":2}}"#;
    let cell = shared::wire::parse_cell(report).unwrap();
    let apps: Vec<(&str, u32)> = cell
        .counts
        .apps
        .iter()
        .map(|(app, n)| (app.as_str(), *n))
        .collect();
    assert_eq!(apps, [("web", 2)]);
}

/// An array without surprises is read in a single pass.
#[test]
fn each_request_of_an_array_is_read_as_if_it_stood_alone() {
    let plain =
        r#"{"app":"web","instances":2,"memory_mb":64,"disk_mb":64,"run":{"command":["true"]}}"#;
    let with = |from: &str, to: &str| plain.replacen(from, to, 1);
    let requests = [
        plain.to_owned(),
        with(r#""app":"web""#, r#""id":"r-1","app":"web","v":1"#),
        with(r#""app":"web""#, r#""app":"web","v":2"#),
        with(r#""app":"web""#, r#""app":"web","instnces":2"#),
        with(r#""app":"web""#, r#""app":"a.b""#),
        with(r#""app":"web""#, r#""app":"web","app":"web""#),
        with(r#""memory_mb":64"#, r#""memory_mb":-1"#),
        with(r#"{"command":["true"]}"#, r#"["true"]"#),
        with(r#"["true"]"#, "[]"),
        r#"["web",2]"#.to_owned(),
        "7".to_owned(),
    ];
    let alone = |text: &String| match wire::parse_start(text.as_bytes()) {
        Ok(StartBody::One(one)) => *one,
        // an array in an array
        _ => wire::parse::<Request>(text.as_bytes(), &mut Vec::new()).map(|_| panic!("{text}")),
    };
    for one in &requests {
        for array in [vec![one], vec![&requests[0], one]] {
            let texts: Vec<&str> = array.iter().map(|text| text.as_str()).collect();
            let body = format!("[{}]", texts.join(","));
            let Ok(StartBody::Many(many)) = wire::parse_start(body.as_bytes()) else {
                panic!("{body}");
            };
            let expected: Vec<_> = array.into_iter().map(alone).collect();
            assert_eq!(many, expected, "{body}");
        }
    }
}
