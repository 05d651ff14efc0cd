//! Apps that a manager keeps running on DEAs that are restarted, freeze or are emptied.

use std::{collections::BTreeSet, process::Stdio, time::Duration};

use rustix::process::{Signal, kill_process};
use serde_json::json;
use tempfile::TempDir;
use testkit::NatsServer;

use super::{Cluster, droplet, estate::Estate, outward::serve};
use crate::{
    common::{checkout, is_old_server, until},
    roles::Role,
};

/// A cluster with a manager and a bridge to DEAs.
struct Kept {
    bridge: Role,
    _roles: [Role; 2],
    cluster: Cluster,
    estate: Estate,
    _server: NatsServer,
    _data: TempDir,
}

impl Kept {
    async fn of(deas: usize) -> Self {
        Self::with_bridge(deas, Cluster::bridge).await
    }

    /// Starts it with this bridge, for the address of the estate.
    async fn with_bridge(deas: usize, bridge: impl FnOnce(&Cluster, &str) -> Role) -> Self {
        let estate = Estate::of(deas).await;
        let data = tempfile::tempdir().unwrap();
        let config = format!("jetstream {{ store_dir: \"{}\" }}", data.path().display());
        let server = NatsServer::with_config(&config).await;
        let cluster = Cluster {
            url: server.url(),
            files: tempfile::tempdir().unwrap(),
        };
        let auctioneer = cluster.role(&["auctioneer", "--policy", "dea"]);
        let manager = cluster.role(&["manager"]);
        let bridge = bridge(&cluster, &estate.server.url());
        cluster.cells(deas).await;
        Self {
            bridge,
            _roles: [auctioneer, manager],
            cluster,
            estate,
            _server: server,
            _data: data,
        }
    }

    /// Puts the app, with one instance per DEA.
    fn put(&self, wait: &[&str]) {
        let file = self.cluster.file("orders.json", &droplet(3));
        let put = ["app", "put", file.to_str().unwrap()];
        self.cluster.run(&[&put, wait].concat()).expect(0, &[]);
    }

    /// Waits until the app runs on these cells and nowhere else; it must run somewhere at every moment.
    async fn until_on(&self, cells: &[&str]) {
        until(&format!("the app on {cells:?}"), || {
            let known = self.cluster.instances("orders", "running")?;
            assert!(!known.is_empty(), "nothing runs");
            let mut on: Vec<&str> = known.iter().map(|(_, cell, _)| cell.as_str()).collect();
            on.sort_unstable();
            (on == cells).then_some(()).ok_or(format!("{known:?}"))
        })
        .await;
    }

    /// Waits until exactly one of each index runs and the cluster knows it; at least `at_least` must run at every
    /// moment.
    async fn until_one_of_each(&self, at_least: usize) {
        until("one instance of each index", || {
            let running = self.estate.running();
            assert!(running.len() >= at_least, "{running:?}");
            let known = self.cluster.instances("orders", "running")?;
            let known: Vec<u64> = known.into_iter().map(|(index, ..)| index).collect();
            let indices: BTreeSet<u32> = running.iter().map(|(_, start)| start.index).collect();
            (running.len() == 3 && indices.len() == 3 && known == [0, 1, 2])
                .then_some(())
                .ok_or(format!("{running:?} {known:?}"))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dea_ran_that_started_again_is_replaced_also_by_a_new_bridge() {
    if is_old_server() {
        return; // managers need a newer one
    }
    let mut kept = Kept::of(3).await;
    kept.put(&["--wait"]);
    let (first, _) = kept.estate.running().remove(0);
    // the bridge sees it: another id, and the former one says nothing more
    kept.estate.vanish(&first);
    kept.estate.add(10, "again-1");
    kept.until_one_of_each(2).await;
    // no bridge sees it: the next one finds an empty DEA in the place of the former one
    kill_process(kept.bridge.pid(), Signal::KILL).unwrap();
    let (second, _) = kept.estate.running().remove(0);
    kept.estate.vanish(&second);
    kept.estate.add(11, "again-2");
    kept.bridge = kept.cluster.bridge(&kept.estate.server.url());
    kept.until_one_of_each(1).await;
    kept.cluster.run(&["app", "wait", "orders"]).expect(0, &[]);
}

/// Its start was sent but not answered; by the time it handles the start, another DEA has the instance.
#[tokio::test(flavor = "multi_thread")]
async fn a_dea_that_stood_still_starts_a_second_instance_which_is_stopped() {
    if is_old_server() {
        return;
    }
    let kept = Kept::of(3).await;
    // on a slow machine it may be forgotten before the start is sent
    for tries in 1.. {
        kept.estate.freeze("d0");
        kept.put(&[]);
        until("three starts to be sent", || {
            let (told, begun) = (kept.estate.unheard_starts("d0"), kept.estate.count());
            (told + begun >= 3)
                .then_some(())
                .ok_or(format!("{told} {begun}"))
        })
        .await;
        if kept.estate.unheard_starts("d0") > 0 {
            break;
        }
        assert!(tries < 5, "no start is sent to the DEA that stands still");
        kept.estate.thaw("d0");
        kept.cluster
            .run(&["app", "delete", "orders"])
            .expect(0, &[]);
        until("the app to end", || match kept.estate.count() {
            0 => Ok(()),
            n => Err(n.to_string()),
        })
        .await;
        kept.cluster.cells(3).await;
    }
    kept.until_one_of_each(0).await;
    let before = kept.estate.running();
    assert!(before.iter().all(|(on, _)| on != "d0"), "{before:?}");
    let begun = kept.estate.started();
    kept.estate.thaw("d0");
    assert_eq!(
        kept.estate.started(),
        begun + 1,
        "it hears the start only now"
    );
    kept.until_one_of_each(3).await;
    kept.cluster.run(&["app", "wait", "orders"]).expect(0, &[]);
}

/// An app may run on DEAs and on cells at once: a rollout replaces it on both, drains move it from one to the other, and
/// rebalancing spreads it over both again.
#[tokio::test(flavor = "multi_thread")]
async fn an_app_is_rolled_out_and_moved_across_deas_and_cells() {
    if is_old_server() {
        return;
    }
    let kept = Kept::of(1).await;
    let cluster = &kept.cluster;
    let _rep = cluster.rep("c1");
    cluster.cells(2).await;
    let mut app = droplet(2);
    let port = serve();
    app["run"]["droplet"]["uri"] = json!(format!("http://127.0.0.1:{port}/d"));
    app["update"] = json!({"min_healthy": "0s"});
    for version in ["one", "two"] {
        app["run"]["env"] = json!({"VERSION": version});
        let file = cluster.file("orders.json", &app);
        let put = ["app", "put", file.to_str().unwrap(), "--wait"];
        cluster.run(&put).expect(0, &[]);
        if version == "one" {
            // later the old version counts too, and both instances may be on one cell
            kept.until_on(&["c1", "dea-0"]).await;
        }
    }
    // to the DEA alone, then to the cell alone; one of the two must run at every moment
    for (drained, left) in [("c1", "dea-0"), ("dea-0", "c1")] {
        let drain = ["drain", drained, "--deadline", "10m", "--no-wait"];
        cluster.run(&drain).expect(0, &[]);
        kept.until_on(&[left, left]).await;
        if left == "dea-0" {
            let env: Vec<String> = kept.estate.running().remove(0).1.env.0;
            assert!(env.contains(&"VERSION=two".to_owned()), "{env:?}");
        }
        cluster.run(&["uncordon", drained]).expect(0, &[]);
    }
    assert_eq!(kept.estate.count(), 0);
    until("the app on both again", || {
        let said = cluster.run(&["rebalance", "--apply"]);
        said.expect(0, &[]);
        let known = cluster.instances("orders", "running")?;
        assert!(!known.is_empty(), "nothing runs");
        let on: BTreeSet<&str> = known.iter().map(|(_, cell, _)| cell.as_str()).collect();
        (known.len() == 2 && on == BTreeSet::from(["c1", "dea-0"]))
            .then_some(())
            .ok_or(format!("{known:?} {said:?}"))
    })
    .await;
    assert_eq!(kept.estate.count(), 1);
    cluster.run(&["app", "wait", "orders"]).expect(0, &[]);
}

/// Returns the commands of the walk-through in docs/LEGACY.md, in their order, as they are written there.
fn walk_through() -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(checkout().join("docs/LEGACY.md")).unwrap();
    let (_, section) = page
        .split_once("## Moving an app from DEAs to cells")
        .unwrap();
    let (section, _) = section.split_once("\n### ").unwrap();
    let block = section.split("```").nth(1).unwrap();
    let lines = block.lines().map(str::trim);
    let lines = lines.filter(|line| line.starts_with("vendue "));
    let (_, drain) = section.split_once("`vendue drain").unwrap();
    let drain = ["vendue drain", drain.split('`').next().unwrap()].concat();
    let commands = lines.map(str::to_owned).chain([drain]);
    let words = |command: String| command.split(' ').skip(1).map(str::to_owned).collect();
    commands.map(words).collect()
}

/// How a DEA is emptied.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// With the command of the page.
    Drain,
    /// By its own operators.
    Evacuation,
}

/// The walk-through of docs/LEGACY.md, with the commands that are written there: an app of the manager is moved from a
/// DEA to a cell.
#[tokio::test(flavor = "multi_thread")]
async fn an_app_is_moved_from_a_dea_to_a_cell_and_runs_at_every_moment() {
    if is_old_server() {
        return; // managers need a newer one
    }
    for way in [Way::Drain, Way::Evacuation] {
        walk(way).await;
    }
}

async fn walk(way: Way) {
    let commands = walk_through();
    let [bridge, put, drain] = &commands[..] else {
        panic!("{commands:?}")
    };
    let mut kept = Kept::with_bridge(1, |cluster, estate| {
        let url = "nats://USER:PASSWORD@estate:4222";
        assert!(bridge.iter().any(|word| word == url), "{bridge:?}");
        let words = bridge.iter().map(String::as_str);
        let words = words.map(|word| if word == url { estate } else { word });
        // on a slow machine a DEA may be late
        let words: Vec<&str> = words.chain(["--expiry", "20s", "--settle", "1s"]).collect();
        cluster.role(&words)
    })
    .await;
    let (cluster, estate) = (&kept.cluster, &kept.estate);
    let mut app = droplet(1);
    let port = serve();
    app["run"]["droplet"]["uri"] = json!(format!("http://me:s3cret@127.0.0.1:{port}/d"));
    let file = cluster.file("orders.json", &app);
    let put: Vec<&str> = put
        .iter()
        .map(|word| match word.as_str() {
            "orders.json" => file.to_str().unwrap(),
            word => word,
        })
        .collect();
    cluster.run(&put).expect(0, &[]);
    assert_eq!(estate.count(), 1);
    let shown = cluster.run(&["app", "show", "orders", "--output", "json"]);
    shown.expect(0, &["(hidden)"]);
    assert!(!shown.out.contains("s3cret"));
    let _rep = cluster.rep("c1");
    cluster.cells(2).await;
    let words: Vec<&str> = drain.iter().map(String::as_str).collect();
    let draining = (way == Way::Drain).then(|| {
        let mut drain = cluster.command(&words);
        drain.stdout(Stdio::null()).stderr(Stdio::null());
        drain.spawn().unwrap()
    });
    if way == Way::Evacuation {
        estate.evacuate("d0");
    }
    let moved = async {
        until("the app to run on the cell alone", || {
            // read before the side to which it moves: it runs on one of them at every moment
            let on_dea = estate.count();
            let on_cell = cluster.instances("orders", "running")?;
            let there = on_cell.iter().any(|(_, cell, _)| cell == "c1");
            assert!(there || on_dea == 1, "nothing runs: {on_cell:?}");
            (there && on_dea == 0)
                .then_some(())
                .ok_or(format!("{on_cell:?} {on_dea}"))
        })
        .await;
    };
    tokio::time::timeout(Duration::from_secs(120), moved)
        .await
        .unwrap();
    if let Some(mut draining) = draining {
        assert!(draining.wait().unwrap().success());
    }
    cluster.run(&["app", "wait", "orders"]).expect(0, &[]);
    kept.bridge.end();
    let left = kept.cluster.instances("orders", "running").unwrap();
    assert_eq!((left.len(), left[0].1.as_str()), (1, "c1"));
}
