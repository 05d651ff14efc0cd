//! Texts for people: about what is ignored, rejected, lacking and misspelt.
#![allow(clippy::unwrap_used, clippy::too_many_lines)] // a test may panic, a table may be long

use placement::{Explain, Policy};
use scenarios::OfflineAuction;

/// Fields that a policy does not use cause a warning, and what it would violate is rejected.
#[test]
fn fields_that_a_policy_ignores_are_warned_of() {
    let all = serde_json::json!({
        "app": "x", "memory_mb": 1, "disk_mb": 1, "cpu_millis": 1, "extra": {"gpu": 1},
        "near": ["app:y"], "far": ["app:z"], "traits": {"ssd": true}, "networks": [["n"]],
        "min_platform": {"7.0": "20260101T000000Z"}, "max_platform": {"7.0": "20260101T000000Z"},
        "volumes_from": ["v"], "volume_drivers": ["nfs"], "placement_tags": ["t"], "stack": "linux",
        "overcommit": {"cpu": 1.0}, "objective": "r.TotalMemoryMB", "owner": "o",
    });
    let request: placement::Request = serde_json::from_value(all).unwrap();
    let ignored_fields = |policy: &str| -> Vec<String> {
        let lines = Policy::preset(policy).unwrap().ignored_fields(&request);
        let field = |line: &String| line.split_once(':').unwrap().0.to_owned();
        lines.iter().map(field).collect()
    };
    let platforms = ["min_platform", "max_platform"];
    let rest = ["volumes_from", "overcommit", "objective"];
    let diego = [
        &["near", "far", "traits", "networks"][..],
        &platforms,
        &rest,
    ]
    .concat();
    assert_eq!(ignored_fields("diego"), diego);
    let dapi = ["volume_drivers", "placement_tags", "objective"];
    assert_eq!(ignored_fields("dapi"), dapi);
    assert!(!ignored_fields("objective").contains(&"objective".to_owned()));
    let nothing = Policy::parse("name = \"n\"\n[[stage]]\npick = \"sample\"").unwrap();
    assert_eq!(nothing.ignored_fields(&request).len(), 14);
    let line = &nothing.ignored_fields(&request)[0];
    assert_eq!(line, "near: the policy n has no stage for it; ignored");

    let strict = placement::Request {
        strict: true,
        ..request
    };
    let plain = placement::Request {
        near: Vec::new(),
        far: Vec::new(),
        ..strict.clone()
    };
    for preset in Policy::PRESETS {
        let policy = Policy::preset(preset).unwrap();
        let own = policy.ignored_fields(&plain);
        assert_eq!(
            policy.check_request(&strict).is_ok(),
            policy.has_locality(),
            "{preset}"
        );
        assert!(policy.check_request(&plain).is_ok(), "{preset}: {own:?}");
        assert_eq!(policy.unfiltered_resources(), [""; 0], "{preset}");
    }
    let error = Policy::preset("diego").unwrap().check_request(&strict);
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("strict") && error.contains("dapi, rfd24, dapi-2015"),
        "{error}"
    );

    // a policy without resource filters
    assert_eq!(
        nothing.unfiltered_resources(),
        ["memory", "disk", "containers", "cpu", "extra"]
    );
    let tasks_only = "name = \"n\"\n[[stage]]\nfilter = \"cpu\"\nkind = \"task\"\n\
        [[stage]]\nfilter = \"memory\"\n[[stage]]\npick = \"sample\"";
    let tasks_only = Policy::parse(tasks_only).unwrap();
    assert_eq!(
        tasks_only.unfiltered_resources(),
        ["disk", "containers", "cpu", "extra"]
    );
}

#[test]
fn a_scenario_warns_once_of_ignored_fields() {
    let text = r#"{"policy":"diego","cells":[],"requests":[
        {"app":"a","memory_mb":1,"disk_mb":1},
        {"app":"b","memory_mb":1,"disk_mb":1,"objective":"1","far":["app:a"]},
        {"app":"c","memory_mb":1,"disk_mb":1,"objective":"2"}]}"#;
    let scenario = OfflineAuction::from_json(text).unwrap();
    let expected = [
        "requests[1].far: the policy diego has no stage for it; ignored",
        "requests[1].objective: the policy diego has none; ignored (and 1 more like it)",
    ];
    assert_eq!(scenario.ignored_fields(), expected);
    let strict = text.replace(r#""far":["#, r#""strict":true,"far":["#);
    let error = OfflineAuction::from_json(&strict).unwrap_err().to_string();
    assert!(error.starts_with("requests[1].strict: true"), "{error}");
}

/// TOML has numbers that JSON lacks and that no amount may be.
#[test]
fn a_scenario_without_finite_numbers_is_refused() {
    for number in ["nan", "inf", "-inf"] {
        let text = format!(
            "[[cells]]\ncell = \"a\"\ntotal = {{ memory_mb = 1, disk_mb = {number} }}\n\
             available = {{ memory_mb = 1 }}"
        );
        let error = OfflineAuction::from_toml(&text).unwrap_err().to_string();
        assert!(error.starts_with("cells[0].total.disk_mb: "), "{error}");
        assert!(error.contains("expected a finite number"), "{error}");
    }
}

#[test]
fn nothing_is_more_available_than_there_is() {
    let text = r#"{"cells":[{"cell":"a",
        "total":{"memory_mb":10,"disk_mb":10,"cpu_millis":10,"extra":{"gpu":1}},
        "available":{"memory_mb":10,"disk_mb":10,"cpu_millis":10,"extra":{"gpu":1}}}]}"#;
    OfflineAuction::from_json(text).unwrap();
    let total = text.find("available").unwrap();
    for (field, now) in [("memory_mb\":10", 11), ("disk_mb\":10", 12), ("gpu\":1", 2)] {
        let (before, available) = text.split_at(total);
        let (name, _) = field.split_once('"').unwrap();
        let more = available.replacen(field, &format!("{name}\":{now}"), 1);
        let error = OfflineAuction::from_json(&format!("{before}{more}"));
        let error = error.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("cells[0].available.{name}: {now}")),
            "{error}"
        );
    }
}

/// A product is shown as a product.
#[test]
fn a_product_is_not_shown_as_a_sum() {
    let text = r#"{"policy":"POLICY","cells":[
        {"cell":"a","total":{"memory_mb":10},"available":{"memory_mb":10}}],
        "requests":[{"app":"x","memory_mb":1,"disk_mb":1}]}"#;
    let is_product = |policy: &str| {
        let scenario = OfflineAuction::from_json(&text.replace("POLICY", policy)).unwrap();
        scenario.run(Explain::Stages).decisions[0].product
    };
    assert!(is_product("rfd24") && !is_product("dapi"));
    let terms = ["memory 1".to_owned(), "disk 2".to_owned()];
    assert_eq!(placement::joined(&terms, true), "memory 1 × disk 2, scaled");
    assert_eq!(placement::joined(&terms, false), "memory 1 + disk 2");
}

/// An error in a policy file is reported where its author looks for it.
#[test]
fn faults_of_stages_and_expressions() {
    let stage = "name = \"x\"\n[[stage]]\nfilter = \"memory\"\n[[stage]]\n";
    let with = |rest: &str| format!("{stage}{rest}");
    let objective = |rest: &str| with(&format!("score = \"objective\"\n{rest}"));
    let literal = "expression = '''\n1 +\n  r.AvailableMemoryMb'''";
    for (text, line, column, part) in [
        (with("filer = \"memory\""), 5, 1, "did you mean \"filter\"?"),
        (
            with("weight = 2\nscoer = \"memory\""),
            6,
            1,
            "did you mean \"score\"?",
        ),
        (
            with("kind = \"lrp\""),
            5,
            1,
            "expected one of filter, narrow, score, pick",
        ),
        (objective(""), 4, 1, "expected expression = "),
        (objective("alpha = 0.5"), 6, 9, "that sum to 1"),
        (
            "preset = \"objective\"\nbeta = 7".into(),
            2,
            8,
            "that sum to 1",
        ),
        (
            objective(literal),
            8,
            3,
            "did you mean r.AvailableMemoryMB?",
        ),
        (
            objective("expression = \"\"\"r.Nothing\"\"\""),
            6,
            17,
            "expression: unknown",
        ),
        (
            objective("expression = \"1 + r.Nothing\""),
            6,
            14,
            "column 5: unknown",
        ),
    ] {
        let error = Policy::parse(&text).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(part), "{text}\n{message}");
        assert_eq!(
            (error.line, error.column),
            (line, column),
            "{text}\n{message}"
        );
    }
}

#[test]
fn an_invalid_trait_names_what_is_expected() {
    let text = r#"{"cells":[],"requests":[
        {"app":"a","memory_mb":1,"disk_mb":1,"traits":{"ssd":TRAIT}}]}"#;
    for good in ["true", "\"x\"", "[\"x\",\"y\"]", "[]"] {
        let scenario = OfflineAuction::from_json(&text.replace("TRAIT", good)).unwrap();
        let back = serde_json::to_string(&scenario.requests[0].traits["ssd"]).unwrap();
        assert_eq!(back, good);
    }
    for bad in ["5", "null", "{}"] {
        let error = OfflineAuction::from_json(&text.replace("TRAIT", bad)).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("requests[0].traits.ssd: "), "{error}");
        assert!(
            error.contains("expected true, false, a string or a list of strings"),
            "{error}"
        );
    }
}

/// A row contains what was needed, and there is one row for all cells that lack the same.
#[test]
fn a_reason_has_what_was_needed() {
    let told = |request: serde_json::Value, parameters: serde_json::Value| {
        let cell = |name: &str, own: serde_json::Value| {
            let mut cell = serde_json::json!({
                "cell": name, "total": {"memory_mb": 9}, "available": {"memory_mb": 9},
                "next_reboot": "2026-01-03", "reboot_batch": "b7", "apps": {"y": 3},
            });
            cell.as_object_mut()
                .unwrap()
                .extend(own.as_object().unwrap().clone());
            cell
        };
        let mut asked = serde_json::json!({"app": "x", "memory_mb": 1, "disk_mb": 1});
        asked
            .as_object_mut()
            .unwrap()
            .extend(request.as_object().unwrap().clone());
        let scenario = serde_json::json!({
            "now": "2026-01-01", "policy": parameters, "requests": [asked],
            "cells": [
                cell("a", serde_json::json!({})),
                cell("b", serde_json::json!({"apps": {"y": 4}, "next_reboot": "2026-01-04"})),
            ],
        });
        let report = OfflineAuction::from_json(&scenario.to_string())
            .unwrap()
            .run(Explain::Winner);
        let tally = &report.decisions[0].tally;
        assert_eq!(tally.len(), 1, "{tally:?}");
        tally[0].in_words()
    };
    let asks = |request: serde_json::Value| told(request, "dapi".into());
    let diego = |request: serde_json::Value| told(request, "diego".into());
    let of = |parameter: &str, value: serde_json::Value| {
        let parameters = serde_json::json!({"preset": "dapi", parameter: value});
        told(serde_json::json!({}), parameters)
    };
    for (words, part) in [
        (
            asks(serde_json::json!({"traits": {"ssd": true}})),
            "required: {\"ssd\":true}",
        ),
        (
            asks(serde_json::json!({"volumes_from": ["v", "w"]})),
            "volumes: v, w",
        ),
        (
            asks(serde_json::json!({
                "min_platform": {"7.0": "20260101T000000Z"},
                "max_platform": {"8.0": "20270101T000000Z"},
            })),
            "has no platform; needs at least 7.0 20260101T000000Z and at most 8.0 20270101T000000Z",
        ),
        (
            diego(serde_json::json!({"volume_drivers": ["nfs"]})),
            "drivers: nfs",
        ),
        (
            diego(serde_json::json!({"placement_tags": ["ssd"]})),
            "placement tags: ssd",
        ),
        (
            of("max_containers", 3.into()),
            "instances (3), needs 1, the best has 0",
        ),
        (
            of("reboot_within", 7.into()),
            "within 7 days, needs 7, the best has 3",
        ),
        (
            of("reboot_within", "b7".into()),
            "is in the reboot batch \"b7\"",
        ),
    ] {
        assert!(words.contains(part), "{words}");
    }
}

/// Returns the decisions of a scenario, sorted by `app.index`.
fn decided(scenario: &serde_json::Value, explain: Explain) -> Vec<placement::DecisionReport> {
    let scenario = OfflineAuction::from_json(&scenario.to_string()).unwrap();
    let mut decisions = scenario.run(explain).decisions;
    decisions.sort_by(|a, b| (&a.app, a.index).cmp(&(&b.app, b.index)));
    decisions
}

/// Information that no cell has lowers no score: no stamp anywhere, no disk limit anywhere.
#[test]
fn a_term_that_no_cell_can_answer_is_out() {
    let cell = |name: &str, free: i64, stamp: Option<&str>, disk: Option<i64>| {
        serde_json::json!({
            "cell": name,
            "total": {"memory_mb": 1000, "disk_mb": disk},
            "available": {"memory_mb": free, "disk_mb": disk},
            "platform": stamp.map(|s| serde_json::json!({"version": "7.0", "stamp": s})),
        })
    };
    let terms = |policy: &str, cells: &[serde_json::Value]| {
        let scenario = serde_json::json!({
            "policy": policy, "cells": cells,
            "requests": [{"app": "x", "memory_mb": 100, "disk_mb": 0}],
        });
        decided(&scenario, Explain::Stages).remove(0)
    };
    let term = |decision: &placement::DecisionReport, name: &str| {
        let found = decision.ratings[0].terms.iter().find(|(n, _)| n == name);
        found.unwrap().1
    };
    let bare = [
        cell("full", 200, None, None),
        cell("half", 500, None, None),
        cell("free", 900, None, None),
    ];
    for (policy, weight) in [("dapi", 1.0), ("rfd24", 1.0)] {
        let decision = terms(policy, &bare);
        assert!((term(&decision, "platform") - weight).abs() < 1e-12);
        assert!((term(&decision, "disk") - weight).abs() < 1e-12);
        assert!(decision.score.unwrap() > 0.0, "{policy}");
    }
    // the fullest cell wins by far more than chance, unlike when all were worth nothing
    let wins = (0..40).filter(|seed| {
        let scenario = serde_json::json!({
            "policy": "rfd24", "seed": seed, "cells": bare,
            "requests": [{"app": "x", "memory_mb": 100, "disk_mb": 0}],
        });
        decided(&scenario, Explain::Winner)[0].cell.as_deref() == Some("full")
    });
    assert!(wins.count() > 28);
    // an unreadable stamp among readable ones is the worst, as always
    let mixed = [
        cell("full", 200, None, Some(1000)),
        cell("half", 500, Some("20260101T000000Z"), None),
    ];
    let decision = terms("rfd24", &mixed);
    assert_eq!(decision.score, Some(0.0));
}

/// A failure describes the moment at which it occurred, whether or not an explanation was requested.
#[test]
fn a_failure_has_the_numbers_of_its_moment() {
    let scenario = serde_json::json!({
        "policy": "diego",
        "cells": [{
            "cell": "a",
            "total": {"memory_mb": 350, "disk_mb": 150, "cpu_millis": 1000},
            "available": {"memory_mb": 350, "disk_mb": 150, "cpu_millis": 1000},
        }],
        "requests": [
            {"app": "x", "instances": 2, "memory_mb": 300, "disk_mb": 200},
            {"app": "y", "memory_mb": 100, "disk_mb": 10},
        ],
    });
    let quick = decided(&scenario, Explain::Finalists);
    let slow = decided(&scenario, Explain::Stages);
    for (quick, slow) in quick.iter().zip(&slow) {
        assert_eq!(quick.reason, slow.reason);
        assert_eq!(quick.tally, slow.tally);
    }
    let reason = |at: usize| quick[at].reason.as_deref();
    assert_eq!(reason(0), Some("insufficient resources: disk"));
    assert_eq!(reason(1), Some("insufficient resources: disk, memory"));
    assert_eq!(quick[2].cell.as_deref(), Some("a"));
    let best = |stage: &str| {
        let row = quick[1].tally.iter().find(|row| row.stage == stage);
        row.and_then(|row| row.needs.zip(row.best))
    };
    assert_eq!(best("memory"), Some((300.0, 250.0)));
    assert_eq!(best("disk"), Some((200.0, 140.0)));
}

/// Each resource that the text names has its numbers, and only the stage that dropped the cells counts them.
#[test]
fn every_resource_that_is_lacking_has_a_row() {
    let scenario = serde_json::json!({
        "policy": "diego",
        "cells": [
            {"cell": "a", "total": {"memory_mb": 100, "disk_mb": 50, "cpu_millis": 10, "extra": {"gpu": 1}},
             "available": {"memory_mb": 100, "disk_mb": 50, "cpu_millis": 10, "extra": {"gpu": 1}}},
            {"cell": "b", "total": {"memory_mb": 200, "disk_mb": 20, "cpu_millis": 20},
             "available": {"memory_mb": 200, "disk_mb": 20, "cpu_millis": 20}},
        ],
        "requests": [{"app": "x", "memory_mb": 300, "disk_mb": 60, "cpu_millis": 30,
                      "extra": {"gpu": 4, "npu": 2}}],
    });
    let why = decided(&scenario, Explain::Stages).remove(0);
    let reason = "insufficient resources: cpu, disk, gpu, memory, npu";
    assert_eq!(why.reason.as_deref(), Some(reason));
    let mut rows: Vec<_> = why
        .tally
        .iter()
        .map(|row| {
            let name = row.reason.as_deref().unwrap_or(&row.stage);
            (name, row.needs.unwrap(), row.best.unwrap())
        })
        .collect();
    rows.sort_by(|a, b| a.0.cmp(b.0));
    let expected = [
        ("cpu", 30.0, 20.0),
        ("disk", 60.0, 50.0),
        ("gpu", 4.0, 1.0),
        ("memory", 300.0, 200.0),
        ("npu", 2.0, 0.0),
    ];
    assert_eq!(rows, expected);
    let dropped: usize = why.tally.iter().map(|row| row.cells).sum();
    assert_eq!(dropped, 2);
    let words: Vec<String> = why.tally.iter().map(placement::Tally::in_words).collect();
    assert!(
        words
            .iter()
            .any(|w| w == "disk: also insufficient, needs 60, the best has 50"),
        "{words:?}"
    );
}

/// Whatever the policy: its cells are named, and not those that it excludes.
#[test]
fn what_a_request_excludes_is_left_out_and_told() {
    for preset in Policy::PRESETS {
        let policy = Policy::preset(preset).unwrap();
        let mut pool = placement::Pool::default();
        for name in ["a", "b"] {
            let room = placement::Resources::new(1_000, 1_000, 100);
            pool.put(placement::Cell::new(name, room));
        }
        let mut plan = |excluded: &[&str]| {
            let mut request = placement::Request::new("web", 10, 10);
            request.exclude_cells = excluded.iter().map(|name| (*name).to_owned()).collect();
            let jobs = std::sync::Arc::new(request).jobs();
            let plan = pool.plan(&jobs, &policy, &placement::PlanContext::default());
            plan.decisions.into_iter().next().unwrap().verdict
        };
        for (excluded, left) in [("a", "b"), ("b", "a")] {
            match plan(&[excluded]) {
                placement::Verdict::Placed { cell } => assert_eq!(&*cell, left, "{preset}"),
                other => panic!("{preset}: {other:?}"),
            }
        }
        let placement::Verdict::Unplaced(why) = plan(&["a", "b"]) else {
            panic!("{preset}");
        };
        assert_eq!(
            why.reason,
            "found no compatible cell that the request does not exclude"
        );
        let row = &why.tally[0];
        assert_eq!((row.stage.as_str(), row.cells), ("exclude-cells", 2));
        assert_eq!(row.reason.as_deref(), Some("the request excludes it"));
    }
}
