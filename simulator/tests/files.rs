//! Scenario files: what is rejected, where and how.
#![allow(clippy::unwrap_used)] // a test may panic

use simulator::scenario::{Decider, Scenario};

const CELL: &str =
    "[[groups]]\nzone = \"z1\"\ntotal = { memory_mb = 100, disk_mb = 100, containers = 10 }\n";

fn error(text: &str) -> String {
    Scenario::read(&format!("{text}\n{CELL}"), true)
        .unwrap_err()
        .to_string()
}

/// A faulty scenario, and what its error contains.
type Case = (&'static str, &'static [&'static str]);

const FAULTY: &[Case] = &[
    (
        "auctioneers = 0",
        &["auctioneers: 0 is not allowed", "1 or more"],
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
    (
        "[network]\nlos = 0.5",
        &["network", "los", "did you mean \"loss\"?"],
    ),
    (
        "duratoin = \"1s\"",
        &["duratoin: unknown field", "did you mean \"duration\"?"],
    ),
    ("reboots = 1", &["reboots: unknown field"]),
    (
        "policies = []",
        &["policies: [] is not allowed", "at least one policy"],
    ),
    (
        "policies = [{ auctions_2014 = { algorithm = \"random\", at_onec = 3 } }]",
        &["policies[0].auctions_2014", "did you mean \"at_once\"?"],
    ),
    (
        "policies = [{ auctions_2014 = { algorithm = \"random\" }, lable = \"x\" }]",
        &["policies[0].lable", "only \"label\""],
    ),
    (
        "policies = [{ preset = \"diego\", startng_weight = 0.5 }]",
        &["policies[0]", "did you mean \"starting_weight\"?"],
    ),
    (
        "[[faults]]\nat = \"1s\"\nkind = \"nats-away\"\nfro = \"1s\"",
        &["faults[0]", "did you mean \"for\"?"],
    ),
    (
        "[[workload]]\nstart = { app = \"a\", memry_mb = 1, disk_mb = 1, memory_mb = 1 }",
        &[
            "workload[0].start",
            "memry_mb",
            "did you mean \"memory_mb\"?",
        ],
    ),
    (
        "[[workload]]\narivals = { every = \"constant:1s\" }",
        &["workload[0]", "did you mean \"arrivals\"?"],
    ),
    (
        "[[groups]]\nzoen = \"z1\"\ntotal = { memory_mb = 1 }",
        &["groups[0].zoen", "did you mean \"zone\"?"],
    ),
    (
        "[[groups]]\ntotal = { memory_mb = \"64GB\" }",
        &["groups[0].total.memory_mb", "64GB"],
    ),
    (
        "[[groups]]\ntotal = { memry_mb = 1, memory_mb = 1 }",
        &["groups[0].total.memry_mb", "did you mean \"memory_mb\"?"],
    ),
    (
        "[[groups]]\nprefix = \"small\"\ntotal = { memory_mb = 10 }\n\
             running = [{ app = \"a\", memory_mb = 50 }]",
        &["small-0.running", "memory_mb: 50 are used", "total of 10"],
    ),
    (
        "[[faults]]\nat = \"1s\"\nkind = \"cell-lost\"\ncells = [\"nobody\"]",
        &["faults[0].cells", "nobody", "a cell of this scenario"],
    ),
    (
        "[[faults]]\nat = \"1s\"\nkind = \"cell-lost\"",
        &["faults[0].cells", "a list of names of cells"],
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
        "[[faults]]\nat = \"1s\"\nkind = \"nats-away\"\ndeadline = \"3s\"",
        &["faults[0].deadline", "3s", "only a cell-drain has one"],
    ),
    (
        "[[faults]]\nat = \"1s\"\nkind = \"cell-drain\"\ncells = [\"z1-cell-0\"]\nfor = \"30s\"",
        &["faults[0].for", "30s", "more than the deadline (30000 ms)"],
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
];

#[test]
fn errors_name_path_value_and_expectation() {
    for (text, parts) in FAULTY {
        let error = error(text);
        for part in *parts {
            assert!(error.contains(part), "{text:?}: {error:?} lacks {part:?}");
        }
    }
}

#[test]
fn contenders_have_labels_and_parameters() {
    let text = format!(
        "policies = [\"dea\", {{ preset = \"diego\", starting_weight = 0.5, label = \"half\" }}, \"diego-2014-pick-best\"]\n{CELL}"
    );
    let scenario = Scenario::read(&text, true).unwrap();
    let labels: Vec<&str> = scenario
        .contenders
        .iter()
        .map(|c| c.label.as_str())
        .collect();
    assert_eq!(labels, ["dea", "half", "diego-2014-pick-best"]);
    assert!(matches!(
        scenario.contenders[2].decider,
        Decider::Auctions2014(_)
    ));
    let Decider::Policy(half) = &scenario.contenders[1].decider else {
        panic!("a policy")
    };
    assert!(half.to_toml().contains("0.5"));
}

#[test]
fn an_empty_file_needs_cells() {
    for (text, toml) in [("", true), ("{}", false)] {
        let error = Scenario::read(text, toml).unwrap_err().to_string();
        assert!(
            error.starts_with("cells: missing; expected [[groups]]"),
            "{error}"
        );
    }
}

#[test]
fn faulty_cells_and_requests_are_refused() {
    for (text, part) in [
        (
            "[[cells]]\ncell = \"c\"\ntotal = { memory_mb = 9 }",
            "cells[0]: missing field `available`; expected \"available\" beside \"total\", or \"running\"",
        ),
        (
            "[[cells]]\ncell = \"c\"\nrunning = []",
            "cells[0]: missing field `total`",
        ),
        (
            "[[groups]]\nzone = \"z\"",
            "groups[0]: missing field `total`",
        ),
        (
            "[[cells]]\ncell = \"c\"\ntotal = { memory_mb = 9 }\navailable = { memory_mb = 9 }\nzoen = \"z\"",
            "zoen: unknown field; did you mean \"zone\"?",
        ),
        (
            "cells = []\n[[requests]]\napp = \"a\"\nmemory_mb = 1\ndisk_mb = 1\ninstanses = 2",
            "instanses: unknown field; did you mean \"instances\"?",
        ),
    ] {
        let error = Scenario::read(text, true).unwrap_err().to_string();
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
}

#[test]
fn work_after_the_end_and_stops_of_unknown_apps_give_warnings() {
    let text = format!(
        "duration = \"5s\"\n\
         [[workload]]\nat = \"10s\"\nstart = {{ app = \"late\", memory_mb = 1, disk_mb = 1 }}\n\
         [[workload]]\nat = \"1s\"\nstop = {{ app = \"nosuch\" }}\n\
         [[faults]]\nat = \"5s\"\nkind = \"nats-away\"\n{CELL}"
    );
    let warnings = Scenario::read(&text, true).unwrap().warnings;
    let [late, stop, fault] = &warnings[..] else {
        panic!("three warnings: {warnings:?}")
    };
    assert!(late.contains("workload[0].at: 10s is not before the end of the scenario (5s)"));
    assert!(stop.contains("workload[1].stop.app: nothing starts \"nosuch\""));
    assert!(fault.contains("faults[0].at"));
}

#[test]
fn json_is_read_as_well() {
    let json = r#"{"name":"j","cells":[{"cell":"c","total":{"memory_mb":10},"available":{"memory_mb":10}}],
        "requests":[{"app":"a","memory_mb":1,"disk_mb":1}]}"#;
    let scenario = Scenario::read(json, false).unwrap();
    assert_eq!(scenario.demands(1).unwrap().len(), 1);
    assert_eq!(scenario.contenders[0].label, "diego");
}
