//! What operators request of a cluster and set for its cells.

use std::fs;

use serde_json::Value;
use testkit::NatsServer;

use crate::{
    common::{Up, end, run, until, vendue},
    roles::Role,
};

const SCENARIO: &str = r#"{"policy":"diego","cells":[
 {"cell":"c1","zone":"z1","stacks":["x"],"total":{"memory_mb":1000,"disk_mb":4000,"extra":{"gpu":2}},
  "available":{"memory_mb":1000,"disk_mb":4000,"extra":{"gpu":1}}},
 {"cell":"c2","zone":"z2","total":{"memory_mb":1000,"disk_mb":4000},"available":{"memory_mb":512,"disk_mb":4000}},
 {"cell":"c3","zone":"z2","evacuating":true,"total":{"memory_mb":1000,"disk_mb":4000},
  "available":{"memory_mb":1000,"disk_mb":4000}}]}"#;

#[test]
fn how_many_more_fit_on_a_scenario() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("scenario.json");
    fs::write(&file, SCENARIO).unwrap();
    let file = file.display().to_string();
    for (more, fits, z1, z2) in [
        (&["--memory", "256"][..], 5, 3, 2),
        (&["--memory", "256", "--kind", "task"], 5, 3, 2),
        (&["--memory", "256", "--stack", "x"], 3, 3, 0),
        (&["--memory", "1", "--extra", "gpu=1"], 1, 1, 0),
        (&["--memory", "513"], 1, 1, 0),
        (&["--memory", "256", "--policy", "dea"], 5, 3, 2),
    ] {
        let args = [
            "capacity",
            "--disk",
            "16",
            "--scenario",
            &file,
            "--output",
            "json",
        ];
        let json = run(&[&args[..], more].concat()).expect(0, &[]).json();
        let of = |zone: &str| json["zones"][zone]["fits"].as_u64().unwrap_or(0);
        assert_eq!(
            (json["fits"].as_u64(), of("z1"), of("z2")),
            (Some(fits), z1, z2),
            "{more:?}: {json}"
        );
    }
    let none = [
        "capacity",
        "--memory",
        "2000",
        "--disk",
        "16",
        "--scenario",
        &file,
    ];
    run(&none).expect(
        3,
        &[
            "MORE FIT",
            "all",
            "insufficient resources: memory (needs 2000 MiB",
        ],
    );
    run(&[&none[..], &["--output", "json"]].concat()).expect(3, &["\"fits\": 0"]);
    for size in ["1953K", "2000MiB", "1.5G"] {
        let args = ["capacity", "--memory", size, "--disk", "16M"];
        let said = run(&[&args[..], &["--scenario", &file]].concat());
        let expected = if size == "1953K" { 2 } else { 3 };
        assert_eq!(said.code, Some(expected), "{size}: {said:?}");
    }
    for (args, text) in [
        (&["--memory=-1"][..], "expected a size"),
        (&["--memory", "1", "--extra", "gpu=x"], "gpu=x"),
        (&["--memory", "1", "--kind", "job"], "lrp, task"),
        (&["--memory", "1", "--policy", "deigo"], "diego"),
        (&["--memory", "1", "--scenario", "/no/such"], "/no/such"),
    ] {
        run(&[&["capacity", "--disk=1"][..], args].concat()).expect(2, &[text]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn how_many_more_fit_on_a_cluster() {
    let up = Up::start();
    let size = ["capacity", "--memory", "500", "--disk", "16"];
    let json = up.json(&size);
    assert_eq!((&json["fits"], &json["cells"]), (&8.into(), &4.into()));
    assert_eq!(json["zones"]["z1"]["most_on_a_cell"], 2);
    up.run(&[
        "run", "--app", "a", "--memory", "600", "--disk", "1", "--", "sleep", "1000",
    ])
    .expect(0, &["placed"]);
    assert_eq!(up.json(&size)["fits"], 6);
    let other = up.json(&[&size[..], &["--policy", "dea"]].concat());
    assert_eq!(
        (&other["fits"], &other["policy"]),
        (&6.into(), &"dea".into())
    );
    up.run(&size)
        .expect(0, &["ZONE", "z2", "all", "4 cells", "policy diego"]);
}

/// Returns the names of the listed cells.
fn names(pool: &Value) -> Vec<&str> {
    let cells = pool["cells"].as_array().unwrap().iter();
    cells.filter_map(|c| c["cell"]["cell"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn cells_are_changed_shown_and_picked() {
    let up = Up::start();
    let set =
        |cell: &str, attributes: &[&str]| up.json(&[&["cells", "set", cell], attributes].concat());
    let answer = set(
        "z1-cell-0",
        &["rack=r1", "next_reboot=2026-12-01", "traits.ssd=true"],
    );
    assert_eq!(answer["changed"]["traits.ssd"], true, "{answer}");
    let stamp = |day: &str| format!("platform={{\"version\":\"7.0\",\"stamp\":\"{day}T000000Z\"}}");
    set("z1-cell-1", &["rack=r1", &stamp("20260102")]);
    set(
        "z2-cell-0",
        &["rack=r2", &stamp("20260401"), "placement_tags=a,b"],
    );
    let picked = |conditions: &[&str]| {
        let mut args = vec!["cells"];
        for condition in conditions {
            args.extend(["--where", condition]);
        }
        names(&up.json(&args)).join(" ")
    };
    until("the auctioneer to have heard of it", || {
        let found = picked(&["rack=r2"]);
        (found == "z2-cell-0").then_some(()).ok_or(found)
    })
    .await;
    assert_eq!(picked(&["rack=r1"]), "z1-cell-0 z1-cell-1");
    assert_eq!(picked(&["rack=r1", "platform<20260301"]), "z1-cell-1");
    assert_eq!(picked(&["next_reboot<2027-01-01"]), "z1-cell-0");
    assert_eq!(picked(&["zone=z2", "rack!=r2"]), "z2-cell-1");
    up.run(&["cells", "--where", "rack=r1"])
        .expect(0, &["z1-cell-1", "2 of 4 cells"]);
    up.run(&["cells", "show", "z2-cell-0"]).expect(
        0,
        &[
            "platform.stamp",
            "20260401T000000Z",
            "a,b",
            "total.memory_mb",
        ],
    );
    assert_eq!(up.json(&["cells", "show", "z1-cell-0"])["rack"], "r1");

    // settings take effect: the policy heeds them at once
    set(
        "z2-cell-0",
        &["rack=null", "placement_tags=null", "status=maintenance"],
    );
    up.run(&["cells", "set", "z2-cell-0", "status=null"])
        .expect(0, &["platform", "--attributes-file FILE"]);
    assert_eq!(up.json(&["cells", "show", "z2-cell-0"]).get("rack"), None);
    up.run(&["cells", "show", "nobody"])
        .expect(1, &["cell nobody"]);
    up.run(&["cells", "set", "nobody", "rack=r1"])
        .expect(1, &["cell nobody"]);
    up.run(&["cells", "set", "z1-cell-0", "next_reboot=soon"])
        .expect(2, &["next_reboot", "soon", "2026-12-01"]);
}

#[test]
fn bad_attributes_and_conditions_need_no_cluster_to_be_refused() {
    for (args, text) in [
        (
            &["cells", "set", "c", "rak=r1"][..],
            "did you mean \"rack\"?",
        ),
        (&["cells", "set", "c", "rack"], "ATTRIBUTE=VALUE"),
        (&["cells", "set", "c", "reserved=yes"], "true or false"),
        (&["cells", "set", "c"], "ATTRIBUTE=VALUE"),
        (&["cells", "set", "a.b", "rack=r1"], "CELL"),
        (&["cells", "--where", "rak=r1"], "did you mean \"rack\"?"),
        (&["cells", "--where", "rack"], "expected FIELD"),
    ] {
        run(args).expect(2, &[text]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rep_keeps_operators_changes() {
    let server = NatsServer::start().await;
    let url = server.url();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("attributes.json");
    let start = || {
        let mut rep = vendue();
        rep.args([
            "rep",
            "--cell",
            "c1",
            "--memory",
            "64",
            "--simulated",
            "--nats",
            &url,
        ]);
        Role::start(rep.env("VENDUE_ATTRIBUTES", &file))
    };
    let shown = || end(vendue().args(["cells", "show", "c1", "--output", "json", "--nats", &url]));
    let answers = || {
        (shown().code == Some(0))
            .then_some(())
            .ok_or("no answer".to_owned())
    };
    let mut rep = start();
    until("the cell to answer", answers).await;
    let args = [
        "cells",
        "set",
        "c1",
        "rack=r7",
        "reserved=true",
        "--nats",
        &url,
    ];
    let said = run(&args);
    said.expect(0, &["rack=r7", "reserved=true"]);
    assert_eq!(said.err, "", "it is kept");
    rep.end();
    let _rep = start();
    until("the cell to answer again", answers).await;
    assert_eq!(
        (&shown().json()["rack"], &shown().json()["reserved"]),
        (&"r7".into(), &true.into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn decisions_are_explained_down_to_the_cell() {
    let up = Up::start();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("large.json");
    fs::write(&file, r#"{"app":"large","memory_mb":2000,"disk_mb":1}"#).unwrap();
    let file = file.display().to_string();
    let cells = "z1-cell-0, z1-cell-1, z2-cell-0, z2-cell-1";
    up.run(&["place", "--live", &file])
        .expect(3, &["insufficient resources: memory", "needs 2000"]);
    up.run(&["place", "--live", &file, "--explain=cells"])
        .expect(3, &["memory: 0 left", cells]);
    let fits = "examples/worker.json";
    up.run(&["place", "--live", fits, "--explain"])
        .expect(0, &["memory: 4 left", "resources"]);

    let run = [
        "run", "--app", "large", "--memory", "2000", "--disk", "1", "--", "sleep", "1",
    ];
    up.run(&run).expect(3, &["insufficient resources: memory"]);
    let said = up.run(&["explain", "large"]);
    said.expect(0, &["needs 2000 MiB, the best of 4 cells has 1024 MiB"]);
    assert!(
        !said.out.contains("z1-cell-0"),
        "cells only when asked for: {said:?}"
    );
    up.run(&["explain", "large", "--cells"])
        .expect(0, &["decided again", "memory: 0 left", cells]);
    let now = &up.json(&["explain", "large", "--cells"])["now"];
    assert_eq!(
        now[0]["tally"][0]["names"].as_array().unwrap().len(),
        4,
        "{now}"
    );
    up.run(&[
        "run", "--app", "small", "--memory", "8", "--disk", "1", "--", "sleep", "1000",
    ])
    .expect(0, &["placed"]);
    let now = &up.json(&["explain", "small", "--cells"])["now"];
    assert!(
        now[0]["ratings"].as_array().is_some_and(|r| !r.is_empty()),
        "{now}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_of_ones_own_decides_and_takes_objectives() {
    let up = Up::with(&["--cells", "2", "--policy", "examples/policy.toml"]);
    assert_eq!(up.json(&["cells"])["policy"], "newest");
    let run = |app: &str, memory: &str, objective: &str| {
        let args = [
            "run", "--app", app, "--task", "--memory", memory, "--disk", "1",
        ];
        let more = [
            "--output",
            "json",
            "--objective",
            objective,
            "--",
            "sleep",
            "1000",
        ];
        up.run(&[&args[..], &more].concat())
    };
    let cell =
        |said: &crate::common::Finished| said.expect(0, &[]).json()["instances"][0]["cell"].clone();
    let first = cell(&run("a", "100", "r.AvailableMemoryMB"));
    // the fuller cell by one objective, the emptier one by the other
    assert_eq!(cell(&run("b", "100", "-r.AvailableMemoryMB")), first);
    assert_ne!(cell(&run("c", "10", "r.AvailableMemoryMB")), first);
    run("d", "10", "r.FreeMemory").expect(2, &["objective", "column 1", "AvailableMemoryMB"]);
}
