//! Bad usage of `dea-in` and `dea-out`, and an estate that cannot be reached.

use std::fs;

use testkit::NatsServer;

use crate::{
    common::{PATIENCE, end, until, vendue},
    roles::Role,
};

#[test]
fn bad_flags_and_files_are_named_with_what_was_expected() {
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("settings.toml");
    let path = file.to_str().unwrap();
    for (args, text) in [
        (&["dea-in", "--slots", "0"][..], "--slots: 0"),
        (&["dea-in", "--slots", "10001"], "a number from 1 to 10000"),
        (&["dea-in", "--settle", "2h"], "--settle: 2h"),
        (&["dea-in", "--name", "a b"], "--name: \"a b\""),
        (&["dea-out"], "--cells: a list of 0"),
        (&["dea-out", "--cells", "c1,c2,c1"], "--cells: \"c1\""),
        (
            &["dea-out", "--cells", "c1", "--heartbeat", "0s"],
            "--heartbeat: 0s",
        ),
    ] {
        end(vendue().arg("advertiser").args(args)).expect(2, &[text]);
    }
    for (text, said) in [
        (
            "slotz = 3",
            ["slotz", "name, slots, expiry, settle, dea-server"],
        ),
        ("expiry = \"1500ms\"", ["expiry", "whole seconds"]),
    ] {
        fs::write(&file, text).unwrap();
        let args = ["advertiser", "dea-in", "--config", path];
        end(vendue().args(args)).expect(2, &said);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridge_that_cannot_reach_its_estate_says_which_flag_gives_the_address_and_can_be_ended()
{
    let server = NatsServer::start().await;
    let files = tempfile::tempdir().unwrap();
    let log = files.path().join("log");
    let mut bridge = vendue();
    bridge.args(["advertiser", "dea-in", "--dea-server", "nats://127.0.0.1:1"]);
    let mut bridge = Role::logged(bridge.env("NATS_URL", server.url()), &log);
    until("the advice", || {
        let text = fs::read_to_string(&log).unwrap();
        let advised = text.contains("--dea-server or VENDUE_DEA_SERVER says where it is");
        advised.then_some(()).ok_or(text)
    })
    .await;
    bridge.end();
}

/// Returns the resident memory of a bridge that has just begun to serve, in KiB.
async fn resident_kib(server: &NatsServer, slots: usize) -> u64 {
    let (url, name) = (server.url(), format!("dea-{slots}"));
    let mut bridge = vendue();
    bridge.args([
        "advertiser",
        "dea-in",
        "--name",
        &name,
        "--dea-server",
        &url,
    ]);
    bridge.args(["--slots", &slots.to_string()]);
    let mut bridge = Role::start(bridge.env("NATS_URL", &url));
    let client = server.client().await;
    let subject = format!("vendue.bridge.{name}.state");
    testkit::eventually_within(PATIENCE, "the bridge to serve", async || {
        let answer = client.request(subject.clone(), "".into()).await;
        answer.map(drop)
    })
    .await;
    let pid = bridge.pid().as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    bridge.end();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.unwrap()
        .trim_end_matches(" kB")
        .trim()
        .parse()
        .unwrap()
}

/// An estate of 1,000 DEAs must fit into 100 MiB, most of which is for what they run.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_takes_little_memory_while_it_waits_for_a_dea() {
    let server = NatsServer::start().await;
    let few = resident_kib(&server, 1).await;
    let many = resident_kib(&server, 2_001).await;
    let each = many.saturating_sub(few) / 2_000;
    assert!(
        each < 16,
        "{each} KiB: {few} KiB with 1, {many} KiB with 2,001"
    );
}
