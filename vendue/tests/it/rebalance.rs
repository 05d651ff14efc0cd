//! `vendue rebalance`: a zone that was away gets its share of an app back.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStderr, Stdio},
};

use futures_util::StreamExt;
use serde_json::json;

use crate::{
    cli_page::check,
    common::{PATIENCE, Up, is_old_server, until},
};

const Z2: [&str; 2] = ["z2-cell-0", "z2-cell-1"];

fn put(up: &Up, home: &std::path::Path, app: &str, update: &serde_json::Value) {
    put_command(up, home, app, "exec sleep 1000", update);
}

fn put_command(
    up: &Up,
    home: &std::path::Path,
    app: &str,
    shell: &str,
    update: &serde_json::Value,
) {
    let file = home.join(format!("{app}.json"));
    let definition = json!({
        "app": app, "instances": 4, "memory_mb": 16, "disk_mb": 16, "run": {"command": ["sh", "-c", shell]},
        "update": update,
    });
    std::fs::write(&file, definition.to_string()).unwrap();
    up.run(&["app", "put", file.to_str().unwrap(), "--wait"])
        .expect(0, &[]);
}

/// Returns how many instances of the app run in each zone.
fn zones(up: &Up, app: &str) -> BTreeMap<String, usize> {
    let mut zones = BTreeMap::new();
    for instance in up.instances(app, "running") {
        let zone = instance["zone"].as_str().unwrap().to_owned();
        *zones.entry(zone).or_default() += 1;
    }
    zones
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zone_that_is_back_gets_its_share() {
    if is_old_server() {
        return;
    }
    let up = Up::start();
    let home = tempfile::tempdir().unwrap();
    for cell in Z2 {
        up.run(&["cordon", cell]).expect(0, &[]);
    }
    put(&up, home.path(), "web", &json!({"min_healthy": "0s"}));
    let rules = json!({"min_healthy": "0s", "order": "stop-first"});
    put(&up, home.path(), "single", &rules);
    assert_eq!(zones(&up, "web"), BTreeMap::from([("z1".into(), 4)]));
    for cell in Z2 {
        up.run(&["uncordon", cell]).expect(0, &[]);
    }
    until("a plan", || {
        let planned = up.json(&["rebalance"]);
        check("rebalance", &planned);
        let moves = planned["moves"].as_array().unwrap();
        let two = moves.len() == 2 && planned["before"]["uneven"] == 2;
        (two && planned["after"]["uneven"] == 0)
            .then_some(())
            .ok_or(planned.to_string())
    })
    .await;
    let planned = up.run(&["rebalance", "--plan"]);
    let said = ["web", "too many of the app", "single is left as it is"];
    planned.expect(0, &said);
    assert!(planned.out.contains("AFTER 2 MOVES"), "{planned:?}");
    assert_eq!(zones(&up, "web"), BTreeMap::from([("z1".into(), 4)]));
    let ids = |instances: Vec<serde_json::Value>| {
        let ids = instances.iter().map(|one| one["instance"].to_string());
        ids.collect::<std::collections::BTreeSet<_>>()
    };
    let before = ids(up.instances("web", "running"));
    // first one, then the other
    let one = up.json(&["rebalance", "--apply", "--max-moves", "1"]);
    check("rebalance", &one);
    assert_eq!(one["results"][0]["state"], "moved", "{one}");
    up.run(&["rebalance", "--apply", "--rate", "2/1s", "--app", "web"])
        .expect(0, &["1 of 1 move done", "runs on z2-cell-"]);
    let even = BTreeMap::from([("z1".into(), 2), ("z2".into(), 2)]);
    assert_eq!(zones(&up, "web"), even);
    let after = ids(up.instances("web", "running"));
    assert_eq!(before.intersection(&after).count(), 2, "the others stayed");
    let nothing = up.run(&["rebalance", "--app", "web"]);
    nothing.expect(0, &["no move would make", "NOW"]);
    assert!(!nothing.out.contains("AFTER"), "{nothing:?}");
    // also by usage, once the cells have measured it
    up.run(&["rebalance", "--by", "usage"]).expect(0, &[]);
    up.run(&["ps", "web", "--usage"])
        .expect(0, &["USES", "CPU"]);
    up.run(&["rebalance", "--rate", "1/10s"])
        .expect(2, &["--apply"]);
    up.run(&["rebalance", "--apply", "--rate", "fast"])
        .expect(2, &["such as 1/10s"]);
}

/// A cluster in which all of an app runs in z1, and z2 is back.
fn with_all_in_z1(home: &std::path::Path, shell: &str, min_healthy: &str) -> Up {
    let up = Up::start();
    for cell in Z2 {
        up.run(&["cordon", cell]).expect(0, &[]);
    }
    put_command(
        &up,
        home,
        "web",
        shell,
        &json!({"min_healthy": min_healthy}),
    );
    for cell in Z2 {
        up.run(&["uncordon", cell]).expect(0, &[]);
    }
    up
}

async fn two_moves_are_planned(up: &Up) {
    until("a plan", || {
        let planned = up.json(&["rebalance"]);
        let two = planned["moves"].as_array().unwrap().len() == 2;
        two.then_some(()).ok_or(planned.to_string())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_move_that_fails_ends_it() {
    if is_old_server() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let shell = r#"[ "$ZONE" = z1 ] || exit 7; exec sleep 1000"#;
    let up = with_all_in_z1(home.path(), shell, "3s");
    two_moves_are_planned(&up).await;
    up.run(&["rebalance", "--apply", "--rate", "1/1s"]).expect(
        1,
        &[
            "0 of 2 moves done",
            "stays on z1-cell-",
            "ended before it was healthy",
        ],
    );
    until("the old instances alone", || {
        let all = zones(&up, "web");
        (all == BTreeMap::from([("z1".into(), 4)]))
            .then_some(())
            .ok_or(format!("{all:?}"))
    })
    .await;
    up.run(&["rebalance", "--app", "wbe"])
        .expect(1, &["--app: \"wbe\" is not known", "vendue app list"]);
}

/// A connection of the test's own.
async fn client(up: &Up) -> async_nats::Client {
    let (token, server) = up
        .url
        .trim_start_matches("nats://")
        .split_once('@')
        .unwrap();
    let options = async_nats::ConnectOptions::with_token(token.to_owned());
    options.connect(server).await.unwrap()
}

/// `vendue rebalance --apply`, and what it says on standard error.
struct Applied {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Applied {
    fn start(up: &Up, args: &[&str]) -> Self {
        let mut command = up.command(&["rebalance", "--apply"]);
        let output = command.args(args).stdout(Stdio::piped());
        let mut child = output.stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        Self { child, said }
    }

    fn until(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert_ne!(self.said.read_line(&mut line).unwrap(), 0, "it has ended");
        }
    }

    fn interrupt(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    }

    /// Waits for its end by Ctrl-C. Returns what it printed: the result, and the rest of standard error.
    fn ended(mut self) -> (String, String) {
        let (mut out, mut err) = (String::new(), String::new());
        self.said.read_to_string(&mut err).unwrap();
        let mut stdout = self.child.stdout.take().unwrap();
        stdout.read_to_string(&mut out).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(130), "{err}");
        (out, err)
    }
}

async fn one_has_moved(up: &Up) {
    let moved = BTreeMap::from([("z1".into(), 3), ("z2".into(), 1)]);
    until("one to have moved", || {
        let all = zones(up, "web");
        (all == moved).then_some(()).ok_or(format!("{all:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_begins_no_further_move() {
    if is_old_server() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let up = with_all_in_z1(home.path(), "exec sleep 1000", "0s");
    two_moves_are_planned(&up).await;
    let mut moves = Applied::start(&up, &["--rate", "1/1h"]);
    moves.until("runs on z2-cell-");
    moves.interrupt();
    let (out, err) = moves.ended();
    assert!(out.contains("1 of 2 moves done"), "{out}");
    assert!(err.contains("no further move begins"), "{err}");
    one_has_moved(&up).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_ctrl_c_a_move_that_has_begun_is_waited_for_and_told() {
    if is_old_server() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let up = with_all_in_z1(home.path(), "exec sleep 1000", "3s");
    two_moves_are_planned(&up).await;
    let mut moves = Applied::start(&up, &["--rate", "1/1s", "--output", "json"]);
    moves.until("1 of 2: moving");
    moves.interrupt();
    moves.until("no further move begins");
    let (out, _) = moves.ended();
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    check("rebalance", &told);
    assert_eq!(told["results"].as_array().unwrap().len(), 1, "{told}");
    assert_eq!(told["results"][0]["state"], "moved", "{told}");
    one_has_moved(&up).await;
    // a second one does not wait, and the manager completes the move
    let client = client(&up).await;
    let mut asked = client.subscribe("vendue.app.move.web").await.unwrap();
    client.flush().await.unwrap();
    let mut moves = Applied::start(&up, &["--rate", "1/1s"]);
    moves.until("1 of 1: moving");
    // the manager hears it, too
    asked.next().await.unwrap();
    moves.interrupt();
    moves.until("no further move begins");
    moves.interrupt();
    let (_, err) = moves.ended();
    assert!(err.contains("completed by the manager"), "{err}");
    let even = BTreeMap::from([("z1".into(), 2), ("z2".into(), 2)]);
    until("both to have moved", || {
        let all = zones(&up, "web");
        (all == even).then_some(()).ok_or(format!("{all:?}"))
    })
    .await;
}

/// Whatever the policy: this one starts everything on the fullest cell, which is the one to leave.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_is_moved_never_gets_its_own_cell_again() {
    if is_old_server() {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let packs = home.path().join("packs.toml");
    let text = "name = \"packs\"\n[[stage]]\nfilter = \"memory\"\n[[stage]]\nscore = \"memory\"\nmode = \"raw\"\n\
        [[stage]]\npick = \"lowest\"\n";
    std::fs::write(&packs, text).unwrap();
    let packs = packs.to_str().unwrap();
    let up = Up::with(&["--cells", "2", "--zones", "1", "--policy", packs]);
    put(&up, home.path(), "web", &json!({"min_healthy": "0s"}));
    let before = up.instances("web", "running");
    let from = before[0]["cell"].as_str().unwrap().to_owned();
    let all_there = before.iter().all(|one| one["cell"] == from.as_str());
    assert!(all_there, "{before:?}");
    let client = client(&up).await;
    let body = json!({"v": 1, "id": "move-1", "index": 2, "from": from}).to_string();
    let moved = testkit::eventually_within(PATIENCE, "the end of the move", async || {
        let asked = client.request("vendue.app.move.web", body.clone().into());
        let answer = asked.await.map_err(|e| e.to_string())?.payload;
        let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
        let moves = answer["state"] == "moving" || answer["error"].is_object();
        (!moves).then_some(answer.clone()).ok_or(answer.to_string())
    })
    .await;
    assert_eq!(moved["state"], "moved", "{moved}");
    assert_ne!(moved["cell"], from.as_str(), "{moved}");
}
