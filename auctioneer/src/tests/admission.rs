use placement::Policy;
use uuid::Uuid;

use crate::{AuctioneerInput, ReplyKey, StartMessage, admission};

const KEY: ReplyKey = ReplyKey::new(1);
/// What a start needs besides its app.
const FINE: &str = r#""memory_mb":1,"disk_mb":1,"run":{"command":["true"]}"#;

fn read(body: &str) -> AuctioneerInput {
    let mut next = 0;
    let new_id = || {
        next += 1;
        Uuid::from_u128(next)
    };
    let policy = Policy::preset("dea").unwrap();
    admission::read_start(&policy, body.as_bytes(), Some(KEY), new_id)
}

fn one(body: &str) -> Result<crate::AdmittedRequest, crate::Rejected> {
    match read(body) {
        AuctioneerInput::Start(StartMessage {
            mut requests,
            array: false,
            reply: Some(KEY),
        }) => requests.remove(0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_without_an_id_gets_one() {
    let asked = one(&format!(r#"{{"app":"a",{FINE}}}"#)).unwrap();
    assert_eq!(asked.request.id, Uuid::from_u128(1).to_string());
    let body = format!(r#"{{"id":"mine","app":"a",{FINE},"instnces":3}}"#);
    let asked = one(&body).unwrap();
    assert_eq!(
        (asked.request.id.as_str(), asked.request.instances),
        ("mine", 1)
    );
    assert_eq!(asked.warnings, ["instnces: no such field; ignored"]);
}

#[test]
#[allow(clippy::too_many_lines)] // a table
fn an_invalid_request_names_its_field() {
    let long = "x".repeat(300);
    for (body, field, app) in [
        (r#"{"memory_mb":1,"disk_mb":1}"#, Some("app"), None),
        (
            r#"{"app":"a","memory_mb":"1","disk_mb":1}"#,
            Some("memory_mb"),
            Some("a"),
        ),
        (
            r#"{"app":"a","memory_mb":-1,"disk_mb":1}"#,
            Some("memory_mb"),
            Some("a"),
        ),
        (
            r#"{"app":"a","memory_mb":3000000000,"disk_mb":1}"#,
            Some("memory_mb"),
            Some("a"),
        ),
        (
            r#"{"app":"a","memory_mb":1e99,"disk_mb":1}"#,
            Some("memory_mb"),
            Some("a"),
        ),
        (
            r#"{"app":"a","memory_mb":1,"disk_mb":1,"instances":0}"#,
            Some("instances"),
            Some("a"),
        ),
        (
            r#"{"app":"a","memory_mb":1,"disk_mb":1,"instances":200000}"#,
            Some("instances"),
            Some("a"),
        ),
        (
            r#"{"app":"a.b","memory_mb":1,"disk_mb":1}"#,
            Some("app"),
            None,
        ),
        (
            &format!(r#"{{"id":"{long}","app":"a","memory_mb":1,"disk_mb":1}}"#),
            Some("id"),
            Some("a"),
        ),
        (
            r#"{"app":"a","memory_mb":1,"disk_mb":1,"deadline":"0s"}"#,
            Some("deadline"),
            Some("a"),
        ),
        (
            r#"{"app":"a","memory_mb":1,"disk_mb":1,"deadline":"2h"}"#,
            Some("deadline"),
            Some("a"),
        ),
        (
            r#"{"app":"a","memory_mb":1,"disk_mb":1,"deadline":"soon"}"#,
            Some("deadline"),
            Some("a"),
        ),
        (
            r#"{"app":"a","memory_mb":1,"disk_mb":1,"queue_timeout":"2d"}"#,
            Some("queue_timeout"),
            Some("a"),
        ),
    ] {
        let rejected = one(body).unwrap_err();
        assert_eq!(rejected.error.code, "invalid_request", "{body}");
        assert_eq!(
            rejected.error.field.as_deref(),
            field,
            "{body}: {}",
            rejected.error.message
        );
        assert_eq!(rejected.app.as_deref(), app, "{body}");
        assert!(rejected.id.as_str().len() <= 128, "{body}");
        if let Some(field) = field {
            assert!(
                rejected.error.message.contains(field),
                "{}",
                rejected.error.message
            );
        }
    }
}

#[test]
fn deadlines_and_waits_are_bounded() {
    for (field, span, taken) in [
        ("deadline", "0ms", false),
        ("deadline", "1ms", true),
        ("deadline", "1h", true),
        ("deadline", "3600001ms", false),
        ("queue_timeout", "0ms", true),
        ("queue_timeout", "24h", true),
        ("queue_timeout", "86400001ms", false),
    ] {
        let body = format!(r#"{{"app":"a",{FINE},"{field}":"{span}"}}"#);
        let refused = one(&body).err().and_then(|rejected| rejected.error.field);
        assert_eq!(refused.is_none(), taken, "{field} {span}");
        assert!(refused.is_none_or(|named| named == field), "{span}");
    }
}

#[test]
fn a_rejected_request_keeps_a_valid_id() {
    let rejected = one(r#"{"id":"mine","app":"a","memory_mb":-1,"disk_mb":1}"#).unwrap_err();
    assert_eq!(rejected.id, "mine");
    let rejected = one("garbage").unwrap_err();
    assert_eq!(
        (rejected.id, rejected.app),
        (Uuid::from_u128(1).into(), None)
    );
}

#[test]
fn arrays_are_judged_one_by_one() {
    let body = format!(r#"[{{"app":"a",{FINE}}},{{"app":"b","memory_mb":-1,"disk_mb":1}},3]"#);
    let AuctioneerInput::Start(asked) = read(&body) else {
        panic!("not a start")
    };
    assert!(asked.array);
    assert!(asked.requests[0].is_ok());
    assert_eq!(
        asked.requests[1].as_ref().unwrap_err().app.as_deref(),
        Some("b")
    );
    assert!(asked.requests[2].is_err());
    for body in ["[]", "[1,", "[{\"app\":\"a\"}"] {
        assert!(
            matches!(
                read(body),
                AuctioneerInput::Rejected {
                    reply: Some(KEY),
                    ..
                }
            ),
            "{body}"
        );
    }
}

#[test]
fn a_start_says_what_to_execute_and_a_question_need_not() {
    let size = r#"{"app":"a","memory_mb":1,"disk_mb":1}"#;
    let rejected = one(size).unwrap_err();
    assert_eq!(rejected.error.field.as_deref(), Some("run"));
    assert!(rejected.error.message.starts_with("run: missing"));
    assert_eq!(rejected.app.as_deref(), Some("a"));
    let AuctioneerInput::Start(array) = read(&format!(r#"[{size},{{"app":"b",{FINE}}}]"#)) else {
        panic!("not a start")
    };
    let judged: Vec<bool> = array.requests.iter().map(Result::is_ok).collect();
    assert_eq!(judged, [false, true]);
    let policy = Policy::preset("dea").unwrap();
    let size = size.as_bytes();
    assert!(admission::read_place(&policy, size, KEY, Uuid::nil).is_ok());
    assert!(admission::read_capacity(&policy, size, KEY, Uuid::nil).is_ok());
}

#[test]
fn dry_runs_in_each_of_their_forms() {
    let place = |body: &str| {
        let policy = Policy::preset("dea").unwrap();
        match admission::read_place(&policy, body.as_bytes(), KEY, Uuid::nil) {
            Ok(AuctioneerInput::DryRun { dry_run, .. }) => Ok(*dry_run),
            Ok(other) => panic!("{other:?}"),
            Err(e) => Err(e),
        }
    };
    let request = r#""app":"a","memory_mb":1,"disk_mb":1"#;
    for (what, body, requests, without) in [
        ("a request", format!("{{{request}}}"), 1, 0),
        (
            "with extras",
            format!(r#"{{{request},"without":["c1"],"explain":"stages"}}"#),
            1,
            1,
        ),
        (
            "under request",
            format!(
                r#"{{"v":1,"request":{{{request}}},"without":["c1"],"add_cells":[],"explain":null}}"#
            ),
            1,
            1,
        ),
        (
            "an array under request",
            format!(r#"{{"request":[{{{request}}},{{{request}}}]}}"#),
            2,
            0,
        ),
        ("an array", format!("[{{{request}}},{{{request}}}]"), 2, 0),
    ] {
        let place = place(&body).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(
            (place.requests.len(), place.without.len()),
            (requests, without),
            "{what}"
        );
        assert!(
            place.requests.iter().all(|r| r.warnings.is_empty()),
            "{what}"
        );
    }
    let misspelt = place(&format!(r#"{{{request},"withouts":["c1"],"explains":1}}"#)).unwrap();
    assert_eq!(misspelt.requests[0].warnings.len(), 2, "{misspelt:?}");
    for (body, field) in [
        (format!(r#"{{{request},"explain":"all"}}"#), Some("explain")),
        (format!(r#"{{{request},"without":"c1"}}"#), Some("without")),
        (
            r#"{"request":{"app":"a","memory_mb":-1,"disk_mb":1}}"#.into(),
            Some("memory_mb"),
        ),
        ("{".into(), None),
    ] {
        assert_eq!(place(&body).unwrap_err().field.as_deref(), field, "{body}");
    }
}

#[test]
fn an_ambiguous_stop_is_rejected() {
    for body in [
        "",
        "{}",
        r#"{"app":"a b"}"#,
        r#"{"app":"a","indices":"all"}"#,
        r#"{"app":"a","indices":[]}"#,
        r#"{"app":"a","index":0}"#,
    ] {
        let input = admission::read_stop(body.as_bytes(), None, Uuid::nil);
        assert!(matches!(input, AuctioneerInput::Rejected { .. }), "{body}");
    }
}

#[test]
fn a_requests_objective_is_checked_at_admission() {
    let ask = |preset: &str, objective: &str| {
        let policy = Policy::preset(preset).unwrap();
        let body = serde_json::json!({"app":"a","memory_mb":1,"disk_mb":1,"objective":objective,
            "run": {"command": ["true"]}});
        match admission::read_start(&policy, body.to_string().as_bytes(), None, Uuid::nil) {
            AuctioneerInput::Start(mut asked) => asked.requests.remove(0),
            other => panic!("{other:?}"),
        }
    };
    let fine = ask("objective", "-r.AvailableMemoryMB + alpha").unwrap();
    assert!(fine.warnings.is_empty(), "{:?}", fine.warnings);
    for (wrong, said) in [
        ("r.FreeMemory", "column 1"),
        ("1 + unknown", "column 5"),
        ("1 +", "column 4"),
        ("", "column 1"),
    ] {
        let error = ask("objective", wrong).unwrap_err().error;
        assert_eq!(error.field.as_deref(), Some("objective"), "{wrong}");
        assert!(error.message.contains(said), "{wrong}: {error}");
    }
    let long = format!("1{}", " + 1".repeat(1_000));
    assert_eq!(
        ask("objective", &long).unwrap_err().error.field.as_deref(),
        Some("objective")
    );
    // if the policy has no objective, the sender is warned that the request's objective has no effect
    let ignored = ask("diego", "r.AvailableMemoryMB").unwrap();
    assert_eq!(
        ignored.warnings,
        ["objective: the policy diego has none; ignored"]
    );
}

/// The sender is warned about fields that no stage uses, and a demand that would have no effect is rejected.
#[test]
fn fields_that_the_policy_ignores_are_warned_of_at_admission() {
    let ask = |preset: &str, strict: bool| {
        let policy = Policy::preset(preset).unwrap();
        let body = serde_json::json!({
            "app": "a", "memory_mb": 1, "disk_mb": 1, "far": ["app:b"], "traits": {"ssd": true},
            "strict": strict, "run": {"command": ["true"]},
        });
        let read =
            admission::read_start(&policy, body.to_string().as_bytes(), Some(KEY), Uuid::nil);
        match read {
            AuctioneerInput::Start(StartMessage { mut requests, .. }) => requests.remove(0),
            other => panic!("{other:?}"),
        }
    };
    let expected = [
        "far: the policy diego has no stage for it; ignored",
        "traits: the policy diego has no stage for it; ignored",
    ];
    assert_eq!(ask("diego", false).unwrap().warnings, expected);
    let error = ask("diego", true).unwrap_err().error;
    assert_eq!(error.field.as_deref(), Some("strict"));
    assert!(ask("dapi", true).unwrap().warnings.is_empty());
}

#[test]
fn an_announcement_counts_when_it_comes_from_whom_it_names() {
    let claim = Uuid::from_u128(5);
    let body = |by: &str| {
        format!(r#"{{"by":"{by}","auction":"{claim}","request":"r1","requests":["r2","no id"]}}"#)
    };
    let read = |body: &str| admission::read_announcement("a2", body.as_bytes());
    let AuctioneerInput::Announced(announced) = read(&body("a2")) else {
        panic!("it is what a2 says of itself");
    };
    let ids: Vec<&str> = announced
        .ids
        .iter()
        .map(shared::RequestId::as_str)
        .collect();
    assert_eq!(ids, ["r1", "r2"], "without what is no id");
    assert_eq!(announced.claim.as_u128(), 5);
    assert!(matches!(read(&body("a3")), AuctioneerInput::WrongSubject));
    assert!(matches!(read("{}"), AuctioneerInput::Unreadable));
}

/// A misspelt filter must not mean "all", and the app that is echoed must be valid.
#[test]
fn questions_with_what_they_do_not_know_are_refused() {
    let long = format!(r#"{{"app":"{}"}}"#, "x".repeat(1_000_000));
    let explain = |body: &str| admission::read_explain(body.as_bytes(), KEY);
    let queued = |body: &str| admission::read_queued(body.as_bytes(), KEY);
    let pool = |body: &str| admission::read_pool(body.as_bytes(), KEY);
    for (answer, field) in [
        (explain(r#"{"app":"a","cels":true}"#), "cels"),
        (explain(&long), "app"),
        (explain(r#"{"app":"a.b"}"#), "app"),
        (queued(r#"{"ap":"web"}"#), "ap"),
        (queued(&long), "app"),
        (pool(r#"{"limt":1}"#), "limt"),
    ] {
        let error = answer.unwrap_err();
        assert_eq!(error.field.as_deref(), Some(field));
        assert!(error.message.len() < 700, "{}", error.message);
        assert!(error.message.starts_with(&format!("{field}: ")));
    }
    assert!(explain(r#"{"v":1,"app":"a","cells":true}"#).is_ok());
    assert!(queued("").is_ok() && queued(r#"{"app":"a","limit":1}"#).is_ok());
    assert!(pool("").is_ok() && pool(r#"{"offset":1,"limit":1}"#).is_ok());
}
