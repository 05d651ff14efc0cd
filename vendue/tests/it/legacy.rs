//! Estates of DEAs: scripted DEAs that publish like the originals, on a real nats-server.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
    time::Duration,
};

use futures_util::StreamExt;
use serde_json::{Value, json};
use testkit::NatsServer;
use tokio::task::JoinHandle;

use crate::{
    cli_page,
    common::{Finished, checkout, end, until, vendue},
};

/// Short enough that everybody is heard within a second.
const PAUSE: Duration = Duration::from_millis(200);

/// DEAs that repeatedly publish the given messages.
struct Deas {
    server: NatsServer,
    script: JoinHandle<()>,
}

impl Drop for Deas {
    fn drop(&mut self) {
        self.script.abort();
    }
}

impl Deas {
    async fn say(said: Vec<(&'static str, Value)>) -> Self {
        let server = NatsServer::start().await;
        let client = server.client().await;
        let said: Vec<(&str, String)> = said
            .into_iter()
            .map(|(subject, body)| match body {
                // not JSON at all
                Value::String(text) => (subject, text),
                body => (subject, body.to_string()),
            })
            .collect();
        let script = tokio::spawn(async move {
            loop {
                for (subject, body) in &said {
                    let sent = client.publish(*subject, body.clone().into());
                    sent.await.unwrap();
                }
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { server, script }
    }

    fn run(&self, args: &[&str]) -> Finished {
        let mut command = vendue();
        command.arg("legacy").args(args);
        end(command.env("NATS_URL", self.server.url()))
    }

    /// Runs a command until it has heard this many DEAs, which takes longer on a slow machine.
    async fn json(&self, code: i32, args: &[&str], deas: u64) -> Value {
        let args = [args, &["--for", "1s", "--output", "json"]].concat();
        until("every DEA to be heard", || {
            let said = self.run(&args);
            let document: Value = serde_json::from_str(&said.out).unwrap_or_default();
            let heard = match &document["deas"] {
                Value::Array(rows) => rows.len() as u64,
                number => number.as_u64().unwrap_or_default(),
            };
            (said.code == Some(code) && heard == deas)
                .then_some(document)
                .ok_or(format!("{heard} DEAs: {said:?}"))
        })
        .await
    }
}

/// A DEA of a large estate: its memory, zone, stack, and number of instances of `app`.
struct Scripted {
    id: String,
    zone: &'static str,
    stack: &'static str,
    memory: i64,
    disk: i64,
    count: i64,
}

fn large_estate() -> Vec<Scripted> {
    let scripted = |n: i64| Scripted {
        id: format!("{n}-7c1e0b9a44d24f0e9d3a5b6c7d8e{n:04}"),
        zone: if n % 5 < 2 { "z1" } else { "z2" },
        stack: if n % 3 == 0 { "lucid64" } else { "cflinuxfs2" },
        memory: 200 + (n * 7_919) % 4_000,
        disk: (n * 104_729) % 9_000,
        count: if n % 5 < 2 { 2 - n % 2 } else { n % 2 },
    };
    (0..300).map(scripted).collect()
}

fn advertisement(dea: &Scripted) -> Value {
    let mut body = json!({"id": dea.id, "stacks": [dea.stack], "available_memory": dea.memory, "available_disk": dea.disk,
        "app_id_to_count": {"other": 1}, "placement_properties": {"zone": dea.zone}});
    if dea.count > 0 {
        body["app_id_to_count"]["app"] = json!(dea.count);
    }
    body
}

/// The Cloud Controller's pipeline, literally: room, zone, count, upper half.
fn finalists(deas: &[Scripted], memory: i64, disk: i64) -> BTreeSet<String> {
    let mut by_zone: BTreeMap<&str, i64> = BTreeMap::new();
    for dea in deas {
        *by_zone.entry(dea.zone).or_default() += dea.count;
    }
    let fits =
        |dea: &&Scripted| dea.disk >= disk && dea.memory >= memory && dea.stack == "cflinuxfs2";
    let mut left: Vec<&Scripted> = deas.iter().filter(fits).collect();
    let fewest = left.iter().map(|dea| by_zone[dea.zone]).min().unwrap();
    left.retain(|dea| by_zone[dea.zone] == fewest);
    let fewest = left.iter().map(|dea| dea.count).min().unwrap();
    left.retain(|dea| dea.count == fewest);
    let mut memories: Vec<i64> = left.iter().map(|dea| dea.memory).collect();
    memories.sort_unstable();
    let threshold = memories[memories.len() / 2];
    left.retain(|dea| dea.memory >= threshold);
    left.iter().map(|dea| dea.id.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_deas_are_heard_and_chosen_from_and_nothing_is_published() {
    let estate = large_estate();
    let said = estate
        .iter()
        .map(|dea| ("dea.advertise", advertisement(dea)));
    let deas = Deas::say(said.collect()).await;
    let client = deas.server.client().await;
    let mut everything = client.subscribe(">").await.unwrap();
    client.flush().await.unwrap();
    let picture = deas.json(0, &["watch"], 300).await;
    cli_page::check("legacy watch", &picture);
    let zones = picture["zones"].as_object().unwrap();
    assert_eq!(zones["z1"]["deas"], 120, "{zones:?}");
    assert_eq!(zones["z2"]["deas"], 180, "{zones:?}");
    let instances: i64 = estate.iter().map(|dea| dea.count).sum();
    assert_eq!(picture["apps"]["app"]["instances"], instances);
    assert_eq!(picture["apps"]["other"]["deas"], 300);
    assert_eq!(picture["senders"], json!([]));
    let args = [
        "place",
        "app",
        "--memory",
        "512",
        "--disk",
        "2048",
        "--stack",
        "cflinuxfs2",
    ];
    let choice = deas.json(0, &args, 300).await;
    cli_page::check("legacy place", &choice);
    let decision = &choice["decisions"][0];
    let found: BTreeSet<String> = serde_json::from_value(decision["finalists"].clone()).unwrap();
    assert_eq!(found, finalists(&estate, 512, 2_048));
    assert!(found.contains(decision["cell"].as_str().unwrap()));
    let args = [
        "place",
        "--memory",
        "8G",
        "--disk",
        "0",
        "--stack",
        "cflinuxfs2",
    ];
    let choice = deas.json(3, &args, 300).await;
    let reason = &choice["decisions"][0]["reason"];
    assert_eq!(reason, "insufficient resources: memory");
    deas.script.abort();
    client.flush().await.unwrap();
    let mut subjects = BTreeSet::new();
    while let Ok(Some(message)) = tokio::time::timeout(PAUSE, everything.next()).await {
        subjects.insert(message.subject.to_string());
    }
    assert_eq!(subjects, BTreeSet::from(["dea.advertise".to_owned()]));
}

/// Returns a small estate in which much is odd.
fn odd_estate() -> Vec<(&'static str, Value)> {
    let good = json!({"id": "good", "stacks": ["cflinuxfs2"], "available_memory": 1024.5, "available_disk": 4096,
        "app_id_to_count": {"app": 1}, "placement_properties": {"zone": "z1"}});
    let mut null = good.clone();
    (null["id"], null["placement_properties"]) = (json!("null"), json!(null));
    let mut left = good.clone();
    left["id"] = json!("left");
    left["placement_properties"]["zone"] = json!("z\u{1b}[2J");
    let beat = json!({"dea": "left", "droplets": [
        {"droplet": "app", "version": "v", "instance": "i", "index": 0, "state": "EVACUATING", "state_timestamp": 1.5},
        {"droplet": "app", "password": "hush"}]});
    vec![
        (
            "dea.start",
            json!({"id": "good", "ip": "10.0.16.9", "version": "0.0.1"}),
        ),
        ("dea.advertise", good),
        ("dea.advertise", null),
        ("dea.advertise", left),
        (
            "dea.shutdown",
            json!({"id": "left", "ip": "10.0.16.8", "version": "0.0.1", "app_id_to_count": {}}),
        ),
        ("dea.heartbeat", beat),
        ("dea.advertise", json!("hush, no JSON")),
        (
            "staging.advertise",
            json!({"id": "good", "stacks": [], "available_memory": 512}),
        ),
        ("droplet.exited", json!({"droplet": "app", "index": "hush"})),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_odd_is_said_and_nothing_else_suffers() {
    let deas = Deas::say(odd_estate()).await;
    let picture = deas.json(0, &["watch"], 3).await;
    let states: Vec<_> = picture["deas"]
        .as_array()
        .unwrap()
        .iter()
        .map(|dea| (dea["dea"].as_str().unwrap(), dea["state"].as_str().unwrap()))
        .collect();
    // the last of them advertises and leaves repeatedly
    assert_eq!(states[0], ("good", "live"));
    assert_eq!((states[1].0, states[2]), ("left", ("null", "live")));
    assert_eq!(picture["deas"][0]["memory_mb"], 1024.5);
    assert_eq!(picture["deas"][0]["ip"], "10.0.16.9");
    assert_eq!(picture["deas"][0]["staging_memory_mb"], 512);
    assert_eq!(picture["deas"][1]["states"]["EVACUATING"], 1);
    let senders = picture["senders"].as_array().unwrap();
    let names: BTreeSet<_> = senders.iter().map(|row| row["sender"].as_str()).collect();
    assert_eq!(names, BTreeSet::from([None, Some("left"), Some("null")]));
    assert!(!picture.to_string().contains("hush"));
    let said = deas.run(&["watch", "--for", "1s", "--apps"]);
    said.expect(
        0,
        &[
            "good",
            "(unnamed)",
            "placement_properties",
            "z1",
            "malformed",
        ],
    );
    assert!(!format!("{said:?}").contains("hush"));
    assert!(!said.out.contains('\u{1b}'), "{said:?}");
    let args = [
        "place",
        "app",
        "--memory",
        "512",
        "--disk",
        "1024",
        "--stack",
        "cflinuxfs2",
    ];
    until("the DEA on which a Cloud Controller fails", || {
        let said = deas.run(&[&args[..], &["--for", "1s", "--explain"]].concat());
        said.expect(0, &["placed"]);
        let warning = "DEA null: placement_properties: null";
        let warned = said.err.contains(warning);
        warned.then_some(()).ok_or(format!("{said:?}"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_deas_nothing_is_found_and_bad_usage_is_named() {
    let deas = Deas::say(Vec::new()).await;
    let args = [
        "place", "--memory", "1", "--disk", "1", "--stack", "s", "--for", "10ms",
    ];
    deas.run(&args).expect(3, &["unplaced", "0 DEAs"]);
    deas.run(&["watch", "--for", "10ms"])
        .expect(0, &["0 DEAs live", "0 messages understood"]);
    for (args, text) in [
        (&["watch", "--expiry", "1500ms"][..], "--expiry: 1s 500ms"),
        (&["watch", "--expiry", "2h"], "from 1s to 1h"),
        (&["watch", "--watch", "--output", "json"], "for programs"),
        (&["place", "--memory", "1", "--disk", "1"], "--stack"),
        (
            &[
                "place", "a.b", "--memory", "1", "--disk", "1", "--stack", "s",
            ],
            "app: \"a.b\"",
        ),
    ] {
        deas.run(args).expect(2, &[text]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_estate_is_shown_again_until_ctrl_c() {
    let deas = Deas::say(odd_estate()).await;
    let mut watch = vendue()
        .args(["legacy", "watch", "--watch"])
        .env("NATS_URL", deas.server.url())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let headers = lines
        .map_while(Result::ok)
        .filter(|line| line.starts_with("DEA"));
    assert_eq!(headers.take(2).count(), 2, "it is shown again");
    let pid = rustix::process::Pid::from_child(&watch);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert!(watch.wait().unwrap().success(), "Ctrl-C is how one ends it");
}

/// Every command of docs/LEGACY.md, as written there.
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_page_run() {
    let page = fs::read_to_string(checkout().join("docs/LEGACY.md")).unwrap();
    let lines: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("vendue legacy "))
        .collect();
    assert!(lines.len() >= 3, "{lines:?}");
    let deas = Deas::say(odd_estate()).await;
    for line in lines {
        let args: Vec<&str> = line.split(' ').collect();
        deas.run(&args).expect(0, &[]);
    }
}
