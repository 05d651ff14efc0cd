//! Every command that asks a cluster.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{Up, end, run, until};

#[tokio::test(flavor = "multi_thread")]
async fn from_start_to_stop() {
    let up = Up::start();
    up.run(&["health"])
        .expect(0, &["healthy: auctioneer", "4 cells, NATS"]);
    for role in ["nats", "auctioneer", "rep"] {
        up.run(&["health", "--role", role]).expect(0, &["healthy"]);
    }
    up.run(&["health", "--role", "rep", "--cell", "z1-cell-0"])
        .expect(0, &["z1-cell-0"]);
    up.run(&["health", "--role", "rep", "--cell", "nobody"])
        .expect(1, &["nobody"]);

    let started = up.json(&["start", "examples/web.json"]);
    assert_eq!(started["outcome"], "placed");
    assert_eq!(started["instances"].as_array().unwrap().len(), 3);
    up.run(&["wait", "web"]).expect(0, &["web: 3 running"]);
    let instances = up.instances("web", "running");
    let zones: std::collections::BTreeSet<_> =
        instances.iter().map(|i| i["zone"].as_str()).collect();
    assert_eq!(zones.len(), 2, "diego spreads over zones: {instances:?}");
    up.run(&["ps"])
        .expect(0, &["APP", "ADDRESS", "web", "127.0.0.1:", "running"]);
    up.run(&["status", "web"]).expect(0, &["web: 3 running"]);
    up.run(&["status", "other"])
        .expect(1, &["no instance of other on 4 cells"]);
    up.run(&["logs", "web"]).expect(0, &["listening on"]);
    up.run(&["explain", "web"]).expect(
        0,
        &["auction", "policy diego", "placed", "COST", "lowest cost"],
    );
    up.run(&["explain", "other"]).expect(1, &["other"]);
    let cells = up.json(&["cells"]);
    assert_eq!(cells["total"], 4);
    up.run(&["cells"])
        .expect(0, &["CELL", "z2-cell-1", "MiB", "4 cells"]);

    up.run(&["stop", "web", "--indices", "0"])
        .expect(0, &["1 instance told to stop"]);
    until("two instances to be left", || {
        let count = up.instances("web", "running").len();
        (count == 2).then_some(()).ok_or(format!("{count} run"))
    })
    .await;
    up.run(&["stop", "web"])
        .expect(0, &["2 instances told to stop"]);
    up.run(&["stop", "web-never"])
        .expect(1, &["nothing to stop"]);
    until("none to be left", || {
        let said = up.run(&["ps"]);
        said.err
            .contains("no instances")
            .then_some(())
            .ok_or(said.out)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn run_a_command() {
    let up = Up::start();
    let mut args = vec![
        "run",
        "--app",
        "env",
        "--memory",
        "32",
        "--disk",
        "32",
        "--instances",
        "2",
    ];
    args.extend(["--env", "COLOUR=blue", "--tag", "role=test", "--"]);
    args.extend([
        "sh",
        "-c",
        "echo $APP.$INSTANCE_INDEX $COLOUR $CELL $ZONE; exec sleep 1000",
    ]);
    up.run(&args).expect(0, &["env", "placed"]);
    up.run(&["wait", "env", "--instances", "2"])
        .expect(0, &["2 running"]);
    up.run(&["logs", "env"])
        .expect(0, &["env.0 blue z", "env.1 blue z"]);
    let first = up.run(&["logs", "env", "--index", "1"]);
    assert!(!first.out.contains("env.0"), "{first:?}");
    up.run(&["logs", "env", "--index", "77"])
        .expect(1, &["no instance of env with index 77 on 4 cells"]);
    // a running name is not started again by accident
    up.run(&args)
        .expect(1, &["env runs already: 2 instances", "--again"]);
    args.insert(1, "--again");
    up.run(&args).expect(0, &["placed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_ends_and_a_failed_one_is_reported() {
    let up = Up::start();
    up.run(&["start", "examples/task.json"])
        .expect(0, &["placed"]);
    up.run(&["wait", "report"]).expect(0, &["1 exited"]);
    up.run(&["logs", "report"])
        .expect(0, &["42 things counted"]);
    let ps = up.run(&["ps"]);
    assert!(
        !ps.out.contains("report"),
        "what has ended is shown with --all only: {ps:?}"
    );
    up.run(&["ps", "--all"]).expect(0, &["report", "exited"]);
    let task = [
        "--memory", "16", "--disk", "16", "--task", "--", "sh", "-c", "exit 3",
    ];
    up.run(&[&["run", "--app", "bad"], &task[..]].concat())
        .expect(0, &["placed"]);
    up.run(&["wait", "bad"]).expect(1, &["crashed", "exit 3"]);
    up.run(&["wait", "never", "--timeout", "1s"])
        .expect(1, &["never is not ready after 1s"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_and_logs_follow_until_interrupted() {
    let up = Up::start();
    let follow = |args: &[&str]| {
        let mut child = up
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let err = BufReader::new(child.stderr.take().unwrap());
        (child, out, err)
    };
    let (mut events, mut out, mut err) = follow(&["events", "--follow", "--output", "json"]);
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    assert!(line.contains("listening"), "{line}");
    // what one cell says in another's name is not shown
    let forger = shared::nats::NatsOptions {
        url: up.url.clone(),
        name: "forger".into(),
        ..Default::default()
    };
    let forger = shared::nats::connect(&forger).await.unwrap().client;
    let forged = r#"{"v":1,"kind":"crashed","app":"worker","cell":"z1-cell-0","by":"z1-cell-0"}"#;
    let subject = "vendue.event.crashed.worker.z2-cell-0";
    forger.publish(subject, forged.into()).await.unwrap();
    forger.flush().await.unwrap();
    let mut dropped = String::new();
    err.read_line(&mut dropped).unwrap();
    assert!(dropped.contains("1 message dropped"), "{dropped}");
    up.run(&["start", "examples/worker.json"]).expect(0, &[]);
    let mut kinds = Vec::new();
    while !kinds.contains(&"running".to_owned()) {
        let mut line = String::new();
        assert_ne!(
            out.read_line(&mut line).unwrap(),
            0,
            "it ended after {kinds:?}"
        );
        let event: Value = serde_json::from_str(&line).unwrap();
        kinds.push(event["kind"].as_str().unwrap().to_owned());
    }
    assert!(
        kinds.contains(&"asked".into())
            && kinds.contains(&"placed".into())
            && !kinds.contains(&"crashed".into()),
        "{kinds:?}"
    );
    interrupt(&events);
    assert!(
        events.wait().unwrap().success(),
        "Ctrl-C is how one ends it"
    );

    let (mut logs, mut out, _err) = follow(&["logs", "worker", "--follow"]);
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.contains("at work on z"), "{line}");
    interrupt(&logs);
    assert!(logs.wait().unwrap().success());
    up.run(&["events", "--for", "100ms"])
        .expect(0, &["for 100ms"]);
}

fn interrupt(child: &std::process::Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, Signal::INT).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unplaced_work_exits_with_3_and_a_reason() {
    let up = Up::start();
    let too_large = [
        "run", "--app", "huge", "--memory", "100000", "--disk", "1", "--", "sleep", "1",
    ];
    up.run(&too_large)
        .expect(3, &["unplaced", "insufficient resources: memory", "100000"]);
    up.run(&["explain", "huge"])
        .expect(0, &["unplaced", "memory"]);
    // 4 cells of 1024 MiB hold 64 of 64 MiB
    let many = [
        "run",
        "--app",
        "many",
        "--memory",
        "64",
        "--disk",
        "1",
        "--instances",
        "10000",
        "--output",
        "json",
        "--",
        "sleep",
        "1000",
    ];
    let reply = up.run(&many).expect(3, &[]).json();
    assert_eq!(reply["outcome"], "unplaced");
    let outcomes = reply["instances"].as_array().unwrap();
    let placed = outcomes.iter().filter(|i| i["outcome"] == "placed").count();
    assert_eq!(placed, 64, "{} outcomes", outcomes.len());
    assert!(
        outcomes.len() < 200,
        "equal failures are grouped: {}",
        outcomes.len()
    );
    up.run(&["stop", "many"])
        .expect(0, &["64 instances told to stop"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dry_run_starts_nothing() {
    let up = Up::start();
    let place = |args: &[&str]| up.run(&[&["place", "--live", "examples/web.json"], args].concat());
    place(&[]).expect(0, &["placed", "nothing was started"]);
    place(&["--explain=cells"]).expect(0, &["left"]);
    let json = place(&[
        "--output",
        "json",
        "--without",
        "z1-cell-0",
        "--without",
        "z1-cell-1",
    ]);
    let decisions = json.expect(0, &[]).json()["decisions"]
        .as_array()
        .unwrap()
        .clone();
    let zone_2 = |d: &Value| d["cell"].as_str().unwrap().starts_with("z2-");
    assert!(
        decisions.len() == 3 && decisions.iter().all(zone_2),
        "{decisions:?}"
    );
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("huge.json");
    fs::write(
        &file,
        r#"{"app":"huge","memory_mb":900,"disk_mb":1,"instances":6}"#,
    )
    .unwrap();
    let file = file.display().to_string();
    up.run(&["place", "--live", &file])
        .expect(3, &["insufficient resources"]);
    up.run(&["place", "--live", &file, "--add-cells", "2:like=z1-cell-0"])
        .expect(0, &["placed"]);
    up.run(&["ps"]).expect(0, &["no instances"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_cell_ends_and_the_cluster_goes_on() {
    let up = Up::with(&["--cells", "2", "--zones", "1"]);
    let sleep = [
        "--memory",
        "16",
        "--disk",
        "16",
        "--instances",
        "4",
        "--",
        "sleep",
        "1000",
    ];
    up.run(&[&["run", "--app", "a"], &sleep[..]].concat())
        .expect(0, &[]);
    up.run(&["wait", "a"]).expect(0, &["4 running"]);
    up.run(&["drain", "z1-cell-0", "--deadline", "0s", "--exit"])
        .expect(0, &["z1-cell-0", "2 instances"]);
    until("the cell to be gone", || {
        let cells = up.json(&["cells"]);
        (cells["total"] == 1).then_some(()).ok_or(cells.to_string())
    })
    .await;
    let left = up.instances("a", "running");
    assert!(
        left.len() == 2 && left.iter().all(|i| i["cell"] == "z1-cell-1"),
        "{left:?}"
    );
    up.run(&["drain", "z1-cell-0"]).expect(1, &["z1-cell-0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_are_listed_without_an_auctioneer() {
    let server = testkit::NatsServer::start().await;
    let rep = |name: &str| {
        let mut command = crate::common::vendue();
        command.args([
            "rep",
            "--cell",
            name,
            "--memory",
            "512",
            "--simulated",
            "--nats",
        ]);
        command
            .arg(server.url())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut cells = [rep("a"), rep("b")];
    until("both cells to answer", || {
        let json = run(&[
            "health",
            "--role",
            "rep",
            "--output",
            "json",
            "--nats",
            &server.url(),
        ]);
        json.out
            .contains("\"cells\": 2")
            .then_some(())
            .ok_or(format!("{json:?}"))
    })
    .await;
    run(&["ps", "--nats", &server.url()]).expect(0, &["no instances on 2 cells"]);
    run(&["cells", "--nats", &server.url()]).expect(1, &["vendue.pool", "auctioneer"]);
    run(&["ps", "--prefix", "other", "--nats", &server.url()]).expect(1, &["other.instances"]);
    for cell in &mut cells {
        interrupt(cell);
        assert!(cell.wait().unwrap().success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_come_from_standard_input_and_in_arrays() {
    let up = Up::start();
    let start = |text: &str| {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("request");
        fs::write(&file, text).unwrap();
        let mut command = up.command(&["start", "-", "--output", "json"]);
        let output = command
            .stdin(fs::File::open(&file).unwrap())
            .output()
            .unwrap();
        let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), json, err)
    };
    let one = r#"{"app":"a","memory_mb":8,"disk_mb":8,"run":{"command":["sleep","100"]}}"#;
    let (code, reply, _) = start(one);
    assert_eq!((code, reply["outcome"].as_str()), (Some(0), Some("placed")));
    let bad = r#"{"app":"b","memory_mb":-8,"disk_mb":8}"#;
    let (code, replies, _) = start(&format!("[{},{bad}]", one.replace("\"a\"", "\"c\"")));
    assert_eq!(code, Some(2), "{replies}");
    assert_eq!(replies["requests"][0]["outcome"], "placed");
    assert_eq!(replies["requests"][1]["error"]["field"], "memory_mb");
    let misspelt = one
        .replace("\"a\"", "\"d\"")
        .replace("{\"app", "{\"instnces\":3,\"app");
    let (code, error, _) = start(&misspelt);
    assert_eq!(code, Some(2));
    let said = error["error"]["message"].as_str().unwrap();
    assert!(said.contains("did you mean \"instances\"?"), "{said}");
    // the same id starts nothing twice
    let with_id = one
        .replace("\"a\"", "\"e\"")
        .replace("{\"app", "{\"id\":\"once\",\"app");
    let first = start(&with_id).1;
    let second = start(&with_id).1;
    assert_eq!(
        first["instances"][0]["instance"],
        second["instances"][0]["instance"]
    );
    assert_eq!(
        up.json(&["ps", "e"])["instances"].as_array().unwrap().len(),
        1
    );
    end(&mut up.command(&["stop", "e"])).expect(0, &[]);
}
