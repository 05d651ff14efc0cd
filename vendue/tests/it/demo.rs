//! The demo, as `make demo` runs it.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use crate::common::{end, processes_with, until, vendue};

#[test]
fn the_demo_shows_everything_and_leaves_nothing() {
    let mark = uuid::Uuid::new_v4().to_string();
    let said = end(vendue().arg("demo").env("TEST_MARK", &mark));
    said.expect(
        0,
        &[
            "policy diego",
            "policy dea",
            "vendue start examples/web.json",
            "web: 3 running",
            "worker: 5 running",
            "report: 1 exited",
            "42 things counted",
            "curl http://127.0.0.1:",
            "kill -9",
            "restarted",
            "insufficient resources: memory",
            "nothing of it is left running",
        ],
    );
    assert_eq!(processes_with(&mark).len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_it_leaves_nothing_behind() {
    let mark = uuid::Uuid::new_v4().to_string();
    let mut command = vendue();
    command
        .arg("demo")
        .env("TEST_MARK", &mark)
        .stdout(Stdio::piped());
    let mut demo = command.spawn().unwrap();
    let said = BufReader::new(demo.stdout.take().unwrap()).lines();
    let runs = |line: &String| line.contains("web: 3 running");
    assert!(said.map_while(Result::ok).any(|line| runs(&line)));
    demo.kill().unwrap();
    demo.wait().unwrap();
    until("every process to be gone", || {
        let left = processes_with(&mark);
        left.is_empty()
            .then_some(())
            .ok_or(format!("{left:?} are left"))
    })
    .await;
}
