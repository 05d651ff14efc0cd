//! Commands that need no cluster.

use std::{fs, process::Stdio};

use crate::common::{end, run, vendue};

const SCENARIO: &str = r#"{"policy":"diego","pick":"first","seed":1,
 "cells":[{"cell":"c1","zone":"z1","total":{"memory_mb":1024,"disk_mb":4096,"containers":8},
           "available":{"memory_mb":1024,"disk_mb":4096,"containers":8}},
          {"cell":"c2","zone":"z2","total":{"memory_mb":1024,"disk_mb":4096,"containers":8},
           "available":{"memory_mb":512,"disk_mb":4096,"containers":8}}],
 "requests":[{"app":"A","memory_mb":256,"disk_mb":128,"instances":2},
             {"app":"B","memory_mb":4096,"disk_mb":128}]}"#;

#[test]
fn version_completions_and_help() {
    run(&["version"]).expect(0, &[concat!("vendue ", env!("CARGO_PKG_VERSION"))]);
    let json = run(&["version", "--output", "json"]).expect(0, &[]).json();
    assert_eq!(json["wire"], 1);
    for shell in ["bash", "zsh", "fish"] {
        run(&["completions", shell]).expect(0, &["vendue"]);
    }
    run(&["--help"]).expect(0, &["start", "up", "NATS_URL", "Exit codes"]);
}

#[test]
fn bad_usage_exits_with_2_and_names_what_is_expected() {
    let cases: &[(&[&str], &str)] = &[
        (&[], "Usage"),
        (&["sart"], "start"),
        (&["start"], "<FILE>"),
        (&["ps", "--output", "yaml"], "table, json"),
        (
            &["run", "--app", "a", "--memory", "1", "--disk", "1"],
            "COMMAND",
        ),
        (
            &[
                "run", "--app", "a.b", "--memory", "1", "--disk", "1", "--", "x",
            ],
            "app: \"a.b\"",
        ),
        (
            &["run", "--app", "a", "--memory=-1", "--disk", "1", "--", "x"],
            "expected a size",
        ),
        (
            &[
                "run", "--app", "a", "--memory", "1", "--disk", "1", "--env", "x", "--", "x",
            ],
            "NAME=VALUE",
        ),
        (
            &[
                "run",
                "--app",
                "a",
                "--memory",
                "1",
                "--disk",
                "1",
                "--instances",
                "100001",
                "--",
                "x",
            ],
            "100000",
        ),
        (&["stop", "a", "--indices", "2-1"], "0,2-4"),
        (&["up", "--cells", "0"], "from 1 to 200"),
        (&["up", "--policy", "deigo"], "diego"),
        (&["wait", "a", "--timeout", "soon"], "time"),
        (&["drain", "a.b"], "CELL"),
        (&["ps", "--prefix", "a b"], "prefix"),
        (&["ps", "--context", "no-such-context"], "no-such-context"),
        (&["ps", "--nats", "nats://x:99999"], "nats://127.0.0.1:4222"),
        (
            &["ps", "--creds", "/no/such/file", "--nats", "127.0.0.1:1"],
            "/no/such/file",
        ),
        (&["rep"], "--cell"),
        (&["rep", "--cell", "c"], "--memory"),
        (&["start", "/no/such/file.json"], "/no/such/file.json"),
        (&["place", "/no/such/file.json"], "/no/such/file.json"),
    ];
    for (args, text) in cases {
        let said = run(args);
        assert_eq!(said.code, Some(2), "{args:?}: {said:?}");
        assert!(said.err.contains(text), "{args:?}: {said:?}");
    }
}

#[test]
fn a_scenario_is_decided_without_a_cluster() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("scenario.json");
    fs::write(&file, SCENARIO).unwrap();
    let file = file.display().to_string();
    let json = run(&["place", &file, "--output", "json"])
        .expect(3, &[])
        .json();
    let decisions = json["decisions"].as_array().unwrap();
    let told: Vec<_> = decisions
        .iter()
        .map(|d| (d["app"].as_str(), d["cell"].as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (Some("B"), None),
            (Some("A"), Some("c1")),
            (Some("A"), Some("c2"))
        ],
        "index 0 first, the largest memory first; one instance in each zone"
    );
    assert_eq!(decisions[0]["reason"], "insufficient resources: memory");
    assert_eq!(decisions[0]["tally"][0]["needs"], 4096.0);
    assert_eq!(decisions[0]["tally"][0]["best"], 1024.0);
    assert!(decisions[1]["cost"].is_number() && decisions[1]["finalists"].is_array());
    run(&["place", &file]).expect(
        3,
        &[
            "2 placed, 1 unplaced",
            "insufficient resources: memory (needs 4096 MiB, the best of 2 cells has 1024 MiB)",
        ],
    );
    run(&["place", &file, "--explain=cells"]).expect(3, &["left", "c2"]);
    run(&["place", &file, "--policy", "dea"]).expect(3, &["2 placed, 1 unplaced"]);
    let from_stdin = vendue()
        .args(["place", "-"])
        .stdin(fs::File::open(&file).unwrap())
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(from_stdin.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&from_stdin.stdout).contains("insufficient resources"));
}

#[test]
fn a_bad_file_is_refused_by_its_place_in_it() {
    let home = tempfile::tempdir().unwrap();
    let refused = |name: &str, text: &str, args: &[&str], expected: &[&str]| {
        let file = home.path().join(name);
        fs::write(&file, text).unwrap();
        let file = file.display().to_string();
        let args: Vec<&str> = args
            .iter()
            .map(|a| if *a == "FILE" { &file } else { *a })
            .collect();
        run(&args).expect(2, expected).expect(2, &[name]);
    };
    refused("a.json", "{\n nonsense", &["place", "FILE"], &["line 2"]);
    refused(
        "b.json",
        "{\"cells\":[{\"cell\":3}]}",
        &["place", "FILE"],
        &["cells[0].cell"],
    );
    refused(
        "c.toml",
        "policy = \"nope\"\ncells = []",
        &["place", "FILE"],
        &["policy", "diego"],
    );
    let request = r#"{"app":"a","memory_mb":99999999999,"disk_mb":1}"#;
    refused(
        "d.json",
        request,
        &["start", "FILE"],
        &["memory_mb: 99999999999", "2147483647"],
    );
    let long = format!(
        r#"{{"id":"{}","app":"a","memory_mb":1,"disk_mb":1}}"#,
        "x".repeat(300)
    );
    refused("e.json", &long, &["start", "FILE"], &["id:", "1 to 128"]);
    let policy = "pick = \"lowest\"\n\n[[stages]]\nfilter = \"memmory\"\n";
    let request = r#"{"cells":[]}"#;
    fs::write(home.path().join("s.json"), request).unwrap();
    let scenario = home.path().join("s.json").display().to_string();
    let args = ["place", scenario.as_str(), "--policy", "FILE"];
    refused("p.toml", policy, &args, &["p.toml:"]);
    refused(
        "r.toml",
        "cel = \"a\"",
        &["rep", "--cell", "a", "--memory", "1", "--config", "FILE"],
        &["cel"],
    );
    refused(
        "q.toml",
        "polcy = \"dea\"",
        &["auctioneer", "--config", "FILE"],
        &["polcy"],
    );
}

#[test]
fn a_closed_pipe_is_no_fault() {
    let script = format!(
        "{} completions bash | head -1",
        env!("CARGO_BIN_EXE_vendue")
    );
    let said = end(std::process::Command::new("bash").args(["-o", "pipefail", "-c", &script]));
    said.expect(0, &[]);
    assert_eq!(said.err, "", "nothing is said of it");
    let script = format!("{} version >&- 2>&-", env!("CARGO_BIN_EXE_vendue"));
    let said = end(std::process::Command::new("bash").args(["-c", &script]));
    assert_ne!(said.code, Some(101), "it panicked");
}
