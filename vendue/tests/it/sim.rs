//! `vendue sim`: scenarios in virtual time and on a real cluster, and a recording of a real cluster's load as a
//! scenario.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    process::{Child, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Up, end, run, vendue};

#[test]
fn a_shipped_scenario_gives_the_same_report_twice() {
    let said = run(&["sim", "--list"]);
    said.expect(0, &["small-cold-4", "mendix-48h", "diego-250000"]);
    let args = [
        "sim",
        "small-cold-4",
        "--policy",
        "dea",
        "--policy",
        "diego-2014-all-rebid",
    ];
    let json = |seed: &str| {
        let said = run(&[&args[..], &["--seed", seed, "--output", "json"]].concat());
        said.expect(0, &["decisions/s"]);
        said.out
    };
    let first = json("7");
    assert_eq!(first, json("7"));
    assert_ne!(first, json("8"));
    let outcome: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(outcome["name"], "small-cold-4");
    assert_eq!(outcome["seed"], 7);
    assert_eq!(outcome["over"], "in-process");
    let labels: Vec<&str> = outcome["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| run["policy"].as_str().unwrap())
        .collect();
    assert_eq!(labels, ["dea", "diego-2014-all-rebid"]);
    for run in outcome["runs"].as_array().unwrap() {
        assert_eq!(run["figures"]["placed"], 8);
    }
    run(&args).expect(0, &["small-cold-4", "dea", "placed"]);
}

#[test]
fn reports_and_timings_are_files_and_not_in_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (html, timings) = (path("report.html"), path("timings.json"));
    let said = run(&[
        "sim",
        "az-distribution",
        "--html",
        &html,
        "--timings",
        &timings,
        "--output",
        "json",
    ]);
    said.expect(0, &["report: "]);
    let outcome = said.json();
    assert_eq!(outcome["command"], "vendue sim az-distribution");
    assert!(!said.out.contains(&html));
    assert!(
        fs::read_to_string(&html)
            .unwrap()
            .contains("az-distribution")
    );
    let timings: Value = serde_json::from_str(&fs::read_to_string(&timings).unwrap()).unwrap();
    assert_eq!(timings[0]["policy"], "diego");
    assert!(timings[0]["seconds"].as_f64().unwrap() > 0.0);
}

#[test]
fn several_seeds_are_in_the_page_too() {
    let dir = tempfile::tempdir().unwrap();
    let html = dir.path().join("seeds.html").display().to_string();
    let args = [
        "sim",
        "small-cold-4",
        "--seed",
        "7",
        "--seeds",
        "3",
        "--html",
        &html,
    ];
    run(&args).expect(0, &["3 seeds (7 to 9)", "report: "]);
    let page = fs::read_to_string(&html).unwrap();
    assert!(page.contains("7 to 9; pictures and figures: 7"));
}

#[test]
fn a_changed_preset_is_compared_with_the_preset() {
    let dir = tempfile::tempdir().unwrap();
    let tuned = dir.path().join("tuned.toml");
    fs::write(&tuned, "preset = \"diego\"\nstarting_weight = 0.02\n").unwrap();
    let tuned = tuned.display().to_string();
    let args = [
        "sim",
        "small-cold-4",
        "--policy",
        &tuned,
        "--policy",
        "diego",
    ];
    let outcome = run(&[&args[..], &["--output", "json"]].concat()).json();
    assert_eq!(outcome["runs"][0]["policy"], "tuned");
    assert_eq!(outcome["runs"][1]["policy"], "diego");
}

#[test]
fn misspelt_fields_are_refused_and_lost_work_is_warned_of() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    let path = file.display().to_string();
    let cells = "[[groups]]\ntotal = { memory_mb = 10, disk_mb = 10 }\n";
    fs::write(&file, format!("duratoin = \"1s\"\n{cells}")).unwrap();
    run(&["sim", &path]).expect(2, &["duratoin: unknown field; did you mean \"duration\"?"]);
    let late = "[[workload]]\nat = \"2s\"\nstart = { app = \"a\", memory_mb = 1, disk_mb = 1 }\n";
    fs::write(&file, format!("duration = \"1s\"\n{cells}{late}")).unwrap();
    run(&["sim", &path]).expect(0, &["warning: workload[0].at", "Warning: workload[0].at"]);
}

#[test]
fn the_report_of_a_trace_repeats_itself_from_its_scenario() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (nodes, pods, policy) = (path("nodes.csv"), path("pods.csv"), path("mine.toml"));
    let node = |n| format!("n{n},8000,16384,2,T4\n");
    let text = format!("sn,cpu_milli,memory_mib,gpu,model\n{}{}", node(1), node(2));
    fs::write(&nodes, text).unwrap();
    let text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np1,1000,1024,1,500\np2,100,100,1,300\np3,1,1,0,0\n";
    fs::write(&pods, text).unwrap();
    fs::write(&policy, "preset = \"diego\"\nstarting_weight = 0.02\n").unwrap();
    let with_seed = |seed| {
        let trace = ["sim", "--nodes", &nodes, "--pods", &pods, "--demand", "120"];
        let policies = ["--policy", "diego", "--policy", &policy];
        [&trace[..], &["--seed", seed], &policies].concat()
    };
    let json = |args: &[&str]| run(&[args, &["--output", "json"]].concat()).json();
    let first = json(&with_seed("7"));
    let packing = &first["runs"][0]["figures"]["packing"];
    let asked = packing["asked"]["gpu"].as_f64().unwrap();
    assert!((107.0..=120.0).contains(&asked), "{packing}");
    assert!(packing["given"]["cpu"].as_f64().unwrap() > 0.0, "{packing}");
    assert_eq!(first["runs"][1]["demand_steps"][9]["demand"], 100);
    assert_ne!(first["runs"], json(&with_seed("8"))["runs"]);
    let again = path("again.toml");
    fs::write(&again, first["scenario"].as_str().unwrap()).unwrap();
    let second = json(&["sim", &again]);
    assert_eq!(second["runs"], first["runs"]);
    assert_eq!(second["scenario"], first["scenario"]);
    run(&["sim", &again]).expect(
        0,
        &[
            "gpu given as demand",
            "cpu given as demand",
            "asked for, gpu",
        ],
    );
    run(&["sim", &again, "--seeds", "2"]).expect(0, &["packing.given.gpu"]);
    // another file is another experiment
    fs::write(&pods, format!("{text}p4,1,1,0,0\n")).unwrap();
    run(&["sim", &again]).expect(2, &["trace.pods_sha256", "the file is another one"]);
    run(&["sim", "--nodes", &nodes, "--pods", &pods]).expect(2, &["creation_time"]);
    let args = ["sim", "--nodes", &nodes, "--pods", &pods, "--demand", "1"];
    run(&[&args[..], &["--demand-of", "disk"]].concat()).expect(2, &["trace.of: \"disk\""]);
    run(&[&args[..5], &["--demand", "0"]].concat()).expect(2, &["trace.demand: 0"]);
}

#[test]
fn a_trace_is_simulated() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (nodes, pods) = (path("nodes.csv"), path("pods.csv"));
    fs::write(
        &nodes,
        "sn,cpu_milli,memory_mib,gpu,model\nn1,8000,16384,2,T4\nn2,8000,16384,0,\n",
    )
    .unwrap();
    fs::write(
        &pods,
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n\
         p1,1000,1024,1,500,,0,100\np2,1000,1024,0,0,,10,200000\n",
    )
    .unwrap();
    let said = run(&[
        "sim", "--nodes", &nodes, "--pods", &pods, "--output", "json",
    ]);
    said.expect(0, &[]);
    assert_eq!(said.json()["runs"][0]["figures"]["placed"], 2);
    run(&["sim", "--nodes", &nodes]).expect(2, &["--pods"]);
    run(&["sim", "--nodes", &pods, "--pods", &nodes]).expect(2, &["column", "is missing"]);
}

#[test]
fn invalid_scenarios_are_refused_with_the_field() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    fs::write(
        &file,
        "auctioneers = 0\n[[groups]]\ntotal = { memory_mb = 1 }\n",
    )
    .unwrap();
    let file = file.display().to_string();
    run(&["sim", &file]).expect(2, &["auctioneers: 0 is not allowed"]);
    run(&["sim", "nosuch"]).expect(2, &["nosuch", "--list"]);
    run(&["sim"]).expect(2, &["SCENARIO"]);
    run(&["sim", "small-cold-4", "--policy", "digo"]).expect(2, &["digo"]);
    run(&["sim", "small-cold-4", "--policy", "dea", "--policy", "dea"])
        .expect(2, &["more than once"]);
    run(&["sim", "dea-zone-returns", "--over", "nats"]).expect(2, &["faults", "in-process"]);
    run(&[
        "sim",
        "small-cold-4",
        "--over",
        "nats",
        "--policy",
        "diego-2014-random",
    ])
    .expect(2, &["policies only"]);
}

#[test]
fn the_real_roles_give_the_figures_of_virtual_time() {
    let said = run(&["sim", "watters-10", "--over", "nats", "--output", "json"]);
    said.expect(0, &[]);
    let real = said.json();
    let virtual_time = run(&["sim", "watters-10", "--output", "json"]).json();
    assert_eq!(real["over"], "nats");
    let figures = |outcome: &Value| outcome["runs"][0]["figures"].clone();
    let (real, expected) = (figures(&real), figures(&virtual_time));
    for figure in [
        "asked",
        "placed",
        "unplaced",
        "waiting",
        "auctions",
        "per_cell",
        "distribution",
    ] {
        assert_eq!(real[figure], expected[figure], "{figure}");
    }
    for kind in [
        "bid",
        "bid request",
        "start",
        "start answer",
        "request",
        "reply",
        "outcome",
    ] {
        let sent = |figures: &Value| figures["messages"][kind]["sent"].clone();
        assert_eq!(sent(&real), sent(&expected), "{kind}");
    }
}

/// Ended, if necessary killed, with the test.
struct Recorder(Child);

impl Drop for Recorder {
    fn drop(&mut self) {
        // it may already have ended by itself
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_requests_of_a_live_cluster_are_recorded_and_replayed() {
    let up = Up::start();
    let held = [
        "run", "--app", "held", "--memory", "32", "--disk", "8", "--", "sleep", "1000",
    ];
    up.run(&held).expect(0, &[]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recorded.toml").display().to_string();
    let mut recorder = up.command(&["sim", "record", &file, "--name", "yesterday"]);
    let recorder = recorder.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut recorder = Recorder(recorder.unwrap());
    let stderr = recorder.0.stderr.take().unwrap();
    let mut lines = BufReader::new(stderr).lines();
    let began = lines.find(|line| line.as_ref().unwrap().contains("recording 4 cells"));
    assert!(began.is_some());
    let asked = [
        "run",
        "--app",
        "asked",
        "--memory",
        "64",
        "--disk",
        "8",
        "--instances",
        "3",
        "--",
        "sleep",
        "1000",
    ];
    up.run(&asked).expect(0, &[]);
    up.run(&["stop", "asked", "--indices", "2"]).expect(0, &[]);
    let pid = Pid::from_raw(i32::try_from(recorder.0.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    assert!(recorder.0.wait().unwrap().success());

    let said = end(vendue().args(["sim", &file, "--policy", "dea", "--output", "json"]));
    said.expect(0, &[]);
    let outcome = said.json();
    assert_eq!(outcome["name"], "yesterday");
    let run = &outcome["runs"][0];
    assert_eq!(run["figures"]["asked"], 3);
    assert_eq!(run["figures"]["placed"], 3);
    let apps: Vec<&str> = run["apps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|app| app.as_str().unwrap())
        .collect();
    assert!(
        apps.contains(&"held") && apps.contains(&"asked"),
        "{apps:?}"
    );
    let cells = run["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    let used: i64 = cells
        .iter()
        .map(|cell| cell["used_mb"].as_i64().unwrap())
        .sum();
    assert_eq!(used, 32 + 2 * 64);
}

/// Every command of the pages about the simulator, but with one seed, as several seeds only take longer.
#[test]
fn every_command_of_the_manual_works() {
    let mut manual = String::new();
    for page in ["SIMULATOR", "RESULTS", "AUCTIONS_2014", "CHECK"] {
        let file = crate::common::checkout().join(format!("docs/{page}.md"));
        manual += &fs::read_to_string(file).unwrap();
    }
    let fences = manual.split("```").skip(1).step_by(2);
    let lines = fences.filter_map(|fence| fence.strip_prefix("sh\n"));
    let commands: Vec<&str> = lines.flat_map(str::lines).collect();
    assert!(commands.len() >= 15, "{commands:?}");
    let dir = tempfile::tempdir().unwrap();
    let mut run_before = BTreeSet::new();
    for command in commands {
        let mut words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!(words[..2], ["vendue", "sim"], "{command}");
        if let Some(at) = words.iter().position(|word| *word == "--seeds") {
            words.drain(at..at + 2);
            if words[2] == "check" {
                words.extend(["--seeds", "3"]); // there are many by default
            }
        }
        if run_before.insert(words.clone()) {
            let said = end(vendue().current_dir(&dir).args(&words[1..]));
            said.expect(0, &[]);
        }
    }
    let timings = dir.path().join("timings.json").display().to_string();
    let args = ["sim", "small-cold-4", "--seeds", "3", "--output", "json"];
    let seeds = run(&[&args[..], &["--timings", &timings]].concat());
    seeds.expect(0, &["decisions/s"]);
    let timings: Value = serde_json::from_str(&fs::read_to_string(timings).unwrap()).unwrap();
    assert_eq!(timings.as_array().unwrap().len(), 3);
    let seeds: Value = serde_json::from_str(&seeds.out).unwrap();
    assert_eq!(seeds["seeds"], serde_json::json!([1, 2, 3]));
    assert_eq!(seeds["runs"][0]["figures"]["placed"]["mean"], 8.0);
}

/// The result matches what docs/LEGACY.md shows of a move from DEAs to cells.
#[test]
fn a_simulated_move_ends_as_the_page_says() {
    let page = fs::read_to_string(crate::common::checkout().join("docs/LEGACY.md")).unwrap();
    let said = run(&["sim", "estate", "--output", "json"]);
    said.expect(0, &[]);
    let document = said.json();
    crate::cli_page::check("sim estate", &document);
    for (row, field) in [
        ("all put on DEAs after", "deployed_ms"),
        ("half of them moved to cells after", "moved_ms"),
        ("all run again after", "recovered_ms"),
        ("indices lost with a zone", "lost"),
        ("indices missing meanwhile, at most", "moving_missing"),
        ("events", "events"),
    ] {
        let value = document[field].as_f64().unwrap();
        let shown = if field.ends_with("_ms") {
            format!("{:.1} s", value / 1_000.0)
        } else {
            value.to_string()
        };
        let mut rows = page.lines().map(str::trim);
        let found = rows.any(|line| line.starts_with(row) && line.ends_with(&format!("  {shown}")));
        assert!(found, "{row}: {shown} is not in docs/LEGACY.md: {document}");
    }
}
