//! Devices, from a cell's flags to the environment variables of a process.

use std::fs;

use testkit::NatsServer;

use crate::{
    common::{end, run, until, until_healthy, vendue},
    roles::Role,
};

const SCENARIO: &str = r#"{"policy":"diego","cells":[
 {"cell":"c1","zone":"z1","total":{"memory_mb":1000,"devices":{"gpu":{"count":3,"each":1000,"model":"T4"}}},
  "available":{"memory_mb":1000,"devices":{"gpu":{"count":3,"each":1000,"model":"T4","free":[200,100,200]}}}},
 {"cell":"c2","zone":"z2","total":{"memory_mb":1000,"devices":{"gpu":{"count":1,"each":1000,"model":"P100"}}},
  "available":{"memory_mb":1000,"devices":{"gpu":{"count":1,"each":1000,"model":"P100","free":[200]}}}}],
 "requests":[{"app":"a","memory_mb":1,"disk_mb":1,"devices":{"gpu":{"count":2,"amount":150}}}]}"#;

#[test]
fn a_scenario_says_which_devices_and_how_many_more() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("scenario.json");
    fs::write(&file, SCENARIO).unwrap();
    let file = file.display().to_string();
    run(&["place", &file]).expect(0, &["DEVICES", "gpu 0,2 (150 each)"]);
    let placed = run(&["place", &file, "--output", "json"]).json();
    let numbers = &placed["decisions"][0]["devices"]["gpu"]["numbers"];
    assert_eq!(*numbers, serde_json::json!([0, 2]), "{placed}");
    let capacity = |devices: &str| {
        let args = ["capacity", "--memory", "1", "--disk", "1", "--scenario"];
        run(&[&args[..], &[&file, "--devices", devices]].concat())
    };
    capacity("gpu=1x50").expect(0, &["14"]);
    capacity("gpu=1x300").expect(
        3,
        &["insufficient resources: gpu (3 devices have 200 free, none has 300)"],
    );
    capacity("gpu=1x300:P100").expect(3, &["one device has 200 free, none has 300"]);
    capacity("gpu=3x150").expect(3, &["needs 3 devices with 150 free, the best cell has 2"]);
    capacity("fpga=1").expect(3, &["fpga (there is no such device)"]);
    capacity("gpu=1xmuch").expect(2, &["such as gpu=1x220"]);
    capacity("gpu=0").expect(2, &["devices.gpu.count: 0"]);
}

/// Starts a cell with two gpus, and an auctioneer.
async fn with_gpus(url: &str) -> [Role; 2] {
    let mut auctioneer = vendue();
    auctioneer.args(["auctioneer", "--nats", url]);
    let mut rep = vendue();
    rep.args(["rep", "--cell", "c1", "--memory", "256", "--nats", url]);
    rep.args(["--devices", "gpu=2x1000:T4"]);
    rep.args(["--device-env", "CUDA_VISIBLE_DEVICES={gpu}"]);
    let roles = [Role::start(&mut auctioneer), Role::start(&mut rep)];
    until_healthy(url, &[]).await;
    roles
}

#[tokio::test(flavor = "multi_thread")]
async fn instances_are_told_their_devices_and_none_is_given_twice() {
    let server = NatsServer::start().await;
    let url = server.url();
    let _roles = with_gpus(&url).await;
    let ask = |args: &[&str]| end(vendue().args(args).env("NATS_URL", &url));
    let start = |app: &str, devices: &str, more: &[&str]| {
        let script = "echo has $GPU_DEVICES/$CUDA_VISIBLE_DEVICES.; exec sleep 1000";
        let args = ["run", app, "--memory", "8", "--disk", "1"];
        let command = ["--", "sh", "-c", script];
        let devices = ["--devices", devices];
        let devices = if devices[1].is_empty() {
            &[][..]
        } else {
            &devices
        };
        ask(&[&args[..], devices, more, &command].concat())
    };
    start("shares", "gpu=1x600", &["--instances", "2"]).expect(0, &["placed"]);
    start("third", "gpu=1x600", &[]).expect(
        3,
        &["insufficient resources: gpu (2 devices have 400 free, none has 600)"],
    );
    ask(&["explain", "third"]).expect(0, &["2 devices have 400 free, none has 600"]);
    start("both", "gpu=2x300:T4", &[]).expect(0, &["placed"]);
    start("other", "gpu=1x1:P100", &[]).expect(3, &["there is no such device"]);
    start("none", "", &[]).expect(0, &["placed"]);
    ask(&["ps"]).expect(
        0,
        &[
            "DEVICES",
            "gpu 0 (600 each)",
            "gpu 1 (600 each)",
            "gpu 0,1 (300 each)",
        ],
    );
    ask(&["explain", "both"]).expect(0, &["gpu 0,1 (300 each)"]);
    for (app, lines) in [
        ("shares", &["has 0/0.", "has 1/1."][..]),
        ("both", &["has 0,1/0,1."]),
        ("none", &["has /."]),
    ] {
        until("the output", || {
            let said = ask(&["logs", app]).out;
            let all = lines.iter().all(|line| said.contains(line));
            all.then_some(()).ok_or(said)
        })
        .await;
    }
    let free = |expected: &'static str| {
        let said = ask(&["cells"]).out;
        said.contains(expected).then_some(()).ok_or(said)
    };
    until("the advertisement", || free("gpu 200/2000 (0 of 2 unused)")).await;
    ask(&["stop", "shares"]).expect(0, &[]);
    until("devices to be free", || {
        free("gpu 1400/2000 (0 of 2 unused)")
    })
    .await;
    start("third", "gpu=1x600", &[]).expect(0, &["placed"]);
}
