//! Policy files and scenario files: what reads back, and what is refused, where and how.
#![allow(clippy::unwrap_used, clippy::too_many_lines)] // a test may panic, a table may be long

use std::collections::BTreeSet;

use placement::{Explain, Policy, Scenario};

#[test]
fn presets_read_back_as_themselves() {
    let mut hashes = BTreeSet::new();
    for name in Policy::PRESETS {
        let preset = Policy::preset(name).unwrap();
        assert_eq!(preset.name(), *name);
        let from_file = Policy::parse(Policy::preset_text(name).unwrap()).unwrap();
        let written = Policy::parse(&preset.to_toml()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(from_file, preset);
        assert_eq!(written, preset);
        assert_eq!(written.hash(), preset.hash());
        assert!(
            hashes.insert(preset.hash()),
            "{name} has another preset's hash"
        );
        assert_eq!(preset.wants_bids(), !["dea", "random"].contains(name));
    }
    let changed = Policy::parse("preset = \"diego\"\nstarting_weight = 0.5").unwrap();
    assert!(!hashes.contains(&changed.hash()));
}

#[test]
fn faults_of_policy_files() {
    let stage = "name = \"x\"\n[[stage]]\nfilter = \"memory\"\n[[stage]]\n";
    let with = |rest: &str| format!("{stage}{rest}");
    for (text, line, column, part, nearest) in [
        ("name = ", 1, 8, "", None),
        ("", 1, 1, "has no name", None),
        ("name = \"x\"", 1, 1, "no stages", None),
        ("name = \"x y\"", 1, 8, "A-Z a-z 0-9 _ -", None),
        (
            "preset = \"digo\"",
            1,
            10,
            "unknown preset \"digo\"",
            Some("diego"),
        ),
        (
            "preset = \"diego\"\nstarting_wieght = 1",
            2,
            1,
            "unknown key",
            Some("starting_weight"),
        ),
        (
            "preset = \"diego\"\nstarting_weight = \"1\"",
            2,
            19,
            "expected a finite number",
            None,
        ),
        (
            "preset = \"diego\"\nmax_in_flight = -1",
            2,
            17,
            "a whole number from 0",
            None,
        ),
        (
            "preset = \"dea\"\nmax_in_flight = 1",
            2,
            1,
            "unknown key",
            None,
        ),
        (
            "preset = \"dapi\"\nmode = \"rnk\"",
            2,
            8,
            "unknown mode",
            Some("rank"),
        ),
        (
            "preset = \"dapi-2015\"\nsort = \"max\"",
            2,
            8,
            "sort-max-ram",
            None,
        ),
        (
            "preset = \"objective\"\nexpression = \"r.Memory\"",
            2,
            14,
            "column 1: unknown attribute",
            None,
        ),
        (
            &with("filter = \"memroy\""),
            5,
            10,
            "unknown filter",
            Some("memory"),
        ),
        (&with("narrow = \"zone\""), 5, 10, "unknown narrow", None),
        (
            &with("score = \"memory\"\nwight = 2"),
            6,
            1,
            "unknown key in the stage",
            Some("weight"),
        ),
        (
            &with("score = \"platform\"\nmode = \"raw\""),
            5,
            9,
            "no raw mode",
            None,
        ),
        (
            &with("score = \"memory\"\nfilter = \"disk\""),
            4,
            1,
            "exactly one of",
            None,
        ),
        (&with("pick = \"lowest\""), 1, 1, "at least one score", None),
        (
            &with("pick = \"sample\"\n[[stage]]\nfilter = \"disk\""),
            6,
            1,
            "after the pick",
            None,
        ),
        (&with("filter = \"disk\""), 1, 1, "without a pick", None),
        (
            &with("filter = \"disk\"\nkind = \"taks\""),
            6,
            8,
            "unknown kind",
            Some("task"),
        ),
        (
            &with("pick = \"first-of\"\nfraction = 2"),
            6,
            12,
            "0 to 1",
            None,
        ),
    ] {
        let error = Policy::parse(text).expect_err(text);
        assert!(error.message.contains(part), "{text}: {error}");
        assert_eq!(
            (error.line, error.column),
            (line, column),
            "{text}: {error}"
        );
        assert_eq!(error.nearest.as_deref(), nearest, "{text}: {error}");
    }
}

/// Stages of different systems in one policy.
#[test]
fn stages_combine_freely() {
    let text = r#"
        name = "mine"
        order = "diego"
        [[stage]]
        filter = "evacuating"
        [[stage]]
        filter = "memory"
        [[stage]]
        filter = "networks"
        [[stage]]
        narrow = "zone-fewest"
        kind = "lrp"
        [[stage]]
        score = "platform"
        [[stage]]
        score = "objective"
        weight = 0.5
        expression = "r.AvailableMemoryMB / r.TotalMemoryMB"
        [[stage]]
        pick = "highest"
    "#;
    let policy = Policy::parse(text).unwrap();
    assert!(policy.has_objective());
    let scenario = r#"{"cells": [
        {"cell":"old","total":{"memory_mb":100},"available":{"memory_mb":100},"platform":{"version":"7.0","stamp":"20250101T000000Z"}},
        {"cell":"full","total":{"memory_mb":100},"available":{"memory_mb":20},"platform":{"version":"7.0","stamp":"20260101T000000Z"}},
        {"cell":"free","total":{"memory_mb":100},"available":{"memory_mb":90},"platform":{"version":"7.0","stamp":"20260101T000000Z"}}],
        "requests": [{"app":"a","memory_mb":10,"disk_mb":1}]}"#;
    let mut scenario = Scenario::from_json(scenario).unwrap();
    scenario.policy = policy;
    let report = scenario.run(Explain::Stages);
    assert_eq!(report.decisions[0].cell.as_deref(), Some("free"));
    assert_eq!(
        report.decisions[0].scores[0].terms[1],
        ("objective".into(), 0.45)
    );
}

const SCENARIO: &str = r#"{"name":"two","now":"2026-01-01T00:00:00Z","ttl":"15s","policy":"diego","seed":7,
 "cells":[{"cell":"a","total":{"memory_mb":100,"disk_mb":100},"available":{"memory_mb":100,"disk_mb":100}},
          {"cell":"b","total":{"memory_mb":100,"disk_mb":100},"available":{"memory_mb":100,"disk_mb":100},"age":"15s"}],
 "requests":[{"app":"x","instances":2,"memory_mb":60,"disk_mb":1}]}"#;

#[test]
fn a_scenario_is_decided() {
    let scenario = Scenario::from_json(SCENARIO).unwrap();
    assert_eq!(scenario.warnings, Vec::<String>::new());
    let report = scenario.run(Explain::Winner);
    let json = serde_json::to_value(&report).unwrap();
    let cost = report.decisions[0].cost.unwrap();
    assert_eq!(
        json,
        serde_json::json!({"decisions": [
            {"app": "x", "index": 0, "kind": "lrp", "outcome": "placed", "cell": "a",
             "finalists": ["a"], "cost": cost},
            {"app": "x", "index": 1, "kind": "lrp", "outcome": "unplaced",
             "reason": "insufficient resources: memory",
             "tally": [{"stage": "expired", "cells": 1, "reason": "the advertisement expired"},
                       {"stage": "memory", "cells": 1, "needs": 60.0, "best": 40.0}]}]})
    );
    let text = report.render();
    assert!(text.starts_with("lrp   x.0  a  cost 0.2033\n"), "{text}");
    assert!(
        text.contains("      memory: 1 cell dropped, needs 60, the best has 40\n"),
        "{text}"
    );
    assert!(text.ends_with("1 placed, 1 not placed\n"), "{text}");
}

#[test]
fn toml_says_the_same_as_json() {
    let toml = r#"
        name = "two"
        now = 2026-01-01T00:00:00Z
        policy = { preset = "diego", starting_weight = 0.25 }
        seed = 7
        [[cells]]
        cell = "a"
        total = { memory_mb = 100, disk_mb = 100 }
        available = { memory_mb = 100, disk_mb = 100 }
        [[cells]]
        cell = "b"
        age = "15s"
        total = { memory_mb = 100, disk_mb = 100 }
        available = { memory_mb = 100, disk_mb = 100 }
        [[requests]]
        app = "x"
        instances = 2
        memory_mb = 60
        disk_mb = 1
    "#;
    let toml = Scenario::from_toml(toml).unwrap().run(Explain::Winner);
    assert_eq!(
        toml,
        Scenario::from_json(SCENARIO).unwrap().run(Explain::Winner)
    );
}

#[test]
fn faults_of_scenarios() {
    for (from, to, expected) in [
        ("\"seed\":7", "\"seed\":", "line 1, column 80: "),
        ("\"seed\":7", "\"seed\":-1", "seed: invalid value"),
        (
            "\"now\":\"2026-01-01T00:00:00Z\"",
            "\"now\":\"soon\"",
            "now: \"soon\" is not allowed",
        ),
        (
            "\"ttl\":\"15s\"",
            "\"ttl\":\"15 bananas\"",
            "ttl: \"15 bananas\" is not allowed",
        ),
        (
            "\"policy\":\"diego\"",
            "\"policy\":\"digeo\"",
            "policy: unknown policy \"digeo\"",
        ),
        (
            "\"policy\":\"diego\"",
            "\"policy\":\"diego\",\"pick\":\"last\"",
            "pick: \"last\"",
        ),
        (
            "\"cell\":\"b\"",
            "\"cell\":\"a\"",
            "cells[1].cell: \"a\" is not allowed; expected each name once",
        ),
        (
            "\"cell\":\"b\"",
            "\"cell\":\"b c\"",
            "cells[1].cell: \"b c\"",
        ),
        (
            "\"memory_mb\":60",
            "\"memory_mb\":-60",
            "requests[0].memory_mb: -60",
        ),
        (
            "\"memory_mb\":60",
            "\"memory_mb\":\"much\"",
            "requests[0].memory_mb: invalid type",
        ),
        ("\"memory_mb\":60,", "", "requests[0]"),
        (
            "\"app\":\"x\"",
            "\"app\":\"x\",\"near\":[\"web\"]",
            "requests[0].near: \"web\"",
        ),
        (
            "\"age\":\"15s\"",
            "\"next_reboot\":\"tomorrow\"",
            "cells[1].next_reboot: \"tomorrow\"",
        ),
    ] {
        assert!(SCENARIO.contains(from), "{from}");
        let text = SCENARIO.replacen(from, to, 1);
        let error = Scenario::from_json(&text).expect_err(to).to_string();
        assert!(error.starts_with(expected), "{to}: {error}");
    }
    let misspelt = SCENARIO.replacen("\"instances\"", "\"instnces\"", 1);
    assert_eq!(
        Scenario::from_json(&misspelt).unwrap().warnings,
        ["requests.0.instnces"]
    );
    let error = Scenario::from_toml("cells = 3 4").unwrap_err().to_string();
    assert!(error.starts_with("line 1, column "), "{error}");
}

#[test]
fn a_request_brings_its_own_objective() {
    let request =
        r#""requests":[{"app":"x","memory_mb":10,"disk_mb":1,"objective":"r.TotalMemoryMB"}]"#;
    let cells = r#"{"policy":"objective","cells":[
        {"cell":"small","total":{"memory_mb":100},"available":{"memory_mb":100}},
        {"cell":"large","total":{"memory_mb":900},"available":{"memory_mb":100}}],"#;
    let report = Scenario::from_json(&format!("{cells}{request}}}"))
        .unwrap()
        .run(Explain::Winner);
    assert_eq!(report.decisions[0].cell.as_deref(), Some("large"));
    assert_eq!(report.decisions[0].score, Some(900.0));
    let wrong = request.replace("TotalMemoryMB", "Nothing");
    let error = Scenario::from_json(&format!("{cells}{wrong}}}"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("requests[0].objective: column 1: unknown attribute"),
        "{error}"
    );
    // divided by nothing: costs the cell the auction, not the process
    let infinite = request.replace("r.TotalMemoryMB", "1 / (r.TotalMemoryMB - 900)");
    let report = Scenario::from_json(&format!("{cells}{infinite}}}"))
        .unwrap()
        .run(Explain::Winner);
    assert_eq!(report.decisions[0].cell.as_deref(), Some("small"));
    let never = request.replace("r.TotalMemoryMB", "1 / 0");
    let report = Scenario::from_json(&format!("{cells}{never}}}"))
        .unwrap()
        .run(Explain::Winner);
    let why = &report.decisions[0];
    assert_eq!(
        why.reason.as_deref(),
        Some("found no compatible cell with a finite score")
    );
    assert_eq!(why.tally.last().map(|tally| tally.cells), Some(2));
}

/// The documentation's own policies are policies, and it names every stage.
#[test]
fn the_documented_policies_are_sound() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/POLICIES.md");
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap());
    let blocks: Vec<&str> = blocks.collect();
    assert_eq!(blocks.len(), 4);
    for block in blocks {
        let policy = Policy::parse(block).unwrap_or_else(|e| panic!("{e}\n{block}"));
        assert!(!Policy::PRESETS.contains(&policy.name()));
        assert_eq!(policy.unheld(), [""; 0], "{block}");
    }
    let example = include_str!("../../examples/policy.toml");
    assert_eq!(Policy::parse(example).unwrap().unheld(), [""; 0]);
    let error = Policy::parse("name = \"x\"\n[[stage]]\nfilter = \"?\"").unwrap_err();
    let filters = error.message.split("one of ").nth(1).unwrap().split(", ");
    for name in filters.chain(Policy::PRESETS.iter().copied()) {
        assert!(
            text.contains(&format!("`{name}`")),
            "{name} is not documented"
        );
    }
}

/// What a policy does not look at is said, and what it would break is refused.
#[test]
fn what_a_policy_does_not_heed_is_said() {
    let all = serde_json::json!({
        "app": "x", "memory_mb": 1, "disk_mb": 1, "cpu_millis": 1, "extra": {"gpu": 1},
        "near": ["app:y"], "far": ["app:z"], "traits": {"ssd": true}, "networks": [["n"]],
        "min_platform": {"7.0": "20260101T000000Z"}, "max_platform": {"7.0": "20260101T000000Z"},
        "volumes_from": ["v"], "volume_drivers": ["nfs"], "placement_tags": ["t"], "stack": "linux",
        "overcommit": {"cpu": 1.0}, "objective": "r.TotalMemoryMB", "owner": "o",
    });
    let request: placement::Request = serde_json::from_value(all).unwrap();
    let unheeded = |policy: &str| -> Vec<String> {
        let lines = Policy::preset(policy).unwrap().unheeded(&request);
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
    assert_eq!(unheeded("diego"), diego);
    let dapi = ["volume_drivers", "placement_tags", "objective"];
    assert_eq!(unheeded("dapi"), dapi);
    assert!(!unheeded("objective").contains(&"objective".to_owned()));
    let nothing = Policy::parse("name = \"n\"\n[[stage]]\npick = \"sample\"").unwrap();
    assert_eq!(nothing.unheeded(&request).len(), 14);
    let line = &nothing.unheeded(&request)[0];
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
        let own = policy.unheeded(&plain);
        assert_eq!(
            policy.check_request(&strict).is_ok(),
            policy.has_locality(),
            "{preset}"
        );
        assert!(policy.check_request(&plain).is_ok(), "{preset}: {own:?}");
        assert_eq!(policy.unheld(), [""; 0], "{preset}");
    }
    let error = Policy::preset("diego").unwrap().check_request(&strict);
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("strict") && error.contains("dapi, rfd24, dapi-2015"),
        "{error}"
    );

    // a plan that nothing holds back
    assert_eq!(
        nothing.unheld(),
        ["memory", "disk", "containers", "cpu", "extra"]
    );
    let tasks_only = "name = \"n\"\n[[stage]]\nfilter = \"cpu\"\nkind = \"task\"\n\
        [[stage]]\nfilter = \"memory\"\n[[stage]]\npick = \"sample\"";
    let tasks_only = Policy::parse(tasks_only).unwrap();
    assert_eq!(tasks_only.unheld(), ["disk", "containers", "cpu", "extra"]);
}

#[test]
fn a_scenario_says_once_what_is_not_heeded() {
    let text = r#"{"policy":"diego","cells":[],"requests":[
        {"app":"a","memory_mb":1,"disk_mb":1},
        {"app":"b","memory_mb":1,"disk_mb":1,"objective":"1","far":["app:a"]},
        {"app":"c","memory_mb":1,"disk_mb":1,"objective":"2"}]}"#;
    let scenario = Scenario::from_json(text).unwrap();
    let expected = [
        "requests[1].far: the policy diego has no stage for it; ignored",
        "requests[1].objective: the policy diego has none; ignored (and 1 more alike)",
    ];
    assert_eq!(scenario.unheeded(), expected);
    let strict = text.replace(r#""far":["#, r#""strict":true,"far":["#);
    let error = Scenario::from_json(&strict).unwrap_err().to_string();
    assert!(error.starts_with("requests[1].strict: true"), "{error}");
}

/// TOML has numbers that JSON has not, and that no amount may be.
#[test]
fn a_scenario_without_finite_numbers_is_refused() {
    for number in ["nan", "inf", "-inf"] {
        let text = format!(
            "[[cells]]\ncell = \"a\"\ntotal = {{ memory_mb = 1, disk_mb = {number} }}\n\
             available = {{ memory_mb = 1 }}"
        );
        let error = Scenario::from_toml(&text).unwrap_err().to_string();
        assert!(error.starts_with("cells[0].total.disk_mb: "), "{error}");
        assert!(error.contains("expected a finite number"), "{error}");
    }
}

#[test]
fn nothing_is_more_available_than_there_is() {
    let text = r#"{"cells":[{"cell":"a",
        "total":{"memory_mb":10,"disk_mb":10,"cpu_millis":10,"extra":{"gpu":1}},
        "available":{"memory_mb":10,"disk_mb":10,"cpu_millis":10,"extra":{"gpu":1}}}]}"#;
    Scenario::from_json(text).unwrap();
    let total = text.find("available").unwrap();
    for (field, now) in [("memory_mb\":10", 11), ("disk_mb\":10", 12), ("gpu\":1", 2)] {
        let (before, available) = text.split_at(total);
        let (name, _) = field.split_once('"').unwrap();
        let more = available.replacen(field, &format!("{name}\":{now}"), 1);
        let error = Scenario::from_json(&format!("{before}{more}"));
        let error = error.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("cells[0].available.{name}: {now}")),
            "{error}"
        );
    }
}

/// A product is shown as one.
#[test]
fn a_product_is_not_shown_as_a_sum() {
    let text = r#"{"policy":"POLICY","cells":[
        {"cell":"a","total":{"memory_mb":10},"available":{"memory_mb":10}}],
        "requests":[{"app":"x","memory_mb":1,"disk_mb":1}]}"#;
    let rendered = |policy: &str| {
        let scenario = Scenario::from_json(&text.replace("POLICY", policy)).unwrap();
        scenario.run(Explain::Stages).render()
    };
    let product = rendered("rfd24");
    assert!(
        product.contains(" × disk") && !product.contains(" + "),
        "{product}"
    );
    let sum = rendered("dapi");
    assert!(sum.contains(" + disk") && !sum.contains('×'), "{sum}");
}

/// A fault in a policy file is where its author looks for it.
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
fn a_trait_says_what_it_may_be() {
    let text = r#"{"cells":[],"requests":[
        {"app":"a","memory_mb":1,"disk_mb":1,"traits":{"ssd":TRAIT}}]}"#;
    for good in ["true", "\"x\"", "[\"x\",\"y\"]", "[]"] {
        let scenario = Scenario::from_json(&text.replace("TRAIT", good)).unwrap();
        let back = serde_json::to_string(&scenario.requests[0].traits["ssd"]).unwrap();
        assert_eq!(back, good);
    }
    for bad in ["5", "null", "{}"] {
        let error = Scenario::from_json(&text.replace("TRAIT", bad)).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("requests[0].traits.ssd: "), "{error}");
        assert!(
            error.contains("expected true or false, a text or a list of texts"),
            "{error}"
        );
    }
}

/// A row says what was needed, and is one row for all cells that lack the same.
#[test]
fn a_reason_says_what_was_needed() {
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
        let report = Scenario::from_json(&scenario.to_string())
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
            "wanted: {\"ssd\":true}",
        ),
        (
            asks(serde_json::json!({"volumes_from": ["v", "w"]})),
            "volumes: v, w",
        ),
        (
            asks(
                serde_json::json!({"min_platform": {"7.0": "2026"}, "max_platform": {"8.0": "2027"}}),
            ),
            "has no platform; needs at least 7.0 2026 and at most 8.0 2027",
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
            "as allowed (3), needs 1, the best has 0",
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
