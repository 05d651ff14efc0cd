//! Policy files and scenario files: what survives writing and reading, and what is rejected, where and how.
#![allow(clippy::unwrap_used, clippy::too_many_lines)] // a test may panic, a table may be long

use std::collections::BTreeSet;

use placement::{Explain, Policy};
use scenarios::OfflineAuction;

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
        assert_eq!(
            preset.wants_bids(),
            !["dea", "random", "vendue"].contains(name)
        );
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
            "an integer from 0",
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
            &with("score = \"resources\"\nof = [\"cpu\", \"gpu\", \"cpu\"]"),
            6,
            21,
            "names \"cpu\" twice",
            None,
        ),
        (
            &with("score = \"resources\"\nof = []"),
            6,
            6,
            "1 to 16",
            None,
        ),
        (
            &with("score = \"fragmentation\""),
            5,
            9,
            "of is missing",
            None,
        ),
        (
            "name = \"x\"\n[[expected]]\nmemory_mb = 1",
            2,
            1,
            "share is missing",
            None,
        ),
        (
            "name = \"x\"\n[[expected]]\nshare = 0",
            3,
            9,
            "a number above 0",
            None,
        ),
        (
            "name = \"x\"\n[[expected]]\nshare = 1\nmemory = 4",
            4,
            1,
            "unknown key in [[expected]]",
            Some("memory_mb"),
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
    let mut scenario = OfflineAuction::from_json(scenario).unwrap();
    scenario.policy = policy;
    let report = scenario.run(Explain::Stages);
    assert_eq!(report.decisions[0].cell.as_deref(), Some("free"));
    assert_eq!(
        report.decisions[0].ratings[0].terms[1],
        ("objective".into(), 0.45)
    );
}

/// The recipe's policy does what the recipe says: copies in different zones, each on the fullest cell.
#[test]
fn the_recipe_of_the_documentation_works() {
    let text = include_str!("../../docs/POLICIES.md");
    let recipe = text.split("```toml\n").nth(1).unwrap();
    let recipe = recipe.split("```").next().unwrap();
    let policy = Policy::parse(recipe).unwrap();
    assert_eq!(policy.name(), "mine");
    let mut pool = placement::Pool::default();
    for (name, zone, free) in [
        ("a", "z1", 900),
        ("b", "z1", 400),
        ("c", "z2", 800),
        ("d", "z2", 300),
        ("full", "z2", 10),
    ] {
        let mut cell = placement::Cell::new(name, placement::Resources::new(1000, 1000, 10));
        cell.attributes_mut().zone = zone.into();
        cell.available.memory_mb = free;
        pool.put(cell);
    }
    let mut request = placement::Request::new("web", 100, 1);
    request.instances = 2;
    let jobs = std::sync::Arc::new(request).jobs();
    let plan = pool.plan(&jobs, &policy, &placement::PlanContext::default());
    let mut cells: Vec<String> = plan
        .decisions
        .iter()
        .map(|decision| match &decision.verdict {
            placement::Verdict::Placed { cell } => cell.to_string(),
            other => format!("{other:?}"),
        })
        .collect();
    cells.sort();
    assert_eq!(cells, ["b", "d"]);
}

/// The documentation's policies are valid, and it names every stage.
#[test]
fn the_documented_policies_are_sound() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/POLICIES.md");
    let text = std::fs::read_to_string(path).unwrap();
    let blocks = text
        .split("```toml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap());
    let blocks: Vec<&str> = blocks.collect();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        let policy = Policy::parse(block).unwrap_or_else(|e| panic!("{e}\n{block}"));
        assert!(!Policy::PRESETS.contains(&policy.name()));
        assert_eq!(policy.unfiltered_resources(), [""; 0], "{block}");
    }
    for example in [
        include_str!("../../examples/policy.toml"),
        include_str!("../../examples/policies/best-fit.toml"),
        include_str!("../../examples/policies/fgd.toml"),
    ] {
        let policy = Policy::parse(example).unwrap();
        assert_eq!(policy.unfiltered_resources(), [""; 0]);
        let again = Policy::parse(&policy.to_toml()).unwrap();
        assert_eq!(again, policy);
    }
    let error = Policy::parse("name = \"x\"\n[[stage]]\nfilter = \"?\"").unwrap_err();
    let filters = error.message.split("one of ").nth(1).unwrap().split(", ");
    for name in filters.chain(Policy::PRESETS.iter().copied()) {
        assert!(
            text.contains(&format!("`{name}`")),
            "{name} is not documented"
        );
    }
}
