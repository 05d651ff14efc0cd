//! Scenario files: what they become, how they are decided, and what is refused, where and how.
#![allow(clippy::unwrap_used, clippy::too_many_lines)] // a test may panic, a table may be long

use std::collections::BTreeSet;

use placement::Explain;
use scenarios::OfflineAuction;

const SCENARIO: &str = r#"{"name":"two","now":"2026-01-01T00:00:00Z","ttl":"15s","policy":"diego","seed":7,
 "cells":[{"cell":"a","total":{"memory_mb":100,"disk_mb":100},"available":{"memory_mb":100,"disk_mb":100}},
          {"cell":"b","total":{"memory_mb":100,"disk_mb":100},"available":{"memory_mb":100,"disk_mb":100},"age":"15s"}],
 "requests":[{"app":"x","instances":2,"memory_mb":60,"disk_mb":1}]}"#;

#[test]
fn a_scenario_is_decided() {
    let scenario = OfflineAuction::from_json(SCENARIO).unwrap();
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
}

#[test]
fn toml_and_json_are_equivalent() {
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
    let toml = OfflineAuction::from_toml(toml)
        .unwrap()
        .run(Explain::Winner);
    assert_eq!(
        toml,
        OfflineAuction::from_json(SCENARIO)
            .unwrap()
            .run(Explain::Winner)
    );
}

#[test]
fn faults_of_scenarios() {
    for (from, to, expected) in [
        ("\"seed\":7", "\"seed\":", "line 1, column 80: "),
        (
            "\"seed\":7",
            "\"seed\":-1",
            "seed: -1 is not allowed; expected a non-negative integer",
        ),
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
            "requests[0].memory_mb: \"much\" is not allowed; expected an integer",
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
        let error = OfflineAuction::from_json(&text).expect_err(to).to_string();
        assert!(error.starts_with(expected), "{to}: {error}");
    }
    let misspelt = SCENARIO.replacen("\"instances\"", "\"instnces\"", 1);
    assert_eq!(
        OfflineAuction::from_json(&misspelt).unwrap().warnings,
        ["requests.0.instnces"]
    );
    let error = OfflineAuction::from_toml("cells = 3 4")
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("line 1, column "), "{error}");
}

#[test]
fn a_request_brings_its_own_objective() {
    let request =
        r#""requests":[{"app":"x","memory_mb":10,"disk_mb":1,"objective":"r.TotalMemoryMB"}]"#;
    let cells = r#"{"policy":"objective","cells":[
        {"cell":"small","total":{"memory_mb":100},"available":{"memory_mb":100}},
        {"cell":"large","total":{"memory_mb":900},"available":{"memory_mb":100}}],"#;
    let report = OfflineAuction::from_json(&format!("{cells}{request}}}"))
        .unwrap()
        .run(Explain::Winner);
    assert_eq!(report.decisions[0].cell.as_deref(), Some("large"));
    assert_eq!(report.decisions[0].score, Some(900.0));
    let wrong = request.replace("TotalMemoryMB", "Nothing");
    let error = OfflineAuction::from_json(&format!("{cells}{wrong}}}"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("requests[0].objective: column 1: unknown attribute"),
        "{error}"
    );
    // divided by nothing: costs the cell the auction, not the process
    let infinite = request.replace("r.TotalMemoryMB", "1 / (r.TotalMemoryMB - 900)");
    let report = OfflineAuction::from_json(&format!("{cells}{infinite}}}"))
        .unwrap()
        .run(Explain::Winner);
    assert_eq!(report.decisions[0].cell.as_deref(), Some("small"));
    let never = request.replace("r.TotalMemoryMB", "1 / 0");
    let report = OfflineAuction::from_json(&format!("{cells}{never}}}"))
        .unwrap()
        .run(Explain::Winner);
    let why = &report.decisions[0];
    assert_eq!(
        why.reason.as_deref(),
        Some("found no compatible cell with a finite score")
    );
    assert_eq!(why.tally.last().map(|tally| tally.cells), Some(2));
}

const GROUPS: &str = r#"
policy = "diego"
duration = "1h"
[[cells]]
cell = "lone"
total = { memory_mb = 100, disk_mb = 100, containers = 10 }
running = [{ app = "shared", count = 2, memory_mb = 10 }]
[[groups]]
count = 3
zone = "z1"
index = 5
stacks = ["linux"]
total = { memory_mb = 1000, disk_mb = 100, containers = 100 }
running = [{ app = "old-{n}", count = "2..4", memory_mb = 10, disk_mb = 1 }, { app = "shared", memory_mb = 1 }]
[[groups]]
prefix = "spare"
total = { memory_mb = 1000 }
[[requests]]
app = "new"
memory_mb = 10
disk_mb = 1
[[workload]]
at = "1s"
"#;

#[test]
fn groups_are_cells_and_what_runs_on_them() {
    let scenario = OfflineAuction::from_toml(GROUPS).unwrap();
    assert_eq!(scenario.warnings, [""; 0]);
    let names: Vec<&str> = scenario.cells.iter().map(|c| c.cell.as_str()).collect();
    assert_eq!(
        names,
        ["lone", "z1-cell-0", "z1-cell-1", "z1-cell-2", "spare-0"]
    );
    let mut apps = BTreeSet::new();
    for (i, cell) in scenario.cells[1..4].iter().enumerate() {
        assert_eq!(
            (cell.zone.as_str(), cell.index),
            ("z1", 5 + u32::try_from(i).unwrap())
        );
        assert_eq!(cell.stacks, ["linux"]);
        let running = &scenario.running[&cell.cell];
        assert!((3..=5).contains(&running.len()), "{}", running.len());
        let memory: i64 = running.iter().map(|job| job.request.memory_mb).sum();
        assert_eq!(cell.available.memory_mb, 1000 - memory);
        assert_eq!((cell.counts.starting, cell.count_of("shared")), (0, 1));
        for job in running.iter().filter(|job| job.request.app != "shared") {
            assert!(
                apps.insert(job.request.app.clone()),
                "{} is there twice",
                job.request.app
            );
        }
    }
    assert_eq!(scenario.cells[0].available.memory_mb, 80);
    let shared = scenario.running.values().flatten();
    let indices: BTreeSet<u32> = shared
        .filter(|j| j.request.app == "shared")
        .map(|j| j.index)
        .collect();
    assert_eq!(indices.len(), 5);
    assert_eq!(scenario.run(Explain::Finalists).decisions.len(), 1);
    // what is drawn comes from the seed
    let other = OfflineAuction::from_toml(&format!("seed = 2\n{GROUPS}")).unwrap();
    let again = OfflineAuction::from_toml(GROUPS).unwrap();
    assert_eq!(scenario.running, again.running);
    assert_ne!(scenario.running, other.running);
}

#[test]
fn faults_of_groups() {
    let total = "total = { memory_mb = 10 }";
    for (text, parts) in [
        ("groups = 3".to_owned(), &["groups", "3", "a list"][..]),
        (
            format!("[[groups]]\ncount = 0\n{total}"),
            &["groups[0].count", "0", "1 to 100000"],
        ),
        (
            format!("[[groups]]\nprefix = 1\n{total}"),
            &["groups[0].prefix", "1"],
        ),
        (
            format!("[[groups]]\ncell = \"a\"\n{total}"),
            &["groups[0].cell", "no such field"],
        ),
        (
            format!("[[groups]]\nzonee = \"a\"\n{total}"),
            &["groups[0].zonee", "no such field"],
        ),
        ("[[groups]]\ncount = 2".to_owned(), &["groups[0]", "total"]),
        (
            format!("[[groups]]\n{total}\nrunning = [{{ app = \"a b\", memory_mb = 1 }}]"),
            &["groups[0].running[0].app", "a b"],
        ),
        (
            format!(
                "[[groups]]\n{total}\nrunning = [{{ app = \"a\", memory_mb = 1, count = \"3..1\" }}]"
            ),
            &["running[0].count", "3..1"],
        ),
        (
            format!(
                "[[groups]]\n{total}\nrunning = [{{ app = \"a\", memory_mb = 1, instances = 2 }}]"
            ),
            &["running[0].instances", "count"],
        ),
        (
            format!("[[groups]]\nprefix = \"a\"\n{total}\n[[groups]]\nprefix = \"a\"\n{total}"),
            &["a-0", "each name once"],
        ),
        (
            format!(
                "[[cells]]\ncell = \"a\"\n{total}\navailable = {{ memory_mb = 1 }}\nrunning = []"
            ),
            &["cells[0].available", "running"],
        ),
    ] {
        let error = OfflineAuction::from_toml(&text).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{text:?}: {error:?} lacks {part:?}");
        }
    }
}
