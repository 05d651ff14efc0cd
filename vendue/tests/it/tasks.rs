//! Tasks and durable requests, as people and programs use them.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::Stdio,
};

use serde_json::{Value, json};

use crate::{
    cli_page::check,
    common::{Up, is_old_server, until},
};

fn file(dir: &tempfile::TempDir, name: &str, value: &Value) -> String {
    let path = dir.path().join(name);
    fs::write(&path, value.to_string()).unwrap();
    path.display().to_string()
}

fn task(id: &str, script: &str) -> Value {
    json!({ "id": id, "app": "batch", "memory_mb": 16, "disk_mb": 16,
        "run": { "command": ["sh", "-c", script] } })
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_tasks_of_one_file_are_run_and_their_results_shown() {
    if is_old_server() {
        return;
    }
    let (up, dir) = (Up::start(), tempfile::tempdir().unwrap());
    let one = |n: usize| task(&format!("t-{n:02}"), &format!("echo result {n}"));
    let fifty = file(&dir, "fifty.json", &(0..50).map(one).collect());
    up.run(&["task", "run", &fifty, "--wait", "--timeout", "2m"])
        .expect(0, &["t-00", "t-49", "succeeded"]);
    up.run(&["task", "result", "--app", "batch"])
        .expect(0, &["t-17", "succeeded"]);
    let results = up.json(&["task", "result", "--app", "batch"]);
    check("task result TASK…", &results);
    let results = results["tasks"].as_array().unwrap();
    assert_eq!(results.len(), 50);
    for (n, result) in results.iter().enumerate() {
        assert_eq!(result["output"], format!("result {n}\n"), "{result}");
        assert_eq!(result["exit_code"], 0, "{result}");
        assert_eq!(result["attempts"], 1, "{result}");
        assert!(result["cell"].is_string(), "{result}");
    }
    // submitting the same again changes nothing
    up.run(&["task", "run", &fifty])
        .expect(0, &["t-07 is already stored"]);
    up.run(&["task", "result", "t-07"])
        .expect(0, &["result 7", "took", "succeeded"]);
    check("task list", &up.json(&["task", "list"]));
    check("task show TASK", &up.json(&["task", "show", "t-07"]));
    check(
        "task wait TASK…",
        &up.json(&["task", "wait", "--app", "batch"]),
    );
    check("task run FILE…", &up.json(&["task", "run", &fifty]));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worst_task_is_the_exit_code() {
    if is_old_server() {
        return;
    }
    let (up, dir) = (Up::start(), tempfile::tempdir().unwrap());
    let mut never = task("never", "true");
    never["memory_mb"] = 100_000.into();
    never["queue_timeout"] = "1s".into();
    let mut slow = task("slow", "sleep 1000");
    slow["timeout"] = "1s".into();
    let absent = json!({ "id": "absent", "app": "batch", "memory_mb": 16, "disk_mb": 16,
        "run": { "command": ["/no/such/program"] } });
    let tasks = json!([
        task("good", "true"),
        task("bad", "echo oops >&2; exit 7"),
        never,
        slow,
        absent
    ]);
    let all = file(&dir, "all.json", &tasks);
    up.run(&["task", "run", &all]).expect(0, &["good"]);
    up.run(&["task", "wait", "good"]).expect(0, &["succeeded"]);
    up.run(&["task", "wait", "good", "never"])
        .expect(3, &["not started in time"]);
    up.run(&["task", "wait", "--app", "batch", "--timeout", "1m"])
        .expect(1, &["timed out", "exit 7"]);
    let bad = up.json(&["task", "result", "bad"]);
    assert_eq!(bad["tasks"][0]["output"], "oops\n", "{bad}");
    let absent = &up.json(&["task", "result", "absent"])["tasks"][0];
    assert_eq!(
        (&absent["state"], &absent["attempts"]),
        (&json!("failed"), &json!(4)),
        "{absent}"
    );
    up.run(&["task", "show", "nobody"])
        .expect(1, &["no stored request has the id"]);
    up.run(&["task", "wait", "a.b"]).expect(2, &["TASK"]);
    up.run(&["task", "wait"]).expect(2, &[]);
    let other = file(&dir, "other.json", &task("good", "false"));
    up.run(&["task", "run", &other])
        .expect(1, &["good is the id of another stored request"]);
    let wrong = file(
        &dir,
        "wrong.json",
        &json!([{ "app": "batch", "memory_mb": 1, "disk_mb": 1,
        "run": { "command": ["true"] }, "retrys": 3 }]),
    );
    up.run(&["task", "run", &wrong]).expect(2, &["retrys"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_about_one_task_does_not_hide_the_others() {
    if is_old_server() {
        return;
    }
    let (up, dir) = (Up::start(), tempfile::tempdir().unwrap());
    let clears = task("clears", r"printf 'a\r\n\033[2Jb\n'");
    let both = file(
        &dir,
        "both.json",
        &json!([clears, task("long", "sleep 1000")]),
    );
    up.run(&["task", "run", &both])
        .expect(0, &["clears", "long"]);
    up.run(&["task", "wait", "clears"])
        .expect(0, &["succeeded"]);
    let shown = up.run(&["task", "result", "clears"]);
    let shown = shown.expect(0, &["\u{fffd}[2Jb"]);
    assert!(!shown.out.contains('\x1b'), "{:?}", shown.out);
    up.run(&["task", "result", "nobody", "clears"])
        .expect(1, &["nobody: no stored request has the id", "succeeded"]);
    up.run(&["task", "cancel", "clears"])
        .expect(0, &["clears had already ended"]);
    up.run(&["task", "list", "--app", "nope"])
        .expect(0, &["no task of nope is known"]);
    let ids = ["nobody", "long", "clears"];
    let said = up.run(&[["task", "cancel"].as_slice(), &ids, &["--output", "json"]].concat());
    let said = said.expect(1, &[]).json();
    check("task cancel TASK…", &said);
    assert_eq!(said["errors"][0]["id"], "nobody", "{said}");
    assert_eq!(said["errors"][0]["code"], "not_found", "{said}");
    assert_eq!(said["tasks"].as_array().unwrap().len(), 2, "{said}");
    up.run(&["task", "wait", "long"]).expect(1, &["cancelled"]);
    // a task that nobody knows has not succeeded
    for unknown in [["--app", "typo"].as_slice(), &["typo"]] {
        let wait = [["task", "wait", "--timeout", "1s"].as_slice(), unknown].concat();
        up.run(&wait).expect(1, &["no task", "typo", "is known"]);
    }
    // a generated id is printed before the wait
    up.run(&["task", "run", "examples/task.json", "--wait"])
        .expect(0, &["stored: ", "succeeded"]);
    // two in one file: a refused one does not hide a stored one
    let other = file(
        &dir,
        "other.json",
        &json!([task("clears", "false"), task("new", "true")]),
    );
    let said = up.run(&["task", "run", &other, "--output", "json"]);
    let said = said.expect(1, &[]).json();
    let outcomes = |n: usize| said["tasks"][n]["outcome"].as_str().unwrap().to_owned();
    assert_eq!(
        (outcomes(0), outcomes(1)),
        ("refused".into(), "stored".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_finds_no_room_waits_and_can_be_cancelled() {
    if is_old_server() {
        return;
    }
    let (up, dir) = (Up::with(&["--cells", "1"]), tempfile::tempdir().unwrap());
    let mut large = task("large", "sleep 1000");
    large["memory_mb"] = 1_000.into();
    let mut next = task("next", "true");
    next["memory_mb"] = 1_000.into();
    let both = file(&dir, "both.json", &json!([large]));
    up.run(&["task", "run", &both]).expect(0, &[]);
    until("the first to run", || {
        let shown = up.json(&["task", "show", "large"]);
        let runs = shown["task"]["state"] == "running";
        runs.then_some(()).ok_or(shown.to_string())
    })
    .await;
    let next = file(&dir, "next.json", &next);
    up.run(&["task", "run", &next]).expect(0, &[]);
    until("the second to wait", || {
        let shown = up.json(&["task", "show", "next"]);
        let waits = shown["task"]["why"]
            .as_str()
            .is_some_and(|why| why.contains("memory"));
        waits.then_some(()).ok_or(shown.to_string())
    })
    .await;
    let cancelled = up.json(&["task", "cancel", "large"]);
    check("task cancel TASK…", &cancelled);
    up.run(&["task", "wait", "large"]).expect(1, &["cancelled"]);
    up.run(&["task", "wait", "next", "--timeout", "1m"])
        .expect(0, &["succeeded"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_start_needs_a_manager() {
    if is_old_server() {
        return;
    }
    let up = Up::start();
    let said = up.json(&["start", "--durable", "examples/web.json"]);
    check("task run FILE…", &said);
    let id = said["tasks"][0]["id"].as_str().unwrap();
    up.run(&["task", "wait", id, "--timeout", "1m"])
        .expect(0, &["placed"]);
    assert_eq!(up.json(&["task", "show", id])["task"]["placed"], 3);
    up.run(&["wait", "web"]).expect(0, &["3 running"]);
    // its sender may not have heard the answer
    let dir = tempfile::tempdir().unwrap();
    let request = json!({ "id": "once", "app": "once", "memory_mb": 16, "disk_mb": 16,
        "run": { "command": ["sleep", "1000"] } });
    let once = file(&dir, "once.json", &request);
    up.run(&["start", "--durable", &once]).expect(0, &["once"]);
    up.run(&["wait", "once"]).expect(0, &["1 running"]);
    up.run(&["start", "--durable", &once])
        .expect(0, &["once is already stored"]);
    let twice = file(&dir, "twice.json", &json!([request, request]));
    up.run(&["start", "--durable", &twice])
        .expect(2, &["id: \"once\", twice,"]);
    let without = Up::with(&["--cells", "1", "--no-manager"]);
    without
        .run(&["start", "--durable", "examples/web.json"])
        .expect(1, &["no manager answers", "JetStream"]);
    without
        .run(&["task", "run", "examples/task.json"])
        .expect(1, &["no manager answers", "JetStream"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_durable_array_the_rest_is_placed_when_there_is_room() {
    if is_old_server() {
        return;
    }
    // a cell of 1 GiB, on which one of three does not fit
    let (up, dir) = (Up::with(&["--cells", "1"]), tempfile::tempdir().unwrap());
    let request = |id: &str, instances: u32| {
        json!({ "id": id, "app": id, "memory_mb": 300, "disk_mb": 16, "instances": instances,
            "run": { "command": ["sleep", "1000"] } })
    };
    up.run(&["start", &file(&dir, "other.json", &request("other", 1))])
        .expect(0, &[]);
    let three = file(&dir, "three.json", &request("three", 3));
    up.run(&["start", "--durable", &three]).expect(0, &[]);
    until("two to be placed and one to wait", || {
        let shown = up.json(&["task", "show", "three"]);
        let task = &shown["task"];
        let waits = task["state"] == "waiting" && task["placed"] == 2;
        waits.then_some(()).ok_or(shown.to_string())
    })
    .await;
    up.run(&["stop", "other"]).expect(0, &[]);
    up.run(&["task", "wait", "three", "--timeout", "1m"])
        .expect(0, &["placed"]);
    assert_eq!(up.json(&["task", "show", "three"])["task"]["placed"], 3);
    up.run(&["wait", "three"]).expect(0, &["3 running"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_on_a_cell_that_is_drained_is_stopped_and_not_repeated() {
    if is_old_server() {
        return;
    }
    let (up, dir) = (Up::with(&["--cells", "2"]), tempfile::tempdir().unwrap());
    let mut long = task("long", "sleep 1000");
    long["retries"] = 3.into();
    up.run(&["task", "run", &file(&dir, "long.json", &long)])
        .expect(0, &[]);
    let cell = until("the task to run", || {
        let shown = up.json(&["task", "show", "long"]);
        let runs = shown["task"]["state"] == "running";
        let cell = shown["task"]["cell"].as_str().map(str::to_owned);
        cell.filter(|_| runs).ok_or(shown.to_string())
    })
    .await;
    up.run(&["drain", &cell, "--deadline", "1s"]).expect(0, &[]);
    up.run(&["task", "wait", "long", "--timeout", "1m"])
        .expect(1, &["it was stopped"]);
    assert_eq!(up.json(&["task", "show", "long"])["task"]["attempts"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_a_wait_and_no_task() {
    if is_old_server() {
        return;
    }
    let (up, dir) = (Up::with(&["--cells", "1"]), tempfile::tempdir().unwrap());
    let long = file(&dir, "long.json", &task("long", "sleep 1000"));
    let mut command = up.command(&["task", "run", &long, "--wait"]);
    let mut waits = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(waits.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("stored: long") {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "it has ended");
    }
    let pid = rustix::process::Pid::from_child(&waits);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(waits.wait().unwrap().code(), Some(130));
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("what is stored goes on"), "{rest}");
    until("the task to run", || {
        let shown = up.json(&["task", "show", "long"]);
        let runs = shown["task"]["state"] == "running";
        runs.then_some(()).ok_or(shown.to_string())
    })
    .await;
    up.run(&["task", "cancel", "long"]).expect(0, &[]);
    up.run(&["task", "wait", "long"]).expect(1, &["cancelled"]);
}
