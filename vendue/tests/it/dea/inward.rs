//! DEAs as cells.

use serde_json::json;
use testkit::NatsServer;

use super::{Cluster, droplet, estate::Estate};
use crate::{common::until, roles::Role};

async fn cluster() -> (NatsServer, Cluster, Role) {
    let server = NatsServer::start().await;
    let cluster = Cluster {
        url: server.url(),
        files: tempfile::tempdir().unwrap(),
    };
    let auctioneer = cluster.role(&["auctioneer", "--policy", "dea"]);
    (server, cluster, auctioneer)
}

#[tokio::test(flavor = "multi_thread")]
async fn droplets_are_placed_on_deas_found_again_and_stopped() {
    let estate = Estate::of(3).await;
    let (_server, cluster, _auctioneer) = cluster().await;
    let bridge = cluster.bridge(&estate.server.url());
    cluster.cells(3).await;
    let file = cluster.file("orders.json", &droplet(4));
    let file = file.to_str().unwrap();
    let placed = cluster.run(&["start", file]);
    placed.expect(0, &["placed"]);
    assert!(!format!("{placed:?}").contains("s3cret"));
    cluster
        .run(&["wait", "orders", "--instances", "4"])
        .expect(0, &["4 running"]);
    assert_eq!(estate.count(), 4);
    for (_, start) in estate.running() {
        assert_eq!(start.env.0, ["KEY=s3cret"]);
        assert_eq!(
            (start.stack.as_str(), start.limits.mem),
            ("cflinuxfs2", 256)
        );
    }
    let before = cluster.instances("orders", "running").unwrap();
    let zones: Vec<&str> = before.iter().map(|(_, cell, _)| cell.as_str()).collect();
    assert!(
        zones.iter().all(|cell| cell.starts_with("dea-")),
        "{zones:?}"
    );
    // work other than droplets goes to no DEA
    let other = cluster.run(&[
        "run", "other", "--memory", "16", "--disk", "16", "--", "true",
    ]);
    other.expect(3, &["runs anything but droplets"]);
    // repeating the request starts nothing
    let state = cluster.json(&["explain", "orders"]);
    assert!(!state.to_string().contains("s3cret"));
    // a bridge that is killed and restarted knows everything, under the same names
    rustix::process::kill_process(bridge.pid(), rustix::process::Signal::KILL).unwrap();
    drop(bridge);
    let mut bridge = cluster.bridge(&estate.server.url());
    until("the new bridge to know what runs", || {
        let now = cluster.instances("orders", "running")?;
        (now == before)
            .then_some(())
            .ok_or(format!("{now:?} {before:?}"))
    })
    .await;
    // a crash is reported
    let (on, _) = estate.running().remove(0);
    estate.crash(&on);
    until("the crash to be told", || {
        let crashed = cluster.instances("orders", "crashed")?;
        (crashed.len() == 1)
            .then_some(())
            .ok_or(format!("{crashed:?}"))
    })
    .await;
    cluster.run(&["stop", "orders"]).expect(0, &[]);
    until("everything to be stopped", || {
        let left = cluster.instances("orders", "running")?.len() + estate.count();
        (left == 0).then_some(()).ok_or(left.to_string())
    })
    .await;
    bridge.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dea_without_room_is_not_promised_twice_and_one_that_leaves_gets_nothing() {
    let estate = Estate::of(2).await;
    let (_server, cluster, _auctioneer) = cluster().await;
    let _bridge = cluster.bridge(&estate.server.url());
    cluster.cells(2).await;
    // meanwhile a Cloud Controller takes half of the memory
    let cloud_controller = estate.server.client().await;
    let theirs = json!({"droplet": "theirs", "version": "v1", "index": 0, "limits": {"mem": 256, "disk": 64, "fds": 256},
        "cc_partition": "default"});
    for dea in ["d0", "d0", "d1", "d1"] {
        let body = theirs.to_string().into();
        let sent = cloud_controller.publish(format!("dea.{dea}.start"), body);
        sent.await.unwrap();
    }
    let file = cluster.file("orders.json", &droplet(6));
    let said = cluster.run(&["start", file.to_str().unwrap()]);
    said.expect(3, &["insufficient resources: memory"]);
    until("the estate to be full", || {
        let count = estate.count();
        (count == 8).then_some(()).ok_or(count.to_string())
    })
    .await;
    assert_eq!(cluster.instances("orders", "running").unwrap().len(), 4);
    cluster.run(&["stop", "orders"]).expect(0, &[]);
    until("room", || {
        let count = estate.count();
        (count == 4).then_some(()).ok_or(count.to_string())
    })
    .await;
    estate.evacuate("d0");
    until("one cell to take no work", || {
        let cells = cluster.json(&["cells"]).to_string();
        let leaving = cells.matches("\"evacuating\":true").count();
        (leaving == 1).then_some(()).ok_or(cells)
    })
    .await;
    let file = cluster.file("orders.json", &droplet(2));
    cluster
        .run(&["start", file.to_str().unwrap()])
        .expect(0, &["placed"]);
    let running = estate.running();
    let ours = running
        .iter()
        .filter(|(_, start)| start.droplet == "orders");
    assert!(ours.clone().count() == 2 && ours.into_iter().all(|(on, _)| on == "d1"));
    // instances lost with their DEA are reported once nothing was heard of it for 30 s
    estate.vanish("d1");
    until("the instances to be lost", || {
        let cells = cluster.json(&["cells"])["total"].clone();
        (cells == 1).then_some(()).ok_or(cells.to_string())
    })
    .await;
}
