//! Scenario files: what is refused, where and how.
#![allow(clippy::unwrap_used)] // a test may panic

use simulator::scenario::{Decider, Scenario};

const CELL: &str =
    "[[groups]]\nzone = \"z1\"\ntotal = { memory_mb = 100, disk_mb = 100, containers = 10 }\n";

fn error(text: &str) -> String {
    Scenario::read(&format!("{text}\n{CELL}"), true)
        .unwrap_err()
        .to_string()
}

#[test]
fn errors_name_the_path_the_value_and_what_was_expected() {
    for (text, parts) in [
        (
            "auctioneers = 0",
            &["auctioneers: 0 is not allowed", "1 and more"][..],
        ),
        ("array = 0", &["array: 0", "1 to 10000"]),
        ("price_per_cell_hour = -1.0", &["price_per_cell_hour", "-1"]),
        ("duration = \"long\"", &["duration", "long"]),
        (
            "policies = [\"diego\", \"diego\"]",
            &["policies[1]", "diego", "each policy once"],
        ),
        ("policies = [\"digo\"]", &["policies[0]", "digo"]),
        (
            "policy = \"diego\"\npolicies = [\"dea\"]",
            &["policy", "not both"],
        ),
        (
            "[network]\nlatency = \"soon\"",
            &["network.latency", "soon", "uniform:"],
        ),
        ("[network]\nloss = 1.5", &["network.loss", "1.5", "below 1"]),
        ("[network]\nlos = 0.5", &["network", "los"]),
        (
            "[[faults]]\nat = \"1s\"\nkind = \"cell-lost\"\ncells = [\"nobody\"]",
            &["faults[0].cells", "nobody", "a cell of this scenario"],
        ),
        (
            "[[faults]]\nat = \"1s\"\nkind = \"cell-lost\"",
            &["faults[0].cells", "the names of cells"],
        ),
        (
            "[[faults]]\nat = \"1s\"\nkind = \"zone-cut\"\nzone = \"z9\"",
            &["faults[0].zone", "z9"],
        ),
        (
            "[[faults]]\nat = \"1s\"\nkind = \"flood\"",
            &["faults[0].kind", "flood", "cell-lost"],
        ),
        (
            "[[faults]]\nat = \"1s\"\nkind = \"auctioneer-restart\"\nauctioneer = 3",
            &["faults[0].auctioneer", "3", "below auctioneers (1)"],
        ),
        (
            "[[workload]]\nat = \"1s\"",
            &["workload[0]", "exactly one of"],
        ),
        (
            "[[workload]]\nstart = { app = \"a b\", memory_mb = 1, disk_mb = 1 }",
            &["workload[0].start", "a b"],
        ),
    ] {
        let error = error(text);
        for part in parts {
            assert!(error.contains(part), "{text:?}: {error:?} lacks {part:?}");
        }
    }
}

#[test]
fn contenders_have_labels_and_parameters() {
    let text = format!(
        "policies = [\"dea\", {{ preset = \"diego\", starting_weight = 0.5, label = \"half\" }}, \"era-pick-best\"]\n{CELL}"
    );
    let scenario = Scenario::read(&text, true).unwrap();
    let labels: Vec<&str> = scenario
        .contenders
        .iter()
        .map(|c| c.label.as_str())
        .collect();
    assert_eq!(labels, ["dea", "half", "era-pick-best"]);
    assert!(matches!(scenario.contenders[2].decider, Decider::Era(_)));
    let Decider::Policy(half) = &scenario.contenders[1].decider else {
        panic!("a policy")
    };
    assert!(half.to_toml().contains("0.5"));
}

#[test]
fn json_is_read_as_well() {
    let json = r#"{"name":"j","cells":[{"cell":"c","total":{"memory_mb":10},"available":{"memory_mb":10}}],
        "requests":[{"app":"a","memory_mb":1,"disk_mb":1}]}"#;
    let scenario = Scenario::read(json, false).unwrap();
    assert_eq!(scenario.demands(1).unwrap().len(), 1);
    assert_eq!(scenario.contenders[0].label, "diego");
}
