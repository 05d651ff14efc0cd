//! Policies as people read, check and measure them, without a cluster.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
};

use crate::common::{run, vendue};

const PRESETS: [&str; 9] = [
    "dea",
    "diego",
    "diego-bin-pack",
    "objective",
    "dapi",
    "rfd24",
    "dapi-2015",
    "random",
    "vendue",
];

#[test]
fn every_preset_is_listed_shown_and_reads_back_as_itself() {
    let listed = run(&["policy", "list", "--output", "json"])
        .expect(0, &[])
        .json();
    let names: Vec<&str> = listed["policies"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|p| p["name"].as_str())
        .collect();
    assert_eq!(names, PRESETS);
    let home = tempfile::tempdir().unwrap();
    for (name, about) in PRESETS.iter().zip(listed["policies"].as_array().unwrap()) {
        run(&["policy", "list"]).expect(0, &[name, about["engine"].as_str().unwrap()]);
        let shown = run(&["policy", "show", name]);
        shown.expect(0, &["[[stage]]"]);
        let file = home.path().join(format!("{name}.toml"));
        fs::write(&file, &shown.out).unwrap();
        let file = file.display().to_string();
        run(&["policy", "check", &file]).expect(0, &["valid", name]);
        let checked = run(&["policy", "check", &file, "--output", "json"]).json();
        assert_eq!(
            (&checked["valid"], &checked["hash"]),
            (&true.into(), &about["hash"])
        );
    }
    run(&["policy", "show", "deigo"]).expect(2, &["deigo", "diego"]);
}

#[test]
fn a_file_with_a_changed_preset_is_shown_as_a_whole_policy() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mine.toml");
    fs::write(&file, "preset = \"diego\"\nstarting_weight = 0.5\n").unwrap();
    let file = file.display().to_string();
    run(&["policy", "show", &file]).expect(0, &["score = \"starting\"\nweight = 0.5"]);
}

#[test]
fn a_bad_policy_is_refused_by_its_place_and_the_nearest_name() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("bad.toml");
    fs::write(&file, "name = \"x\"\n\n[[stage]]\nfilter = \"memmory\"\n").unwrap();
    let file = file.display().to_string();
    let expected = [
        "bad.toml: line 4, column 10",
        "memmory",
        "containers",
        "did you mean \"memory\"?",
        "filter = \"memmory\"\n           ^",
    ];
    run(&["policy", "check", &file]).expect(2, &expected);
    let told = run(&["policy", "check", &file, "--output", "json"]);
    told.expect(2, &expected);
    let told = told.json();
    assert_eq!((&told["line"], &told["column"]), (&4.into(), &10.into()));
    assert_eq!(
        (&told["valid"], &told["nearest"]),
        (&false.into(), &"memory".into())
    );
    let objective = "name = \"x\"\n[[stage]]\nscore = \"objective\"\nexpression = \"r.TotalMemory\"\n\
                     [[stage]]\npick = \"highest\"\n";
    fs::write(&file, objective).unwrap();
    run(&["policy", "check", &file]).expect(
        2,
        &[
            "bad.toml: line 4",
            "TotalMemoryMB",
            "expression = \"r.TotalMemory\"\n                ^",
        ],
    );
    run(&["policy", "check", "/no/such.toml"]).expect(2, &["/no/such.toml"]);
    // wherever a policy can be named, a bad file is bad usage and is refused before anything begins
    for args in [
        &["auctioneer", "--policy", &file][..],
        &["up", "--policy", &file],
        &["bench", "place", "--policy", &file],
        &["place", "examples/scenario.json", "--policy", &file],
    ] {
        run(args).expect(2, &["bad.toml: line 4"]);
    }
}

#[test]
fn the_parsed_objective_is_printed_on_request() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mine.toml");
    let text = "name = \"mine\"\n[[stage]]\nscore = \"objective\"\n\
                expression = \"w * r.AvailableMemoryMB + 1\"\nconstants = { w = 2.5 }\n\
                [[stage]]\npick = \"highest\"\n";
    fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    run(&["policy", "check", &file, "--tree"])
        .expect(0, &["add\n  multiply\n    w = 2.5\n", "  1\n"]);
    let json = run(&["policy", "check", &file, "--tree", "--output", "json"]).json();
    assert_eq!(
        json["objectives"][0]["expression"],
        "w * r.AvailableMemoryMB + 1"
    );
    let none = run(&["policy", "show", "dea"]).out;
    fs::write(&file, none).unwrap();
    run(&["policy", "check", &file, "--tree"]).expect(0, &["no objective"]);
}

#[test]
fn the_engine_is_measured_by_itself() {
    let args = [
        "bench", "place", "--cells", "40", "--jobs", "100", "--policy", "diego", "--seed", "3",
    ];
    let json = run(&[&args[..], &["--output", "json"]].concat())
        .expect(0, &[])
        .json();
    let mut keys: Vec<&str> = json
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    keys.sort_unstable();
    let mut expected = vec![
        "build_ms",
        "engine",
        "failed",
        "ns_per_placement",
        "placed",
        "placements_per_second",
        "v",
    ];
    assert_eq!(keys, expected);
    assert_eq!(
        json["placed"].as_u64().unwrap() + json["failed"].as_u64().unwrap(),
        100
    );
    let json = run(&[&args[..], &["--plain", "--output", "json"]].concat()).json();
    expected.push("plain_placements_per_second");
    assert!(expected.iter().all(|key| json.get(key).is_some()), "{json}");
    run(&[&args[..], &["--plain"]].concat()).expect(0, &["the plain engine", "placed, failed"]);
    run(&["bench", "place", "--cells", "0"]).expect(2, &["from 1 to 1000000"]);
}

/// Work of different sizes on few cells.
const WORK: &str = r#"
name = "work"
[[groups]]
count = 3
total = { memory_mb = 1000, disk_mb = 1000, containers = 100 }
[[workload]]
apps = { count = 20, name = "a-{n}", memory_mb = "10..90", disk_mb = 1 }
"#;

#[test]
fn weights_are_searched_and_written_as_a_policy() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    fs::write(path("work.toml"), WORK).unwrap();
    fs::write(path("other.toml"), WORK.replace("\"work\"", "\"other\"")).unwrap();
    let (work, other, tuned) = (path("work.toml"), path("other.toml"), path("tuned.toml"));
    let search = |out: &str| {
        let args = [
            "--for", "balance", "--seeds", "2", "--tries", "6", "--also", &other,
        ];
        let begin = ["policy", "tune", &work, "--policy", "diego", "--out", out];
        run(&[&begin[..], &args].concat())
    };
    let said = search(&tuned);
    said.expect(
        0,
        &[
            "6 tries",
            "as it is",
            "work, seeds 2 to 3",
            "other, seeds 2 to 3",
        ],
    );
    run(&["policy", "check", &tuned]).expect(0, &["policy diego-tuned"]);
    run(&["sim", &work, "--policy", &tuned, "--policy", "diego"]).expect(0, &["diego-tuned"]);
    let again = path("again.toml");
    assert_eq!(search(&again).out, said.out);
    let read = |file: &str| fs::read_to_string(file).unwrap();
    assert_eq!(read(&again), read(&tuned));
    assert!(read(&tuned).starts_with("# vendue policy tune"));

    let refused = |args: &[&str]| run(&[&["policy", "tune", &work], args].concat());
    refused(&["--policy", "random", "--for", "wait"]).expect(2, &["random: has no score"]);
    refused(&["--policy", "diego", "--for", "luck"]).expect(2, &["luck", "balance"]);
    refused(&["--policy", "diego"]).expect(2, &["--for"]);
}

#[test]
fn a_search_that_is_ended_says_what_it_found_and_writes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(name).display().to_string();
    fs::write(path("work.toml"), WORK).unwrap();
    let (work, out) = (path("work.toml"), path("tuned.toml"));
    let args = [
        "policy", "tune", &work, "--policy", "diego", "--for", "balance",
    ];
    let mut search = vendue();
    search
        .args(args)
        .args(["--tries", "10000", "--seeds", "1000", "--out", &out]);
    search.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut search = search.spawn().unwrap();
    // it reports its progress before it is ended
    let mut told = String::new();
    let errors = search.stderr.take().unwrap();
    BufReader::new(errors).read_line(&mut told).unwrap();
    assert!(told.contains("simulations"), "{told}");
    let pid = rustix::process::Pid::from_child(&search);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let ended = search.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    assert!(!std::path::Path::new(&out).exists());
}
