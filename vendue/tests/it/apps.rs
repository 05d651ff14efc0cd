//! Apps and their instances: what is refused, what waits, what crashed and what is history.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
};

use crate::common::{Up, run, until};

/// `vendue run APP` with small instances of `sleep 1000`.
fn sleepers<'a>(app: &'a str, options: &[&'a str]) -> Vec<&'a str> {
    let size = ["run", app, "--memory", "8M", "--disk", "8M"];
    [&size[..], options, &["--", "sleep", "1000"]].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_started_again_only_when_asked() {
    let up = Up::start();
    up.run(&["start", "examples/web.json"])
        .expect(0, &["placed"]);
    up.run(&["wait", "web"]).expect(0, &["web: 3 running"]);
    let again = ["web runs already: 3 instances (indices 0-2)", "--again"];
    up.run(&["start", "examples/web.json"]).expect(1, &again);
    assert_eq!(up.instances("web", "running").len(), 3, "none was started");
    // an array names each app that runs, and starts nothing
    up.run(&sleepers("one", &[])).expect(0, &[]);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("array.json");
    let request = |app: &str| format!(r#"{{"app":"{app}","memory_mb":8,"disk_mb":8}}"#);
    let text = format!("[{},{},{}]", request("web"), request("new"), request("one"));
    fs::write(&file, text).unwrap();
    let file = file.display().to_string();
    let said = up.run(&["start", &file]);
    said.expect(
        1,
        &[
            "web runs already: 3 instances",
            "one runs already: 1 instance",
        ],
    );
    assert!(!said.err.contains("new runs"), "{said:?}");
    // other indices are an addition
    up.run(&sleepers("one", &["--indices", "1-2"]))
        .expect(0, &["placed"]);
    up.run(&sleepers("one", &["--indices", "2-3"]))
        .expect(1, &["one runs already: 1 instance (index 2)"]);
    up.run(&["wait", "one"]).expect(0, &["one: 3 running"]);
    up.run(&["start", "examples/web.json", "--again"])
        .expect(0, &["placed"]);
    up.run(&["wait", "web", "--instances", "6"])
        .expect(0, &["web: 6 running"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_work_is_shown_and_waited_for() {
    let up = Up::start();
    let lq = [
        "run",
        "lq",
        "--memory",
        "900",
        "--disk",
        "1",
        "--instances",
        "6",
        "--queue-timeout",
        "10m",
        "--",
        "sleep",
        "1000",
    ];
    up.run(&lq)
        .expect(3, &["queued", "lq is queued", "vendue wait lq"]);
    let lacking = "insufficient resources: memory (needs 900 MiB, the best of 4 cells has 124 MiB)";
    up.run(&["ps", "lq"]).expect(0, &["queued", "4-5", lacking]);
    let document = up.json(&["ps"]);
    assert_eq!(document["v"], 1);
    assert_eq!(document["queued"][0]["indices"], "4-5", "{document}");
    until("four to run", || {
        let count = up.instances("lq", "running").len();
        (count == 4).then_some(()).ok_or(format!("{count} run"))
    })
    .await;
    up.run(&["status", "lq"])
        .expect(0, &["lq: 4 of 6 running, 2 queued"]);
    up.run(&["status"])
        .expect(0, &["APP", "RUNNING", "QUEUED", "lq"]);
    up.run(&["explain", "lq"])
        .expect(0, &["queued", "4-5", lacking]);
    up.run(&["wait", "lq", "--timeout", "1s"]).expect(
        3,
        &["lq is still queued after 1s", "4 of 6 running, 2 queued"],
    );
    up.run(&lq)
        .expect(1, &["lq runs already: 4 instances, 2 queued (indices 0-5)"]);
    // room for both
    up.run(&["stop", "lq", "--indices", "0,2"])
        .expect(0, &["2 instances told to stop"]);
    up.run(&["wait", "lq"])
        .expect(0, &["lq: 4 running (earlier: 2 stopped)"]);
    // instances that get no room in time were not placed
    let late = [
        "run",
        "late",
        "--memory",
        "900",
        "--disk",
        "1",
        "--queue-timeout",
        "8s", // longer than the reply waits
        "--",
        "sleep",
        "9",
    ];
    up.run(&late).expect(3, &["queued"]);
    up.run(&["status", "late"])
        .expect(1, &["late: 0 of 1 running, 1 queued"]);
    up.run(&["wait", "late"])
        .expect(3, &["late 0 unplaced", lacking]);
    // and neither were cancelled ones
    let mut cancelled = late;
    (cancelled[1], cancelled[7]) = ("gone", "10m");
    up.run(&cancelled).expect(3, &["queued"]);
    up.run(&["stop", "gone"])
        .expect(0, &["1 queued instance cancelled"]);
    up.run(&["status", "gone"])
        .expect(1, &["no instance of gone on 4 cells"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_crashed_is_seen_first() {
    let up = Up::start();
    up.run(&sleepers("aa", &[])).expect(0, &[]);
    let args = [
        "run",
        "bad",
        "--memory",
        "8",
        "--disk",
        "8",
        "--task",
        "--instances",
        "12",
        "--",
        "sh",
        "-c",
        "exit 3",
    ];
    up.run(&args).expect(0, &["placed"]);
    until("all to have crashed", || {
        let count = up.instances("bad", "crashed").len();
        (count == 12)
            .then_some(())
            .ok_or(format!("{count} crashed"))
    })
    .await;
    let waited = up.run(&["wait", "bad"]);
    waited.expect(
        1,
        &[
            "bad 9 crashed on z",
            ": exit 3",
            "and 2 failures more",
            "12 crashed",
        ],
    );
    assert!(
        !waited.err.contains("bad 10 "),
        "a bounded list: {waited:?}"
    );
    let ps = up.run(&["ps"]);
    let rows: Vec<&str> = ps.expect(0, &["crashed", "exit 3"]).out.lines().collect();
    assert!(
        rows[1].starts_with("bad") && rows[13].starts_with("aa"),
        "{rows:#?}"
    );
    up.run(&["status", "bad"]).expect(1, &["bad: 12 crashed"]);
    up.run(&["stop", "bad"]).expect(
        1,
        &["nothing to stop: all instances of bad have ended (12 crashed)"],
    );
    let document = up.json(&["ps", "bad"]);
    let first = &document["instances"][0];
    assert_eq!(
        (&first["exit_code"], &first["state"]),
        (&3.into(), &"crashed".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn history_is_separate_from_the_present() {
    let up = Up::start();
    up.run(&sleepers("site", &["--instances", "3"]))
        .expect(0, &[]);
    up.run(&["wait", "site"]).expect(0, &["site: 3 running"]);
    up.run(&["stop", "site"])
        .expect(0, &["3 instances told to stop"]);
    until("all to be stopped", || {
        let count = up.instances("site", "stopped").len();
        (count == 3).then_some(()).ok_or(format!("{count} stopped"))
    })
    .await;
    up.run(&["status", "site"])
        .expect(1, &["site: no instance (earlier: 3 stopped)"]);
    up.run(&["ps", "site"])
        .expect(0, &["no instances of site on 4 cells; 3 have ended: --all"]);
    up.run(&["status"]).expect(0, &["EARLIER", "3 stopped"]);
    up.run(&["ps", "site", "-a"]).expect(0, &["stopped"]);
    up.run(&sleepers("site", &["--instances", "2"]))
        .expect(0, &[]);
    let waited = up.run(&["wait", "site"]);
    waited.expect(0, &["site: 2 running (earlier: 3 stopped)"]);
    let document = up.json(&["wait", "site"]);
    assert_eq!(document["v"], 1);
    assert_eq!(document["states"]["running"], 2, "{document}");
    assert_eq!(document["earlier"]["stopped"], 3, "{document}");
    let document = up.json(&["status", "site"]);
    assert_eq!(
        (&document["v"], &document["listed"]),
        (&1.into(), &2.into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn ps_shows_a_cell_a_zone_ids_and_addresses() {
    let up = Up::start();
    up.run(&sleepers("site", &["--instances", "4", "--port"]))
        .expect(0, &[]);
    up.run(&["wait", "site"]).expect(0, &["site: 4 running"]);
    let lines = |args: &[&str]| up.run(args).expect(0, &[]).out.lines().count();
    assert_eq!(lines(&["ps", "--cell", "z1-cell-0"]), 2);
    assert_eq!(lines(&["ps", "--zone", "z1"]), 3);
    assert_eq!(
        lines(&[
            "ps",
            "--zone",
            "z1",
            "--cell",
            "z1-cell-0",
            "--cell",
            "z2-cell-0"
        ]),
        2
    );
    up.run(&["ps", "--cell", "a.b"]).expect(2, &["--cell"]);
    let all = up.json(&["ps", "site"]);
    let id = all["instances"][0]["instance"].as_str().unwrap();
    up.run(&["ps", "--wide"]).expect(0, &["INSTANCE", id]);
    let addresses = up.json(&["ps", "site", "--addresses"]);
    assert_eq!(
        addresses["addresses"].as_array().unwrap().len(),
        4,
        "{addresses}"
    );
    up.run(&["ps", "--watch", "--output", "json"])
        .expect(2, &["--watch"]);
    let mut watch = up
        .command(&["ps", "--watch"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let shown = BufReader::new(watch.stdout.take().unwrap());
    let headers = shown
        .lines()
        .map_while(Result::ok)
        .filter(|line| line.starts_with("APP"));
    assert_eq!(headers.take(2).count(), 2, "it is shown again");
    let pid = rustix::process::Pid::from_child(&watch);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(watch.wait().unwrap().success(), "Ctrl-C is how one ends it");
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_and_events_have_times_and_filters() {
    let up = Up::start();
    let args = [
        "run", "talk", "--memory", "8", "--disk", "8", "--", "sh", "-c",
    ];
    up.run(&[&args[..], &["echo out; echo err >&2; exec sleep 1000"]].concat())
        .expect(0, &[]);
    until("both lines to be there", || {
        let said = up.run(&["logs", "talk"]);
        (said.out.contains(" | out") && said.out.contains(" ! err"))
            .then_some(())
            .ok_or(said.out)
    })
    .await;
    let year = year_of_stamp(&up.run(&["logs", "talk", "--timestamps"]).expect(0, &[]).out);
    assert!(year >= 2_024, "{year}");
    up.run(&["logs", "talk", "--since", "1h"])
        .expect(0, &["| out"]);
    let none = up.run(&["logs", "talk", "--since", "0s"]);
    assert!(!none.expect(0, &[]).out.contains("| out"), "{none:?}");
    let ps = up.json(&["ps", "talk"]);
    let id = ps["instances"][0]["instance"].as_str().unwrap();
    up.run(&["logs", "talk", "--instance", id])
        .expect(0, &["| out"]);
    let other = "3b2c0000-0000-5000-8000-000000000000";
    up.run(&["logs", "talk", "--instance", other])
        .expect(1, &["no instance", other]);
    up.run(&["logs", "nothing"])
        .expect(1, &["no instance of nothing on 4 cells"]);

    up.run(&["events", "--for", "10ms"])
        .expect(0, &["for 10ms", "0 events in 10ms"]);
    up.run(&["events", "--kind", "nonsense"])
        .expect(2, &["nonsense", "cell-lost"]);
    let mut events = up.command(&["events", "--follow", "--kind", "placed", "--count", "1"]);
    let mut events = events
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(events.stderr.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.contains("listening"), "{line}");
    up.run(&sleepers("other", &[])).expect(0, &[]);
    let shown: Vec<String> = BufReader::new(events.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .collect();
    assert!(events.wait().unwrap().success());
    assert!(
        shown.len() == 1 && shown[0].contains(" placed        other 0: on z"),
        "{shown:?}"
    );
    assert!(year_of_stamp(&shown[0]) >= 2_024, "{shown:?}");
}

/// Returns the year of the timestamp at the beginning of a text.
fn year_of_stamp(text: &str) -> u32 {
    let stamp = text.split(' ').next().unwrap();
    humantime::parse_rfc3339(stamp).unwrap_or_else(|e| panic!("{e}: {text}"));
    stamp[..4].parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_misspelt_cell_is_answered_with_the_nearest_name() {
    let up = Up::start();
    for args in [
        &["drain", "z1-cel-0"][..],
        &["cells", "show", "z1-cel-0"],
        &["cells", "set", "z1-cel-0", "rack=r1"],
        &["health", "--role", "rep", "--cell", "z1-cel-0"],
    ] {
        let said = up.run(args);
        said.expect(1, &["there is no cell z1-cel-0; did you mean z1-cell-0?"]);
        assert!(!said.err.contains("vendue up"), "{said:?}");
    }
    up.run(&["drain", "nosuch"]).expect(
        1,
        &["there is no cell nosuch; there are z1-cell-0, z1-cell-1"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_found_has_one_shape() {
    let up = Up::with(&["--cells", "1"]);
    for command in ["status", "explain", "logs"] {
        let said = up.run(&[command, "nothing", "--output", "json"]);
        let error = &said.expect(1, &[]).json()["error"];
        assert_eq!(error["code"], "not_found", "{command}: {error}");
    }
    let said = up.run(&["cells", "show", "z1-cel-0", "--output", "json"]);
    assert_eq!(said.expect(1, &[]).json()["error"]["code"], "not_found");
}

#[test]
fn a_wrong_run_is_answered_with_the_right_form() {
    let size = ["--memory", "64M", "--disk", "1.5G"];
    let hint = "-- sleep 5`";
    for words in [
        &["run", "web", "sleep", "5"][..],
        &["run", "--app", "web", "sleep", "5"],
    ] {
        run(&[words, &size].concat()).expect(2, &["after --", "vendue run web", hint]);
    }
    run(&[&["run", "web"], &size[..]].concat()).expect(2, &["no COMMAND", "after --"]);
    run(&[&["run"], &size[..], &["--", "true"]].concat()).expect(2, &["APP: missing"]);
    let wrong = ["run", "web", "--memory", "64X", "--disk", "1", "--", "true"];
    run(&wrong).expect(2, &["64X", "--memory", "unit"]);
    let wrong = [
        "run",
        "web",
        "--memory",
        "1",
        "--disk",
        "1",
        "--indices",
        "3-",
        "--",
        "true",
    ];
    run(&wrong).expect(2, &["--indices \"3-\"", "0,2-4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_what_was_not_placed_or_is_gone_says_so() {
    let up = Up::with(&["--cells", "2", "--zones", "1"]);
    let huge = "run huge --memory 100G --disk 1 -- sleep 1";
    let huge: Vec<&str> = huge.split(' ').collect();
    up.run(&huge).expect(3, &["unplaced"]);
    let said = up.run(&["wait", "huge", "--output", "json"]);
    said.expect(
        3,
        &[
            "huge 0 unplaced",
            "insufficient resources: memory",
            "--queue-timeout",
        ],
    );
    assert_eq!(said.json()["outcome"], "unplaced");
    up.run(&sleepers("site", &["--placement-tag", "x"]))
        .expect(3, &["placement tag"]);
    up.run(&["cells", "set", "z1-cell-0", "placement_tags=x"])
        .expect(0, &[]);
    until("the auctioneer to hear of it", || {
        let cells = up.run(&["cells"]);
        let shown = cells.out.contains("KEPT FOR") && cells.out.contains("placement tags x");
        shown.then_some(()).ok_or(cells.out)
    })
    .await;
    up.run(&sleepers("site", &["--placement-tag", "x"]))
        .expect(0, &["z1-cell-0"]);
    up.run(&["wait", "site"]).expect(0, &["1 running"]);
    up.run(&["drain", "z1-cell-0", "--deadline", "0s", "--exit"])
        .expect(0, &[]);
    until("the cell to be gone", || {
        let cells = up.json(&["cells"]);
        (cells["total"] == 1).then_some(()).ok_or(cells.to_string())
    })
    .await;
    let said = up.run(&["wait", "site", "--timeout", "1s"]);
    said.expect(
        1,
        &[
            "placed 0 on z1-cell-0 (not there any more)",
            "not started elsewhere",
        ],
    );
    let said = up.run(&["ps", "--cell", "z1-cell-0", "--zone", "z9"]);
    said.expect(0, &["no cell z1-cell-0 answers", "no zone z9 answers"]);
}
