//! Hundreds of DEAs, of two zones and with mixed stacks, on which a cluster and a Cloud Controller place work at the same
//! time.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Stdio,
    time::Duration,
};

use advertiser::{
    SimulatedEstate,
    dea::{
        DeaBody, DeaExited, DeaStart, Estate as Pool, EstateInput, EstateOptions, FacadeOptions,
        SimulatedDeas,
    },
};
use async_nats::{Client, Subscriber};
use futures_util::{FutureExt, StreamExt};
use placement::{PlanContext, Policy, Request};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use shared::clock::wall_ms;
use testkit::{NatsServer, eventually};

use super::{Cluster, Known, droplet, estate::Estate};
use crate::{common::until, roles::Role};

const STACKS: [&str; 2] = ["cflinuxfs2", "lucid64"];

fn now_ms() -> u64 {
    u64::try_from(wall_ms()).unwrap()
}

/// Returns whether the DEA with this number has the older of the two stacks, as every third one does.
fn is_old(n: usize) -> bool {
    n.is_multiple_of(3)
}

/// Starts DEAs `d0`, `d1` and so on of 1,024 MB. Those with even numbers are in zone z0, the others in z1.
async fn deas(server: NatsServer, count: usize) -> Estate {
    let client = server.client().await;
    let deas = SimulatedEstate::start(client, SimulatedDeas::default()).await;
    let estate = Estate {
        server,
        deas: deas.unwrap(),
    };
    for n in 0..count {
        let stack = STACKS[usize::from(is_old(n))];
        let seed = u64::try_from(n).unwrap();
        let mut options =
            FacadeOptions::new(&format!("d{n}"), "10.0.0.1", vec![stack.into()], seed);
        options.zone = format!("z{}", n % 2);
        (options.advertise_ms, options.heartbeat_ms) = (1_000, 2_000);
        // so that they do not all speak at the same moment
        let since = now_ms() - 2_000 * seed / u64::try_from(count).unwrap();
        estate
            .deas
            .act(|deas, _| deas.add(since, options, 1_024).unwrap());
    }
    estate
}

/// A Cloud Controller: it pools what DEAs advertise, picks one for each instance, and sends it the start.
struct CloudController {
    client: Client,
    pool: Pool,
    heard: Subscriber,
    policy: Policy,
    drawn: u64,
}

impl CloudController {
    async fn on(server: &NatsServer, deas: usize) -> Self {
        let client = server.client().await;
        let heard = client.subscribe("dea.advertise").await.unwrap();
        let mut all = Self {
            client,
            pool: Pool::new(EstateOptions { expiry_s: 20 }),
            heard,
            policy: Policy::preset("dea").unwrap(),
            drawn: 0,
        };
        while all.pool.live(now_ms()).count() < deas {
            all.hear_one().await;
        }
        all
    }

    async fn hear_one(&mut self) {
        let message = tokio::time::timeout(Duration::from_secs(60), self.heard.next());
        let message = message.await.unwrap().unwrap();
        let (subject, body) = (message.subject.as_str(), &message.payload[..]);
        let heard = EstateInput::Heard { subject, body };
        self.pool.handle(now_ms(), heard);
    }

    /// Starts instances of an app of 256 MB, all of them by what it knows now. Returns how many it could send.
    async fn start(&mut self, app: &str, instances: u32, stack: &str) -> usize {
        let mut request = Request::new(app, 256, 64);
        (request.instances, request.stack) = (instances, Some(stack.to_owned()));
        self.drawn += 1;
        let context = PlanContext {
            seed: self.drawn,
            ..PlanContext::default()
        };
        let choice = self.pool.choose(now_ms(), &request, &self.policy, &context);
        let mut sent = 0;
        for decision in choice.decisions {
            let Some(dea) = decision.cell else { continue };
            let start = json!({"droplet": app, "version": "v1", "index": decision.index, "stack": stack,
                "limits": {"mem": 256, "disk": 64, "fds": 256}, "cc_partition": "default"});
            let body = start.to_string().into();
            let published = self.client.publish(format!("dea.{dea}.start"), body);
            published.await.unwrap();
            sent += 1;
        }
        sent
    }
}

/// Returns the number of instances of an app in each zone, and checks that each is alone of its index and on the stack
/// that it needs.
fn by_zone(running: &[(String, DeaStart)], app: &str, stack: &str) -> BTreeMap<usize, usize> {
    let (mut zones, mut indices) = (BTreeMap::new(), BTreeSet::new());
    for (dea, start) in running.iter().filter(|(_, start)| start.droplet == app) {
        let n: usize = dea[1..].parse().unwrap();
        assert_eq!(STACKS[usize::from(is_old(n))], stack, "{app} on {dea}");
        assert!(indices.insert(start.index), "{app}/{} twice", start.index);
        *zones.entry(n % 2).or_insert(0) += 1;
    }
    zones
}

async fn until_running(estate: &Estate, app: &str, count: usize) {
    until(&format!("{count} instances of {app} on DEAs"), || {
        let running = estate.running();
        let of_app = running.iter().filter(|(_, start)| start.droplet == app);
        let running = of_app.count();
        (running == count).then_some(()).ok_or(running.to_string())
    })
    .await;
}

/// Every kind of body that cannot be used, and some that can be used in part, with whether each is malformed.
fn odd_bodies() -> Vec<(&'static str, String, bool)> {
    let odd = |id: &str, key: &str, value: Value| {
        let mut body = json!({"id": id, "stacks": ["s"], "available_memory": 512, "available_disk": 64,
            "app_id_to_count": {}, "placement_properties": {"zone": "z0"}});
        body[key] = value;
        ("dea.advertise", body.to_string(), false)
    };
    let instance = |index: Value| {
        json!({"droplet": "orders", "version": "v", "instance": "i", "index": index,
        "state": "RUNNING", "state_timestamp": 1})
    };
    let exited = |index: Value| {
        json!({"droplet": "nobody", "version": "vendue-x", "instance": "i", "index": index,
        "reason": "CRASHED", "exit_status": 1, "exit_description": ""})
    };
    vec![
        ("dea.advertise", "no JSON".into(), true),
        ("dea.advertise", "[]".into(), true),
        ("dea.advertise", "{\"error\":1}".into(), true),
        ("dea.advertise", json!({"id": "a.b"}).to_string(), true),
        odd("odd-1", "placement_properties", Value::Null),
        odd("odd-2", "placement_properties", json!({"zone": null})),
        odd("odd-3", "app_id_to_count", Value::Null),
        odd("odd-4", "app_id_to_count", json!({"orders": null})),
        odd("odd-5", "stacks", json!("another")),
        odd("odd-6", "available_memory", json!("much")),
        odd("odd-6", "available_memory", json!(-0.5)),
        odd("odd-7", "available_disk", Value::Null),
        ("staging.advertise", json!({"stacks": []}).to_string(), true),
        ("dea.start", json!({"ip": 7}).to_string(), true),
        (
            "dea.shutdown",
            json!({"id": "never-heard"}).to_string(),
            false,
        ),
        ("dea.shutdown", json!({"id": null}).to_string(), true),
        // two DEAs of one id: the later one counts
        odd("odd-1", "available_memory", json!(0)),
        (
            "dea.heartbeat",
            json!({"dea": "odd-1", "droplets": [instance(json!("x")), instance(json!(0))]})
                .to_string(),
            false,
        ),
        ("dea.heartbeat", json!({"droplets": []}).to_string(), true),
        ("droplet.exited", exited(json!(0)).to_string(), false),
        ("droplet.exited", exited(json!(-1)).to_string(), true),
    ]
}

/// Waits until the bridge has counted the malformed messages, and checks that it has dropped nothing else.
async fn nothing_is_dropped_but(server: &NatsServer, malformed: usize) {
    let client = server.client().await;
    let counted = async || {
        let answer = client.request("vendue.bridge.dea.state", "".into()).await;
        let state: Value = serde_json::from_slice(&answer.unwrap().payload).unwrap();
        let done = state["dropped_malformed_of_deas"] == malformed;
        done.then_some(state.clone()).ok_or(state.to_string())
    };
    let state = eventually("the malformed messages to be counted", counted).await;
    for (name, count) in state.as_object().unwrap() {
        let is_other = name.starts_with("dropped_") && name != "dropped_malformed_of_deas";
        assert!(!is_other || *count == 0, "{state}");
    }
}

/// Returns the instances of both apps that the cluster knows.
fn known(cluster: &Cluster) -> Result<[Vec<Known>; 2], String> {
    let of = |app| cluster.instances(app, "running");
    Ok([of("orders")?, of("older")?])
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_deas_in_two_zones_get_droplets_of_both_stacks() {
    const DEAS: usize = 240;
    let estate = deas(NatsServer::start().await, DEAS).await;
    let server = NatsServer::start().await;
    let cluster = Cluster {
        url: server.url(),
        files: tempfile::tempdir().unwrap(),
    };
    let _auctioneer = cluster.role(&["auctioneer", "--policy", "dea"]);
    let url = estate.server.url();
    let mut args = vec!["advertiser", "dea-in", "--dea-server", &url];
    args.extend(["--slots", "260", "--expiry", "20s", "--settle", "4s"]);
    let bridge = cluster.role(&args);
    cluster.cells(DEAS).await;
    // what is odd costs nothing but a count, though it is sent during everything else
    let odd = odd_bodies();
    let malformed = odd.iter().filter(|(.., malformed)| *malformed).count();
    let peer = estate.server.client().await;
    for (subject, body, _) in odd {
        peer.publish(subject, body.into()).await.unwrap();
    }
    let mut cloud_controller = CloudController::on(&estate.server, DEAS).await;
    let put = |app: &str, instances, stack: &str| {
        let mut request = droplet(instances);
        (request["app"], request["stack"]) = (json!(app), json!(stack));
        cluster.file(&format!("{app}.json"), &request)
    };
    for (app, instances, stack) in [("orders", 60, STACKS[0]), ("older", 30, STACKS[1])] {
        let file = put(app, instances, stack);
        cluster
            .run(&["start", file.to_str().unwrap()])
            .expect(0, &["placed"]);
    }
    assert_eq!(cloud_controller.start("theirs", 60, STACKS[0]).await, 60);
    for (app, stack, count) in [
        ("orders", STACKS[0], 60),
        ("older", STACKS[1], 30),
        ("theirs", STACKS[0], 60),
    ] {
        until_running(&estate, app, count).await;
        let half = count / 2;
        let zones = by_zone(&estate.running(), app, stack);
        assert_eq!(zones, BTreeMap::from([(0, half), (1, half)]), "{app}");
    }
    // the DEA behind a cell can be asked for
    let shown = cluster.json(&["cells", "show", "dea-0"]);
    let dea = shown["dea"].as_str().unwrap().to_owned();
    let found = cluster.json(&["cells", "--where", &format!("dea={dea}")]);
    assert_eq!(found["cells"][0]["cell"]["cell"], "dea-0", "{found}");
    nothing_is_dropped_but(&server, malformed).await;
    // killed and started again, it knows all of it, under the same names
    let before = known(&cluster).unwrap();
    assert_eq!(before.each_ref().map(Vec::len), [60, 30]);
    kill_process(bridge.pid(), Signal::KILL).unwrap();
    drop(bridge);
    let _bridge: Role = cluster.role(&args);
    until("the new bridge to know what runs", || {
        let now = known(&cluster)?;
        (now == before).then_some(()).ok_or(format!("{now:?}"))
    })
    .await;
    assert_eq!(estate.started(), 150, "nothing was started again");
}

/// Both place on the same few DEAs at once, by what these advertised before: each believes that there is room for all
/// that it sends. The DEAs refuse what is too much, and neither side believes afterwards that more runs than does.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_and_a_cloud_controller_that_choose_the_same_memory_do_not_both_get_it() {
    let estate = deas(NatsServer::start().await, 6).await;
    let server = NatsServer::start().await;
    let cluster = Cluster {
        url: server.url(),
        files: tempfile::tempdir().unwrap(),
    };
    let _auctioneer = cluster.role(&["auctioneer", "--policy", "dea"]);
    let _bridge = cluster.bridge_of(&estate.server.url(), 6);
    cluster.cells(6).await;
    let other = estate.server.client().await;
    let mut refused = other.subscribe("droplet.exited").await.unwrap();
    other.flush().await.unwrap();
    // four of the DEAs have the stack, each with room for four
    let mut cloud_controller = CloudController::on(&estate.server, 6).await;
    let file = cluster.file("orders.json", &droplet(12));
    let mut starting = cluster.command(&["start", file.to_str().unwrap()]);
    let mut starting = starting.stdout(Stdio::null()).spawn().unwrap();
    let sent = cloud_controller.start("theirs", 12, STACKS[0]).await;
    assert_eq!(sent, 12, "it believes that there is room");
    let code = starting.wait().unwrap().code();
    // every start of the Cloud Controller runs, or was refused for lack of memory
    let count = |app: &str| {
        let running = estate.running();
        let of_app = running.iter().filter(|(_, start)| start.droplet == app);
        of_app.count()
    };
    let mut without_room = 0;
    until("every start of the Cloud Controller to be decided", || {
        while let Some(Some(message)) = refused.next().now_or_never() {
            let ended = DeaExited::read(&message.payload).unwrap().body;
            assert!(ended.is_refusal(), "{ended:?}");
            without_room += usize::from(ended.droplet == "theirs");
        }
        let decided = count("theirs") + without_room;
        (decided == 12).then_some(()).ok_or(decided.to_string())
    })
    .await;
    let (ours, theirs) = (count("orders"), count("theirs"));
    assert!(ours + theirs <= 16 && ours + theirs > 12, "{ours} {theirs}");
    assert_eq!(code, Some(if ours == 12 { 0 } else { 3 }));
    let known = cluster.instances("orders", "running").unwrap();
    assert_eq!(known.len(), ours, "{known:?}");
}
